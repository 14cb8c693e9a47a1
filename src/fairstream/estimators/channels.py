"""ChannelLearner: a learner for each channel of planar rows; either all of them learn a block, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from numpy.typing import NDArray

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import Groups
from fairstream.data.schema import Schema
from fairstream.estimators.learner import Learner, StepLearner
from fairstream.estimators.solvers import learner_from_state
from fairstream.files.format import Arrays, Header, checked
from fairstream.power.method import PartialSums
from fairstream.subspace.channels import ChannelSubspaces, joined_states, parted_states, side_by_side
from fairstream.subspace.choices import Choices
from fairstream.subspace.frontier import Frontier


def _of_first(name: str) -> Any:
    """Return a property that is that of the first channel's learner."""
    return property(lambda channels: getattr(channels.learners[0], name))


class ChannelLearner:
    """Learners side by side, each for its own columns. A `Learner` itself.

    Parameters
    ----------
    learners : sequence of Learner
        In the order of the columns, all of the same kind.
    schema : Schema, optional
        Of the columns of all channels.

    Examples
    --------
    >>> from fairstream.estimators.moments_learner import MomentsLearner
    >>> from fairstream.moments import GroupMoments
    >>> learner = ChannelLearner([MomentsLearner(GroupMoments(2)) for channel in range(3)])
    >>> import numpy as np
    >>> learner.update(np.ones((5, 6)))
    >>> learner.n_rows, learner.n_features
    (5, 6)
    """

    # The same for all channels
    dtype = _of_first("dtype")
    n_rows = _of_first("n_rows")
    group_counts = _of_first("group_counts")
    solver = _of_first("solver")
    passes = _of_first("passes")
    needs_groups = _of_first("needs_groups")
    phase = _of_first("phase")

    def __init__(self, learners: Sequence[Learner], schema: Schema | None = None) -> None:
        self.learners, self.schema = tuple(learners), schema or Schema()

    @property
    def n_features(self) -> int:
        return sum(learner.n_features for learner in self.learners)

    @property
    def is_settled(self) -> bool:
        return all(learner.is_settled for learner in self.learners)

    @property
    def moments(self) -> tuple[Any, ...]:
        return tuple(learner.moments for learner in self.learners)

    @property
    def power(self) -> tuple[Any, ...]:
        return tuple(learner.power for learner in self.learners)

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        of, more = self._columns(X), (groups, sample_weight, target)
        self._change(lambda c, learner: learner.update(channel_columns(X, of[c]), *more))

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        of, more = self._columns(X), (groups, sample_weight, target)
        self._change(lambda c, learner: learner.fit(channel_columns(X, of[c]), *more))

    def _columns(self, X: Matrix) -> tuple[slice, ...]:
        """Return the columns of every channel, after checking that X has all of them."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has shape {X.shape}, {self.n_features} columns are expected")
        return side_by_side([learner.n_features for learner in self.learners])

    def merge(self, other: ChannelLearner) -> None:
        if len(other.learners) != len(self.learners):
            raise ValueError(f"other has {len(other.learners)} channels, this has {len(self.learners)}")
        self._change(lambda c, learner: learner.merge(other.learners[c]))

    def end_step(self) -> None:
        self._change(lambda c, learner: learner.end_step())

    # A `StepLearner` if its learners are ---------------------------------------------------------------

    @property
    def step_rows(self) -> int | None:
        return self._steppers[0].step_rows

    def declare(self, groups: Mapping[str, Any]) -> None:
        self._change(lambda c, learner: learner.declare(groups))

    def open_step(self, first_rows: Matrix) -> None:
        of = self._columns(first_rows)
        self._change(lambda c, learner: learner.open_step(channel_columns(first_rows, of[c])))

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        total = [learner.partial_sums(())[0] for learner in self._steppers]
        for block in blocks:  # the outer loop, so that rows are read once for all channels
            for c, of in enumerate(self._columns(block.X)):
                part = replace(block, X=channel_columns(block.X, of))
                total[c] += self._steppers[c].partial_sums([part])[0]
        return tuple(total)

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        self._change(lambda c, learner: learner.close_step(sums[c : c + 1]))

    @property
    def _steppers(self) -> tuple[StepLearner, ...]:
        return cast(tuple[StepLearner, ...], self.learners)

    def _change(self, change: Callable[[int, Any], None]) -> None:
        """Change copies of all learners, then replace the originals: no channel is ahead of the others."""
        changed = self.copy().learners
        for c, learner in enumerate(changed):
            change(c, learner)
        self.learners = changed

    def subspace(self, choices: Choices) -> ChannelSubspaces:
        return ChannelSubspaces([learner.subspace(choices) for learner in self.learners])

    def frontier(
        self, subspace: ChannelSubspaces, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]
    ) -> tuple[Frontier, ...]:
        steps = None if n_unfair is None else [*n_unfair]
        pairs = zip(self.learners, subspace.channels, strict=True)
        return tuple(learner.frontier(channel, steps, choices) for learner, channel in pairs)

    def copy(self) -> Self:
        return type(self)([learner.copy() for learner in self.learners], self.schema)

    def describe(self) -> dict[str, Any]:
        each = [learner.describe() for learner in self.learners]
        lost = {"lost_energy": [of["lost_energy"] for of in each]} if "lost_energy" in each[0] else {}
        return {**each[0], "n_features": self.n_features, **lost}

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        states = [learner.to_state(with_sample=with_sample) for learner in self.learners]
        headers, arrays = joined_states(states)
        return {"estimators": headers}, arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        states = parted_states(header["estimators"], arrays)
        learners = [learner_from_state(*state) for state in states]
        for name in ("n_features", "n_rows", "group_counts", "solver", "dtype"):
            same = all(getattr(one, name) == getattr(learners[0], name) for one in learners)
            checked(same, f"{name} of the channels")
        return cls(learners)


def channel_columns(X: Matrix, columns: slice) -> Matrix:
    """Return some columns: a view of an array, which costs nothing, and a copy of a sparse matrix."""
    return X if columns.stop - columns.start == X.shape[1] else X[:, columns]
