"""The reader behind the table source for Arrow IPC: files, which are Feather files, and streams in files."""

from __future__ import annotations

import copy
import itertools
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from fairstream.data.data_files import DataFile
from fairstream.data.file_streams import opened
from fairstream.data.table_readers import READ_ROWS, Typed, reading

try:
    import pyarrow as pa
    import pyarrow.ipc
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pyarrow = None

_MAGIC = b"ARROW1"
_STREAM_AT = 8  # a file is the magic, padded, then a stream, then an index of its record batches
_READ_BYTES = 2**25


class ArrowReader(Typed):
    """An Arrow IPC file, or a stream that was written to a file.

    A local file is mapped, since a record batch of it may be larger than memory. Its pages are left as soon
    as they have been read, so that the process does not grow with the file.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self.place = file.place
        self._span: tuple[int, int] | None = None

    @cached_property
    def schema(self) -> Any:
        """Columns and their types."""
        with self._opened([]) as (reader, _):
            return reader.schema.remove_metadata()

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None for a stream, which has no index."""
        cuts = self.cuts
        return None if cuts is None else cuts[-1]

    @property
    def cuts(self) -> list[int] | None:
        """Rows that a part may begin at: those that begin a record batch. None for a stream."""
        if self._ends is None:
            return None
        start, stop = self._span or (0, self._ends[-1])
        inner = [cut - start for cut in self._ends if start < cut < stop]
        return [0, *inner, stop - start] if start < stop else [0]

    def part(self, start: int, stop: int) -> ArrowReader:
        """Return rows start..stop; record batches without any of them are not read."""
        offset, _ = self._span or (0, 0)
        other = copy.copy(self)
        other._span = (offset + start, offset + stop)
        return other

    def beside(self, file: DataFile) -> ArrowReader:
        """Return a reader of another file."""
        return ArrowReader(file)

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches in order, cut to a moderate size."""
        fields = sorted(self.schema.get_field_index(name) for name in columns)
        with self._opened(fields) as (reader, mapped):
            for batch in self._chosen(reader):
                rows = batch.select(list(columns))
                step = max(1, min(READ_ROWS, _READ_BYTES * rows.num_rows // max(rows.nbytes, 1)))
                for start in range(0, rows.num_rows, step):
                    yield rows.slice(start, step)
                    if mapped is not None:
                        mapped.leave_pages()

    def _chosen(self, reader: Any) -> Iterator[Any]:
        if self._ends is None:
            yield from reader
            return
        first, last = self._span or (0, self._ends[-1])
        for number, (start, stop) in enumerate(itertools.pairwise(self._ends)):
            begin, end = max(first, start), min(last, stop)
            if begin < end:
                yield reader.get_batch(number).slice(begin - start, end - begin)

    @cached_property
    def _ends(self) -> list[int] | None:
        """Rows at which the record batches end, from one narrow column of each; None for a stream."""
        narrow = [j for j, field in enumerate(self.schema) if pa.types.is_primitive(field.type)]
        with self._opened(narrow[:1]) as (reader, _):
            if not hasattr(reader, "get_batch"):
                return None
            sizes = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
        return list(itertools.accumulate(sizes, initial=0))

    @contextmanager
    def _opened(self, fields: list[int]) -> Iterator[tuple[Any, _MappedFile | None]]:
        """Open the file; yield a reader of some fields, and the map of the file if it is a local one."""
        options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
        with reading(self.place), self._handle() as (handle, mapped):
            if handle.read(len(_MAGIC)) != _MAGIC:
                open_ipc = pyarrow.ipc.open_stream
            else:
                open_ipc = pyarrow.ipc.open_file
                if mapped is not None and mapped.is_used_in_place(fields):
                    options = pyarrow.ipc.IpcReadOptions()  # a choice of fields would be copied
            handle.seek(0)
            with open_ipc(handle, options=options) as reader:
                yield reader, mapped

    @contextmanager
    def _handle(self) -> Iterator[tuple[Any, _MappedFile | None]]:
        if self._file.storage is not None:
            with opened(self._file) as handle:
                yield handle, None
        else:
            mapped = _MappedFile(self._file.path)
            yield pa.BufferReader(mapped.whole), mapped


class _MappedFile:
    """A local Arrow file in memory: `whole` is its bytes."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            empty = not os.fstat(file.fileno()).st_size  # such a file cannot be mapped
            self._pages = None if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.whole = pa.py_buffer(b"" if self._pages is None else self._pages)

    def is_used_in_place(self, fields: list[int]) -> bool:
        """Whether Arrow takes values from where they are mapped, since they are not compressed."""
        options = pyarrow.ipc.IpcReadOptions(included_fields=fields[:1])
        first, last = self.whole.address, self.whole.address + self.whole.size
        with pyarrow.ipc.open_stream(self.whole.slice(_STREAM_AT), options=options) as stream:
            columns = [column for batch in itertools.islice(stream, 1) for column in batch.columns[:1]]
        buffers = [part for column in columns for part in column.buffers()]
        return all(not part or first <= part.address < last for part in buffers)

    def leave_pages(self) -> None:
        """Let go of the pages; those that are looked at again come back from the system's cache."""
        if self._pages is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._pages.madvise(mmap.MADV_DONTNEED)
