"""Ids: numbers or text that say whose rows these are, checked, taken out of a frame, or beside a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.alignment import paired
from fairstream.data.blocks import Block, BlockSource, SourceAround
from fairstream.data.frames import eager_frame, take_out, without
from fairstream.data.parts import check_part

WANTED = "pass one whole number or text per row"


def checked_ids(ids: Any, n_rows: int, name: str = "ids") -> NDArray[Any]:
    """Return ids as an array (n,) of whole numbers or of text, or say what is wrong with them.

    Examples
    --------
    >>> checked_ids([7, 8], 2).tolist(), checked_ids(["a-1", "b-2"], 2).tolist()
    ([7, 8], ['a-1', 'b-2'])
    >>> checked_ids([7, None], 2)
    Traceback (most recent call last):
    ValueError: ids has values of the types NoneType and int: pass one whole number or text per row
    """
    values = np.asarray(ids)
    if values.dtype.kind not in "iuUfb":
        values = _plain(values, name)
    if values.shape != (n_rows,) or values.dtype.kind not in "iuU":
        raise ValueError(
            f"{name} has shape {values.shape} and type {values.dtype}, X has {n_rows} rows: {WANTED}"
        )
    if values.dtype.kind == "U" and (values == "").any():
        raise ValueError(f"{name} has empty text, which is nobody's: {WANTED}")
    return values


def column_of_ids(values: NDArray[Any], name: str = "ids") -> NDArray[Any]:
    """Return ids that were a column of a matrix, which makes whole numbers floats.

    Examples
    --------
    >>> column_of_ids(np.array([7.0, 8.0])).tolist()
    [7, 8]
    """
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (np.abs(values) < 2.0**53) & (values == np.round(values))
        if not whole.all():
            raise ValueError(f"{name} has the value {values[~whole][0]}: {WANTED}")
        values = values.astype(np.int64)
    return checked_ids(values, len(values), name)


def take_ids(X: Any, ids: Any, column: bool | str) -> tuple[Any, Any]:
    """Return X without its column of ids, and the ids: those passed, in the row order of X, or the column.

    Parameters
    ----------
    X : any form of rows
    ids : any form of ids, optional
    column : bool or str
        The name of the column that holds them in a frame, if it has one.

    Examples
    --------
    >>> import pandas as pd
    >>> rest, ids = take_ids(pd.DataFrame({"person": [7, 8], "age": [30, 40]}), None, "person")
    >>> [*rest], ids.tolist()
    (['age'], [7, 8])
    """
    ids = paired(ids, X, "ids")
    if not isinstance(column, str):
        return X, ids
    if ids is not None:
        return without(X, [column]), ids
    frame = eager_frame(X)
    if frame is None or column not in frame.columns:
        return X, None
    X, taken = take_out(X, [column], "ids")
    return X, taken[column]


class NumberedSource(SourceAround):
    """Another source's blocks with ids that were passed in, matched by row number."""

    def __init__(self, source: BlockSource, ids: Any) -> None:
        super().__init__(source)
        self._ids = checked_ids(ids, len(ids))
        if source.n_rows not in (None, len(self._ids)):
            raise ValueError(f"ids has {len(self._ids):,} rows, the data has {source.n_rows:,}: {WANTED}")

    @property
    def n_rows(self) -> int:
        """Number of rows, which is that of the ids."""
        return len(self._ids)

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows that a part may begin at, None if the wrapped source cannot be divided."""
        return getattr(self._source, "cuts", None)

    def part(self, start: int, stop: int) -> NumberedSource:
        """Return a source over rows start..stop, with their ids."""
        check_part(self, start, stop)
        within: Any = self._source
        return NumberedSource(within.part(start, stop), self._ids[start:stop])

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order, each with its rows' ids."""
        start = 0
        for block in self._source:
            stop = start + block.n_rows
            if stop > len(self._ids):
                raise ValueError(f"ids has {len(self._ids):,} rows, the data has more: {WANTED}")
            yield replace(block, ids=self._ids[start:stop])
            start = stop
        if start < len(self._ids):
            raise ValueError(f"ids has {len(self._ids):,} rows, the data has {start:,}: {WANTED}")


def _plain(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Return objects that are all whole numbers, or all text, as an array of these."""
    listed = values.tolist()
    found = {*map(type, listed)} if values.ndim == 1 else set()
    if found in ({int}, {str}):
        return np.array(listed)
    kinds = " and ".join(sorted(kind.__name__ for kind in found)) or f"shape {values.shape}"
    raise ValueError(f"{name} has values of the types {kinds}: {WANTED}")
