"""The source over Dask arrays, data frames, delayed objects and futures: one part for each task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairstream.data.alignment import WAY_OUT, paired
from fairstream.data.blocks import Block, BlockSource, SourceAround, take_rows
from fairstream.data.cutting import rows_between
from fairstream.data.groups import encode_groups, label_order
from fairstream.data.open import open_source
from fairstream.data.other_libraries import is_dask, is_dask_array, is_dask_frame, is_task
from fairstream.data.roles import listed_names
from fairstream.data.schema import Schema
from fairstream.data.table_encoding import MAX_CATEGORIES

Options = Mapping[str, Any]

_DASK_WAY_OUT = "pass {name}.values if the rows are in the same order, or give both the same index"
_LEARNED = ("standardize", "impute")


def with_results(inputs: Any, result_of: Callable[[Any], Any]) -> Any:
    """Return nested dicts and lists with `result_of(task)` in place of every task.

    Examples
    --------
    >>> with_results({"labels": (1, None)}, str)
    {'labels': [1, None]}
    """
    if isinstance(inputs, Mapping):
        return {name: with_results(value, result_of) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [with_results(value, result_of) for value in inputs]
    return result_of(inputs) if is_task(inputs) else inputs


@dataclass(frozen=True)
class TaskPart:
    """The rows that one task yields: rows alone, rows and labels, a Block, or a frame."""

    place: str
    inputs: tuple[Any, ...]  # tasks for the rows, and for labels and weights that come apart from them
    options: Options
    n_rows: int | None = None
    way_out: str = WAY_OUT  # for labels whose index does not match

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> BlockSource | None:
        """Return the rows as a source, None if there are none. `inputs` are the results of the tasks."""
        held, labels, weights = inputs
        options = dict(self.options)
        if isinstance(held, Block):
            options |= {} if held.ids is None else {"ids": held.ids}
            weights = weights if held.weights is None else held.weights
            held, labels = held.X, (held.groups or labels)
        elif isinstance(held, tuple | list) and len(held) == 2:
            held, labels = held
        if not hasattr(held, "shape"):
            raise ValueError(
                f"it is a {type(held).__name__}: yield rows (an array, sparse matrix or frame), "
                "(rows, labels), or a Block"
            )
        n_rows = int(held.shape[0])
        if labels is not None:
            options["sensitive_features"] = encode_groups(paired(labels, held, way_out=self.way_out), n_rows)
        if n_rows == 0:
            return None
        is_table = not isinstance(held, np.ndarray) and not sp.issparse(held)
        source = open_source(held, **(encoded_alike(options, encoding) if is_table else options))
        if weights is None:
            return source
        weights = np.asarray(paired(weights, held, "weights", self.way_out))
        if weights.shape != (n_rows,):
            raise ValueError(
                f"weights has shape {weights.shape}, X has {n_rows} rows: pass one weight per row"
            )
        return _Weighted(source, weights)

    def rows(self, start: int, stop: int) -> RowsOfPart:
        """Return some of the rows."""
        return RowsOfPart(dataclasses.replace(self, inputs=()), start, stop, self.inputs)

    def unsettled(self, encoding: Options | None) -> list[str]:
        """List the columns whose categories nobody gave: one part may not have all of them."""
        if encoding is None or self.options.get("encoding") is not None:
            return []
        given = self.options.get("categories") or {}
        return [
            column["name"]
            for column in encoding["columns"]
            if column["kind"] == "category" and given.get(column["name"]) is None
        ]


class _Weighted(SourceAround):
    """The source of a part, with the weights of its rows."""

    def __init__(self, source: BlockSource, weights: Any) -> None:
        super().__init__(source)
        self._weights = weights

    def __iter__(self) -> Iterator[Block]:
        start = 0
        for block in self._source:
            stop = start + block.n_rows
            yield dataclasses.replace(block, weights=self._weights[start:stop])
            start = stop


@dataclass(frozen=True)
class RowsOfPart:
    """Rows start..stop of another part, whose earlier rows are read and dropped."""

    part: Any
    start: int
    stop: int
    inputs: tuple[Any, ...]

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"{self.part.place}, rows {self.start:,} to {self.stop - 1:,}"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def open(self, inputs: tuple[Any, ...], encoding: Options | None) -> Any:
        """Return the blocks."""
        return rows_between(self.part.open(inputs, encoding) or (), self.start, self.stop)

    def rows(self, start: int, stop: int) -> RowsOfPart:
        """Return some of the rows."""
        return RowsOfPart(self.part, self.start + start, self.start + stop, self.inputs)

    def unsettled(self, encoding: Options | None) -> list[str]:
        """List the columns whose categories nobody gave."""
        return self.part.unsettled(encoding)


@contextmanager
def named_errors(part: Any, index: int) -> Iterator[None]:
    """Say in an error which partition it comes from."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"partition {index} ({part.place}): {error}") from error
    except OSError as error:
        raise OSError(f"partition {index} ({part.place}): {error}") from error


# One encoding for all parts -----------------------------------------------------------------------------


def encoded_alike(options: Options, encoding: Options | None) -> dict[str, Any]:
    """Return the options with the encoding that all parts share in place of those that would lead to one."""
    if encoding is None:  # not a table
        return dict(options)
    settled = ("features", "exclude", "categories", "standardize", "impute", "keep_sensitive")
    kept = {name: value for name, value in options.items() if name not in settled}
    return kept | {"encoding": encoding}


def categories_of(source: Any, names: Sequence[str]) -> dict[str, set[Any]]:
    """Return the categories of some columns that occur in the rows of one part."""
    encoding = getattr(source, "encoding", None) or {"columns": []}
    return {
        column["name"]: set(column.get("categories", ()))
        for column in encoding["columns"]
        if column["name"] in names
    }


def united(parts: Sequence[Mapping[str, set[Any]]]) -> dict[str, set[Any]]:
    """Return what occurs in any of the parts, by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: set().union(*(part.get(name, ()) for part in parts)) for name in names}


def with_categories(encoding: Options, found: Mapping[str, set[Any]]) -> dict[str, Any]:
    """Return an encoding with these categories in place of those of one part."""
    for name, categories in found.items():
        if len(categories) > MAX_CATEGORIES:
            raise ValueError(
                f"column {name!r} has {len(categories):,} categories: it looks like a name, leave it out of "
                "features"
            )
    columns = [
        {**column, "categories": sorted(found[column["name"]], key=label_order)}
        if column["name"] in found
        else column
        for column in encoding["columns"]
    ]
    return {**encoding, "columns": columns}


# The source ---------------------------------------------------------------------------------------------


class DaskSource:
    """Rows that Dask tasks yield. A fit on a cluster hands `task_parts` to the workers.

    Anybody else iterates it: partitions are computed one after the other, and their blocks come here. A first
    pass finds the categories of a data frame that were not given.

    Parameters
    ----------
    task_parts : sequence of TaskPart
    block_size : int, optional
        Rows of every block within a partition.
    """

    def __init__(self, task_parts: Sequence[TaskPart], block_size: int | None = None) -> None:
        self.task_parts, self.block_size = task_parts, block_size

    @property
    def n_features(self) -> int:
        """Number of columns of every block; computes the first partition."""
        return self._shape[0]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, None for an array; computes the first partition."""
        return self._shape[1].feature_names

    @property
    def encoding(self) -> Options | None:
        """How the columns of a data frame become features; computes the first partition."""
        return self._shape[1].encoding

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only reading would tell."""
        return rows_in_all(self.task_parts)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order, one partition after the other."""
        encoding = self.encoding
        for index, part in enumerate(self.task_parts):
            with named_errors(part, index):
                yield from part.open(_computed(part), encoding) or ()

    @cached_property
    def _shape(self) -> tuple[int, Schema]:
        for index, part in enumerate(self.task_parts):
            with named_errors(part, index):
                source = part.open(_computed(part), None)
            if source is not None:
                break
        else:
            raise ValueError("X has no rows: nothing can be read from it")
        names = part.unsettled(getattr(source, "encoding", None))
        if names:
            opened = (part.open(_computed(part), None) for part in self.task_parts)
            found = united([categories_of(one, names) for one in opened])
            encoding = with_categories(getattr(source, "encoding", {}), found)
            source = part.open(_computed(part), encoding)
            assert source is not None
        return source.n_features, Schema.of(source)


def rows_in_all(parts: Sequence[Any]) -> int | None:
    """Return the rows of all parts together, None if one of them does not know its own."""
    counts = [part.n_rows for part in parts]
    return None if None in counts else sum(counts)


def _computed(part: TaskPart) -> Any:
    """Return what the tasks of a part yield."""
    return with_results(
        part.inputs, lambda task: task.compute() if hasattr(type(task), "compute") else task.result()
    )


# Opening ------------------------------------------------------------------------------------------------


def open_dask(
    data: Any,
    *,
    sensitive_features: Any = None,
    weights: Any = None,
    block_size: int | None = None,
    **options: Any,
) -> DaskSource:
    """Open a Dask array or data frame, a delayed object or a future, or a list of these tasks."""
    within = options | ({} if block_size is None else {"block_size": block_size})
    if is_dask_array(data):
        return DaskSource(_of_array(data, sensitive_features, weights, within), block_size)
    if is_dask_frame(data):
        return DaskSource(_of_frame(data, sensitive_features, weights, within), block_size)
    return DaskSource(
        _of_tasks([data] if is_task(data) else data, sensitive_features, weights, within), block_size
    )


def _of_array(X: Any, sensitive_features: Any, weights: Any, options: Options) -> list[TaskPart]:
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}: pass a two-dimensional dask array, one row per sample")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    sizes = _known(X.chunks[0])
    labels = _labels_per_part(sensitive_features, sizes, X.numblocks[0])
    weighed = _weights_per_part(weights, sizes, X.numblocks[0])
    inputs = zip(X.to_delayed()[:, 0], labels, weighed, strict=True)
    return [
        TaskPart(f"row block {i} of X", given, options, None if sizes is None else sizes[i])
        for i, given in enumerate(inputs)
    ]


def _of_frame(X: Any, sensitive_features: Any, weights: Any, options: Options) -> list[TaskPart]:
    if not hasattr(X, "columns"):
        raise ValueError(f"a {type(X).__name__} is a single column: pass a data frame")
    _refuse_learned(options, "a dask DataFrame")
    names = listed_names(sensitive_features)
    if names is not None:
        absent = [name for name in names if name not in X.columns]
        if absent:
            columns = ", ".join(map(str, X.columns))
            raise ValueError(f"sensitive_features names {absent[0]!r}, X has {columns}: name one of these")
        options = {**options, "sensitive_features": names}
    else:
        _check_divisions(sensitive_features, X)
    _check_divisions(weights, X, "weights")
    labels = _labels_per_part(None if names else sensitive_features, None, X.npartitions)
    inputs = zip(X.to_delayed(), labels, _weights_per_part(weights, None, X.npartitions), strict=True)
    return [
        TaskPart(f"partition {i} of X", given, options, way_out=_DASK_WAY_OUT)
        for i, given in enumerate(inputs)
    ]


def _of_tasks(X: Sequence[Any], sensitive_features: Any, weights: Any, options: Options) -> list[TaskPart]:
    others = [item for item in X if not is_task(item)]
    if others:
        raise ValueError(
            f"X is a list with a {type(others[0]).__name__}: list delayed objects, futures, paths or "
            "sources, all of one kind"
        )
    _refuse_learned(options, "a list of blocks")
    labels = [None] * len(X)
    names = listed_names(sensitive_features)
    if names is not None:
        options = {**options, "sensitive_features": names}
    elif sensitive_features is not None:
        labels = _listed(sensitive_features, len(X), "sensitive_features", "labels")
    weighed = [None] * len(X) if weights is None else _listed(weights, len(X), "weights", "weights")
    inputs = zip(X, labels, weighed, strict=True)
    return [TaskPart(f"block {i} of X", given, options) for i, given in enumerate(inputs)]


def _listed(values: Any, n_blocks: int, name: str, what: str) -> list[Any]:
    if not isinstance(values, list | tuple) or len(values) != n_blocks:
        raise ValueError(
            f"{name} must be a list with the {what} of every block, as long as X: X has {n_blocks} blocks"
        )
    return list(values)


def _refuse_learned(options: Options, what: str) -> None:
    for name in _LEARNED:
        if options.get(name):
            raise ValueError(
                f"{name} needs a first pass over all rows, which {what} does not get: pass the encoding of a "
                "source that made it, encoding=..."
            )


def _check_divisions(sensitive_features: Any, X: Any, name: str = "sensitive_features") -> None:
    """Refuse labels whose partitions begin elsewhere than those of X; tasks compare the rows themselves."""
    if isinstance(sensitive_features, Mapping):
        for attribute, column in sensitive_features.items():
            _check_divisions(column, X, f"{name}[{attribute!r}]")
        return
    if not is_dask_frame(sensitive_features) or sensitive_features.npartitions != X.npartitions:
        return
    if not (sensitive_features.known_divisions and X.known_divisions):
        return
    for i, (ours, theirs) in enumerate(zip(sensitive_features.divisions, X.divisions, strict=True)):
        if ours != theirs:
            where = f"partition {i} begins" if i < X.npartitions else "the last partition ends"
            raise ValueError(
                f"{where} at {ours!r} of the index of {name}, in X at {theirs!r}: pass "
                f"{name}.repartition(divisions=X.divisions)"
            )


def _labels_per_part(sensitive_features: Any, sizes: tuple[int, ...] | None, n_parts: int) -> list[Any]:
    """Return the labels of every part: tasks, dicts of tasks, or encoded columns."""
    if sensitive_features is None:
        return [None] * n_parts
    if isinstance(sensitive_features, Mapping) and any(
        is_dask(column) for column in sensitive_features.values()
    ):
        columns = {
            str(a): _labels_per_part(column, sizes, n_parts) for a, column in sensitive_features.items()
        }
        return [{a: parts[i] for a, parts in columns.items()} for i in range(n_parts)]
    if is_dask(sensitive_features):
        return _tasks_per_part(sensitive_features, sizes, n_parts, "sensitive_features")
    if sizes is None:
        raise ValueError(
            "sensitive_features is in memory and the row counts of X's partitions are not known: name a "
            "column of X, pass a dask array or Series with the same partitions, or call "
            "X.compute_chunk_sizes()"
        )
    groups = encode_groups(sensitive_features, sum(sizes))
    stops = np.cumsum(sizes).tolist()
    return [take_rows(groups, slice(stop - n, stop)) for n, stop in zip(sizes, stops, strict=True)]


def _weights_per_part(weights: Any, sizes: tuple[int, ...] | None, n_parts: int) -> list[Any]:
    """Return the weights of every part: tasks, or arrays."""
    if weights is None:
        return [None] * n_parts
    if is_dask(weights):
        return _tasks_per_part(weights, sizes, n_parts, "weights")
    if isinstance(weights, str) or sizes is None:
        raise ValueError(
            "weights must be a dask array or Series with the partitions of X, or in memory if the row counts "
            "of X's partitions are known: pass X[name], and leave that column out of the features"
        )
    values = np.asarray(weights)
    if values.shape != (sum(sizes),):
        raise ValueError(f"weights has shape {values.shape}, X has {sum(sizes):,} rows: pass one per row")
    return np.split(values, np.cumsum(sizes)[:-1])


def _tasks_per_part(values: Any, sizes: tuple[int, ...] | None, n_parts: int, name: str) -> list[Any]:
    """Return a task for each part of a collection of labels."""
    if is_dask_frame(values):
        if values.npartitions != n_parts:
            raise ValueError(
                f"{name} has {values.npartitions} partitions, X has {n_parts}: repartition one like the other"
            )
        return list(values.to_delayed())
    own = _known(values.chunks[0])
    if sizes is not None and own is not None:
        if sum(own) != sum(sizes):
            raise ValueError(f"{name} has {sum(own):,} rows, X has {sum(sizes):,}: pass one label per row")
        values = values.rechunk({0: sizes, **({1: -1} if values.ndim > 1 else {})})
    elif values.numblocks[0] != n_parts:
        raise ValueError(
            f"{name} has {values.numblocks[0]} row blocks, X has {n_parts}: rechunk one like the other"
        )
    return list(values.to_delayed().reshape(n_parts, -1)[:, 0])


def _known(sizes: tuple[Any, ...]) -> tuple[int, ...] | None:
    return None if any(size != size for size in sizes) else tuple(int(size) for size in sizes)
