"""FairEstimator: how every estimator learns, solves, saves and resumes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream.data.alignment import paired
from fairstream.data.blocks import BlockSource, Matrix, is_source, take_rows
from fairstream.data.cutting import default_block_size, row_ranges
from fairstream.data.frames import check_numbers, column_names, eager_frame, refuse_missing, take_out, without
from fairstream.data.groups import Groups, encode_groups
from fairstream.data.ids import take_ids
from fairstream.data.intersections import IntersectedSource, intersection_names, with_intersections
from fairstream.data.kinds import Given
from fairstream.data.matrices import check_matrix
from fairstream.data.namesakes import warn_of_namesakes
from fairstream.data.schema import Schema
from fairstream.data.small_groups import MIN_GROUP_SIZE, row_level_caution, warn_of_row_level
from fairstream.data.tensors import TensorRows
from fairstream.errors import FairstreamWarning
from fairstream.estimators.learner import Learner
from fairstream.estimators.solvers import (
    check_parameters,
    learner_from_state,
    new_learner,
    reads_whole_steps,
)
from fairstream.files.atomic import PathLike
from fairstream.files.format import Arrays, Header, Storable, checked, write_file
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.choices import Choices, NUnfair, Screen, choice_names
from fairstream.subspace.dither import check_ids_given, warn_of_unused
from fairstream.subspace.model import FairSubspace


@dataclass(eq=False, repr=False, kw_only=True)
class FairEstimator(TransformerMixin, BaseEstimator, Storable):  # type: ignore[misc]
    """A scikit-learn estimator around a `Learner`: learns, solves on first use, saves and resumes.

    The fields are the parameters that all estimators share, as `FairStreamingPCA` describes them;
    scikit-learn reads them from the `__init__` of the dataclass. Subclasses add `transform` and parameters of
    their own. `fixed` holds what learners and `Choices` ask for and a subclass has no parameter for.
    """

    fixed: ClassVar[Mapping[str, Any]] = {}

    n_unfair: NUnfair = 1
    constraint: str = "all"
    solver: str = "auto"
    rank: int | None = None
    step_rows: int | tuple[int, int] | None = None
    power_steps: int | tuple[int, int] = 10
    on_empty_group: str = "extend"
    sensitive_columns: str | Sequence[str] | None = None
    intersections: Sequence[Sequence[str]] | None = None
    min_group_size: int = MIN_GROUP_SIZE
    screen: Screen = None
    dither: float = 0.0
    ids: bool | str = False
    dither_key: PathLike | None = None
    random_state: Any = None

    _learner: Learner = field(init=False)
    _subspace: FairSubspace | None = field(init=False)

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"ids": True}

    def settings(self) -> dict[str, Any]:
        """Return everything that a learner and `Choices` ask for: the parameters, and what is fixed."""
        return {**self.fixed, **self.get_params(deep=False)}

    # Learning ---------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from all rows of X, forgetting what was learned before.

        Parameters
        ----------
        X : array, frame, tensor or sparse matrix (n, d)
            The rows, finite numbers.
        y : array (n,), optional
            A target to keep with `keep_target`: numbers or booleans, or two classes. Otherwise ignored.
        sensitive_features : list, array, Series, frame or dict
            One label per row for one attribute or several; unknown labels (None, NaN) count for the total
            only. Required unless `sensitive_columns` names columns of X or `constraint` is "none". If X and
            the labels both have a pandas index, labels in another order are brought into that of X, and
            indexes that do not match raise.
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
            warn_of_namesakes(learner.schema, _labels(groups))
            target = self._target(y, X)
            with self._refusing_as_scikit_learn(X):
                _learn(learner, X, groups, sample_weight, target)
            self.adopt(learner, solve=True)
        return self

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        ids: Any = None,
    ) -> Any:
        """Learn from all rows of X and return what `transform` makes of them.

        X, `y`, `sensitive_features` and `sample_weight` are as in `fit`, `ids` as in `transform`.
        """
        self.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        return self.transform(X, ids=ids)

    def partial_fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from one more block of rows; an error leaves none of them learned. Parameters as in `fit`."""
        with self._unchanged_on_error():
            started, parameters = self.__sklearn_is_fitted__(), self.settings()
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
            if not started:
                warn_of_namesakes(learner.schema, _labels(groups))
            target = self._target(y, X)
            with self._refusing_as_scikit_learn(X):
                for part in _parts(X, groups, sample_weight, target):
                    learner.update(*part)
            self._learner, self._subspace = learner, None
        return self

    def resolve(self, **changes: Any) -> Self:
        """Return a new fitted estimator from the same moments, with some choices changed. No data needed.

        Parameters
        ----------
        **changes
            Any field of `Choices`: `n_components`, `n_unfair`, `constraint`, `directions`, ...

        Warns
        -----
        FairstreamWarning
            If a guard of a tuned model is searched with another dither than in tuning: its components are
            others then, even without changes, and the verdict of `tune` is not about them.

        Examples
        --------
        >>> from fairstream import FairStreamingPCA
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
        _warn_of_another_guard(self._subspace, other.settings())
        return other.adopt(self.learner_.copy(), solve=True)

    # Using ------------------------------------------------------------------------------------------

    def erase(self, X: Any, *, axis: int | None = None, ids: Any = None) -> Any:
        """Return X, n x d, without its part in the unfair subspace, with `dither` if that is set.

        A guarded model hides groups in its k scores only: the rows that these stand for come back.

        Parameters
        ----------
        X : array, frame, tensor or sparse matrix (n, d)
        axis : int, optional
            The axis of an array or tensor that holds the features, if it has not two axes.
        ids : array, Series or list (n,), optional
            Whose rows these are, as in `FairSubspace.embed`; not needed if `ids` names a column of X.

        Returns
        -------
        array, frame or tensor
            The kind that X is: a frame with its index and columns, a tensor on its device and of its type.
        """
        check_is_fitted(self)
        given, noise = self._given(X, axis), self._noise(X, ids)
        return given.back(self.subspace_.erase(self._checked(given.rows), **noise))

    # Files ------------------------------------------------------------------------------------------

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
        """Return the parameters and the main figures of what was learned."""
        learner = self.learner_
        caution = row_level_caution(learner.group_counts, learner.n_rows, self.min_group_size)
        return {"parameters": self.get_params(deep=False), **learner.describe(), "caution": caution}

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return parameters and what was learned, as JSON values and arrays (not copied).

        The subspace is not included: it is solved again after loading. Sampled rows are with `with_sample`.
        """
        if self.settings()["guard"] and not with_sample:
            raise ValueError(
                "a guarded estimator is solved from sampled rows, which a file holds only on request: save "
                "subspace_, which holds no row, or pass with_sample=True"
            )
        seed = self.random_state
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ValueError(
                f"random_state is a {type(seed).__name__}, which a file cannot hold: set an int, or None"
            )
        learned, arrays = self.learner_.to_state(with_sample=with_sample)
        names = getattr(self, "feature_names_in_", None)
        parameters = self.get_params(deep=False)
        if self.dither_key is not None:
            parameters["dither_key"] = os.fspath(self.dither_key)
        header = {
            "parameters": parameters,
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
        # Files written before there was a schema have its parts here.
        names = None if names is None else tuple(map(str, names))
        learner.schema = learner.schema.filled(Schema(names, header.get("encoding")))
        return estimator.adopt(learner)

    # What was learned -------------------------------------------------------------------------------

    @property
    def subspace_(self) -> FairSubspace:
        """The frozen result; solved on first use after `partial_fit`."""
        learner = self.learner_
        if self._subspace is None:
            self._subspace = learner.subspace(Choices.of(self.settings()))
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
    def unfair_basis_(self) -> FloatArray:
        """Nulled directions, m' x d."""
        return self.subspace_.unfair_basis

    @property
    def mean_(self) -> FloatArray:
        """Mean of all rows."""
        return self.subspace_.mean

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

    # For code that reads the rows in place of the estimator ------------------------------------------

    def new_learner(self, X: Matrix, groups: Groups | None) -> Learner:
        """Return an empty learner for rows like these, and with their names; refuse missing groups."""
        learner = self.empty_learner(X, groups)
        self._check_labelled(learner, groups)
        names = getattr(self, "feature_names_in_", None)
        learner.schema = Schema(None if names is None else tuple(names))
        return learner

    def empty_learner(self, X: Matrix, groups: Groups | None) -> Learner:
        """Return an empty learner for rows like these, after checking the parameters."""
        return new_learner(self.settings(), X, groups)

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

    def kept_target(self, target: Any, name: str = "the target") -> NDArray[np.float64] | None:
        """Return a target as numbers, None unless it is to be kept; errors call it by `name`."""
        if target is None or not self.settings()["keep_target"]:
            return None
        values = np.asarray(target)
        if values.dtype.kind not in "fiub":
            raise ValueError(
                f"{name} has dtype {values.dtype}, keep_target needs numbers: pass 0 and 1, or booleans"
            )
        return values.astype(np.float64)

    def roles(self) -> dict[str, Any]:
        """Return the options of `open_source` that the parameters imply, for data that is not open yet."""
        names = self._sensitive_names
        roles: dict[str, Any] = {"sensitive_features": names} if names else {}
        return roles | ({"ids": self.ids} if isinstance(self.ids, str) else {})

    def with_intersections(self, source: BlockSource) -> BlockSource:
        """Return a source whose blocks have the groups of `intersections` too."""
        if self.intersections is None:
            return source
        intersection_names(self.intersections)
        return IntersectedSource(source, self.intersections)

    def check_source(self, source: Any) -> None:
        """Refuse a source that does not suit this estimator."""
        if isinstance(self.ids, str) and self.ids in Schema.of(source).variables():
            raise ValueError(
                f"the source has the column {self.ids!r} among its features, and ids names it as what tells "
                f"whose rows these are: open the source with ids={self.ids!r}"
            )

    # Inside -----------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _given(self, X: Any, axis: int | None = None) -> Given:
        """Return what was passed without its sensitive columns and its column of ids."""
        apart = self._columns_apart
        return Given(without(X, apart) if apart else X, axis)

    @property
    def _sensitive_names(self) -> list[str]:
        """The columns that `sensitive_columns` names."""
        named = self.sensitive_columns
        return [] if named is None else column_names(named, "sensitive_columns")

    @property
    def _columns_apart(self) -> list[str]:
        """The columns of X that are no features."""
        return self._sensitive_names + ([self.ids] if isinstance(self.ids, str) else [])

    @contextmanager
    def _refusing_as_scikit_learn(self, X: Any) -> Iterator[None]:
        """If a learner refuses rows that were not searched for NaN, let scikit-learn say what is wrong."""
        try:
            yield
        except ValueError:
            if _is_plain(X):
                self._checked(X)
            raise

    def _checked(self, X: Any, *, reset: bool = False, searched: bool = True) -> Any:
        """Return features as scikit-learn checks them, a frame as an array.

        An array is not `searched` for NaN if a learner is next: that finds any in its sums, without a pass.
        """
        check_matrix(X)  # before scikit-learn, which drops masks and follows sparse indices
        frame = None if reset else eager_frame(X)
        if frame is not None:
            self._refuse_table(frame.columns)
        check_numbers(X)  # before scikit-learn, which names no column
        # A tensor's rows are fetched block by block, and checked then.
        options: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": "numeric"}
        options = {"skip_check_array": True} if isinstance(X, TensorRows) else options
        try:
            with nullcontext() if searched or not _is_plain(X) else config_context(assume_finite=True):
                rows = validate_data(self, X, reset=reset, **options)
        except ValueError:
            refuse_missing(X)  # which scikit-learn does without the name of the column
            raise
        # Older versions turn a frame with nullable columns into objects.
        return rows.astype(np.float64) if rows.dtype == object else rows

    def _refuse_table(self, columns: Sequence[str]) -> None:
        """Refuse the columns of the table that the model was fitted on, unless these are the features."""
        schema = self.learner_.schema
        same = tuple(columns) == schema.feature_names and not schema.shares_names
        if same or not schema.names_table(columns):
            return
        scaled = "; features that are scaled already have the same names: pass them as an array"
        raise ValueError(
            "X has the columns of the table that the model was fitted on, not its features: pass it to "
            "subspace_.embed or subspace_.erase, which encode it as in the fit, or open it with "
            f"open_like(pca.subspace_, X){scaled if schema.shares_names else ''}"
        )

    def _wraps_output(self) -> bool:
        """Whether scikit-learn turns what `transform` returns into a frame, as `set_output` told it to."""
        own = getattr(self, "_sklearn_output_config", {}).get("transform")
        return (own or get_config()["transform_output"]) != "default"

    def _noise(self, X: Any, ids: Any) -> dict[str, Any]:
        """Return the options of `embed` and `erase` for the noise on the rows of X."""
        warn_of_unused(self.dither, self.dither_key, ids)
        _, ids = take_ids(X, ids, self.ids)
        check_ids_given(self.ids, self.dither, ids)
        return {"dither": self.dither, "key": self.dither_key, "ids": ids}

    def _target(self, y: Any, X: Matrix) -> NDArray[np.float64] | None:
        """Return the target as numbers, None unless it is to be kept."""
        values = self.kept_target(y if y is None else paired(y, X, "y"), "y")
        if values is not None and values.shape != (X.shape[0],):
            raise ValueError(f"y has shape {values.shape}, X has {X.shape[0]} rows: pass one value per row")
        return values

    def _checked_rows(
        self, X: Any, sensitive_features: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Any, Groups | None, Any]:
        """Return features, encoded groups and weights, in the same order."""
        if is_source(X) or isinstance(X, str | os.PathLike):
            raise ValueError(
                f"X is of type {type(X).__name__}, not rows in memory: fit_source(X, estimator) reads it "
                "block by block"
            )
        eager_frame(X)  # refuses what only looks like a frame in memory, before labels are paired with it
        sensitive_features = paired(sensitive_features, X)
        sample_weight = paired(sample_weight, X, "sample_weight")
        if self.sensitive_columns is not None:
            if sensitive_features is not None:
                raise ValueError(
                    f"sensitive_features and sensitive_columns={self.sensitive_columns!r} are both given: "
                    "leave one of them out"
                )
            X, sensitive_features = take_out(X, self._sensitive_names, "sensitive_columns")
        X = without(X, [self.ids]) if isinstance(self.ids, str) else X
        X = self._checked(Given(X).rows, reset=reset, searched=False)
        groups = None if sensitive_features is None else encode_groups(sensitive_features, X.shape[0])
        return X, with_intersections(groups, self.intersections), sample_weight

    def _check_labelled(self, learner: Learner, groups: Groups | None) -> None:
        settings = self.settings()
        compares = settings["constraint"] != "none" or settings["guard"]
        if groups is None and learner.needs_groups and compares:
            raise ValueError(
                "sensitive_features is missing: pass one label per row and attribute, name columns of X in "
                'sensitive_columns, or constraint="none" for ordinary streaming PCA'
            )
        known = [*(groups or ())]
        for name in self._sensitive_names:
            if name not in known:
                raise ValueError(
                    f"sensitive_columns names {name!r}, the rows come with the attributes {known}: open the "
                    "source with sensitive_features=sensitive_columns"
                )


def _warn_of_another_guard(tuned: Any, settings: Mapping[str, Any]) -> None:
    """Warn if a guard of a tuned model is searched with another dither than in tuning."""
    reckoned = getattr(tuned, "parameters", {}).get("guard_dither")
    if reckoned is not None and settings["guard"] and settings["dither"] != reckoned:
        warnings.warn(
            f"the guard of this tuned model was searched with dither={reckoned:g}, this one is searched with "
            f"dither={settings['dither']:g}: its components are others, and no verdict speaks of them; "
            "keep subspace_ for the tuned model, or audit this one",
            FairstreamWarning,
            stacklevel=3,
        )


def _is_plain(X: Any) -> bool:
    """Whether X is an array of floats and nothing more, of which scikit-learn makes no other."""
    return type(X) is np.ndarray and X.dtype.kind == "f"


def _labels(groups: Groups | None) -> dict[str, tuple[Hashable, ...]]:
    return {name: column.labels for name, column in (groups or {}).items()}


def _learn(learner: Learner, X: Matrix, groups: Groups | None, sample_weight: Any, target: Any) -> None:
    """Let a new learner take in all rows, a tensor's block by block."""
    if not isinstance(X, TensorRows):
        learner.fit(X, groups, sample_weight, target)
        return
    for _ in range(learner.passes):
        for part in _parts(X, groups, sample_weight, target):
            learner.update(*part)
        learner.end_step()


def _parts(X: Matrix, groups: Groups | None, sample_weight: Any, target: Any) -> Iterator[tuple[Any, ...]]:
    """Yield rows with their groups, weights and targets: all of them, or a tensor's block by block."""
    if not isinstance(X, TensorRows):
        yield X, groups, sample_weight, target
        return
    weights = None if sample_weight is None else np.asarray(sample_weight)
    size = default_block_size(X.shape[1] * X.dtype.itemsize)
    for rows in (slice(start, stop) for start, stop in row_ranges(len(X), size)):
        yield (
            X[rows],
            None if groups is None else take_rows(groups, rows),
            None if weights is None else weights[rows],
            None if target is None else target[rows],
        )
