"""The categories of frames that only the workers see: each finds those of its partitions, all are joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairstream.data.groups import label_order
from fairstream.data.table_encoding import MAX_CATEGORIES
from fairstream.streaming.dask.facts import Facts, look_at_first_rows
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.parts import Part, TaskPart, named_errors
from fairstream.streaming.dask.reducing import reduce_parts


def with_all_categories(client: Any, data: Partitioned, facts: Facts) -> tuple[Partitioned, Facts]:
    """Return the same data and facts with an encoding that knows the categories of all partitions.

    The facts are of the first rows alone. Paths and sources know all categories already, from a first pass.
    """
    names = _unsettled(data.parts[facts.part], facts.encoding)
    if not names:
        return data, facts
    windows = reduce_parts(client, data.parts, _find, _united, (names,))
    found = _united([categories for _, categories in windows])
    for name, categories in found.items():
        if len(categories) > MAX_CATEGORIES:
            raise ValueError(
                f"column {name!r} has {len(categories):,} categories: it looks like a name, leave it out of "
                "features"
            )
    columns = [
        {**column, "categories": sorted(found[column["name"]], key=label_order)}
        if column["name"] in found
        else column
        for column in (facts.encoding or {})["columns"]
    ]
    return look_at_first_rows(client, Partitioned(data.parts, {"columns": columns}))


def _unsettled(part: Part, encoding: Mapping[str, Any] | None) -> list[str]:
    """List the columns whose categories nobody gave: those of the first partition may not be all."""
    if encoding is None or not isinstance(part, TaskPart) or part.options.get("encoding") is not None:
        return []
    given = part.options.get("categories") or {}
    return [
        column["name"]
        for column in encoding["columns"]
        if column["kind"] == "category" and given.get(column["name"]) is None
    ]


def _find(part: Part, index: int, names: list[str], inputs: Any) -> dict[str, set[Any]]:
    with named_errors(part, index):
        encoding = getattr(part.open(tuple(inputs), None), "encoding", None) or {"columns": []}
        return {
            column["name"]: set(column.get("categories", ()))
            for column in encoding["columns"]
            if column["name"] in names
        }


def _united(parts: list[dict[str, set[Any]]]) -> dict[str, set[Any]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: set().union(*(part.get(name, ()) for part in parts)) for name in names}
