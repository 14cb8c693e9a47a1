"""What an embedding keeps and leaves, straight from the definitions. Nothing from the library."""

import numpy as np


def explained_variance_ratio(X, components):
    """tr(V'AV) / tr(A): the share of the variance of X along the rows of `components`."""
    centred = X - X.mean(axis=0)
    return np.sum((centred @ components.T) ** 2) / np.sum(centred**2)


def mean_gap(Z, inside):
    return np.linalg.norm(Z[inside].mean(axis=0) - Z[~inside].mean(axis=0))


def second_moment_gap(Z, inside):
    """The spectral norm of the difference of the second moments, both about the mean of all rows."""
    A, B = Z[inside] - Z.mean(axis=0), Z[~inside] - Z.mean(axis=0)
    return np.linalg.norm(A.T @ A / len(A) - B.T @ B / len(B), 2)
