"""Threads that work together, each kept to processors of its own until they are done.

A virtual machine's Linux wakes a thread on the processor of whoever wakes it, because an idle one may have
been given to another machine. So two threads that hand the interpreter's lock to each other soon share one
processor for milliseconds, which is most of what they have to do, while another processor is idle.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_current: Any = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None


class Helpers:
    """Threads that help others, by their numbers; elsewhere than on Linux nothing is done about them.

    Examples
    --------
    >>> helpers = Helpers()
    >>> with helpers.apart(2):
    ...     pass
    """

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._processors: set[int] = set()  # that the helpers are kept to
        self._taken = threading.Lock()

    def join(self) -> None:
        """Count the calling thread among the helpers."""
        self._threads.append(threading.get_native_id())
        if self._processors:
            with suppress(OSError):
                os.sched_setaffinity(0, self._processors)

    @contextmanager
    def apart(self, n_threads: int) -> Iterator[None]:
        """Keep this thread to its share of the processors that it may use, and all helpers to the others.

        Only one thread at a time: whoever else has helpers meanwhile takes them where they are. Threads that
        are started inside would inherit the share, so none may be.
        """
        if _current is None or not self._threads or not self._taken.acquire(blocking=False):
            yield
            return
        try:
            allowed, here = os.sched_getaffinity(0), _current()
            ordered = sorted(allowed, key=lambda processor: (processor < here, processor))
            own = {*ordered[::n_threads]}
            if own == allowed:
                yield
                return
            with suppress(OSError):  # it may be forbidden; then they work all the same
                self._keep_to(allowed - own)
                os.sched_setaffinity(0, own)
            try:
                yield
            finally:
                with suppress(OSError):
                    os.sched_setaffinity(0, allowed)
        finally:
            self._taken.release()

    def _keep_to(self, processors: set[int]) -> None:
        """Tell the helpers where to work, before they are woken."""
        if processors != self._processors:
            for thread in self._threads:
                os.sched_setaffinity(thread, processors)
            self._processors = processors
