"""Who is told how far the first pass over a table has come.

A table makes it when something first asks for its features, deep inside other calls, so the listener is in a
context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

Report: TypeAlias = Callable[[int, int | None], object]

_REPORT: ContextVar[Report | None] = ContextVar("first_pass", default=None)


@contextmanager
def first_pass_told(report: Report) -> Iterator[None]:
    """Call `report` with (rows done, rows in all or None) during every first pass in the block."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def reported(batches: Iterable[Any], n_rows: int | None) -> Iterator[Any]:
    """Yield the record batches of a first pass, and tell whoever wants to know."""
    report, done = _REPORT.get(), 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if report is not None:
            report(done, n_rows)
