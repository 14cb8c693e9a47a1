"""Maximum mean discrepancy between groups, by the paper's protocol, in memory that does not grow with pairs.

Symbols: Z is n x k, K the n x n kernel matrix that is only ever seen one tile at a time, l the 0/1 vector
that marks the rows of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.floating[Any]]

TILE = 1024
KEPT_DISTANCES = 2**22
_BINS = 4096
_TIE = 1e-11


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """MMD^2 of two samples: the paper's biased statistic, the unbiased one, and its permutation p-value."""

    biased: float
    unbiased: float
    p_value: float | None
    n_permutations: int


def median_squared_distance(Z: ArrayLike, *, tile: int = TILE, keep: int = KEPT_DISTANCES) -> float:
    """Return the exact median of |z_i - z_j|^2 over all pairs i < j: the paper's bandwidth, 2 sigma^2.

    Memory is O(tile^2 + keep). A bracket around the median is drawn from a sample of pairs, then narrowed by
    passes over the tiles until at most `keep` distances lie inside it; those are sorted.

    Examples
    --------
    >>> median_squared_distance([[0.0], [1.0], [3.0]])
    4.0
    """
    Z = _centred(Z)
    n_pairs = len(Z) * (len(Z) - 1) // 2
    if n_pairs == 0:
        raise ValueError(f"Z has {len(Z)} rows: a distance needs at least two")
    ranks = ((n_pairs - 1) // 2, n_pairs // 2)
    low, high = _first_bracket(Z, n_pairs, keep)
    while True:
        below, counts, inside = _scan(Z, low, high, tile, keep)
        if not below <= ranks[0] <= ranks[1] < below + counts.sum():
            low, high = 0.0, _distance_bound(Z)
            continue
        if inside is not None:
            middle = np.sort(inside)[[rank - below for rank in ranks]]
            return float(middle.mean())
        edges = np.linspace(low, high, _BINS + 1)
        first, last = (int(np.searchsorted(np.cumsum(counts), rank - below, "right")) for rank in ranks)
        narrowed = edges[max(first - 1, 0)], edges[min(last + 2, _BINS)]
        if narrowed == (low, high) or narrowed[1] - narrowed[0] < _TIE * narrowed[1]:
            return float(sum(narrowed) / 2)  # the middle distances are equal to rounding
        low, high = narrowed


def mmd2(Z: ArrayLike, in_group: NDArray[np.bool_], bandwidth: float) -> float:
    """Return the paper's MMD^2: the biased V-statistic with kernel exp(-|x - y|^2 / bandwidth).

    The paper's bandwidth is `median_squared_distance` of the training rows under plain PCA (that is
    2 sigma^2), the same for every method that is compared.

    Examples
    --------
    >>> round(mmd2([[0.0], [0.0], [1.0], [1.0]], np.array([True, True, False, False]), bandwidth=1.0), 4)
    1.2642
    """
    return discrepancy(Z, in_group, bandwidth, n_permutations=0).biased


def discrepancy(
    Z: ArrayLike,
    in_group: NDArray[np.bool_],
    bandwidth: float,
    *,
    n_permutations: int = 199,
    seed: int = 0,
    tile: int = TILE,
) -> Discrepancy:
    """Return MMD^2, biased and unbiased, with a permutation p-value, in one pass over the kernel's tiles.

    Every permuted label vector rides along as one more column of L, so the whole null distribution costs one
    matrix product per tile. Memory is O(tile^2 + n * n_permutations bytes); time O(n^2 (k + permutations)).

    Parameters
    ----------
    Z : array of shape (n, k)
        The embedding.
    in_group : array of bool of shape (n,)
        True for the rows of one group, False for the rows it is compared with.
    bandwidth : float
        The kernel is exp(-|x - y|^2 / bandwidth).
    n_permutations : int
        Number of random relabellings; 0 gives no p-value.
    seed : int
        Seed of the relabellings.
    tile : int
        Rows and columns of the kernel that exist at one time.

    Examples
    --------
    >>> Z = np.r_[np.zeros((20, 1)), np.ones((20, 1))]
    >>> discrepancy(Z, Z[:, 0] == 1, bandwidth=1.0).p_value
    0.005
    """
    Z = _centred(Z)
    labels = np.asarray(in_group, dtype=bool)
    if len(labels) != len(Z):
        raise ValueError(f"in_group has {len(labels)} rows, Z has {len(Z)}: pass one mark per row")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is {bandwidth}: the kernel needs a positive one (are all rows equal?)")
    n_in, n_out = int(labels.sum()), int((~labels).sum())
    if min(n_in, n_out) < 2:
        raise ValueError(f"in_group marks {n_in} of {len(labels)} rows: each side needs at least two")
    columns = np.empty((len(labels), n_permutations + 1), dtype=np.int8)
    columns[:, 0] = labels
    rng = np.random.default_rng(seed)
    for j in range(1, n_permutations + 1):
        columns[:, j] = rng.permutation(labels)
    quadratic, row_sums = _kernel_sums(Z, columns, bandwidth, tile)
    inside, one_side, everything = quadratic, _dot(columns, row_sums), float(row_sums.sum())
    across = one_side - inside
    outside = everything - 2 * one_side + inside
    cross = 2 * across / (n_in * n_out)
    biased = inside / n_in**2 + outside / n_out**2 - cross
    unbiased = (inside - n_in) / (n_in * (n_in - 1)) + (outside - n_out) / (n_out * (n_out - 1)) - cross
    p_value = None
    if n_permutations:
        # Rounding must not break a tie against the permuted value that equals the observed one.
        as_large = unbiased[1:] >= unbiased[0] - 1e-12
        p_value = float((1 + as_large.sum()) / (1 + n_permutations))
    return Discrepancy(max(float(biased[0]), 0.0), float(unbiased[0]), p_value, n_permutations)


def _kernel_sums(
    Z: FloatArray, columns: NDArray[np.int8], bandwidth: float, tile: int
) -> tuple[FloatArray, FloatArray]:
    """Return l'Kl for every column l, and the row sums K1, from the upper triangle of tiles."""
    quadratic = np.zeros(columns.shape[1])
    row_sums = np.zeros(len(Z))
    for rows, cols, distances in _tiles(Z, tile):
        kernel = np.exp(np.divide(distances, -bandwidth, out=distances), out=distances)
        left, right = columns[rows].astype(float), columns[cols].astype(float)
        product = np.einsum("ip,ip->p", left, kernel @ right)
        row_sums[rows] += kernel.sum(axis=1)
        if rows == cols:
            quadratic += product
        else:
            quadratic += 2 * product
            row_sums[cols] += kernel.sum(axis=0)
    return quadratic, row_sums


def _dot(columns: NDArray[np.int8], row_sums: FloatArray, step: int = 8192) -> FloatArray:
    """Return columns' row_sums without a float copy of all columns."""
    total = np.zeros(columns.shape[1])
    for i in range(0, len(columns), step):
        total += columns[i : i + step].astype(float).T @ row_sums[i : i + step]
    return total


def _tiles(Z: FloatArray, tile: int) -> Iterator[tuple[slice, slice, FloatArray]]:
    """Yield (rows, columns, squared distances) over the upper triangle of tiles; the array is reused."""
    norms = np.einsum("ij,ij->i", Z, Z)
    for i in range(0, len(Z), tile):
        rows = slice(i, min(i + tile, len(Z)))
        for j in range(i, len(Z), tile):
            cols = slice(j, min(j + tile, len(Z)))
            distances = Z[rows] @ Z[cols].T
            distances *= -2
            distances += norms[rows, None]
            distances += norms[None, cols]
            np.maximum(distances, 0, out=distances)
            if i == j:
                np.fill_diagonal(distances, 0)
            yield rows, cols, distances


def _scan(
    Z: FloatArray, low: float, high: float, tile: int, keep: int
) -> tuple[int, NDArray[np.int64], FloatArray | None]:
    """Count the distances below `low`, bin those in [low, high], and return these if at most `keep`."""
    below, counts, found = 0, np.zeros(_BINS, dtype=np.int64), 0
    kept: list[FloatArray] = []
    for rows, cols, distances in _tiles(Z, tile):
        values = distances[np.triu_indices_from(distances, 1)] if rows == cols else distances.ravel()
        below += int(np.count_nonzero(values < low))
        inside = values[(values >= low) & (values <= high)]
        counts += np.histogram(inside, bins=_BINS, range=(low, high))[0]
        found += inside.size
        if found <= keep:
            kept.append(inside)
        else:
            kept.clear()
    return below, counts, np.concatenate(kept) if found <= keep else None


def _first_bracket(Z: FloatArray, n_pairs: int, keep: int) -> tuple[float, float]:
    """Return an interval that almost surely holds the median, from a seeded sample of pairs."""
    if n_pairs <= keep:
        return 0.0, _distance_bound(Z)
    n_sampled = 200_000
    rng = np.random.default_rng(0)
    i = rng.integers(len(Z), size=n_sampled)
    j = (i + rng.integers(1, len(Z), size=n_sampled)) % len(Z)
    sampled = np.einsum("ij,ij->i", Z[i] - Z[j], Z[i] - Z[j])
    margin = 4 * 0.5 / np.sqrt(n_sampled)
    low, high = np.quantile(sampled, [0.5 - margin, 0.5 + margin])
    return float(low) * (1 - 1e-9), float(high) * (1 + 1e-9) or 1.0  # wider than a tie's rounding


def _distance_bound(Z: FloatArray) -> float:
    return float(4 * np.einsum("ij,ij->i", Z, Z).max() * (1 + 1e-9)) or 1.0


def _centred(Z: ArrayLike) -> FloatArray:
    """Return Z as float64 about its mean: distances keep, cancellation in |x|^2 + |y|^2 - 2xy goes."""
    Z = np.asarray(Z, dtype=float)
    if Z.ndim != 2:
        raise ValueError(f"Z has shape {Z.shape}: pass one row per sample, one column per component")
    centred: FloatArray = Z - Z.mean(axis=0)
    return centred
