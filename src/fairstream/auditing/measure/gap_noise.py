"""How large the gaps of an embedding would be if the groups did not differ: the same rows, labels shuffled.

A gap is never 0 on a sample. It means something if it is above what chance shows on as many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from fairstream.linalg import lapack

FloatArray = NDArray[np.floating[Any]]

WIDE = 200  # columns from which the largest eigenvalue is found by products with rows alone


@dataclass(frozen=True, slots=True)
class GapNoise:
    """One gap of one group against all other rows, and what shuffled labels show.

    `quantiles` belong to the shares asked for. `p_value` is the share of shuffled gaps that are at least as
    large, the observed one counted among them.
    """

    group: int
    gap: str
    observed: float
    quantiles: tuple[float, ...]
    p_value: float


def gap_noise(
    Z: ArrayLike,
    codes: ArrayLike,
    *,
    n_permutations: int = 200,
    quantiles: Sequence[float] = (0.5, 0.95),
    observed: Mapping[int, tuple[float, float]] | None = None,
    n_rows: int | None = None,
    seed: int = 0,
) -> tuple[GapNoise, ...]:
    """Compare the mean gap and the second-moment gap of every group with those of shuffled labels.

    The gaps are the length of the difference of the means, and the spectral norm of the difference of the
    second moments about the total mean. Two groups have one
    comparison, which is listed for group 1.

    Parameters
    ----------
    Z : array of shape (n, k)
        The embedding.
    codes : array of shape (n,)
        The group of each row, as codes 0, 1, ...; rows with -1 (unknown) are left out.
    n_permutations : int
        Number of shuffles.
    quantiles : sequence of float
        The shares whose quantiles are reported.
    observed : dict of int to (float, float), optional
        For each group the gap of the means and that of the second moments, measured on more rows of which Z
        is a sample. By default they are those of Z.
    n_rows : int, optional
        How many rows with a known group `observed` was measured on. Gaps of shuffled labels fall with the
        root of the number of rows, so those of the sample are scaled to it.
    seed : int
        Seed of the shuffles.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = np.arange(100) % 2
    >>> mean, second = gap_noise(rng.normal(size=(100, 3)) + codes[:, None], codes)
    >>> mean.observed > mean.quantiles[1], second.gap
    (True, 'second moments')
    """
    rows, labels = np.asarray(Z, dtype=float), np.asarray(codes)
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ValueError(f"codes has shape {labels.shape}, Z has shape {rows.shape}: pass one group per row")
    if n_permutations < 1:
        raise ValueError(f"n_permutations is {n_permutations}: pass at least 1")
    known = labels >= 0
    present, sizes = np.unique(labels[known], return_counts=True)
    if len(present) < 2:
        raise ValueError(f"codes has {len(present)} groups: a gap needs two")
    # Rows sorted by group: a shuffle is then another order of the rows, cut at the same places.
    centred = rows[known][np.argsort(labels[known], kind="stable")]
    centred -= centred.mean(axis=0)
    total = centred.T @ centred if centred.shape[1] < WIDE else None
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    sides = list(enumerate(present.tolist()))[1 if len(present) == 2 else 0 :]
    rng = np.random.default_rng(seed)
    gaps = np.empty((1 + n_permutations, len(sides), 2))
    for shuffle in range(1 + n_permutations):
        order = rng.permutation(len(centred)) if shuffle else np.arange(len(centred))
        for column, (place, _) in enumerate(sides):
            gaps[shuffle, column] = _gaps(centred, total, order[cuts[place] : cuts[place + 1]])
    scale = 1.0 if n_rows is None else float(np.sqrt(len(centred) / n_rows))
    results = []
    for column, (_, group) in enumerate(sides):
        for kind, name in enumerate(("means", "second moments")):
            gap = float(gaps[0, column, kind]) if observed is None else observed[group][kind]
            shuffled = scale * gaps[1:, column, kind]
            at_least = int(np.sum(shuffled >= gap))
            results.append(
                GapNoise(
                    group=int(group),
                    gap=name,
                    observed=gap,
                    quantiles=tuple(np.quantile(shuffled, quantiles).tolist()),
                    p_value=(1 + at_least) / (1 + n_permutations),
                )
            )
    return tuple(results)


def _gaps(centred: FloatArray, total: FloatArray | None, inside: NDArray[np.intp]) -> tuple[float, float]:
    """Return the mean gap and the second-moment gap of some rows against all others."""
    n, n_in = len(centred), len(inside)
    n_out = n - n_in
    # All rows sum to 0, so the other side's mean and second moments follow from this side's.
    if total is None:
        sign = np.full(n, -1 / n_out)
        sign[inside] = 1 / n_in
        mean = sign @ centred

        def times(v: FloatArray) -> FloatArray:
            product: FloatArray = (sign * (centred @ v.ravel())) @ centred
            return product

        operator = LinearOperator((len(mean), len(mean)), matvec=times, dtype=float)
        largest = eigsh(operator, 1, which="LM", tol=1e-3, return_eigenvectors=False, v0=np.ones(len(mean)))
        return float(np.linalg.norm(mean)), float(abs(largest[0]))
    rows = centred[inside]
    mean = rows.sum(axis=0) * (1 / n_in + 1 / n_out)
    gap = rows.T @ rows * (1 / n_in + 1 / n_out) - total / n_out
    return float(np.linalg.norm(mean)), float(np.abs(lapack(np.linalg.eigvalsh, gap)).max())
