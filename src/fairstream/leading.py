"""Leading eigenvectors of a covariance outside a subspace, dense or sketched.

Symbols: Sigma is the covariance, U (d x m') an orthonormal basis to stay out of, V (d x k) the leading
eigenvectors of (I - UU') Sigma (I - UU').
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fairstream.linalg import (
    FloatArray,
    check_finite_matrix,
    eigh,
    fix_signs,
    orthonormal_complement_part,
)
from fairstream.operators import SymmetricOperator

NO_VARIANCE = 1e-13  # of the total: what is below is rounding


def leading_outside(covariance: SymmetricOperator, U: FloatArray, k: int) -> FloatArray:
    """Return k orthonormal columns outside U along which the covariance is largest, signs fixed.

    Examples
    --------
    >>> leading_outside(SymmetricOperator(np.diag([3.0, 2.0, 1.0])), np.eye(3)[:, :1], 1).ravel()
    array([0., 1., 0.])
    """
    if covariance.basis is None:
        return fix_signs(_leading_dense(covariance, U.astype(np.float64, copy=False), k))
    return fix_signs(_leading_sketched(covariance, U.astype(covariance.basis[0].dtype, copy=False), k))


def _leading_dense(covariance: SymmetricOperator, U: FloatArray, k: int) -> FloatArray:
    """Push U to the bottom of the spectrum: what is left on top lies outside U, whatever Sigma's rank."""
    Sigma, d = covariance.core, covariance.shape[0]
    images = Sigma @ U
    bottom = max(covariance.trace(), np.finfo(float).tiny)
    cross = images @ U.T
    inner = U.T @ images - bottom * np.eye(U.shape[1])
    projected = Sigma - cross - cross.T + U @ inner @ U.T
    if k < d // 4:
        check_finite_matrix(projected)
        values, V = scipy.linalg.eigh(projected, subset_by_index=[d - k, d - 1], check_finite=False)
    else:
        values, V = eigh(projected)
    values, V = values[::-1][:k], V[:, ::-1][:, :k]
    return _filled_up(U, V[:, values > NO_VARIANCE * bottom], k)


def _filled_up(U: FloatArray, V: FloatArray, k: int) -> FloatArray:
    """Orthonormalise V outside U, with k columns: where variance runs out, fixed directions fill up.

    The data says nothing about those; taking them from rounding noise would make the result depend on luck.
    """
    missing = k - V.shape[1]
    if missing > 0:
        rest = np.random.default_rng(0).standard_normal((len(U), missing)).astype(V.dtype)
        V = np.hstack([V, rest])
    return orthonormal_complement_part(U, V)


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
    V = covariance.expand(chosen) - U @ (inside.T @ chosen).astype(U.dtype)
    return _filled_up(U, V, k)
