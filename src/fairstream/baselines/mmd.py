"""Maximum mean discrepancy of an embedding under the RBF kernel, exactly and without an n x n matrix."""

from __future__ import annotations

import numpy as np

from fairstream.baselines.base import Array
from fairstream.linalg import in_threads, shares, small_lapack
from fairstream.linalg.kernels import negative_distances, upper_tiles

_MANY_ROWS = 2**13


def weighted_kernel_products(Z: Array, weights: Array, bandwidth: float) -> tuple[Array, Array]:
    """Return K w and K diag(w) Z for K_ij = exp(-|z_i - z_j|^2 / bandwidth), tile by tile.

    K is symmetric, so each tile above the diagonal serves twice; memory is one tile a thread, time O(n^2 k).
    """
    right = np.column_stack([weights, weights[:, None] * Z])
    tiles = upper_tiles(len(Z))
    exponential = _exp_single if len(Z) >= _MANY_ROWS else _exp

    def add_tiles(part: slice) -> Array:
        total = np.zeros_like(right)
        for rows, columns, exponent in negative_distances(Z, tiles[part], 1.0 / bandwidth):
            tile = exponential(exponent)
            total[rows] += tile @ right[columns]
            if rows != columns:
                total[columns] += tile.T @ right[rows]
        return total

    with small_lapack():
        first, *others = in_threads(add_tiles, shares(len(tiles), len(Z) ** 2))
    total = sum(others, start=first)
    return total[:, 0], total[:, 1:]


def _exp(exponent: Array) -> Array:
    return np.exp(exponent, out=exponent)


def _exp_single(exponent: Array) -> Array:
    """Take exponentials in single precision: a third of the time, which is most of it.

    Each has an error of about 6e-8, random but for a few 1e-9; only the latter remains in a weighted mean.
    """
    with np.errstate(over="ignore"):  # the exponential of minus infinity is 0
        exponent[...] = np.exp(exponent.astype(np.float32))
    return exponent


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


def value_noise(n_rows: int) -> float:
    """Return the error of `mmd2` values at neighbouring points that single precision causes."""
    return 1e-11 if n_rows >= _MANY_ROWS else 0.0


def group_weights(first: np.ndarray, second: np.ndarray, n_rows: int) -> Array:
    """Return the weights for which w'Kw compares the second group of rows with the first."""
    weights = np.zeros(n_rows)
    weights[second] = 1.0 / len(second)
    weights[first] = -1.0 / len(first)
    return weights
