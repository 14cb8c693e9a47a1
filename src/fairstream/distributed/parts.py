"""Parts of a data set that one worker reads on its own: slices of files, lists of images, blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fairstream.blocks import Block, BlockSource, encode_groups
from fairstream.sources import open_source
from fairstream.sources.arrays import FileRows, MatrixSource
from fairstream.sources.rows import cut_block
from fairstream.sources.stores import HDF5Store, StoreSource, ZarrStore, array_names

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


@dataclass(frozen=True)
class WholePart:
    """A source or path that is read from front to back by one worker."""

    data: Any
    options: Options = field(default_factory=dict)
    n_rows: int | None = None
    inputs: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        return str(self.data) if isinstance(self.data, str | Path) else f"the {type(self.data).__name__}"

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        if isinstance(self.data, BlockSource):
            return self.data
        return open_source(self.data, **encoded_alike(self.options, encoding))


@dataclass(frozen=True)
class NpyPart:
    """Rows start..stop of a .npy file."""

    path: str
    start: int
    stop: int
    options: Options
    inputs: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        return f"rows {self.start:,} to {self.stop - 1:,} of {self.path}"

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        rows = FileRows.from_header(self.path)
        if rows.fortran:
            # Column by column on disk: only a mapping reaches some rows without reading the others.
            return open_source(np.load(self.path, mmap_mode="r")[self.start : self.stop], **self.options)
        shape = (self.n_rows, *rows.shape[1:])
        own = dataclasses.replace(rows, shape=shape, offset=rows.offset + self.start * rows.row_bytes)
        options = dict(self.options)
        return MatrixSource(own, options.pop("block_size", None), **options)


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a Parquet file."""

    path: str
    row_groups: tuple[int, ...]
    n_rows: int
    options: Options
    inputs: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        first, last = self.row_groups[0], self.row_groups[-1]
        groups = f"row group {first}" if first == last else f"row groups {first} to {last}"
        return f"{groups} of {self.path}"

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        import pyarrow as pa
        import pyarrow.parquet

        file = pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)
        wanted = {column["name"] for column in (encoding or {}).get("columns", ())}
        for role in ("sensitive", "target"):
            named = self.options.get(role) or ()
            wanted |= {named} if isinstance(named, str) else set(named)
        present = [name for name in file.schema_arrow.names if name in wanted]
        schema = pa.schema([file.schema_arrow.field(name) for name in present])
        batches = file.iter_batches(65_536, row_groups=list(self.row_groups), columns=present)
        stream = pa.RecordBatchReader.from_batches(
            schema, (pa.record_batch(batch.select(present).columns, schema=schema) for batch in batches)
        )
        return open_source(stream, **encoded_alike(self.options, encoding))


@dataclass(frozen=True)
class StorePart:
    """Rows start..stop of an array in a Zarr store or HDF5 file, with its sibling arrays."""

    store: HDF5Store | ZarrStore
    start: int
    stop: int
    options: Options
    inputs: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        return f"rows {self.start:,} to {self.stop - 1:,} of {self.store.place}"

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        within: Any = _StoreRows(self.store, self.start, self.stop)
        options = dict(self.options)
        groups = options.pop("groups", None)
        source = StoreSource(within, **options)
        return source if groups is None else _with_groups(source, groups)


@dataclass(frozen=True)
class ImagePart:
    """Some images of a folder or archive, with their labels."""

    path: str
    names: tuple[str, ...]
    options: Options
    inputs: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        return f"images {self.names[0]} to {self.names[-1]} of {self.path}"

    @property
    def n_rows(self) -> int | None:
        return len(self.names) if self.options.get("on_error", "raise") == "raise" else None

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource:
        return open_source(Path(self.path), names=list(self.names), **self.options)


@dataclass(frozen=True)
class TaskPart:
    """A block that another task yields: rows alone, rows and labels, a Block, or a frame."""

    place: str
    inputs: tuple[Any, ...]  # the block, and its labels where they come apart from it
    options: Options
    n_rows: int | None = None

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
            options["sensitive"] = encode_groups(labels, n_rows)
        if n_rows == 0:
            return None
        is_frame = not isinstance(held, np.ndarray) and not sp.issparse(held)
        return open_source(held, **(encoded_alike(options, encoding) if is_frame else options))


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


def _with_groups(source: BlockSource, groups: Any) -> BlockSource:
    from fairstream.sources.labels import LabelledSource

    return LabelledSource(source, groups, source.n_rows or 0)


class _StoreRows:
    """A store that shows only some rows of its arrays."""

    def __init__(self, store: HDF5Store | ZarrStore, start: int, stop: int) -> None:
        self.place = store.place
        self._store, self._start, self._stop = store, start, stop

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield the group or array, cut."""
        with self._store.reading() as opened:
            names = array_names(opened)
            if names is None:
                yield _ArrayRows(opened, self._start, self._stop)
            else:
                yield _GroupRows(opened, names, self._start, self._stop)


class _GroupRows:
    """A group whose arrays show only some rows."""

    def __init__(self, group: Any, names: list[str], start: int, stop: int) -> None:
        self._group, self._names, self._start, self._stop = group, names, start, stop

    def array_keys(self) -> list[str]:
        """List the arrays."""
        return self._names

    def __getitem__(self, name: str) -> _ArrayRows:
        return _ArrayRows(self._group[name], self._start, self._stop)


class _ArrayRows:
    """Rows start..stop of a stored array, read when asked for."""

    def __init__(self, array: Any, start: int, stop: int) -> None:
        self._array, self._start = array, start
        self.shape = (min(stop, int(array.shape[0])) - start, *array.shape[1:])
        self.dtype = array.dtype
        self.chunks, self.shards = getattr(array, "chunks", None), getattr(array, "shards", None)

    def __getitem__(self, rows: slice) -> Any:
        return self._array[self._start + rows.start : self._start + rows.stop]
