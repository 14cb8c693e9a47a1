"""The rows of a block about an origin: the only code that touches their numbers.

`DenseRows` and `SparseRows` stand for the b x d matrix R = diag(scale) (X - 1 origin'), where scale is the
square root of the row weights: one cast for dense input, implicit centring for sparse input. Every product
with R that the moments and the power method need is one BLAS-3 (or sparse) call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.engine import torch_device
from fairstream.linalg.gemm import NARROW
from fairstream.linalg.threads import (
    blas_threads,
    in_threads,
    inner_product,
    row_squares,
    shares,
    small_lapack,
    sum_of_squares,
    wide_product,
)
from fairstream.linalg.torch_rows import TorchRows

_WIDE_PANEL = 2_048  # columns of a wide product taken at a time
_SPARSE_PANEL = 20  # columns of a sparse product taken at a time: their sums stay in the cache
_SPARSE_ROWS = 4_096  # of a sparse product taken at a time, by one thread
WELL_FILLED = 0.25  # share of rows with an entry from which on a sparse column is centred as a dense one
MOST_USED = 0.5  # share of columns with an entry from which on a sparse block is taken with all its columns
MIN_SLICE_ROWS = 32
MAX_SLICE_ROWS = 4096
FULL_SPEED_ROWS = 512
SLICE_BYTES = 2**22
NEAR_ZERO = 16.0  # square of the origin over the variance up to which rows need no copy about their origin
_HEAD_ROWS = 32


class CentredRows(Protocol):
    """What the moments and the power method ask of the rows R of a block."""

    def dot(self, A: FloatArray) -> FloatArray:
        """Return R A' (b x w) for the rows A (w x d)."""

    def combine(self, T: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Return T R (t x d) for T (t x b), in `out` if that is given."""

    def add_combined(self, T: FloatArray, out: FloatArray) -> None:
        """Add T R to `out` (t x d, C-ordered) on its own memory."""

    def squares(self) -> float:
        """Return the sum of all squares of R."""

    def row_squares(self) -> FloatArray:
        """Return the sum of squares of every row of R."""


class DenseRows:
    """R in memory, cast once; a uint8 block becomes float here and nowhere else.

    With a `buffer` (at least b x d, C-ordered) R lies in its first rows, else in memory of its own.
    """

    def __init__(
        self,
        X: NDArray[Any],
        origin: FloatArray,
        scale: FloatArray | None,
        dtype: Any,
        buffer: FloatArray | None = None,
    ) -> None:
        self.origin = origin.astype(dtype, copy=False)
        self.scale = None if scale is None else scale[:, None].astype(dtype)
        if scale is None and not self.origin.any() and stands_ready(X, dtype):
            self.R = X  # as it is, and never written to
            return
        self.R = np.empty(X.shape, dtype=dtype) if buffer is None else buffer[: len(X)]

        centred = self.origin.any()

        def fill(rows: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # check_values says what is wrong
                if centred:
                    np.subtract(X[rows], self.origin, out=self.R[rows], casting="unsafe")
                else:
                    np.copyto(self.R[rows], X[rows], casting="unsafe")
            if self.scale is not None:
                self.R[rows] *= self.scale[rows]

        in_threads(fill, shares(len(X), X.size))

    def dot(self, A: FloatArray) -> FloatArray:
        if len(A) > NARROW and len(self.R) >= FULL_SPEED_ROWS * blas_threads():
            return wide_product(A, self.R.T).T  # a share of the rows for each thread, and no sum of parts
        return inner_product(self.R.T, A.T)

    def combine(self, T: FloatArray, out: FloatArray | None = None) -> FloatArray:
        T = T.astype(self.R.dtype, copy=False)
        if out is not None or len(self.R) < self.R.shape[1]:
            return wide_product(T, self.R, out)
        return inner_product(T.T, self.R)

    def add_combined(self, T: FloatArray, out: FloatArray) -> None:
        # NumPy's product into a little of memory, then added: quicker than one of SciPy's that adds.
        T = T.astype(out.dtype, copy=False)

        def add(columns: slice) -> None:
            for start in range(columns.start, columns.stop, _WIDE_PANEL):
                panel = slice(start, min(start + _WIDE_PANEL, columns.stop))
                out[:, panel] += T @ self.R[:, panel]

        with small_lapack():
            in_threads(add, shares(out.shape[1], self.R.size + out.size))

    def squares(self) -> float:
        return sum_of_squares(self.R)

    def row_squares(self) -> FloatArray:
        return row_squares(self.R)


class SparseRows:
    """R of a sparse block, hardly ever formed: the origin is a rank-one correction of the sparse columns.

    A column with entries in many rows is centred as a dense one instead: its origin may be large beside its
    deviations (a date, a constant), and taken off after the products it would leave rounding alone. If few
    rows have an entry, the mean is no larger than the deviations. Dense columns hold at most 1 / WELL_FILLED
    numbers per entry, so the cost stays in proportion to the entries.

    What the origin is taken from is kept in float64, whatever the basis's precision: far from zero the
    difference would be rounding in float32. Products with the entries run in that precision: their columns'
    means are no larger than the deviations.
    """

    def __init__(self, X: Any, origin: FloatArray, scale: FloatArray | None, dtype: Any) -> None:
        X = sp.csr_array(X, dtype=np.float64)
        n_rows, n_features = X.shape
        self.scale = np.ones(n_rows) if scale is None else np.asarray(scale, dtype=np.float64)
        self.dtype = dtype
        filled = np.bincount(X.indices, minlength=n_features)
        well_filled = (filled > 0) & (filled >= WELL_FILLED * n_rows)
        self.well_filled = np.flatnonzero(well_filled)
        near = origin[self.well_filled]
        self.beside = np.ones((n_rows, 1 + near.size))  # of the origin, and the centred columns
        self.centred = self.beside[:, 1:]
        np.subtract(_columns_of(X, self.well_filled).toarray(), near, out=self.centred)
        # The origin is rounded: an entry that equals it must not leave a direction of rounding alone.
        rounding = max(4 * np.finfo(np.float64).eps, np.finfo(dtype).eps / 2) * np.abs(near)
        self.centred[np.abs(self.centred) <= rounding] = 0
        # The other columns that have entries, and X without the rest: few, as rows are few. If most have one,
        # the rest stay too: to leave them out costs more.
        self.columns = np.flatnonzero((filled > 0) & ~well_filled)
        if self.columns.size >= MOST_USED * n_features:
            self.columns = np.flatnonzero(~well_filled)
        self.used = slice(None) if self.columns.size == n_features else self.columns
        self.entries = _columns_of(X, self.columns)
        if scale is not None:
            self.beside *= self.scale[:, None]
            self.entries = sp.csr_array(sp.diags_array(self.scale) @ self.entries)
        e = self.entries
        self.multiplied = sp.csr_array((e.data.astype(dtype), e.indices, e.indptr), shape=e.shape)
        self.origin = np.where(well_filled, 0.0, origin)

    @cached_property
    def spread_entries(self) -> Any:
        """The entries in a matrix of all columns."""
        e = self.entries
        if e.shape[1] == len(self.origin):
            return e
        return sp.csr_array((e.data, self.columns[e.indices], e.indptr), shape=(e.shape[0], len(self.origin)))

    def dot(self, A: FloatArray) -> FloatArray:
        product = np.empty((self.entries.shape[0], len(A)))
        pieces = [(rows, self.multiplied[rows]) for rows in row_slices(len(product), _SPARSE_ROWS)]
        for part in row_slices(len(A), _SPARSE_PANEL):  # A is never copied whole
            panel = A[part]
            used = np.ascontiguousarray(panel[:, self.used].T, dtype=self.dtype)
            along = panel @ self.origin.astype(self.dtype)
            beside = np.concatenate([-along[None], panel.T[self.well_filled]]).astype(np.float64)

            def multiply(some: slice, part: slice = part, used: Any = used, beside: Any = beside) -> None:
                for rows, multiplied in pieces[some]:
                    np.add(multiplied @ used, self.beside[rows] @ beside, out=product[rows, part])

            in_threads(multiply, shares(len(pieces), self.entries.nnz * len(panel)))
        return product

    def combine(self, T: FloatArray, out: FloatArray | None = None) -> FloatArray:
        combined = np.empty((len(T), len(self.origin)), dtype=self.dtype) if out is None else out
        combined[:] = 0
        self.add_combined(T, combined)
        return combined

    def add_combined(self, T: FloatArray, out: FloatArray) -> None:
        along, origin = (T @ self.scale).astype(out.dtype), -self.origin.astype(out.dtype)

        def add(part: slice) -> None:
            out[part] += np.multiply.outer(along[part], origin)
            out[part, self.used] += (self.multiplied.T @ np.ascontiguousarray(T[part].T, dtype=self.dtype)).T
            if self.well_filled.size:
                out[part, self.well_filled] += (T[part] @ self.centred).astype(out.dtype)

        self._in_panels(add, len(T))

    def _in_panels(self, work: Callable[[slice], None], columns: int) -> None:
        """Do a product a panel of its columns at a time, threads sharing the panels."""
        panels = row_slices(columns, max(min(_SPARSE_PANEL, -(-columns // blas_threads())), 1))

        def share(some: slice) -> None:
            for part in panels[some]:
                work(part)

        with small_lapack():
            in_threads(share, shares(len(panels), self.entries.nnz * columns))

    def squares(self) -> float:
        return float(self.row_squares().sum())

    def row_squares(self) -> FloatArray:
        e, shift = self.entries, float(self.origin @ self.origin)
        own = np.bincount(np.repeat(np.arange(e.shape[0]), np.diff(e.indptr)), e.data**2, e.shape[0])
        size = own + self.scale**2 * shift
        squares = size - 2 * self.scale * (e @ self.origin[self.used])
        # A row that is the origin leaves rounding alone.
        squares[squares <= 64 * np.finfo(np.float64).eps * size] = 0
        answer: FloatArray = squares + np.einsum("ij,ij->i", self.centred, self.centred)
        return answer

    def products(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield R_g' R_g (d x d) and the sum of scale R_g (d) for some rows at a time."""
        for cell in cells:
            counted = np.zeros((1, len(self.scale)))
            counted[0, cell] = self.scale[cell]
            yield self.scatter(cell), self.combine(counted)[0].astype(np.float64)

    def scatter(self, rows: NDArray[np.intp]) -> FloatArray:
        """Return R_g' R_g (d x d) for some of the rows."""
        D, scale = self.centred[rows], self.scale[rows]
        if D.shape[1] == len(self.origin):
            return inner_product(D, D)
        X = self.spread_entries[rows]
        product: FloatArray = (X.T @ X).toarray()
        # The origin's terms, s o' + o s' - |scale|^2 o o', are half and its transpose.
        half = np.outer(X.T @ scale - (float(scale @ scale) / 2) * self.origin, self.origin)
        product -= half
        product -= half.T
        if D.shape[1]:
            across = X.T @ D - np.outer(self.origin, scale @ D)
            across[self.well_filled] = inner_product(D, D)
            product[:, self.well_filled] = across
            product[self.well_filled] = across.T
        return product


def _columns_of(X: Any, columns: NDArray[np.intp]) -> Any:
    """Return some columns of a CSR matrix, in time proportional to its entries and columns."""
    if columns.size in (0, X.shape[1]):
        return X if columns.size else sp.csr_array((X.shape[0], 0))
    place = np.full(X.shape[1], -1, dtype=X.indices.dtype)
    place[columns] = np.arange(columns.size)
    places = place[X.indices]
    kept = places >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
    return sp.csr_array((X.data[kept], places[kept], ends), shape=(X.shape[0], columns.size))


def centred_rows(
    X: Any, origin: FloatArray, scale: FloatArray | None, dtype: Any, buffer: FloatArray | None = None
) -> CentredRows:
    """Return the rows of X about `origin`, times `scale`, for dense or sparse X (which needs no buffer).

    Products with dense rows are done by the library that `backend` has chosen.
    """
    if sp.issparse(X):
        return SparseRows(X, origin.astype(np.float64), scale, dtype)
    if (device := torch_device()) is not None:
        return TorchRows(np.asarray(X), origin.astype(dtype), scale, dtype, device)
    return DenseRows(np.asarray(X), origin, scale, dtype, buffer)


def provisional_origin(X: Any, n_rows: int = 64) -> FloatArray:
    """Return the mean of the first rows: close enough to the mean that nothing cancels afterwards."""
    head = X[:n_rows].astype(np.float64)  # SciPy would sum a float32 matrix in float32
    mean: FloatArray = np.asarray(head.mean(axis=0)).ravel()
    return mean


def stands_ready(X: Any, dtype: DTypeLike) -> bool:
    """Return whether rows can be multiplied where they stand, unless something is to be taken off them."""
    return bool(not sp.issparse(X) and X.dtype == dtype and X.flags.c_contiguous)


def stands_near(X: Any, origin: FloatArray, dtype: DTypeLike) -> bool:
    """Return whether rows can be multiplied where they stand, and the origin be taken off the products.

    That loses half a digit if origin and mean are a few deviations from zero. In every column alone: one that
    is constant but for rounding must be centred. Few rows are as well copied.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> stands_near(rows, np.ones(3), np.float64), stands_near(rows + 9, np.full(3, 9.0), np.float64)
    (True, False)
    """
    return stands_ready(X, dtype) and is_near_zero(X, origin, dtype)


def is_near_zero(X: NDArray[Any], origin: FloatArray, dtype: DTypeLike) -> bool:
    """Return whether rows need not be centred before they are multiplied, as in `stands_near`."""
    if len(X) < 2 * _HEAD_ROWS:
        return False
    head = X[:_HEAD_ROWS].astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):  # check_values says what is wrong
        own = head.mean(axis=0)
        # What rounding leaves of a difference of squares is far too small to pass for a variance.
        variances = np.einsum("ij,ij->j", head, head) / len(head) - own**2
        return all(bool((mean**2 <= NEAR_ZERO * variances).all()) for mean in (own, origin))


def is_cast_exactly(X: Any, dtype: DTypeLike) -> bool:
    """Return whether X is a dense array of small integers, each of which `dtype` has exactly."""
    return bool(not sp.issparse(X) and X.dtype.kind in "bui" and np.can_cast(X.dtype, dtype))


# How many rows at a time, and which numbers ------------------------------------------------------------


def row_slices(n_rows: int, size: int) -> list[slice]:
    """Cut rows into slices of one size, the last one shorter."""
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def slice_rows(n_features: int, dtype: Any, columns: int = 0) -> int:
    """Return how many rows are multiplied with `columns` columns at a time.

    About 4 MiB, which the cache holds, and 32 rows at least; with many columns, whose products are then what
    costs, half as many rows as columns up to 512: BLAS-3 at full speed, in a fraction of the columns' memory.

    Examples
    --------
    >>> slice_rows(100, np.float64), slice_rows(40_000, np.float32), slice_rows(40_000, np.float32, 1_000)
    (4096, 32, 500)
    """
    fitting = SLICE_BYTES // (n_features * np.dtype(dtype).itemsize)
    least = max(MIN_SLICE_ROWS, min(columns // 2, FULL_SPEED_ROWS))
    return int(min(max(fitting, least), MAX_SLICE_ROWS))


def check_values(values: NDArray[Any], dtype: DTypeLike, *, scale_known: bool = False) -> None:
    """Refuse NaN, infinity, and numbers whose products would overflow or underflow in `dtype`.

    Neither may pass: an unfair direction of infinite size, or of size zero, is none, and nothing would be
    nulled. The upper limit leaves a factor of 1e12 for how many products are summed, the lower one of 1e6 for
    how small a product may be beside the largest. Rows that are all tiny are harmless after larger ones
    (`scale_known`), and so are zeros.

    Examples
    --------
    >>> check_values(np.array([1e30], dtype=np.float32), np.float32)
    Traceback (most recent call last):
    ValueError: X has values up to 1e+30: beyond 1.8e+13 sums of squares overflow in float32, rescale X
    """
    limit, least = largest_value(dtype), _least_value(dtype)
    if values.size == 0 or (values.dtype.kind in "bui" and values.dtype.itemsize <= 4):
        return
    if values.dtype.kind == "f" and values.ndim <= 2:
        # One quick pass tells for nearly all data: NaN, infinity and a large number all show in the squares.
        squares = np.einsum(values, [*range(values.ndim)], values, [*range(values.ndim)], [])
        if values_are_sound(squares, values.size, dtype, values.dtype, scale_known=scale_known):
            return
    largest = max(abs(float(values.min())), abs(float(values.max())))  # NaN if any value is
    if not np.isfinite(largest):
        raise ValueError("X has NaN or infinite values: drop those rows or fill them in first")
    if largest > limit:
        raise ValueError(
            f"X has values up to {largest:.2g}: beyond {limit:.2g} sums of squares overflow in "
            f"{np.dtype(dtype)}, rescale X"
        )
    if 0 < largest < least and not scale_known:
        raise ValueError(
            f"X has no value beyond {largest:.2g}: below {least:.2g} sums of squares underflow in "
            f"{np.dtype(dtype)}, rescale X"
        )


def values_are_sound(
    squares: float, number: int, dtype: DTypeLike, own: np.dtype[Any], *, scale_known: bool = False
) -> bool:
    """Return whether a sum of squares shows that `check_values` would not refuse any of the values.

    `own` is the values' type. False says nothing: then look at the values.
    """
    limit, least = largest_value(dtype), _least_value(dtype)
    if own.kind == "f":
        limit = min(limit, float(np.sqrt(np.finfo(own).max)))
        least = max(least, float(np.sqrt(np.finfo(own).tiny)))
    return bool((scale_known or squares >= number * least**2) and squares <= limit**2)


def _least_value(dtype: DTypeLike) -> float:
    return 1e3 * float(np.sqrt(np.finfo(dtype).tiny))


def largest_value(dtype: DTypeLike) -> float:
    """Return the largest value whose products can be summed in `dtype`.

    Examples
    --------
    >>> f"{largest_value(np.float32):.2g}"
    '1.8e+13'
    """
    return 1e-6 * float(np.sqrt(np.finfo(dtype).max))
