"""Shows how far a pass over the data is: rows, rows per second and time left, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_SECONDS_BETWEEN_LINES = 2.0


@contextmanager
def progress_on_terminal(
    title: str, stream: TextIO | None = None
) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function (rows done, rows in all or None) that shows progress on a terminal.

    Uses rich where it is installed, plain lines otherwise, and is quiet where `stream` (standard error by
    default) is no terminal.

    Examples
    --------
    >>> import io
    >>> with progress_on_terminal("fit", io.StringIO()) as report:
    ...     report(10, 100)
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield lambda done, total: None
        return
    try:
        import rich.progress
    except ImportError:
        yield PlainLines(title, stream).report
        return
    with _rich_bar(rich.progress, stream) as bar:
        task = bar.add_task(title, total=None, rate="")
        clock = Clock()

        def report(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, rate=clock.rate(done))

        yield report


class Clock:
    """Rows per second and time left, counted from when it was made."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._start = now, now()

    def speed(self, done: int) -> float:
        """Return rows per second."""
        return done / max(self._now() - self._start, 1e-9)

    def rate(self, done: int) -> str:
        """Return rows per second as text."""
        return f"{self.speed(done):,.0f} rows/s"

    def left(self, done: int, total: int | None) -> str:
        """Return the time left as text, empty where it is not known.

        Examples
        --------
        >>> times = iter([0.0, 2.0])
        >>> Clock(lambda: next(times)).left(100, 400)
        '6 s left'
        """
        if total is None or done == 0 or done > total:
            return ""
        seconds = round((total - done) / self.speed(done))
        return f"{seconds} s left" if seconds < 120 else f"{seconds // 60} min left"


class PlainLines:
    """A line of text every two seconds and one at the end."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title, self._stream, self._clock = title, stream, Clock()
        self._shown_at = time.monotonic()

    def report(self, done: int, total: int | None) -> None:
        """Show where the pass is, now and then."""
        now = time.monotonic()
        if now - self._shown_at < _SECONDS_BETWEEN_LINES and done != total:
            return
        self._shown_at = now
        of = "" if total is None else f" of {total:,}"
        parts = [f"{self._title}: {done:,}{of} rows", self._clock.rate(done), self._clock.left(done, total)]
        self._stream.write(", ".join(part for part in parts if part) + "\n")
        self._stream.flush()


def _rich_bar(rich_progress: Any, stream: TextIO) -> Any:
    from rich.console import Console

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.completed:,.0f} rows"),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
