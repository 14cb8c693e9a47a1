"""How data of any kind is cut into parts, in the same way whatever the number of workers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairstream.data import open_source
from fairstream.data.blocks import BlockSource, take_rows
from fairstream.data.groups import encode_groups
from fairstream.data.labels import listed_names
from fairstream.streaming.dask.parts import Part, SourcePart, TaskPart, encoded_alike
from fairstream.streaming.dask.reducing import WINDOW

PARTS_WISHED = 128
LARGEST_PART = 8  # times what is worth a task
_DASK_WAY_OUT = "pass {name}.values if the rows are in the same order, or give both the same index"
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
        return _of_path(X, wanted)
    if isinstance(X, BlockSource):
        return _of_list([X], wanted)
    if isinstance(X, list | tuple) and X:
        return _of_list(X, wanted)
    raise ValueError(
        f"X is a {type(X).__name__}: pass a dask array or DataFrame, a list of delayed blocks or futures, a "
        "path or a list of them, or a source; what is in this process's memory fits with estimator.fit"
    )


# Sources ------------------------------------------------------------------------------------------------


def _of_path(path: Any, wanted: _Request) -> Partitioned:
    place = Path(path).absolute()  # workers may have been started elsewhere
    given = {} if wanted.sensitive is None else {"sensitive": wanted.sensitive}
    return _of_source(open_source(place, **wanted.options, **given), str(place), wanted.partition_rows)


def _of_source(source: BlockSource, place: str, partition_rows: int | None) -> Partitioned:
    """Cut a source where it may be cut; what can only be read from front to back is one part."""
    try:
        source.__reduce_ex__(4)  # asks for the state and copies nothing
    except TypeError as error:
        raise ValueError(f"X cannot be sent to a worker: {error}") from None
    encoding, cuts = getattr(source, "encoding", None), getattr(source, "cuts", None)
    if cuts is None:
        return Partitioned([SourcePart(source, place)], encoding)
    divisible: Any = source
    n_parts = _number_of_parts(cuts[-1], divisible.part_rows, partition_rows)
    parts = [
        SourcePart(divisible.part(start, stop), f"rows {start:,} to {stop - 1:,} of {place}")
        for start, stop in itertools.pairwise(_even_ends(cuts, n_parts))
    ]
    return Partitioned(parts, encoding)


def _number_of_parts(n_rows: int, worthwhile: int, partition_rows: int | None) -> int:
    """Return how many parts to make of so many rows, when `worthwhile` rows are worth a task.

    Numbers that few or many workers can share evenly, and that fill windows: powers of two, then multiples
    of a window.

    Examples
    --------
    >>> [_number_of_parts(n, 100, None) for n in (50, 500, 1_700, 10_000, 1_000_000)]
    [1, 8, 32, 112, 1264]
    """
    if partition_rows is not None:
        return max(1, math.ceil(n_rows / partition_rows))
    size = min(max(worthwhile, n_rows / PARTS_WISHED), LARGEST_PART * worthwhile)
    wished = max(1, math.ceil(n_rows / size))
    if wished > WINDOW:
        return math.ceil(wished / WINDOW) * WINDOW
    return 1 << (wished - 1).bit_length()


def _even_ends(cuts: Sequence[int], n_parts: int) -> list[int]:
    """Return ends of about equal parts, each the cut that is nearest.

    Examples
    --------
    >>> _even_ends([0, 30, 60, 90, 100], 3)
    [0, 30, 60, 100]
    """
    ends = {cuts[0], cuts[-1]}
    for number in range(1, n_parts):
        wished = cuts[-1] * number // n_parts
        after = bisect_left(cuts, wished)
        ends.add(min(cuts[max(after - 1, 0) : after + 1], key=lambda cut: abs(cut - wished)))
    return sorted(ends) if len(ends) > 1 else [cuts[0], cuts[-1]]


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
            columns = ", ".join(map(str, X.columns))
            raise ValueError(f"sensitive_features names {absent[0]!r}, X has {columns}: name one of these")
        options["sensitive"] = names
    else:
        _check_divisions(wanted.sensitive, X)
    labels = _labels_per_part(None if names else wanted.sensitive, None, X.npartitions)
    return [
        TaskPart(f"partition {i} of X", (frame, labels[i]), options, way_out=_DASK_WAY_OUT)
        for i, frame in enumerate(X.to_delayed())
    ]


def _check_divisions(sensitive: Any, X: Any, name: str = "sensitive_features") -> None:
    """Refuse labels whose partitions begin elsewhere than those of X; tasks compare the rows themselves."""
    if isinstance(sensitive, Mapping):
        for attribute, column in sensitive.items():
            _check_divisions(column, X, f"{name}[{attribute!r}]")
        return
    if not _is_dask(sensitive, "divisions") or sensitive.npartitions != X.npartitions:
        return
    if not (sensitive.known_divisions and X.known_divisions):
        return
    for i, (ours, theirs) in enumerate(zip(sensitive.divisions, X.divisions, strict=True)):
        if ours != theirs:
            where = f"partition {i} begins" if i < X.npartitions else "the last partition ends"
            raise ValueError(
                f"{where} at {ours!r} of the index of {name}, in X at {theirs!r}: pass "
                f"{name}.repartition(divisions=X.divisions)"
            )


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
        return _of_paths(X, wanted)
    tasks = [_is_task(item) for item in X]
    if all(tasks):
        return Partitioned(_of_tasks(X, wanted))
    if any(tasks) or not all(isinstance(item, BlockSource) for item in X):
        raise ValueError(
            f"X is a list with a {type(X[tasks.index(False)]).__name__}: list delayed objects, futures, "
            "paths or sources, all of one kind"
        )
    if wanted.sensitive is not None or wanted.options:
        raise ValueError(
            "X is an open source, which has its own sensitive features and options: leave them out"
        )
    return _joined([_of_source(item, f"the {type(item).__name__}", wanted.partition_rows) for item in X])


def _of_paths(X: Sequence[Any], wanted: _Request) -> Partitioned:
    if len(X) > 1:
        _refuse_learned(wanted.options, "several paths")
        if wanted.sensitive is not None and not _names_columns(wanted.sensitive):
            raise ValueError(
                "sensitive_features holds labels beside several paths: name columns, arrays or attributes"
            )
    first = _of_path(X[0], wanted)
    alike = dataclasses.replace(wanted, options=encoded_alike(wanted.options, first.encoding))
    return _joined([first, *(_of_path(item, alike) for item in X[1:])])


def _joined(each: Sequence[Partitioned]) -> Partitioned:
    return Partitioned([part for one in each for part in one.parts], each[0].encoding)


def _of_tasks(X: Sequence[Any], wanted: _Request) -> list[Part]:
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
    return [TaskPart(f"block {i} of X", (x, labels[i]), options) for i, x in enumerate(X)]


def _refuse_learned(options: Mapping[str, Any], what: str) -> None:
    for name in _LEARNED:
        if options.get(name):
            raise ValueError(
                f"{name} needs a first pass over all rows, which {what} does not get: pass the encoding of a "
                "source that made it, encoding=..."
            )


def _names_columns(sensitive: Any) -> bool:
    """Tell names and indices of columns from labels."""
    listed = sensitive if isinstance(sensitive, list | tuple) else [sensitive]
    numbers = all(isinstance(j, int | np.integer) and not isinstance(j, bool) for j in listed)
    return numbers or listed_names(sensitive) is not None
