"""Holds Ctrl-C and SIGTERM back until the current work can be stopped safely."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came during a fit, and a checkpoint was written.

    Parameters
    ----------
    message : str
        What happened, and where the checkpoint is.
    signal_number : int
        Which signal it was: 2 for Ctrl-C, 15 for SIGTERM.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """A signal is pending, so the fit leaves its loop."""


class PendingSignal:
    """The signal that came while signals were held back, None as long as there was none.

    Check it again after `signals_held_back` has ended: a signal may come during the last write.
    """

    number: int | None = None


@contextmanager
def signals_held_back() -> Iterator[PendingSignal]:
    """Note the first Ctrl-C or SIGTERM instead of stopping; a second one stops immediately.

    Outside the main thread nothing happens: no signals arrive there.

    Examples
    --------
    >>> with signals_held_back() as pending:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> pending.number == signal.SIGTERM
    True
    """
    pending = PendingSignal()
    if threading.current_thread() is not threading.main_thread():
        yield pending
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pending.number is not None:
            raise KeyboardInterrupt
        pending.number = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
