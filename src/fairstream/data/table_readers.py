"""Readers of Arrow record batches: the protocol, and the readers of frames and Arrow streams in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fairstream.data.groups import intervals_as_text

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None

READ_ROWS = 65_536


class TableReader(Protocol):
    """What a table source needs: a name for messages, the schema, and batches of chosen columns."""

    place: str
    one_shot: bool

    @property
    def schema(self) -> Any:
        """Columns and their types."""

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

    def check_text(self, columns: Sequence[str]) -> None:
        """Refuse columns of text that cannot be decoded."""

    @property
    def null_values(self) -> tuple[str, ...]:
        """Cells that were read as missing beside the usual ones."""

    @property
    def unread(self) -> str:
        """What to add if a column seems to hold no value, and only the first lines were looked at."""

    @property
    def without_rows(self) -> str | None:
        """The name of the file if it has no rows that types could come from."""

    @property
    def skips_rows(self) -> bool:
        """Whether rows that do not fit are skipped: then every pass must read the same columns."""

    @property
    def skipped_rows(self) -> int:
        """Rows that the last pass skipped."""


class Typed:
    """A reader whose values have types: text is text, and every row fits."""

    one_shot = False
    null_values: tuple[str, ...] = ()
    unread = ""
    without_rows: str | None = None
    skips_rows = False

    @property
    def skipped_rows(self) -> int:
        """Rows that the last pass skipped: none."""
        return 0

    def check_text(self, columns: Sequence[str]) -> None:
        """Refuse nothing."""


class FrontToBack(Typed):
    """A reader that knows neither its length nor a way to begin in the middle."""

    n_rows = None
    cuts = None

    def part(self, start: int, stop: int) -> TableReader:
        """Refuse."""
        raise NotImplementedError


class FrameReader(Typed):
    """A pandas, polars or pyarrow frame in memory."""

    def __init__(self, frame: Any, place: str) -> None:
        self.place = place
        self._frame = frame
        self.n_rows = int(frame.shape[0])
        if place == "the pandas frame":
            self.schema = _pandas_schema(frame)
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
            yield from self._frame.select(columns).to_batches(max_chunksize=READ_ROWS)
            return
        schema = pa.schema([self.schema.field(name) for name in columns])
        for start in range(0, self._frame.shape[0], READ_ROWS):
            rows = slice(start, start + READ_ROWS)
            if self.place == "the pandas frame":
                part = _taken_by_arrow(self._frame.iloc[rows][list(columns)])
                table = pa.Table.from_pandas(part, schema=schema, preserve_index=False)
            else:
                table = self._table(self._frame[rows].select(columns)).cast(schema)
            yield from table.replace_schema_metadata(None).to_batches()

    def _table(self, frame: Any) -> Any:
        if isinstance(frame, pa.Table):
            return frame.replace_schema_metadata(None)
        return frame.to_arrow()


def _pandas_schema(frame: Any) -> Any:
    for name in frame.columns:
        if not isinstance(name, str):
            raise ValueError(
                f"the pandas frame has the column name {name!r}, which is not text: rename such columns with "
                "frame.rename(columns=str), or pass .to_numpy()"
            )
    if frame.columns.has_duplicates:
        name = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the pandas frame has several columns named {name!r}: rename all but one")
    fields = []
    for name in frame.columns:
        try:
            part = _taken_by_arrow(frame[[name]])
            fields += pa.Schema.from_pandas(part, preserve_index=False)
        except pa.ArrowException as error:
            raise ValueError(
                f"column {name!r} of the pandas frame holds values of several types ({first_line(error)}): "
                "give it one type with .astype"
            ) from None
    return pa.schema(fields)


def _taken_by_arrow(frame: Any) -> Any:
    """Return a pandas frame without what Arrow does not take: sparse columns, and intervals as categories."""
    changed = {}
    for name, of in frame.dtypes.items():
        if hasattr(of, "subtype") and hasattr(of, "fill_value"):
            changed[name] = frame[name].sparse.to_dense()
        elif hasattr(of, "categories"):
            changed[name] = intervals_as_text(frame[name])
    return frame.assign(**changed) if changed else frame


class StreamReader(FrontToBack):
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


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn Arrow's errors into one line that names the file and the way out."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{place} cannot be read: {first_line(error)}; check the file, or write it again"
        ) from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
