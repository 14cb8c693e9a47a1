"""The methods of the UCI tables: each turns a split into embedded train and test rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from uci_start import papers_fnpm

from fairstream import FairStreamingPCA, GroupMoments, fair_components
from fairstream.baselines import (
    INLP,
    RLACE,
    KleindessnerFairPCA,
    KleindessnerKernelFairPCA,
    LeacePCA,
    MbFPCA,
    OlfatAswaniFairPCA,
    SamadiFairPCA,
)
from fairstream.linalg import leading_outside, orthonormalise

PRINTED_M = {"adult": (15, 50), "compas": (2, 5), "german": (10, 25)}


class Embedded(NamedTuple):
    """Train and test rows in the embedding; V (d x k) where the method is linear with orthonormal V."""

    train: np.ndarray
    test: np.ndarray
    V: np.ndarray | None


Method = Callable[[Any, int, float], Embedded]  # (split, k, median-heuristic bandwidth)


def with_components(split: Any, V: np.ndarray) -> Embedded:
    """Project as the paper does: rows are standardised, so nothing is subtracted."""
    return Embedded(split.X_train @ V, split.X_test @ V, V)


def plain_components(split: Any, k: int) -> np.ndarray:
    pca = FairStreamingPCA(k, constraint="none", solver="exact").fit(split.X_train)
    return pca.components_.T


def offline(split: Any, k: int, m: int) -> Embedded:
    """Our closed form with the *covariance* gap in place of the second-moment gap of the paper's text.

    That is what the printed "offline" rows were computed with. The library keeps the text's definition.
    """
    X, A = split.X_train, split.groups_train
    f = X[A == 1].mean(axis=0) - X[A == 0].mean(axis=0)
    columns = [f[:, None]]
    if m:
        values, vectors = np.linalg.eigh(covariance_gap(X, A))
        columns.insert(0, vectors[:, np.argsort(-np.abs(values))[:m]])
    U = np.linalg.qr(np.hstack(columns))[0]
    V, _ = fair_components(GroupMoments(X.shape[1]).update(X, A), U, k)
    outside = np.eye(len(U)) - U @ U.T
    published = np.linalg.eigh(outside @ np.cov(X.T) @ outside)[1][:, : -k - 1 : -1]
    return in_basis(split, V, published)


def kleindessner(split: Any, k: int, fraction: float | None = None) -> Embedded:
    X, A = split.X_train, split.groups_train
    V = KleindessnerFairPCA(k, fraction=fraction).fit(X, sensitive_features=A).components_.T
    R = scipy.linalg.null_space(((A - A.mean()) @ X)[None])
    if fraction is not None:
        values, vectors = scipy.linalg.eigh(covariance_gap(X @ R, A))
        R = R @ vectors[:, np.argsort(np.abs(values))[: int(fraction * X.shape[1])]]
    largest = [R.shape[1] - k, R.shape[1] - 1]
    published = R @ scipy.linalg.eigh(R.T @ X.T @ X @ R, subset_by_index=largest)[1]
    return in_basis(split, V, published)


def covariance_gap(X: np.ndarray, A: np.ndarray) -> np.ndarray:
    return np.cov(X[A == 1].T) - np.cov(X[A == 0].T)


def in_basis(split: Any, V: np.ndarray, published: np.ndarray) -> Embedded:
    """Project on the span of V in the basis that the published program had: its order, and LAPACK's signs.

    Only the MLP sees the difference, its first weights being drawn by column.
    """
    rotation = V.T @ published
    if not np.allclose(rotation.T @ rotation, np.eye(len(rotation)), atol=1e-8):
        raise ValueError("the published basis spans another subspace")
    return with_components(split, V @ rotation)


def ours(split: Any, k: int, m: int, **options: Any) -> Embedded:
    choice = {"constraint": "all", "n_unfair": m} if m else {"constraint": "mean"}
    pca = FairStreamingPCA(k, **choice, **options)
    pca.fit(split.X_train, sensitive_features=split.groups_train)
    return with_components(split, pca.components_.T)


def ours_relative(split: Any, k: int, m: int) -> Embedded:
    """Relative directions as the kept cells have them: all m at once, within one window that grows with m.

    The library now chooses one direction at a time, so that more of them never bring one back; the tables
    keep their rows until all cells are run again.
    """
    moments = GroupMoments(split.X_train.shape[1]).update(split.X_train, split.groups_train)
    (pair,) = moments.comparisons()
    mean_basis = orthonormalise(moments.mean_gap(*pair)[:, None])
    width = min(k + m, moments.n_features - 1)
    window = leading_outside(moments.covariance(), mean_basis, width)
    ridge = 1e-3 * float(np.trace(moments.covariance().compress(window))) / width * np.eye(width)
    inside, outside = (side.compress(window) + ridge for side in moments.second_moments(*pair))
    ratios, vectors = scipy.linalg.eigh(inside, outside)
    strongest = np.argsort(-np.abs(np.log(ratios)), kind="stable")[:m]
    U = orthonormalise(np.hstack([moments.mean_gap(*pair)[:, None], window @ vectors[:, strongest]]))
    return with_components(split, fair_components(moments, U, k)[0])


def rival(estimator: Any, split: Any, *, linear: bool = True) -> Embedded:
    estimator.fit(split.X_train, sensitive_features=split.groups_train)
    if linear:
        return with_components(split, estimator.components_.T)
    return Embedded(estimator.transform(split.X_train), estimator.transform(split.X_test), None)


def methods(name: str) -> dict[str, Method]:
    """Return every method for one data set, the paper's rows by the paper's names, then ours."""
    table: dict[str, Method] = {
        "PCA": lambda s, k, _: with_components(s, plain_components(s, k)),
        "Olfat (0.1)": lambda s, k, _: rival(OlfatAswaniFairPCA(k, delta=0.1, as_published=True), s),
        "Olfat (0.0)": lambda s, k, _: rival(OlfatAswaniFairPCA(k, delta=0.0, as_published=True), s),
        "MbF-PCA (1e-3)": lambda s, k, b: rival(MbFPCA(k, tau=1e-3, bandwidth=b, random_state=0), s),
        "MbF-PCA (1e-6)": lambda s, k, b: rival(MbFPCA(k, tau=1e-6, bandwidth=b, random_state=0), s),
        "Kleindessner (mean)": lambda s, k, _: kleindessner(s, k),
        "Kleindessner (0.85)": lambda s, k, _: kleindessner(s, k, 0.85),
        "Kleindessner (0.5)": lambda s, k, _: kleindessner(s, k, 0.5),
        "Kleindessner (kernel)": lambda s, k, _: rival(KleindessnerKernelFairPCA(k), s, linear=False),
        "INLP": lambda s, k, _: rival(INLP(k, variant="paper", random_state=0), s),
        "RLACE": lambda s, k, _: rival(RLACE(k, variant="paper", random_state=0), s),
        "Samadi": lambda s, k, _: rival(SamadiFairPCA(k, embedding="published"), s, linear=False),
        "INLP then PCA": lambda s, k, _: rival(INLP(k, variant="pca", random_state=0), s),
        "RLACE then PCA": lambda s, k, _: rival(RLACE(k, variant="pca", random_state=0), s),
        "LEACE then PCA": lambda s, k, _: rival(LeacePCA(k), s, linear=False),
    }
    for m in (0, *PRINTED_M[name]):
        label = f"m={m}" if m else "mean"
        table[f"Ours (offline, {label})"] = lambda s, k, _, m=m: offline(s, k, m)
        table[f"Ours (FNPM, {label})"] = lambda s, k, _, m=m: with_components(
            s, papers_fnpm(s.X_train, s.groups_train, k, m)
        )
        table[f"Ours (exact, {label})"] = lambda s, k, _, m=m: ours(s, k, m, solver="exact")
        table[f"Ours (sketch, {label})"] = lambda s, k, _, m=m: ours(s, k, m, solver="sketch")
        if m:
            table[f"Ours (relative, {label})"] = lambda s, k, _, m=m: ours_relative(s, k, m)
    return table


def asked_for(method: str, patterns: Sequence[str]) -> bool:
    """Say whether a method is named by one of the patterns (* as in file names); without any, all are."""
    return not patterns or any(fnmatchcase(method, pattern) for pattern in patterns)


def check_patterns(patterns: Sequence[str]) -> None:
    """Stop at a pattern that names no method of any data set: it would quietly do nothing."""
    known = [method for name in PRINTED_M for method in methods(name)]
    for pattern in patterns:
        if not any(fnmatchcase(method, pattern) for method in known):
            raise SystemExit(f"--methods {pattern!r} names no method: the names are {sorted(set(known))}")
