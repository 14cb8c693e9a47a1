"""Learner: the protocol of what an estimator learns with, and what all learners of a single model share."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import Groups
from fairstream.data.schema import Schema
from fairstream.data.small_groups import Counts
from fairstream.files.format import Arrays, Header
from fairstream.power.method import PartialSums
from fairstream.subspace.choices import Choices


class Learner(Protocol):
    """Takes in rows; a fair subspace is solved from what it holds.

    `update`, `merge` and `end_step` are all or nothing: one that raises or is interrupted leaves the learner
    as it was. They replace what they change instead of writing into it, so that a `copy` is cheap and never
    changes with the original.
    """

    schema: Schema

    @property
    def n_features(self) -> int:
        """Number of columns of X."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Computing precision."""

    @property
    def n_rows(self) -> int | float:
        """Rows seen, or the sum of their weights."""

    @property
    def group_counts(self) -> Counts:
        """Rows of every group of every attribute; nothing is solved for it."""

    @property
    def solver(self) -> str:
        """The solver by name: "exact", "sketch" or "power"."""

    @property
    def passes(self) -> int:
        """Number of passes over the whole data, each followed by `end_step`."""

    @property
    def needs_groups(self) -> bool:
        """Whether the next rows need groups, provided that groups are compared at all."""

    @property
    def is_settled(self) -> bool:
        """Whether resuming from a file written now gives the same bits as going on."""

    @property
    def phase(self) -> str:
        """Where the power method is: "unfair" or "components"; an AttributeError if there is none."""

    @property
    def moments(self) -> Any:
        """The `GroupMoments` (of several channels a tuple); an AttributeError if there are none."""

    @property
    def power(self) -> Any:
        """The `FairPowerMethod` (of several channels a tuple); an AttributeError if there is none."""

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        """Take in some rows; the target is for a learner that keeps a sample of them."""

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        """Take in all rows, in as many passes as it needs. Only for a new learner."""

    def merge(self, other: Any) -> None:
        """Add the rows of another learner of the same kind."""

    def end_step(self) -> None:
        """End a pass over the whole data."""

    def subspace(self, choices: Choices) -> Any:
        """Return the fair subspace for these choices, of several channels a `ChannelSubspaces`."""

    def frontier(self, subspace: Any, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]) -> Any:
        """Return the `frontier` for as many components as `subspace` has, of several channels a tuple."""

    def copy(self) -> Self:
        """Return a copy; neither changes when the other learns."""

    def describe(self) -> dict[str, Any]:
        """Return the figures that a reader of its file wants first."""

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything needed to resume: a header of JSON values, and arrays (not copied).

        Sampled rows, which are row-level data, only if told to.
        """

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the learner that `to_state` described."""


class StepLearner(Learner, Protocol):
    """A learner that takes steps, each over all rows or over the next ones, which others may read in parts.

    A step is `open_step`, then `partial_sums` wherever some of its rows are, then `close_step` with their
    sum. All three replace what they change.
    """

    @property
    def step_rows(self) -> int | None:
        """Rows of the coming step, None if it reads all rows."""

    def declare(self, groups: Mapping[str, Any]) -> None:
        """Name the groups before any row has come."""

    def open_step(self, first_rows: Matrix) -> None:
        """Fix what all parts of the coming step share; `first_rows` are the first rows of the data."""

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        """Return the sums over some rows of the open step, for each channel; nothing changes here."""

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        """Add the sums over all rows of the step and complete it; a step that lacks rows stays open."""


class SingleLearner:
    """A learner of one model, as opposed to one for each channel; `_held` takes in the rows."""

    name: ClassVar[str]

    def __init__(self, held: Any) -> None:
        self._held = held

    @property
    def schema(self) -> Schema:
        return self._held.schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        self._held.schema = schema

    @property
    def n_rows(self) -> int | float:
        return self._held.n_rows

    @property
    def group_counts(self) -> Counts:
        return self._held.group_counts

    def copy(self) -> Self:
        return type(self)(copy.copy(self._held))

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        state, arrays = self._held.to_state(**({"with_sample": True} if with_sample else {}))
        return {"learner": self.name, "learned": state}, arrays
