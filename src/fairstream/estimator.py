"""FairStreamingPCA: the scikit-learn face of the library. It holds no mathematics."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream import estimator_state
from fairstream.blocks import GroupColumn, Groups, Matrix, encode_groups
from fairstream.linalg import FloatArray
from fairstream.model import FairSubspace
from fairstream.moments import GroupMoments
from fairstream.persist import Arrays, Header, Storable, storable
from fairstream.solve import FrontierPoint, frontier, solve
from fairstream.unfair import CONSTRAINTS, DIRECTIONS, NUnfair, check_choice

SOLVERS = ("auto", "exact", "sketch")
EXACT_FEATURES = 2_000  # "auto" keeps d x d matrices up to here


@storable
class FairStreamingPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, Storable):  # type: ignore[misc]
    """PCA that nulls the directions in which sensitive groups differ, learned in one pass.

    Keeps as much variance as possible in `n_components` directions that are orthogonal to the gap between
    group means and to the leading `n_unfair` directions of the gap between group second moments.

    Parameters
    ----------
    n_components : int, optional
        k. None keeps as many as the constraint leaves.
    n_unfair : int or dict of str to int, default 1
        m: directions of each second-moment gap to null, for all attributes or per attribute.
    constraint : {"all", "mean", "covariance", "none"}, default "all"
        Null mean gaps, second-moment gaps, both, or nothing (ordinary streaming PCA).
    directions : {"absolute", "relative"}, default "absolute"
        Which second-moment directions: largest absolute gap (the paper) or largest ratio, which on data with
        a steep spectrum costs much less variance.
    solver : {"auto", "exact", "sketch"}, default "auto"
        "exact" keeps d x d moments; "sketch" keeps about `rank` directions, O(d rank) memory; "auto" is exact
        up to 2,000 features unless `rank` is given.
    rank : int, optional
        Directions that the sketch keeps; by default 4 (k + unfair directions), at most d.
    random_state : int, RandomState or None
        Unused by the exact and sketch solvers, which are deterministic.

    Attributes
    ----------
    components_ : array (k, d)
    unfair_basis_ : array (m', d)
    mean_ : array (d,)
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays (k,)
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    n_samples_seen_ : int
    moments_ : GroupMoments
    subspace_ : FairSubspace
    solver_ : str

    Notes
    -----
    `partial_fit` only updates the moments; the subspace is solved when it is first asked for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 400)
    >>> X = rng.normal(size=(400, 8))
    >>> X[:, 0] += 2 * (sex == "m")
    >>> pca = FairStreamingPCA(n_components=2, constraint="mean").fit(X, sensitive_features=sex)
    >>> Z = pca.transform(X)
    >>> bool(np.allclose(Z[sex == "m"].mean(axis=0), Z[sex == "f"].mean(axis=0)))
    True
    """

    _subspace: FairSubspace | None

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_unfair: NUnfair = 1,
        constraint: str = "all",
        directions: str = "absolute",
        solver: str = "auto",
        rank: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_unfair = n_unfair
        self.constraint = constraint
        self.directions = directions
        self.solver = solver
        self.rank = rank
        self.random_state = random_state

    # Learning ---------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from all rows of X, forgetting what was learned before.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, d)
        y : ignored
        sensitive_features : list, array, Series, frame or dict
            One label per row for one attribute or several; unknown labels (None, NaN) count for the total
            only. Required unless `constraint` is "none".
        sample_weight : array (n,), optional
            Non-negative; an integer weight equals repetition.

        Returns
        -------
        FairStreamingPCA
            Itself. A rejected call leaves it as it was.
        """
        with self._unchanged_on_error():
            X = self._validated(X, reset=True)
            groups = self._groups(sensitive_features, X.shape[0])
            moments = self._new_moments(X, groups).update(X, groups, sample_weight)
            self.moments_, self._subspace = moments, self._solve(moments)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from one more block of any number of rows. Parameters as in `fit`."""
        with self._unchanged_on_error():
            started = hasattr(self, "moments_")
            X = self._validated(X, reset=not started)
            groups = self._groups(sensitive_features, X.shape[0])
            moments = self.moments_ if started else self._new_moments(X, groups)
            moments.update(X, groups, sample_weight)
            self.moments_, self._subspace = moments, None
        return self

    def resolve(self, **changes: Any) -> FairStreamingPCA:
        """Return a new fitted estimator from the same moments, with some choices changed. No data needed.

        Parameters
        ----------
        **changes
            Any of `n_components`, `n_unfair`, `constraint`, `directions`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, sex = rng.normal(size=(300, 8)), rng.integers(0, 2, 300)
        >>> pca = FairStreamingPCA(n_components=3).fit(X, sensitive_features=sex)
        >>> pca.resolve(n_components=2, n_unfair=4).unfair_basis_.shape
        (5, 8)
        """
        check_is_fitted(self)
        allowed = ("n_components", "n_unfair", "constraint", "directions")
        wrong = [name for name in changes if name not in allowed]
        if wrong:
            raise ValueError(f"resolve cannot change {wrong}: it takes {', '.join(allowed)}")
        other: FairStreamingPCA = clone(self).set_params(**changes)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other.moments_, other._subspace = self.moments_.copy(), other._solve(self.moments_)
        return other

    def frontier(self, n_unfair: Iterable[int] = range(11), **choices: Any) -> list[FrontierPoint]:
        """Return variance kept and gaps left for every m, from the moments alone.

        Parameters
        ----------
        n_unfair : iterable of int
        **choices
            `n_components`, `constraint` and `directions`, where they shall differ from the estimator's.
        """
        check_is_fitted(self)
        defaults: dict[str, Any] = {
            "n_components": self.subspace_.n_components,
            "constraint": self.constraint,
            "directions": self.directions,
        }
        return frontier(self.moments_, n_unfair=n_unfair, **(defaults | choices))

    # Using ------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> FloatArray:
        """Return the fair coordinates of X, n x k."""
        check_is_fitted(self)
        return self.subspace_.embed(self._validated(X, reset=False))

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Return the rows, n x d, that fair coordinates stand for."""
        check_is_fitted(self)
        return self.subspace_.reconstruct(np.asarray(Z))

    def erase(self, X: Any) -> FloatArray:
        """Return X, n x d, without its part in the unfair subspace."""
        check_is_fitted(self)
        return self.subspace_.erase(self._validated(X, reset=False))

    # Files ------------------------------------------------------------------------------------------

    kind: ClassVar[str] = "FairStreamingPCA"

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return parameters and what was learned, as JSON values and arrays (not copied)."""
        check_is_fitted(self)
        return estimator_state.describe(self)

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the estimator that `to_state` described; `partial_fit` can go on."""
        return estimator_state.rebuild(cls, header, arrays)

    # What was learned -------------------------------------------------------------------------------

    @property
    def subspace_(self) -> FairSubspace:
        """The frozen result; solved on first use after `partial_fit`."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this FairStreamingPCA is not fitted yet: call fit or partial_fit first")
        if self._subspace is None:
            self._subspace = self._solve(self.moments_)
        return self._subspace

    @property
    def components_(self) -> FloatArray:
        """Fair directions, k x d."""
        return self.subspace_.components

    @property
    def unfair_basis_(self) -> FloatArray:
        """Nulled directions, m' x d."""
        return self.subspace_.unfair_basis

    @property
    def mean_(self) -> FloatArray:
        """Mean of all rows."""
        return self.subspace_.mean

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance along each component, divisor n - 1."""
        return self.subspace_.explained_variance

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Share of the total variance along each component."""
        return self.subspace_.explained_variance_ratio

    @property
    def singular_values_(self) -> FloatArray:
        """Norm of the centred data along each component."""
        values: FloatArray = np.sqrt(self.subspace_.explained_variance * (self.subspace_.n_rows - 1))
        return values

    @property
    def group_counts_(self) -> Mapping[str, Mapping[Hashable, int | float]]:
        """Rows per attribute and group."""
        return self.subspace_.group_counts

    @property
    def group_means_(self) -> Mapping[str, Mapping[Hashable, FloatArray]]:
        """Mean per attribute and group."""
        return self.subspace_.group_means

    @property
    def n_samples_seen_(self) -> int | float:
        """Rows seen, or the sum of their weights."""
        self._require_moments()
        return self.moments_.n_rows

    @property
    def solver_(self) -> str:
        """The solver that "auto" came to."""
        self._require_moments()
        return "exact" if self.moments_.rank is None else "sketch"

    # Inside -----------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "moments_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.subspace_.n_components

    def _require_moments(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this FairStreamingPCA is not fitted yet: call fit or partial_fit first")

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, accept_sparse=("csr", "csc"), dtype="numeric", reset=reset)

    def _groups(self, sensitive_features: Any, n_rows: int) -> dict[str, GroupColumn] | None:
        check_choice("constraint", self.constraint, CONSTRAINTS)
        check_choice("directions", self.directions, DIRECTIONS)
        check_choice("solver", self.solver, SOLVERS)
        if sensitive_features is None:
            if self.constraint == "none":
                return None
            raise ValueError(
                "sensitive_features is missing: pass one label per row and attribute, or "
                'constraint="none" for ordinary streaming PCA'
            )
        return encode_groups(sensitive_features, n_rows)

    def _new_moments(self, X: Matrix, groups: Groups | None) -> GroupMoments:
        d, k = X.shape[1], self.n_components
        if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= d):
            raise ValueError(f"n_components={k!r}: give a whole number from 1 to n_features={d}, or None")
        if self.solver == "exact" and self.rank is not None:
            raise ValueError(f'rank={self.rank} has no meaning for solver="exact": leave it out')
        small = X.dtype == np.float16 or (X.dtype.kind in "iub" and X.dtype.itemsize <= 2)
        dtype = np.float32 if small or X.dtype == np.float32 else np.float64
        exact = self.solver == "exact" or (
            self.solver == "auto" and self.rank is None and d <= EXACT_FEATURES
        )
        return GroupMoments(d, None if exact else self._sketch_rank(d, groups), dtype)

    def _sketch_rank(self, d: int, groups: Groups | None) -> int:
        if self.rank is not None:
            return min(int(self.rank), d)
        if self.n_components is None:
            raise ValueError(
                f"n_components=None would keep all of n_features={d}: give n_components, or rank, or "
                'solver="exact"'
            )
        unfair = 0
        for name, column in (groups or {}).items():
            m = self.n_unfair.get(name, 0) if isinstance(self.n_unfair, Mapping) else self.n_unfair
            comparisons = len(column.labels) if len(column.labels) > 2 else 1
            unfair += comparisons * (m * (self.constraint in ("all", "covariance")) + 1)
        return min(4 * (self.n_components + unfair), d)

    def _solve(self, moments: GroupMoments) -> FairSubspace:
        names = getattr(self, "feature_names_in_", None)
        return solve(
            moments,
            self.n_components,
            self.n_unfair,
            self.constraint,
            self.directions,
            None if names is None else tuple(map(str, names)),
        )
