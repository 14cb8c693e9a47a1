"""Maximum mean discrepancy between groups, by the paper's protocol, without holding all pairs in memory.

Symbols: Z is n x k, K the n x n kernel matrix that is only ever seen one tile at a time, l the 0/1 vector
that marks the rows of one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairstream.linalg import FloatArray
from fairstream.linalg.kernels import TILE, centred, negative_distances, upper_tiles


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """MMD^2 of two samples: the paper's biased statistic, the unbiased one, and its permutation p-value."""

    biased: float
    unbiased: float
    p_value: float | None
    n_permutations: int


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

    Every permuted label vector is one more column of L, so the whole null distribution costs one matrix
    product per tile. Memory is O(tile^2 + n * n_permutations bytes); time O(n^2 (k + permutations)).

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
    Z = centred(Z)
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
        # The tolerance keeps rounding from breaking ties with the observed value.
        as_large = unbiased[1:] >= unbiased[0] - 1e-12
        p_value = float((1 + as_large.sum()) / (1 + n_permutations))
    return Discrepancy(max(float(biased[0]), 0.0), float(unbiased[0]), p_value, n_permutations)


def _kernel_sums(
    Z: FloatArray, columns: NDArray[np.int8], bandwidth: float, tile: int
) -> tuple[FloatArray, FloatArray]:
    """Return l'Kl for every column l, and the row sums K1, from the upper triangle of tiles."""
    quadratic = np.zeros(columns.shape[1])
    row_sums = np.zeros(len(Z))
    for rows, cols, exponent in negative_distances(Z, upper_tiles(len(Z), tile), 1 / bandwidth):
        kernel = np.exp(exponent, out=exponent)
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
