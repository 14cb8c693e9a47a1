"""The power method on a Dask cluster: in every step the basis goes out and sums of products come back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairstream.data.blocks import Block
from fairstream.data.dask_collections import named_errors
from fairstream.errors import NotEnoughGroupsError
from fairstream.estimators.learner import Learner, PowerLearner, new_power_method, working_dtype
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.power import FairPowerMethod
from fairstream.power.method import PartialSums
from fairstream.streaming.dask.clients import explained_failures
from fairstream.streaming.dask.keeping import Keeper, Standing, kept
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.parts import Part, without_inputs
from fairstream.streaming.dask.reducing import finished, futures_of, reduce_parts
from fairstream.streaming.dask.schema import SharedSchema
from fairstream.streaming.fit import Progress
from fairstream.streaming.signals import PendingSignal


def power_rounds(
    client: Any,
    estimator: FairStreamingPCA,
    data: Partitioned,
    schema: SharedSchema,
    keeper: Keeper | None,
    progress: Progress | None,
) -> Learner:
    """Return the power method after all its steps: over all rows each, or over consecutive blocks of rows."""
    rounds = _Rounds(client, data, schema)
    whole = estimator.block_size is None
    with explained_failures(client, "before the first power step"):
        head = rounds.head()
        ranges = None if whole else _RowRanges(data.parts, rounds.row_counts())
        standing = Standing(PowerLearner(_new_method(estimator, schema)))
        standing = standing if keeper is None else keeper.taken_up(standing)
        if not standing.done:
            standing.learner = PowerLearner(_with_groups(estimator, schema, rounds, ranges))
    total = data.n_rows
    if ranges is not None:
        ranges.take(standing.rows)
    with kept(keeper, standing) as pending:
        rounds.pending = pending
        while standing.done < _method_of(standing).plan.total_steps if ranges is None else ranges.left:
            way_on = "" if keeper is None or not standing.rows else keeper.way_on
            with explained_failures(client, f"in power step {standing.done + 1}{way_on}"):
                _step(rounds, standing, head, ranges)
            if keeper is not None and whole:
                keeper.write(standing)
            elif keeper is not None:
                keeper.write_now_and_then(standing)
            if progress is not None:
                steps = _method_of(standing).plan.total_steps if whole else 1
                progress(standing.rows, None if total is None else total * steps)
    return standing.learner


def _step(rounds: _Rounds, standing: Standing, head: Any, ranges: _RowRanges | None) -> None:
    """Take one step; where it fails, the fit stands where it stood before."""
    method = _method_of(standing).copy()
    size = None if ranges is None else method.plan.block_rows(standing.done)
    method.open_step(head)
    sums = rounds.sums(method, ranges.take(size or 0) if ranges is not None else None)
    method.add_partial(sums)
    if size is None or sums.counts[0] == size:
        method.end_partial_step()
    standing.learner, standing.done = PowerLearner(method), standing.done + 1
    standing.rows += int(sums.counts[0])


def _with_groups(
    estimator: FairStreamingPCA, schema: SharedSchema, rounds: _Rounds, ranges: _RowRanges | None
) -> FairPowerMethod:
    """Return the method with the groups that the rows of its first step have."""
    if not schema.has_groups:
        return _new_method(estimator, schema)
    size = _new_method(estimator, schema).plan.block_rows(0)
    groups = rounds.labels(None if ranges is None else ranges.take(size or 0))
    if ranges is not None:
        ranges.rewind()
    return _new_method(estimator, schema, _declared(groups, estimator.constraint))


def _method_of(standing: Standing) -> FairPowerMethod:
    return standing.learner.power


def _new_method(
    estimator: FairStreamingPCA, schema: SharedSchema, groups: dict[str, Any] | None = None
) -> FairPowerMethod:
    method = new_power_method(
        estimator.get_params(deep=False), schema.n_features, working_dtype(schema.head.X.dtype), groups
    )
    method.schema = schema.columns
    return method


def _declared(groups: dict[str, set[Any]], constraint: str) -> dict[str, Any] | None:
    """Return the groups to follow; without a constraint they are only counted, and only where they differ."""
    small = [attribute for attribute, labels in groups.items() if len(labels) < 2]
    if small and constraint != "none":
        raise NotEnoughGroupsError(
            f"the rows of the first step have {len(groups[small[0]])} group of {small[0]!r}, two are needed: "
            "take a larger block_size, shuffle the rows, or drop the attribute"
        )
    return dict(groups) if groups and not small else None


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
            self._parts if parts is None else parts, _find_labels, _united
        )
        return found

    def sums(self, method: FairPowerMethod, parts: Sequence[Part] | None) -> PartialSums:
        """Return the sums of one step."""
        with warnings.catch_warnings():
            # The basis is a task of its own, not scattered data: a task lost with a worker is done again.
            warnings.filterwarnings("ignore", "Sending large graph")
            basis = self._client.submit(_same, method, pure=False)
        parts = self._parts if parts is None else parts
        sums: PartialSums = self._reduce(parts, _add_up, _summed, basis)
        return sums

    def _reduce(
        self, parts: Sequence[Part], work: Callable[..., Any], merge: Callable[..., Any], *shared: Any
    ) -> Any:
        shared = (self._schema, *shared)
        windows = reduce_parts(self._client, parts, work, merge, shared, pending=self.pending)
        return merge([result for _, result in windows])


class _RowRanges:
    """Hands out consecutive rows as parts, so many at a time."""

    def __init__(self, parts: Sequence[Part], counts: list[int]) -> None:
        self._parts, self._counts = parts, counts
        self.rewind()

    def rewind(self) -> None:
        """Begin again at the first row."""
        self._at, self.left = 0, sum(self._counts)

    def take(self, n_rows: int) -> list[Part]:
        """Return the next `n_rows` rows, or what is left of them."""
        start, stop = self._at, self._at + min(n_rows, self.left)
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


def _blocks(part: Part, schema: SharedSchema, inputs: Any) -> Any:
    return schema.blocks(part, inputs)


def _head(part: Part, encoding: Any, inputs: Any) -> Any:
    return next(block.X[:64] for block in part.open(tuple(inputs), encoding) or () if block.n_rows)


def _same(method: FairPowerMethod) -> FairPowerMethod:
    return method


def _add_up(
    part: Part, index: int, schema: SharedSchema, method: FairPowerMethod, inputs: Any
) -> PartialSums:
    with named_errors(part, index):
        return method.partial_sums(_blocks(part, schema, inputs))


def _summed(parts: list[PartialSums]) -> PartialSums:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _find_labels(part: Part, index: int, schema: SharedSchema, inputs: Any) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {attribute: set() for attribute in schema.head.groups}
    with named_errors(part, index):
        block: Block
        for block in _blocks(part, schema, inputs):
            for attribute, column in block.groups.items():
                present = np.unique(column.codes[column.codes >= 0])
                found[attribute] |= {column.labels[code] for code in present.tolist()}
    return found


def _united(parts: list[dict[str, set[Any]]]) -> dict[str, set[Any]]:
    return {attribute: set().union(*(part[attribute] for part in parts)) for attribute in parts[0]}


def _count_rows(part: Part, index: int, schema: SharedSchema, inputs: Any) -> list[int]:
    with named_errors(part, index):
        return [sum(block.n_rows for block in _blocks(part, schema, inputs))]


def _joined(parts: list[list[int]]) -> list[int]:
    return [count for part in parts for count in part]
