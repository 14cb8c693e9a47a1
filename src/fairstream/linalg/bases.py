"""Orthonormal bases with few columns: making them, projecting on them, comparing them.

Symbols: A, B, V are d x j matrices with few columns, U has orthonormal columns.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[Any]


def is_finite(array: NDArray[Any]) -> bool:
    """Whether an array holds neither NaN nor infinity; one quick pass, and no copy, unless it nearly does.

    Examples
    --------
    >>> is_finite(np.array([1e308, 1e308])), is_finite(np.array([np.inf, -np.inf]))
    (True, False)
    """
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return True
    return bool(np.isfinite(array).all())


def orthonormalise(A: FloatArray, *, rtol: float | None = None) -> FloatArray:
    """Return an orthonormal basis of the columns of A, of A's numerical rank, in the order of A.

    Columns are brought to unit length first, so a short column counts as much as a long one. A column that
    the earlier ones span to within `rtol` adds nothing: a plain QR would put an arbitrary direction there.

    Examples
    --------
    >>> orthonormalise(np.array([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0]])).shape
    (2, 1)
    """
    norms = np.linalg.norm(A, axis=0)
    A = A[:, norms > 0] / norms[norms > 0]
    if rtol is None:
        rtol = 1e-8 if A.dtype == np.float64 else 1e-4
    kept: list[int] = []
    Q = A[:, :0]
    for j in range(A.shape[1]):
        remainder = A[:, j : j + 1]
        for _ in range(2):
            remainder = project_out(Q, remainder)
        length = np.linalg.norm(remainder)
        if length > rtol and len(kept) < A.shape[0]:
            kept.append(j)
            Q = np.hstack([Q, remainder / length])
    return Q


def orthonormalise_in_place(A: FloatArray) -> FloatArray:
    """Overwrite the columns of A with an orthonormal basis Q, return R (j x j) with old A = QR.

    LAPACK's Householder QR on A's own memory: no second d x j array, whatever the conditioning. A must be
    d x j with d >= j, Fortran-ordered, float32 or float64. Columns without rank become arbitrary
    orthonormal ones.

    Examples
    --------
    >>> A = np.asfortranarray([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    >>> before, R = A.copy(), orthonormalise_in_place(A)
    >>> bool(np.allclose(A.T @ A, np.eye(2)) and np.allclose(A @ R, before))
    True
    """
    rows, columns = A.shape
    if rows < columns or not A.flags.f_contiguous:
        raise ValueError(f"A has shape {A.shape}, strides {A.strides}: pass a tall Fortran-ordered array")
    if columns == 0:
        return np.zeros((0, 0), dtype=A.dtype)
    geqrf, orgqr = scipy.linalg.get_lapack_funcs(("geqrf", "orgqr"), (A,))
    workspace = 64 * columns  # LAPACK's panels are at most 64 columns wide
    factored, tau, _, _ = geqrf(A, lwork=workspace, overwrite_a=True)
    R: FloatArray = np.triu(factored[:columns])
    Q, _, _ = orgqr(factored, tau, lwork=workspace, overwrite_a=True)
    if not np.shares_memory(Q, A):  # an array LAPACK could not take as it was, for instance unaligned
        A[...] = Q
    return R


def project_out(U: FloatArray, A: FloatArray) -> FloatArray:
    """Return A without its part in the span of U (orthonormal columns): (I - UU')A.

    Examples
    --------
    >>> project_out(np.array([[1.0], [0.0]]), np.array([[3.0], [4.0]]))
    array([[0.],
           [4.]])
    """
    if U.shape[1] == 0:
        return A
    projected: FloatArray = A - U @ (U.T @ A)
    return projected


def orthonormal_complement_part(U: FloatArray, A: FloatArray) -> FloatArray:
    """Orthonormalise A's columns inside the complement of U, to rounding: project, QR, and once more.

    A must keep full column rank after the projection. Twice is enough (Kahan and Parlett).
    """
    for _ in range(2):
        A, _ = scipy.linalg.qr(project_out(U, A), mode="economic", check_finite=False)
    return A


def fix_signs(V: FloatArray) -> FloatArray:
    """Flip columns so that the entry of largest size in each is positive: signs that do not depend on luck.

    But for ties: where two entries are equal but for their sign, as one-hot pairs have it, rounding decides.

    Examples
    --------
    >>> fix_signs(np.array([[0.6], [-0.8]]))
    array([[-0.6],
           [ 0.8]])
    """
    if V.size == 0:
        return V
    largest = V[np.argmax(np.abs(V), axis=0), np.arange(V.shape[1])]
    flipped: FloatArray = V * np.where(largest < 0, -1, 1).astype(V.dtype)
    return flipped


def principal_angles(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the principal angles between two column spaces in radians, largest first.

    Examples
    --------
    >>> float(principal_angles(np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]))[0]) == np.pi / 2
    True
    """
    angles: FloatArray = scipy.linalg.subspace_angles(A, B)
    return angles
