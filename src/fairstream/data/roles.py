"""What each column of a matrix is for: feature, label, target, id; and labels passed beside a source."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Block, BlockSource, Matrix, SourceAround, take_rows
from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.data.ids import column_of_ids
from fairstream.data.parts import check_part, cut_groups


def listed_names(sensitive_features: object) -> list[str] | None:
    """Return the names if `sensitive_features` is a name or a list of names, None if it is something else.

    Examples
    --------
    >>> listed_names("sex")
    ['sex']
    >>> listed_names(["sex", "race"])
    ['sex', 'race']
    """
    if isinstance(sensitive_features, str):
        return [sensitive_features]
    if (
        isinstance(sensitive_features, list | tuple)
        and sensitive_features
        and all(isinstance(name, str) for name in sensitive_features)
    ):
        return [*sensitive_features]
    return None


def choose_key(place: str, members: list[str], key: str | None) -> str:
    """Choose the array that holds X: the one named, the only one, or the one called X."""
    if key is None and len(members) == 1:
        return members[0]
    if key is None and "X" in members:
        return "X"
    if key is None or key not in members:
        found = ", ".join(members) or "nothing"
        raise ValueError(f"{place} holds {found}: say which is X with key=..., not {key!r}")
    return key


class MatrixRoles:
    """What each column of a matrix is for, and the labels that are passed with it.

    Parameters
    ----------
    n_rows, n_columns : int
        Shape of the matrix.
    sensitive_features : None, labels, int or list of int
        One label per row in any form that `encode_groups` takes; or column indices of the matrix, whose
        attributes are then called "column_3" and which leave the features. A list of as many whole
        numbers as there are rows is read as labels.
    features : list of int, optional
        The columns to keep, in this order; by default all but the sensitive ones and the target.
    target : array or int, optional
        One value per row, or the index of a column.
    keep_sensitive : bool
        Keep sensitive columns among the features.
    ids : int, optional
        The index of a column that says whose rows these are.
    """

    def __init__(
        self,
        n_rows: int,
        n_columns: int,
        *,
        sensitive_features: object = None,
        features: Sequence[int] | None = None,
        target: object = None,
        keep_sensitive: bool = False,
        ids: int | None = None,
    ) -> None:
        self._groups: dict[str, GroupColumn] = {}
        self._group_columns: list[int] = []
        self._target: NDArray[Any] | None = None
        self._target_column: int | None = None
        self._read_sensitive(sensitive_features, n_rows, n_columns)
        self._read_target(target, n_rows, n_columns)
        self._id_column = None if ids is None else _checked_index("ids", _whole_index(ids), n_columns)
        if keep_sensitive and not self._group_columns:
            raise ValueError("keep_sensitive does not apply: no column of the matrix is sensitive")
        if keep_sensitive and features is not None:
            raise ValueError("keep_sensitive does not apply beside features: leave one of them out")
        self.columns = self._choose_features(features, n_columns, keep_sensitive)
        self.n_features = n_columns if self.columns is None else len(self.columns)
        if self.n_features == 0:
            raise ValueError("no feature column is left: name them with features=[...]")

    def block(self, rows: Matrix, start: int) -> Block:
        """Turn rows `start`, `start + 1`, ... of the matrix into a block."""
        span = slice(start, start + rows.shape[0])
        groups = take_rows(self._groups, span)
        if self._group_columns:
            columns = {f"column_{j}": _dense_column(rows, j) for j in self._group_columns}
            groups |= encode_groups(columns, rows.shape[0])
        target = None
        if self._target is not None:
            target = self._target[span]
        elif self._target_column is not None:
            target = _dense_column(rows, self._target_column)
        ids = None if self._id_column is None else column_of_ids(_dense_column(rows, self._id_column))
        X = rows if self.columns is None else rows[:, self.columns]
        return Block(X, groups, target, ids=ids)

    def part(self, start: int, stop: int) -> MatrixRoles:
        """Return the same roles for a matrix that consists of rows start..stop."""
        other = copy.copy(self)
        other._groups = cut_groups(self._groups, start, stop)
        other._target = None if self._target is None else self._target[start:stop]
        return other

    def _read_sensitive(self, sensitive_features: object, n_rows: int, n_columns: int) -> None:
        if sensitive_features is None:
            return
        indices = _column_indices(sensitive_features, n_rows)
        if indices is None:
            self._groups = encode_groups(sensitive_features, n_rows)
            return
        self._group_columns = [_checked_index("sensitive_features", j, n_columns) for j in indices]
        if len(set(self._group_columns)) < len(self._group_columns):
            raise ValueError(
                f"sensitive_features is {sensitive_features!r}, which names a column twice: pass different "
                f"column indices, or one label per row ({n_rows:,} of them)"
            )

    def _read_target(self, target: object, n_rows: int, n_columns: int) -> None:
        if target is None:
            return
        if isinstance(target, int | np.integer) and not isinstance(target, bool):
            self._target_column = _checked_index("target", int(target), n_columns)
            return
        values = np.asarray(target)
        if values.ndim != 1 or len(values) != n_rows:
            raise ValueError(
                f"target has shape {values.shape}, X has {n_rows:,} rows: pass one value per row"
            )
        self._target = values

    def _choose_features(
        self, features: Sequence[int] | None, n_columns: int, keep_sensitive: bool
    ) -> NDArray[np.intp] | None:
        if features is not None:
            if any(isinstance(j, bool) or not isinstance(j, int | np.integer) for j in features):
                raise ValueError(f"features is {features!r}: pass column indices, a matrix has no names")
            chosen = [_checked_index("features", int(j), n_columns) for j in features]
            refuse_roles_as_features(
                chosen,
                {
                    "sensitive": self._group_columns,
                    "the target": () if self._target_column is None else (self._target_column,),
                    "the ids": () if self._id_column is None else (self._id_column,),
                },
            )
            return np.array(chosen, dtype=np.intp)
        left_out = set() if keep_sensitive else set(self._group_columns)
        left_out |= {column for column in (self._target_column, self._id_column) if column is not None}
        if not left_out:
            return None
        return np.array([j for j in range(n_columns) if j not in left_out], dtype=np.intp)


def refuse_roles_as_features(features: Iterable[Any], roles: Mapping[str, Iterable[Any]]) -> None:
    """Refuse features that have another role: a sensitive column or the target among them gives itself away.

    Examples
    --------
    >>> refuse_roles_as_features(["age", "race"], {"sensitive": ["race"], "the target": ["hired"]})
    Traceback (most recent call last):
        ...
    ValueError: features names 'race', which is sensitive and so never a feature: leave it out of features
    """
    listed = {*features}
    for role, columns in roles.items():
        found = [column for column in columns if column in listed]
        if found:
            which, them = ("which is", "it") if len(found) == 1 else ("which are", "them")
            raise ValueError(
                f"features names {', '.join(map(repr, found))}, {which} {role} and so never a feature: leave "
                f"{them} out of features"
            )


class LabelledSource(SourceAround):
    """Another source's blocks with labels that were passed in, matched by row number."""

    def __init__(self, source: BlockSource, sensitive_features: object, n_rows: int) -> None:
        super().__init__(source)
        self._n_rows = n_rows
        self._groups = encode_groups(sensitive_features, n_rows)

    @property
    def n_rows(self) -> int:
        """Number of rows, which is that of the labels."""
        return self._n_rows

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows that a part may begin at, None if the wrapped source cannot be divided."""
        return getattr(self._source, "cuts", None)

    @property
    def part_rows(self) -> int:
        """Rows that are worth a task of their own."""
        rows: int = getattr(self._source, "part_rows", self._n_rows)
        return rows

    def part(self, start: int, stop: int) -> LabelledSource:
        """Return a source over rows start..stop, with their labels."""
        check_part(self, start, stop)
        within: Any = self._source
        return LabelledSource(within.part(start, stop), cut_groups(self._groups, start, stop), stop - start)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order, each with its rows' labels."""
        start = 0
        for block in self._source:
            stop = start + block.n_rows
            if stop > self._n_rows:
                raise ValueError(
                    f"sensitive_features has {self._n_rows:,} rows, the data has more: pass one label per row"
                )
            yield replace(block, groups=take_rows(self._groups, slice(start, stop)))
            start = stop
        if start < self._n_rows:
            raise ValueError(
                f"sensitive_features has {self._n_rows:,} rows, the data has {start:,}: "
                "pass one label per row"
            )


def _column_indices(sensitive_features: object, n_rows: int) -> list[int] | None:
    """Tell column indices from labels: whole numbers in a list that is not as long as the data."""
    if isinstance(sensitive_features, int | np.integer) and not isinstance(sensitive_features, bool):
        return [int(sensitive_features)]
    if (
        not isinstance(sensitive_features, list | tuple)
        or not sensitive_features
        or len(sensitive_features) == n_rows
    ):
        return None
    if any(isinstance(j, bool) or not isinstance(j, int | np.integer) for j in sensitive_features):
        return None
    return [int(j) for j in sensitive_features]


def _whole_index(ids: object) -> int:
    if isinstance(ids, bool) or not isinstance(ids, int | np.integer):
        raise ValueError(f"ids={ids!r}: a matrix has no names, pass a column's index or one id per row")
    return int(ids)


def _checked_index(argument: str, index: int, n_columns: int) -> int:
    if not -n_columns <= index < n_columns:
        raise ValueError(
            f"{argument} names column {index}, X has {n_columns} columns: pass indices below {n_columns}"
            + (", or one label per row" if argument == "sensitive_features" else "")
        )
    return index % n_columns


def _dense_column(rows: Matrix, index: int) -> NDArray[Any]:
    if sp.issparse(rows):
        column: NDArray[Any] = rows[:, [index]].toarray().ravel()
        return column
    return np.array(rows[:, index])
