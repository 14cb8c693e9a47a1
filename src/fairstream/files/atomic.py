"""Files and folders that appear under their names whole and on disk, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias
from uuid import uuid4

PathLike: TypeAlias = str | os.PathLike[str]


@contextmanager
def atomic_file(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name, whole and on disk, only when the block ends well.

    Several threads and processes may write to one name: each has its own temporary file, the last one wins. A
    file that is overwritten keeps its mode.
    """
    target = Path(path)
    check_target(target)
    draft = target.with_name(f".{target.name}.{os.getpid()}-{uuid4().hex[:12]}.part")
    try:
        with open(draft, "xb") as stream:
            _keep_mode(target, draft)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


@contextmanager
def atomic_folder(path: PathLike) -> Iterator[Path]:
    """Make a folder that appears under its name, with all it holds, only when the block ends well.

    Yields the folder to write to. One that exists is never replaced.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with atomic_folder(Path(place, "parts")) as folder:
    ...         _ = Path(folder, "a.txt").write_text("a")
    ...     [found.name for found in Path(place, "parts").iterdir()]
    ['a.txt']
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is not a folder: make it before writing {target.name}")
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: name another folder, or remove it first")
    draft = target.with_name(f".{target.name}.{os.getpid()}-{uuid4().hex[:12]}.part")
    draft.mkdir()
    try:
        yield draft
        sync_folder(draft)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(target.parent)


def _keep_mode(target: Path, draft: Path) -> None:
    """Give the draft the mode of the file it will replace, before anything is in it."""
    if os.name != "posix":
        return
    with suppress(FileNotFoundError):
        draft.chmod(stat.S_IMODE(target.stat().st_mode))


def check_target(target: Path) -> None:
    """Refuse a name under which no file can be put: in no folder, or of a folder or device."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{target.parent} is not a folder: make it before writing {target.name} into it"
        )
    if target.exists() and not target.is_file():
        # A rename would put a plain file in the place of a device such as /dev/null.
        raise FileExistsError(f"{target} is not a regular file: name a file to write")


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk; a rename is not durable before that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
