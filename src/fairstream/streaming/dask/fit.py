"""Fits on a Dask cluster: workers read and summarise, summaries merge in a fixed order."""

from __future__ import annotations

import zlib
from typing import Any

from fairstream.data.dask_collections import named_errors
from fairstream.data.other_libraries import comes_from_dask
from fairstream.data.progress import Progress
from fairstream.estimators.base import FairEstimator
from fairstream.estimators.learner import Learner
from fairstream.streaming.checkpoint import Keeper, environment_of
from fairstream.streaming.checkpoint_folder import FitState
from fairstream.streaming.dask.clients import check_installed, connected, explained_failures
from fairstream.streaming.dask.partitioning import Partitioned, cut, opened
from fairstream.streaming.dask.parts import Part
from fairstream.streaming.dask.power_rounds import power_rounds
from fairstream.streaming.dask.reducing import reduce_parts
from fairstream.streaming.dask.run import ClusterFit
from fairstream.streaming.dask.schema import SharedSchema, shared_schema


def learned_on_cluster(
    source: Any,
    estimator: FairEstimator,
    client: Any,
    partition_rows: int | None,
    keeper: Keeper | None,
    progress: Progress | None,
) -> Learner:
    """Return what an estimator learns from a source, a path or a list of them on a cluster.

    Exact moments equal those of a single-process fit to rounding. A sketch depends on how the data is cut,
    but, as everything here, not on the number of workers. A worker that dies is replaced or its work done by
    others, with the same result. A worker holds one block and a few summaries, O(block + d rank).
    docs/howto/scaling.md has the rest.
    """
    check_installed()
    sources = opened(source, estimator.roles())
    for one in sources:
        if not comes_from_dask(one):  # which would have to be computed here
            estimator.check_source(one)
    data = cut(sources, partition_rows)
    with connected(client) as running:
        with explained_failures(running, "before the first partition was read"):
            data, schema = shared_schema(running, data)
            schema = schema.intersected(estimator.intersections)
        estimator.check_source(schema)
        state = FitState() if keeper is None else _resumed(keeper, data, schema)
        fit = ClusterFit(running, estimator, data, schema, state, keeper, progress)
        learner = power_rounds(fit) if estimator.solver == "power" else _merged_moments(fit)
    learner.schema = schema.columns
    return learner


def _resumed(keeper: Keeper, data: Partitioned, schema: SharedSchema) -> FitState:
    """Return the state of the newest checkpoint, or an empty one; refuse the checkpoint of other data."""
    found = keeper.begin(schema, environment_of(None), {"partitions": len(data.parts), "rows": data.n_rows})
    # What is known of the data without reading it again: its first rows, and the lengths of the partitions.
    lengths = zlib.crc32(repr([part.n_rows for part in data.parts]).encode())
    digest = {**schema.first_rows, "partitions": lengths}
    if found is not None and found.digest not in (None, digest):
        raise ValueError(
            f"the partitions or their first rows are not those that {found.path.name} was learned from: "
            "resume with the same data in the same order, or begin anew in another folder"
        )
    state = FitState() if found is None else found.state
    state.digest = digest
    return state


def _merged_moments(fit: ClusterFit) -> Learner:
    """Return the moments of all parts, merged window by window, and kept on disk as they grow."""
    state, parts, head = fit.state, fit.data.parts, fit.schema.head
    learner: Learner = state.learner or fit.estimator.new_learner(head.X, head.groups or None)
    state.learner, learner.schema = learner, fit.schema.columns
    with fit.keeping() as pending:
        shared = (fit.schema, fit.estimator)
        windows = reduce_parts(fit.client, parts, _summarise, _merge, shared, state.done, pending)
        while state.done < len(parts):
            with fit.failures(f"after {state.done:,} of {len(parts):,} partitions"):
                done, (rows, summary) = next(windows)
            learner.merge(summary)
            state.rows, state.done = state.rows + rows, done
            fit.advanced()
    return learner


# On the workers -----------------------------------------------------------------------------------------


def _summarise(
    part: Part, index: int, schema: SharedSchema, estimator: FairEstimator, inputs: Any
) -> tuple[int, Learner]:
    """Return the number of rows of one part, and what is learned from them."""
    learner = estimator.empty_learner(schema.head.X, schema.head.groups or None)
    rows = 0
    with named_errors(part, index):
        for block in schema.blocks(part, inputs):
            learner.update(block.X, block.groups, block.weights, estimator.kept_target(block.target))
            rows += block.n_rows
    return rows, learner


def _merge(summaries: list[tuple[int, Learner]]) -> tuple[int, Learner]:
    """Return the merged summaries; Dask keeps the originals, which must not change."""
    merged = summaries[0][1].copy()
    for _, other in summaries[1:]:
        merged.merge(other)
    return sum(rows for rows, _ in summaries), merged
