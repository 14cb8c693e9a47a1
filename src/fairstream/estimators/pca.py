"""FairStreamingPCA: the scikit-learn face of the library. It holds no mathematics."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream.data.alignment import paired
from fairstream.data.blocks import Matrix
from fairstream.data.groups import Groups, encode_groups
from fairstream.data.matrices import check_matrix
from fairstream.data.schema import Schema
from fairstream.data.small_groups import MIN_GROUP_SIZE, row_level_caution, warn_of_row_level
from fairstream.estimators.learner import (
    Learner,
    check_parameters,
    learner_from_state,
    new_learner,
    reads_whole_steps,
)
from fairstream.files.format import Arrays, Header, PathLike, Storable, checked, storable, write_file
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.choices import Choices, NUnfair, Screen, choice_names
from fairstream.subspace.frontier import FrontierPoint
from fairstream.subspace.model import FairSubspace


@storable
class FairStreamingPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, Storable):  # type: ignore[misc]
    """PCA that nulls the directions in which sensitive groups differ, learned in one pass.

    Keeps as much variance as possible in `n_components` directions that are orthogonal to the gap between
    group means and to the leading `n_unfair` directions of the gap between group second moments.

    Parameters
    ----------
    n_components : int, optional
        Number of components, k. None keeps as many as the constraint leaves.
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
        Directions that the sketch resolves; by default 4 (k + unfair directions), at least 64. From half of
        the features on, and by default up to 512 features, moments are exact after all; `solver_` says so.
        Data whose variance is spread evenly over many features (rare categories, standardised) needs more.
    step_rows : int or (int, int), optional
        "power" only: rows per step in the two phases. None reads the whole data in every step (not with
        `partial_fit`).
    power_steps : int or (int, int), default 10
        "power" only: steps of the two phases.
    on_empty_group : {"extend", "zero"}, default "extend"
        "power" only: what to do if a block ends without a row of a compared group.
    min_group_size : int, default 20
        A fit that compares a group of fewer rows warns, and a saved `subspace_` leaves out its count and mean
        and, if needed, those of the next smaller group, so that they do not follow from the others.
    screen : int, float or list of str, optional
        Columns that no component may use: so many of those with the largest standardised gap between group
        means (whole one-hot variables of a table at once), all whose gap exceeds a limit, or names.
    guard : float, default 0
        Price of what a nonlinear adversary reads from the scores; 1 or 3 are usual. It trades variance for
        groups that trees and networks cannot tell apart, which moments alone cannot promise, and works best
        with `constraint="none"`. Needs a sample of rows, which a fit with a guard keeps.
    keep_target : float, default 0
        With a guard: price of what the adversary reads of y, to be kept.
    guard_seed : int, default 0
        Seed of the guard's draws.
    sample : int, optional
        Rows of each group to keep in `moments_`, for a guard; by default 4,096 if there is one. They are
        row-level data and go into no file.
    dither : float, default 0
        `transform` and `erase` add noise of this share of each score's deviation. The same row gets the same
        noise; whoever has the key can take it off.
    dither_key : path, optional
        File that holds the secret key of the noise; by default the environment variable
        FAIRSTREAM_DITHER_KEY does. The key itself is stored nowhere.
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
    n_components_ : int
    n_samples_seen_ : int
    moments_ : GroupMoments, of all solvers but "power"
    power_ : FairPowerMethod, of solver "power"
    phase_ : str, of solver "power": "unfair" or "components"
    subspace_ : FairSubspace
    solver_ : str
    learner_ : Learner, what everything is solved from

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
        step_rows: int | tuple[int, int] | None = None,
        power_steps: int | tuple[int, int] = 10,
        on_empty_group: str = "extend",
        min_group_size: int = MIN_GROUP_SIZE,
        screen: Screen = None,
        guard: float = 0.0,
        keep_target: float = 0.0,
        guard_seed: int = 0,
        sample: int | None = None,
        dither: float = 0.0,
        dither_key: PathLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_unfair = n_unfair
        self.constraint = constraint
        self.directions = directions
        self.solver = solver
        self.rank = rank
        self.step_rows = step_rows
        self.power_steps = power_steps
        self.on_empty_group = on_empty_group
        self.min_group_size = min_group_size
        self.screen = screen
        self.guard = guard
        self.keep_target = keep_target
        self.guard_seed = guard_seed
        self.sample = sample
        self.dither = dither
        self.dither_key = dither_key
        self.random_state = random_state

    # Learning ---------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from all rows of X, forgetting what was learned before.

        Parameters
        ----------
        X : array, frame or sparse matrix (n, d)
        y : array (n,), optional
            A target to keep with `keep_target`: numbers or booleans, or two classes. Otherwise ignored.
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
            X, groups, sample_weight = self._checked_rows(X, sensitive_features, sample_weight, reset=True)
            learner = self.new_learner(X, groups)
            learner.fit(X, groups, sample_weight, self._target(y, X))
            self.adopt(learner, solve=True)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from one more block of any number of rows, all of them or none. Parameters as in `fit`."""
        with self._unchanged_on_error():
            started, parameters = self.__sklearn_is_fitted__(), self.get_params(deep=False)
            check_parameters(parameters)
            if reads_whole_steps(parameters):
                raise ValueError(
                    "step_rows=None reads the whole data in every step: use fit, or give step_rows=(b, B)"
                )
            X, groups, sample_weight = self._checked_rows(
                X, sensitive_features, sample_weight, reset=not started
            )
            learner = self.learner_.copy() if started else self.new_learner(X, groups)
            self._check_labelled(learner, groups)
            learner.update(X, groups, sample_weight, self._target(y, X))
            self._learner, self._subspace = learner, None
        return self

    def resolve(self, **changes: Any) -> Self:
        """Return a new fitted estimator from the same moments, with some choices changed. No data needed.

        Parameters
        ----------
        **changes
            Any field of `Choices`: `n_components`, `n_unfair`, `constraint`, `directions`, ...

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, sex = rng.normal(size=(300, 8)), rng.integers(0, 2, 300)
        >>> pca = FairStreamingPCA(n_components=3).fit(X, sensitive_features=sex)
        >>> pca.resolve(n_components=2, n_unfair=4).unfair_basis_.shape
        (5, 8)
        """
        self.moments_  # noqa: B018  an error if there are none
        wrong = [name for name in changes if name not in choice_names()]
        if wrong:
            raise ValueError(f"resolve cannot change {wrong}: it takes {', '.join(choice_names())}")
        other: Self = clone(self).set_params(**changes)
        return other.adopt(self.learner_.copy(), solve=True)

    def frontier(self, n_unfair: Iterable[int] | None = None, **choices: Any) -> list[FrontierPoint]:
        """Return variance kept and gaps left for every m, from the moments alone.

        Parameters
        ----------
        n_unfair : iterable of int, optional
            None: 0 to 10, as far as they leave room for the components.
        **choices
            `n_components`, `constraint`, `directions`, ... if they are to differ from the estimator's.
        """
        self.moments_  # noqa: B018  an error if there are none
        own = {name: getattr(self, name) for name in choice_names()}
        kept = {name: value for name, value in own.items() if name not in ("n_components", "n_unfair")}
        return self.learner_.frontier(self.subspace_, n_unfair, kept | choices)

    # Using ------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> FloatArray:
        """Return the fair coordinates of X, n x k, with `dither` if that is set."""
        check_is_fitted(self)
        return self.subspace_.embed(self._validated(X, reset=False), **self._dither())

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Return the rows, n x d, that fair coordinates stand for."""
        check_is_fitted(self)
        return self.subspace_.reconstruct(np.asarray(Z))

    def erase(self, X: Any) -> FloatArray:
        """Return X, n x d, without its part in the unfair subspace, with `dither` if that is set.

        A guarded model has no such part: what comes back are the rows that its k scores stand for.
        """
        check_is_fitted(self)
        return self.subspace_.erase(self._validated(X, reset=False), **self._dither())

    # Files ------------------------------------------------------------------------------------------

    kind: ClassVar[str] = "FairStreamingPCA"

    def save(self, path: PathLike, *, with_sample: bool = False) -> None:
        """Write to a file that `fairstream.load` reads back; warns if it holds the moments of few rows.

        Parameters
        ----------
        path : path
        with_sample : bool
            Write the sampled rows too: the file then holds row-level data. Without them a guarded estimator
            cannot be solved again; save `subspace_` instead, which holds no row.
        """
        learner = self.learner_
        warn_of_row_level(learner.group_counts, learner.n_rows, self.min_group_size)
        write_file(path, self.kind, *self.to_state(with_sample=with_sample))

    def describe(self) -> dict[str, Any]:
        """Return the parameters and the figures of what was learned that a reader wants first."""
        learner = self.learner_
        caution = row_level_caution(learner.group_counts, learner.n_rows, self.min_group_size)
        return {"parameters": self.get_params(deep=False), **learner.describe(), "caution": caution}

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return parameters and what was learned, as JSON values and arrays (not copied).

        A subspace is not part of it: it is solved again after loading. Sampled rows are, if told to.
        """
        if self.guard and not with_sample:
            raise ValueError(
                "a guarded estimator is solved from sampled rows, which a file holds only if told to: save "
                "subspace_, which holds no row, or pass with_sample=True"
            )
        seed = self.random_state
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ValueError(
                f"random_state is a {type(seed).__name__}, which a file cannot hold: set an int, or None"
            )
        learned, arrays = self.learner_.to_state(with_sample=with_sample)
        names = getattr(self, "feature_names_in_", None)
        header = {
            "parameters": self.get_params(deep=False),
            "feature_names_in": None if names is None else [*map(str, names)],
        }
        return header | learned, arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the estimator that `to_state` described; `partial_fit` resumes exactly where it was."""
        # JSON knows no tuples: (b, B) comes back as a list. Files of before 0.2 call step_rows block_size.
        parameters: dict[str, Any] = {
            "step_rows" if name == "block_size" else name: tuple(value) if isinstance(value, list) else value
            for name, value in header["parameters"].items()
        }
        estimator, names = cls(**parameters), header["feature_names_in"]
        learner = estimator.stored_learner(header, arrays)
        checked(names is None or len(names) == learner.n_features, "feature names and features")
        # Files of before there was a schema have its parts here.
        names = None if names is None else tuple(map(str, names))
        learner.schema = learner.schema.filled(Schema(names, header.get("encoding")))
        return estimator.adopt(learner)

    # What was learned -------------------------------------------------------------------------------

    @property
    def subspace_(self) -> FairSubspace:
        """The frozen result; solved on first use after `partial_fit`."""
        learner = self.learner_
        if self._subspace is None:
            self._subspace = learner.subspace(Choices.of(self.get_params(deep=False)))
        return self._subspace

    @property
    def learner_(self) -> Learner:
        """What took in the rows."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit or partial_fit first"
            )
        return self._learner

    @property
    def moments_(self) -> GroupMoments:
        """The summary that everything else is solved from."""
        return self.learner_.moments

    @property
    def power_(self) -> FairPowerMethod:
        """The power method and where it stands."""
        return self.learner_.power

    @property
    def phase_(self) -> str:
        """Where the power method is: "unfair" until the unfair basis is known, then "components"."""
        return self.learner_.phase

    @property
    def n_components_(self) -> int:
        """Number of columns of the embedding."""
        return self.subspace_.n_components

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
        return self.learner_.n_rows

    @property
    def solver_(self) -> str:
        """The solver that "auto" came to."""
        return self.learner_.solver

    # Learners, for whoever reads the rows in the estimator's place ----------------------------------

    def new_learner(self, X: Matrix, groups: Groups | None) -> Learner:
        """Return an empty learner for rows like these, and with their names; refuse missing groups."""
        learner = self.empty_learner(X, groups)
        self._check_labelled(learner, groups)
        names = getattr(self, "feature_names_in_", None)
        learner.schema = Schema(None if names is None else tuple(names))
        return learner

    def empty_learner(self, X: Matrix, groups: Groups | None) -> Learner:
        """Return an empty learner for rows like these, after checking the parameters."""
        return new_learner(self.get_params(deep=False), X, groups)

    def stored_learner(self, header: Header, arrays: Arrays) -> Learner:
        """Return the learner that a file of this estimator describes."""
        return learner_from_state(header, arrays)

    def adopt(self, learner: Learner, *, solve: bool = False, subspace: FairSubspace | None = None) -> Self:
        """Take over a learner in place of what was learned before, and its subspace if that is known.

        With `solve` the subspace is solved at once; a solver that refuses leaves the estimator as it was.
        """
        with self._unchanged_on_error():
            self.n_features_in_ = learner.n_features
            self.__dict__.pop("feature_names_in_", None)
            if learner.schema.feature_names is not None:
                self.feature_names_in_ = np.array(learner.schema.feature_names, dtype=object)
            self._learner, self._subspace = learner, subspace
            if solve:
                self.subspace_  # noqa: B018
        return self

    def check_source(self, source: Any) -> None:
        """Refuse a source that this estimator is not for."""

    # Inside -----------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

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

    def _dither(self) -> dict[str, Any]:
        return {"dither": self.dither, "key": self.dither_key} if self.dither else {}

    def _target(self, y: Any, X: Matrix) -> NDArray[np.float64] | None:
        """Return the target as numbers, None unless it is to be kept."""
        if not self.keep_target or y is None:
            return None
        values = np.asarray(paired(y, X, "y"))
        if values.shape != (X.shape[0],):
            raise ValueError(f"y has shape {values.shape}, X has {X.shape[0]} rows: pass one value per row")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"y has dtype {values.dtype}: pass numbers or booleans, such as y == 'yes'")
        return values.astype(np.float64)

    def _checked_rows(
        self, X: Any, sensitive_features: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Any, Groups | None, Any]:
        """Return rows, encoded groups and weights, in the same order."""
        sensitive_features = paired(sensitive_features, X)
        sample_weight = paired(sample_weight, X, "sample_weight")
        X = self._validated(X, reset=reset)
        groups = None if sensitive_features is None else encode_groups(sensitive_features, X.shape[0])
        return X, groups, sample_weight

    def _check_labelled(self, learner: Learner, groups: Groups | None) -> None:
        if groups is None and learner.needs_groups and (self.constraint != "none" or self.guard):
            raise ValueError(
                "sensitive_features is missing: pass one label per row and attribute, or "
                'constraint="none" for ordinary streaming PCA'
            )
