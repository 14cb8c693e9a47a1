"""Standard input as a file: a table that is piped in is kept on disk, since it may be read twice."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from typing import IO

from fairstream.data.data_files import PIPED

_MARKS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrows",
    b"{": ".jsonl",
}
_COMPRESSIONS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}


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
        ending = _ending(file.read(16))
    named = path + ending
    os.rename(path, named)
    atexit.register(_remove, named)
    return named


def _ending(head: bytes) -> str:
    """Return the ending of a file that begins like this.

    Examples
    --------
    >>> _ending(b"PAR1..."), _ending(b'{"age": 3}'), _ending(b"age,sex")
    ('.parquet', '.jsonl', '.csv')
    """
    if not head:
        raise ValueError("standard input is empty: pipe a table into the command")
    for mark, ending in _MARKS.items():
        if head.lstrip(b" \r\n").startswith(mark):
            return ending
    for mark, compression in _COMPRESSIONS.items():
        if head.startswith(mark):
            return f".csv{compression}"
    return ".csv"


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)
