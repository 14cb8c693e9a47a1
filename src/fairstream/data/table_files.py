"""Readers of Arrow record batches: frames in memory, Arrow streams, CSV and Parquet files."""

from __future__ import annotations

import codecs
import copy
import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairstream.data.table_encoding import column_kind

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = pyarrow = None

_READ_ROWS = 65_536
_CSV_BYTES = 2**20
_CSV_LINE = 2**26
_BUFFER = 2**18
_SHOWN = 60


class TableReader(Protocol):
    """What a table source needs: a name for messages, the schema, and batches of chosen columns."""

    place: str
    schema: Any
    one_shot: bool

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only reading tells."""

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows that a part may begin at, None if the rows can only be read from front to back."""

    def part(self, start: int, stop: int) -> TableReader:
        """Return rows start..stop; only called if there are `cuts`."""

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of `columns`; `as_float` are those that will be read as floats anyway."""


class _FrontToBack:
    """A reader that knows neither its length nor a way to begin in the middle."""

    n_rows = None
    cuts = None

    def part(self, start: int, stop: int) -> TableReader:
        """Refuse."""
        raise NotImplementedError


class FrameReader:
    """A pandas, polars or pyarrow frame in memory."""

    one_shot = False

    def __init__(self, frame: Any, place: str) -> None:
        self.place = place
        self._frame = frame
        self.n_rows = int(frame.shape[0])
        if place == "the pandas frame":
            self.schema = self._pandas_schema(frame)
        else:
            self.schema = self._table(frame[:0]).schema

    @property
    def cuts(self) -> range:
        """Rows that a part may begin at: any."""
        return range(self.n_rows + 1)

    def part(self, start: int, stop: int) -> FrameReader:
        """Return rows start..stop."""
        other = copy.copy(self)
        rows = slice(start, stop)
        other._frame = self._frame.iloc[rows] if self.place == "the pandas frame" else self._frame[rows]
        other.n_rows = stop - start
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches, converted to Arrow one span of rows at a time."""
        if isinstance(self._frame, pa.Table):
            yield from self._frame.select(columns).to_batches(max_chunksize=_READ_ROWS)
            return
        schema = pa.schema([self.schema.field(name) for name in columns])
        for start in range(0, self._frame.shape[0], _READ_ROWS):
            rows = slice(start, start + _READ_ROWS)
            if self.place == "the pandas frame":
                part = self._frame.iloc[rows][list(columns)]
                table = pa.Table.from_pandas(part, schema=schema, preserve_index=False)
            else:
                table = self._table(self._frame[rows].select(columns)).cast(schema)
            yield from table.replace_schema_metadata(None).to_batches()

    def _table(self, frame: Any) -> Any:
        if isinstance(frame, pa.Table):
            return frame.replace_schema_metadata(None)
        return frame.to_arrow()

    def _pandas_schema(self, frame: Any) -> Any:
        if not all(isinstance(name, str) for name in frame.columns):
            raise ValueError(
                "the pandas frame has column names that are not text: rename them, or pass .to_numpy()"
            )
        if frame.columns.has_duplicates:
            raise ValueError("the pandas frame has two columns of one name: rename one")
        try:
            return pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
        except pa.ArrowException as error:
            raise ValueError(
                f"the pandas frame has a column of mixed types ({first_line(error)}): "
                "give it one type with .astype"
            ) from None


class StreamReader(_FrontToBack):
    """Anything with `__arrow_c_stream__`; a record batch reader can be read once only."""

    def __init__(self, stream: Any) -> None:
        self.place = f"the {type(stream).__name__}"
        self._stream = stream
        self.one_shot = isinstance(stream, pa.RecordBatchReader)
        self._spent = False
        if self.one_shot:
            self.schema = stream.schema.remove_metadata()
        elif hasattr(stream, "__arrow_c_schema__"):
            self.schema = pa.schema(stream).remove_metadata()
        else:
            with pa.RecordBatchReader.from_stream(stream) as reader:
                self.schema = reader.schema.remove_metadata()

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as the stream gives them."""
        if self._spent:
            raise ValueError(
                f"{self.place} can be read once only, and has been: pass a Table, or open the file "
                "it came from"
            )
        self._spent = self.one_shot
        reader = self._stream if self.one_shot else pa.RecordBatchReader.from_stream(self._stream)
        with reading(self.place), reader:
            for batch in reader:
                yield batch.select(columns)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to pickle what cannot be read again elsewhere."""
        if self.one_shot:
            raise TypeError(f"{self.place} cannot be pickled: pass a Table, or open the file it came from")
        return self.__dict__


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

    Folders named "key=value" below `root` are Hive partitions: their keys are columns after those of the
    files, numbers if every value is a whole number, else text.
    """

    one_shot = False

    def __init__(self, paths: Sequence[str], place: str, root: str) -> None:
        self.place = place
        self._paths = tuple(paths)
        self._first = self._paths[0]
        self._row_groups: tuple[_RowGroup, ...] | None = None
        with self._open(self._first) as file:
            held = file.schema_arrow.remove_metadata()
        self._keys, self._values = _hive_keys(self._paths, root, held)
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


class CsvReader(_FrontToBack):
    """A CSV file, plain or compressed, parsed as it streams.

    Types come from the first megabyte; whole numbers among the features are read as floats, so that a
    decimal point further down does no harm. Anything else that changes type half-way is an error. So is a
    line end in a text value, the trace of a quote that was never closed, unless `newlines_in_values`.
    """

    one_shot = False

    def __init__(
        self,
        path: str,
        *,
        delimiter: str | None = None,
        column_names: Sequence[str] | None = None,
        column_types: Mapping[str, str] | None = None,
        text_encoding: str = "utf-8",
        newlines_in_values: bool = False,
    ) -> None:
        self.place = path
        self._delimiter = delimiter or ("\t" if ".tsv" in Path(path).suffixes else ",")
        self._text_encoding = _checked_codec(text_encoding)
        self._newlines = newlines_in_values
        self._column_names = None if column_names is None else tuple(column_names)
        try:
            self._types = {name: pa.type_for_alias(alias) for name, alias in (column_types or {}).items()}
        except ValueError as error:
            raise ValueError(
                f'column_types: {error}; use names such as "float64", "int64", "string"'
            ) from None
        self._read_bytes = _CSV_BYTES
        with self._stream() as stream:
            head = _first_lines(stream, path)
            # The parser wants whole lines in what it reads at a time, and many: each batch costs some time
            # for every column.
            longest = max(map(len, head.splitlines()), default=0)
            self._read_bytes = max(_CSV_BYTES, min(64 * longest, _CSV_LINE), 2 * longest)
            with self._parsing(pa.BufferReader(head), None, self._types) as reader:
                self.schema = reader.schema
                names = {*self.schema.names}  # decodes them
        if delimiter is None and column_names is None:
            self._refuse_other_delimiter()
        absent = [name for name in self._types if name not in names]
        if absent:
            raise ValueError(f"column_types names {absent[0]!r}, {path} has {', '.join(self.schema.names)}")

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as the parser gives them."""
        types = {name: self.schema.field(name).type for name in columns}
        for name in as_float:
            if pa.types.is_integer(types[name]):
                types[name] = pa.float64()
        start = 0
        with self._stream() as stream, self._parsing(stream, columns, types) as reader:
            for batch in reader:
                if not self._newlines:
                    self._refuse_line_ends(batch, start)
                start += batch.num_rows
                yield batch

    def check_text(self, columns: Sequence[str]) -> None:
        """Refuse columns that the parser took for bytes, since they are not in the file's encoding."""
        for name in columns:
            if pa.types.is_binary(self.schema.field(name).type):
                raise ValueError(self._not_decoded(f" in column {name!r}"))

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        try:
            with pa.input_stream(self.place, compression="detect") as stream:
                if self._text_encoding == "utf-8":
                    yield stream
                else:
                    yield pa.transcoding_input_stream(stream, self._text_encoding, "utf-8")
        except FileNotFoundError:
            raise
        except UnicodeError:
            raise ValueError(self._not_decoded()) from None
        except (pa.ArrowException, OSError) as error:
            raise ValueError(self._unreadable(first_line(error))) from None

    def _unreadable(self, reason: str) -> str:
        if "invalid UTF8" in reason:
            return self._not_decoded()
        way_out = "clean the file, or fix a type with column_types={name: type}"
        if "straddl" in reason:
            reason = f"it has a line of more than {self._read_bytes:,} bytes"
            way_out = "check that it is a CSV file and that every quote is closed"
        return f"{self.place} cannot be read: {reason}; {way_out}"

    def _not_decoded(self, where: str = "") -> str:
        return (
            f"{self.place} is not {self._text_encoding.upper()} text{where}: name the encoding it was "
            'written in, text_encoding="latin-1" for example'
        )

    def _refuse_other_delimiter(self) -> None:
        """Refuse a header that is one column only because it was cut at the wrong character."""
        if len(self.schema.names) != 1:
            return
        name = self.schema.names[0]
        for other in ";\t|,":
            if other in name and other != self._delimiter:
                shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
                raise ValueError(
                    f"{self.place} has one column, {shown!r}: pass delimiter={other!r} if that separates its "
                    f"columns, delimiter={self._delimiter!r} if it does not"
                )

    def _refuse_line_ends(self, batch: Any, start: int) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                continue
            text = column.buffers()[2]
            if text is None or not (np.frombuffer(text, dtype=np.uint8) == ord("\n")).any():
                continue
            row = pc.index(pc.match_substring(column, "\n"), True).as_py()
            if row >= 0:
                raise ValueError(
                    f"{self.place}: column {name!r} holds a line end in row {start + row + 1:,} (the header "
                    "not counted): close the quote that was left open there, or pass newlines_in_values=True "
                    "if its values do have several lines"
                )

    def _parsing(self, stream: Any, columns: Sequence[str] | None, types: Mapping[str, Any]) -> Any:
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=None if columns is None else list(columns),
            strings_can_be_null=True,
        )
        names = None if self._column_names is None else list(self._column_names)
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=self._read_bytes, column_names=names)
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=self._newlines)
        return pyarrow.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)


def parquet_paths(pattern: str) -> list[str]:
    """List the Parquet files of a file name, folder or glob, sorted by name."""
    path = Path(pattern)
    if path.is_dir():
        found = [str(file) for ending in ("parquet", "pq") for file in path.rglob(f"*.{ending}")]
        return sorted(name for name in found if not Path(name).name.startswith((".", "_")))
    if path.exists():
        return [pattern]
    return sorted(glob.glob(pattern, recursive=True))


def parquet_root(pattern: str) -> str:
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


@contextmanager
def reading(place: str, way_out: str = "check the file, or write it again") -> Iterator[None]:
    """Turn Arrow's errors into one line that names the file and the way out."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{place} cannot be read: {first_line(error)}; {way_out}") from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


def _checked_codec(text_encoding: str) -> str:
    try:
        "".encode(text_encoding)  # "hex" is a codec, but not of text
        return codecs.lookup(text_encoding).name
    except (LookupError, TypeError):
        raise ValueError(
            f'text_encoding is {text_encoding!r}: pass the name of a text encoding, such as "latin-1"'
        ) from None


def _first_lines(stream: Any, place: str) -> bytes:
    """Return whole lines from the first megabyte: the parser itself would read far ahead.

    If two lines are longer than that, return both; a line of more than `_CSV_LINE` bytes is refused.
    """
    parts: list[bytes] = []
    ends = size = 0
    while ends < 2:
        more = stream.read(_CSV_BYTES)
        if not more:
            return b"".join(parts)
        parts.append(more)
        ends += max(more.count(b"\n"), more.count(b"\r"))
        size += len(more)
        if size > (ends + 1) * _CSV_LINE:
            raise ValueError(
                f"{place} has a line of more than {_CSV_LINE:,} bytes, the limit: check that it is a CSV file"
            )
    head = b"".join(parts)
    # What follows the last line end may be half a line.
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]


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
    for batch in file.iter_batches(_READ_ROWS, row_groups=numbers, columns=columns, use_threads=True):
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
