"""What all partitions must agree on: seen in the first rows, and checked in every block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairstream.data.blocks import Block
from fairstream.data.cutting import cut_block
from fairstream.data.dask_collections import categories_of, named_errors, united, with_categories
from fairstream.data.intersections import with_intersections
from fairstream.data.row_digest import RowDigest
from fairstream.data.schema import Schema
from fairstream.estimators.solvers import working_dtype
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.parts import Part, without_inputs
from fairstream.streaming.dask.reducing import finished, futures_of, reduce_parts

DIGESTED_ROWS = 64


@dataclass(frozen=True)
class SharedSchema:
    """What all partitions must agree on, as seen in the first one that has rows."""

    part: int
    head: Block  # no row of it, only its types and groups
    columns: Schema
    first_rows: Mapping[str, Any]  # a digest of a few of them
    intersections: Any = None  # attributes to combine, as the estimator names them

    def intersected(self, intersections: Any) -> SharedSchema:
        """Return a schema whose blocks have the groups of these intersections too."""
        return replace(self, head=_with_groups(self.head, intersections), intersections=intersections)

    @property
    def n_features(self) -> int:
        """Number of columns of every block."""
        return int(self.head.X.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, None if the data has none."""
        return self.columns.feature_names

    @property
    def encoding(self) -> Mapping[str, Any] | None:
        """How the columns of a table became features, None if the data is no table."""
        return self.columns.encoding

    def check(self, block: Block) -> None:
        """Refuse a block that does not match the first one."""
        if block.X.shape[1] != self.n_features:
            raise ValueError(
                f"it has {block.X.shape[1]} columns, partition {self.part} has {self.n_features}: give all "
                "partitions the same columns"
            )
        if block.groups.keys() != self.head.groups.keys():
            raise ValueError(
                f"it has the attributes {[*block.groups]}, partition {self.part} has {[*self.head.groups]}: "
                "give all partitions the same sensitive features (None for an unknown label)"
            )
        if (block.weights is None) != (self.head.weights is None):
            here, there = ("no weights" if of.weights is None else "weights" for of in (block, self.head))
            raise ValueError(
                f"it has {here}, partition {self.part} has {there}: give all partitions weights, or none"
            )
        ours, theirs = (np.dtype(working_dtype(X.dtype)) for X in (block.X, self.head.X))
        if ours.itemsize > theirs.itemsize:
            raise ValueError(
                f"it has dtype {block.X.dtype}, partition {self.part} has {self.head.X.dtype}, which is less "
                "precise: cast all partitions to one dtype"
            )

    def blocks(self, part: Part, inputs: Any) -> Any:
        """Yield the blocks of a part that hold rows, after checking them (on a worker)."""
        for block in part.open(tuple(inputs), self.columns.encoding) or ():
            if block.n_rows:
                block = _with_groups(block, self.intersections)
                self.check(block)
                yield block


def _with_groups(block: Block, intersections: Any) -> Block:
    """Return a block with the groups of intersections, if there are any."""
    if intersections is None:
        return block
    return replace(block, groups=with_intersections(block.groups, intersections) or {})


def shared_schema(client: Any, data: Partitioned) -> tuple[Partitioned, SharedSchema]:
    """Return the schema of the first partition with rows, with the categories of all partitions.

    Paths and sources know all categories already, from a first pass of their own. Of other frames every
    worker finds those of its partitions. The first block, if a task made it, is kept for later.
    """
    data, schema = _look_at_first_rows(client, data)
    encoding = schema.columns.encoding
    names = data.parts[schema.part].unsettled(encoding)
    if encoding is None or not names:
        return data, schema
    windows = reduce_parts(client, data.parts, _find_categories, united, (names,))
    found = united([categories for _, categories in windows])
    return _look_at_first_rows(client, Partitioned(data.parts, with_categories(encoding, found)))


def _look_at_first_rows(client: Any, data: Partitioned) -> tuple[Partitioned, SharedSchema]:
    parts = list(data.parts)
    for index, part in enumerate(parts):
        inputs = tuple(futures_of(client, part.inputs))
        asked = (without_inputs(part), index, data.encoding, inputs)
        schema = finished(client, client.submit(_look, *asked, pure=False))
        if schema is not None:
            parts[index] = without_inputs(part, inputs)
            return Partitioned(parts, schema.columns.encoding), schema
    raise ValueError("X has no rows: nothing was learned")


# On the workers -----------------------------------------------------------------------------------------


def _look(part: Part, index: int, encoding: Any, inputs: Any) -> SharedSchema | None:
    with named_errors(part, index):
        source = part.open(tuple(inputs), encoding)
        for block in source or ():
            if block.n_rows:
                digest = RowDigest()
                digest.update(cut_block(block, 0, min(block.n_rows, DIGESTED_ROWS)))
                return SharedSchema(index, cut_block(block, 0, 0), Schema.of(source), digest.to_json())
    return None


def _find_categories(part: Part, index: int, names: list[str], inputs: Any) -> dict[str, set[Any]]:
    with named_errors(part, index):
        return categories_of(part.open(tuple(inputs), None), names)
