"""Bytes of image files by name, from a folder or a zip archive that is not unpacked, for many threads."""

from __future__ import annotations

import copy
import os
import stat
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_LOCAL_HEADER = 30
# Images are already compressed: a large file that shrinks further than this is no image.
_SMALL, _MAX_RATIO = 2**24, 100

Read = Callable[[str], bytes]


def is_image_name(name: str) -> bool:
    """Tell by the ending whether a name is an image's; hidden files and resource forks are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not os.path.basename(name).startswith(".")


class FolderFiles:
    """The images of a folder and the folders below it."""

    def __init__(self, folder: str) -> None:
        self.place = folder
        found = []
        for below, _, files in os.walk(folder):
            inside = os.path.relpath(below, folder)
            found += [name if inside == "." else f"{Path(inside).as_posix()}/{name}" for name in files]
        self.names = sorted(name for name in found if is_image_name(name))

    def only(self, names: Sequence[str]) -> FolderFiles:
        """Return some of the images, without looking for them again."""
        other = copy.copy(self)
        other.names = list(names)
        return other

    @contextmanager
    def reading(self, max_bytes: int) -> Iterator[Read]:
        """Yield a function name -> bytes that any thread may call; larger files are refused."""
        folder = self.place
        yield lambda name: _read_regular(os.path.join(folder, name), max_bytes)


class _Member(NamedTuple):
    """The place of a file in an archive."""

    header_offset: int
    stored_size: int
    size: int
    method: int
    checksum: int


class ZipFiles:
    """The images of a zip archive, read in place: only its directory is read, once, at opening.

    Threads read at offsets of one shared file descriptor. A `ZipFile` would read the directory again for
    every pass and every part, and make the threads take turns.
    """

    def __init__(self, path: str) -> None:
        self.place = path
        if not os.path.isfile(path):
            raise ValueError(f"{path} is not a regular file: copy it to one")
        try:
            with zipfile.ZipFile(path) as archive:
                infos = [info for info in archive.infolist() if is_image_name(info.filename)]
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is not a zip archive ({error}): download it again") from None
        locked = [info.filename for info in infos if info.flag_bits & 1]
        if locked:
            raise ValueError(f"{path} holds the encrypted file {locked[0]}: unpack it and open the folder")
        odd = [i.filename for i in infos if i.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]
        if odd:
            raise ValueError(f"{path} holds {odd[0]} in a rare compression: pack it with store or deflate")
        self._members = {
            info.filename: _Member(
                info.header_offset, info.compress_size, info.file_size, info.compress_type, info.CRC
            )
            for info in infos
        }
        self.names = sorted(self._members)

    def only(self, names: Sequence[str]) -> ZipFiles:
        """Return some of the images, without reading the directory again."""
        other = copy.copy(self)
        other.names, other._members = list(names), {name: self._members[name] for name in names}
        return other

    @contextmanager
    def reading(self, max_bytes: int) -> Iterator[Read]:
        """Yield a function name -> bytes that any thread may call; larger files are refused."""
        with open(self.place, "rb", buffering=0) as file:
            read_at = _reader_at(file)
            yield lambda name: self._read(read_at, name, max_bytes)

    def _read(self, read_at: Callable[[int, int], bytes], name: str, max_bytes: int) -> bytes:
        member = self._members[name]
        # The directory may claim any size: check it before memory is allocated.
        _check_size(member.size, max_bytes)
        if member.stored_size > member.size + member.size // 8 + 4096:
            raise ValueError(
                f"the archive says that it takes {member.stored_size:,} bytes for {member.size:,}"
            )
        if member.size > max(_SMALL, _MAX_RATIO * member.stored_size):
            raise ValueError(
                f"its {member.stored_size:,} bytes unpack to {member.size:,}, which no image does: unpack it "
                "and open the folder if it is one"
            )
        header = read_at(_LOCAL_HEADER, member.header_offset)
        if header[:4] != b"PK\x03\x04":
            raise ValueError("its place in the archive holds something else")
        # The local header repeats the name, and its extra field may be longer than the directory's.
        start = member.header_offset + _LOCAL_HEADER + _uint16(header, 26) + _uint16(header, 28)
        data = read_at(member.stored_size, start)
        if member.method == zipfile.ZIP_DEFLATED:
            try:
                # Never more than the directory says: a small member cannot fill the memory.
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
            except zlib.error as error:
                raise ValueError(f"it does not decompress ({error})") from None
        if len(data) != member.size or zlib.crc32(data) != member.checksum:
            raise ValueError("its checksum is wrong")
        return data


def open_files(path: Path) -> FolderFiles | ZipFiles:
    """Open a folder or a zip archive of images."""
    files = FolderFiles(str(path)) if path.is_dir() else ZipFiles(str(path))
    if not files.names:
        raise ValueError(
            f"{path} holds no image: endings known are {', '.join(IMAGE_SUFFIXES)}; unpack it if it holds "
            "tables"
        )
    return files


def index_by_name(names: Sequence[str]) -> dict[str, str]:
    """Map full names, and base names that are unique, to full names.

    Examples
    --------
    >>> index_by_name(["faces/1.jpg"])["1.jpg"]
    'faces/1.jpg'
    """
    index: dict[str, str] = {}
    twice = set()
    for name in names:
        base = name.rsplit("/", 1)[-1]
        if base in index:
            twice.add(base)
        index[base] = name
    for base in twice:
        del index[base]
    return index | {name: name for name in names}


def _read_regular(path: str, max_bytes: int) -> bytes:
    """Read a regular file, or a link to one: a pipe would block, a device may never end."""
    _check_regular(os.stat(path).st_mode)

    def without_waiting(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", opener=without_waiting) as file:
        about = os.fstat(file.fileno())
        _check_regular(about.st_mode)  # it may have been replaced
        _check_size(about.st_size, max_bytes)
        return file.read(about.st_size)


def _check_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError("it is not a regular file")


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(f"it has {size:,} bytes, more than max_bytes={max_bytes:,}")


def _uint16(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "little")


def _reader_at(file: Any) -> Callable[[int, int], bytes]:
    if hasattr(os, "pread"):
        descriptor = file.fileno()
        return lambda size, offset: os.pread(descriptor, size, offset)
    lock = threading.Lock()

    def read_at(size: int, offset: int) -> bytes:
        with lock:
            file.seek(offset)
            return bytes(file.read(size))

    return read_at
