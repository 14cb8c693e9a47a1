"""Columns of Arrow for NumPy: their kind, their numbers, their labels, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn, check_groups, encode_column

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = None

_MAX_LABEL = 1_000
_TILE_BYTES = 2**20  # of rows that are written at once
_LINE_NUMBERS = 8  # of columns at a time: a row of them is a line of the processor's cache
_FEWEST_TILE_ROWS = 64  # a slice of the table costs something for each column


def column_kind(arrow_type: Any) -> str:
    """Return "number", "category", "empty" or "other" for an Arrow type; booleans are numbers."""
    types = pa.types
    if types.is_fixed_size_list(arrow_type):
        return "number" if column_kind(arrow_type.value_type) == "number" else "other"
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return "number"
    if types.is_decimal(arrow_type):
        return "number"
    if types.is_dictionary(arrow_type):
        return "other" if column_kind(arrow_type.value_type) == "other" else "category"
    if any(is_text(arrow_type) for is_text in (types.is_string, types.is_large_string, types.is_string_view)):
        return "category"
    return "empty" if types.is_null(arrow_type) else "other"


def as_numbers(column: Any) -> NDArray[np.float64]:
    """Return float64 values, one matrix column per feature, with NaN for null."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_fixed_size_list(values.type):
        numbers: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers.reshape(-1, 1)
    width = values.type.list_size
    inner = values.values.slice(values.offset * width, len(values) * width)
    matrix = np.array(as_numbers(inner)).reshape(-1, width)
    matrix[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return matrix


def plain(column: Any) -> Any:
    """Return one contiguous array without dictionary encoding or views."""
    if pa.types.is_dictionary(column.type):
        if pa.types.is_string_view(column.type.value_type):
            column = _without_views(column)
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):  # few of Arrow's functions take one
        column = column.cast(pa.large_string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_views(column: Any) -> Any:
    """Return a dictionary-encoded column whose dictionary was string views as one of plain text."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
        for chunk in chunks
    ]
    return pa.chunked_array(plain, pa.dictionary(column.type.index_type, pa.large_string()))


def plain_columns(table: Any, names: Sequence[str]) -> Any:
    """Return some columns of a table without dictionary encoding or views, as every format can hold them."""
    return pa.table({name: plain(table.column(name)) for name in names})


def with_nulls(batch: Any, null_values: Sequence[str]) -> Any:
    """Return a record batch in which these texts are missing values, as the parser of CSV reads them.

    Columns that hold none of them stay as they are, except that text is no longer dictionary-encoded.
    """
    arrays = []
    for column in batch.columns:
        if column_kind(column.type) == "category":
            column = plain(column)
        if column_kind(column.type) == "category":  # not numbers that were dictionary-encoded
            named = pc.is_in(column, value_set=pa.array(null_values, type=column.type))
            column = pc.if_else(named, pa.scalar(None, type=column.type), column)
        arrays.append(column)
    return pa.record_batch(arrays, names=batch.schema.names)


def missing_rows(column: Any) -> int:
    """Return in how many rows a column misses a value; a list misses one if any of its numbers is missing."""
    if column_kind(column.type) == "number":
        return int(np.isnan(as_numbers(column)).any(axis=1).sum())
    return int(plain(column).is_null(nan_is_null=True).true_count)


def target_values(column: Any) -> NDArray[Any]:
    """Return the target as a NumPy array: numbers as they are, anything else as objects."""
    values: NDArray[Any] = plain(column).to_numpy(zero_copy_only=False)
    return values


def encode_labels(name: str, column: Any) -> GroupColumn:
    """Encode one sensitive column; nulls and NaN are unknown."""
    values = plain(column)
    letters = _single_bytes(values)
    if letters is not None:
        present = np.flatnonzero(np.bincount(letters))
        groups = encode_column(name, [bytes([letter]).decode() for letter in present])
        table = np.zeros(256, dtype=np.intp)
        table[present] = groups.codes
        return check_groups(name, GroupColumn(table[letters], groups.labels))
    encoded = values.dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    for label in labels:
        if isinstance(label, str) and len(label) > _MAX_LABEL:
            raise ValueError(
                f"sensitive column {name!r} holds a label of {len(label):,} characters, {label[:20]!r}...: "
                "close the quote that was left open there, or name a column of groups"
            )
    groups = encode_column(name, labels)
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    # Entry -1 of the table serves the nulls.
    return check_groups(name, GroupColumn(np.append(groups.codes, -1)[indices], groups.labels))


def _single_bytes(values: Any) -> NDArray[np.uint8] | None:
    """Return text of one byte a row, such as "f" and "m", as these bytes; None if it is anything else.

    Bytes are told apart many times as quickly as text, which is a tenth of the time of a narrow table.
    """
    if not len(values) or values.null_count:
        return None
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return None
    _, ends, text = values.buffers()
    kind = np.int32 if pa.types.is_string(values.type) else np.int64
    offsets = np.frombuffer(ends, dtype=kind)[values.offset : values.offset + len(values) + 1]
    if offsets[-1] - offsets[0] != len(values) or (np.diff(offsets) != 1).any():
        return None
    return np.frombuffer(text, dtype=np.uint8)[offsets[0] : offsets[-1]]


def rows_of_floats(table: Any) -> NDArray[np.float64] | None:
    """Return a table of finite floats as a matrix, C order; None if it holds anything else.

    A tile of rows at a time, which stays in the processor's cache: a column is read in long stretches, and
    rows are written where their neighbours still are. Record batches are not joined before.
    """
    if any(field.type != pa.float64() for field in table.schema):
        return None
    width = table.num_columns
    X = np.empty((table.num_rows, width))
    step = max(_TILE_BYTES // (8 * width), _FEWEST_TILE_ROWS)
    stop = 0
    for batch in table.to_batches():
        columns = _side_by_side(batch)
        for first in range(0, batch.num_rows, step):
            tile = batch.slice(first, step)
            start, stop = stop, stop + tile.num_rows
            rows = X[start:stop]
            if columns is None:
                rows[:] = tile.to_tensor(null_to_nan=True).to_numpy()
            else:
                for j in range(0, width, _LINE_NUMBERS):
                    few = slice(j, j + _LINE_NUMBERS)
                    rows[:, few] = columns[first : first + len(rows), few]
            with np.errstate(over="ignore", invalid="ignore"):
                total = rows.sum()  # quicker than a look at each value; a product would start threads of BLAS
            if not np.isfinite(total):
                return None
    return X


def _side_by_side(batch: Any) -> NDArray[np.float64] | None:
    """Return the columns of a record batch as a matrix, where they are; None if their distances differ.

    They are in an Arrow file. The matrix must not outlive the batch.
    """
    if any(column.null_count for column in batch.columns):
        return None
    starts = [column.buffers()[1].address + 8 * column.offset for column in batch.columns]
    apart = {other - one for one, other in pairwise(starts)} or {8}
    if len(apart) > 1:
        return None
    shape, strides = (batch.num_rows, len(starts)), (8, *apart)
    return np.lib.stride_tricks.as_strided(batch.column(0).to_numpy(), shape, strides, writeable=False)
