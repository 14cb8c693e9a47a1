"""Files as streams of bytes that Arrow reads: opened, decompressed, cut at line ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairstream.data.data_files import DataFile

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None

LINE_BYTES = 2**26
_HEAD_BYTES = 2**20

End = Callable[[], None]


@contextmanager
def opened(file: DataFile) -> Iterator[Any]:
    """Open a file for reading anywhere in it, as Arrow does."""
    with _ending(file, in_python=False) as (stream, _):
        yield stream


@contextmanager
def text_stream(file: DataFile, *, in_python: bool = False) -> Iterator[tuple[Any, End | None]]:
    """Open a file as a stream of its bytes, decompressed, and say how to end it.

    Yields (stream, end). If the bytes come from Python, threads of Arrow that wait for them must not outlive
    the interpreter: call `end` and read up to the end, which is then near. It is None if no thread needs
    Python. `in_python` says that the caller puts Python on top of the stream.
    """
    with _ending(file, in_python=in_python) as (stream, end):
        if file.compression is None:
            yield stream, end
        else:
            with pa.CompressedInputStream(stream, file.compression) as plain:
                yield plain, end


@contextmanager
def _ending(file: DataFile, *, in_python: bool) -> Iterator[tuple[Any, End | None]]:
    if file.storage is None and not in_python:
        with pa.OSFile(file.path) as native:
            yield native, None
        return
    files = None if file.storage is None else file.storage.connect()[0]  # kept: some close what they opened
    with pa.OSFile(file.path) if files is None else files.open(file.path) as raw:
        tap = _Tap(raw)
        try:
            yield pa.PythonFile(tap, mode="r"), tap.end
        finally:
            tap.end()


class _Tap:
    """A binary file that can be shut: from then on it is at its end."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._shut = False

    def end(self) -> None:
        with self._lock:  # a read that has begun is waited for
            self._shut = True

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            data: bytes = b"" if self._shut else self._file.read(size)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.end()


def native_buffer(data: bytes) -> Any:
    """Return bytes as a buffer that Arrow owns: one of Python's cannot be freed while Python exits."""
    with pa.BufferOutputStream() as sink:
        sink.write(data)
        return sink.getvalue()


def first_lines(stream: Any, place: str) -> tuple[bytes, bool]:
    """Return whole lines from the first megabyte, and whether they are all there are.

    A parser itself would read far ahead. If two lines are longer than a megabyte, return both; a line of more
    than `LINE_BYTES` is refused.
    """
    parts: list[bytes] = []
    ends = size = 0
    while ends < 2 or size < _HEAD_BYTES:
        more = stream.read(_HEAD_BYTES - size % _HEAD_BYTES)  # may give less than it is asked for
        if not more:
            return b"".join(parts), True
        parts.append(more)
        ends += max(more.count(b"\n"), more.count(b"\r"))
        size += len(more)
        if size > (ends + 1) * LINE_BYTES:
            raise _too_long(place)
    head = b"".join(parts)
    if not stream.read(1):
        return head, True
    # What follows the last line end may be half a line.
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1], False


def looked_at_note(n_bytes: int | None, place: str, way_out: str) -> str:
    """Return what to add if a column seems to hold no value, and only the first lines were looked at.

    `n_bytes` is their size, None if there are no others.

    Examples
    --------
    >>> looked_at_note(None, "a.csv", "fix a type")
    ''
    """
    if n_bytes is None:
        return ""
    return f"; only the first {n_bytes:,} bytes of {place} were looked at: if values follow, {way_out}"


def whole_lines(stream: Any, size: int, place: str) -> Iterator[bytes]:
    """Yield the stream in pieces of about `size` bytes that end with a line."""
    rest = b""
    while more := stream.read(size):
        cut = more.rfind(b"\n") + 1
        if cut:
            yield rest + more[:cut]
            rest = more[cut:]
        elif len(rest) > LINE_BYTES:
            raise _too_long(place)
        else:
            rest += more
    if rest.strip():
        yield rest


def _too_long(place: str) -> ValueError:
    return ValueError(
        f"{place} has a line of more than {LINE_BYTES:,} bytes, the limit: check that it is a text file"
    )
