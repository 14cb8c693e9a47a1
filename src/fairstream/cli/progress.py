"""Progress of a pass over the data, shown on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

from tqdm.auto import tqdm

from fairstream.data.progress import first_pass_told
from fairstream.subspace.guard import guard_told


@contextmanager
def progress_on_terminal(
    title: str, stream: TextIO | None = None, *, unit: str = " rows"
) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function (rows done, rows in all or None) that draws a bar with rows per second and time left.

    Another `unit` than rows may be counted; of "%", the numbers are shares of the whole.

    Outside notebooks, nothing is drawn if `stream` (standard error by default) is not a terminal.

    Examples
    --------
    >>> import io
    >>> with progress_on_terminal("fit", io.StringIO()) as report:
    ...     report(10, 100)
    """
    stream = sys.stderr if stream is None else stream
    quiet = not stream.isatty() and "ipykernel" not in sys.modules
    shown = title
    look = {"unit": unit, "unit_scale": True, "miniters": 1, "leave": False}
    with tqdm(desc=title, file=stream, disable=quiet, **look) as bar:

        def report(done: int, total: int | None, description: str = title, counted: str = unit) -> None:
            nonlocal shown
            bar.unit = counted
            if unit == "%" and total:
                done, total = 100 * done // total, 100
            bar.total = total
            if description != shown:
                shown = description
                bar.set_description(description, refresh=False)
                bar.reset()
            bar.update(done - bar.n)

        first_pass = partial(report, description=f"{title}, first pass")
        guard = partial(report, description=f"{title}, guard", counted=" steps")
        with first_pass_told(first_pass), guard_told(guard):
            yield report


@contextmanager
def guard_announced(guard: float, announce: Callable[[str], object], seconds: float = 10.0) -> Iterator[None]:
    """Say where no bar is drawn, if what is done here takes longer, that a guard is being searched for.

    Examples
    --------
    >>> with guard_announced(1.0, print):
    ...     pass
    """
    line = f"guard {guard:g}: components are searched for once the rows are read, which may take minutes"
    timer = threading.Timer(seconds, announce, [line])
    timer.daemon = True
    if guard and not sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
