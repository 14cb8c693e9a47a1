"""The audited rows: arrays, frames, paths and sources as one stream of labelled blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data import open_source
from fairstream.data.alignment import paired
from fairstream.data.blocks import Block, BlockSource, Matrix
from fairstream.data.frames import check_numbers
from fairstream.data.groups import encode_groups
from fairstream.data.ids import checked_ids, take_ids
from fairstream.data.roles import listed_names


class View:
    """Another source whose blocks are changed on the way, or whose features have other names."""

    def __init__(
        self,
        source: BlockSource,
        change: Callable[[Block], Block] | None = None,
        feature_names: tuple[str, ...] | None = None,
    ) -> None:
        self._source, self._change = source, change
        self.n_features, self.n_rows = source.n_features, None
        self.feature_names = feature_names or source.feature_names
        self.encoding = getattr(source, "encoding", None)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        yield from self._source if self._change is None else map(self._change, self._source)


def open_rows(
    X: Any,
    sensitive_features: object = None,
    y: Any = None,
    ids: Any = None,
    *,
    encoding: Mapping[str, Any] | None = None,
    id_column: bool | str = False,
) -> BlockSource:
    """Return blocks for arrays, a path (through `open_source`) or a source with its own labels.

    A path or a frame is read with `encoding`, that of the models, and with the ids in their `id_column`.
    """
    if isinstance(X, str | Path):
        named = [sensitive_features] if isinstance(sensitive_features, str) else sensitive_features
        options: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
        ids = id_column if ids is None and isinstance(id_column, str) else ids
        try:
            return open_source(X, sensitive_features=named, target=y, ids=ids, **options)
        except ValueError as error:
            error.add_note(
                "exclude and other options are those of open_source: instead of the path, pass "
                f"open_source({str(X)!r}, sensitive_features=..., target=..., exclude=[...])"
            )
            raise
    if not isinstance(X, BlockSource):
        column = ids if isinstance(ids, str) else id_column
        X, ids = take_ids(X, None if isinstance(ids, str) else ids, column)
        return _rows_in_memory(X, sensitive_features, y, ids, encoding)
    if y is not None:
        raise ValueError("y is given beside a source: open the source with its target instead")
    if ids is not None:
        raise ValueError("ids is given beside a source: open the source with its ids instead")
    if sensitive_features is None:
        return X
    names = listed_names(sensitive_features)
    if names is None:
        raise ValueError(
            f"sensitive_features is a {type(sensitive_features).__name__} beside a source: name the source's "
            "attributes, or leave it out to audit them all"
        )
    return View(X, lambda block: _only_attributes(block, names))


def dense(X: Matrix) -> NDArray[Any]:
    """Return the rows of a block as an array."""
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def _rows_in_memory(
    X: Any, sensitive_features: object, y: Any, ids: Any, encoding: Mapping[str, Any] | None
) -> BlockSource:
    if sensitive_features is None:
        raise ValueError("sensitive_features is None: pass one label per row of X")
    labels, y = paired(sensitive_features, X), paired(y, X, "y")
    matrix, names = _matrix(X, encoding)
    if y is not None and np.shape(y) != matrix.shape[:1]:
        raise ValueError(f"y has shape {np.shape(y)}, X has {matrix.shape[0]} rows: pass one target per row")
    target = None if y is None else np.asarray(y)
    ids = None if ids is None else checked_ids(ids, matrix.shape[0])
    groups = encode_groups(labels, matrix.shape[0])
    source = open_source(matrix, sensitive_features=groups, target=target, ids=ids)
    return View(source, feature_names=names)


def _matrix(X: Any, encoding: Mapping[str, Any] | None) -> tuple[Matrix, tuple[str, ...] | None]:
    """Return the features of data in memory, and the names of a frame's columns.

    A frame with the columns that the models were fitted on is turned into their features.
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return (X if sp.issparse(X) else np.asarray(X)), None
    if encoding is None or not {column["name"] for column in encoding["columns"]} <= set(frame.columns):
        check_numbers(X, "pass it as sensitive_features, and X without it")
        return frame.to_numpy(), tuple(map(str, frame.columns))
    return np.concatenate([dense(block.X) for block in open_source(X, encoding=encoding)]), None


def _only_attributes(block: Block, names: list[str]) -> Block:
    missing = [name for name in names if name not in block.groups]
    if missing:
        raise ValueError(
            f"sensitive_features names {missing[0]!r}, the source has {[*block.groups]}: name these, "
            "or open the source with that column as sensitive"
        )
    return replace(block, groups={name: block.groups[name] for name in names})
