"""GroupMoments: the small, mergeable summary that one pass over the data leaves."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairstream.data.alignment import paired
from fairstream.data.blocks import (
    MAX_GROUPS,
    GroupColumn,
    Groups,
    Matrix,
    encode_groups,
    label_order,
    take_rows,
)
from fairstream.data.schema import Schema
from fairstream.data.small_groups import plain_counts, row_level_caution, warn_of_row_level
from fairstream.errors import NotEnoughGroupsError
from fairstream.files.format import Arrays, Header, PathLike, Storable, storable
from fairstream.linalg import FloatArray, small_lapack
from fairstream.linalg.symmetric import SymmetricOperator
from fairstream.moments import state as moments_state
from fairstream.moments.checks import check_is_summary, check_mergeable, checked_rows, checked_weights
from fairstream.moments.rows import (
    SEVERAL_SCATTERS,
    CentredRows,
    DenseRows,
    centred_rows,
    prepared_rows,
    provisional_origin,
    row_slices,
)
from fairstream.moments.scatter import ExactScatter, Increment, SketchedScatter


@storable
class GroupMoments(Storable):
    """Counts, means and second moments of all rows and of every group of every attribute, in one pass.

    Parameters
    ----------
    n_features : int
        Number of columns d.
    rank : int, optional
        None keeps d x d scatter matrices, exact, O(G d^2) memory for G groups. A number L keeps all of them
        in one shared basis of about L directions, O(d L + G L^2) memory, 7 d L flops per row; from L = d on,
        in all d directions, and nothing is dropped.
    dtype : {float64, float32}
        In what precision the d-sized products run. Sums are always kept in float64 about the running mean.

    Attributes
    ----------
    schema : Schema
        Names of the features, and how table columns became them. Summaries that differ in it do not merge.

    Notes
    -----
    Rows whose group is unknown (None, NaN, NA) count for the total mean and covariance and for no group: the
    paper's (*, x). Second moments are taken about the total mean, as the paper's are for centred data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> moments = GroupMoments(5)
    >>> for _ in range(3):
    ...     _ = moments.update(rng.normal(size=(100, 5)), {"sex": rng.choice(["f", "m"], 100)})
    >>> moments.n_rows, moments.groups
    (300, {'sex': ('f', 'm')})
    >>> (moments.gap("sex", "m") @ np.eye(5)).shape
    (5, 5)
    """

    kind = "GroupMoments"

    def __init__(self, n_features: int, rank: int | None = None, dtype: DTypeLike = np.float64) -> None:
        if n_features < 1:
            raise ValueError(f"n_features is {n_features}: at least one column is needed")
        if rank is not None and rank < 1:
            raise ValueError(
                f"rank is {rank}: give a positive number of directions, or None for exact moments"
            )
        self.n_features = int(n_features)
        self.rank = None if rank is None else int(rank)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise ValueError(f"dtype is {self.dtype}: use float64 or float32")
        self.schema = Schema()
        self._slots: dict[str, dict[Hashable, int]] = {}
        self._weights = np.zeros(1)
        self._means = np.zeros((1, self.n_features))
        self._scatter: ExactScatter | SketchedScatter = (
            ExactScatter(self.n_features)
            if rank is None
            else SketchedScatter(self.n_features, rank, self.dtype)
        )

    # Taking in rows ---------------------------------------------------------------------------------

    def update(
        self, X: Matrix, groups: object = None, sample_weight: NDArray[Any] | None = None
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

        Returns
        -------
        GroupMoments
            Itself. A rejected block leaves it as it was, and so does one that Ctrl-C or a lack of memory
            breaks off.
        """
        self._refuse_restricted()
        groups, sample_weight = paired(groups, X, "groups"), paired(sample_weight, X, "sample_weight")
        X = checked_rows(X, self.n_features, self.dtype, scale_known=self.total_variance > 0)
        columns = self._encoded(groups, X.shape[0])
        weights = checked_weights(sample_weight, X, self.dtype)
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            X, columns, weights = X[kept], take_rows(columns, kept), weights[kept]
        draft = self._draft()
        cuts = row_slices(X.shape[0], self._scatter.slice_rows())
        # One slice and the next: slices of a sparse block are copies.
        parts = (
            (X[rows], take_rows(columns, rows), None if weights is None else weights[rows]) for rows in cuts
        )
        ahead: CentredRows | None = None
        for part, following in pairwise(chain(parts, [None])):
            assert part is not None
            # Threads of our own share the large products; those of BLAS would spin beside them between calls.
            with (
                nullcontext() if self.rank is None and self.n_features > SEVERAL_SCATTERS else small_lapack()
            ):
                ahead = draft._absorb(*part, ahead, following)
        return self._become(draft)

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

    def _absorb(
        self,
        X: Matrix,
        columns: Groups,
        weights: FloatArray | None,
        prepared: CentredRows | None = None,
        following: tuple[Matrix, Groups, FloatArray | None] | None = None,
    ) -> CentredRows | None:
        """Take in one slice; return the following one's rows, where they were prepared on the way."""
        self._register(columns)
        scale = np.ones(X.shape[0]) if weights is None else np.sqrt(weights)
        origin = self._means[0] if self._weights[0] > 0 else provisional_origin(X)
        # As the rows will subtract it: else rounding shifts float32 means by 1e-4 at an offset of 1e4.
        origin = origin.astype(self.dtype).astype(np.float64)
        rows = prepared or centred_rows(X, origin, None if weights is None else scale, self.dtype)
        if isinstance(prepared, DenseRows):
            prepared.recentre(origin)
        member = self._membership(columns, X.shape[0])
        block_weights = member @ (scale**2)
        sums = rows.combine((member * scale).astype(self.dtype)).astype(np.float64)
        old_means = np.where(self._weights[:, None] > 0, self._means - origin, 0.0)
        increment = Increment(rows, member, scale, block_weights, sums, self._weights, old_means)
        meanwhile = None
        if following is not None and isinstance(rows, DenseRows):
            meanwhile = partial(prepared_rows, following[0], origin, following[2], self.dtype)
        partition = [[*slots.values()] for slots in self._slots.values()]
        ahead = self._scatter.absorb(increment, partition, meanwhile)
        total = self._weights + block_weights
        self._means = origin + (self._weights[:, None] * old_means + sums) / total[:, None]
        self._weights = total
        return ahead

    def merge(self, other: GroupMoments) -> GroupMoments:
        """Add the rows of another summary, as if they had been seen here.

        Exact moments: associative and commutative to rounding. Returns itself; `other` is not changed.
        """
        check_is_summary(self, other)
        for summary in (self, other):
            summary._refuse_restricted()
        check_mergeable(self, other)
        if other._weights[0] == 0:
            return self
        if self._weights[0] == 0:
            draft = other.copy()
            draft.schema = other.schema.filled(self.schema)
            return self._become(draft)
        draft = self._draft()
        draft._add(other)
        return self._become(draft)

    def _add(self, other: GroupMoments) -> None:
        """Add the rows of a summary that fits this one; neither is empty."""
        slot_of = self._register_labels({a: tuple(slots) for a, slots in other._slots.items()}, other)
        b = np.zeros_like(self._weights)
        b[slot_of] = other._weights
        means = np.zeros_like(self._means)
        means[slot_of] = other._means
        n = self._weights
        gaps = np.where(((n > 0) & (b > 0))[:, None], means - self._means, 0.0)
        if isinstance(self._scatter, ExactScatter):
            assert isinstance(other._scatter, ExactScatter)
            self._scatter.merge(other._scatter, n, b, gaps, slot_of)
        else:
            assert isinstance(other._scatter, SketchedScatter)
            # The other's directions and the step between the two total means enter like rows of a block.
            stacked = np.concatenate([other._scatter.basis, gaps[:1].astype(self.dtype)])
            rows = DenseRows(stacked, np.zeros(self.n_features), None, self.dtype)
            self._scatter.merge(other._scatter, rows, n, b, gaps, slot_of)
        self._means = np.where(n[:, None] > 0, self._means, means) + (b / (n + b))[:, None] * gaps
        self._weights = n + b

    def copy(self) -> GroupMoments:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def save(self, path: PathLike) -> None:
        """Write to a file that `fairstream.load` reads back; warns if it holds the moments of few rows."""
        warn_of_row_level(self.group_counts, self.n_rows)
        super().save(path)

    def describe(self) -> dict[str, Any]:
        """Return the figures that a reader wants first."""
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "rank": self.rank,
            "lost_energy": self.lost_energy,
            "groups": plain_counts(self.group_counts),
            "caution": row_level_caution(self.group_counts, self.n_rows),
        }

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays (not copied)."""
        return moments_state.describe(self)

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> GroupMoments:
        """Return the summary that `to_state` described; it goes on exactly as the original would."""
        return moments_state.rebuild(cls, header, arrays)

    def restricted(self, groups: Mapping[str, Iterable[Hashable]]) -> GroupMoments:
        """Return a copy that compares only these groups; rows of any other count as of unknown group.

        For reading: a restricted summary takes in no more rows and is not merged.
        """
        other = self.copy()
        wanted = {
            name: {label: self._slot(name, label) for label in labels} for name, labels in groups.items()
        }
        other._slots = wanted
        return other

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
        return self._scatter.nbytes + int(self._means.nbytes + self._weights.nbytes)

    @property
    def groups(self) -> dict[str, tuple[Hashable, ...]]:
        """The labels of every attribute, in a fixed order."""
        return {a: tuple(sorted(slots, key=label_order)) for a, slots in self._slots.items()}

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
        """Rows (or sum of weights) of one group."""
        return _count(self._weights[self._slot(attribute, group)])

    def mean(self, attribute: str | None = None, group: Hashable = None) -> FloatArray:
        """Return the mean of all rows, or of one group."""
        slot = 0 if attribute is None else self._slot(attribute, group)
        return self._means[slot].copy()

    def comparisons(self, attribute: str | None = None) -> list[tuple[str, Hashable]]:
        """List the (attribute, group) pairs to compare: one for two groups, each against the rest for more.

        With two groups the larger label is the in-group, so 1 is compared with 0 as in the paper.
        """
        pairs: list[tuple[str, Hashable]] = []
        for name in self._slots if attribute is None else [attribute]:
            labels = self.groups[name]
            if len(labels) < 2:
                raise NotEnoughGroupsError(
                    f"sensitive attribute {name!r} shows only {len(labels)} group{'s' * (len(labels) != 1)} "
                    f"({', '.join(map(repr, labels)) or 'every label is unknown'}): a gap needs two; "
                    "leave the attribute out or give rows of another group"
                )
            pairs += [(name, label) for label in (labels[1:] if len(labels) == 2 else labels)]
        return pairs

    def mean_gap(self, attribute: str, group: Hashable) -> FloatArray:
        """Return f: the mean of the group less the mean of the attribute's other rows."""
        inside, outside = self._sides(attribute, group)
        return self._pooled_mean(inside) - self._pooled_mean(outside)

    def gap(self, attribute: str, group: Hashable) -> SymmetricOperator:
        """Return S: second moment of the group less that of the others, both about the total mean."""
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

    # Inside -----------------------------------------------------------------------------------------

    def _slot(self, attribute: str, group: Hashable) -> int:
        if attribute not in self._slots:
            raise ValueError(f"attribute {attribute!r} is unknown: these were seen: {[*self._slots]}")
        if group not in self._slots[attribute]:
            raise ValueError(
                f"group {group!r} of {attribute!r} never appeared: these did: {[*self.groups[attribute]]}"
            )
        return self._slots[attribute][group]

    def _sides(self, attribute: str, group: Hashable) -> tuple[list[int], list[int]]:
        inside = self._slot(attribute, group)
        outside = [slot for slot in self._slots[attribute].values() if slot != inside]
        if not outside:
            self.comparisons(attribute)
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
        if self._weights[0] > 0 and columns.keys() != self._slots.keys():
            raise ValueError(
                f"sensitive_features has the attributes {[*columns]}, earlier blocks had {[*self._slots]}: "
                "pass the same attributes with every block (None where a label is unknown)"
            )
        for name, column in columns.items():
            together = {*self._slots.get(name, ()), *column.labels}
            if len(together) > MAX_GROUPS:
                raise ValueError(
                    f"sensitive_features[{name!r}] has come to {len(together):,} different labels, at most "
                    f"{MAX_GROUPS:,} are allowed: bin a continuous attribute into groups first"
                )
        return columns

    def _refuse_restricted(self) -> None:
        if 1 + sum(map(len, self._slots.values())) < len(self._weights):
            raise ValueError("a restricted summary is for reading only: update or merge the whole one")

    def _register(self, columns: Groups) -> None:
        seen = {
            name: tuple(column.labels[code] for code in np.unique(column.codes[column.codes >= 0]))
            for name, column in columns.items()
        }
        self._register_labels(seen)

    def _register_labels(
        self, labels: Mapping[str, tuple[Hashable, ...]], other: GroupMoments | None = None
    ) -> list[int]:
        """Give every label a slot; with `other`, list where each of its slots lives here."""
        slots = {name: dict(known) for name, known in self._slots.items()}
        n_slots = len(self._weights)
        for name, values in labels.items():
            known = slots.setdefault(name, {})
            for label in values:
                if label not in known:
                    known[label] = n_slots
                    n_slots += 1
        missing = n_slots - len(self._weights)
        if missing:
            self._scatter.grow(n_slots)
            self._means = np.concatenate([self._means, np.zeros((missing, self.n_features))])
            self._weights = np.concatenate([self._weights, np.zeros(missing)])
        self._slots = slots
        slot_of = [0] * (0 if other is None else len(other._weights))
        if other is not None:
            for name, known in other._slots.items():
                for label, slot in known.items():
                    slot_of[slot] = slots[name][label]
        return slot_of

    def _membership(self, columns: Groups, n_rows: int) -> NDArray[np.bool_]:
        member = np.zeros((len(self._weights), n_rows), dtype=bool)
        member[0] = True
        for name, column in columns.items():
            slots = self._slots[name]
            table = np.array([slots.get(label, -1) for label in column.labels] + [-1], dtype=np.intp)
            slot = table[column.codes]
            known = np.flatnonzero(slot >= 0)
            member[slot[known], known] = True
        return member


def _count(weight: np.floating[Any]) -> int | float:
    return int(weight) if float(weight).is_integer() else float(weight)
