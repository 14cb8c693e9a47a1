"""Tells tables that other libraries compute or hold apart, without importing these libraries."""

from __future__ import annotations

_LAZY = {
    ("polars", "LazyFrame"): "polars",
    ("pyarrow", "Dataset"): "pyarrow",
    ("duckdb", "DuckDBPyRelation"): "duckdb",
    ("_duckdb", "DuckDBPyRelation"): "duckdb",
    ("datasets", "Dataset"): "hugging face",
    ("datasets", "IterableDataset"): "hugging face stream",
}


def lazy_kind(data: object) -> str | None:
    """Return whose lazy table it is, None for anything else.

    Examples
    --------
    >>> lazy_kind([1, 2]) is None
    True
    """
    for cls in type(data).__mro__:
        found = _LAZY.get((cls.__module__.partition(".")[0], cls.__name__))
        if found is not None:
            return found
    return None
