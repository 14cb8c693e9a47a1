"""Symmetric d x d matrices that are never formed: a few orthonormal rows and a small core."""

from __future__ import annotations

import numpy as np

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.threads import lapack


class SymmetricOperator:
    """The symmetric matrix A' K A, A with orthonormal rows in one or more pieces, or K itself.

    Parameters
    ----------
    core : array (w, w)
        K.
    basis : tuple of arrays (w_i, d), or None
        The pieces of A, one above the other; None means A is the identity and the core is the matrix.

    Examples
    --------
    >>> S = SymmetricOperator(np.diag([-2.0, 1.0, 4.0]))
    >>> S @ np.ones((3, 1))
    array([[-2.],
           [ 1.],
           [ 4.]])
    """

    def __init__(self, core: FloatArray, basis: tuple[FloatArray, ...] | None = None) -> None:
        self.core = core
        self.basis = basis
        d = core.shape[0] if basis is None else basis[0].shape[1]
        self.shape = (d, d)

    def coordinates(self, B: FloatArray) -> FloatArray:
        """Return A B for a d x j block."""
        if self.basis is None:
            return B
        return np.concatenate([piece @ B for piece in self.basis])

    def expand(self, coordinates: FloatArray) -> FloatArray:
        """Return A' c for coordinates c (w x j)."""
        if self.basis is None:
            return coordinates
        start, total = 0, None
        for piece in self.basis:
            part = piece.T @ coordinates[start : start + len(piece)].astype(piece.dtype, copy=False)
            total = part if total is None else np.add(total, part, out=total)
            start += len(piece)
        assert total is not None
        return total

    def __matmul__(self, B: FloatArray) -> FloatArray:
        """Apply to a d x j block (or a vector) in O(d w j) time and O(d j) memory."""
        return self.expand(self.core @ self.coordinates(np.asarray(B)))

    def compress(self, B: FloatArray) -> FloatArray:
        """Return B' S B (j x j) in float64."""
        inner = self.coordinates(B).astype(np.float64, copy=False)
        compressed: FloatArray = inner.T @ (self.core @ inner)
        return (compressed + compressed.T) / 2

    def trace(self) -> float:
        """Return the trace."""
        return float(np.trace(self.core))

    def diagonal(self) -> FloatArray:
        """Return the diagonal (d,) in float64, in O(d w^2) time."""
        if self.basis is None:
            return np.diagonal(self.core).astype(np.float64)
        A = np.concatenate(self.basis).astype(np.float64)
        diagonal: FloatArray = np.einsum("ij,ij->j", A, self.core @ A)
        return diagonal

    def to_dense(self) -> FloatArray:
        """Return the d x d matrix; for small d and for tests."""
        if self.basis is None:
            return self.core.copy()
        A = np.concatenate(self.basis).astype(np.float64)
        dense: FloatArray = A.T @ self.core @ A
        return dense


def plus_rank_one(
    core: FloatArray, basis: FloatArray | None, vectors: FloatArray, weights: FloatArray
) -> SymmetricOperator:
    """Return B' K B + sum_j weights_j v_j v_j' as one operator, the v_j being the rows of `vectors`.

    Where B (w x d) is given, the part of the vectors outside B becomes a second piece of the basis.
    """
    if basis is None:
        return SymmetricOperator(core + (vectors.T * weights) @ vectors)
    inside = (vectors.astype(basis.dtype) @ basis.T).astype(np.float64)
    outside = vectors - inside.astype(basis.dtype) @ basis
    longest = float(np.linalg.norm(vectors, axis=1).max(initial=0.0))
    left, singular, rows = lapack(np.linalg.svd, outside, full_matrices=False)
    # A shorter remainder is the rounding of the products above, not a direction.
    noise = 1e-4 if basis.dtype == np.float32 else 1e-10
    keep = singular > noise * max(longest, np.finfo(float).tiny)
    extra, in_extra = rows[keep], left[:, keep] * singular[keep]
    w, r = core.shape[0], int(keep.sum())
    grown = np.zeros((w + r, w + r))
    grown[:w, :w] = core
    coordinates = np.hstack([inside, in_extra])
    grown += (coordinates.T * weights) @ coordinates
    if r == 0:
        return SymmetricOperator(grown, (basis,))
    return SymmetricOperator(grown, (basis, extra.astype(basis.dtype)))
