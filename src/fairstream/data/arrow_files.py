"""The reader behind the table source for Arrow IPC: files, which are Feather files, and streams in files."""

from __future__ import annotations

import copy
import itertools
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


class ArrowReader(Typed):
    """An Arrow IPC file, or a stream that was written to a file.

    A local file is mapped into memory, since a record batch of it may be larger than memory.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self.place = file.place
        self._span: tuple[int, int] | None = None

    @cached_property
    def schema(self) -> Any:
        """Columns and their types."""
        with self._opened([]) as reader:
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
        with self._opened(fields) as reader:
            for batch in self._chosen(reader):
                rows = batch.select(list(columns))
                for start in range(0, rows.num_rows, READ_ROWS):
                    yield rows.slice(start, READ_ROWS)

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
        with self._opened(narrow[:1]) as reader:
            if not hasattr(reader, "get_batch"):
                return None
            sizes = [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
        return list(itertools.accumulate(sizes, initial=0))

    @contextmanager
    def _opened(self, fields: list[int]) -> Iterator[Any]:
        with reading(self.place), self._mapped() as handle:
            head = handle.read(len(_MAGIC))
            handle.seek(0)
            options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
            open_ipc = pyarrow.ipc.open_file if head == _MAGIC else pyarrow.ipc.open_stream
            with open_ipc(handle, options=options) as reader:
                yield reader

    @contextmanager
    def _mapped(self) -> Iterator[Any]:
        if self._file.storage is not None:
            with opened(self._file) as handle:
                yield handle
            return
        with pa.memory_map(self._file.path) as handle:
            yield handle
