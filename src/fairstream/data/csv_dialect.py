"""CsvDialect: how a CSV file writes missing values and decimals, and what becomes of rows that do not fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairstream.errors import FairstreamWarning

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = pyarrow = None

BAD_ROWS = ("raise", "skip")
_WHOLE = r"^[-+]?\d+$"
_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"


class CsvDialect:
    """The options of a CSV file that concern single cells and rows, as pyarrow's parser takes them.

    Parameters
    ----------
    delimiter : str
    null_values : iterable of str, optional
        Cells that count as missing, beside the empty one and the usual "NA", "NaN", "null".
    decimal : {".", ","}
    bad_rows : {"raise", "skip"}
        What is done with a row of too many or too few cells, or with text in a column of numbers.

    Attributes
    ----------
    skipped : dict
        File -> rows that were skipped in the last pass over it.
    """

    def __init__(
        self,
        *,
        delimiter: str,
        null_values: Iterable[str] | None = (),
        decimal: str = ".",
        bad_rows: str = "raise",
    ) -> None:
        if decimal not in (".", ","):
            raise ValueError(f"decimal is {decimal!r}: pass '.' or ','")
        if decimal == delimiter:
            raise ValueError(
                f"decimal is {decimal!r}, and so is the delimiter: pass delimiter=';' if that separates its "
                "columns"
            )
        if bad_rows not in BAD_ROWS:
            raise ValueError(f'bad_rows is {bad_rows!r}: pass "raise" or "skip"')
        self.delimiter, self._decimal = delimiter, decimal
        self.null_values = listed_tokens(null_values)
        self.skips = bad_rows == "skip"
        self.skipped: dict[str, int] = {}

    def conversion(self, types: Mapping[str, Any], columns: Sequence[str] | None) -> Any:
        """Return how cells become values."""
        return pyarrow.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=None if columns is None else list(columns),
            strings_can_be_null=True,
            null_values=[*pyarrow.csv.ConvertOptions().null_values, *self.null_values],
            decimal_point=self._decimal,
        )

    def parsing(self, newlines_in_values: bool, place: str | None) -> Any:
        """Return how lines become cells; rows that are skipped are counted for `place`."""

        def skip(row: Any) -> str:
            if place is not None:
                self.skipped[place] += 1
            return "skip"

        return pyarrow.csv.ParseOptions(
            delimiter=self.delimiter,
            newlines_in_values=newlines_in_values,
            invalid_row_handler=skip if self.skips else None,
        )

    def read_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the types to parse with: if rows are skipped, numbers as text, which `mended` converts."""
        return {name: pa.string() if self.skips and _pattern(of) else of for name, of in types.items()}

    def mended(self, batch: Any, types: Mapping[str, Any], place: str) -> Any:
        """Return a batch in its own types, without rows that do not convert; they are counted."""
        if not self.skips:
            return batch
        columns = {name: batch.column(name) for name in batch.schema.names}
        good = None
        for name, column in columns.items():
            if (pattern := _pattern(types[name])) is None:
                continue
            text = pc.utf8_trim_whitespace(column)
            text = text if self._decimal == "." else pc.replace_substring(text, ",", ".")
            columns[name] = text
            fits = pc.fill_null(pc.match_substring_regex(text, pattern), True)
            good = fits if good is None else pc.and_(good, fits)
        batch = pa.record_batch(columns)
        if good is not None and (bad := len(good) - pc.sum(good).as_py()):
            self.skipped[place] += bad
            batch = batch.filter(good)
        return pa.record_batch({name: batch.column(name).cast(types[name]) for name in batch.schema.names})

    def begin(self, place: str) -> None:
        """Forget what was skipped in an earlier pass."""
        self.skipped[place] = 0

    def end(self, place: str) -> None:
        """Warn of the rows that a whole pass has skipped."""
        if self.skipped[place]:
            rows = "1 row was" if self.skipped[place] == 1 else f"{self.skipped[place]:,} rows were"
            warnings.warn(
                f'{place}: {rows} skipped, as bad_rows="skip" asks: they have too many or too few cells, or '
                "text in a column of numbers; check that they are not of one group",
                FairstreamWarning,
                stacklevel=2,
            )


def listed_tokens(null_values: Any) -> tuple[str, ...]:
    """Return the texts that count as missing; None stands for none.

    Examples
    --------
    >>> listed_tokens(["?", "-"]), listed_tokens(None)
    (('?', '-'), ())
    """
    if null_values is None:
        return ()
    listed = [*null_values] if isinstance(null_values, Iterable) else [null_values]
    if isinstance(null_values, str) or not all(isinstance(token, str) for token in listed):
        raise ValueError(f'null_values is {null_values!r}: pass a list of texts, such as ["?", "-"]')
    return tuple(map(str, listed))


def _pattern(arrow_type: Any) -> str | None:
    """Return what the text of a number looks like, None for other types."""
    if pa.types.is_integer(arrow_type):
        return _WHOLE
    return _NUMBER if pa.types.is_floating(arrow_type) else None
