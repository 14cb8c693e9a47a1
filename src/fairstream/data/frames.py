"""Frames: named columns taken out, text refused by column, and rows given back as the kind that came in."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp

from fairstream.data.other_libraries import lazy_kind
from fairstream.errors import meant
from fairstream.linalg import FloatArray

_ENCODED_BY = {
    "text": "open_source(frame) or skrub's TableVectorizer",
    "dates": "skrub's TableVectorizer",
    "lists": "open_source(frame)",
}
_DATES = (nw.Date, nw.Datetime, nw.Duration)
_SHOWN = 8  # columns in a message
_NUMBERS = (int, float, np.number, np.bool_, Decimal, Fraction)


def eager_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return a pandas, polars or pyarrow frame in memory as narwhals sees it, None for anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> eager_frame(pd.DataFrame({"age": [30, 40]})).columns
    ['age']
    >>> eager_frame(np.eye(2)) is None
    True
    """
    if isinstance(X, np.ndarray | list) or sp.issparse(X):  # the usual case, in a tenth of the time
        return None
    if lazy_kind(X) is not None:
        raise ValueError(
            f"X is a {type(X).__name__}, which is not in memory: make it a frame of pandas, polars or "
            "pyarrow first, or fit_source(X, estimator) reads it block by block"
        )
    twice = getattr(getattr(X, "columns", None), "duplicated", None)  # of pandas, the only one that allows it
    if twice is not None and (names := X.columns[twice()]).size:
        raise ValueError(f"X has several columns named {names[0]!r}: rename all but one")
    frame: Any = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    if nw.get_level(frame) != "full":
        raise ValueError(f"X is a {type(X).__name__}: make it a frame of pandas, polars or pyarrow first")
    return frame


def column_names(names: Any, argument: str) -> list[str]:
    """Return one name or several as a list, or say what is wrong with them.

    Examples
    --------
    >>> column_names("sex", "sensitive_columns")
    ['sex']
    >>> column_names([3], "sensitive_columns")
    Traceback (most recent call last):
    ValueError: sensitive_columns=[3]: give the names of columns of X, such as ["sex", "race"]
    """
    listed = [names] if isinstance(names, str) else names
    if (
        not isinstance(listed, list | tuple)
        or not listed
        or not all(isinstance(name, str) for name in listed)
        or len(set(listed)) < len(listed)
    ):
        raise ValueError(f'{argument}={names!r}: give the names of columns of X, such as ["sex", "race"]')
    return [*listed]


def take_out(X: Any, names: Iterable[str], argument: str) -> tuple[Any, dict[str, Any]]:
    """Return a frame without some of its columns, and these columns by name.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"sex": ["f", "m"], "age": [30, 40]})
    >>> rest, taken = take_out(X, ["sex"], "sensitive_columns")
    >>> [*rest], taken["sex"].tolist()
    (['age'], ['f', 'm'])
    """
    wanted, frame = [*names], eager_frame(X)
    if frame is None:
        raise ValueError(
            f"{argument}={wanted} names columns, X is a {type(X).__name__} without names: pass a frame, or "
            "the labels as sensitive_features"
        )
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        shown = ", ".join(map(repr, frame.columns[:_SHOWN])) + (", ..." if frame.shape[1] > _SHOWN else "")
        message = f"{argument} names {missing[0]!r}, which X does not have: its columns are {shown}"
        message += meant(missing[0], frame.columns)
        for name in [name for name in frame.columns if str(name).endswith(f"__{missing[0]}")][:1]:
            message += f"; {name!r} may be it: pass verbose_feature_names_out=False to the ColumnTransformer"
        raise ValueError(message)
    taken = {name: frame.get_column(name).to_native() for name in wanted}
    return frame.drop(wanted).to_native(), taken


def without(X: Any, names: Iterable[str]) -> Any:
    """Return a frame without those of the named columns that it has; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> [*without(pd.DataFrame({"sex": ["f"], "age": [30]}), ["sex", "race"])]
    ['age']
    """
    frame = eager_frame(X)
    present = [] if frame is None else [name for name in names if name in frame.columns]
    return X if frame is None or not present else frame.drop(present).to_native()


def check_numbers(X: Any, sensitive: str = "name it in sensitive_columns") -> None:
    """Refuse a frame with a column of text, categories or dates, and name the column.

    `sensitive` says what to do with such a column if it is a sensitive attribute.

    Examples
    --------
    >>> import pandas as pd
    >>> check_numbers(pd.DataFrame({"age": [30], "job": ["nurse"]}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: column 'job' of X holds text ('nurse'): pass numbers, or let open_source(frame) or ...
    """
    frame = eager_frame(X)
    if frame is None:
        return
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        if column.dtype.is_numeric() or column.dtype == nw.Boolean or _is_sparse(column):
            continue
        # A column of Python objects may hold numbers, which become floats.
        values = (value for value in column.to_list() if value is not None)
        if column.dtype == nw.Object:
            values = (value for value in values if not isinstance(value, _NUMBERS))
        value = next(values, None)
        if value is None and column.dtype == nw.Object:
            continue
        is_date = column.dtype in _DATES or isinstance(value, date | time)
        is_list = isinstance(value, list | np.ndarray) or column.dtype in (nw.List, nw.Array)
        kinds = {"text": isinstance(value, str), "dates": is_date, "lists": is_list, str(column.dtype): True}
        what = next(kind for kind, fits in kinds.items() if fits)
        numbers = f"let {_ENCODED_BY[what]} turn it into numbers" if what in _ENCODED_BY else "drop it"
        raise ValueError(
            f"column {name!r} of X holds {what} ({reprlib.repr(value)}): pass numbers, or {numbers}; if the "
            f"column is a sensitive attribute, {sensitive}"
        )


def refuse_missing(X: Any) -> None:
    """Refuse a frame with a missing or infinite number, and name the column; anything else passes.

    Examples
    --------
    >>> import pandas as pd
    >>> refuse_missing(pd.DataFrame({"age": [30, None]}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: column 'age' of X has 1 missing value: fill in or drop ...
    """
    frame = eager_frame(X)
    if frame is None:
        return
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        is_float = column.dtype.is_float()
        missing = int(column.null_count() or (is_float and column.is_nan().sum()))
        if missing:
            raise ValueError(
                f"column {name!r} of X has {missing:,} missing value{'s' * (missing > 1)}: fill in or drop "
                'what is missing, or fit_source(open_source(X, impute="mean", ...)) fills it in'
            )
        if is_float and not column.is_finite().all():
            raise ValueError(f"column {name!r} of X holds infinite values: clean them, or drop the column")


def _is_sparse(column: Any) -> bool:
    """Whether it is a sparse column of pandas, which holds numbers."""
    return hasattr(getattr(column.to_native(), "sparse", None), "to_dense")


def like(rows: FloatArray, given: Any, names: Sequence[str] | None = None) -> Any:
    """Return rows as the kind of frame that was given, with its index; as they are if none was.

    Parameters
    ----------
    rows : array (n, width)
    given : frame or anything else
        What the rows were computed from, n rows of it.
    names : sequence of str, optional
        Of the columns, if a frame is returned; by default those of the frame that was given.

    Examples
    --------
    >>> import pandas as pd
    >>> like(np.eye(2), pd.DataFrame({"a": [1, 2]}, index=["ann", "bob"]), ["u", "v"])
           u    v
    ann  1.0  0.0
    bob  0.0  1.0
    """
    frame = eager_frame(given)
    if frame is None:
        return rows
    namespace = nw.get_native_namespace(frame)
    made: Any = nw.from_numpy(
        rows, [*map(str, frame.columns if names is None else names)], native_namespace=namespace
    ).to_native()
    if (index := nw.maybe_get_index(frame)) is not None:
        made.index = index
    return made
