"""Fair PCA of Olfat and Aswani (2019): a semidefinite programme that penalises the covariance gap."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter, spread
from fairstream.baselines.fantope import penalised_projection, symmetric
from fairstream.errors import FairstreamWarning, NotEnoughGroupsError, missing_extra
from fairstream.linalg import eigh, fix_signs, lapack, top_eigenvectors

_NO_ROOM = 1e-30  # a relative bound on the mean gap below which only rounding is left


@dataclass(eq=False, repr=False)
class OlfatAswaniFairPCA(LinearFairTransformer):
    """Bound the mean gap and penalise the covariance gap of a relaxed projection.

    With f the gap between the group means, S the gap between the group covariances, phi_0 = max(0,
    -lambda_min(S)) and phi_1 = max(0, lambda_max(S))::

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
        "ADMM" is this library's own and needs no extra; else the name of an installed cvxpy solver for
        semidefinite programmes ("SCS", "CLARABEL"), from the extra ``sdp``.
    tolerance : float
        Accuracy asked of ADMM and SCS; other solvers keep their own.
    max_iter : int
        Iterations allowed to ADMM and SCS.

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
        If the solver stopped before the tolerance was reached.

    Notes
    -----
    Cost: O(n d^2) to set up (no n x n centring matrices), then eigenvalues of three matrices of size d (a
    few more for delta > 0) in each iteration of ADMM, which uses that P (S + phi_0 I) P <= t_0 I bounds the
    norm of (S + phi_0 I)^(1/2) P. A cvxpy solver works on semidefinite blocks of size 2d instead: half a
    minute and 700 MB for d = 102, out of reach for d = 400. Known weaknesses: two groups only; P is far from
    rank k (German, k = 2: leading eigenvalues .23, .23, .22, .22; Adult, k = 2: .0474, .0474, .0474, .0473),
    so the leading eigenvectors of P are a rounding of a flat spectrum: they carry none of the bounds except
    the mean at delta = 0, and move with the solver's accuracy; the scale of the objective makes mu depend on
    n and d.

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

    n_components: int = 2
    _: KW_ONLY
    delta: float = 0.0
    mu: float = 0.01
    as_published: bool = False
    solver: str = "ADMM"
    tolerance: float = 1e-6
    max_iter: int = 100_000
    projection_: Array = field(init=False)
    covariance_gaps_: Array = field(init=False)
    status_: str = field(init=False)
    n_iter_: int = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        self._check_numbers()
        mean = rows.X.mean(axis=0)
        if self.as_published:
            rows = _as_published(rows)
        first, second = rows.two_groups()
        if not (len(first) and len(second)):
            raise NotEnoughGroupsError(
                "as_published drops the first row, the only one of its group here: order the rows otherwise"
            )
        gap = rows.mean_gap()
        difference = scatter(rows.X[second]) - scatter(rows.X[first])
        covariance = scatter(rows.X)
        # <X'X, P> / (n |X|_F) in terms of the covariance: |X|_F^2 = n tr(covariance).
        objective = covariance / np.sqrt(max(len(rows.X) * np.trace(covariance), 1e-300))
        basis, bound = self._coordinates(gap)
        k = self._check_n_components(basis.shape[1], f"the mean constraint leaves {basis.shape[1]}")
        if bound is not None and k > basis.shape[1] - 1 + bound:
            raise ValueError(
                f"n_components is {k} of {basis.shape[1]} features, delta is {self.delta!r}: so many cannot "
                "avoid the direction of the mean gap; lower n_components or raise delta"
            )
        P, solved = self._programme(basis, bound, objective, difference, k)
        components = fix_signs(basis @ top_eigenvectors(P, k)[1]).T
        return self._learned(components, mean, projection_=basis @ P @ basis.T, **solved)

    def _check_numbers(self) -> None:
        for name, value in (("delta", self.delta), ("mu", self.mu)):
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} is {value!r}: pass a number of at least 0")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance is {self.tolerance!r}: pass a number above 0")
        if not isinstance(self.max_iter, int | np.integer) or self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter!r}: pass an integer from 1")

    def _coordinates(self, gap: Array) -> tuple[Array, float | None]:
        """Return an orthonormal basis for P, and the bound on the first entry of P's diagonal in it, if any.

        For delta = 0 the gap's direction is left out. Otherwise it comes first.
        """
        length = float(np.linalg.norm(gap))
        if length <= self.delta:
            return np.eye(len(gap)), None  # P <= I implies the bound
        others = lapack(scipy.linalg.null_space, gap[None, :])
        bound = (self.delta / length) ** 2
        if bound < _NO_ROOM:
            return others, None
        return np.column_stack([gap / length, others]), bound

    def _programme(
        self, basis: Array, bound: float | None, objective: Array, difference: Array, k: int
    ) -> tuple[Array, Learned]:
        """Solve for P in the coordinates of `basis`; return it and what else is published."""
        values = eigh(difference)[0]
        identity = np.eye(len(difference))
        shifted = [difference + max(0.0, -values[0]) * identity, max(0.0, values[-1]) * identity - difference]
        roots = basis.T @ _root(shifted[0]), basis.T @ _root(shifted[1])
        inner = basis.T @ objective @ basis
        solve = self._by_admm if self.solver == "ADMM" else self._by_cvxpy
        return solve(inner, roots, bound, k)

    def _by_admm(
        self, objective: Array, roots: tuple[Array, Array], bound: float | None, k: int
    ) -> tuple[Array, Learned]:
        found = penalised_projection(
            objective,
            roots,
            k,
            weight=self.mu,
            bound=bound,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
        )
        status = "optimal" if found.residual <= self.tolerance else "optimal_inaccurate"
        self._warn_unless_optimal(status)
        return found.P, {
            "covariance_gaps_": found.squared_norms,
            "status_": status,
            "n_iter_": found.n_iter,
        }

    def _by_cvxpy(
        self, objective: Array, roots: tuple[Array, Array], bound: float | None, k: int
    ) -> tuple[Array, Learned]:
        try:
            import cvxpy as cp
        except ImportError:
            raise missing_extra("cvxpy", "sdp", f'solver="{self.solver}"') from None
        size = len(objective)
        # P is tiny along the gap: rescaled, all entries are of one size, which helps first-order solvers.
        scale = np.ones(size)
        scale[0] = 1.0 if bound is None else bound**0.25
        scaled = cp.Variable((size, size), PSD=True)
        P = cp.multiply(np.outer(scale, scale), scaled)
        gaps = cp.Variable(2)
        constraints = [np.eye(size) - P >> 0, cp.trace(P) == k]
        for gap, root in zip(gaps, roots, strict=True):
            width = root.shape[1]
            constraints.append(cp.bmat([[gap * np.eye(size), P @ root], [root.T @ P, np.eye(width)]]) >> 0)
        if bound is not None:
            constraints.append(scaled[0, 0] <= bound / scale[0] ** 2)
        explained = cp.sum(cp.multiply(objective, P))
        problem = cp.Problem(cp.Minimize(self.mu * cp.sum(gaps) - explained), constraints)
        self._run_solver(problem)
        self._warn_unless_optimal(problem.status)
        solved = np.asarray(P.value)
        return symmetric(solved), {
            "covariance_gaps_": np.asarray(gaps.value),
            "status_": str(problem.status),
            "n_iter_": int(problem.solver_stats.num_iters or 1),
        }

    def _run_solver(self, problem: Any) -> None:
        """Solve the cvxpy problem in place; raise if there is no solution."""
        from cvxpy import installed_solvers
        from cvxpy.error import SolverError

        if self.solver not in installed_solvers():
            raise ValueError(
                f'solver is {self.solver!r}: pass "ADMM", or what cvxpy has installed, {installed_solvers()}'
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # we warn ourselves
            try:
                problem.solve(solver=self.solver, **self._solver_options())
            except SolverError as error:
                raise ValueError(f"solver is {self.solver!r}, which gave up ({error}): try ADMM") from None
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise ValueError(
                f"{self.solver} found no solution ({problem.status}): raise max_iter or tolerance"
            )

    def _warn_unless_optimal(self, status: str) -> None:
        if status != "optimal":
            warnings.warn(
                f"{self.solver} stopped early ({status}), before a tolerance of {self.tolerance:g}: the "
                "groups may differ more than they need to; raise max_iter",
                FairstreamWarning,
                stacklevel=6,
            )

    def _solver_options(self) -> dict[str, Any]:
        if self.solver == "SCS":
            return {"eps": self.tolerance, "max_iters": self.max_iter}
        return {}  # every solver has its own names: keep its defaults


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
