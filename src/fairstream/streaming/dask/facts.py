"""What all partitions must agree on, learned from the first rows and checked in every block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairstream.data.blocks import Block
from fairstream.data.cutting import cut_block
from fairstream.data.row_digest import RowDigest
from fairstream.data.schema import Schema
from fairstream.estimators.learner import working_dtype
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.parts import Part, named_errors, without_inputs
from fairstream.streaming.dask.reducing import finished, futures_of

DIGESTED_ROWS = 64


@dataclass(frozen=True)
class Facts:
    """What all partitions must agree on, as seen in the first one that has rows."""

    part: int
    n_features: int
    dtype: str
    labels: Mapping[str, tuple[Any, ...]]
    feature_names: tuple[str, ...] | None
    encoding: Mapping[str, Any] | None
    head: Block  # no row of it, only its types
    first_rows: Mapping[str, Any]  # a digest of a few of them

    @property
    def schema(self) -> Schema:
        """What the columns are called, and how those of a table became them."""
        return Schema(self.feature_names, self.encoding)

    def check(self, block: Block) -> None:
        """Refuse a block that does not go with the first one."""
        if block.X.shape[1] != self.n_features:
            raise ValueError(
                f"it has {block.X.shape[1]} columns, partition {self.part} has {self.n_features}: give all "
                "partitions the same columns"
            )
        if block.groups.keys() != self.labels.keys():
            raise ValueError(
                f"it has the attributes {[*block.groups]}, partition {self.part} has {[*self.labels]}: give "
                "all partitions the same sensitive features (None where a label is unknown)"
            )
        if np.dtype(working_dtype(block.X.dtype)).itemsize > np.dtype(self.dtype).itemsize:
            raise ValueError(
                f"it has dtype {block.X.dtype}, partition {self.part} has {self.head.X.dtype}, which is less "
                "precise: cast all partitions to one dtype"
            )


def look_at_first_rows(client: Any, data: Partitioned) -> tuple[Partitioned, Facts]:
    """Return the facts of the first partition with rows; its block, if a task made it, is kept for later."""
    parts = list(data.parts)
    for index, part in enumerate(parts):
        inputs = tuple(futures_of(client, part.inputs))
        asked = (without_inputs(part), index, data.encoding, inputs)
        facts = finished(client, client.submit(_look, *asked, pure=False))
        if facts is not None:
            parts[index] = without_inputs(part, inputs)
            return Partitioned(parts, facts.encoding), facts
    raise ValueError("X has no rows: nothing was learned")


def _look(part: Part, index: int, encoding: Any, inputs: Any) -> Facts | None:
    with named_errors(part, index):
        source = part.open(tuple(inputs), encoding)
        for block in source or ():
            if block.n_rows == 0:
                continue
            digest = RowDigest()
            digest.update(cut_block(block, 0, min(block.n_rows, DIGESTED_ROWS)))
            return Facts(
                index,
                int(block.X.shape[1]),
                np.dtype(working_dtype(block.X.dtype)).name,
                {name: column.labels for name, column in block.groups.items()},
                source.feature_names if source is not None else None,
                getattr(source, "encoding", None),
                Block(block.X[:0], {name: column.take(slice(0, 0)) for name, column in block.groups.items()}),
                digest.to_json(),
            )
    return None
