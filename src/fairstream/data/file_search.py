"""Which files a path, glob, folder, list or URL stands for."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fairstream.data.data_files import COMPRESSED, DataFile, Storage, without_secrets

TABLE_KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
DATABASES = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgresql", "postgres": "postgresql"}
_IN_FILES = ("sqlite", "duckdb")
_OF_TEXT = ("csv", "jsonl")
# A Path has one slash where a URL has two, or three before a file; a drive of Windows has one letter.
_MANGLED = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])")


class Found(NamedTuple):
    """A file, and the folders between it and what was named: "year=2026/month=7"."""

    file: DataFile
    folders: str


@dataclass(frozen=True)
class FileSet:
    """Files of one kind that are read as one table, in this order."""

    place: str
    kind: str
    files: tuple[Found, ...]


def as_url(data: str | os.PathLike[str]) -> str | None:
    """Return a URL, also one that became a Path on its way; None for a local path.

    Examples
    --------
    >>> as_url("s3://bucket/a.csv"), as_url(Path("s3://bucket/a.csv")), as_url("data/a.csv")
    ('s3://bucket/a.csv', 's3://bucket/a.csv', None)
    """
    text = os.fspath(data)
    if "://" in text:
        return text
    found = None if isinstance(data, str) or os.path.exists(text) else _MANGLED.match(text)
    if not found:
        return None
    slashes = "///" if found["scheme"] in _IN_FILES else "//"
    return f"{found['scheme']}:{slashes}{text[found.end() :]}"


def absolute(path: Path) -> Path:
    """Return a path that is valid in any folder; a URL, and standard input, as it is."""
    return path if as_url(path) or str(path) == "-" else path.absolute()


def is_database(url: str) -> bool:
    """Whether a URL is the address of a database.

    Examples
    --------
    >>> is_database("sqlite:///people.db"), is_database("postgresql+psycopg://host/db"), is_database("s3://a")
    (True, True, False)
    """
    return scheme(url) in DATABASES


def scheme(url: str) -> str:
    """Return what a URL begins with, without the name of a driver."""
    return url.partition("://")[0].partition("+")[0].lower()


def table_kind(name: str) -> str | None:
    """Return "csv", "jsonl", "parquet" or "arrow" by the ending of a name; None if it is no table.

    Examples
    --------
    >>> table_kind("a.csv.gz"), table_kind("a.feather"), table_kind("a.parquet.gz"), table_kind("a.npy")
    ('csv', 'arrow', None, None)
    """
    file = DataFile(name)
    kind = TABLE_KINDS.get(file.suffix)
    return kind if kind in _OF_TEXT or file.compression is None else None


def is_glob(text: str) -> bool:
    """Whether a path that does not exist is a pattern."""
    return any(mark in text for mark in "*?[")


def find_files(data: Any, storage_options: Mapping[str, Any] | None = None) -> FileSet:
    """Find the files that a path, a URL or a list of these stands for; all must be of one kind."""
    listed = [data] if isinstance(data, str | os.PathLike) else [*data]
    if not listed:
        raise ValueError("the list of files is empty: name at least one")
    urls = [as_url(item) for item in listed]
    if storage_options is not None and not all(urls):
        raise ValueError("storage_options does not apply to local files: leave it out")
    found: list[Found] = []
    for item, url in zip(listed, urls, strict=True):
        if url is None:
            found += _here(os.fspath(item))
        else:
            found += _behind(Storage(url, dict(storage_options or {})))
    _refuse_twice(file for file, _ in found)
    place = without_secrets(urls[0] or os.fspath(listed[0]))
    if len(listed) > 1:
        place = f"{place} and {len(listed) - 1} more"
    return FileSet(place, _one_kind(place, found), tuple(found))


def tables_in(folder: str) -> list[str]:
    """List the tables in a local folder and below, by name; hidden files and those of other tools not."""
    names = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    return sorted(name for name in names if _is_table(name))


def _here(path: str) -> Iterator[Found]:
    if os.path.isdir(path):
        root, names = path, tables_in(path)
    elif os.path.exists(path):
        if not os.path.isfile(path):  # a pipe would be waited for, a device read without end
            raise ValueError(f"{path} is not a regular file: write its contents to one first")
        root, names = os.path.dirname(path), [path]
    elif is_glob(path):
        fixed = itertools.takewhile(lambda part: not glob.has_magic(part), Path(path).parts[:-1])
        root = str(Path(*fixed))
        matched = sorted(glob.glob(path, recursive=True))
        names = [name for one in matched for name in (tables_in(one) if os.path.isdir(one) else [one])]
        names = [*dict.fromkeys(names)]  # a folder and a file in it may both match
    else:
        raise FileNotFoundError(f"{path} does not exist: check the path")
    if not names:
        raise FileNotFoundError(f"{path} matches no file: check the folder or the pattern")
    for name in names:
        yield Found(DataFile(name), Path(os.path.relpath(name, root or ".")).parent.as_posix())


def _behind(storage: Storage) -> Iterator[Found]:
    files, path = storage.connect()
    shown = without_secrets(storage.url)
    on_the_web = storage.url.startswith(("http://", "https://"))  # where a folder is no more than a page
    try:
        if is_glob(path) and not on_the_web:
            fixed = itertools.takewhile(lambda part: not glob.has_magic(part), PurePosixPath(path).parts[:-1])
            root, names = str(PurePosixPath(*fixed)), sorted(files.glob(path))
        elif not on_the_web and files.isdir(path):
            root, names = path, sorted(name for name in files.find(path) if _is_table(name))
        else:
            if not files.exists(path):
                raise FileNotFoundError
            root, names = path, [path]
    except FileNotFoundError:
        raise FileNotFoundError(f"{shown} does not exist: check the address") from None
    except Exception as error:  # each file system has errors of its own
        raise ValueError(f"{shown} cannot be reached: {error}; check the address and the rights") from None
    if not names:
        raise FileNotFoundError(f"{shown} matches no file: check the folder or the pattern")
    for name in names:
        below = name[len(root) :] if name.startswith(root) else ""
        yield Found(DataFile(name, storage), PurePosixPath(below.lstrip("/")).parent.as_posix())


def _refuse_twice(files: Iterable[DataFile]) -> None:
    """Refuse a list that names a file twice, as overlapping patterns do: its rows would count twice."""
    seen = set()
    for file in files:
        own = os.path.abspath(file.path) if file.storage is None else (file.storage.url[:3], file.path)
        if own in seen:
            raise ValueError(f"{file.place} is named twice, its rows would count twice: name it once")
        seen.add(own)


def _is_table(path: str) -> bool:
    name = PurePosixPath(path.replace("\\", "/")).name
    return not name.startswith((".", "_")) and table_kind(name) is not None


def _one_kind(place: str, found: Iterable[Found]) -> str:
    first: dict[str, DataFile] = {}
    for file, _ in found:
        kind = table_kind(file.path)
        if kind is None:
            known = ", ".join(TABLE_KINDS)
            raise ValueError(
                f"{file.place} ends in {file.suffix or 'nothing'}: name tables ({known}; text also with "
                f"{', '.join(COMPRESSED)}), or download and convert it"
            )
        first.setdefault(kind, file)
    if len(first) > 1:
        one, other, *_ = first.values()
        raise ValueError(
            f"{place} has files of several kinds, {one.place} and {other.place}: choose one kind with a "
            f"pattern such as '*{one.suffix}'"
        )
    return next(iter(first))
