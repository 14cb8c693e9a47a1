"""Rows of a block about an origin: one cast for dense input, implicit centring for sparse input.

Both classes stand for the b x d matrix R = diag(scale) (X - 1 origin'), where scale is the square root of the
row weights. Every product with R that the moments need is one BLAS-3 (or sparse) call.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.blocks import Matrix
from fairstream.linalg import FloatArray


class CentredRows(Protocol):
    """What the moments ask of the rows R of a block."""

    def gram(self) -> FloatArray:
        """Return R R' (b x b)."""

    def dot(self, A: FloatArray) -> FloatArray:
        """Return R A' (b x w) for the rows A (w x d)."""

    def combine(self, T: FloatArray) -> FloatArray:
        """Return T R (t x d) for T (t x b)."""

    def scatter(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        """Return R_g' R_g (d x d) for some of the rows."""


class DenseRows:
    """R in memory, cast once; a uint8 block becomes float here and nowhere else."""

    def __init__(self, X: NDArray[Any], origin: FloatArray, scale: FloatArray | None, dtype: Any) -> None:
        self.R = np.empty(X.shape, dtype=dtype)
        np.subtract(X, origin.astype(dtype), out=self.R, casting="unsafe")
        if scale is not None:
            self.R *= scale[:, None].astype(dtype)

    def gram(self) -> FloatArray:
        return self.R @ self.R.T

    def dot(self, A: FloatArray) -> FloatArray:
        return self.R @ A.T

    def combine(self, T: FloatArray) -> FloatArray:
        return T.astype(self.R.dtype, copy=False) @ self.R

    def scatter(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        R = self.R[rows]
        product: FloatArray = R.T @ R
        return product


class SparseRows:
    """R of a sparse block, never formed: X stays sparse and the origin is a rank-one correction."""

    def __init__(self, X: Any, origin: FloatArray, scale: FloatArray | None, dtype: Any) -> None:
        X = sp.csr_array(X, dtype=dtype)
        self.scale = np.ones(X.shape[0]) if scale is None else np.asarray(scale, dtype=np.float64)
        self.X = X if scale is None else sp.csr_array(sp.diags_array(self.scale).astype(dtype) @ X)
        self.origin = origin
        self.dtype = dtype

    def gram(self) -> FloatArray:
        along_origin = self.X @ self.origin
        cross = np.outer(along_origin, self.scale)
        gram: FloatArray = (self.X @ self.X.T).toarray()
        shift = float(self.origin @ self.origin)
        size = gram.diagonal() + self.scale**2 * shift
        gram = gram - cross - cross.T + np.outer(self.scale, self.scale) * shift
        # A row that is the origin leaves rounding alone, which must not pass for a direction.
        zero = np.flatnonzero(gram.diagonal() <= 4 * np.finfo(self.dtype).eps * size)
        gram[zero] = 0
        gram[:, zero] = 0
        return gram

    def dot(self, A: FloatArray) -> FloatArray:
        return np.asarray(self.X @ A.T) - np.outer(self.scale, A @ self.origin.astype(A.dtype))

    def combine(self, T: FloatArray) -> FloatArray:
        combined = np.asarray(self.X.T @ T.T).T - np.outer(T @ self.scale, self.origin)
        return combined.astype(self.dtype, copy=False)

    def scatter(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        X, scale = self.X[rows], self.scale[rows]
        cross = np.outer(X.T @ scale, self.origin)
        product: FloatArray = (X.T @ X).toarray() - cross - cross.T
        return product + np.outer(self.origin, self.origin) * float(scale @ scale)


def centred_rows(X: Matrix, origin: FloatArray, scale: FloatArray | None, dtype: Any) -> CentredRows:
    """Return the rows of X about `origin`, times `scale`, for dense or sparse X."""
    if sp.issparse(X):
        return SparseRows(X, origin, scale, dtype)
    return DenseRows(np.asarray(X), origin, scale, dtype)


def provisional_origin(X: Matrix, n_rows: int = 64) -> FloatArray:
    """Return the mean of the first rows: close enough to the mean that nothing cancels afterwards."""
    head = X[:n_rows]
    mean: FloatArray = np.asarray(head.mean(axis=0, dtype=np.float64)).ravel()
    return mean
