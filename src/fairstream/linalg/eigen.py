"""Leading eigenvectors of symmetric matrices, dense or sketched, of all of them or outside a subspace.

Symbols: S is symmetric, Sigma is the covariance, U (d x m') an orthonormal basis to stay out of, V (d x k)
the leading eigenvectors of (I - UU') Sigma (I - UU').
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from fairstream.linalg.arrays import FloatArray, is_finite
from fairstream.linalg.bases import fix_signs_in_place, orthonormalise_outside, project_out
from fairstream.linalg.symmetric import SymmetricOperator
from fairstream.linalg.threads import lapack, small_lapack

_SMALL = 512
_LANCZOS_FROM = 400  # features: below, dense decompositions are as quick
_LANCZOS_SHARE = 16  # features per eigenpair that is asked for, at least
NO_VARIANCE = 1e-13  # of the total: what is below is rounding


def eigh(S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues (ascending) and eigenvectors of a symmetric matrix.

    Examples
    --------
    >>> eigh(np.diag([3.0, 1.0]))[0]
    array([1., 3.])
    """
    check_finite_matrix(S)
    driver = "evr" if S.shape[0] <= _SMALL else "evd"
    values, vectors = lapack(scipy.linalg.eigh, S, check_finite=False, driver=driver)
    return values, vectors


def check_finite_matrix(S: FloatArray) -> None:
    """Refuse a matrix that LAPACK must not see: with a NaN in it some of its loops never end."""
    if not is_finite(S):
        raise ValueError(
            "the second moments have NaN or infinite values, so there are no eigenvectors: rescale X or "
            "sample_weight, or collect the moments again"
        )


def top_eigenvectors(S: FloatArray, m: int, *, by: str = "value") -> tuple[FloatArray, FloatArray]:
    """Return the m leading eigenvalues and eigenvectors, by value or by absolute value.

    Examples
    --------
    >>> values, vectors = top_eigenvectors(np.diag([-2.0, 1.0, 4.0]), 2, by="absolute")
    >>> values
    array([ 4., -2.])
    """
    check_finite_matrix(S)
    found = by_lanczos(lambda x: _times(S, x), len(S), m, by=by)
    if found is not None:
        return found
    values, vectors = eigh(S)
    key = np.abs(values) if by == "absolute" else values
    order = np.argsort(-key, kind="stable")[:m]
    return values[order], vectors[:, order]


def top_eigenpairs(S: SymmetricOperator, m: int, *, by: str = "value") -> tuple[FloatArray, FloatArray]:
    """Return the m leading eigenvalues and eigenvectors (d x m) of an operator, by value or absolute value.

    Examples
    --------
    >>> top_eigenpairs(SymmetricOperator(np.diag([-2.0, 1.0, 4.0])), 1)[0]
    array([4.])
    """
    values, vectors = top_eigenvectors(S.core, m, by=by)
    return values, S.expand(vectors)


def by_lanczos(
    multiply: Callable[[FloatArray], FloatArray], d: int, m: int, *, by: str = "value"
) -> tuple[FloatArray, FloatArray] | None:
    """Return the m leading eigenpairs of a symmetric d x d matrix from products with it, or None.

    None if a dense decomposition is as quick, and if in doubt: the iteration takes longer than that, leaves a
    residual, or has missed an eigenvector (of equal eigenvalues it may see only one). The start is fixed, so
    the answer is always the same.

    Examples
    --------
    >>> S = np.diag([9.0, -16.0, *np.linspace(1, 0, 998)])
    >>> by_lanczos(lambda x: S @ x, 1000, 2, by="absolute")[0].round(9)
    array([-16.,   9.])
    """
    if d < _LANCZOS_FROM or not 0 < m <= d // _LANCZOS_SHARE:
        return None
    operator = LinearOperator((d, d), matvec=multiply, dtype=np.float64)
    found = _eigsh(operator, m, by, max(2 * m + 10, 40), tolerance=1e-12)
    if found is None:
        return None
    values, vectors = found
    images = multiply(vectors)
    size = float(np.abs(values[0]))
    residual = float(np.linalg.norm(images - vectors * values, axis=0).max())
    if not residual <= 1e-10 * size:
        return None
    rest = LinearOperator(
        (d, d), matvec=lambda x: multiply(x) - vectors @ (values * (vectors.T @ x)), dtype=np.float64
    )
    missed = _eigsh(rest, 1, by, 20, tolerance=1e-3)  # its square is the eigenvalue's tolerance
    if missed is None:
        return None
    last, best = (values[-1], missed[0][0]) if by == "value" else np.abs([values[-1], missed[0][0]])
    return None if best > last + 1e-6 * abs(last) + 1e-12 * size else (values, vectors)


def _times(S: FloatArray, x: FloatArray) -> FloatArray:
    """Return S x; for a vector from one triangle of S, because reading S is what takes time."""
    if x.ndim > 1:
        return S @ x
    product: FloatArray = scipy.linalg.get_blas_funcs("symv", (S,))(1.0, S.T, x, lower=1)
    return product


def _eigsh(
    operator: LinearOperator, m: int, by: str, width: int, tolerance: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return eigenpairs, largest first; None if they take about as long as a dense decomposition."""
    d = operator.shape[0]
    restarts = max((3 * d // 10 - width) // (width - m), 2)
    start = np.random.default_rng(width).standard_normal(d)
    options = {"which": "LM" if by == "absolute" else "LA", "v0": start, "ncv": width, "maxiter": restarts}
    try:
        with small_lapack():  # threads of our own multiply: those of BLAS would wait for them
            values, vectors = eigsh(operator, m, tol=tolerance, **options)
    except ArpackError:  # no convergence, or a start that the matrix maps to zero
        return None
    order = np.argsort(-(np.abs(values) if by == "absolute" else values), kind="stable")
    return values[order], vectors[:, order]


def leading_outside(covariance: SymmetricOperator, U: FloatArray, k: int) -> FloatArray:
    """Return k orthonormal columns outside U along which the covariance is largest, signs fixed.

    Examples
    --------
    >>> leading_outside(SymmetricOperator(np.diag([3.0, 2.0, 1.0])), np.eye(3)[:, :1], 1).ravel()
    array([0., 1., 0.])
    """
    if covariance.basis is None:
        U = U.astype(np.float64, copy=False)
        V = _leading_dense(covariance, U, k)
    else:
        U = U.astype(covariance.basis[0].dtype, copy=False)
        V = _leading_sketched(covariance, U, k)
    # If variance runs out fixed directions fill up. The data says nothing about those; taking them from
    # rounding noise would make the result depend on luck.
    filling = np.random.default_rng(0).standard_normal((len(U), k - V.shape[1])).astype(V.dtype)
    V = np.asfortranarray(np.hstack([V, filling]))
    orthonormalise_outside(U, V)
    fix_signs_in_place(V)
    return V


def spectrum_outside(Sigma: FloatArray, U: FloatArray) -> FloatArray:
    """Return the eigenvalues of (I - UU') Sigma (I - UU'), largest first, for a dense covariance.

    Examples
    --------
    >>> spectrum_outside(np.diag([3.0, 2.0, 1.0]), np.eye(3)[:, :1])
    array([2., 1., 0.])
    """
    outside = project_out(U, project_out(U, Sigma).T)
    return np.maximum(eigh((outside + outside.T) / 2)[0][::-1], 0.0)


def _leading_dense(covariance: SymmetricOperator, U: FloatArray, k: int) -> FloatArray:
    """Return the leading eigenvectors outside U, as many as have variance.

    The dense way pushes U to the bottom of the spectrum: what is left on top lies outside U, whatever Sigma's
    rank.
    """
    Sigma, d = covariance.core, covariance.shape[0]
    bottom = max(covariance.trace(), np.finfo(float).tiny)
    check_finite_matrix(Sigma)
    found = by_lanczos(lambda x: project_out(U, _times(Sigma, project_out(U, x))), d, k)
    if found is not None:
        return found[1][:, found[0] > NO_VARIANCE * bottom]
    images = Sigma @ U
    cross = images @ U.T
    inner = U.T @ images - bottom * np.eye(U.shape[1])
    projected = Sigma - cross - cross.T + U @ inner @ U.T
    if k < d // 4:
        check_finite_matrix(projected)
        values, V = lapack(scipy.linalg.eigh, projected, subset_by_index=[d - k, d - 1], check_finite=False)
    else:
        values, V = eigh(projected)
    values, V = values[::-1][:k], V[:, ::-1][:, :k]
    return V[:, values > NO_VARIANCE * bottom]


def _leading_sketched(covariance: SymmetricOperator, U: FloatArray, k: int) -> FloatArray:
    """Solve inside the sketch's directions after U is taken out of them; W x W matrices only."""
    inside = covariance.coordinates(U).astype(np.float64)
    gram = np.eye(len(inside)) - inside @ inside.T  # of the basis rows without their part in U
    values, vectors = eigh(gram)
    usable = values > (1e-4 if U.dtype == np.float32 else 1e-8)
    lengths = np.sqrt(values[usable])
    core = (vectors[:, usable] * lengths).T @ covariance.core @ (vectors[:, usable] * lengths)
    variances, inner = eigh((core + core.T) / 2)
    bottom = max(covariance.trace(), np.finfo(float).tiny)
    inner = inner[:, variances > NO_VARIANCE * bottom]
    chosen = (vectors[:, usable] / lengths) @ inner[:, ::-1][:, :k]
    return covariance.expand(chosen) - U @ (inside.T @ chosen).astype(U.dtype)
