"""Scatter matrices of some rows of a dense block: gathered, cast, centred and multiplied a piece at a time.

R = diag(scale) (X - 1 origin') never exists as a whole. A piece of it lies in a buffer that the cache holds
while it is multiplied, so that the rows are read once from memory for every cell that they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.engine import torch_device
from fairstream.linalg.gemm import add_gemm, add_syrk
from fairstream.linalg.threads import in_threads, shares, small_lapack
from fairstream.linalg.torch_rows import TorchRows

SEVERAL_SCATTERS = 512  # features up to which every thread may have d x d sums of its own, however many
_PIECE_BYTES = 2**21
_LEAST_ROWS, _MOST_ROWS = 1_024, 4_096
_MANY_ROWS = 8  # times as many as features
_TOGETHER = 2**20  # numbers in the products of several cells that threads work on at once

Rows = slice | NDArray[np.intp]


class CellProduct(NamedTuple):
    """R_g'R_g (d x d) and the sum of scale R_g (d, float64) of some rows of a cell."""

    number: int
    product: FloatArray
    sums: FloatArray


class GatheredRows:
    """The rows R of a dense block, cell by cell.

    Examples
    --------
    >>> rows = GatheredRows(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.ones(2), None, np.float64)
    >>> [(_, product, sums)] = next(rows.products([np.array([0, 2])]))
    >>> np.triu(product).tolist(), sums.tolist()
    ([[16.0, 20.0], [0.0, 26.0]], [4.0, 6.0])
    """

    def __init__(self, X: NDArray[Any], origin: FloatArray, scale: FloatArray | None, dtype: Any) -> None:
        self.X, self.dtype = X, np.dtype(dtype)
        self.origin = origin.astype(dtype) if origin.any() else None
        self.scale = None if scale is None else scale.astype(dtype)

    def products(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[list[CellProduct]]:
        """Yield products of the cells' rows, some at a time; those of one cell are to be added up.

        Only the upper triangle of a product counts, and the next one may overwrite it.
        """
        d = self.X.shape[1]
        threads = len(shares(len(self.X), self.X.size))
        few = d <= SEVERAL_SCATTERS or threads * d**2 <= 2 * _TOGETHER
        return self._by_rows(cells) if few else self._by_features(cells)

    def _by_rows(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[list[CellProduct]]:
        """Few features: every thread takes cells of its own, but for one that two share."""
        d = self.X.shape[1]
        batch = max(_TOGETHER // d**2, 1)
        for first in range(0, len(cells), batch):
            together = cells[first : first + batch]
            starts = np.cumsum([0, *map(len, together)]).tolist()
            parts = shares(starts[-1], 8 * starts[-1] * d)  # every number is used d times
            work = partial(self._share, together, starts, first)
            with small_lapack():
                yield [found for share in in_threads(work, parts) for found in share]

    def _share(
        self, cells: Sequence[NDArray[np.intp]], starts: list[int], first: int, share: slice
    ) -> list[CellProduct]:
        """Return the products of a share of the cells' rows, counted through."""
        d = self.X.shape[1]
        shared = [
            cell[max(share.start - start, 0) : max(share.stop - start, 0)]
            for cell, start in zip(cells, starts, strict=False)
        ]
        buffer, another, found = self._buffer(shared), np.empty((0, 0), dtype=self.dtype), []
        for number, cell in enumerate(shared, start=first):
            product, sums = np.zeros((d, d), dtype=self.dtype), np.zeros(d)
            for R, scale in self._pieces(cell, buffer):
                sums += scale @ R
                if len(buffer) < _MANY_ROWS * d:
                    add_syrk(product.T, R.T)
                else:  # NumPy's product is quicker for many rows, but writes and adds a whole d x d matrix
                    another = np.matmul(R.T, R, out=another if another.size else None)
                    product += another
            found += [CellProduct(number, product, sums)] if len(cell) else []
        return found

    def _by_features(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[list[CellProduct]]:
        """Many features: a product is too large for one in each thread, so every thread has its columns."""
        d = self.X.shape[1]
        product, buffer = np.empty((d, d), dtype=self.dtype), self._buffer(cells)
        threads = len(shares(d, buffer.size))
        ends = [round(d * (j / threads) ** 0.5) for j in range(threads + 1)]  # triangles of one size
        panels = [slice(*bounds) for bounds in pairwise(ends)]
        for number, cell in enumerate(cells):
            sums = np.zeros(d)

            def clear(panel: slice) -> None:
                product[: panel.stop, panel] = 0

            def multiply(R: FloatArray, scale: FloatArray, panel: slice) -> None:
                sums[panel] += scale @ R[:, panel]  # noqa: B023
                above = slice(0, panel.start)
                add_gemm(product.T[panel, above], R.T[panel], R[:, above])
                add_syrk(product.T[panel, panel], R.T[panel])

            with small_lapack():
                in_threads(clear, panels)
                for R, scale in self._pieces(cell, buffer):
                    in_threads(partial(multiply, R, scale), panels)
            yield [CellProduct(number, product, sums)]

    def _buffer(self, cells: Sequence[NDArray[np.intp]]) -> FloatArray:
        d = self.X.shape[1]
        fitting = max(_PIECE_BYTES // (d * self.dtype.itemsize), _LEAST_ROWS)
        longest = max(map(len, cells), default=0)
        return np.empty((min(fitting, _MOST_ROWS, max(longest, 1)), d), dtype=self.dtype)

    def _pieces(self, cell: NDArray[np.intp], buffer: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield the cell's rows, as many at a time as the buffer holds, and their scale."""
        ones = np.ones(len(buffer), dtype=self.dtype)
        for start in range(0, len(cell), len(buffer)):
            index = cell[start : start + len(buffer)]
            R = self._filled(_as_slice(index), buffer[: len(index)])
            yield R, ones[: len(R)] if self.scale is None else self.scale[index]

    def _filled(self, rows: Rows, R: FloatArray) -> FloatArray:
        """Return some rows of R, in the buffer unless they are rows of X as they stand."""
        X, origin = self.X, self.origin
        if isinstance(rows, slice) and X.dtype == self.dtype and origin is None and self.scale is None:
            return X[rows]

        def fill(part: slice) -> None:
            taken = (
                rows[part]
                if not isinstance(rows, slice)
                else slice(rows.start + part.start, rows.start + part.stop)
            )
            if X.dtype == self.dtype and X.flags.c_contiguous and not isinstance(taken, slice):
                np.take(X, taken, axis=0, out=R[part], mode="clip")  # "raise" would copy the buffer
                if origin is not None:
                    R[part] -= origin
            elif origin is None:
                R[part] = X[taken]
            else:
                np.subtract(X[taken], origin, out=R[part], casting="unsafe")
            if self.scale is not None:
                R[part] *= self.scale[taken][:, None]

        in_threads(fill, shares(len(R), 2 * R.size))
        return R


def gathered_rows(
    X: NDArray[Any], origin: FloatArray, scale: FloatArray | None, dtype: Any
) -> GatheredRows | TorchRows:
    """Return the rows for `products` of cells, on the device that `backend` has chosen.

    On a processor NumPy stays: its BLAS multiplies a matrix with its own transpose in half the work, which
    torch does not.
    """
    device = torch_device()
    if device is None or device.type == "cpu":
        return GatheredRows(X, origin, scale, dtype)
    return TorchRows(X, origin.astype(dtype), scale, dtype, device)


def _as_slice(index: NDArray[np.intp]) -> Rows:
    """Return ascending places as a slice if they are neighbours: rows that need not be gathered."""
    first, last = int(index[0]), int(index[-1])
    return slice(first, last + 1) if last - first + 1 == len(index) else index
