"""Dense solutions written straight from the paper's formulas, for comparison. Nothing from the library."""

import numpy as np


def second_moment_gap(X, labels, group):
    """S about the total mean; rows labelled None belong to no group."""
    Z = X - X.mean(axis=0)
    known = np.array([label is not None for label in labels])
    inside = known & np.array([label == group for label in labels])
    outside = known & ~inside
    return Z[inside].T @ Z[inside] / inside.sum() - Z[outside].T @ Z[outside] / outside.sum()


def mean_gap(X, labels, group):
    known = np.array([label is not None for label in labels])
    inside = known & np.array([label == group for label in labels])
    return X[inside].mean(axis=0) - X[known & ~inside].mean(axis=0)


def compared_groups(labels):
    groups = sorted({label for label in labels if label is not None})
    return groups[1:] if len(groups) == 2 else groups


def unfair_columns(X, attributes, m, constraint):
    """The raw columns [P_m | f] of every comparison, not orthonormalised."""
    columns = []
    for labels in attributes:
        for group in compared_groups(labels):
            if constraint in ("covariance", "all") and m:
                values, vectors = np.linalg.eigh(second_moment_gap(X, labels, group))
                columns.append(vectors[:, np.argsort(-np.abs(values))[:m]])
            if constraint in ("mean", "all"):
                columns.append(mean_gap(X, labels, group)[:, None])
    return np.hstack(columns) if columns else np.zeros((X.shape[1], 0))


def null_space_basis(columns):
    """Orthonormal bases of the column space and of its complement, by SVD of unit columns."""
    d = columns.shape[0]
    if columns.shape[1] == 0:
        return np.zeros((d, 0)), np.eye(d)
    unit = columns / np.linalg.norm(columns, axis=0)
    left, singular, _ = np.linalg.svd(unit)
    rank = int((singular > 1e-9).sum())
    return left[:, :rank], left[:, rank:]


def fair_pca(X, attributes, k, m, constraint):
    """Return U, V and the variances along V (1/n) for the dense problem."""
    U, N = null_space_basis(unfair_columns(X, attributes, m, constraint))
    covariance = np.cov(X.T, ddof=0)
    values, vectors = np.linalg.eigh(N.T @ covariance @ N)
    return U, N @ vectors[:, ::-1][:, :k], values[::-1]


def largest_sine(A, B):
    """Sine of the largest principal angle between two column spaces of equal dimension."""
    if A.shape[1] == 0:
        return 0.0
    A, B = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    return np.linalg.norm(A - B @ (B.T @ A), 2)
