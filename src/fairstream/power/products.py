"""The products of the power method: centred row slices and sums on existing memory.

Symbols: X is the n x d block about to be read, c the provisional shift, Z = X - 1c' its centred rows, Q the
d x q matrix the step multiplies with, P the d x p accumulated products, all d-sized matrices Fortran-ordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.matrices import check_matrix
from fairstream.linalg import FloatArray, in_threads, inner_product, shares, small_lapack
from fairstream.linalg.gemm import add_gemm
from fairstream.linalg.products import check_values
from fairstream.moments.rows import SparseRows

MIN_SLICE_ROWS = 64
MAX_SLICE_ROWS = 4096
FULL_SPEED_ROWS = 512
SLICE_BYTES = 2**22
_PANEL = 8

Codes = Mapping[str, NDArray[np.intp]]


def slice_rows(n_features: int, dtype: Any, columns: int = 0) -> int:
    """Return how many rows are multiplied with `columns` columns at a time.

    About 4 MiB, which the cache holds, and 64 rows at least; with many columns, whose products are then what
    costs, half as many rows as columns up to 512: BLAS-3 at full speed, in a fraction of the columns' memory.

    Examples
    --------
    >>> slice_rows(100, np.float64), slice_rows(40_000, np.float32), slice_rows(40_000, np.float32, 1_000)
    (4096, 64, 500)
    """
    fitting = SLICE_BYTES // (n_features * np.dtype(dtype).itemsize)
    least = max(MIN_SLICE_ROWS, min(columns // 2, FULL_SPEED_ROWS))
    return int(min(max(fitting, least), MAX_SLICE_ROWS))


def checked_rows(
    X: Any, n_features: int, dtype: Any, *, values: bool = True, scale_known: bool = False
) -> Any:
    """Return X as a real n x d array or CSR matrix of its own type.

    With `values`, also refuse what is not finite, or too large or small for sums of squares in `dtype`.
    """
    check_matrix(X)
    sparse: bool = sp.issparse(X)
    rows: Any = sp.csr_array(X) if sparse else np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise ValueError(
            f"X has shape {rows.shape}, expected (rows, {n_features}): pass the same columns always"
        )
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {rows.dtype}: pass real numbers")
    if values:
        numbers = rows.data if sparse else rows
        if not scale_known:  # a thread's share may be tiny where the whole is not
            check_values(numbers, dtype)
        else:
            parts = shares(len(numbers), numbers.size)
            in_threads(lambda part: check_values(numbers[part], dtype, scale_known=True), parts)
    return rows


class SparseSlice:
    """Some sparse rows about the shift, split as in `SparseRows`: well-filled columns are dense and centred.

    For the other columns the shift is a rank-one correction, and nothing is densified.
    """

    def __init__(self, X: Any, shift: FloatArray) -> None:
        rows = SparseRows(X, shift.astype(np.float64), None, shift.dtype)
        self.X = rows.spread_entries.astype(shift.dtype)
        self.shift = rows.origin.astype(shift.dtype)
        self.well_filled = rows.well_filled
        self.centred = rows.centred.astype(shift.dtype)

    def dot(self, Q: FloatArray) -> FloatArray:
        """Return Z Q (rows x q), a few columns at a time so that Q is never copied whole."""
        Y = np.empty((self.X.shape[0], Q.shape[1]), dtype=Q.dtype)
        for panel in _panels(Q.shape[1]):
            Y[:, panel] = self.X @ np.ascontiguousarray(Q[:, panel])
        Y -= self.shift @ Q
        if self.well_filled.size:
            Y += self.centred @ Q[self.well_filled]
        return Y

    def add_outer(self, Y: FloatArray, P: FloatArray) -> None:
        """Add Z'Y to P, a few columns at a time."""
        for panel in _panels(Y.shape[1]):
            P[:, panel] += self.X.T @ np.ascontiguousarray(Y[:, panel])
            if self.well_filled.size:
                P[self.well_filled, panel] += self.centred.T @ Y[:, panel]
        add_product(P, self.shift[:, None], Y.sum(axis=0, keepdims=True), alpha=-1.0)

    def sums(self, E: FloatArray) -> FloatArray:
        """Return E'Z (e x d)."""
        summed: FloatArray = np.asarray(self.X.T @ E).T - np.outer(E.sum(axis=0), self.shift)
        summed[:, self.well_filled] = E.T @ self.centred
        return summed

    def squares(self) -> float:
        """Return the sum of squares of Z."""
        shift = self.shift.astype(np.float64)
        data = self.X.data.astype(np.float64)
        dense = float(np.einsum("ij,ij->", self.centred, self.centred, dtype=np.float64))
        return dense + float(data @ data - 2 * (self.X @ shift).sum() + self.X.shape[0] * (shift @ shift))


def _panels(columns: int) -> Iterator[slice]:
    for start in range(0, columns, _PANEL):
        yield slice(start, min(start + _PANEL, columns))


# Products on existing memory ------------------------------------------------------------------------


def add_product(P: FloatArray, A: FloatArray, B: FloatArray, alpha: float = 1.0) -> None:
    """Add alpha A B to P on its own memory, threads sharing its rows. P is Fortran-ordered, B is small.

    Examples
    --------
    >>> P = np.ones((2, 1), order="F")
    >>> add_product(P, np.eye(2, order="F"), np.array([[1.0], [2.0]]))
    >>> P.ravel()
    array([2., 3.])
    """
    right = np.ascontiguousarray(B, dtype=P.dtype)
    with small_lapack():
        in_threads(lambda rows: add_gemm(P[rows], A[rows], right, alpha), shares(len(P), P.size))


def remove_span(U: FloatArray, A: FloatArray) -> FloatArray:
    """Replace A by (I - UU')A on its own memory; return what was there, U'A."""
    inside = inner_product(U, A)
    add_product(A, U, inside, alpha=-1.0)
    return inside


def centre_products(
    P: FloatArray, Q: FloatArray, n_rows: int, row_sum: NDArray[np.float64], delta: NDArray[np.float64]
) -> None:
    """Turn P = sum z z'Q into sum (z - delta)(z - delta)'Q on its own memory: a rank-two correction."""
    towards = np.asfortranarray(np.stack([delta, row_sum]).T, dtype=P.dtype)
    along_delta, along_sum = inner_product(towards, Q)
    add_product(P, towards, np.stack([along_sum - n_rows * along_delta, along_delta]), alpha=-1.0)


def add_scaled(A: FloatArray, P: FloatArray, alpha: float) -> None:
    """Add alpha P to A on its own memory, both Fortran-ordered."""
    if A.size == 0:
        return
    axpy = scipy.linalg.get_blas_funcs("axpy", (A,))
    flat = A.ravel(order="F")
    result = axpy(P.ravel(order="F"), flat, a=alpha)
    if not np.shares_memory(result, A):
        A[...] = result.reshape(A.shape, order="F")
