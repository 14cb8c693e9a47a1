"""Pairs labels and weights with the rows of X: by index if both have one, else by position."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from fairstream.data.other_libraries import is_dask
from fairstream.errors import FairstreamWarning

WAY_OUT = (
    "pass {name}.to_numpy() if the rows are in the same order, or {name}.loc[X.index] to pair them by index"
)
_SHOWN = 3  # index values in a message


def paired(values: Any, X: Any, name: str = "sensitive_features", way_out: str = WAY_OUT) -> Any:
    """Return labels or weights in the row order of X, so that they can be paired by position.

    Parameters
    ----------
    values : any form of labels or weights
        A Series, a frame, or a dict of Series is compared with X by its index. Lists, arrays and frames of
        libraries without an index are by position and are returned as they are.
    X : array, sparse matrix or frame
    name : str
        What a message calls the values.
    way_out : str
        What a message advises, with `{name}` in the place of the name.

    Returns
    -------
    As given, or reordered: if both indexes hold the same values, each once, in different orders.

    Raises
    ------
    ValueError
        If the indexes differ in any other way.

    Warns
    -----
    FairstreamWarning
        If one side has the default index 0, 1, 2, ... and the other the same numbers in another order: they
        are paired by index, but the default may come from an array that was already in the order of X.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": [30, 40]}, index=["ann", "bob"])
    >>> paired(pd.Series(["m", "f"], index=["bob", "ann"]), X).tolist()
    ['f', 'm']
    >>> paired(["f", "m"], X)
    ['f', 'm']
    """
    if any(map(is_dask, (X, values, *(values.values() if isinstance(values, Mapping) else ())))):
        raise ValueError(
            f"X or {name} is a Dask collection: fit_source(open_source(X, sensitive_features=...)) reads it "
            "partition by partition; compute() it first if it fits in memory"
        )
    index = row_index(X)
    if index is None or values is None:
        return values
    if isinstance(values, Mapping):
        return {key: _in_order(column, index, f"{name}[{key!r}]", way_out) for key, column in values.items()}
    return _in_order(values, index, name, way_out)


def row_index(rows: Any) -> Any | None:
    """Return the index of a pandas-like frame or Series, None for anything without one."""
    if isinstance(rows, np.ndarray | list):  # the usual case, in a tenth of the time
        return None
    native: Any = nw.from_native(rows, eager_only=True, allow_series=True, pass_through=True)
    return nw.maybe_get_index(native) if isinstance(native, nw.DataFrame | nw.Series) else None


def _in_order(values: Any, index: Any, name: str, way_out: str) -> Any:
    own = row_index(values)
    # The check of one label per row reports a different length, with both numbers.
    if own is None or len(own) != len(index) or len(own) == 0 or own.equals(index):
        return values
    if own.is_unique and index.is_unique:
        where = own.get_indexer(index)
        # Not only `where >= 0`: an index of intervals also finds the numbers inside them.
        if (where >= 0).all() and own.take(where).equals(index):
            if _is_default(own) or _is_default(index):
                _warn_of_default(name, "X" if _is_default(index) else name)
            return values.iloc[where]
    raise ValueError(
        f"{name} has the index {_shown(own)}, X has {_shown(index)}: they do not tell which row is whose; "
        + way_out.format(name=name)
    )


def _warn_of_default(name: str, counted: str) -> None:
    """Warn that rows are paired by index: a default index may mean that they are already in X's order."""
    warnings.warn(
        f"{counted} has the default index 0, 1, 2, ..., the other side the same numbers in another order: "
        f"{name} is paired with X by index; pass {name}.to_numpy() if the rows are in the same order",
        FairstreamWarning,
        stacklevel=5,
    )


def _is_default(index: Any) -> bool:
    """Whether the index only counts the rows from 0, as it does if nobody chose one."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _shown(index: Any) -> str:
    return f"[{', '.join(map(repr, index[:_SHOWN].tolist()))}{', ...' if len(index) > _SHOWN else ''}]"
