"""GroupMoments: the small, mergeable summary that one pass over the data leaves."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from fairstream.data.alignment import paired
from fairstream.data.blocks import Matrix, take_rows
from fairstream.data.groups import MAX_GROUPS, GroupColumn, GroupIndex, Groups, encode_groups
from fairstream.data.matrices import check_matrix
from fairstream.data.row_marks import RowMarks, checked_marks
from fairstream.data.schema import Schema
from fairstream.data.small_groups import plain_counts, row_level_caution, warn_of_row_level
from fairstream.files.atomic import PathLike
from fairstream.files.format import (
    Arrays,
    Header,
    Storable,
    checked,
    checked_signs,
    label_from_json,
    label_to_json,
    storable,
    write_file,
)
from fairstream.linalg import FloatArray, SymmetricOperator, is_finite, small_lapack
from fairstream.linalg.memory import refuse_beyond_memory
from fairstream.linalg.products import (
    check_values,
    largest_value,
    values_are_sound,
)
from fairstream.moments.exact import ExactScatter
from fairstream.moments.mixing import RowMixer
from fairstream.moments.sample import RowSample
from fairstream.moments.scatter import Increment, Scatter
from fairstream.moments.sketch import SketchedScatter

SAMPLE_BYTES = 2**28  # of the sampled rows of a group beside a sketch, at 8 bytes a number: mixed if more
MIXED_BYTES = 2**26  # of mixed ones


@storable
class GroupMoments(Storable):
    """Counts, means and second moments of all rows and of every group of every attribute, in one pass.

    Parameters
    ----------
    n_features : int
        Number of columns d.
    rank : int, optional
        None keeps d x d scatter matrices, exact, O(G d^2) memory for G groups. A number L keeps all of them
        in one shared basis of about L directions, O(d L + G L^2) memory, 8 d L flops per row and more while
        the basis still changes; from L = d / 2 on, exact moments after all, and `rank` is None.
    dtype : {float64, float32}
        In what precision the d-sized products run. Sums are always kept in float64 about the running mean.
    sample : int, optional
        R: also keep about R rows of every group, see `RowSample`. They are what sees beyond second moments.
        This is row-level data, which goes into a file only with `save(..., with_sample=True)`. Beside a
        sketch, rows that would take more than 256 MB a group are mixed to fewer numbers, of 64 MB a group or
        8 L each, see `RowMixer`: a guard reads their coordinates, `tune` needs rows as they are.

    Attributes
    ----------
    schema : Schema
        Names of the features, and how table columns became them. Summaries that differ in it do not merge.

    Notes
    -----
    Rows whose group is unknown (None, NaN, NA) count for the total mean and covariance and for no group: the
    paper's ``(*, x)``. Second moments are taken about the total mean, as the paper's are for centred data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> moments = GroupMoments(5)
    >>> for _ in range(3):
    ...     _ = moments.update(rng.normal(size=(100, 5)), {"sex": rng.choice(["f", "m"], 100)})
    >>> moments.n_rows, moments.groups
    (300, {'sex': ('f', 'm')})
    >>> (moments.second_moment_gap("sex", "m") @ np.eye(5)).shape
    (5, 5)
    """

    kind = "GroupMoments"

    def __init__(
        self,
        n_features: int,
        rank: int | None = None,
        dtype: DTypeLike = np.float64,
        *,
        sample: int | None = None,
    ) -> None:
        if n_features < 1:
            raise ValueError(f"n_features is {n_features}: at least one column is needed")
        if rank is not None and rank < 1:
            raise ValueError(
                f"rank is {rank}: give a positive number of directions, or None for exact moments"
            )
        self.n_features = int(n_features)
        self.rank = None if rank is None or 2 * rank >= n_features else int(rank)
        if rank is not None and self.rank is None:
            what = f"a sketch of {n_features:,} features with rank={rank}"
            refuse_beyond_memory(3 * 8 * n_features**2, what, "take a smaller rank")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise ValueError(f"dtype is {self.dtype}: use float64 or float32")
        self.schema = Schema()
        self._index = GroupIndex()
        self._weights = np.zeros(1)
        self._means = np.zeros((1, self.n_features))
        self._scatter: Scatter = (
            ExactScatter(self.n_features)
            if self.rank is None
            else SketchedScatter(self.n_features, self.rank, self.dtype)
        )
        self._sample = None if sample is None else RowSample(sample, mixer=self._mixer(sample))
        self._marks: RowMarks | None = RowMarks()  # None: of some rows, a file had none

    def _mixer(self, sample: int) -> RowMixer | None:
        """Return what makes sampled rows narrower, if those of a group would take too much memory."""
        if self.rank is None or not isinstance(sample, int | np.integer) or sample < 1:
            return None
        sample = int(sample)
        if 8 * sample * self.n_features <= SAMPLE_BYTES:
            return None
        n_numbers = max(MIXED_BYTES // (8 * sample), 8 * self.rank)
        return RowMixer(self.n_features, n_numbers, self.dtype) if n_numbers < self.n_features else None

    # Taking in rows ---------------------------------------------------------------------------------

    def update(
        self,
        X: Matrix,
        groups: object = None,
        sample_weight: NDArray[Any] | None = None,
        *,
        target: NDArray[Any] | None = None,
    ) -> GroupMoments:
        """Take in a block of rows.

        Parameters
        ----------
        X : array or sparse matrix (n, d)
            Any number of rows, dense (float, integer, uint8; any order; memory-mapped) or CSR/CSC.
        groups : optional
            Sensitive features in any form that `encode_groups` takes. None: rows of no attribute. A pandas
            index of X and the labels is compared, see `fairstream.data.alignment.paired`.
        sample_weight : array (n,), optional
            Non-negative weights; an integer weight equals repetition.
        target : array (n,), optional
            Numbers to keep beside the sampled rows; ignored without a sample.

        Returns
        -------
        GroupMoments
            Itself. A rejected block leaves it as it was, and so does one that is interrupted by Ctrl-C or by
            a lack of memory.
        """
        self._refuse_restricted()
        groups, sample_weight = paired(groups, X, "groups"), paired(sample_weight, X, "sample_weight")
        X = _checked_rows(X, self.n_features)
        values, scale_known = X.data if sp.issparse(X) else X, self.total_variance > 0
        # For dense rows of weight 1 the sums show afterwards whether the values were sound, without a pass.
        check_first = self._sample is not None or sample_weight is not None
        if check_first or sp.issparse(X):
            check_values(values, self.dtype, scale_known=scale_known)
        columns = self._encoded(groups, X.shape[0])
        weights = _checked_weights(sample_weight, X, self.dtype)
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            X, columns, weights = X[kept], take_rows(columns, kept), weights[kept]
            target = None if target is None else np.asarray(target)[kept]
        draft = self._draft()
        if draft._sample is not None:
            draft._sample = copy.copy(draft._sample).update(X, columns, weights, target)
        if draft._marks is not None:
            draft._marks = draft._marks.updated(X)
        try:
            for rows in _even_slices(X.shape[0], self._scatter.slice_rows(X)):
                # Threads of our own share the large products; those of BLAS would spin beside them.
                with small_lapack(), np.errstate(over="ignore", invalid="ignore"):
                    draft._absorb(
                        X[rows], take_rows(columns, rows), None if weights is None else weights[rows]
                    )
        except ValueError:  # an error about the rows says more than one about the sums
            check_values(values, self.dtype, scale_known=scale_known)
            raise
        if not (check_first or draft._is_sound(X.shape[0], values.dtype, scale_known=scale_known)):
            check_values(values, self.dtype, scale_known=scale_known)
        draft._scatter.complete()
        return self._become(draft)

    def _is_sound(self, n_rows: int, own: np.dtype[Any], *, scale_known: bool) -> bool:
        """Whether the sums show that no value so far, each of weight 1, has to be refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(self._scatter.traces()[0] + self._weights[0] * (self._means[0] @ self._means[0]))
        return values_are_sound(squares, n_rows * self.n_features, self.dtype, own, scale_known=scale_known)

    def _draft(self) -> GroupMoments:
        """Return a summary to work on: it shares this one's arrays and replaces those that change."""
        draft = object.__new__(type(self))  # copy.copy takes ten times as long
        draft.__dict__.update(self.__dict__, _scatter=self._scatter.draft())
        return draft

    def _become(self, draft: GroupMoments) -> GroupMoments:
        """Take over a finished draft, all of it at once.

        One call into C: Python handles signals between such calls, so Ctrl-C finds the old state or the new.
        """
        if not np.isfinite(draft._weights.sum() + draft._scatter.traces().sum()):
            raise ValueError("the sums over all rows would overflow: rescale X or sample_weight")
        self.__dict__.update(draft.__dict__)
        return self

    def _absorb(self, X: Matrix, columns: Groups, weights: FloatArray | None) -> None:
        """Take in one slice."""
        self._register(self._index.with_groups(columns))
        member = self._index.members(columns, X.shape[0])
        increment = Increment(X, weights, member, self.dtype, self._weights, self._means)
        partition = [[*slots.values()] for slots in self._index.slots.values()]
        self._means = self._scatter.absorb(increment, partition)
        self._weights = self._weights + increment.weights

    def merge(self, other: GroupMoments) -> GroupMoments:
        """Add the rows of another summary, as if they had been seen here.

        Exact moments: associative and commutative to rounding. Returns itself; `other` is not changed.
        """
        if not isinstance(other, type(self)):
            raise TypeError(f"other is a {type(other).__name__}: merge takes another {type(self).__name__}")
        for summary in (self, other):
            summary._refuse_restricted()
        self._check_mergeable(other)
        if other._weights[0] == 0:
            return self
        if self._weights[0] == 0:
            draft = other.copy()
            draft.schema = other.schema.filled(self.schema)
            return self._become(draft)
        draft = self._draft()
        draft._add(other)
        if draft._sample is not None and other._sample is not None:
            draft._sample = copy.copy(draft._sample).merge(other._sample)
        both = draft._marks is not None and other._marks is not None
        draft._marks = draft._marks.merged(other._marks) if both else None  # type: ignore[union-attr, arg-type]
        return self._become(draft)

    def _add(self, other: GroupMoments) -> None:
        """Add the rows of a summary that fits this one; neither is empty."""
        self._register(self._index.with_labels(other._index.slots))
        slot_of = self._index.places_of(other._index)
        b = np.zeros_like(self._weights)
        b[slot_of] = other._weights
        means = np.zeros_like(self._means)
        means[slot_of] = other._means
        n = self._weights
        gaps = np.where(((n > 0) & (b > 0))[:, None], means - self._means, 0.0)
        means = np.where(n[:, None] > 0, self._means, means) + (b / (n + b))[:, None] * gaps
        self._scatter.merge(other._scatter, n, b, gaps, means, slot_of)
        self._means = means
        self._weights = n + b

    def copy(self) -> GroupMoments:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def save(self, path: PathLike, *, with_sample: bool = False) -> None:
        """Write to a file that `fairstream.load` reads back; warns if it holds the moments of few rows.

        Parameters
        ----------
        path : path
        with_sample : bool
            Write the sampled rows too: the file then holds row-level data. By default they are left out.
        """
        warn_of_row_level(self.group_counts, self.n_rows)
        write_file(path, self.kind, *self.to_state(with_sample=with_sample))

    def describe(self) -> dict[str, Any]:
        """Return the main figures."""
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "rank": self.rank,
            "lost_energy": self.lost_energy,
            "groups": plain_counts(self.group_counts),
            "caution": row_level_caution(self.group_counts, self.n_rows),
            **({} if self._sample is None else {"sample": self._sample.describe()}),
        }

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays (not copied), sampled rows only if told to."""
        self._scatter = self._scatter.settled()  # for good: files hold no rows, and must resume like this one
        scatter_header, scatter_arrays = self._scatter.to_state()
        header = {
            "n_features": self.n_features,
            "rank": self.rank,
            "dtype": str(self.dtype),
            "attributes": list(self._index.slots),
            "groups": [[a, label_to_json(a, label)] for a, label in self._index.listed()],
            **self.schema.to_header(),
        }
        arrays: dict[str, NDArray[Any]] = {"weights": self._weights, "means": self._means}
        if self._marks is not None:
            arrays["row_marks"] = self._marks.values
        if self._sample is not None and with_sample:
            header["sample"], sampled = self._sample.to_state()
            arrays |= sampled
        return header | scatter_header, arrays | scatter_arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> GroupMoments:
        """Return the summary that `to_state` described; it resumes exactly as the original would."""
        d, groups, names = header["n_features"], header["groups"], header["feature_names"]
        weights, means = arrays["weights"], arrays["means"]
        checked(type(d) is int and means.shape == (1 + len(groups), d), "means and groups")
        checked(
            weights.shape == (len(means),) and weights.dtype == means.dtype == np.float64, "weights and means"
        )
        checked(names is None or len(names) == d, "feature names and features")
        checked_signs(weights, "weights")
        checked(bool((weights <= weights[0] * (1 + 1e-6)).all()), "weights of groups and of all rows")
        kind = ExactScatter if header["rank"] is None else SketchedScatter
        scatter = kind.from_state(header, arrays)
        # Rank 1 for the moment: exact moments would first make a d x d matrix of zeros.
        moments = cls(d, 1, header["dtype"])
        moments.rank, moments._scatter = header["rank"], scatter
        moments._weights, moments._means = weights, means
        listed = [(name, label_from_json(label)) for name, label in groups]
        moments._index = GroupIndex.of(map(str, header["attributes"]), listed)
        checked(not moments._index.is_restricted, "groups and their labels")
        moments.schema = Schema.from_header(header)
        moments._marks = RowMarks(checked_marks(arrays["row_marks"])) if "row_marks" in arrays else None
        if header.get("sample") is not None:
            moments._sample = RowSample.from_state(header["sample"], arrays, d)
        return moments

    def restricted(self, groups: Mapping[str, Iterable[Hashable]]) -> GroupMoments:
        """Return a copy that compares only these groups; rows of any other count as of unknown group.

        For reading: a restricted summary takes in no more rows and is not merged.
        """
        other = self.copy()
        other._index = self._index.restricted(groups)
        return other

    def with_sample_of(self, rows: NDArray[np.bool_]) -> GroupMoments:
        """Return the same summary with some of its sampled rows."""
        other = self._draft()
        other._sample = None if self._sample is None else self._sample.kept(rows)
        return other

    def selected(self, features: NDArray[np.intp]) -> GroupMoments:
        """Return the summary of some features alone, in the order given; a sketch's is an approximation."""
        other = self._draft()
        other.n_features, other._scatter = len(features), self._scatter.selected(features)
        other.rank = None if self.rank is None else min(self.rank, len(features))
        other._means = self._means[:, features]
        names = self.feature_names
        other.schema = Schema(None if names is None else tuple(names[j] for j in features.tolist()))
        if self._sample is not None:
            other._sample = self._sample.selected(features)
        return other

    @property
    def row_marks(self) -> NDArray[np.uint64] | None:
        """Marks of a few rows, to recognise them later; None if they are not known of all rows."""
        return None if self._marks is None else self._marks.values

    # What is known ----------------------------------------------------------------------------------

    @property
    def n_rows(self) -> int | float:
        """Rows seen; with weights, the sum of the weights."""
        return _count(self._weights[0])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The name of every feature, if known."""
        return self.schema.feature_names

    @property
    def encoding(self) -> Mapping[str, Any] | None:
        """How table columns became features; None if not from a table."""
        return self.schema.encoding

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        sampled = 0 if self._sample is None else self._sample.nbytes
        return self._scatter.nbytes + int(self._means.nbytes + self._weights.nbytes) + sampled

    @property
    def groups(self) -> dict[str, tuple[Hashable, ...]]:
        """The labels of every attribute, in a fixed order."""
        return self._index.groups

    @property
    def sample(self) -> RowSample | None:
        """The rows that were kept, None unless asked for."""
        return self._sample

    @property
    def rows_wait(self) -> bool:
        """Whether a sketch buffers a few rows until a step pays; writing a file or pickle takes them in."""
        return self._scatter.rows_wait

    @property
    def lost_energy(self) -> float:
        """Share of the total variance outside the sketch's basis; 0 for exact moments."""
        return self._scatter.lost

    @property
    def total_variance(self) -> float:
        """Exact trace of the total covariance (1/n)."""
        return float(self._scatter.traces()[0] / self._weights[0]) if self._weights[0] else 0.0

    @property
    def group_counts(self) -> dict[str, dict[Hashable, int | float]]:
        """Rows (or sum of weights) of every group of every attribute."""
        return {a: {label: self.count(a, label) for label in labels} for a, labels in self.groups.items()}

    def count(self, attribute: str, group: Hashable) -> int | float:
        """Rows (or sum of weights) of one group of an attribute."""
        return _count(self._weights[self._index.slot(attribute, group)])

    def mean(self, attribute: str | None = None, group: Hashable = None) -> FloatArray:
        """Return the mean of all rows, or of one group of an attribute."""
        slot = 0 if attribute is None else self._index.slot(attribute, group)
        return self._means[slot].copy()

    def comparisons(self, attribute: str | None = None) -> list[tuple[str, Hashable]]:
        """List the (attribute, group) pairs to compare: one for two groups, each against the rest for more.

        With two groups the larger label is the in-group, so 1 is compared with 0 as in the paper.
        """
        for name in self._index.slots if attribute is None else [attribute]:
            self._index.check_compared(name)
        return [pair for pair in self._index.comparisons() if attribute in (None, pair[0])]

    def mean_gap(self, attribute: str, group: Hashable) -> FloatArray:
        """Return f: the mean of the group less the mean of the attribute's other rows."""
        inside, outside = self._sides(attribute, group)
        return self._pooled_mean(inside) - self._pooled_mean(outside)

    def second_moment_gap(self, attribute: str, group: Hashable) -> SymmetricOperator:
        """Return S of an attribute: second moment of a group less that of others, about the total mean."""
        return self._difference(attribute, group, self._means[0], self._means[0])

    def covariance_gap(self, attribute: str, group: Hashable) -> SymmetricOperator:
        """Return the group's covariance less that of the attribute's other rows."""
        inside, outside = self._sides(attribute, group)
        return self._difference(attribute, group, self._pooled_mean(inside), self._pooled_mean(outside))

    def second_moments(self, attribute: str, group: Hashable) -> tuple[SymmetricOperator, SymmetricOperator]:
        """Return the second moments about the total mean of the group and of the attribute's other rows."""
        inside, outside = self._sides(attribute, group)
        return self._about(inside, self._means[0]), self._about(outside, self._means[0])

    def covariance(self) -> SymmetricOperator:
        """Return the covariance of all rows (1/n), as far as the sketch holds it."""
        return self._about([0], self._means[0])

    def labelled_covariance(self, attribute: str) -> SymmetricOperator:
        """Return the covariance (1/n) of the rows whose group of an attribute is known, as far as held."""
        slots = [*self._index.slots[attribute].values()]
        return self._about(slots, self._pooled_mean(slots))

    def check_sound(self) -> None:
        """Refuse to solve moments that hold NaN or infinity: a gap of NaN would count as no gap."""
        arrays = {"weights": self._weights, "means": self._means, **self._scatter.to_state()[1]}
        for name, array in arrays.items():
            if not is_finite(array):
                raise ValueError(
                    f"the moments have overflowed or were changed, their {name} hold NaN or infinite values: "
                    "rescale X or sample_weight and collect them again"
                )

    # Inside -----------------------------------------------------------------------------------------

    def _sides(self, attribute: str, group: Hashable) -> tuple[list[int], list[int]]:
        inside = self._index.slot(attribute, group)
        outside = self._index.rest(attribute, inside)
        if not outside:
            self._index.check_compared(attribute)
        return [inside], outside

    def _pooled_mean(self, slots: list[int]) -> FloatArray:
        weights = self._weights[slots]
        mean: FloatArray = weights @ self._means[slots] / weights.sum()
        return mean

    def _about(self, slots: list[int], centre: FloatArray) -> SymmetricOperator:
        factors = np.zeros_like(self._weights)
        factors[slots] = 1.0 / self._weights[slots].sum()
        vectors, weights = self._means[slots] - centre, (self._weights * factors)[slots]
        return self._scatter.combine(factors, vectors, weights)

    def _difference(
        self, attribute: str, group: Hashable, centre_in: FloatArray, centre_out: FloatArray
    ) -> SymmetricOperator:
        inside, outside = self._sides(attribute, group)
        factors = np.zeros_like(self._weights)
        factors[inside] = 1.0 / self._weights[inside].sum()
        factors[outside] = -1.0 / self._weights[outside].sum()
        vectors = np.concatenate([self._means[inside] - centre_in, self._means[outside] - centre_out])
        return self._scatter.combine(factors, vectors, (self._weights * factors)[inside + outside])

    def _encoded(self, groups: object, n_rows: int) -> dict[str, GroupColumn]:
        empty = groups is None or (isinstance(groups, Mapping) and not groups)
        columns = {} if empty else encode_groups(groups, n_rows)
        seen = self._index.slots
        if self._weights[0] > 0 and columns.keys() != seen.keys():
            raise ValueError(
                f"sensitive_features has the attributes {[*columns]}, earlier blocks had {[*seen]}: "
                "pass the same attributes with every block (None where a label is unknown)"
            )
        for name, column in columns.items():
            together = {*seen.get(name, ()), *column.labels}
            if len(together) > MAX_GROUPS:
                raise ValueError(
                    f"sensitive_features[{name!r}] has come to {len(together):,} different labels, at most "
                    f"{MAX_GROUPS:,} are allowed: bin a continuous attribute into groups first"
                )
        return columns

    def _check_mergeable(self, other: GroupMoments) -> None:
        """Raise unless the other summary has the same columns, precision and attributes."""
        for name in ("n_features", "rank", "dtype"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise ValueError(
                    f"other has {name}={theirs}, this summary has {name}={ours}: both must agree"
                )
        for name in ("feature_names", "encoding"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if None not in (ours, theirs) and ours != theirs:
                raise ValueError(
                    f"other has another {name} than this summary: their columns do not mean the same; "
                    "collect both with the same features and categories"
                )
        if (self._sample is None) != (other._sample is None):
            raise ValueError("only one of the summaries keeps a sample of rows: collect both with sample=")
        if self._sample is not None and other._sample is not None:
            self._sample.check_mergeable(other._sample)
        both = self.n_rows > 0 and other.n_rows > 0
        if both and self.groups.keys() != other.groups.keys():
            raise ValueError(
                f"other has the attributes {[*other.groups]}, this summary has {[*self.groups]}: "
                "merge summaries of the same attributes"
            )

    def _refuse_restricted(self) -> None:
        if self._index.is_restricted:
            raise ValueError("a restricted summary is for reading only: update or merge the whole one")

    def _register(self, index: GroupIndex) -> None:
        """Take over an index with more groups, with room for their moments."""
        missing = index.n_slots - len(self._weights)
        if missing:
            self._scatter.grow(index.n_slots)
            self._means = np.concatenate([self._means, np.zeros((missing, self.n_features))])
            self._weights = np.concatenate([self._weights, np.zeros(missing)])
        self._index = index


def _even_slices(n_rows: int, size: int) -> list[slice]:
    """Cut rows into slices of nearly equal size: a short one at the end would cost as much as a long one."""
    bounds = np.linspace(0, n_rows, max(round(n_rows / size), 1) + 1).astype(int).tolist()
    return [slice(*ends) for ends in pairwise(bounds)]


def _count(weight: np.floating[Any]) -> int | float:
    return int(weight) if float(weight).is_integer() else float(weight)


def _checked_rows(X: Any, n_features: int) -> Matrix:
    """Return X as an array or CSR matrix of real numbers with the right number of columns."""
    check_matrix(X)
    X = sp.csr_array(X) if sp.issparse(X) else np.asanyarray(X)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, {n_features} columns are expected")
    if X.shape[0] == 0:
        raise ValueError("X has no rows: pass at least one")
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {values.dtype}: pass real numbers")
    return X


def _checked_weights(sample_weight: Any, X: Matrix, dtype: np.dtype[Any]) -> FloatArray | None:
    """Return the weights as float64, None if there are none; with them no sum over X may overflow."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, np.ma.MaskedArray):
        raise ValueError("sample_weight is a masked array: fill in what is masked, with 0 to leave a row out")
    n_rows = X.shape[0]
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape}, X has {n_rows} rows: one weight per row")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight has negative or non-finite entries: weights must be >= 0")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to learn from")
    heaviest = float(weights.max())
    if heaviest > 1e6:  # less is within the margin that check_values leaves
        values = X.data if sp.issparse(X) else X
        largest = max(abs(float(values.min(initial=0))), abs(float(values.max(initial=0))), 1.0)
        limit = min((largest_value(dtype) / largest) ** 2, 1e100)
        if heaviest > limit:
            raise ValueError(
                f"sample_weight has values up to {heaviest:.2g}: beyond {limit:.2g} weighted sums of squares "
                f"of this X overflow in {np.dtype(dtype)}, rescale sample_weight"
            )
    return weights
