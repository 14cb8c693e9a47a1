"""Orthonormal bases of the power method, on the memory of the matrices they are made from.

Symbols: A is d x k and Fortran-ordered, U d x m' with orthonormal columns, R and E are k x k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from fairstream.linalg import (
    FloatArray,
    in_threads,
    inner_product,
    orthonormalise_in_place,
    shares,
    small_lapack,
)
from fairstream.power.products import remove_span

_PANEL_ROWS = 1024


def rotate(A: FloatArray, R: FloatArray) -> None:
    """Replace A by AR on its own memory, a panel of rows at a time (R is square)."""
    R = R.astype(A.dtype, copy=False)

    def turn(share: slice) -> None:
        for start in range(share.start, share.stop, _PANEL_ROWS):
            rows = slice(start, min(start + _PANEL_ROWS, share.stop))
            A.T[:, rows] = R.T @ A.T[:, rows]  # the transposes, for they are what lies in rows

    with small_lapack():
        in_threads(turn, shares(len(A), A.size))


def symmetric_product(V: FloatArray, P: FloatArray) -> FloatArray:
    """Return V'P in float64 where it is known to be symmetric: only the lower half is multiplied.

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
    lower = np.tril(product)
    return lower + np.tril(product, -1).T


def orthonormalise_outside(U: FloatArray, A: FloatArray, E: FloatArray) -> None:
    """Overwrite A with an orthonormal basis of (I - UU')A that is orthogonal to U to rounding.

    The columns are those that a QR factorisation of (I - UU')AE has, E being orthogonal: they lead in E's
    order. The second projection removes what rounding left in U. Only where that was much (A had almost no
    rank outside U) is another factorisation needed; columns that lay in U altogether become fixed directions.
    """
    remove_span(U, A)
    if not _orthonormalise_by_gram(A, E):
        R = orthonormalise_in_place(A)
        rotate(A, _orthogonal_factor(R @ E))
    leak = remove_span(U, A)
    if np.abs(leak).max(initial=0.0) > np.sqrt(np.finfo(A.dtype).eps) / 100:
        arbitrary = np.flatnonzero(np.linalg.norm(leak, axis=0) > 1e-3)
        filling = np.random.default_rng(0).standard_normal((len(A), arbitrary.size), dtype=A.dtype.type)
        A[:, arbitrary] = filling - U @ (U.T @ filling)
        orthonormalise_in_place(A)
        remove_span(U, A)


def _orthonormalise_by_gram(A: FloatArray, E: FloatArray) -> bool:
    """Turn A into the Q of AE by Cholesky factors of Gram matrices, at the speed of matrix products.

    Returns False and leaves A as it was where the columns are so nearly dependent that their Gram matrix does
    not tell them apart. One factor is enough for well-conditioned columns, as they are once
    the power method has settled; else a second one makes good what the first has lost.
    """
    eps = np.finfo(A.dtype).eps
    found = _gram_factor(A)
    if found is None or found[2] * eps > 1e-2:
        return False
    R, inverse, spread = found
    rotate(A, inverse @ _orthogonal_factor(R @ E))
    if spread > 4:
        found = _gram_factor(A)
        if found is None or found[2] > 4:
            orthonormalise_in_place(A)
        else:
            rotate(A, found[1])
    return True


def _gram_factor(A: FloatArray) -> tuple[FloatArray, FloatArray, float] | None:
    """Return R with A = QR, its inverse, and how far the unit columns are from orthogonal (1 where they are).

    The last is the condition number of their Gram matrix, nearly. None where columns are dependent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gram = inner_product(A, A).astype(np.float64)
    squares, limits = gram.diagonal(), np.finfo(A.dtype)
    # Squares that overflow or lose digits to underflow tell nothing; Householder's reflections avoid them.
    if not (limits.tiny / limits.eps < squares.min() and squares.max() <= limits.max):
        return None
    lengths = np.sqrt(squares)
    gram /= np.outer(lengths, lengths)
    try:
        R = scipy.linalg.cholesky(gram, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.lapack.dtrtri(R)[0]
    return R * lengths, inverse / lengths[:, None], _largest_eigenvalue(inverse)


def _largest_eigenvalue(inverse: FloatArray) -> float:
    """Return the largest eigenvalue of inverse' inverse to about a tenth, by a few power steps."""
    vector = np.random.default_rng(0).standard_normal(len(inverse))
    size = 1.0
    for _ in range(12):
        vector = inverse.T @ (inverse @ (vector / np.linalg.norm(vector)))
        size = float(np.linalg.norm(vector))
    return size


def _orthogonal_factor(R: FloatArray) -> FloatArray:
    factor: FloatArray = scipy.linalg.qr(R, mode="economic", check_finite=False)[0]
    return factor


def rank_revealing_basis(A: FloatArray, rtol: float) -> FloatArray:
    """Return an orthonormal basis of the unit columns of A, of A's numerical rank, on A's own memory."""
    if A.shape[0] < A.shape[1]:  # one mean gap per group of several attributes, in few features
        left, singular, _ = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
        return np.asfortranarray(left[:, : int(np.count_nonzero(singular > rtol * singular[0]))])
    R = orthonormalise_in_place(A)
    with small_lapack():
        left, singular, _ = scipy.linalg.svd(R, check_finite=False)
    rotate(A, left)
    return A[:, : int(np.count_nonzero(singular > rtol * singular[:1].sum()))]


def random_basis(n_features: int, columns: int, generator: np.random.Generator, dtype: Any) -> FloatArray:
    """Return QR(N(0,1)^{d x columns}), Fortran-ordered."""
    Q: FloatArray = generator.standard_normal((columns, n_features), dtype=dtype).T
    if columns and not _orthonormalise_by_gram(Q, np.eye(columns)):
        orthonormalise_in_place(Q)
    return Q


def fix_signs_in_place(V: FloatArray) -> None:
    """Make the entry of largest size in each column positive."""
    for column in V.T:
        if column[np.argmax(np.abs(column))] < 0:
            np.negative(column, out=column)
