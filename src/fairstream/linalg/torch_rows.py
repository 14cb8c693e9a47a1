"""The rows of a dense block about an origin as a torch tensor; NumPy arrays in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.threads import row_squares

_SHARED = ("?", "b", "B", "h", "i", "l", "q", "e", "f", "d")  # types that torch takes from NumPy as they are
_PIECE_ROWS = 4_096


class TorchRows:
    """R = diag(scale) (X - 1 origin') on a device, with the products that `CentredRows` names.

    On "cpu" tensors share the memory of the arrays, so that nothing is copied but what is cast or centred.
    """

    def __init__(
        self, X: NDArray[Any], origin: FloatArray, scale: FloatArray | None, dtype: Any, device: Any
    ) -> None:
        import torch

        self._torch, self._dtype, self._device = torch, np.dtype(dtype), device
        self._kind = getattr(torch, self._dtype.name)
        self.R = self._there(X)
        if origin.any():
            self.R = self.R - self._there(origin)
        self._scale = None if scale is None else self._there(scale)[:, None]
        if self._scale is not None:
            self.R = self.R * self._scale

    def _there(self, A: NDArray[Any]) -> Any:
        """Return an array as a tensor of the rows' type on their device."""
        if A.dtype.char not in _SHARED or min(A.strides, default=0) < 0:
            A = A.astype(self._dtype, order="C")
        return self._torch.from_numpy(A).to(self._device).to(self._kind)

    def dot(self, A: FloatArray) -> FloatArray:
        """Return R A'."""
        product: FloatArray = (self.R @ self._there(A).T).cpu().numpy()
        return product

    def combine(self, T: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Return T R, in `out` if that is given."""
        there = None if out is None else self._there(out)
        product: FloatArray = self._torch.mm(self._there(T), self.R, out=there).cpu().numpy()
        if out is None:
            return product
        if product.ctypes.data != out.ctypes.data:
            out[...] = product
        return out

    def add_combined(self, T: FloatArray, out: FloatArray) -> None:
        """Add T R to `out` on its own memory."""
        there = self._there(out)
        there.addmm_(self._there(T), self.R)
        if there.data_ptr() != out.ctypes.data:
            out[...] = there.cpu().numpy()

    def squares(self) -> float:
        """Return the sum of all squares."""
        return float(self.row_squares().sum(dtype=np.float64))

    def row_squares(self) -> FloatArray:
        """Return the sum of squares of every row."""
        if self.R.device.type == "cpu":  # NumPy is several times as quick
            return row_squares(self.R.numpy())
        squares: FloatArray = self._torch.linalg.vecdot(self.R, self.R).cpu().numpy()
        return squares

    def products(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield R_g'R_g (d x d) and the sum of scale R_g (d, float64) of every cell."""
        for cell in cells:
            product, sums = np.zeros(2 * (self.R.shape[1],)), np.zeros(self.R.shape[1])
            for start in range(0, len(cell), _PIECE_ROWS):
                part = self.R[cell[start : start + _PIECE_ROWS]]
                product += (part.T @ part).cpu().numpy()
                scaled = (
                    part if self._scale is None else part * self._scale[cell[start : start + _PIECE_ROWS]]
                )
                sums += scaled.sum(dim=0).cpu().numpy()
            yield product, sums
