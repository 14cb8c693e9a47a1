"""Adult, COMPAS and German credit: the embedded tables, as frames or as plain arrays."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import UNKNOWN, GroupColumn, encode_column
from fairstream.errors import missing_extra

Backend: TypeAlias = Literal["pandas", "polars", "pyarrow", "numpy"]
Column: TypeAlias = "NDArray[Any] | GroupColumn"
Table: TypeAlias = Mapping[str, Column]
"""Numeric columns are arrays (NaN: missing), text columns are codes with labels (`UNKNOWN`: missing)."""

BACKENDS = ("pandas", "polars", "pyarrow", "numpy")

_MALE_CODES = ("A91", "A93", "A94")


def load_adult(*, backend: Backend = "pandas", drop_missing: bool = False) -> Any:
    """Return the Adult census income table: 48,842 people, 15 columns, target `income`.

    The first 32,561 rows are UCI's training part, the rest its test part. Missing values occur in
    `workclass`, `occupation` and `native-country`. Usual sensitive features: `sex`, `race`.

    Parameters
    ----------
    backend : {"pandas", "polars", "pyarrow", "numpy"}
        What to return: a frame of that library, or for "numpy", which needs nothing installed, a dict
        from column name to array (text columns have object dtype, None for missing values).
    drop_missing : bool
        Leave out the rows with a missing value (3,620 of them).

    Returns
    -------
    frame, or dict of str to array

    Examples
    --------
    >>> table = load_adult(backend="numpy")
    >>> len(table["income"]), table["income"][0], int(table["age"][0])
    (48842, '<=50K', 39)
    """
    return _present(read_table("adult"), backend, drop_missing)


def load_compas(
    *, backend: Backend = "pandas", drop_missing: bool = False, propublica_filter: bool = True
) -> Any:
    """Return ProPublica's COMPAS table: 6,172 defendants, 17 columns, target `two_year_recid`.

    Missing values occur in `c_charge_desc` and, unfiltered, in `days_b_screening_arrest`. Usual sensitive
    features: `race`, `sex`. The columns `is_recid`, `decile_score`, `score_text`, `v_decile_score` and
    `v_score_text` are outcomes and COMPAS's own scores: leave them out of the features.

    Parameters
    ----------
    backend : {"pandas", "polars", "pyarrow", "numpy"}
        As in `load_adult`.
    drop_missing : bool
        Leave out the rows with a missing value (5 of the filtered rows).
    propublica_filter : bool
        Keep only the cases ProPublica analysed: charged within 30 days of the screening, with a known
        outcome and no ordinary traffic offence. False gives all 7,214 rows.

    Returns
    -------
    frame, or dict of str to array

    Examples
    --------
    >>> table = load_compas(backend="numpy")
    >>> len(table["race"]), round(float(table["two_year_recid"].mean()), 3)
    (6172, 0.455)
    """
    table = read_table("compas")
    if propublica_filter:
        table = take(table, compas_analysed(table))
    return _present(table, backend, drop_missing)


def load_german(*, backend: Backend = "pandas") -> Any:
    """Return the Statlog German credit table: 1,000 applicants, 22 columns, target `credit`.

    UCI's codes are replaced by their meaning, `credit` is "good" or "bad", and `sex` is derived from
    `personal_status` as is usual; that derivation is doubtful, because the code for non-single women is
    said to include single men. Usual sensitive features: `age` (cut at 25), `sex`, `foreign_worker`.

    Parameters
    ----------
    backend : {"pandas", "polars", "pyarrow", "numpy"}
        As in `load_adult`.

    Returns
    -------
    frame, or dict of str to array

    Examples
    --------
    >>> table = load_german(backend="numpy")
    >>> table["purpose"][0], table["credit"][0], int((table["credit"] == "bad").sum())
    ('radio or television', 'good', 300)
    """
    table = dict(read_table("german"))
    meaning = dict(_read_rows("german-codes.csv")[1:])
    for name, column in table.items():
        if isinstance(column, GroupColumn) and name != "sex":
            table[name] = GroupColumn(column.codes, tuple(meaning[str(code)] for code in column.labels))
    table["credit"] = GroupColumn(np.asarray(table.pop("credit")) - 1, ("good", "bad"))
    return _present(table, backend, drop_missing=False)


@cache
def read_table(name: str) -> Table:
    """Read an embedded table ("adult", "compas" or "german") once per process; the arrays are read-only.

    Examples
    --------
    >>> read_table("german")["housing"].labels
    ('A151', 'A152', 'A153')
    """
    header, *rows = _read_rows(f"{name}.csv.gz")
    table = {column: _parse(values) for column, values in zip(header, zip(*rows, strict=True), strict=True)}
    if name == "german":
        table["sex"] = _sex_from_personal_status(table["personal_status"])
    for column in table.values():
        (column.codes if isinstance(column, GroupColumn) else column).setflags(write=False)
    return MappingProxyType(table)


def take(table: Table, rows: NDArray[Any]) -> dict[str, Column]:
    """Return every column for some of the rows, given as a mask or as positions."""
    return {
        name: column.take(np.arange(len(column))[rows]) if isinstance(column, GroupColumn) else column[rows]
        for name, column in table.items()
    }


def complete_rows(table: Table) -> NDArray[np.bool_]:
    """Return a mask of the rows in which nothing is missing."""
    known = [
        column.codes != UNKNOWN if isinstance(column, GroupColumn) else ~np.isnan(column)
        for column in table.values()
    ]
    mask: NDArray[np.bool_] = np.logical_and.reduce(known)
    return mask


def is_label(column: Column, label: str) -> NDArray[np.bool_]:
    """Return a mask of the rows in which a text column holds `label`."""
    if not isinstance(column, GroupColumn):
        raise TypeError("is_label needs a text column")
    mask: NDArray[np.bool_] = column.codes == column.labels.index(label)
    return mask


def compas_analysed(table: Table) -> NDArray[np.bool_]:
    """Return a mask of the COMPAS cases that ProPublica's analysis keeps.

    Its two further conditions, a charge degree other than "O" and a known score, hold for every row.
    """
    days, outcome = np.asarray(table["days_b_screening_arrest"]), np.asarray(table["is_recid"])
    mask: NDArray[np.bool_] = (np.abs(days) <= 30) & (outcome != -1)
    return mask


def _read_rows(file_name: str) -> list[list[str]]:
    data = (files("fairstream.datasets") / "data" / file_name).read_bytes()
    text = (gzip.decompress(data) if file_name.endswith(".gz") else data).decode("utf-8")
    return list(csv.reader(io.StringIO(text, newline="")))


def _parse(values: Sequence[str]) -> Column:
    try:
        if "" in values:
            return np.array([value or "nan" for value in values]).astype(np.float64)
        return np.array(values).astype(np.int64)
    except ValueError:  # not a number, so the column is text
        return encode_column("text", [value or None for value in values])


def _sex_from_personal_status(status: Column) -> GroupColumn:
    male = np.logical_or.reduce([is_label(status, code) for code in _MALE_CODES])
    return GroupColumn(male.astype(np.intp), ("female", "male"))


def _present(table: Table, backend: str, drop_missing: bool) -> Any:
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}: choose one of {', '.join(map(repr, BACKENDS))}")
    if drop_missing:
        table = take(table, complete_rows(table))
    columns = {
        name: column.decode() if isinstance(column, GroupColumn) else column.copy()
        for name, column in table.items()
    }
    return columns if backend == "numpy" else _as_frame(columns, backend)


def _as_frame(columns: dict[str, NDArray[Any]], backend: str) -> Any:
    purpose = f"backend={backend!r}"
    try:
        if backend == "pandas":
            import pandas as pd

            return pd.DataFrame(columns)
        if backend == "pyarrow":
            import pyarrow as pa

            # from_pandas turns NaN into null, the missing value of arrow.
            return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
        import polars as pl
    except ImportError:
        if backend == "polars":
            raise ImportError(f"{purpose} needs polars: pip install polars") from None
        raise missing_extra(backend, "tables", purpose) from None
    return pl.DataFrame({name: pl.Series(values.tolist()) for name, values in columns.items()}).fill_nan(None)
