"""The contract of every rival system: a scikit-learn transformer whose `fit` takes the groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream.data.alignment import paired
from fairstream.data.groups import UNKNOWN, GroupColumn, encode_groups
from fairstream.errors import NotEnoughGroupsError
from fairstream.linalg import FloatArray

Array = FloatArray
Learned = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Training rows with their encoded attributes, as a system's `_solve` receives them.

    `system` is the class name, for messages. A row whose group is unknown belongs to no group; it still
    counts for the covariance.
    """

    X: Array
    groups: dict[str, GroupColumn]
    system: str

    def attribute(self) -> GroupColumn:
        """Return the only attribute, for systems that take one."""
        if len(self.groups) > 1:
            raise ValueError(
                f"sensitive_features has {len(self.groups)} attributes {tuple(self.groups)}, "
                f"{self.system} takes one: pass a single column"
            )
        return next(iter(self.groups.values()))

    def two_groups(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the row numbers of the two groups, in the order of their labels."""
        column = self.attribute()
        if len(column.labels) > 2:
            raise ValueError(
                f"sensitive_features has {len(column.labels)} groups {column.labels}, {self.system} compares "
                "two: merge groups into two, or use KleindessnerFairPCA or LeacePCA, which take more"
            )
        return np.flatnonzero(column.codes == 0), np.flatnonzero(column.codes == 1)

    def mean_gap(self) -> Array:
        """Return the mean of the second group minus the mean of the first."""
        first, second = self.two_groups()
        gap: Array = self.X[second].mean(axis=0) - self.X[first].mean(axis=0)
        return gap

    def mean_gaps(self) -> Array:
        """Return, as columns, every group's mean minus the mean of its attribute's other rows (d x groups).

        They span the same space as all differences between group means of the same attribute.
        """
        gaps = []
        for column in self.groups.values():
            for inside, outside in column.one_versus_rest():
                gaps.append(self.X[inside].mean(axis=0) - self.X[outside].mean(axis=0))
        return np.stack(gaps, axis=1)


class FairTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Base of all rival systems: check the input, solve, publish what was learned.

    A subclass implements `_solve` and `_embed`. A rejected or failing `fit` leaves an earlier fit as it was.
    """

    # With metadata routing on, sensitive features are always passed to fit.
    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    n_components: int
    n_features_in_: int
    mean_: Array
    group_counts_: dict[str, dict[Hashable, int]]
    _n_features_out: int

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Self:
        """Learn the embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : ignored
            Present for scikit-learn pipelines.
        sensitive_features : list, array, Series, frame or dict
            One label per row; see `fairstream.data.groups.encode_groups`. Required.

        Returns
        -------
        self
        """
        before = dict(vars(self))
        try:
            rows = self._grouped_rows(X, sensitive_features)
            for name, value in self._solve(rows).items():
                setattr(self, name, value)
            self.group_counts_ = {attribute: column.counts() for attribute, column in rows.groups.items()}
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def transform(self, X: Any) -> Array:
        """Embed rows. Group labels are not needed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with the columns seen in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
        """
        check_is_fitted(self)
        return self._embed(validate_data(self, X, dtype=np.float64, reset=False))

    @abstractmethod
    def _solve(self, rows: GroupedRows) -> Learned:
        """Return the learned attributes by name, `_n_features_out` among them."""

    @abstractmethod
    def _embed(self, X: Array) -> Array:
        """Embed validated rows."""

    def _grouped_rows(self, X: Any, sensitive_features: Any) -> GroupedRows:
        sensitive_features = paired(sensitive_features, X)
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)
        if sensitive_features is None:
            raise ValueError(
                f"sensitive_features is missing: {type(self).__name__} cannot be fair without knowing the "
                "groups, pass one label per row"
            )
        groups = encode_groups(sensitive_features, X.shape[0])
        for attribute, column in groups.items():
            present = np.unique(column.codes[column.codes != UNKNOWN])
            if len(present) < 2:
                raise NotEnoughGroupsError(
                    f"sensitive_features[{attribute!r}] shows {len(present)} group(s) "
                    f"{tuple(column.labels[code] for code in present)}: at least two are needed"
                )
            if len(present) < len(column.labels):  # a ready-made GroupColumn may list groups without rows
                codes = np.where(column.codes == UNKNOWN, UNKNOWN, np.searchsorted(present, column.codes))
                groups[attribute] = GroupColumn(codes, tuple(column.labels[code] for code in present))
        return GroupedRows(X, groups, type(self).__name__)

    def _check_n_components(self, largest: int, reason: str) -> int:
        """Return n_components as int; refuse more than the system can give."""
        k = check_count(self.n_components)
        if k > largest:
            raise ValueError(
                f"n_components is {k}, but n_features = {self.n_features_in_} and {reason}: at most "
                f"{largest} components can be had"
            )
        return k


class LinearFairTransformer(FairTransformer):
    """A system whose embedding is (x - mean_) components_'."""

    components_: Array

    def _embed(self, X: Array) -> Array:
        # Centring after the product spares a copy of X.
        embedded: Array = X @ self.components_.T - self.mean_ @ self.components_.T
        return embedded

    @staticmethod
    def _learned(components: Array, mean: Array, **more: Any) -> Learned:
        """Return what every linear system publishes, and what else it names."""
        return {"components_": components, "mean_": mean, "_n_features_out": components.shape[0], **more}


def check_count(n_components: Any) -> int:
    """Return a number of components as int; refuse anything else."""
    k = n_components
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"n_components is {k!r}: pass an integer of at least 1")
    return int(k)


def scatter(X: Array) -> Array:
    """Return the covariance of the rows about their own mean, with divisor n."""
    centred = X - X.mean(axis=0)
    covariance: Array = centred.T @ centred / len(X)
    return covariance


def spread(X: Array, ddof: int = 0) -> Array:
    """Return the standard deviation of every column, 1 if the column is constant to rounding.

    Examples
    --------
    >>> spread(np.array([[0.1, 1.0], [0.1, 3.0], [0.1, 5.0]]), ddof=1)
    array([1., 2.])
    """
    deviation = X.std(axis=0, ddof=ddof)
    constant = deviation <= 10 * np.finfo(X.dtype).eps * np.abs(X).max(axis=0)
    return np.where(constant, 1.0, deviation)
