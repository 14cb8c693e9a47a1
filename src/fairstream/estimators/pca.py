"""FairStreamingPCA: the scikit-learn face of the library. It holds no mathematics."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream.data.alignment import paired
from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.data.matrices import check_matrix
from fairstream.data.small_groups import MIN_GROUP_SIZE, Counts, warn_of_row_level
from fairstream.estimators import pca_state
from fairstream.estimators.learner import Learner, check_parameters, new_learner
from fairstream.files.format import Arrays, Header, PathLike, Storable, storable
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.choices import Choices, NUnfair
from fairstream.subspace.components import solve
from fairstream.subspace.frontier import FrontierPoint, frontier
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.unfair import small_group_directions, warn_of_small_groups


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
    solver : {"auto", "exact", "sketch", "power"}, default "auto"
        "exact" keeps d x d moments; "sketch" keeps about `rank` directions, O(d rank) memory; "auto" is exact
        up to 2,000 features (fewer with very many groups) unless `rank` is given. "power" is the paper's
        fair noisy power method, O(d k) memory, two phases, nothing before both are through.
    rank : int, optional
        Directions that the sketch resolves; by default 4 (k + unfair directions), at least 64, at most d,
        and d itself up to 512 features.
        Data whose variance is spread evenly over many features (rare categories, standardised) needs more.
    block_size : int or (int, int), optional
        "power" only: rows per step in the two phases. None reads the whole data in every step (not with
        `partial_fit`).
    power_steps : int or (int, int), default 10
        "power" only: steps of the two phases.
    on_empty_group : {"extend", "zero"}, default "extend"
        "power" only: what to do when a block ends without a row of a compared group.
    min_group_size : int, default 20
        A fit that compares a group of fewer rows warns, and a saved `subspace_` leaves out its count and mean
        and, if needed, those of the next smaller group, so that they do not follow from the others.
    random_state : int, RandomState or None
        "power" only: for the random starts; the other solvers are deterministic.

    Attributes
    ----------
    components_ : array (k, d)
    unfair_basis_ : array (m', d)
    mean_ : array (d,)
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays (k,)
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    n_samples_seen_ : int
    moments_ : GroupMoments, of all solvers but "power"
    power_ : FairPowerMethod, of solver "power"
    phase_ : str, of solver "power": "unfair" or "components"
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

    _learner: Learner
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
        block_size: int | tuple[int, int] | None = None,
        power_steps: int | tuple[int, int] = 10,
        on_empty_group: str = "extend",
        min_group_size: int = MIN_GROUP_SIZE,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_unfair = n_unfair
        self.constraint = constraint
        self.directions = directions
        self.solver = solver
        self.rank = rank
        self.block_size = block_size
        self.power_steps = power_steps
        self.on_empty_group = on_empty_group
        self.min_group_size = min_group_size
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
            only. Required unless `constraint` is "none". If X and the labels both have a pandas index, labels
            in another order are brought into that of X, and indexes that do not match raise.
        sample_weight : array (n,), optional
            Non-negative; an integer weight equals repetition. A Series is paired like the labels.

        Returns
        -------
        FairStreamingPCA
            Itself. A rejected call leaves it as it was.
        """
        with self._unchanged_on_error():
            sensitive_features = paired(sensitive_features, X)
            sample_weight = paired(sample_weight, X, "sample_weight")
            X = self._validated(X, reset=True)
            check_parameters(self.get_params(deep=False))
            groups = self._groups(sensitive_features, X.shape[0])
            learner = new_learner(self.get_params(deep=False), X, groups)
            if isinstance(learner, FairPowerMethod) and self.block_size is None:
                _refuse_weights(sample_weight)
                learner.fit_full(X, groups)
            else:
                learner.update(X, groups, sample_weight=sample_weight)
            self._learner, self._subspace = learner, self._solve(learner)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from one more block of any number of rows, all of them or none. Parameters as in `fit`."""
        with self._unchanged_on_error():
            started = hasattr(self, "_learner")
            sensitive_features = paired(sensitive_features, X)
            sample_weight = paired(sample_weight, X, "sample_weight")
            X = self._validated(X, reset=not started)
            check_parameters(self.get_params(deep=False))
            if self.solver == "power" and self.block_size is None:
                raise ValueError(
                    "block_size=None reads the whole data in every step: use fit, or give block_size=(b, B)"
                )
            groups = self._groups(sensitive_features, X.shape[0])
            # A learner replaces its arrays: the update of a shallow copy leaves the one before as it was.
            parameters = self.get_params(deep=False)
            learner = copy.copy(self._learner) if started else new_learner(parameters, X, groups)
            learner.update(X, groups, sample_weight=sample_weight)
            self._learner, self._subspace = learner, None
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
        moments = self.moments_
        allowed = ("n_components", "n_unfair", "constraint", "directions")
        wrong = [name for name in changes if name not in allowed]
        if wrong:
            raise ValueError(f"resolve cannot change {wrong}: it takes {', '.join(allowed)}")
        other: FairStreamingPCA = clone(self).set_params(**changes)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other._learner, other._subspace = moments.copy(), other._solve(moments)
        return other

    def frontier(self, n_unfair: Iterable[int] | None = None, **choices: Any) -> list[FrontierPoint]:
        """Return variance kept and gaps left for every m, from the moments alone.

        Parameters
        ----------
        n_unfair : iterable of int, optional
            None: 0 to 10, as far as they leave room for the components.
        **choices
            `n_components`, `constraint` and `directions`, where they shall differ from the estimator's.
        """
        moments = self.moments_
        defaults: dict[str, Any] = {
            "n_components": self.subspace_.n_components,
            "constraint": self.constraint,
            "directions": self.directions,
        }
        return frontier(moments, n_unfair=n_unfair, **(defaults | choices))

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

    def save(self, path: PathLike) -> None:
        """Write to a file that `fairstream.load` reads back; warns if it holds the moments of few rows."""
        warn_of_row_level(*self.seen_counts(), self.min_group_size)
        super().save(path)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return parameters and what was learned, as JSON values and arrays (not copied)."""
        check_is_fitted(self)
        return pca_state.describe(self)

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the estimator that `to_state` described; `partial_fit` can go on."""
        return pca_state.rebuild(cls, header, arrays)

    # What was learned -------------------------------------------------------------------------------

    @property
    def subspace_(self) -> FairSubspace:
        """The frozen result; solved on first use after `partial_fit`."""
        learner = self._fitted()
        if self._subspace is None:
            self._subspace = self._solve(learner)
        return self._subspace

    @property
    def moments_(self) -> GroupMoments:
        """The summary that everything else is solved from."""
        learner = self._fitted()
        if not isinstance(learner, GroupMoments):
            raise AttributeError('solver="power" keeps no moments: use "exact", "sketch" or "auto"')
        return learner

    @property
    def power_(self) -> FairPowerMethod:
        """The power method and where it stands."""
        learner = self._fitted()
        if not isinstance(learner, FairPowerMethod):
            raise AttributeError(f'solver="{self.solver_}" runs no power method: use solver="power"')
        return learner

    @property
    def phase_(self) -> str:
        """Where the power method is: "unfair" until the unfair basis is known, then "components"."""
        return self.power_.phase

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
        return self._fitted().n_rows

    @property
    def solver_(self) -> str:
        """The solver that "auto" came to."""
        learner = self._fitted()
        if isinstance(learner, FairPowerMethod):
            return "power"
        return "exact" if learner.rank is None else "sketch"

    # Inside -----------------------------------------------------------------------------------------

    def seen_counts(self) -> tuple[Counts, int | float]:
        """Return the rows of every group and of all so far; nothing is solved for it."""
        learner = self._fitted()
        return learner.group_counts, learner.n_rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.subspace_.n_components

    def _fitted(self) -> Learner:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this FairStreamingPCA is not fitted yet: call fit or partial_fit first")
        return self._learner

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _validated(self, X: Any, *, reset: bool) -> Any:
        check_matrix(X)  # before scikit-learn, which drops masks and follows sparse indices
        return validate_data(self, X, accept_sparse=("csr", "csc"), dtype="numeric", reset=reset)

    def _groups(self, sensitive_features: Any, n_rows: int) -> dict[str, GroupColumn] | None:
        if sensitive_features is not None:
            return encode_groups(sensitive_features, n_rows)
        learner = getattr(self, "_learner", None)
        past_groups = isinstance(learner, FairPowerMethod) and learner.phase == "components"
        if self.constraint == "none" or past_groups:
            return None
        raise ValueError(
            "sensitive_features is missing: pass one label per row and attribute, or "
            'constraint="none" for ordinary streaming PCA'
        )

    def _solve(self, learner: Learner) -> FairSubspace:
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else tuple(map(str, names))
        if isinstance(learner, FairPowerMethod):
            return self._with_group_sizes(learner.subspace(names))
        return solve(
            learner,
            self.n_components,
            self.n_unfair,
            self.constraint,
            self.directions,
            names,
            min_group_size=self.min_group_size,
        )

    def _with_group_sizes(self, subspace: FairSubspace) -> FairSubspace:
        """Say of the power method's result what `solve` says of its own: which groups are small."""
        choices = Choices.of(self.get_params(deep=False))
        warn_of_small_groups(subspace.group_counts, choices, len(subspace.unfair_basis))
        from_small = small_group_directions(subspace.group_counts, choices)
        sizes: dict[str, Any] = {"min_group_size": self.min_group_size}
        sizes |= {"small_group_directions": from_small} if from_small else {}
        return dataclasses.replace(subspace, parameters={**subspace.parameters, **sizes})


def _refuse_weights(sample_weight: Any) -> None:
    if sample_weight is not None:
        raise ValueError("sample_weight is not part of the power method: use solver 'exact' or 'sketch'")
