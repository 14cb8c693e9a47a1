"""Progress: the function that a long run calls, and who is told of the first pass over a table.

A table makes that pass when something first asks for its features, deep inside other calls, so the listener
is in a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called after every block with the rows done and, if known, the rows there are."""

_REPORT: ContextVar[Progress | None] = ContextVar("first_pass", default=None)


@contextmanager
def first_pass_told(report: Progress) -> Iterator[None]:
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
