"""LEACE followed by PCA: the least change that hides the groups from linear probes, then top components."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter
from fairstream.linalg import eigh, fix_signs, orthonormalise, top_eigenvectors


@dataclass(eq=False, repr=False)
class LeacePCA(LinearFairTransformer):
    """Erase the groups by least-squares concept erasure, then keep the top principal components.

    LEACE is the affine map r(x) = mean + A (x - mean) that solves::

        minimise E |r(x) - x|^2  subject to  cov(r(x), z) = 0,    z the group indicators,

    in closed form: A = I - W^+ Q Q' W with W = Sigma^(-1/2) and Q a basis of the columns of W cov(x, z). No
    linear probe can then do better than a constant. PCA of r(x) follows: Z = (r(x) - mean) V.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    tolerance : float
        Eigenvalues of Sigma below this share of the largest count as zero.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        V'A: the embedding is ``(x - mean_) components_'``. Its rows are not orthonormal: A is oblique.
    axes_ : ndarray of shape (n_components, n_features)
        V': the orthonormal principal axes of the erased data.
    erasure_ : ndarray of shape (n_features, n_features)
        A.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Notes
    -----
    Cost: O(n d^2 + d^3) time, O(d^2) memory. Takes any number of groups and attributes. Known weaknesses:
    group covariances are left as they are, so quadratic probes and trees still read the group; the
    whitening depends on the smallest eigenvalues of Sigma, which few rows estimate badly.

    References
    ----------
    N. Belrose, D. Schneider-Joseph, S. Ravfogel, R. Cotterell, E. Raff, S. Biderman. LEACE: Perfect linear
    concept erasure in closed form. NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> group = X[:, 0] > 0
    >>> Z = LeacePCA(2).fit_transform(X, sensitive_features=group)
    >>> bool(np.allclose(Z[group].mean(axis=0), Z[~group].mean(axis=0)))
    True
    """

    n_components: int = 2
    _: KW_ONLY
    tolerance: float = 1e-10
    axes_: Array = field(init=False)
    erasure_: Array = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        covariance = scatter(rows.X)
        erasure = leace_map(covariance, rows.mean_gaps(), self.tolerance)
        d = len(covariance)
        left = d - round(d - float(np.trace(erasure)))
        k = self._check_n_components(left, f"the groups take {d - left} of them")
        _, V = top_eigenvectors(erasure @ covariance @ erasure.T, k)
        V = fix_signs(V)
        return self._learned(V.T @ erasure, rows.X.mean(axis=0), axes_=V.T, erasure_=erasure)


def leace_map(covariance: Array, gaps: Array, tolerance: float = 1e-10) -> Array:
    """Return A = I - W^+ Q Q' W for cov(x, z) with the column space of `gaps`.

    For every group, cov(x, group indicator) is a multiple of the group's mean gap, so the gaps' span is all
    that is needed. Directions in which the data do not vary are left alone.

    Examples
    --------
    >>> leace_map(np.diag([1.0, 4.0]), np.array([[1.0], [0.0]])).round(3) + 0.0
    array([[0., 0.],
           [0., 1.]])
    """
    values, vectors = eigh(covariance)
    alive = values > tolerance * max(values[-1], 0.0)
    root, vectors = np.sqrt(values[alive]), vectors[:, alive]
    whitened = orthonormalise((vectors.T @ gaps) / root[:, None])
    erased = (vectors * root) @ whitened @ (whitened.T / root) @ vectors.T
    result: Array = np.eye(len(covariance)) - erased
    return result
