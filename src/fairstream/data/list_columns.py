"""Columns of lists, such as embeddings: read as lists of one length, which the first of them settles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from fairstream.data.arrow_columns import column_kind
from fairstream.data.cutting import closing_early
from fairstream.data.table_readers import TableReader

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = None


def fixed_types(
    reader: TableReader, features: Sequence[str], encoding: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the types of lists of one length that columns of lists of any length are to have.

    Their width is that of the encoding if there is one; else the first rows of these columns are read.
    """
    types = {name: reader.schema.field(name).type for name in features}
    numbers = {name: of.value_type for name, of in types.items() if _is_list_of_numbers(of)}
    if not numbers:
        return {}
    if encoding is not None:
        widths = {column["name"]: column.get("width", 1) for column in encoding["columns"]}
    elif reader.one_shot:
        raise ValueError(
            f"{reader.place} can be read once only, and the lists of column {next(iter(numbers))!r} may have "
            "any length: cast it to lists of one length, pa.list_(pa.float64(), 768) say, or pass a Table"
        )
    else:
        widths = _first_widths(reader, [*numbers])
    return {name: pa.list_(of, widths[name]) for name, of in numbers.items() if widths.get(name)}


def with_types(schema: Any, types: Mapping[str, Any]) -> Any:
    """Return a schema with other types for some columns."""
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def with_fixed_lists(batch: Any, types: Mapping[str, Any]) -> Any:
    """Return a record batch with these types, or refuse a list of another length."""
    arrays = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in types and types[name] != column.type:
            try:
                column = column.cast(types[name])
            except pa.ArrowInvalid:
                raise ValueError(
                    f"column {name!r} has lists of different lengths, the first has {types[name].list_size} "
                    "numbers: make them equal, or leave the column out of features"
                ) from None
        arrays.append(column)
    return pa.record_batch(arrays, names=batch.schema.names)


def _is_list_of_numbers(arrow_type: Any) -> bool:
    is_list = pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    return is_list and column_kind(arrow_type.value_type) == "number"


def _first_widths(reader: TableReader, names: list[str]) -> dict[str, int]:
    """Return the length of the first list of each column, as far as there is one."""
    widths: dict[str, int] = {}
    batches: Iterable[Any]
    with closing(closing_early(reader.batches(names, []))) as batches:  # type: ignore[type-var]
        for batch in batches:
            for name in [name for name in names if name not in widths]:
                lengths = pc.drop_null(pc.list_value_length(batch.column(name)))
                if len(lengths):
                    widths[name] = lengths[0].as_py()
            if len(widths) == len(names):
                break
    return widths
