"""The reader behind the table source for several files, which are read one after the other as one table."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from fairstream.data.arrow_columns import column_kind
from fairstream.data.cutting import closing_early
from fairstream.data.data_files import DataFile
from fairstream.data.file_search import FileSet
from fairstream.data.hive_keys import hive_keys
from fairstream.data.table_readers import TableReader

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None


class FileReader(TableReader, Protocol):
    """A reader of one file."""

    def beside(self, file: DataFile) -> FileReader:
        """Return a reader of another file of the same table; the file is not read yet."""


class FilesAsOne:
    """Several files of one kind, with the keys of their folders as columns after their own.

    The first file settles the columns and their types. The others must have these columns, of the same kind.

    Parameters
    ----------
    files : FileSet
    first : FileReader
        Of the first file.
    """

    one_shot = False

    def __init__(self, files: FileSet, first: FileReader) -> None:
        self.place = files.place
        self._first = first
        self.null_values, self.unread = first.null_values, first.unread
        self.without_rows, self.skips_rows = first.without_rows, first.skips_rows
        keys, values = hive_keys([found.folders for found in files.files], first.schema.names)
        readers = [first, *(first.beside(found.file) for found in files.files[1:])]
        self._parts: list[tuple[TableReader, Mapping[str, Any]]] = [*zip(readers, values, strict=True)]
        self.schema = pa.schema([*first.schema, *keys])

    @property
    def n_rows(self) -> int | None:
        """Sum of the rows of all files, None if one of them does not know."""
        total = 0
        for reader, _ in self._parts:
            rows = reader.n_rows
            if rows is None:
                return None
            total += rows
        return total

    @property
    def cuts(self) -> list[int] | None:
        """Rows that a part may begin at, None if a file can only be read from front to back."""
        found = [0]
        for reader, _ in self._parts:
            cuts = reader.cuts
            if cuts is None:
                return None
            start = found[-1]
            found += [start + cut for cut in cuts[1:]]
        return found

    def part(self, start: int, stop: int) -> FilesAsOne:
        """Return rows start..stop; files without any of them are not read."""
        kept: list[tuple[TableReader, Mapping[str, Any]]] = []
        at = 0
        for reader, keys in self._parts:
            rows = reader.n_rows or 0
            first, last = max(start - at, 0), min(stop - at, rows)
            if first < last:
                kept.append((reader if (first, last) == (0, rows) else reader.part(first, last), keys))
            at += rows
        other = copy.copy(self)
        other._parts = kept
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches, file after file."""
        schema = pa.schema([_as_read(self.schema.field(name), as_float) for name in columns])
        held = [name for name in columns if name in self._first.schema.names]
        asked = held or self._first.schema.names[:1]  # some column must count the rows
        for reader, keys in self._parts:
            self._check_same_kinds(reader, held)
            numbers = [name for name in as_float if name in held]
            for batch in closing_early(reader.batches(asked, numbers)):
                yield _conform(batch, schema, keys)

    @property
    def skipped_rows(self) -> int:
        """Rows of all files that the last pass skipped; readers beside each other count together."""
        return self._first.skipped_rows

    def check_text(self, columns: Sequence[str]) -> None:
        """Refuse columns of the first file that are not in its text encoding."""
        self._first.check_text([name for name in columns if name in self._first.schema.names])

    def _check_same_kinds(self, reader: TableReader, held: Sequence[str]) -> None:
        if reader.schema is self._first.schema:
            return
        for name in held:
            wanted = self._first.schema.field(name).type
            if reader.schema.get_field_index(name) < 0:
                raise ValueError(
                    f"{reader.place} has no column {name!r}, {self._first.place} has: give all files the "
                    "same columns"
                )
            found = reader.schema.field(name).type
            if column_kind(found) not in (column_kind(wanted), "empty"):  # no value at all fits any type
                raise ValueError(
                    f"column {name!r} is {wanted} in {self._first.place} and {found} in {reader.place}: "
                    "write all files with one type"
                )


def _as_read(field: Any, as_float: Sequence[str]) -> Any:
    """Return the field as the batches have it: whole numbers that will be floats may be read as floats."""
    return (
        field.with_type(pa.float64()) if field.name in as_float and pa.types.is_integer(field.type) else field
    )


def _conform(batch: Any, schema: Any, keys: Mapping[str, Any]) -> Any:
    """Return the columns of `schema`: keys are constant, the others are cast to the first file's width."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        pa.repeat(pa.scalar(keys[field.name], field.type), batch.num_rows)
        if field.name in keys
        else batch.column(field.name).cast(field.type, safe=not pa.types.is_floating(field.type))
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)
