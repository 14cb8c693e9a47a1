"""The reader behind the table source for a Parquet file: row groups, and only the columns asked for."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fairstream.data.data_files import DataFile
from fairstream.data.file_streams import opened
from fairstream.data.table_readers import READ_ROWS, Typed, reading

try:
    import pyarrow as pa
    import pyarrow.parquet
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pyarrow = None

_BUFFER = 2**18


class _RowGroup(NamedTuple):
    """Rows start..stop of one row group."""

    number: int
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class _Footer(NamedTuple):
    """What the footer of a file says."""

    schema: Any
    n_rows: int
    row_groups: tuple[_RowGroup, ...]


class ParquetReader(Typed):
    """One Parquet file, read row group by row group. The footer is read when it is first needed."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self.place = file.place
        self._known: _Footer | None = None
        self._chosen: tuple[_RowGroup, ...] | None = None

    @property
    def schema(self) -> Any:
        """Columns and their types."""
        return self._footer().schema

    @property
    def n_rows(self) -> int:
        """Sum of the row counts in the footer."""
        return sum(group.n_rows for group in self._row_groups())

    @property
    def cuts(self) -> list[int]:
        """Rows that a part may begin at: those that begin a row group."""
        return list(itertools.accumulate((group.n_rows for group in self._row_groups()), initial=0))

    def part(self, start: int, stop: int) -> ParquetReader:
        """Return rows start..stop; row groups without any of them are not read."""
        kept = []
        for group, at in zip(self._row_groups(), self.cuts, strict=False):
            first, last = max(start - at, 0), min(stop - at, group.n_rows)
            if first < last:
                kept.append(group._replace(start=group.start + first, stop=group.start + last))
        other = copy.copy(self)
        other._chosen = tuple(kept)
        return other

    def beside(self, file: DataFile) -> ParquetReader:
        """Return a reader of another file."""
        return ParquetReader(file)

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches in order."""
        groups = self._row_groups()
        if not groups:
            return
        try:
            with self._opened() as file, reading(self.place):
                yield from self._rows_of(file, groups, columns)
        finally:
            pa.default_memory_pool().release_unused()  # the buffers of many columns: 180 MB of 256

    def _row_groups(self) -> tuple[_RowGroup, ...]:
        return self._footer().row_groups if self._chosen is None else self._chosen

    def _footer(self) -> _Footer:
        if self._known is None:
            with self._opened() as file:
                about = file.metadata
                sizes = [about.row_group(number).num_rows for number in range(about.num_row_groups)]
                groups = tuple(_RowGroup(number, 0, size) for number, size in enumerate(sizes) if size)
                self._known = _Footer(file.schema_arrow.remove_metadata(), about.num_rows, groups)
        return self._known

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        # Column by column through small buffers: a row group may be larger than memory. This is why files
        # are not read with pyarrow.dataset, which decodes whole row groups. Behind a URL every read costs a
        # request, so there a column of a row group is one read.
        buffer = _BUFFER if self._file.storage is None else 0
        with reading(self.place), opened(self._file) as handle:
            yield pyarrow.parquet.ParquetFile(handle, pre_buffer=False, buffer_size=buffer)

    def _rows_of(self, file: Any, groups: Sequence[_RowGroup], columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of consecutive row groups, of which the first and the last may be cut."""
        expected, found = self._footer().n_rows, file.metadata.num_rows
        if found != expected:
            raise ValueError(
                f"{self.place} had {expected:,} rows and now has {found:,}: "
                "it must not change while it is read"
            )
        passed, kept = groups[0].start, sum(group.n_rows for group in groups)
        numbers = [group.number for group in groups]
        threads = self._file.storage is None  # what comes from Python is read by one thread at a time
        for batch in file.iter_batches(READ_ROWS, row_groups=numbers, columns=columns, use_threads=threads):
            rows = batch.slice(passed, kept)
            passed, kept = max(passed - batch.num_rows, 0), kept - rows.num_rows
            if rows.num_rows:
                yield rows
            if not kept:
                return
