"""Parts of a data set that one worker reads on its own: parts of sources, and blocks that tasks yield."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fairstream.data import open_source
from fairstream.data.alignment import WAY_OUT, paired
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.cutting import cut_block
from fairstream.data.groups import encode_groups

Options = Mapping[str, Any]


class Part(Protocol):
    """Some consecutive rows of the data, small to send, opened where it is read."""

    @property
    def place(self) -> str:
        """What messages call it."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where only reading would tell."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Results of other tasks that opening needs: delayed objects or futures."""

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource | None:
        """Return the rows as a source, None where there are none."""

    def rows(self, start: int, stop: int) -> Part:
        """Return some of the rows."""


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


@dataclass(frozen=True)
class TaskPart:
    """A block that another task yields: rows alone, rows and labels, a Block, or a frame."""

    place: str
    inputs: tuple[Any, ...]  # the block, and its labels where they come apart from it
    options: Options
    n_rows: int | None = None
    way_out: str = WAY_OUT  # for labels whose index does not match

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource | None:
        held, labels = inputs
        if isinstance(held, Block):
            held, labels = held.X, (held.groups or labels)
        elif isinstance(held, tuple | list) and len(held) == 2:
            held, labels = held
        if not hasattr(held, "shape"):
            raise ValueError(
                f"it is a {type(held).__name__}: yield rows (an array, sparse matrix or frame), "
                "(rows, labels), or a Block"
            )
        n_rows = int(held.shape[0])
        options = dict(self.options)
        if labels is not None:
            options["sensitive"] = encode_groups(paired(labels, held, way_out=self.way_out), n_rows)
        if n_rows == 0:
            return None
        is_frame = not isinstance(held, np.ndarray) and not sp.issparse(held)
        return open_source(held, **(encoded_alike(options, encoding) if is_frame else options))

    def rows(self, start: int, stop: int) -> Part:
        return RowsOfPart(without_inputs(self), start, stop, self.inputs)


@dataclass(frozen=True)
class RowsOfPart:
    """Rows start..stop of another part, whose rows before them are read past."""

    part: Any
    start: int
    stop: int
    inputs: tuple[Any, ...]

    @property
    def place(self) -> str:
        return f"{self.part.place}, rows {self.start:,} to {self.stop - 1:,}"

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> Any:
        return self._cut(self.part.open(inputs, encoding))

    def rows(self, start: int, stop: int) -> Part:
        return RowsOfPart(self.part, self.start + start, self.start + stop, self.inputs)

    def _cut(self, blocks: Any) -> Iterator[Block]:
        at = 0
        for block in blocks:
            first, last = max(self.start - at, 0), min(self.stop - at, block.n_rows)
            if first < last:
                yield cut_block(block, first, last)
            at += block.n_rows
            if at >= self.stop:
                return


def without_inputs(part: Any, inputs: tuple[Any, ...] = ()) -> Any:
    """Return the part without its inputs, or with others: they travel as arguments of its task."""
    return dataclasses.replace(part, inputs=inputs)


@contextmanager
def named_errors(part: Part, index: int) -> Iterator[None]:
    """Say in an error which partition it comes from."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"partition {index} ({part.place}): {error}") from error
    except OSError as error:
        raise OSError(f"partition {index} ({part.place}): {error}") from error


def encoded_alike(options: Options, encoding: Options | None) -> dict[str, Any]:
    """Return the options with the encoding all parts share in place of those that would lead to one."""
    if encoding is None:  # not a table
        return dict(options)
    settled = ("features", "categories", "standardize", "impute", "keep_sensitive")
    kept = {name: value for name, value in options.items() if name not in settled}
    return kept | {"encoding": encoding}
