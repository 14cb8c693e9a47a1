"""Tells the objects of Dask apart without importing Dask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import getattr_static
from typing import Any

_TASKS = {("dask.delayed", "Delayed"), ("distributed.client", "Future")}


def is_task(value: Any) -> bool:
    """Whether it is a delayed object or a future.

    A delayed object answers to every attribute, so only its type tells.
    """
    return any((cls.__module__, cls.__name__) in _TASKS for cls in type(value).__mro__)


def with_results(inputs: Any, result_of: Callable[[Any], Any]) -> Any:
    """Return nested dicts and lists with `result_of(task)` in place of every task.

    Examples
    --------
    >>> with_results({"labels": (1, None)}, str)
    {'labels': [1, None]}
    """
    if isinstance(inputs, Mapping):
        return {name: with_results(value, result_of) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [with_results(value, result_of) for value in inputs]
    return result_of(inputs) if is_task(inputs) else inputs


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
