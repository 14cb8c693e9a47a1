"""The reader behind the table source for CSV files, plain or compressed, in any text encoding."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from fairstream.data.csv_dialect import CsvDialect
from fairstream.data.data_files import DataFile, content_ending
from fairstream.data.file_streams import LINE_BYTES, first_lines, looked_at_note, native_buffer, text_stream
from fairstream.data.table_readers import FrontToBack, first_line

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = pyarrow = None

_CSV_BYTES = 2**19  # the parser reads 32 times as much ahead, which is most of the memory a pass takes
_SHOWN = 60


class CsvReader(FrontToBack):
    """A CSV file, plain or compressed, parsed as it streams.

    Types come from the first megabyte; whole numbers among the features are read as floats, so that a
    decimal point further down is no error. Any other change of type is an error. So is a line end in a text
    value, which shows that a quote was never closed, unless `newlines_in_values`.
    """

    def __init__(
        self,
        file: DataFile,
        *,
        delimiter: str | None = None,
        column_names: Sequence[str] | None = None,
        column_types: Mapping[str, Any] | None = None,
        text_encoding: str = "utf-8",
        newlines_in_values: bool = False,
        null_values: Iterable[str] | None = (),
        decimal: str = ".",
        bad_rows: str = "raise",
    ) -> None:
        self._file = file
        self.place = file.place
        if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
            raise ValueError(f"delimiter is {delimiter!r}: pass a single character, such as ';'")
        usual = "," if decimal == "." else ";"
        self._delimiter = delimiter or ("\t" if file.suffix == ".tsv" else usual)
        self._dialect = CsvDialect(
            delimiter=self._delimiter, null_values=null_values, decimal=decimal, bad_rows=bad_rows
        )
        self._text_encoding = _checked_codec(text_encoding)
        self._newlines = newlines_in_values
        self._column_names = None if column_names is None else tuple(column_names)
        self._types = {name: _checked_type(name, of) for name, of in (column_types or {}).items()}
        self._read_bytes = _CSV_BYTES
        guessed = delimiter is None and column_names is None
        head, whole = self._head()
        self._refuse_other_contents(head)
        try:
            self.schema, rows = self._first_look(head)
        except ValueError:
            header = _first_line_of(head)
            if guessed and self._delimiter not in header:  # decimal commas in the rows, for example
                self._refuse_other_delimiter(header)
            raise
        self.null_values, self.skips_rows = self._dialect.null_values, self._dialect.skips
        self.without_rows = None if rows or not whole else self.place
        looked_at = None if whole else len(head)
        self.unread = looked_at_note(looked_at, self.place, "fix a type with column_types={name: type}")
        if guessed and len(self.schema.names) == 1:
            self._refuse_other_delimiter(self.schema.names[0])
        names = {*self.schema.names}
        absent = [name for name in self._types if name not in names]
        if absent:
            raise ValueError(
                f"column_types names {absent[0]!r}, {self.place} has {', '.join(self.schema.names)}"
            )

    # Methods of their own, so that no error of another check holds a stream or a parser in its traceback.

    def _head(self) -> tuple[bytes, bool]:
        """Return the first lines, and whether they are all."""
        with self._stream() as (stream, _):
            return first_lines(stream, self.place)

    def _refuse_other_contents(self, head: bytes) -> None:
        """Refuse what is no text at all, which a parser may take for some."""
        if not head.strip():
            raise ValueError(self._unreadable("Empty CSV"))
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(f'{self.place} is UTF-16 text: pass text_encoding="utf-16"')
        if ending := content_ending(head):
            way_out = "unpack it" if ending == ".zip" else "rename it"
            raise ValueError(f"{self.place} holds what {ending} files hold, not text: {way_out}")

    def _first_look(self, head: bytes) -> tuple[Any, int]:
        """Return the schema and the number of the first lines, and choose how much is read at a time."""
        # The parser needs whole lines in its buffer, and should get many: a batch has a cost per column.
        longest = max(map(len, head.splitlines()), default=0)
        self._read_bytes = max(_CSV_BYTES, min(64 * longest, LINE_BYTES), 2 * longest)
        types = self._dialect.read_types(self._types)
        lines = pa.BufferReader(native_buffer(head))
        # In one block: the parser infers types from the first block only.
        with self._errors_told(), self._parsing(lines, None, types, block_size=max(len(head), 1)) as reader:
            fields = [field.with_type(self._types.get(field.name, field.type)) for field in reader.schema]
            schema = pa.schema(fields)
            _ = schema.names  # decodes them
            return schema, sum(batch.num_rows for batch in reader)

    def beside(self, file: DataFile) -> CsvReader:
        """Return a reader of another file with the columns and types of this one."""
        other = copy.copy(self)
        other._file, other.place = file, file.place
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches as the parser gives them."""
        types = {name: self.schema.field(name).type for name in columns}
        for name in as_float:
            if pa.types.is_integer(types[name]):
                types[name] = pa.float64()
        start = 0
        self._dialect.begin(self.place)
        as_read = self._dialect.read_types(types)
        with self._stream() as (stream, end), self._parsing(stream, columns, as_read, self.place) as reader:
            try:
                for batch in reader:
                    if not self._newlines:
                        self._refuse_line_ends(batch, start)
                    start += batch.num_rows
                    yield self._dialect.mended(batch, types, self.place)
            finally:
                if end is not None:
                    end()
                    # Let the parser's threads end: they must not ask for bytes while Python exits.
                    with suppress(StopIteration, pa.ArrowException, OSError, UnicodeError):
                        while True:
                            reader.read_next_batch()
        self._dialect.end(self.place)

    @property
    def skipped_rows(self) -> int:
        """Rows that the last pass skipped, in this file and those beside it."""
        return sum(self._dialect.skipped.values())

    def check_text(self, columns: Sequence[str]) -> None:
        """Refuse columns that the parser took for bytes, since they are not in the file's encoding."""
        for name in columns:
            if pa.types.is_binary(self.schema.field(name).type):
                raise ValueError(self._not_decoded(f" in column {name!r}"))

    @contextmanager
    def _stream(self) -> Iterator[tuple[Any, Any]]:
        recoded = self._text_encoding != "utf-8"
        with self._errors_told(), text_stream(self._file, in_python=recoded) as (stream, end):
            if recoded:
                stream = pa.transcoding_input_stream(stream, self._text_encoding, "utf-8")
            yield stream, end

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        """Turn Arrow's errors into one line that names the file and the way out."""
        try:
            yield
        except FileNotFoundError:
            raise
        except UnicodeError:
            raise ValueError(self._not_decoded()) from None
        except (pa.ArrowException, OSError) as error:
            raise ValueError(self._unreadable(first_line(error))) from None

    def _unreadable(self, reason: str) -> str:
        if "invalid UTF8" in reason:
            return self._not_decoded()
        if "in include_columns does not exist" in reason:
            name = reason.partition("Column '")[2].partition("' in include_columns")[0]
            return f"{self.place} has no column {name!r}, another file has: give all files the same columns"
        way_out = 'clean the file, pass bad_rows="skip", or fix a type with column_types={name: type}'
        if "Empty CSV" in reason:
            reason, way_out = "it is empty", "leave it out, or write its header at least"
        elif self._file.compression is not None and "CSV" not in reason:
            way_out = "check the file, or write it again"
        if "straddl" in reason:
            reason = f"it has a line of more than {self._read_bytes:,} bytes"
            way_out = "check that it is a CSV file and that every quote is closed"
        return f"{self.place} cannot be read: {reason}; {way_out}"

    def _not_decoded(self, where: str = "") -> str:
        return (
            f"{self.place} is not {self._text_encoding.upper()} text{where}: name the encoding it was "
            'written in, text_encoding="latin-1" for example'
        )

    def _refuse_other_delimiter(self, header: str) -> None:
        """Refuse a header of one column that contains another usual delimiter."""
        for other in ";\t|,":
            if other in header and other != self._delimiter:
                shown = header if len(header) <= _SHOWN else f"{header[:_SHOWN]}..."
                commas = ", with decimal=',' if numbers are written 0,5" if other == ";" else ""
                raise ValueError(
                    f"{self.place} has one column, {shown!r}: pass delimiter={other!r} if that separates its "
                    f"columns{commas}, delimiter={self._delimiter!r} if it does not"
                ) from None

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

    def _parsing(
        self,
        stream: Any,
        columns: Sequence[str] | None,
        types: Mapping[str, Any],
        place: str | None = None,
        block_size: int | None = None,
    ) -> Any:
        names = None if self._column_names is None else list(self._column_names)
        return pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=block_size or self._read_bytes, column_names=names
            ),
            parse_options=self._dialect.parsing(self._newlines, place),
            convert_options=self._dialect.conversion(types, columns),
        )


def _first_line_of(head: bytes) -> str:
    """Return the first line that is not empty, without a byte order mark."""
    lines = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n").splitlines()
    return lines[0].decode(errors="replace").strip() if lines else ""


def _checked_type(name: str, of: Any) -> Any:
    """Return a type of Arrow, which may be given by its name."""
    if isinstance(of, pa.DataType):
        return of
    try:
        return pa.type_for_alias(of)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            f'column_types[{name!r}] is {of!r}: use names such as "float64", "int64", "string", "bool"'
        ) from None


def _checked_codec(text_encoding: str) -> str:
    try:
        "".encode(text_encoding)  # "hex" is a codec, but not of text
        return codecs.lookup(text_encoding).name
    except (LookupError, TypeError):
        raise ValueError(
            f'text_encoding is {text_encoding!r}: pass the name of a text encoding, such as "latin-1"'
        ) from None
