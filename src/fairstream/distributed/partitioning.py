"""How data of any kind is cut into parts, in the same way whatever the number of workers."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairstream.blocks import BlockSource, encode_groups, take_rows
from fairstream.distributed.parts import (
    ImagePart,
    NpyPart,
    ParquetPart,
    Part,
    StorePart,
    TaskPart,
    WholePart,
    encoded_alike,
)
from fairstream.sources import open_source
from fairstream.sources.arrays import FileRows, choose_key
from fairstream.sources.labels import listed_names

PARTS_WISHED = 128
MIN_PART_BYTES, MAX_PART_BYTES = 2**23, 2**29
_LEARNED = ("standardize", "impute")


@dataclass(frozen=True)
class Partitioned:
    """The parts in order, and what opening the data has told already."""

    parts: Sequence[Part]
    encoding: Mapping[str, Any] | None = None

    @property
    def n_rows(self) -> int | None:
        """Rows of all parts together, where that is known."""
        counts = [part.n_rows for part in self.parts]
        return sum(n for n in counts if n is not None) if None not in counts else None


@dataclass(frozen=True)
class _Request:
    sensitive: Any
    partition_rows: int | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def for_source(self) -> dict[str, Any]:
        given = {} if self.sensitive is None else {"sensitive": self.sensitive}
        return {**self.options, **given}

    def encoded(self, n_rows: int, by_name: bool) -> _Request:
        """Return the request with labels encoded once for all parts; names of columns stay."""
        if by_name or self.sensitive is None:
            return self
        return dataclasses.replace(self, sensitive=encode_groups(self.sensitive, n_rows))

    def rows(self, start: int, stop: int) -> dict[str, Any]:
        """Return the options of rows start..stop: encoded labels and a target in memory are cut."""
        options = self.for_source()
        if isinstance(self.sensitive, dict):
            options["sensitive"] = take_rows(self.sensitive, slice(start, stop))
        target = options.get("target")
        if target is not None and not isinstance(target, str | int | np.integer):
            options["target"] = np.asarray(target)[start:stop]
        return options

    def ranges(self, n_rows: int, row_bytes: float, stored: int = 1) -> Iterator[tuple[int, int]]:
        """Yield the row ranges of the parts: even, and beginning where stored rows begin."""
        size = self.partition_rows
        if size is None:
            bytes_each = np.clip(n_rows * row_bytes / PARTS_WISHED, MIN_PART_BYTES, MAX_PART_BYTES)
            size = max(int(bytes_each // max(row_bytes, 1)), 64)
        pieces = max(1, math.ceil(n_rows / max(size // stored * stored, stored)))
        even = math.ceil(n_rows / pieces / stored) * stored
        for start in range(0, n_rows, max(even, 1)):
            yield start, min(start + even, n_rows)


def partition(X: Any, sensitive: Any, partition_rows: int | None, options: Mapping[str, Any]) -> Partitioned:
    """Cut X into parts, or refuse what cannot be cut."""
    if partition_rows is not None and partition_rows < 1:
        raise ValueError(f"partition_rows is {partition_rows}: give a positive number of rows")
    wanted = _Request(sensitive, partition_rows, options)
    if _is_task(X):
        return _of_list([X], wanted)
    if _is_dask(X, "chunks"):
        return Partitioned(_of_dask_array(X, wanted))
    if _is_dask(X, "divisions"):
        return Partitioned(_of_dask_frame(X, wanted))
    if isinstance(X, str | os.PathLike):
        return _of_path(Path(X), wanted)
    if isinstance(X, BlockSource):
        if sensitive is not None or options:
            raise ValueError(
                "X is an open source, which has its own sensitive features and options: leave them out"
            )
        return Partitioned([_whole(X)], getattr(X, "encoding", None))
    if isinstance(X, list | tuple) and X:
        return _of_list(X, wanted)
    raise ValueError(
        f"X is a {type(X).__name__}: pass a dask array or DataFrame, a list of delayed blocks or futures, a "
        "path or a list of them, or a source; what is in this process's memory fits with estimator.fit"
    )


# Dask collections -------------------------------------------------------------------------------------


def _of_dask_array(X: Any, wanted: _Request) -> list[Part]:
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}: pass a two-dimensional dask array, one row per sample")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    sizes = _known(X.chunks[0])
    labels = _labels_per_part(wanted.sensitive, sizes, X.numblocks[0])
    blocks = X.to_delayed()[:, 0]
    return [
        TaskPart(
            f"row block {i} of X", (block, labels[i]), wanted.options, None if sizes is None else sizes[i]
        )
        for i, block in enumerate(blocks)
    ]


def _of_dask_frame(X: Any, wanted: _Request) -> list[Part]:
    _refuse_learned(wanted.options, "a dask DataFrame")
    names = listed_names(wanted.sensitive)
    options = dict(wanted.options)
    if names is not None:
        absent = [name for name in names if name not in X.columns]
        if absent:
            raise ValueError(
                f"sensitive_features names {absent[0]!r}, X has the columns {', '.join(map(str, X.columns))}"
            )
        options["sensitive"] = names
    labels = _labels_per_part(None if names else wanted.sensitive, None, X.npartitions)
    return [
        TaskPart(f"partition {i} of X", (frame, labels[i]), options) for i, frame in enumerate(X.to_delayed())
    ]


def _labels_per_part(sensitive: Any, sizes: tuple[int, ...] | None, n_parts: int) -> list[Any]:
    """Return the labels of every part: tasks, dicts of tasks, or encoded columns."""
    if sensitive is None:
        return [None] * n_parts
    if isinstance(sensitive, Mapping) and any(_is_dask(column) for column in sensitive.values()):
        columns = {str(a): _labels_per_part(column, sizes, n_parts) for a, column in sensitive.items()}
        return [{a: parts[i] for a, parts in columns.items()} for i in range(n_parts)]
    if _is_dask(sensitive, "chunks"):
        return _aligned_array(sensitive, sizes, n_parts)
    if _is_dask(sensitive, "divisions"):
        if sensitive.npartitions != n_parts:
            raise ValueError(
                f"sensitive_features has {sensitive.npartitions} partitions, X has {n_parts}: "
                "repartition one like the other"
            )
        return list(sensitive.to_delayed())
    if sizes is None:
        raise ValueError(
            "sensitive_features is in memory and the row counts of X's partitions are not known: name a "
            "column of X, pass a dask array or Series with the same partitions, or call "
            "X.compute_chunk_sizes()"
        )
    groups = encode_groups(sensitive, sum(sizes))
    stops = np.cumsum(sizes).tolist()
    return [take_rows(groups, slice(stop - n, stop)) for n, stop in zip(sizes, stops, strict=True)]


def _aligned_array(sensitive: Any, sizes: tuple[int, ...] | None, n_parts: int) -> list[Any]:
    own = _known(sensitive.chunks[0])
    if sizes is not None and own is not None:
        if sum(own) != sum(sizes):
            raise ValueError(
                f"sensitive_features has {sum(own):,} rows, X has {sum(sizes):,}: pass one label per row"
            )
        sensitive = sensitive.rechunk({0: sizes, **({1: -1} if sensitive.ndim > 1 else {})})
    elif sensitive.numblocks[0] != n_parts:
        raise ValueError(
            f"sensitive_features has {sensitive.numblocks[0]} row blocks, X has {n_parts}: rechunk one like "
            "the other"
        )
    return list(sensitive.to_delayed().reshape(n_parts, -1)[:, 0])


def _known(sizes: tuple[Any, ...]) -> tuple[int, ...] | None:
    return None if any(size != size for size in sizes) else tuple(int(size) for size in sizes)


def _is_dask(value: Any, attribute: str = "to_delayed") -> bool:
    from_dask = type(value).__module__.split(".")[0].startswith("dask")
    return from_dask and not _is_task(value) and hasattr(value, attribute)


def _is_task(value: Any) -> bool:
    """Tell a delayed object or a future; a delayed object answers to every attribute, so ask for its type."""
    from dask.delayed import Delayed
    from distributed import Future

    return isinstance(value, Delayed | Future)


# Lists ------------------------------------------------------------------------------------------------


def _of_list(X: Sequence[Any], wanted: _Request) -> Partitioned:
    if all(isinstance(item, str | os.PathLike) for item in X):
        if len(X) > 1:
            _refuse_learned(wanted.options, "several paths")
            names_columns = listed_names(wanted.sensitive) is not None or _column_numbers(wanted.sensitive)
            if wanted.sensitive is not None and not names_columns:
                raise ValueError(
                    "sensitive_features holds labels beside several paths: name columns, arrays or attributes"
                )
        first = _of_path(Path(X[0]), wanted)
        alike = dataclasses.replace(wanted, options=encoded_alike(wanted.options, first.encoding))
        others = [_of_path(Path(item), alike) for item in X[1:]]
        return Partitioned([part for one in (first, *others) for part in one.parts], first.encoding)
    tasks = [_is_task(item) for item in X]
    if not any(tasks) and all(isinstance(item, BlockSource) for item in X):
        if wanted.sensitive is not None or wanted.options:
            raise ValueError("X is a list of open sources, which have their own sensitive features")
        return Partitioned([_whole(item) for item in X], getattr(X[0], "encoding", None))
    if not all(tasks):
        raise ValueError(
            f"X is a list with a {type(X[tasks.index(False)]).__name__}: list delayed objects, futures, "
            "paths or sources, all of one kind"
        )
    _refuse_learned(wanted.options, "a list of blocks")
    options, labels = dict(wanted.options), [None] * len(X)
    names = listed_names(wanted.sensitive)
    if names is not None:
        options["sensitive"] = names
    elif wanted.sensitive is not None:
        if not isinstance(wanted.sensitive, list | tuple) or len(wanted.sensitive) != len(X):
            raise ValueError(
                "sensitive_features must be a list with the labels of every block, as long as X: "
                f"X has {len(X)} blocks"
            )
        labels = list(wanted.sensitive)
    return Partitioned([TaskPart(f"block {i} of X", (x, labels[i]), options) for i, x in enumerate(X)])


def _whole(source: BlockSource) -> Part:
    try:
        source.__reduce_ex__(4)  # asks for the state and copies nothing
    except TypeError as error:
        raise ValueError(f"X cannot be sent to a worker: {error}") from None
    return WholePart(source, n_rows=source.n_rows)


def _refuse_learned(options: Mapping[str, Any], what: str) -> None:
    for name in _LEARNED:
        if options.get(name):
            raise ValueError(
                f"{name} needs a first pass over all rows, which {what} does not get: pass the encoding of a "
                "source that made it, encoding=..."
            )


# Paths ------------------------------------------------------------------------------------------------


def _of_path(path: Path, wanted: _Request) -> Partitioned:
    path = path.absolute()  # workers may have been started elsewhere
    source = open_source(path, **wanted.for_source())
    cut = _CUTTERS.get(type(source).__name__) or _CUTTERS.get(_inner_name(source))
    parts = cut(path, source, wanted) if cut is not None else None
    if parts is None:
        parts = [WholePart(str(path), wanted.for_source(), source.n_rows)]
    return Partitioned(parts, getattr(source, "encoding", None))


def _cut_matrix(path: Path, source: Any, wanted: _Request) -> list[Part] | None:
    if path.suffix != ".npy":
        return None
    rows = FileRows.from_header(str(path))
    parts: list[Part] = []
    numbers = _column_numbers(wanted.sensitive, rows.n_rows)
    wanted = wanted.encoded(rows.n_rows, by_name=numbers)
    for start, stop in wanted.ranges(rows.n_rows, rows.row_bytes):
        options = wanted.rows(start, stop)
        parts.append(NpyPart(str(path), start, stop, options))
    return parts


def _cut_table(path: Path, source: Any, wanted: _Request) -> list[Part] | None:
    from fairstream.sources.table_readers import parquet_paths

    if {".csv", ".tsv"} & {suffix.lower() for suffix in path.suffixes}:
        return None
    import pyarrow.parquet

    by_name = listed_names(wanted.sensitive) is not None
    wanted = wanted.encoded(int(source.n_rows), by_name)
    start, parts = 0, list[Part]()
    for file in parquet_paths(str(path)):
        about = pyarrow.parquet.ParquetFile(file).metadata
        ends = np.cumsum([0, *(about.row_group(j).num_rows for j in range(about.num_row_groups))])
        first = 0
        for _, stop in wanted.ranges(about.num_rows, 8 * source.n_features):
            # A row group belongs to the range that its last row is in.
            last = int(np.searchsorted(ends[1:], stop, side="right"))
            n_rows = int(ends[last] - ends[first])
            if n_rows:
                options = wanted.rows(start, start + n_rows)
                parts.append(ParquetPart(file, tuple(range(first, last)), n_rows, options))
            first, start = last, start + n_rows
    return parts


def _cut_store(path: Path, source: Any, wanted: _Request) -> list[Part] | None:
    from fairstream.sources.stores import HDF5Store, ZarrStore, array_names

    is_hdf5 = path.suffix.lower() in (".h5", ".hdf5")
    store: HDF5Store | ZarrStore = HDF5Store(str(path)) if is_hdf5 else ZarrStore(str(path))
    with store.reading() as opened:
        names = array_names(opened)
        key = None if names is None else choose_key(store.place, names, wanted.options.get("key"))
        X = opened if key is None else opened[key]
        n_rows, row_bytes = int(X.shape[0]), int(np.prod(X.shape[1:])) * np.dtype(X.dtype).itemsize
        chunks = getattr(X, "shards", None) or getattr(X, "chunks", None)
        stored = min(int(chunks[0]), n_rows) if chunks else 1
    names = listed_names(wanted.sensitive)
    wanted = wanted.encoded(n_rows, by_name=names is not None)
    parts: list[Part] = []
    for start, stop in wanted.ranges(n_rows, row_bytes, max(stored, 1)):
        options = wanted.rows(start, stop)
        if names is not None:
            options["sensitive"] = names
        elif "sensitive" in options:
            options["groups"] = options.pop("sensitive")
        parts.append(StorePart(store, start, stop, options))
    return parts


def _cut_images(path: Path, source: Any, wanted: _Request) -> list[Part]:
    options = {a: b for a, b in wanted.options.items() if a not in ("attributes", "name_column", "names")}
    parts: list[Part] = []
    for start, stop in wanted.ranges(len(source.names), source.n_features):
        groups = take_rows(source._groups, slice(start, stop))
        own = options | ({"sensitive": groups} if groups else {})
        parts.append(ImagePart(str(path), source.names[start:stop], own))
    return parts


def _column_numbers(sensitive: Any, n_rows: int | None = None) -> bool:
    """Tell column indices from labels: a list of as many whole numbers as there are rows is labels."""
    if isinstance(sensitive, list | tuple) and len(sensitive) == n_rows:
        return False
    listed = sensitive if isinstance(sensitive, list | tuple) else [sensitive]
    return all(isinstance(j, int | np.integer) and not isinstance(j, bool) for j in listed)


def _inner_name(source: Any) -> str:
    return type(getattr(source, "_source", None)).__name__


_CUTTERS: dict[str, Callable[[Path, Any, _Request], list[Part] | None]] = {
    "MatrixSource": _cut_matrix,
    "TableSource": _cut_table,
    "StoreSource": _cut_store,
    "ImageSource": _cut_images,
}
