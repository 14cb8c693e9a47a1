"""Tells the objects of Dask apart without importing Dask."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

_TASKS = {("dask.delayed", "Delayed"), ("distributed.client", "Future")}


def is_task(value: Any) -> bool:
    """Whether it is a delayed object or a future.

    A delayed object answers to every attribute, so only its type tells.
    """
    return any((cls.__module__, cls.__name__) in _TASKS for cls in type(value).__mro__)


def is_collection(value: Any) -> bool:
    """Whether it is a Dask array, data frame or series."""
    return is_array(value) or is_frame(value)


def is_array(value: Any) -> bool:
    """Whether it is a Dask array."""
    return _is_of_dask(value) and hasattr(value, "chunks")


def is_frame(value: Any) -> bool:
    """Whether it is a Dask data frame or series."""
    return _is_of_dask(value) and hasattr(value, "divisions")


def _is_of_dask(value: Any) -> bool:
    return type(value).__module__.startswith("dask") and not is_task(value)


def comes_from_dask(data: Any) -> bool:
    """Whether it is a collection, a task, a list with tasks, or a source opened from one of these."""
    listed = isinstance(data, list | tuple) and any(map(is_task, data))
    opened = getattr_static(data, "task_parts", None) is not None
    return is_task(data) or is_collection(data) or listed or opened
