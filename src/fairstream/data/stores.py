"""Sources over array stores: Zarr groups and HDF5 files, read in row blocks aligned to their storage."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.blocks import Block, BlockSource
from fairstream.data.cutting import check_block_size, default_block_size, reslice, row_ranges
from fairstream.data.groups import encode_groups
from fairstream.data.ids import checked_ids
from fairstream.data.matrices import check_shape_and_type
from fairstream.data.parts import check_part, rows_worth_a_task
from fairstream.data.roles import LabelledSource, MatrixRoles, choose_key, listed_names
from fairstream.errors import missing_extra


class HDF5Store:
    """An HDF5 file, opened for each reading and closed after it."""

    def __init__(self, path: str, within: str = "/") -> None:
        self.place = path if within == "/" else f"{path}:{within}"
        self._path, self._within = path, within

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield the group, open."""
        try:
            import h5py
        except ImportError:
            raise missing_extra("h5py", "stores", "reading HDF5 files") from None
        try:
            file = h5py.File(self._path, "r")
        except OSError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{self.place} cannot be read ({reason}): check that it is an HDF5 file"
            ) from None
        with file:
            yield file[self._within]

    def array(self, opened: Any, name: str | None) -> Any:
        """Return an array of the open group, the opened array itself for None; refuse one kept elsewhere.

        Otherwise a file could make us read any other file on the machine.
        """
        if name is not None and _is_external_link(opened, name):
            raise self._elsewhere(name, opened.get(name, getlink=True).filename)
        array = opened if name is None else opened[name]
        sources = {source.file_name for source in array.virtual_sources()} if array.is_virtual else set()
        outside = [*(entry[0] for entry in array.external or ()), *sorted(sources - {"."})]
        if array.file.filename != opened.file.filename:  # a soft link that leads through an external one
            outside.append(array.file.filename)
        if outside:
            raise self._elsewhere(name or array.name, outside[0])
        return array

    def _elsewhere(self, name: str, path: object) -> ValueError:
        return ValueError(
            f"{self.place}: {name!r} is kept in another file, {path}: copy it into this one, or open that one"
        )


class ZarrStore:
    """A Zarr group or array: a path, or an object of the zarr package."""

    def __init__(self, store: Any, missing_chunks: str = "raise") -> None:
        if missing_chunks not in ("raise", "fill"):
            raise ValueError(f'missing_chunks is {missing_chunks!r}: pass "raise" or "fill"')
        self.place = store if isinstance(store, str) else f"the zarr {type(store).__name__}"
        self._store = store
        self._missing_chunks = missing_chunks

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Yield the group or array."""
        try:
            import zarr
        except ImportError:
            raise missing_extra("zarr", "stores", "reading Zarr stores") from None
        if not isinstance(self._store, str):
            yield self._store
            return
        try:
            opened = zarr.open(self._store, mode="r")
        except (OSError, ValueError, KeyError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"{self.place} cannot be read ({reason}): check that it is a Zarr store"
            ) from None
        yield opened

    def array(self, opened: Any, name: str | None) -> Any:
        """Return an array of the open group, the opened array itself for None; refuse one with gaps.

        Zarr reads a missing chunk as the fill value, whether it was lost or never written.
        """
        array = opened if name is None else opened[name]
        missing, stored = (0, 0) if self._missing_chunks == "fill" else _missing_chunks(array)
        if missing:
            place = self.place if name is None else f"{self.place}[{name}]"
            raise ValueError(
                f"{place} lacks {missing:,} of {stored:,} chunks: write it again, or pass "
                f'missing_chunks="fill" if they were left out since they hold only {array.fill_value}'
            )
        return array


class StoreSource:
    """Blocks of an array in a store, with labels and target from sibling arrays.

    Whole storage blocks are read, several at a time if they are small, and cut into blocks of the size
    asked for, so nothing is decompressed twice. Rows of more than one dimension are flattened in C order.
    """

    feature_names = None

    def __init__(
        self,
        store: HDF5Store | ZarrStore,
        *,
        key: str | None = None,
        sensitive_features: Sequence[str] = (),
        features: Sequence[int] | None = None,
        target: str | None = None,
        ids: str | None = None,
        block_size: int | None = None,
    ) -> None:
        self._store = store
        self._sensitive = tuple(sensitive_features)
        self._target, self._id_name = target, ids
        with store.reading() as opened:
            names = _array_names(opened)
            if names is None and (
                key is not None or sensitive_features or target is not None or ids is not None
            ):
                raise ValueError(
                    f"{store.place} is a single array: key and the names of labels need a group of arrays, "
                    "pass the labels themselves"
                )
            self._key = None if names is None else choose_key(store.place, names, key)
            X = store.array(opened, self._key)
            place = store.place if self._key is None else f"{store.place}[{self._key}]"
            check_shape_and_type(place, X.shape, np.dtype(X.dtype))
            self._shape = tuple(int(size) for size in X.shape)
            for argument, asked in (
                ("sensitive_features", self._sensitive),
                ("target", (target,) if target else ()),
                ("ids", (ids,) if ids else ()),
            ):
                for name in asked:
                    self._check_sibling(argument, name, names or [], opened)
            self._stored = stored = _storage_rows(X)
            self._row_bytes = row_bytes = int(np.prod(self._shape[1:])) * np.dtype(X.dtype).itemsize
        self._first, self.n_rows = 0, self._shape[0]
        self._roles = MatrixRoles(self._shape[0], int(np.prod(self._shape[1:])), features=features)
        self.n_features = self._roles.n_features
        wished = check_block_size(block_size)
        default = default_block_size(row_bytes)
        if wished is None:
            wished = default // stored * stored if stored <= default else default
        self.block_size = wished
        self._rows_per_read = -(-wished // stored) * stored if stored <= wished else stored

    @property
    def cuts(self) -> Sequence[int]:
        """Rows that a part may begin at: those that begin a chunk or shard, or any if there is none."""
        if self._stored == 1:
            return range(self.n_rows + 1)
        inner = range(-self._first % self._stored, self.n_rows, self._stored)
        return sorted({0, *inner, self.n_rows})

    @property
    def part_rows(self) -> int:
        """Rows that are worth a task of their own."""
        return rows_worth_a_task(self._row_bytes)

    def part(self, start: int, stop: int) -> StoreSource:
        """Return a source over rows start..stop of the array and its siblings."""
        check_part(self, start, stop)
        other = copy.copy(self)
        other._first, other.n_rows = self._first + start, stop - start
        return other

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order; the store is open only while this runs."""
        return reslice(self._read(), self.block_size)

    def _read(self) -> Iterator[Block]:
        with self._store.reading() as opened:
            for start, stop in row_ranges(self.n_rows, self._rows_per_read):
                span = slice(self._first + start, self._first + stop)
                rows = np.asarray(self._rows(opened, self._key, span)).reshape(stop - start, -1)
                features = self._roles.block(rows, start).X
                labels = {name: _values(self._rows(opened, name, span)) for name in self._sensitive}
                groups = encode_groups(labels, stop - start) if labels else {}
                target = None if self._target is None else _values(self._rows(opened, self._target, span))
                ids = None
                if self._id_name is not None:
                    ids = checked_ids(_values(self._rows(opened, self._id_name, span)), stop - start)
                yield Block(features, groups, target, ids=ids)

    def _rows(self, opened: Any, name: str | None, span: slice) -> Any:
        array = opened if name is None else opened[name]
        try:
            return array[span]
        except MemoryError:
            raise
        except Exception as error:  # each codec raises its own errors
            place = self._store.place if name is None else f"{self._store.place}[{name}]"
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"{place} cannot be read in rows {span.start:,} to {span.stop - 1:,} ({reason}): "
                "a chunk is damaged, write it again"
            ) from error

    def _check_sibling(self, argument: str, name: str, names: list[str], opened: Any) -> None:
        if name not in names:
            raise ValueError(
                f"{argument} names {name!r}, {self._store.place} holds {', '.join(names)}: name one of these"
            )
        shape = tuple(self._store.array(opened, name).shape)
        if shape != self._shape[:1]:
            raise ValueError(
                f"{argument} {name!r} has shape {shape}, X has {self._shape[0]:,} rows: "
                "store one value per row"
            )


def open_hdf5(path: Path, **options: Any) -> BlockSource:
    """Open an HDF5 file."""
    return _labelled(HDF5Store(str(path)), **options)


def open_zarr(path: Path, *, missing_chunks: str = "raise", **options: Any) -> BlockSource:
    """Open a Zarr store on disk."""
    return _labelled(ZarrStore(str(path), missing_chunks), **options)


def open_store_object(data: Any, **options: Any) -> BlockSource:
    """Open a group or array of h5py or zarr."""
    if type(data).__module__.startswith("h5py"):
        if "missing_chunks" in options:
            raise ValueError("missing_chunks does not apply to an HDF5 file: leave it out")
        return _labelled(HDF5Store(data.file.filename, data.name), **options)
    return _labelled(ZarrStore(data, options.pop("missing_chunks", "raise")), **options)


def _array_names(opened: Any) -> list[str] | None:
    """List the arrays of a group, None for a single array."""
    if hasattr(opened, "dtype"):
        return None
    if hasattr(opened, "array_keys"):
        return sorted(opened.array_keys())
    # An external link is listed unopened: whether it may be followed is decided when it is asked for.
    return sorted(
        name for name in opened if _is_external_link(opened, name) or hasattr(opened.get(name), "dtype")
    )


def _labelled(
    store: HDF5Store | ZarrStore, *, sensitive_features: object = None, **options: Any
) -> BlockSource:
    names = listed_names(sensitive_features)
    source = StoreSource(store, sensitive_features=names or (), **options)
    if sensitive_features is None or names is not None:
        return source
    return LabelledSource(source, sensitive_features, source.n_rows)


def _is_external_link(opened: Any, name: str) -> bool:
    return hasattr(opened.get(name, getlink=True), "filename")


def _missing_chunks(array: Any) -> tuple[int, int]:
    """Return how many chunks (shards, if it has them) a Zarr array lacks, and how many it should have."""
    if not array.store.supports_listing:
        return 0, 0
    if array.shards is None:
        return array.nchunks - array.nchunks_initialized, array.nchunks
    import zarr

    if tuple(int(part) for part in re.findall(r"\d+", zarr.__version__)[:3]) < (3, 1, 2):
        return 0, 0  # these look for a file of each chunk in a shard
    sizes = zip(array.shape, array.shards, array.chunks, strict=True)
    grid = [(-(-length // shard), shard // chunk) for length, shard, chunk in sizes]
    n_shards, chunks_per_shard = (math.prod(factors) for factors in zip(*grid, strict=True))
    return n_shards - array.nchunks_initialized // chunks_per_shard, n_shards


def _storage_rows(X: Any) -> int:
    """Return how many rows are stored together: a Zarr shard or chunk, an HDF5 chunk, else one row."""
    stored = getattr(X, "shards", None) or getattr(X, "chunks", None)
    return max(1, min(int(stored[0]), int(X.shape[0]))) if stored else 1


def _values(values: Any) -> NDArray[Any]:
    """Return the values with text as str, since HDF5 returns bytes."""
    array = np.asarray(values)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        decoded = np.empty(len(array), dtype=object)
        decoded[:] = [item.decode() if isinstance(item, bytes) else item for item in array]
        return decoded
    return array
