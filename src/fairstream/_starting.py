"""Lets Ctrl-C end the command `fairstream` quietly while Python is still importing it.

The imports take about a second, and one that is broken off half-way would end in a traceback.
Nothing happens if fairstream is imported as a library.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path


def is_command() -> bool:
    """Whether this process runs the command: the script, or `python -m fairstream`."""
    name = sys.argv[0] if sys.argv else ""
    # Python sets "-m" until it has found the module to run, so nothing but fairstream itself can be meant.
    started = name == "-m" or Path(name).stem == "fairstream"
    worker = multiprocessing.parent_process() is not None  # one has the arguments of its parent
    return started and not worker and threading.current_thread() is threading.main_thread()


def ready() -> None:
    """Give Ctrl-C back its usual meaning, once the command line can catch it."""
    if signal.getsignal(signal.SIGINT) is _end_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_quietly(number: int, frame: object) -> None:
    os._exit(128 + number)  # nothing was begun that would have to be put in order


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_quietly)
