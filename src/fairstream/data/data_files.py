"""One file of rows, on a disk or behind a URL: its name, its kind of compression, its file system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fairstream.errors import missing_extra

PIPED = "fairstream-standard-input-"  # what the name of a file with standard input begins with
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_MARKS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrows",
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
    b"PK\x03\x04": ".zip",
}


@dataclass(frozen=True)
class Storage:
    """The file system behind a URL, as fsspec finds it; connected where it is used, workers included."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold credentials

    def connect(self) -> tuple[Any, str]:
        """Return the file system and the path of the URL within it."""
        try:
            from fsspec.core import url_to_fs
        except ModuleNotFoundError:
            raise missing_extra("fsspec", "remote", f"reading {without_secrets(self.url)}") from None
        try:
            found: tuple[Any, str] = url_to_fs(self.url, **self.options)
        except ImportError as error:
            raise ImportError(
                f"reading {without_secrets(self.url)} needs one more package than fairstream[remote]: {error}"
            ) from None
        except ValueError as error:
            raise ValueError(f"{without_secrets(self.url)} cannot be opened: {error}") from None
        return found


@dataclass(frozen=True)
class DataFile:
    """A file; `path` is a local one, or one within the file system of `storage`.

    Examples
    --------
    >>> DataFile("part-1.csv.gz").suffix, DataFile("part-1.csv.gz").compression
    ('.csv', 'gzip')
    """

    path: str
    storage: Storage | None = None

    @property
    def place(self) -> str:
        """What messages call the file."""
        if PIPED in self.path:
            return "standard input"
        if self.storage is None or "://" in self.path:
            return without_secrets(self.path)
        return f"{self.storage.url.partition('://')[0]}://{self.path.lstrip('/')}"

    @property
    def compression(self) -> str | None:
        """The name of the codec that the last ending stands for."""
        return COMPRESSED.get(_suffixes(self.path)[-1])

    @property
    def suffix(self) -> str:
        """The ending in lower case, without that of a compression."""
        *_, last, end = ["", *_suffixes(self.path)]
        return last if end in COMPRESSED else end


def content_ending(head: bytes) -> str | None:
    r"""Return the ending that goes with the first bytes of a file, None if they may be text.

    Examples
    --------
    >>> content_ending(b"PAR1..."), content_ending(b"\x1f\x8b..."), content_ending(b"age,sex")
    ('.parquet', '.csv.gz', None)
    """
    return next((ending for mark, ending in _MARKS.items() if head.startswith(mark)), None)


def without_secrets(url: str) -> str:
    """Return a URL without password and query, which may be a key; a path as it is.

    Examples
    --------
    >>> without_secrets("postgresql://ann:secret@host/db")
    'postgresql://ann:***@host/db'
    >>> without_secrets("https://host/a.csv?signature=secret")
    'https://host/a.csv?***'
    """
    if "://" not in url:
        return url
    shown, query, _ = url.partition("?")
    scheme, _, rest = shown.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    hidden = f"{user}:***" if colon else login
    return f"{scheme}://{hidden}{at}{host}" + ("?***" if query else "")


def _suffixes(path: str) -> list[str]:
    name = urlsplit(path).path if "://" in path else path.replace("\\", "/")
    return [suffix.lower() for suffix in PurePosixPath(name).suffixes] or [""]
