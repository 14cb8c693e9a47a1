"""Maximum mean discrepancy of an embedding under the RBF kernel, exactly and without an n x n matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from fairstream.baselines.base import Array

_TILE = 256  # half a megabyte: stays in cache between its product and its exponential
_BINS = 4096
_MAX_LISTED = 4_000_000


def weighted_kernel_products(Z: Array, weights: Array, bandwidth: float) -> tuple[Array, Array]:
    """Return K w and K diag(w) Z for K_ij = exp(-|z_i - z_j|^2 / bandwidth), tile by tile.

    K is symmetric, so each tile above the diagonal serves twice; memory is one tile, time O(n^2 k).
    """
    right = np.column_stack([weights, weights[:, None] * Z])
    total = np.zeros_like(right)
    for rows, columns, exponent in _negative_squared_distances(Z, 1.0 / bandwidth):
        tile = np.exp(exponent, out=exponent)
        total[rows] += tile @ right[columns]
        if rows != columns:
            total[columns] += tile.T @ right[rows]
    return total[:, 0], total[:, 1:]


def mmd2(Z: Array, weights: Array, bandwidth: float) -> tuple[float, Array]:
    """Return the squared discrepancy w'Kw and its gradient by Z.

    Parameters
    ----------
    Z : ndarray of shape (n, k)
        Embedded rows.
    weights : ndarray of shape (n,)
        1/n_1 for rows of one group, -1/n_0 for the other, 0 elsewhere: then w'Kw is the biased statistic.
    bandwidth : float
        Two sigma squared.

    Examples
    --------
    >>> value, gradient = mmd2(np.array([[0.0], [1.0]]), np.array([1.0, -1.0]), 1.0)
    >>> round(value, 6)
    1.264241
    """
    Kw, KwZ = weighted_kernel_products(Z, weights, bandwidth)
    gradient: Array = (-4.0 / bandwidth) * weights[:, None] * (Kw[:, None] * Z - KwZ)
    return float(weights @ Kw), gradient


def group_weights(first: np.ndarray, second: np.ndarray, n_rows: int) -> Array:
    """Return the weights for which w'Kw compares the second group of rows with the first."""
    weights = np.zeros(n_rows)
    weights[second] = 1.0 / len(second)
    weights[first] = -1.0 / len(first)
    return weights


def median_squared_distance(Z: Array) -> float:
    """Return the median of |z_i - z_j|^2 over all pairs i < j, exactly.

    Few pairs are listed; many are counted in bins that are refined until the middle ones can be listed.

    Examples
    --------
    >>> median_squared_distance(np.array([[0.0], [1.0], [3.0]]))
    4.0
    """
    n = len(Z)
    n_pairs = n * (n - 1) // 2
    if n_pairs <= _MAX_LISTED:
        return float(np.median(pdist(Z, "sqeuclidean")))
    return _median_by_bins(Z, n_pairs, _MAX_LISTED)


def _median_by_bins(Z: Array, n_pairs: int, most: int) -> float:
    """Find the bin that holds the middle, list what is in it, or bin it again where that is too much."""
    middle = np.array([(n_pairs - 1) // 2, n_pairs // 2])
    low, high = 0.0, 4.0 * float(np.max(np.sum((Z - Z.mean(axis=0)) ** 2, axis=1))) + 1.0
    while True:
        width = (high - low) / _BINS
        counts = np.zeros(_BINS + 2, dtype=np.int64)
        for distances in _upper_distances(Z):
            counts += np.bincount(_bins(distances, low, width), minlength=_BINS + 2)
        reached = np.cumsum(counts)
        first, last = np.searchsorted(reached, middle, side="right")
        # Equal distances can never be told apart by bins: list them once a bin is as narrow as rounding.
        if counts[first : last + 1].sum() <= most or width <= 1e-12 * high:
            break
        low, high = low + (first - 1) * width, low + last * width
    kept = []
    for distances in _upper_distances(Z):
        bins = _bins(distances, low, width)
        kept.append(distances[(bins >= first) & (bins <= last)])
    ranks = middle - (reached[first] - counts[first])
    return float(np.partition(np.concatenate(kept), ranks)[ranks].mean())


def _bins(distances: Array, low: float, width: float) -> NDArray[np.intp]:
    """Return 0 below `low`, 1 to _BINS inside, _BINS + 1 above: never decreasing in the distance."""
    return np.clip(np.floor((distances - low) / width), -1, _BINS).astype(np.intp) + 1


def _upper_distances(Z: Array) -> Iterator[Array]:
    for rows, columns, negative in _negative_squared_distances(Z, 1.0):
        distances = np.maximum(-negative, 0.0)
        yield distances[np.triu_indices(len(distances), 1)] if rows == columns else distances.ravel()


def _negative_squared_distances(Z: Array, scale: float) -> Iterator[tuple[slice, slice, Array]]:
    """Yield -scale |z_i - z_j|^2 in tiles on and above the diagonal, each by one matrix product.

    All tiles share one buffer: use a tile before asking for the next.
    """
    squares = scale * np.einsum("ij,ij->i", Z, Z)
    ones = np.ones(len(Z))
    left = np.column_stack([2 * scale * Z, -squares, ones])
    right = np.vstack([Z.T, ones, -squares])
    buffer = np.empty(_TILE * _TILE)
    tiles = [slice(start, min(start + _TILE, len(Z))) for start in range(0, len(Z), _TILE)]
    for i, rows in enumerate(tiles):
        for columns in tiles[i:]:
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            tile = buffer[: shape[0] * shape[1]].reshape(shape)
            yield rows, columns, np.matmul(left[rows], right[:, columns], out=tile)
