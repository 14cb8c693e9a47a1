"""Part: some rows of the data that one worker reads on its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fairstream.data.blocks import BlockSource
from fairstream.data.dask_collections import RowsOfPart

Options = Mapping[str, Any]


class Part(Protocol):
    """Some consecutive rows of the data, small to send, opened where they are read.

    `SourcePart` is one, and so is the `TaskPart` of a Dask collection.
    """

    @property
    def place(self) -> str:
        """What messages call it."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only reading would tell."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Results of other tasks that opening needs: delayed objects or futures."""

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource | None:
        """Return the rows as a source, None if there are none."""

    def rows(self, start: int, stop: int) -> Part:
        """Return some of the rows."""

    def unsettled(self, encoding: Options | None) -> list[str]:
        """List the columns whose categories only a look at all parts tells."""


@dataclass(frozen=True)
class SourcePart:
    """A source, whole or a part of one, that a worker reads from front to back."""

    source: BlockSource
    place: str
    inputs: tuple[Any, ...] = ()

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        return self.source

    def rows(self, start: int, stop: int) -> Part:
        if getattr(self.source, "cuts", None) is None:
            return RowsOfPart(self, start, stop, ())
        divisible: Any = self.source
        place = f"{self.place}, of them rows {start:,} to {stop - 1:,}"
        return SourcePart(divisible.part(start, stop), place)

    def unsettled(self, encoding: Options | None) -> list[str]:
        return []  # a source knows all its categories


def without_inputs(part: Any, inputs: tuple[Any, ...] = ()) -> Any:
    """Return the part without its inputs, or with others: they travel as arguments of its task."""
    return dataclasses.replace(part, inputs=inputs)
