"""A lock on a folder for one process and thread at a time; the system frees it if its holder is killed."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairstream.errors import FairstreamWarning

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = ".lock"
_FAR_OUT = 2**30  # Windows lets nobody read a locked byte: lock one beyond the holder's process id
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_NOT_OURS_TO_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def folder_locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder; raise immediately if another fit holds it.

    Yields False, with a warning, on a file system without locks. The operating system releases the lock of a
    killed process; the file that it leaves means nothing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, folder_locked(Path(folder)) as alone:
    ...     alone
    True
    """
    path = folder / LOCK_NAME
    descriptor = _taken(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _give_back(descriptor, path)


def _taken(path: Path) -> int | None:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno not in _NOT_OURS_TO_WRITE:
                raise
            _warn_of_no_lock(path, error)
            return None
        try:
            _lock(descriptor)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace") if hasattr(os, "pread") else ""
            os.close(descriptor)
            if error.errno not in _HELD:
                _warn_of_no_lock(path, error)
                return None
            process = f" (process {holder})" if holder.isdigit() else ""
            raise ValueError(
                f"checkpoint={str(path.parent)!r} is in use by another fit{process}: wait for it to end, or "
                "name another folder"
            ) from None
        if _is_still_there(descriptor, path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            return descriptor
        os.close(descriptor)  # its last holder removed the file before we had the lock: take the new one


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, _FAR_OUT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        # flock, not lockf: the latter would let two threads of one process in.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _give_back(descriptor: int, path: Path) -> None:
    if sys.platform == "win32":
        os.close(descriptor)  # Windows removes no file that is open; another may have it by now
        with suppress(OSError):
            path.unlink()
    else:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _warn_of_no_lock(path: Path, error: OSError) -> None:
    warnings.warn(
        f"{path.parent} cannot be locked ({error.strerror}): let only one fit at a time use it",
        FairstreamWarning,
        stacklevel=5,
    )
