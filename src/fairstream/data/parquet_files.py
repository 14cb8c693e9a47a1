"""The reader behind the table source for Parquet: row groups of one file or several, Hive keys as columns."""

from __future__ import annotations

import copy
import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fairstream.data.table_encoding import column_kind
from fairstream.data.table_readers import READ_ROWS, reading

try:
    import pyarrow as pa
    import pyarrow.parquet
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pyarrow = None

_BUFFER = 2**18


class _RowGroup(NamedTuple):
    """Rows start..stop of one row group of a Parquet file."""

    path: str
    file_rows: int
    number: int
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


class ParquetReader:
    """One Parquet file or several, read row group by row group, only the columns asked for.

    `pattern` is a file, a folder or a glob. Folders named "key=value" below it are Hive partitions: their
    keys are columns after those of the files, numbers if every value is a whole number, else text.
    """

    one_shot = False

    def __init__(self, pattern: str) -> None:
        self.place = pattern
        self._paths = _parquet_paths(pattern)
        if not self._paths:
            raise FileNotFoundError(f"{pattern} matches no Parquet file: check the folder or the pattern")
        self._first = self._paths[0]
        self._row_groups: tuple[_RowGroup, ...] | None = None
        with self._open(self._first) as file:
            held = file.schema_arrow.remove_metadata()
        self._keys, self._values = _hive_keys(self._paths, _root(pattern), held)
        self.schema = pa.schema([*held, *self._keys])

    @property
    def n_rows(self) -> int:
        """Sum of the row counts in the footers."""
        return sum(group.n_rows for group in self._read_footers())

    @property
    def cuts(self) -> list[int]:
        """Rows that a part may begin at: those that begin a row group."""
        return list(itertools.accumulate((group.n_rows for group in self._read_footers()), initial=0))

    def part(self, start: int, stop: int) -> ParquetReader:
        """Return rows start..stop; row groups without any of them are not read."""
        kept = []
        for group, at in zip(self._read_footers(), self.cuts, strict=False):
            first, last = max(start - at, 0), min(stop - at, group.n_rows)
            if first < last:
                kept.append(group._replace(start=group.start + first, stop=group.start + last))
        other = copy.copy(self)
        other._row_groups, other._paths = tuple(kept), ()
        other._values = {group.path: self._values[group.path] for group in kept}
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches, file after file in the order of their names."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        held = pa.schema([field for field in schema if field.name not in self._keys.names])
        for path, groups in itertools.groupby(self._read_footers(), lambda group: group.path):
            with self._open(path) as file:
                _check_same_kinds(path, file.schema_arrow, self._first, held)
                with reading(path):
                    for batch in _rows_of(file, list(groups), held.names):
                        yield _conform(batch, schema, self._values[path])

    def _read_footers(self) -> tuple[_RowGroup, ...]:
        """Return the row groups to read. The first call reads the footers of all files."""
        if self._row_groups is None:
            found: list[_RowGroup] = []
            for path in self._paths:
                with self._open(path) as file:
                    about = file.metadata
                    sizes = [about.row_group(number).num_rows for number in range(about.num_row_groups)]
                    found += [
                        _RowGroup(path, about.num_rows, number, 0, size)
                        for number, size in enumerate(sizes)
                        if size
                    ]
            self._row_groups = tuple(found)
        return self._row_groups

    @contextmanager
    def _open(self, path: str) -> Iterator[Any]:
        with reading(path):
            handle = pa.OSFile(path)
        try:
            with reading(path):
                # Column by column through small buffers: a row group may be larger than memory. This is why
                # files are not read with pyarrow.dataset, which decodes whole row groups.
                file = pyarrow.parquet.ParquetFile(handle, pre_buffer=False, buffer_size=_BUFFER)
            yield file
        finally:
            handle.close()


def _parquet_paths(pattern: str) -> tuple[str, ...]:
    """List the Parquet files of a file name, folder or glob, sorted by name."""
    path = Path(pattern)
    if path.is_dir():
        found = [str(file) for ending in ("parquet", "pq") for file in path.rglob(f"*.{ending}")]
        return tuple(sorted(name for name in found if not Path(name).name.startswith((".", "_"))))
    if path.exists():
        return (pattern,)
    return tuple(sorted(glob.glob(pattern, recursive=True)))


def _root(pattern: str) -> str:
    """Return the folder below which "key=value" folders count: a glob's part before the first wildcard."""
    path = Path(pattern)
    if path.is_dir():
        return pattern
    if path.exists():
        return str(path.parent)
    fixed = itertools.takewhile(lambda part: not glob.has_magic(part), path.parts[:-1])
    return str(Path(*fixed))


def _hive_keys(paths: Sequence[str], root: str, held: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return the schema of the keys in "key=value" folders, and the values of every file.

    A key that is also a column of the files is left out: the column is read instead.
    """
    folders = {path: Path(path).relative_to(root).parent.as_posix() + "/" for path in paths}
    if not any("=" in folder for folder in folders.values()):
        return pa.schema([]), {path: {} for path in paths}
    from pyarrow import dataset, fs  # here, since it imports pandas

    options = dataset.FileSystemFactoryOptions(root, partitioning=dataset.HivePartitioning.discover())
    factory = dataset.FileSystemDatasetFactory(
        fs.LocalFileSystem(), list(paths), dataset.ParquetFileFormat(), options
    )
    *_, found = factory.inspect_schemas()
    keys = pa.schema([field for field in found if field.name not in held.names])
    parse = dataset.HivePartitioning(keys).parse
    unknown = dict.fromkeys(keys.names)
    values = {path: unknown | dataset.get_partition_keys(parse(folder)) for path, folder in folders.items()}
    return keys, values


def _check_same_kinds(path: str, schema: Any, first_path: str, expected: Any) -> None:
    for wanted in expected:
        if schema.get_field_index(wanted.name) < 0:
            raise ValueError(
                f"{path} has no column {wanted.name!r}, {first_path} has: give all files the same columns"
            )
        found = schema.field(wanted.name).type
        if column_kind(found) != column_kind(wanted.type):
            raise ValueError(
                f"column {wanted.name!r} is {wanted.type} in {first_path} and {found} in {path}: "
                "write all files with one type"
            )


def _rows_of(file: Any, groups: Sequence[_RowGroup], columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of consecutive row groups, of which the first and the last may be cut."""
    path, file_rows, _, passed, _ = groups[0]
    if file.metadata.num_rows != file_rows:
        raise ValueError(
            f"{path} had {file_rows:,} rows and now has {file.metadata.num_rows:,}: "
            "it must not change while it is read"
        )
    kept = sum(group.n_rows for group in groups)
    numbers = [group.number for group in groups]
    for batch in file.iter_batches(READ_ROWS, row_groups=numbers, columns=columns, use_threads=True):
        rows = batch.slice(passed, kept)
        passed, kept = max(passed - batch.num_rows, 0), kept - rows.num_rows
        if rows.num_rows:
            yield rows
        if not kept:
            return


def _conform(batch: Any, schema: Any, keys: Mapping[str, Any]) -> Any:
    """Return the columns of `schema`: keys are constant, the others are cast to the first file's width."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        pa.repeat(pa.scalar(keys[field.name], field.type), batch.num_rows)
        if field.name in keys
        else batch.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)
