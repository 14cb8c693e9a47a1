"""The file format: safetensors with a numbered header and one digest over everything, written atomically.

A file is a valid safetensors file. Its header begins, at fixed places, with the digest and the file's size:

    {"__metadata__":{"sha256":"<64 digits>","size":"<20 digits>","fairstream":"<JSON>"},"<array>":{...},...}

The SHA-256 covers every byte of the file, the 64 digits themselves taken as zeros. The JSON says what the
file is: format version, kind, state (parameters, group labels, ...), memory order of the arrays, library
versions. Everything is checked before it is used: size and digest before any JSON is parsed, the amount of
JSON before it is parsed, the table of arrays before any is read, every number before an object is built.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from fairstream._version import __version__
from fairstream.errors import FairstreamFileError
from fairstream.files.atomic import PathLike, atomic_file
from fairstream.linalg import is_finite

FORMAT_VERSION = 1
READABLE_VERSIONS = (1,)

Header: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

_NO_DIGEST = b"0" * 64
_START = re.compile(rb'\{"__metadata__":\{"sha256":"([0-9a-f]{64})","size":"([0-9]{20})",')
_START_BYTES = 127  # what _START matches
_DIGEST_AT = slice(27, 91)  # within the header
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "U8": np.dtype("u1"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_PIECE = 2**18
# Limits far beyond any fairstream file, so that a forged one cannot make the parser allocate at will.
MAX_ARRAYS = 10_000
_MAX_AXES = 8
_MAX_DIMENSION = 2**48
_MAX_NESTING = 32
_FREE_VALUES = 100_000  # JSON values that any file may hold; beyond them one per 4 bytes of arrays
# What parsing and building raise for contents that fairstream never wrote.
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_ORTHONORMAL = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
_LABEL_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KINDS: dict[str, type[Storable]] = {}
# The modules that define the kinds; imported when a file of that kind is loaded.
HOMES = {
    "GroupMoments": "fairstream.moments.summary",
    "FairSubspace": "fairstream.subspace.model",
    "ChannelSubspaces": "fairstream.subspace.channels",
    "FairStreamingPCA": "fairstream.estimators.pca",
    "FairEraser": "fairstream.estimators.eraser",
    "FairImagePCA": "fairstream.estimators.images",
}

S = TypeVar("S", bound="type[Storable]")


class Storable:
    """An object that files can hold: it turns into JSON values and arrays, and back."""

    kind: ClassVar[str]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything that makes the object, as JSON values and arrays (not copied)."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the object that `to_state` described, or raise for a state that cannot be one."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return the main figures, as JSON values, for a reader of its file."""
        raise NotImplementedError

    def save(self, path: PathLike) -> None:
        """Write to a file that `fairstream.load` reads back, never leaving a half-written file behind."""
        header, arrays = self.to_state()
        write_file(path, self.kind, header, arrays)


def storable(cls: S) -> S:
    """Let `load` know a class by its kind."""
    _KINDS[cls.kind] = cls
    return cls


def load(path: PathLike) -> Any:
    """Return what a file holds: moments, a result or an estimator, finished or half-finished.

    Parameters
    ----------
    path : path
        A file written by `save`, or a checkpoint of `fit_source`.

    Raises
    ------
    FairstreamFileError
        For a file that is truncated, changed, of another program, or of a later version.

    Notes
    -----
    Takes about the file's size of memory: the arrays of the object are the bytes that were read. Names and
    labels take about 100 bytes each.

    Examples
    --------
    >>> import tempfile
    >>> from fairstream import GroupMoments
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     GroupMoments(3).save(f"{folder}/empty.moments")
    ...     load(f"{folder}/empty.moments").n_features
    3
    """
    return build(path, *read_file(path))


def build(path: PathLike, about: Header, arrays: Arrays) -> Any:
    """Return the object that the contents of a file describe."""
    kind = about["kind"]
    if kind in HOMES:
        import_module(HOMES[kind])
    if kind not in _KINDS:
        raise FairstreamFileError(
            f"{path} holds a {kind!r}, which fairstream {__version__} cannot build: upgrade"
        )
    try:
        return _KINDS[kind].from_state(about["state"], arrays)
    except FairstreamFileError as error:
        raise FairstreamFileError(f"{path}: {error}") from None
    except (*_UNREADABLE, MemoryError) as error:
        raise FairstreamFileError(
            f"{path} does not describe a {kind} ({type(error).__name__}: {error}): write it again"
        ) from None


# Writing ------------------------------------------------------------------------------------------


def write_file(path: PathLike, kind: str, state: Header, arrays: Arrays) -> None:
    """Write a file of some kind; a reader sees the old file or the new one, even after a power cut.

    Anything that `read_file` would refuse is refused here, before the old file is replaced.
    """
    for name, array in arrays.items():
        if not is_finite(array):
            raise ValueError(
                f"{name} has NaN or infinite values, which a file cannot hold: learn again from sound data"
            )
    stored = {name: _stored_form(array) for name, array in arrays.items()}
    about = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "state": state,
        "column_order": [name for name, array in arrays.items() if _is_column_order(array)],
        "versions": library_versions(),
    }
    table, end = {}, 0
    for name, array in stored.items():
        table[name] = {
            "dtype": _CODES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    start = _start_of_file(json.dumps(about, allow_nan=False, default=_plain_value), table, end)
    try:
        _check_amount(start, len(table), end)
    except FairstreamFileError as error:
        raise ValueError(f"{path} cannot be written: the file {error}") from None
    digest = hashlib.sha256(start)
    for array in stored.values():
        digest.update(_bytes_of(array))
    start = start.replace(_NO_DIGEST, digest.hexdigest().encode(), 1)
    with atomic_file(path) as stream:
        stream.write(start)
        for array in stored.values():
            stream.write(_bytes_of(array))


def library_versions() -> dict[str, str]:
    """Return the versions of what computed the numbers."""
    return {
        "fairstream": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _start_of_file(about: str, table: Mapping[str, Any], payload_bytes: int) -> bytes:
    """Return length and header, the digest still zeros; spaces align the payload to 64 bytes."""
    metadata = {"sha256": _NO_DIGEST.decode(), "size": "0" * 20, "fairstream": about}
    text = json.dumps({"__metadata__": metadata, **table}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    size = 8 + len(text) + payload_bytes
    text = text.replace(b'"size":"' + b"0" * 20, b'"size":"%020d' % size, 1)
    return len(text).to_bytes(8, "little") + text


def _plain_value(value: Any) -> Any:
    """Turn numpy scalars and read-only mappings, which JSON does not know, into what it knows."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(
        f"{value!r} is of type {type(value).__name__}, which a file cannot hold: use plain values"
    )


def _is_column_order(array: NDArray[Any]) -> bool:
    return array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous


def _stored_form(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in C order; one in column order transposed, so that reading gives its layout back."""
    array = np.asarray(array)
    if array.dtype not in _CODES:
        raise ValueError(
            f"an array of dtype {array.dtype} cannot be stored: use {', '.join(map(str, _CODES))}"
        )
    return np.ascontiguousarray(array.T if _is_column_order(array) else array)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)


# Reading ------------------------------------------------------------------------------------------


def read_file(path: PathLike) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what the file says about itself, and its arrays, after checking sizes and digest."""
    with _opened(path) as stream:
        start, payload_bytes = _read_start(path, stream)
        _check_digest(path, start, stream, payload_bytes)
        try:
            _check_amount(start, 0, payload_bytes)
            about, places = _contents(start[8:], payload_bytes)
        except FairstreamFileError as error:
            raise FairstreamFileError(f"{path} {error}") from None
        except _UNREADABLE as error:
            raise FairstreamFileError(
                f"{path} has a header that cannot be read ({type(error).__name__}): write it again"
            ) from None
        # One allocation per array: aligned as any other, and freed with its owner.
        arrays = {name: _read_array(path, stream, len(start), place) for name, place in places.items()}
    for name, array in arrays.items():
        if not is_finite(array):
            raise FairstreamFileError(f"{path} has NaN or infinite values in {name!r}: write it again")
    return about, arrays


def stored_kind(path: PathLike) -> str | None:
    """Return the kind of object that a file's header names, None if fairstream did not write the file.

    Reads the header only: enough to tell who wrote the file, not to trust its contents.
    """
    try:
        with _opened(path) as stream:
            start, payload_bytes = _read_start(path, stream)
            kind: str = _contents(start[8:], payload_bytes)[0]["kind"]
            return kind
    except (*_UNREADABLE, OSError):
        return None


@contextmanager
def _opened(path: PathLike) -> Iterator[IO[bytes]]:
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist: check the path")
    if not Path(path).is_file():
        raise FairstreamFileError(f"{path} is not a regular file: name a file that fairstream wrote")
    with open(path, "rb") as stream:
        yield stream


def _read_start(path: PathLike, stream: IO[bytes]) -> tuple[bytearray, int]:
    """Return length and header as raw bytes, and how many bytes of arrays follow."""
    size = os.fstat(stream.fileno()).st_size
    length = int.from_bytes(stream.read(8), "little")
    if not _START_BYTES < length <= size - 8:
        raise FairstreamFileError(
            f"{path} is not a fairstream file: {size:,} bytes that do not begin with a safetensors header"
        )
    stream.seek(0)
    if not _START.match(stream.read(8 + _START_BYTES), 8):
        raise FairstreamFileError(
            f"{path} is not a fairstream file: it lacks the header that fairstream writes"
        )
    stream.seek(0)
    start = bytearray(8 + length)
    stream.readinto(start)  # type: ignore[attr-defined]
    match = _START.match(start, 8)
    expected = -1 if match is None else int(match[2])
    if size != expected:
        state = "cut short" if size < expected else "longer than it was written"
        raise FairstreamFileError(
            f"{path} is {state}: {size:,} bytes of {expected:,}; copy or write it again"
        )
    return start, size - 8 - length


def _check_digest(path: PathLike, start: bytearray, stream: IO[bytes], payload_bytes: int) -> None:
    place = slice(8 + _DIGEST_AT.start, 8 + _DIGEST_AT.stop)
    claimed = start[place].decode()
    start[place] = _NO_DIGEST
    digest = hashlib.sha256(start)
    buffer = memoryview(bytearray(min(_PIECE, payload_bytes)))
    while count := stream.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(buffer[:count])
    if digest.hexdigest() != claimed:
        raise FairstreamFileError(
            f"{path} was changed after it was written (SHA-256 differs): copy or write it again"
        )


def _check_amount(start: bytes | bytearray, n_arrays: int, payload_bytes: int) -> None:
    """Refuse a header out of proportion to the arrays; parsing it could take any amount of memory.

    Every JSON value but the first of its container follows a comma, and every container begins with a
    bracket, so the signs bound the values. A feature has a name, its column's encoding, and at least 8 bytes
    of arrays.
    """
    if n_arrays > MAX_ARRAYS:
        raise FairstreamFileError(f"has {n_arrays:,} arrays, more than {MAX_ARRAYS:,}: store it in parts")
    if sum(map(start.count, (b",", b"[", b"{"))) > _FREE_VALUES + payload_bytes // 4:
        raise FairstreamFileError("has a header out of proportion to its arrays: write it again")


class _Place(NamedTuple):
    """The place of an array within the payload, and its layout."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    column_order: bool


def _contents(header: bytearray, payload_bytes: int) -> tuple[dict[str, Any], dict[str, _Place]]:
    table = json.loads(header.decode(), parse_constant=_refuse_constant)
    about = json.loads(table.pop("__metadata__")["fairstream"], parse_constant=_refuse_constant)
    if len(table) > MAX_ARRAYS:
        raise FairstreamFileError(f"has {len(table):,} arrays, more than {MAX_ARRAYS:,}: write it again")
    if _nests_deeper(about, _MAX_NESTING):
        raise FairstreamFileError(f"has a header nested more than {_MAX_NESTING} deep: write it again")
    version = about["format_version"]
    if version not in READABLE_VERSIONS:
        raise FairstreamFileError(
            f"has format version {version!r}, fairstream {__version__} reads {READABLE_VERSIONS}: upgrade"
        )
    if not isinstance(about["kind"], str) or not isinstance(about["state"], dict):
        raise FairstreamFileError("has a header that cannot be read: write it again")
    column_order = frozenset(about["column_order"])
    places, end = {}, 0
    for name, entry in sorted(table.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (begin, stop) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if begin != end or not all(type(n) is int and n >= 0 for n in (*shape, begin, stop)):
            raise FairstreamFileError("has a table of arrays with gaps or overlaps: write it again")
        # Zeros count as ones: an empty array of 2^40 x 2^40 x 0 is beyond what numpy can index.
        extent = math.prod(max(n, 1) for n in shape) if len(shape) <= _MAX_AXES else math.inf
        if stop - begin != math.prod(shape) * dtype.itemsize or extent > _MAX_DIMENSION:
            raise FairstreamFileError(
                f"has an array {name!r} of a size that is not its shape's: write it again"
            )
        places[name] = _Place(dtype, tuple(shape), begin, name in column_order)
        end = stop
    if end != payload_bytes:
        raise FairstreamFileError("has arrays that do not fill it exactly: write it again")
    return about, places


def _refuse_constant(text: str) -> float:
    raise FairstreamFileError(f"has {text} in its header: write it again")


def _nests_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects lie within one another more than `levels` deep, without recursion."""
    layer = [value]
    for _ in range(levels):
        inner = [item.values() if isinstance(item, dict) else item for item in layer]
        layer = [item for items in inner for item in items if isinstance(item, dict | list)]
        if not layer:
            return False
    return True


def _read_array(path: PathLike, stream: IO[bytes], payload_start: int, place: _Place) -> NDArray[Any]:
    array = np.empty(place.shape, dtype=place.dtype)
    stream.seek(payload_start + place.begin)
    view, filled = _bytes_of(array), 0
    while filled < len(view):
        count = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise FairstreamFileError(f"{path} became shorter while it was read: write it again")
        filled += count
    return array.T if place.column_order else array


# Group labels -------------------------------------------------------------------------------------


def label_to_json(attribute: str, label: object) -> list[str]:
    """Return a group label as its type and its text.

    Examples
    --------
    >>> label_to_json("sex", "f"), label_to_json("over_40", True)
    (['str', 'f'], ['bool', 'True'])
    """
    name = type(label).__name__
    if _LABEL_TYPES.get(name) is not type(label):
        raise ValueError(
            f"group {label!r} of {attribute!r} is of type {name}, which a file cannot hold: label groups by "
            "str, int, float or bool"
        )
    return [name, str(label) if isinstance(label, str) else repr(label)]


def label_from_json(item: Any) -> str | int | float | bool:
    """Return the label that `label_to_json` wrote.

    Examples
    --------
    >>> label_from_json(["float", "0.1"])
    0.1
    """
    name, text = item
    if name == "bool":
        return {"True": True, "False": False}[text]
    label: str | int | float = _LABEL_TYPES[name](text)
    return label


# What a state must hold ---------------------------------------------------------------------------


def checked(condition: bool, what: str) -> None:
    """Refuse a state whose parts do not fit each other."""
    if not condition:
        raise FairstreamFileError(f"{what} do not fit together: write the file again")


def checked_number(value: Any, name: str, rounding: float = 0.0) -> int | float:
    """Return a number of a header that must be finite and not negative beyond rounding, or refuse it.

    Examples
    --------
    >>> checked_number(3, "n_rows")
    3
    >>> checked_number("many", "n_rows")
    Traceback (most recent call last):
    fairstream.errors.FairstreamFileError: n_rows is 'many', not a number from 0: write the file again
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and -rounding <= value < math.inf):
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
        raise FairstreamFileError(f"{name} is {shown}, not a number from 0: write the file again")
    number: int | float = value
    return number


def checked_signs(values: NDArray[Any], name: str, rounding: float = 0.0) -> None:
    """Refuse values below zero by more than rounding."""
    lowest = float(values.min(initial=0.0))
    if lowest < -rounding:
        raise FairstreamFileError(f"{name} has values down to {lowest:.3g}, below 0: write the file again")


def checked_orthonormal(rows: NDArray[Any], name: str, beside: NDArray[Any] | None = None) -> None:
    """Refuse rows that are not orthonormal, or not orthogonal to those of `beside`, to their precision.

    Examples
    --------
    >>> checked_orthonormal(np.eye(3)[:2], "components", np.eye(3)[2:])
    >>> checked_orthonormal(np.ones((1, 3)), "components")
    Traceback (most recent call last):
    fairstream.errors.FairstreamFileError: components are not orthonormal (off by 2): write the file again
    """
    if rows.dtype not in _ORTHONORMAL:
        raise FairstreamFileError(f"{name} are of dtype {rows.dtype}, not floats: write the file again")
    tolerance = _ORTHONORMAL[rows.dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        gram = rows @ rows.T
        gram[np.diag_indices_from(gram)] -= 1
        off = float(np.abs(gram).max(initial=0.0))
        across = 0.0 if beside is None else float(np.abs(rows @ beside.T).max(initial=0.0))
    if not off <= tolerance:  # also refuses the NaN of an overflow
        raise FairstreamFileError(f"{name} are not orthonormal (off by {off:.2g}): write the file again")
    if not across <= tolerance:
        raise FairstreamFileError(
            f"{name} are not orthogonal to the unfair basis (off by {across:.2g}): write the file again"
        )
