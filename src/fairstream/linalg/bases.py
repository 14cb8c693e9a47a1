"""Orthonormal bases with few columns: making them, projecting on them, turning and comparing them.

Symbols: A, B, V are d x j matrices with few columns, U has orthonormal columns. What works in place takes A
Fortran-ordered, float32 or float64, and makes no second d x j array.

There are five ways to an orthonormal basis, and each does what the others cannot:
`orthonormalise` drops columns that the earlier ones span, in their order; `rank_revealing_basis` drops by
singular values, in place, for a basis that is a large part of the memory; `orthonormalise_in_place` is the QR
factorisation at the speed of matrix products; `orthonormalise_outside` is the same in the complement of U,
and `orthonormalise_settled` the quickest way to it, for columns that are nearly orthogonal already.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.gemm import turn_upper
from fairstream.linalg.threads import (
    add_product,
    in_threads,
    inner_product,
    lapack,
    shares,
    small_lapack,
    wide_product,
)

_PANEL_ROWS = 1024
_NEARLY_ORTHOGONAL = 4  # condition of a Gram matrix up to which one factor is enough


# Making them ----------------------------------------------------------------------------------------


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
    Q = A[:, :0]
    for j in range(A.shape[1]):
        remainder = A[:, j : j + 1]
        for _ in range(2):
            remainder = project_out(Q, remainder)
        length = np.linalg.norm(remainder)
        if length > rtol and Q.shape[1] < A.shape[0]:
            Q = np.hstack([Q, remainder / length])
    return Q


def rank_revealing_basis(A: FloatArray, rtol: float) -> FloatArray:
    """Return an orthonormal basis of the unit columns of A, of A's numerical rank, on A's own memory."""
    if A.shape[0] < A.shape[1]:  # one mean gap per group of several attributes, in few features
        left, singular, _ = lapack(scipy.linalg.svd, A, full_matrices=False, check_finite=False)
        return np.asfortranarray(left[:, : int(np.count_nonzero(singular > rtol * singular[0]))])
    R = _householder(A)
    left, singular, _ = lapack(scipy.linalg.svd, R, check_finite=False)
    rotate(A, left)
    return A[:, : int(np.count_nonzero(singular > rtol * singular[:1].sum()))]


def orthonormalise_in_place(A: FloatArray) -> FloatArray:
    """Overwrite the columns of A with an orthonormal basis Q, return R (j x j) with old A = QR.

    R is an upper triangle with a positive diagonal, so the answer does not depend on how it is computed: by
    Cholesky factors of Gram matrices, or, if the columns are nearly dependent, by Householder's reflections.
    A must have at least as many rows as columns. Columns without rank become arbitrary orthonormal ones.

    Examples
    --------
    >>> A = np.asfortranarray([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    >>> before, R = A.copy(), orthonormalise_in_place(A)
    >>> bool(np.allclose(A.T @ A, np.eye(2)) and np.allclose(A @ R, before))
    True
    """
    return _factorise(A, None)[0]


def orthonormalise_outside(U: FloatArray, A: FloatArray, axes: FloatArray | None = None) -> FloatArray | None:
    """Overwrite A with an orthonormal basis of (I - UU')A that is orthogonal to U to rounding.

    The columns are those that a QR factorisation of (I - UU')A has, or of (I - UU')A axes for orthogonal
    axes (j x j): they lead in that order. The second projection removes what rounding left in U. Only if that
    was much (A had almost no rank outside U) is another factorisation needed; columns that lay in U
    altogether become fixed directions.

    Returns T (j x j) with new A = (I - UU') old A T, None if the columns were too dependent to tell.
    """
    project_out_in_place(U, A)
    T = _factorise(A, axes)[1]
    leak = project_out_in_place(U, A)
    if np.abs(leak).max(initial=0.0) > _little_leak(A):
        arbitrary = np.flatnonzero(np.linalg.norm(leak, axis=0) > 1e-3)
        filling = np.random.default_rng(0).standard_normal((len(A), arbitrary.size), dtype=A.dtype.type)
        A[:, arbitrary] = project_out(U, filling)
        _factorise(A, None)
        project_out_in_place(U, A)
        return None
    return T


def orthonormalise_settled(U: FloatArray, A: FloatArray) -> FloatArray | None:
    """Do what `orthonormalise_outside` does by one Gram factor, if that is enough.

    It is if the columns are nearly orthogonal, as they are once an iteration has settled, and rounding left
    little of them in U. Returns the upper triangle T with new A = (I - UU') old A T; None if it is not
    enough, and then A is only projected.

    Examples
    --------
    >>> A = np.asfortranarray([[3.0, 1.0], [0.0, 2.0], [5.0, 7.0]])
    >>> orthonormalise_settled(np.eye(3)[:, 2:], A)
    array([[ 0.33333333, -0.16666667],
           [ 0.        ,  0.5       ]])
    """
    project_out_in_place(U, A)
    found = _gram_factor(A)
    if found is None or found[2] > _NEARLY_ORTHOGONAL:
        return None
    T = found[1]
    leak = inner_product(U, A) @ T
    if np.abs(leak).max(initial=0.0) > _little_leak(A):
        return None
    rotate_upper(A, T)
    add_product(A, U, leak, alpha=-1.0)
    return T


def _little_leak(A: FloatArray) -> float:
    """Return how much of unit columns may be projected out and leave them orthonormal: its square counts."""
    return float(np.sqrt(np.finfo(A.dtype).eps)) / 100


def random_basis(n_features: int, columns: int, generator: np.random.Generator, dtype: Any) -> FloatArray:
    """Return QR(N(0,1)^{d x columns}), Fortran-ordered."""
    Q: FloatArray = generator.standard_normal((columns, n_features), dtype=dtype).T
    orthonormalise_in_place(Q)
    return Q


def _factorise(A: FloatArray, axes: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
    """Overwrite A with the Q of A axes = QR; return R (without axes), and T with Q = AT if it is accurate.

    One Gram factor is enough for well-conditioned columns, as they are once an iteration has settled; else a
    second one makes good what the first has lost.
    """
    rows, columns = A.shape
    if rows < columns or not A.flags.f_contiguous:
        raise ValueError(f"A has shape {A.shape}, strides {A.strides}: pass a tall Fortran-ordered array")
    if columns == 0:
        return np.zeros((0, 0), dtype=A.dtype), None
    found = _gram_factor(A)
    if found is None or found[2] * np.finfo(A.dtype).eps > 1e-2:
        R = _householder(A)
        if axes is not None:
            rotate(A, _orthogonal_factor(R @ axes))
        return R, None
    R, inverse, spread = found
    if axes is None:
        T = inverse
        rotate_upper(A, T)
    else:
        T = inverse @ _orthogonal_factor(R @ axes)
        rotate(A, T)
    if spread <= _NEARLY_ORTHOGONAL:
        return R, T
    found = _gram_factor(A)
    if found is None or found[2] > _NEARLY_ORTHOGONAL:
        return _householder(A) @ R, None
    rotate_upper(A, found[1])
    return found[0] @ R, None


def _gram_factor(A: FloatArray) -> tuple[FloatArray, FloatArray, float] | None:
    """Return R with A = QR, its inverse, and how far the unit columns are from orthogonal (1 if they are).

    The last is the condition number of their Gram matrix, nearly. None if columns are dependent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gram = inner_product(A, A).astype(np.float64)
    squares, limits = gram.diagonal(), np.finfo(A.dtype)
    # Squares that overflow or lose digits to underflow tell nothing; Householder's reflections avoid them.
    if not (limits.tiny / limits.eps < squares.min() and squares.max() <= limits.max):
        return None
    lengths = np.sqrt(squares)
    gram /= lengths
    gram /= lengths[:, None]
    try:
        R = lapack(scipy.linalg.cholesky, gram.T, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    inverse = lapack(scipy.linalg.lapack.dtrtri, R)[0]
    with small_lapack():
        spread = _largest_eigenvalue(inverse.astype(np.float32))
    R *= lengths
    inverse /= lengths[:, None]
    return R, inverse, spread


def _largest_eigenvalue(inverse: FloatArray) -> float:
    """Return the largest eigenvalue of inverse' inverse to about a tenth, by a few power steps."""
    vector = np.random.default_rng(0).standard_normal(len(inverse), dtype=np.float32)
    size = 1.0
    for _ in range(12):
        vector = inverse.T @ (inverse @ (vector / np.linalg.norm(vector)))
        size = float(np.linalg.norm(vector))
    return size


def _orthogonal_factor(R: FloatArray) -> FloatArray:
    factor: FloatArray = lapack(scipy.linalg.qr, R, mode="economic", check_finite=False)[0]
    return factor


def _householder(A: FloatArray) -> FloatArray:
    """Overwrite A with its Q by LAPACK's reflections, whatever the conditioning; return R."""
    columns = A.shape[1]
    if columns == 0:
        return np.zeros((0, 0), dtype=A.dtype)
    geqrf, orgqr = scipy.linalg.get_lapack_funcs(("geqrf", "orgqr"), (A,))
    workspace = 64 * columns  # LAPACK's panels are at most 64 columns wide
    factored, tau, _, _ = lapack(geqrf, A, lwork=workspace, overwrite_a=True)
    R: FloatArray = np.triu(factored[:columns])
    Q, _, _ = lapack(orgqr, factored, tau, lwork=workspace, overwrite_a=True)
    if not np.shares_memory(Q, A):  # an array LAPACK could not take as it was, for instance unaligned
        A[...] = Q
    for j in np.flatnonzero(np.diag(R) < 0):
        A[:, j] *= -1
        R[j] *= -1
    return R


# Projecting on them ---------------------------------------------------------------------------------


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


def project_out_in_place(U: FloatArray, A: FloatArray) -> FloatArray:
    """Replace A by (I - UU')A on its own memory; return what was there, U'A."""
    inside = inner_product(U, A)
    add_product(A, U, inside, alpha=-1.0)
    return inside


def rotate(A: FloatArray, R: FloatArray) -> None:
    """Replace A by AR on its own memory, a panel of rows at a time (R is square)."""
    R = R.astype(A.dtype, copy=False)

    def turn(share: slice) -> None:
        for start in range(share.start, share.stop, _PANEL_ROWS):
            rows = slice(start, min(start + _PANEL_ROWS, share.stop))
            A.T[:, rows] = R.T @ A.T[:, rows]  # the transposes, for they are what lies in rows

    with small_lapack():
        in_threads(turn, shares(len(A), A.size))


def rotate_upper(A: FloatArray, T: FloatArray) -> None:
    """Replace A by AT on its own memory for an upper triangle T: half the work of `rotate`."""
    T = np.asfortranarray(T, dtype=A.dtype)
    with small_lapack():
        in_threads(lambda rows: turn_upper(A[rows], T), shares(len(A), A.size))


def symmetric_product(V: FloatArray, P: FloatArray) -> FloatArray:
    """Return V'P in float64 if it is known to be symmetric: only the lower half is multiplied.

    Examples
    --------
    >>> symmetric_product(np.eye(3, 2, order="F"), np.asfortranarray([[2.0, 1.0], [1.0, 3.0], [0.0, 0.0]]))
    array([[2., 1.],
           [1., 3.]])
    """
    columns = V.shape[1]
    panel = max(columns // 4, 64)

    def multiply(rows: slice) -> FloatArray:
        product = np.zeros((columns, columns))
        for start in range(0, columns, panel):
            product[start:, start : start + panel] = V[rows, start:].T @ P[rows, start : start + panel]
        return product

    with small_lapack():
        parts = in_threads(multiply, shares(len(V), V.size, max(len(V) // max(2 * columns, 1), 1)))
    product = sum(parts[1:], start=parts[0])
    return np.tril(product) + np.tril(product, -1).T


# Comparing them -------------------------------------------------------------------------------------


def fix_signs(V: FloatArray) -> FloatArray:
    """Flip columns so that the entry of largest size in each is positive: signs that do not depend on luck.

    But for ties: if two entries are equal but for their sign, as one-hot pairs have it, rounding decides.

    Examples
    --------
    >>> fix_signs(np.array([[0.6], [-0.8]]))
    array([[-0.6],
           [ 0.8]])
    """
    V = V.copy()
    fix_signs_in_place(V)
    return V


def fix_signs_in_place(V: FloatArray) -> None:
    """Do what `fix_signs` does on V's own memory."""
    for column in V.T:
        if column[np.argmax(np.abs(column))] < 0:
            column *= -1  # np.negative(out=) is wrong for some strides (NumPy 2.4)


def is_orthonormal(B: FloatArray) -> bool:
    """Return whether B's rows look orthonormal: two random combinations keep their length. Cost 4dL flops."""
    if len(B) == 0:
        return True
    probes = np.random.default_rng(0).standard_normal((2, len(B)), dtype=B.dtype.type)
    lengths = np.linalg.norm(wide_product(probes, B), axis=1) / np.linalg.norm(probes, axis=1)
    return bool(np.abs(lengths - 1).max() < 1e-3)


def principal_angles(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the principal angles between two column spaces in radians, largest first.

    Examples
    --------
    >>> float(principal_angles(np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]))[0]) == np.pi / 2
    True
    """
    angles: FloatArray = lapack(scipy.linalg.subspace_angles, A, B)
    return angles
