"""The power method on a Dask cluster: in every step the basis goes out and sums of products come back."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

from fairstream.data.blocks import Block
from fairstream.data.dask_collections import named_errors, united
from fairstream.errors import NotEnoughGroupsError
from fairstream.estimators.learner import Learner, StepLearner
from fairstream.estimators.solvers import reads_whole_steps
from fairstream.power.method import PartialSums
from fairstream.streaming.checkpoint_folder import FitState
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.parts import Part, without_inputs
from fairstream.streaming.dask.reducing import finished, futures_of, reduce_parts
from fairstream.streaming.dask.run import ClusterFit
from fairstream.streaming.dask.schema import SharedSchema
from fairstream.streaming.signals import PendingSignal


def power_rounds(fit: ClusterFit) -> Learner:
    """Return the power method after all its steps: over all rows each, or over consecutive blocks of rows."""
    if fit.schema.head.weights is not None:
        raise ValueError("sample_weight is not part of the power method: use solver 'exact' or 'sketch'")
    state, rounds = fit.state, _Rounds(fit.client, fit.data, fit.schema)
    whole = reads_whole_steps(fit.estimator.settings())
    with fit.failures("before the first power step"):
        head = rounds.head()
        ranges = None if whole else _RowRanges(fit.data.parts, rounds.row_counts())
        if state.learner is None:
            state.learner = _new_learner(fit, rounds, ranges)
    if ranges is not None:
        ranges.take(state.rows)
    passes = state.learner.passes
    with fit.keeping() as pending:
        rounds.pending = pending
        while state.done < passes if ranges is None else ranges.left:
            with fit.failures(f"in power step {state.done + 1}"):
                _step(rounds, state, head, ranges)
            fit.advanced(passes, 0.0 if whole else None)
    learned: Learner = state.learner
    return learned


def _step(rounds: _Rounds, state: FitState, head: Any, ranges: _RowRanges | None) -> None:
    """Take one step; one that fails leaves the fit as it was."""
    learner = state.learner.copy()
    parts = None if ranges is None else ranges.take(learner.step_rows)
    learner.open_step(head)
    sums = rounds.sums(learner, parts)
    learner.close_step(sums)
    state.learner, state.done = learner, state.done + 1
    state.rows += int(sums[0].counts[0])


def _new_learner(fit: ClusterFit, rounds: _Rounds, ranges: _RowRanges | None) -> StepLearner:
    """Return a learner that knows the groups of the rows of its first step."""
    head = fit.schema.head
    learner = cast(StepLearner, fit.estimator.new_learner(head.X, head.groups or None))
    learner.schema = fit.schema.columns
    if not head.groups:
        return learner
    groups = rounds.labels(None if ranges is None else ranges.take(learner.step_rows))
    if ranges is not None:
        ranges.rewind()
    small = [attribute for attribute, labels in groups.items() if len(labels) < 2]
    if small and fit.estimator.constraint != "none":
        raise NotEnoughGroupsError(
            f"the rows of the first step have {len(groups[small[0]])} group of {small[0]!r}, two are needed: "
            "take a larger step_rows, shuffle the rows, or drop the attribute"
        )
    if not small:  # without a constraint groups are only counted, and only if there are several
        learner.declare(groups)
    return learner


class _Rounds:
    """What is asked of all workers, over some parts or all of them."""

    def __init__(self, client: Any, data: Partitioned, schema: SharedSchema) -> None:
        self._client, self._parts, self._schema = client, data.parts, schema
        self.pending: PendingSignal | None = None

    def head(self) -> Any:
        """Return the first rows of the data."""
        part = self._parts[self._schema.part]
        inputs = futures_of(self._client, part.inputs)
        asked = (without_inputs(part), self._schema.columns.encoding, inputs)
        return finished(self._client, self._client.submit(_head, *asked, pure=False))

    def row_counts(self) -> list[int]:
        """Return the rows of every part; those that do not know are read once."""
        counts = [part.n_rows for part in self._parts]
        asked = [index for index, n_rows in enumerate(counts) if n_rows is None]
        merged = self._reduce([self._parts[index] for index in asked], _count_rows, _joined) if asked else []
        for index, n_rows in zip(asked, merged, strict=True):
            counts[index] = n_rows
        return [int(n_rows or 0) for n_rows in counts]

    def labels(self, parts: Sequence[Part] | None) -> dict[str, set[Any]]:
        """Return the groups that occur."""
        found: dict[str, set[Any]] = self._reduce(
            self._parts if parts is None else parts, _find_labels, united
        )
        return found

    def sums(self, learner: StepLearner, parts: Sequence[Part] | None) -> tuple[PartialSums, ...]:
        """Return the sums of one step, for each channel."""
        with warnings.catch_warnings():
            # The basis is a task of its own, not scattered data: a task lost with a worker is done again.
            warnings.filterwarnings("ignore", "Sending large graph")
            basis = self._client.submit(_same, learner, pure=False)
        parts = self._parts if parts is None else parts
        sums: tuple[PartialSums, ...] = self._reduce(parts, _add_up, _summed, basis)
        return sums

    def _reduce(
        self, parts: Sequence[Part], work: Callable[..., Any], merge: Callable[..., Any], *shared: Any
    ) -> Any:
        shared = (self._schema, *shared)
        windows = reduce_parts(self._client, parts, work, merge, shared, pending=self.pending)
        return merge([result for _, result in windows])


class _RowRanges:
    """Hands out consecutive rows as parts, a given number at a time."""

    def __init__(self, parts: Sequence[Part], counts: list[int]) -> None:
        self._parts, self._counts = parts, counts
        self.rewind()

    def rewind(self) -> None:
        """Begin again at the first row."""
        self._at, self.left = 0, sum(self._counts)

    def take(self, n_rows: int | None) -> list[Part]:
        """Return the next `n_rows` rows, or all that are left."""
        start, stop = self._at, self._at + min(n_rows or 0, self.left)
        taken: list[Part] = []
        first = 0
        for part, count in zip(self._parts, self._counts, strict=True):
            low, high = max(start - first, 0), min(stop - first, count)
            if low < high:
                taken.append(part.rows(low, high) if (low, high) != (0, count) else part)
            first += count
        self.left -= stop - start
        self._at = stop
        return taken


# On the workers -----------------------------------------------------------------------------------------


def _head(part: Part, encoding: Any, inputs: Any) -> Any:
    return next(block.X[:64] for block in part.open(tuple(inputs), encoding) or () if block.n_rows)


def _same(learner: StepLearner) -> StepLearner:
    return learner


def _add_up(part: Part, index: int, schema: SharedSchema, learner: StepLearner, inputs: Any) -> Any:
    with named_errors(part, index):
        return learner.partial_sums(schema.blocks(part, inputs))


def _summed(parts: list[tuple[PartialSums, ...]]) -> tuple[PartialSums, ...]:
    return tuple(reduce(operator.add, channel) for channel in zip(*parts, strict=True))


def _find_labels(part: Part, index: int, schema: SharedSchema, inputs: Any) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {attribute: set() for attribute in schema.head.groups}
    with named_errors(part, index):
        block: Block
        for block in schema.blocks(part, inputs):
            for attribute, column in block.groups.items():
                found[attribute].update(column.occurring())
    return found


def _count_rows(part: Part, index: int, schema: SharedSchema, inputs: Any) -> list[int]:
    with named_errors(part, index):
        return [sum(block.n_rows for block in schema.blocks(part, inputs))]


def _joined(parts: list[list[int]]) -> list[int]:
    return [count for part in parts for count in part]
