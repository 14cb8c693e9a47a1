"""Refuses outputs that would overwrite the input, or a file that fairstream did not write."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from fairstream.files.atomic import PathLike
from fairstream.files.format import stored_kind


def check_apart(output: PathLike, inputs: Iterable[PathLike]) -> None:
    """Refuse an output that is one of the inputs, a link to it, or lies within it.

    Parameters
    ----------
    output : path
        A file or folder that is going to be written; need not exist.
    inputs : iterable of path
        Files, folders and glob patterns that are going to be read; they need not exist.

    Examples
    --------
    >>> check_apart("new.csv", ["data.csv"])
    >>> check_apart("new.csv", ["."])
    Traceback (most recent call last):
    ValueError: new.csv lies within the input .: writing it would change what is read; name a file elsewhere
    """
    target, inputs = Path(output), [*inputs]
    for path in _existing(inputs):
        if _same(target, path):
            which = "is also an input" if str(target) == str(path) else f"is the input {path}"
            raise ValueError(f"{target} {which}: writing it would destroy what is read; name another file")
        if path.is_dir() and _within(target, path):
            raise ValueError(
                f"{target} lies within the input {path}: writing it would change what is read; name a file "
                "elsewhere"
            )
    for pattern in (path for path in inputs if not Path(path).exists()):
        if fnmatch(os.path.abspath(target), os.path.abspath(pattern)):
            raise ValueError(
                f"{target} matches the input {pattern}: it would be read with it next time; name a file "
                "elsewhere"
            )


def check_replaceable(output: PathLike, kinds: Collection[str] = ()) -> None:
    """Refuse to replace a file that is not a fairstream file of one of these kinds, judged by its header.

    Parameters
    ----------
    output : path
        A file that is going to be written.
    kinds : collection of str
        As in `fairstream inspect`. Empty for reports and tables, which do not show who wrote them.
    """
    if not os.path.lexists(output):
        return
    found = stored_kind(output) if kinds else None
    if found in kinds:
        return
    if found is not None:
        what = f"exists and holds a {found}, not a {' or '.join(sorted(kinds))}"
    else:
        what = "exists and is not a fairstream file" if kinds else "exists"
    raise FileExistsError(f"{output} {what}: name another file, or pass overwrite=True to replace it")


def _existing(inputs: Iterable[PathLike]) -> Iterator[Path]:
    for path in map(Path, inputs):
        if path.exists():
            yield path
        else:
            yield from map(Path, glob.glob(str(path), recursive=True))


def _same(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, by whatever links; `samefile` needs both to exist."""
    if one.exists():
        return os.path.samefile(one, other)
    return one.resolve() == other.resolve()


def _within(target: Path, folder: Path) -> bool:
    """Whether a folder holds the target, itself or by a link."""
    if target.resolve().is_relative_to(folder.resolve()):
        return True
    if not target.is_file():
        return False
    wanted = target.stat()
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.stat(os.path.join(root, name))
            except OSError:  # a link to nowhere
                continue
            if os.path.samestat(found, wanted):
                return True
    return False
