"""Standard input as a file: a table that is piped in is kept on disk, since it may be read twice."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from typing import IO

from fairstream.data.data_files import PIPED, content_ending


@cache
def spooled() -> str:
    """Return a temporary file with all of standard input; its ending says what it looks like.

    The file is deleted when the program ends. Standard input has one content, so all calls give one file.
    """
    source: IO[bytes] | None = getattr(sys.stdin, "buffer", None)
    if source is None or source.isatty():
        raise ValueError("'-' stands for standard input, which is a terminal: pipe a table into the command")
    handle, path = tempfile.mkstemp(prefix=PIPED)
    atexit.register(_remove, path)
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(source, file, 2**20)
    with open(path, "rb") as file:
        head = file.read(16)
    if not head:
        raise ValueError("standard input is empty: pipe a table into the command")
    ending = ".jsonl" if head.lstrip(b" \r\n").startswith(b"{") else content_ending(head) or ".csv"
    named = path + ending
    os.rename(path, named)
    atexit.register(_remove, named)
    return named


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)
