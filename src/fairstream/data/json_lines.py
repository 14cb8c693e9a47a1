"""The reader behind the table source for JSON lines: one object per line, plain or compressed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fairstream.data.data_files import DataFile
from fairstream.data.file_streams import first_lines, looked_at_note, text_stream, whole_lines
from fairstream.data.table_readers import FrontToBack, first_line

try:
    import pyarrow as pa
    import pyarrow.json
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pyarrow = None

_PIECE = 2**22
_SHARE = 2**20  # of a piece, for one thread


class JsonLinesReader(FrontToBack):
    """A file with one JSON object per line.

    Columns and their types come from the first megabyte, as in CSV files: whole numbers among the features
    are read as floats, any other change of type is an error, a member that only appears later is no column.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self.place = file.place
        with self._stream() as stream:
            head, whole = first_lines(stream, self.place)
            if not head.strip():
                raise ValueError(f"{self.place} cannot be read: it is empty; write one object per line")
            self.schema = _parsed(head).schema
            looked_at = None if whole else len(head)
            self.unread = looked_at_note(looked_at, self.place, "move a line with one to the front")

    def beside(self, file: DataFile) -> JsonLinesReader:
        """Return a reader of another file with the columns and types of this one."""
        other = copy.copy(self)
        other._file, other.place = file, file.place
        return other

    def batches(self, columns: Sequence[str], as_float: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some megabytes of lines each."""
        fields = [self.schema.field(name) for name in columns]
        schema = pa.schema(
            [
                field.with_type(pa.float64())
                if field.name in as_float and pa.types.is_integer(field.type)
                else field
                for field in fields
            ]
        )
        with self._stream() as stream:
            for piece in whole_lines(stream, _PIECE, self.place):
                if piece.strip():
                    yield from _parsed(piece, schema).select(columns).to_batches()

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        try:
            with text_stream(self._file) as (stream, _):
                yield stream
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise ValueError(
                f"{self.place} cannot be read: {first_line(error)}; write one object per line, with values "
                "of one type for each name"
            ) from None


def _parsed(lines: bytes, schema: Any = None) -> Any:
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    if schema is None:
        parse = pyarrow.json.ParseOptions()
    # The parser needs whole lines in its buffer.
    share = _SHARE if lines.find(b"\n", 0, _SHARE // 8) >= 0 else max(len(lines), 1)
    read = pyarrow.json.ReadOptions(block_size=share)
    try:
        return pyarrow.json.read_json(pa.BufferReader(lines), read_options=read, parse_options=parse)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        read = pyarrow.json.ReadOptions(block_size=len(lines))
        return pyarrow.json.read_json(pa.BufferReader(lines), read_options=read, parse_options=parse)
