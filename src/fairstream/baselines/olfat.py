"""Fair PCA of Olfat and Aswani (2019): a semidefinite programme that penalises the covariance gap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg

from fairstream.baselines.base import (
    Array,
    GroupedRows,
    Learned,
    LinearFairTransformer,
    learned_linear,
    scatter,
    spread,
)
from fairstream.errors import FairstreamWarning, missing_extra
from fairstream.linalg import eigh, fix_signs, top_eigenvectors


class OlfatAswaniFairPCA(LinearFairTransformer):
    """Bound the mean gap and penalise the covariance gap of a relaxed projection.

    With f the gap between the group means, S the gap between the group covariances, phi_0 = max(0,
    -lambda_min(S)) and phi_1 = max(0, lambda_max(S)):

        minimise  -<X'X, P> / (n |X|_F) + mu (t_0 + t_1)  over P, t_0, t_1
        subject to  0 <= P <= I,  tr P = k,  f'Pf <= delta^2,
                    P (S + phi_0 I) P <= t_0 I,  P (phi_1 I - S) P <= t_1 I,

    the last two as Schur complements. The embedding takes the k leading eigenvectors of P. For delta = 0
    the problem is solved on the complement of f, so that the means agree exactly.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    delta : float
        Bound on the mean gap.
    mu : float
        Weight of the covariance gap.
    as_published : bool
        Reproduce the experiments of the fair streaming PCA paper: the first row is taken for a header and
        lost, and the features are standardised once more before the programme is set up.
    solver : str
        Name of an installed cvxpy solver for semidefinite programmes.
    tolerance : float
        Accuracy asked of SCS; other solvers keep their own.
    max_iter : int
        Iterations allowed to SCS.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    projection_ : ndarray of shape (n_features, n_features)
        P, before rounding.
    covariance_gaps_ : ndarray of shape (2,)
        t_0 and t_1.
    status_ : str
        What the solver said.
    n_iter_ : int
        Iterations of the solver.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Warns
    -----
    FairstreamWarning
        Where the solver stopped before the tolerance.

    Notes
    -----
    Cost: O(n d^2) to set up (no n x n centring matrices), then semidefinite blocks of size 2d: seconds for
    d = 59, minutes and 1 GB for d = 102, out of reach for d = 400. Needs the extra ``sdp``. Known
    weaknesses: two groups only; P is far from rank k (German, k = 2: leading eigenvalues .23, .23, .23,
    .22), so the leading eigenvectors of P are a rounding of a flat spectrum: they carry none of the bounds
    except the mean at delta = 0, and move with the solver's accuracy; the scale of the objective makes mu
    depend on n and d.

    References
    ----------
    M. Olfat, A. Aswani. Convex formulations for fair principal component analysis. AAAI 2019.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> group = X[:, 0] > 0
    >>> Z = OlfatAswaniFairPCA(1).fit_transform(X, sensitive_features=group)
    >>> bool(np.allclose(Z[group].mean(axis=0), Z[~group].mean(axis=0)))
    True
    """

    projection_: Array
    covariance_gaps_: Array
    status_: str
    n_iter_: int

    def __init__(
        self,
        n_components: int = 2,
        *,
        delta: float = 0.0,
        mu: float = 0.01,
        as_published: bool = False,
        solver: str = "SCS",
        tolerance: float = 1e-6,
        max_iter: int = 100_000,
    ) -> None:
        self.n_components = n_components
        self.delta = delta
        self.mu = mu
        self.as_published = as_published
        self.solver = solver
        self.tolerance = tolerance
        self.max_iter = max_iter

    def _solve(self, rows: GroupedRows) -> Learned:
        if self.delta < 0 or self.mu < 0:
            name, value = ("delta", self.delta) if self.delta < 0 else ("mu", self.mu)
            raise ValueError(f"{name} is {value!r}: pass a number of at least 0")
        mean = rows.X.mean(axis=0)
        if self.as_published:
            rows = _as_published(rows)
        first, second = rows.two_groups()
        gap = rows.mean_gap()
        difference = scatter(rows.X[second]) - scatter(rows.X[first])
        covariance = scatter(rows.X)
        # <X'X, P> / (n |X|_F) in terms of the covariance: |X|_F^2 = n tr(covariance).
        objective = covariance / np.sqrt(max(len(rows.X) * np.trace(covariance), 1e-300))
        basis, scale = self._coordinates(gap)
        k = self._check_n_components(basis.shape[1], f"the mean constraint leaves {basis.shape[1]}")
        P, solved = self._programme(basis, scale, objective, difference, gap, k)
        components = fix_signs(basis @ top_eigenvectors(P, k)[1]).T
        return learned_linear(components, mean, projection_=basis @ P @ basis.T, **solved)

    def _coordinates(self, gap: Array) -> tuple[Array, Array]:
        """Return an orthonormal basis for P, and the scale of each of its coordinates.

        For delta = 0 the gap's direction is left out. Otherwise it comes first, in small units: P is tiny
        there, and a first-order solver is many times faster when all entries of its variable are alike.
        """
        length = float(np.linalg.norm(gap))
        if length == 0:
            return np.eye(len(gap)), np.ones(len(gap))
        others = scipy.linalg.null_space(gap[None, :])
        if self.delta == 0:
            return others, np.ones(others.shape[1])
        scale = np.ones(len(gap))
        scale[0] = min(1.0, np.sqrt(self.delta / length))
        return np.column_stack([gap / length, others]), scale

    def _programme(
        self, basis: Array, scale: Array, objective: Array, difference: Array, gap: Array, k: int
    ) -> tuple[Array, Learned]:
        """Solve for P in the coordinates of `basis`; return it and what else is published."""
        try:
            import cvxpy as cp
        except ImportError:
            raise missing_extra("cvxpy", "sdp", "OlfatAswaniFairPCA") from None
        size = basis.shape[1]
        values = eigh(difference)[0]
        identity = np.eye(len(difference))
        shifted = [difference + max(0.0, -values[0]) * identity, max(0.0, values[-1]) * identity - difference]
        scaled = cp.Variable((size, size), PSD=True)
        P = cp.multiply(np.outer(scale, scale), scaled)
        bounds = cp.Variable(2)
        constraints = [np.eye(size) - P >> 0, cp.trace(P) == k]
        for bound, matrix in zip(bounds, shifted, strict=True):
            root = basis.T @ _root(matrix)
            width = root.shape[1]
            constraints.append(cp.bmat([[bound * np.eye(size), P @ root], [root.T @ P, np.eye(width)]]) >> 0)
        if self.delta > 0 and np.any(gap):
            constraints.append(scaled[0, 0] <= self.delta**2 / (gap @ gap) / scale[0] ** 2)
        explained = cp.sum(cp.multiply(basis.T @ objective @ basis, P))
        problem = cp.Problem(cp.Minimize(self.mu * cp.sum(bounds) - explained), constraints)
        self._run_solver(problem)
        solved = np.asarray(P.value)
        return (solved + solved.T) / 2, {
            "covariance_gaps_": np.asarray(bounds.value),
            "status_": str(problem.status),
            "n_iter_": int(problem.solver_stats.num_iters or 1),
        }

    def _run_solver(self, problem: Any) -> None:
        """Solve the cvxpy problem in place; raise where there is no answer, warn where it is not exact."""
        from cvxpy.error import SolverError

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # said below, in our words
            try:
                problem.solve(solver=self.solver, **self._solver_options())
            except SolverError as error:
                raise ValueError(f"solver is {self.solver!r}, which gave up ({error}): try SCS") from None
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise ValueError(
                f"{self.solver} found no solution ({problem.status}): raise max_iter or tolerance"
            )
        if problem.status != "optimal":
            warnings.warn(
                f"{self.solver} stopped early ({problem.status}): the constraints hold less exactly than "
                f"tolerance = {self.tolerance:g}; raise max_iter",
                FairstreamWarning,
                stacklevel=5,
            )

    def _solver_options(self) -> dict[str, Any]:
        if self.solver == "SCS":
            return {"eps": self.tolerance, "max_iters": self.max_iter}
        return {}  # every solver names its own; its defaults stand


def _root(M: Array) -> Array:
    """Return L with LL' = M for positive semidefinite M, without the columns that are zero to rounding."""
    values, vectors = eigh(M)
    alive = values > 1e-12 * max(values[-1], 1e-300)
    root: Array = vectors[:, alive] * np.sqrt(values[alive])
    return root


def _as_published(rows: GroupedRows) -> GroupedRows:
    X = rows.X[1:]
    scaled = (X - X.mean(axis=0)) / spread(X)
    groups = {name: column.take(slice(1, None)) for name, column in rows.groups.items()}
    return GroupedRows(scaled, groups, rows.system)
