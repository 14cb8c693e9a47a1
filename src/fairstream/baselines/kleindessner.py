"""Fair PCA of Kleindessner et al. (2023): match group means exactly, group covariances in part."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import scipy.linalg

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter
from fairstream.linalg import eigh, fix_signs, lapack, orthonormalise, top_eigenvectors


@dataclass(eq=False, repr=False)
class KleindessnerFairPCA(LinearFairTransformer):
    """PCA inside the subspace in which group means agree and, on request, covariances nearly do.

    With f the gap between the group means, Sigma the covariance and S' = cov(x | 1) - cov(x | 0):

        maximise tr(V' Sigma V)  subject to  V'V = I,  f'V = 0,  V' S' V ~ 0.

    The mean constraint is met exactly by V = N W, N a basis of the complement of f (of all group mean gaps,
    for more groups or attributes). The covariance constraint has no solution in general; it is relaxed by
    keeping only the l = int(fraction * d) eigenvectors of N' S' N with the smallest absolute eigenvalues.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    fraction : float, optional
        Share of the d directions that may be used once covariances are matched; smaller is stricter. None
        matches means only.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    n_directions_ : int
        Dimension of the subspace that was left to PCA.

    Notes
    -----
    Cost: O(n d^2 + d^3) time and O(d^2) memory, so not for streams of wide rows. Known weaknesses: the
    covariance version is for two groups; which directions survive depends on the scale of the features, so
    strong principal components go first; nothing beyond second moments is matched.

    References
    ----------
    M. Kleindessner, M. Donini, C. Russell, M. B. Zafar. Efficient fair PCA for fair representation learning.
    AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> group = X[:, 0] > 0
    >>> Z = KleindessnerFairPCA(2).fit_transform(X, sensitive_features=group)
    >>> bool(np.allclose(Z[group].mean(axis=0), Z[~group].mean(axis=0)))
    True
    """

    n_components: int = 2
    _: KW_ONLY
    fraction: float | None = None
    n_directions_: int = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        d = rows.X.shape[1]
        unfair = orthonormalise(rows.mean_gaps())
        basis = lapack(scipy.linalg.null_space, unfair.T) if unfair.shape[1] else np.eye(d)
        if self.fraction is not None:
            basis = basis @ _quiet_directions(rows, basis, _kept(self.fraction, d))
        k = self._check_n_components(basis.shape[1], f"the constraints leave {basis.shape[1]} directions")
        _, inner = top_eigenvectors(basis.T @ scatter(rows.X) @ basis, k)
        components = fix_signs(basis @ inner).T
        return self._learned(components, rows.X.mean(axis=0), n_directions_=basis.shape[1])


def _kept(fraction: float, d: int) -> int:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction is {fraction!r}: pass a share of the features, above 0 and at most 1")
    return int(fraction * d)


def _quiet_directions(rows: GroupedRows, basis: Array, kept: int) -> Array:
    """Return the directions inside `basis` along which the two group covariances differ least."""
    first, second = rows.two_groups()
    # Divisor n - 1 as published. A group of one row has no covariance; its scatter is zero either way.
    difference = sum(
        sign * scatter(rows.X[members]) * len(members) / max(len(members) - 1, 1)
        for sign, members in ((1, second), (-1, first))
    )
    values, vectors = eigh(basis.T @ difference @ basis)
    quiet: Array = vectors[:, np.argsort(np.abs(values), kind="stable")[:kept]]
    return quiet
