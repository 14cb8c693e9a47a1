"""Sources over matrices: arrays and sparse matrices in memory, .npy and .npz files."""

from __future__ import annotations

import copy
import mmap
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Block, Matrix
from fairstream.data.cutting import check_block_size, default_block_size, row_ranges
from fairstream.data.ids import NumberedSource
from fairstream.data.matrices import check_matrix, check_pointers, check_shape_and_type, check_sparse
from fairstream.data.parts import check_part, rows_worth_a_task
from fairstream.data.roles import MatrixRoles, choose_key, listed_names
from fairstream.data.tensors import TensorRows, fetched, is_tensor

_SPARSE_MEMBERS = {"format", "shape", "data"}


class MatrixSource:
    """Blocks of a matrix in memory or in a file.

    Rows of more than one dimension (images, say) are flattened in C order. Values keep their type;
    computations cast them block by block. Labels and target that are passed in, and named members of an .npz
    file, are read at opening.
    """

    feature_names = None

    def __init__(
        self, rows: ArrayRows | FileRows | SparseFileRows, block_size: int | None, **roles: Any
    ) -> None:
        self._rows = rows
        self._roles = MatrixRoles(rows.n_rows, rows.n_columns, **roles)
        self.n_features = self._roles.n_features
        self.block_size = check_block_size(block_size) or default_block_size(rows.row_bytes)

    @property
    def n_rows(self) -> int:
        """Number of rows of the matrix."""
        return self._rows.n_rows

    @property
    def cuts(self) -> range | None:
        """Rows that a part may begin at: any, or None for a compressed file."""
        return range(self.n_rows + 1) if self._rows.divisible else None

    @property
    def part_rows(self) -> int:
        """Rows that are worth a task of their own."""
        return rows_worth_a_task(self._rows.row_bytes)

    def part(self, start: int, stop: int) -> MatrixSource:
        """Return a source over rows start..stop; of a file, it holds the place and not the rows."""
        check_part(self, start, stop)
        assert not isinstance(self._rows, SparseFileRows)
        other = copy.copy(self)
        other._rows, other._roles = self._rows.part(start, stop), self._roles.part(start, stop)
        return other

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order; a file is open only while this runs."""
        with self._rows.reading() as read:
            for start, stop in row_ranges(self._rows.n_rows, self.block_size):
                yield self._roles.block(read(start, stop), start)


class ArrayRows:
    """The rows of an array or sparse matrix in memory. Blocks are views of it if possible."""

    divisible = True

    def __init__(self, X: Matrix, name: str = "X") -> None:
        check_matrix(X, name)
        if sp.issparse(X):
            self._X: Any = sp.csr_array(X)
        else:
            X = TensorRows(X).seen if is_tensor(X) and len(X.shape) == 2 else fetched(X)
            check_shape_and_type(name, X.shape, X.dtype)
            self._X = X if len(X.shape) == 2 else X.reshape(X.shape[0], int(np.prod(X.shape[1:])))
        self.n_rows, self.n_columns = self._X.shape
        if self.n_columns == 0:
            raise ValueError(f"{name} has no columns: pass at least one feature")
        filled = self._X.nnz / max(self.n_rows, 1) * 1.5 if sp.issparse(X) else self.n_columns
        self.row_bytes = filled * self._X.dtype.itemsize

    def part(self, start: int, stop: int) -> ArrayRows:
        """Return rows start..stop, as a view if possible."""
        other = copy.copy(self)
        other._X, other.n_rows = self._X[start:stop, :], stop - start
        return other

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield a function (start, stop) -> rows."""
        yield lambda start, stop: self._X[start:stop]


@dataclass(frozen=True)
class FileRows:
    """Rows of an array in a .npy file, or in a member of an .npz file, read from front to back.

    Blocks are read, not mapped: a mapped file counts as this process's memory until the system reclaims it.
    `shape` is that of the whole array; `first` and `last` select rows.
    """

    path: str
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int
    first: int = 0
    last: int | None = None

    @classmethod
    def from_header(cls, path: str, member: str | None = None) -> FileRows:
        """Read the header, and no more."""
        with _open_stream(path, member) as stream:
            shape, fortran, dtype = _read_header(stream, _place(path, member))
            offset = stream.tell()
        check_shape_and_type(_place(path, member), shape, dtype)
        if member is None and os.path.getsize(path) < offset + int(np.prod(shape)) * dtype.itemsize:
            raise ValueError(f"{path} is shorter than its header says: it was cut off, write it again")
        return cls(path, member, shape, dtype, fortran, offset)

    @property
    def divisible(self) -> bool:
        """Whether rows can be reached without reading those before them."""
        return self.member is None

    def part(self, start: int, stop: int) -> FileRows:
        """Return rows start..stop."""
        return replace(self, first=self.first + start, last=self.first + stop)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return (self.shape[0] if self.last is None else self.last) - self.first

    @property
    def n_columns(self) -> int:
        """Number of columns after flattening each row."""
        return int(np.prod(self.shape[1:]))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on disk."""
        return self.n_columns * self.dtype.itemsize

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield a function (start, stop) -> rows, to be called for consecutive ranges."""
        if self.fortran and self.member is not None:
            with np.load(self.path, allow_pickle=False) as members:
                whole = members[self.member].reshape(self.shape[0], -1)
            yield lambda start, stop: whole[start:stop]
        elif self.fortran:
            yield self._read_mapped
        else:
            with _open_stream(self.path, self.member) as stream:
                stream.seek(self.offset + self.first * self.row_bytes)
                yield lambda start, stop: self._read_next(stream, stop - start)

    def _read_next(self, stream: IO[bytes], n_rows: int) -> NDArray[Any]:
        rows = np.empty((n_rows, self.n_columns), dtype=self.dtype)
        try:
            _fill(stream, rows)
        except (EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{_place(self.path, self.member)} cannot be read: {error}; write it again"
            ) from None
        return rows

    def _read_mapped(self, start: int, stop: int) -> NDArray[Any]:
        # Column by column on disk: map, copy this block's rows, unmap, so that no mapping outlives a block.
        order = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, "F")
        rows = slice(self.first + start, self.first + stop)
        return np.array(order[rows], order="C").reshape(stop - start, -1)


@dataclass(frozen=True)
class SparseFileRows:
    """The rows of a sparse matrix in a scipy .npz file, read from front to back.

    CSR is read block by block, since `scipy.sparse.load_npz` would hold all stored values in memory. Other
    formats are not stored by row and are loaded whole.
    """

    path: str
    format: str
    shape: tuple[int, int]
    nnz: int
    itemsize: int
    divisible = False

    @classmethod
    def from_header(cls, path: str) -> SparseFileRows:
        """Read format, shape and number of stored values."""
        with np.load(path, allow_pickle=False) as members:
            name = members["format"].item()
            shape = tuple(int(size) for size in members["shape"])
        (nnz, *_), _, dtype = _member_header(path, "data")
        if len(shape) != 2 or dtype.kind not in "biuf":
            raise ValueError(f"{path} holds a sparse {dtype} array of shape {shape}: a real matrix is needed")
        return cls(
            path,
            name.decode() if isinstance(name, bytes) else name,
            (shape[0], shape[1]),
            nnz,
            dtype.itemsize,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row's stored values and their column indices."""
        return self.nnz / max(self.n_rows, 1) * (self.itemsize + 4)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield a function (start, stop) -> CSR rows, to be called for consecutive ranges."""
        if self.format != "csr":
            whole = self._read_whole()
            yield lambda start, stop: whole[start:stop]
            return
        with ExitStack() as stack:
            with np.load(self.path, allow_pickle=False) as members:
                indptr = members["indptr"]
            check_pointers(self.path, indptr, self.n_rows, self.nnz)
            if indptr[-1] != self.nnz:
                raise ValueError(
                    f"{self.path} is a damaged sparse matrix: indptr ends at {indptr[-1]}, {self.nnz} values "
                    "are stored; write it again"
                )
            streams = {}
            for name in ("data", "indices"):
                stream = stack.enter_context(_open_stream(self.path, name))
                streams[name] = (stream, _read_header(stream, _place(self.path, name))[2])
            yield lambda start, stop: self._read_next(streams, indptr[start : stop + 1])

    def _read_whole(self) -> Any:
        try:
            whole = sp.load_npz(self.path)
        except ValueError as error:  # SciPy checks the shapes of the arrays it loads
            raise ValueError(f"{self.path} is a damaged sparse matrix ({error}): write it again") from None
        check_sparse(whole, self.path)
        return sp.csr_array(whole)

    def _read_next(self, streams: dict[str, tuple[IO[bytes], np.dtype[Any]]], indptr: NDArray[Any]) -> Any:
        parts = {name: np.empty(int(indptr[-1] - indptr[0]), dtype) for name, (_, dtype) in streams.items()}
        try:
            for name, (stream, _) in streams.items():
                _fill(stream, parts[name])
        except (EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path} cannot be read: {error}; write it again") from None
        shape = (len(indptr) - 1, self.n_columns)
        rows = sp.csr_array((parts["data"], parts["indices"], indptr - indptr[0]), shape=shape)
        check_sparse(rows, self.path)
        return rows


def open_array(data: Any, *, block_size: int | None = None, **roles: Any) -> MatrixSource:
    """Open an array, memory map or sparse matrix."""
    mapped = _whole_file_map(data)
    return MatrixSource(mapped or ArrayRows(data), block_size, **roles)


def open_npy(path: Path, *, block_size: int | None = None, **roles: Any) -> MatrixSource:
    """Open a .npy file."""
    return MatrixSource(FileRows.from_header(str(path)), block_size, **roles)


def open_npz(
    path: Path, *, key: str | None = None, block_size: int | None = None, **roles: Any
) -> MatrixSource | NumberedSource:
    """Open an .npz file of numpy (one member is X, others may be labels) or of scipy (a sparse matrix)."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not an .npz file ({error}): write it with numpy.savez") from None
    if set(members) >= _SPARSE_MEMBERS:
        if key is not None:
            raise ValueError(
                f"key does not apply to {path}: a sparse .npz file holds one matrix, leave it out"
            )
        return MatrixSource(SparseFileRows.from_header(str(path)), block_size, **roles)
    names = listed_names(roles.get("sensitive_features"))
    if names is not None:
        roles["sensitive_features"] = {
            name: _load_member(path, members, name, "sensitive_features") for name in names
        }
    if isinstance(roles.get("target"), str):
        roles["target"] = _load_member(path, members, roles["target"], "target")
    ids = roles.pop("ids") if isinstance(roles.get("ids"), str) else None
    key = choose_key(str(path), members, key)
    source = MatrixSource(FileRows.from_header(str(path), key), block_size, **roles)
    return source if ids is None else NumberedSource(source, _load_member(path, members, ids, "ids"))


def _fill(stream: IO[bytes], array: NDArray[Any]) -> None:
    """Read exactly as many bytes as the array holds."""
    if array.nbytes == 0:
        return
    view = array.reshape(-1).view(np.uint8).data
    while view:
        count = stream.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError("it ends too early")
        view = view[count:]


def _place(path: str | Path, member: str | None) -> str:
    return str(path) if member is None else f"{path}[{member}]"


@contextmanager
def _open_stream(path: str | Path, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with open(path, "rb", buffering=0) as raw:
            # Unbuffered, so that readinto fills the block directly; only the header is read in small pieces.
            yield raw
    else:
        with zipfile.ZipFile(path) as archive, archive.open(member + ".npy") as stream:
            yield stream


def _read_header(stream: IO[bytes], place: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{place} is not a .npy array ({reason}): write it with numpy.save") from None


def _member_header(path: str, member: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with _open_stream(path, member) as stream:
        return _read_header(stream, _place(path, member))


def _load_member(path: Path, members: list[str], name: str, argument: str) -> NDArray[Any]:
    if name not in members:
        raise ValueError(f"{argument} names {name!r}, {path} holds {', '.join(members)}: name one of these")
    try:
        with np.load(path, allow_pickle=False) as archive:
            values: NDArray[Any] = archive[name]
    except ValueError:
        raise ValueError(f"{path}[{name}] holds Python objects: save labels as numbers or text") from None
    return values


def _whole_file_map(data: Any) -> FileRows | None:
    """Return the file behind a memory map of all of it, so that pickling sends a path instead of the rows."""
    owner: Any = getattr(data, "base", None)
    if not isinstance(data, np.memmap) or not isinstance(owner, mmap.mmap):
        return None
    if data.filename is None or data.mode == "c" or not data.flags.c_contiguous:
        return None
    check_shape_and_type("X", data.shape, data.dtype)
    return FileRows(str(data.filename), None, data.shape, data.dtype, False, data.offset)
