"""MbF-PCA of Lee et al. (2022): as much variance as a bound on the maximum mean discrepancy allows."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from sklearn.utils import check_random_state

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter
from fairstream.baselines.mmd import group_weights, mmd2, value_noise
from fairstream.baselines.spectral_mmd import is_cheaper, spectral_mmd2
from fairstream.baselines.stiefel import Objective, minimise, retract
from fairstream.errors import FairstreamWarning
from fairstream.linalg import fix_signs, top_eigenvectors
from fairstream.linalg.kernels import median_squared_distance

_FIRST_TOLERANCE, _LAST_TOLERANCE = 1e-1, 1e-6
_LARGEST_PENALTY = 1e10
_STILL = 1e-6
_N_STARTS = 11


@dataclass(eq=False, repr=False)
class MbFPCA(LinearFairTransformer):
    """Maximise variance subject to a bound on the discrepancy between the embedded groups.

    With A the covariance and MMD^2 the biased RBF statistic between the embedded groups:

        maximise tr(V'AV) / tr(A)  subject to  V'V = I,  MMD^2(X_1 V, X_0 V) <= tau.

    Exact penalty method: start from a minimum of MMD^2 alone, minimise -tr(V'AV)/tr(A) + rho MMD^2(V) on the
    Stiefel manifold by L-BFGS, double rho while the bound is violated, and tighten the inner tolerance from
    1e-1 to 1e-6.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    tau : float
        Bound on MMD^2 of the training rows.
    bandwidth : float, optional
        Two sigma squared, in ``exp(-|x - y|^2 / bandwidth)``. None takes the median of all squared distances
        between training rows embedded by plain PCA.
    max_rounds, max_iter : int
        Penalty rounds, and L-BFGS steps in each.
    random_state : int, RandomState or None
        Seeds the eleven random starts, of which the one with most variance is used.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    mmd2_ : float
        MMD^2 reached on the training rows.
    penalty_ : float
        The last rho.
    n_rounds_ : int
        Penalty rounds done.
    n_iter_ : int
        L-BFGS steps in all rounds.
    bandwidth_ : float
        The value used.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Warns
    -----
    FairstreamWarning
        If the bound was not reached; `mmd2_` is the value reached.

    Notes
    -----
    Cost: O(n^2 k) a gradient for n distinct rows, hundreds to thousands of gradients; memory O(n d), because
    the kernel is summed in tiles. One or two columns of many rows cost O(n) a gradient, by Fourier series in
    up to some kilobytes a row. From 8,192 rows on the kernel's entries are rounded to single precision, which
    changes MMD^2 by about 1e-9.
    Known weaknesses: two groups only; not convex, so the answer depends on the start; a small tau cannot
    be reached at larger k (10 columns, 1e-6) and the penalty diverges; the bound holds on the training rows,
    and MMD^2 of fresh rows is larger by order 1/n.

    References
    ----------
    J. Lee, G. Kim, M. Olfat, M. Hasegawa-Johnson, C. D. Yoo. Fast and efficient MMD-based fair PCA via
    optimization over Stiefel manifold. AAAI 2022.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = MbFPCA(1, tau=0.02, random_state=0).fit(X, sensitive_features=X[:, 0] > 0)
    >>> model.mmd2_ <= 0.02
    True
    """

    n_components: int = 2
    _: KW_ONLY
    tau: float = 1e-3
    bandwidth: float | None = None
    max_rounds: int = 100
    max_iter: int = 300
    random_state: int | np.random.RandomState | None = None
    mmd2_: float = field(init=False)
    penalty_: float = field(init=False)
    n_rounds_: int = field(init=False)
    n_iter_: int = field(init=False)
    bandwidth_: float = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        if not self.tau > 0:
            raise ValueError(f"tau is {self.tau!r}: pass a bound above 0")
        first, second = rows.two_groups()
        k = self._check_n_components(rows.X.shape[1], "there are no more directions")
        random = check_random_state(self.random_state)
        mean = rows.X.mean(axis=0)
        covariance = scatter(rows.X)
        _, V_pca = top_eigenvectors(covariance, k)
        centred = rows.X - mean
        bandwidth = self._bandwidth(centred @ V_pca)
        members = np.sort(np.concatenate([first, second]))
        weights = group_weights(first, second, len(centred))[members]
        distinct, weights = _distinct(centred[members], weights)
        problem = _Problem(distinct, weights, covariance / max(np.trace(covariance), 1e-300), bandwidth)
        run = self._penalised(problem, V_pca, random)
        if run.mmd2 > self.tau:
            warnings.warn(
                f"MbFPCA stopped after {run.n_rounds} rounds at MMD^2 = {run.mmd2:.3g}, above tau = "
                f"{self.tau:.3g}: the bound does not hold; raise tau or lower n_components",
                FairstreamWarning,
                stacklevel=3,
            )
        return self._learned(
            _principal_axes(run.V, covariance).T,
            mean,
            mmd2_=run.mmd2,
            penalty_=run.penalty,
            n_rounds_=run.n_rounds,
            n_iter_=run.n_iter,
            bandwidth_=bandwidth,
        )

    def _bandwidth(self, embedded: Array) -> float:
        if self.bandwidth is None:
            return median_squared_distance(embedded) or 1.0
        if not 0 < self.bandwidth < np.inf:
            raise ValueError(
                f"bandwidth is {self.bandwidth!r}: pass a number above 0, or None for the median"
            )
        return float(self.bandwidth)

    def _penalised(self, problem: _Problem, V_pca: Array, random: np.random.RandomState) -> _Run:
        """Run the penalty rounds from a minimum of the discrepancy alone."""
        starts = [retract(random.standard_normal(V_pca.shape)) for _ in range(_N_STARTS)]
        start = max(starts, key=problem.explained)
        noise = value_noise(len(problem.X))
        fairest = minimise(
            problem.discrepancy, start, tolerance=_LAST_TOLERANCE, max_iter=self.max_iter, noise=noise
        )
        penalty = 1.0 / max(problem.discrepancy(V_pca)[0], 1e-12)
        run = _Run(fairest.V, fairest.value, penalty, 0, fairest.n_iter)
        tolerance = _FIRST_TOLERANCE
        while run.n_rounds < self.max_rounds and run.penalty <= _LARGEST_PENALTY:
            found = minimise(
                problem.penalised(run.penalty),
                run.V,
                tolerance=tolerance,
                max_iter=self.max_iter,
                noise=noise * run.penalty,
            )
            moved = float(np.linalg.norm(found.V - run.V))
            reached = problem.discrepancy(found.V)[0]
            feasible = reached <= self.tau
            settled = moved <= _STILL and tolerance <= _LAST_TOLERANCE
            penalty = run.penalty if feasible else 2 * run.penalty
            run = _Run(found.V, reached, penalty, run.n_rounds + 1, run.n_iter + found.n_iter)
            if feasible and settled:
                break
            tolerance = max(_LAST_TOLERANCE, tolerance / 10)
        return run


@dataclass(frozen=True, slots=True)
class _Run:
    """The state of the penalty rounds."""

    V: Array
    mmd2: float
    penalty: float
    n_rounds: int
    n_iter: int


@dataclass(frozen=True, slots=True)
class _Problem:
    """Variance share and discrepancy of an embedding, with gradients."""

    X: Array
    weights: Array
    A: Array
    bandwidth: float

    def explained(self, V: Array) -> float:
        return float(np.sum(V * (self.A @ V)))

    def discrepancy(self, V: Array) -> tuple[float, Array]:
        Z = self.X @ V
        # The same to rounding; the series is for few columns without far outliers.
        discrepancy = spectral_mmd2 if is_cheaper(Z, self.bandwidth) else mmd2
        value, gradient = discrepancy(Z, self.weights, self.bandwidth)
        return value, self.X.T @ gradient

    def penalised(self, penalty: float) -> Objective:
        def objective(V: Array) -> tuple[float, Array]:
            AV = self.A @ V
            value, gradient = self.discrepancy(V)
            return penalty * value - float(np.sum(V * AV)), penalty * gradient - 2 * AV

        return objective


def _distinct(X: Array, weights: Array) -> tuple[Array, Array]:
    """Merge equal rows and add their weights: w'Kw stays the same, over fewer pairs."""
    distinct, index = np.unique(X, axis=0, return_inverse=True)
    if len(distinct) == len(X):
        return X, weights
    return distinct, np.bincount(index.ravel(), weights)


def _principal_axes(V: Array, covariance: Array) -> Array:
    """Rotate V within its span to uncorrelated columns, largest variance first."""
    _, rotation = top_eigenvectors(V.T @ covariance @ V, V.shape[1])
    return fix_signs(V @ rotation)
