"""Tells the objects of other libraries apart, without importing these libraries."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

_LAZY = {
    ("polars", "LazyFrame"): "polars",
    ("pyarrow", "Dataset"): "pyarrow",
    ("duckdb", "DuckDBPyRelation"): "duckdb",
    ("_duckdb", "DuckDBPyRelation"): "duckdb",
    ("datasets", "Dataset"): "hugging face",
    ("datasets", "IterableDataset"): "hugging face stream",
}
_TASKS = {("dask.delayed", "Delayed"), ("distributed.client", "Future")}


def lazy_kind(data: object) -> str | None:
    """Return whose table it is that is computed or held elsewhere, None for anything else.

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


def is_torch(X: Any) -> bool:
    """Whether it is a tensor of torch."""
    return any((cls.__module__, cls.__name__) == ("torch", "Tensor") for cls in type(X).__mro__)


def is_task(value: Any) -> bool:
    """Whether it is a delayed object of Dask or a future; one answers to every attribute, so types tell."""
    return any((cls.__module__, cls.__name__) in _TASKS for cls in type(value).__mro__)


def is_dask(value: Any) -> bool:
    """Whether it is a Dask array, data frame or series."""
    return is_dask_array(value) or is_dask_frame(value)


def is_dask_array(value: Any) -> bool:
    """Whether it is a Dask array."""
    return _is_of_dask(value) and hasattr(value, "chunks")


def is_dask_frame(value: Any) -> bool:
    """Whether it is a Dask data frame or series."""
    return _is_of_dask(value) and hasattr(value, "divisions")


def _is_of_dask(value: Any) -> bool:
    return type(value).__module__.startswith("dask") and not is_task(value)


def comes_from_dask(data: Any) -> bool:
    """Whether it is a collection, a task, a list with tasks, or a source opened from one of these."""
    listed = isinstance(data, list | tuple) and any(map(is_task, data))
    opened = getattr_static(data, "task_parts", None) is not None
    return is_task(data) or is_dask(data) or listed or opened
