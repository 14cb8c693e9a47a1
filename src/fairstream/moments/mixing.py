"""RowMixer: wide rows as fewer numbers, each a sum of some of the row's values with random signs.

What is kept of a row depends on the row alone, not on what came before it, so mixed rows merge to the bit.
Coordinates of a row in any basis of few directions, known only later, follow by least squares: what the row
holds outside that basis adds noise of about its square over the count of numbers to the square of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.linalg import FloatArray, lapack

TIMES = 8  # in how many of the numbers each feature is found
_SLICE_BYTES = 2**25  # of rows mixed at a time


@dataclass(frozen=True)
class RowMixer:
    """Mixes the values of rows, and reads coordinates from what it mixed.

    Attributes
    ----------
    n_features : int
        Columns of the rows, d.
    n_numbers : int
        What is kept of each row.
    dtype : {float64, float32}
        In what precision values are summed, whatever type the rows have: rows of equal values give equal
        numbers.
    features : tuple of int, optional
        The features that bases are about; the others may have any value. None: all.

    Examples
    --------
    >>> mixer = RowMixer(1_000, 64)
    >>> basis = np.eye(1_000)[:, :3]  # a row within it is read back
    >>> row = np.array([[5.0, 6.0, 7.0] + [0.0] * 997])
    >>> mixer.coordinates(mixer.mixed(row), basis, np.zeros(1_000)).round(6)
    array([[5., 6., 7.]])
    """

    n_features: int
    n_numbers: int
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    features: tuple[int, ...] | None = None

    def mixed(self, X: Matrix) -> NDArray[Any]:
        """Return the numbers of some rows (n, n_numbers)."""
        dtype = self.dtype
        signs = _signs(self.n_features, self.n_numbers).astype(dtype)
        if sp.issparse(X):
            rows = sp.csr_array(X)
            rows.sum_duplicates()  # in the order of the features, as dense rows are summed
            return np.asarray((rows.astype(dtype) @ signs).toarray())
        numbers = np.empty((X.shape[0], self.n_numbers), dtype=dtype)
        step = max(_SLICE_BYTES // (self.n_features * dtype.itemsize), 1)
        for start in range(0, len(numbers), step):
            rows = slice(start, start + step)
            numbers[rows] = (signs.T @ np.ascontiguousarray(X[rows].T, dtype=dtype)).T
        return numbers

    def selected(self, features: NDArray[np.intp]) -> RowMixer:
        """Return a mixer for bases of some features alone."""
        known = range(self.n_features) if self.features is None else self.features
        return replace(self, features=tuple(known[j] for j in features.tolist()))

    def coordinates(self, numbers: NDArray[Any], basis: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the coordinates of rows less the mean in a basis (d, w), from the rows' numbers."""
        signs = _signs(self.n_features, self.n_numbers)
        columns = np.hstack([basis.astype(np.float64), mean.astype(np.float64)[:, None]])
        if self.features is None:
            mixed = signs.T @ columns
            free = mixed[:, :0]
        else:
            features = np.array(self.features, dtype=np.intp)
            mixed = signs[features].T @ columns
            free = signs[np.setdiff1d(np.arange(self.n_features), features)].T.toarray()
        w = basis.shape[1]
        if w + free.shape[1] > self.n_numbers // 2:
            raise ValueError(
                f"the sample keeps {self.n_numbers:,} numbers of each row, too few to tell {w:,} directions "
                f"from {free.shape[1]:,} screened features: screen fewer, or keep fewer rows, each with more "
                "numbers"
            )
        Q, R = lapack(np.linalg.qr, np.hstack([free, mixed[:, :w]]))
        inside = ((numbers - mixed[:, w]) @ Q).T
        solved = lapack(scipy.linalg.solve_triangular, R, inside, check_finite=False)
        coordinates: FloatArray = solved[free.shape[1] :].T
        return coordinates


@lru_cache(2)
def _signs(n_features: int, n_numbers: int) -> sp.csr_array:
    """Return the matrix (d, n_numbers) of TIMES random signs in each row, one in each part of the numbers."""
    rng = np.random.default_rng([n_features, n_numbers, 0x317])
    times = min(TIMES, n_numbers)
    bounds = np.arange(times + 1) * n_numbers // times
    columns = rng.integers(bounds[:-1], bounds[1:], (n_features, times))
    values = rng.integers(0, 2, columns.size) * 2.0 - 1.0
    starts = np.arange(n_features + 1) * times
    return sp.csr_array((values / np.sqrt(times), columns.ravel(), starts), shape=(n_features, n_numbers))
