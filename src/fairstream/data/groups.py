"""Sensitive attributes: labels encoded as small integers, and the groups that are compared."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.errors import FairstreamWarning, NotEnoughGroupsError

MAX_GROUPS = 1_000
MANY_GROUPS = 50  # more are rarely meant
MOST_FRACTIONS = 10  # numbers that are not whole: more are measured, not counted
WAY_OUT = "bin a continuous attribute into groups first, with quantile_groups(values, 4)"
UNKNOWN = -1
_FEW = 8  # groups up to which a pass for each is quicker than a place for each row


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """One attribute of a block: a small integer per row, and what the integers stand for.

    Parameters
    ----------
    codes : array (n,) of int
        For every row the place of its label in `labels`; `UNKNOWN` (-1) if its group is not known. Such a
        row counts for the total covariance and for no group.
    labels : tuple
        What the codes stand for.

    Examples
    --------
    >>> column = GroupColumn(np.array([0, 1, 0, -1]), ("f", "m"))
    >>> column.counts(), column.decode().tolist()
    ({'f': 2, 'm': 1}, ['f', 'm', 'f', None])
    """

    codes: NDArray[np.intp]
    labels: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: slice | NDArray[np.intp]) -> GroupColumn:
        """Return the same column for some of the rows (a view if `rows` is a slice)."""
        return GroupColumn(self.codes[rows], self.labels)

    def decode(self) -> NDArray[np.object_]:
        """Return the labels row by row, None if unknown."""
        table = np.empty(len(self.labels) + 1, dtype=object)
        table[:-1] = [*self.labels]
        decoded: NDArray[np.object_] = table[self.codes]
        return decoded

    def counts(self) -> dict[Hashable, int]:
        """Return the number of rows of every label."""
        counts = np.bincount(self.codes + 1, minlength=len(self.labels) + 1)[1:]
        return dict(zip(self.labels, counts.tolist(), strict=True))

    def occurring(self) -> tuple[Hashable, ...]:
        """Return the labels that some row has."""
        return tuple(label for label, count in self.counts().items() if count)

    def one_versus_rest(self) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Yield, for every label, which rows have it and which have another one."""
        known = self.codes != UNKNOWN
        for code in range(len(self.labels)):
            inside = self.codes == code
            yield inside, known & ~inside


Groups: TypeAlias = Mapping[str, GroupColumn]


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The groups seen of every attribute, the slot that counts each, and the comparisons among them.

    Slot 0 counts all rows; groups get the slots from 1 in the order in which they are first seen, so that
    adding a group never moves another. An index never changes: `with_labels` returns a new one, so an update
    that fails leaves the old one in place.

    Examples
    --------
    >>> index = GroupIndex().with_labels({"sex": ["m"]}).with_labels({"sex": ["m", "f"], "race": [1, 2, 3]})
    >>> index.slots
    {'sex': {'m': 1, 'f': 2}, 'race': {1: 3, 2: 4, 3: 5}}
    >>> index.comparisons()
    [('sex', 'm'), ('race', 1), ('race', 2), ('race', 3)]
    """

    slots: Mapping[str, Mapping[Hashable, int]] = field(default_factory=dict)
    n_slots: int = 1  # those of groups that `restricted` left out included

    @classmethod
    def of(cls, attributes: Iterable[str], listed: Sequence[tuple[str, Hashable]]) -> GroupIndex:
        """Return the index that has `listed` in its slots, from slot 1 on."""
        slots: dict[str, dict[Hashable, int]] = {name: {} for name in attributes}
        for slot, (name, label) in enumerate(listed, start=1):
            slots[name][label] = slot
        return cls(slots, 1 + len(listed))

    def with_labels(self, labels: Mapping[str, Iterable[Hashable]]) -> GroupIndex:
        """Return an index that has these labels too; an attribute without any is remembered as well."""
        slots: dict[str, Mapping[Hashable, int]] = dict(self.slots)
        n_slots = self.n_slots
        for attribute, found in labels.items():
            known = slots.setdefault(attribute, {})
            new = [label for label in dict.fromkeys(found) if label not in known]
            if new:
                slots[attribute] = {**known, **{label: n_slots + i for i, label in enumerate(new)}}
                n_slots += len(new)
        return GroupIndex(slots, n_slots)

    def with_groups(self, columns: Groups) -> GroupIndex:
        """Return an index that has the labels that occur in these columns too."""
        return self.with_labels({name: column.occurring() for name, column in columns.items()})

    def restricted(self, groups: Mapping[str, Iterable[Hashable]]) -> GroupIndex:
        """Return an index that compares only these groups, each in the slot that it has here."""
        return GroupIndex(
            {name: {label: self.slot(name, label) for label in labels} for name, labels in groups.items()},
            self.n_slots,
        )

    @property
    def is_restricted(self) -> bool:
        """Whether some slots belong to groups that were left out."""
        return 1 + sum(map(len, self.slots.values())) < self.n_slots

    @property
    def groups(self) -> dict[str, tuple[Hashable, ...]]:
        """The labels of every attribute, in a fixed order."""
        return {name: tuple(sorted(known, key=label_order)) for name, known in self.slots.items()}

    def listed(self) -> list[tuple[str, Hashable]]:
        """Return the (attribute, label) of every group in the order of the slots, from slot 1 on."""
        pairs = [(slot, name, label) for name, known in self.slots.items() for label, slot in known.items()]
        return [(name, label) for _, name, label in sorted(pairs, key=lambda pair: pair[0])]

    def slot(self, attribute: str, group: Hashable) -> int:
        """Return the slot of a group; raises if it was never seen."""
        if attribute not in self.slots:
            raise ValueError(f"attribute {attribute!r} is unknown: these were seen: {[*self.slots]}")
        if group not in self.slots[attribute]:
            raise ValueError(
                f"group {group!r} of {attribute!r} never appeared: these did: {[*self.groups[attribute]]}"
            )
        return self.slots[attribute][group]

    def rest(self, attribute: str, slot: int) -> list[int]:
        """Return the slots of the attribute's other groups."""
        return [other for other in self.slots[attribute].values() if other != slot]

    def comparisons(self) -> list[tuple[str, Hashable]]:
        """List the (attribute, group) pairs to compare with the attribute's other rows."""
        return [(name, label) for name, labels in self.groups.items() for label in compared(labels)]

    def check_attributes(self, attributes: Iterable[str]) -> None:
        """Refuse rows with other attributes than the rows before them had, if there were any."""
        if self.slots and {*attributes} != {*self.slots}:
            raise ValueError(
                f"groups has the attributes {sorted(attributes)}, before it had {sorted(self.slots)}: "
                "pass the same attributes every time"
            )

    def check_compared(self, attribute: str) -> None:
        """Refuse an attribute that has shown fewer than two groups: it has no gap."""
        labels = self.groups[attribute]
        if len(labels) < 2:
            raise NotEnoughGroupsError(
                f"sensitive attribute {attribute!r} shows only {len(labels)} group{'s' * (len(labels) != 1)} "
                f"({', '.join(map(repr, labels)) or 'every label is unknown'}): a gap needs two; "
                "leave the attribute out or give rows of another group"
            )

    def codes(self, columns: Groups) -> dict[str, NDArray[np.intp]]:
        """Return the slot of every row's group per attribute, 0 if its group is unknown or has no slot."""
        found = {}
        for name, column in columns.items():
            known = self.slots.get(name, {})
            lookup = np.array([*(known.get(label, 0) for label in column.labels), 0], dtype=np.intp)
            found[name] = lookup[column.codes]  # the UNKNOWN code -1 finds the 0 at the end
        return found

    def members(self, columns: Groups, n_rows: int) -> NDArray[np.bool_]:
        """Return which row counts for which slot (slots x rows)."""
        member = np.zeros((self.n_slots, n_rows), dtype=bool)
        for name, slots in self.codes(columns).items():
            if len(columns[name].labels) > _FEW:
                member[slots, np.arange(n_rows)] = True
                continue
            for slot in self.slots.get(name, {}).values():
                np.equal(slots, slot, out=member[slot])
        member[0] = True
        return member

    def places_of(self, other: GroupIndex) -> list[int]:
        """Return the slot here of each slot of another index, all of whose groups this one has."""
        return [0, *(self.slots[name][label] for name, label in other.listed())]


def compared(labels: Sequence[Hashable]) -> Sequence[Hashable]:
    """Return which of an attribute's groups, in `label_order`, are compared with the rest.

    Of two the larger, so 1 is compared with 0 as in the paper; of more, each (one versus rest).

    Examples
    --------
    >>> compared(["f", "m"]), compared([1, 2, 3])
    (['m'], [1, 2, 3])
    """
    return labels[1:] if len(labels) == 2 else labels


def encode_groups(sensitive_features: object, n_rows: int) -> dict[str, GroupColumn]:
    """Encode sensitive features of any usual form, one `GroupColumn` per attribute.

    Parameters
    ----------
    sensitive_features : list, array, Series, frame or dict
        One column or several: a list, a 1-D or 2-D array, a Series or frame of pandas, polars or
        pyarrow, or a dict from name to column. A dict of `GroupColumn` passes through.
    n_rows : int
        How many labels every column must have. Row i is paired with label i, whatever index the labels have:
        `fairstream.data.alignment.paired` compares it with that of X first.

    Returns
    -------
    dict of str to GroupColumn
        Labels are plain Python values in a fixed order (numbers, then strings, then the rest). Columns
        without a name are called "sensitive_feature_0", "sensitive_feature_1", ... as in fairlearn.

    Examples
    --------
    >>> encode_groups(["f", "m", None, "f"], 4)["sensitive_feature_0"].labels
    ('f', 'm')
    >>> encode_groups(["f", "m", None, "f"], 4)["sensitive_feature_0"].codes.tolist()
    [0, 1, -1, 0]
    """
    encoded: dict[str, GroupColumn] = {}
    for name, values in _columns(sensitive_features):
        if name in encoded:
            raise ValueError(f"sensitive_features has two columns named {name!r}: give each its own name")
        if len(values) != n_rows:
            raise ValueError(
                f"sensitive_features[{name!r}] has {len(values)} rows, X has {n_rows}: pass one label per row"
            )
        if isinstance(values, GroupColumn):
            encoded[name] = values
        else:
            encoded[name] = check_groups(name, _encode_column(name, values))
    if not encoded:
        raise ValueError("sensitive_features has no column: pass at least one attribute")
    return encoded


def encode_column(name: str, labels: object) -> GroupColumn:
    """Encode one column of labels, however many there are.

    Examples
    --------
    >>> encode_column("job", ["nurse", "baker", "nurse"]).labels
    ('baker', 'nurse')
    """
    return _encode_column(name, _one_column(name, labels))


def check_groups(name: str, column: GroupColumn) -> GroupColumn:
    """Return a column after refusing a continuous attribute, which would have a group for every value.

    Warns if there are more than 50 groups, which may be one in whole numbers.

    Examples
    --------
    >>> check_groups("age", encode_column("age", [20.5 + j for j in range(30)]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: sensitive_features['age'] holds 20.5 and 29 more numbers that are not whole: ...
    """
    fractions = [one for one in column.labels if isinstance(one, float) and not one.is_integer()]
    n_groups = len(column.labels)
    if len(fractions) > MOST_FRACTIONS:
        raise ValueError(
            f"sensitive_features[{name!r}] holds {fractions[0]} and {len(fractions) - 1} more numbers that "
            f"are not whole: {WAY_OUT}"
        )
    if n_groups <= MANY_GROUPS:
        return column
    n_rows = int((column.codes != UNKNOWN).sum())
    if 2 * n_groups > n_rows:
        raise ValueError(
            f"sensitive_features[{name!r}] has {n_groups:,} different labels in {n_rows:,} rows: {WAY_OUT}"
        )
    warnings.warn(
        f"sensitive_features[{name!r}] has more than {MANY_GROUPS} different labels, each of which is a "
        f"group to compare: {WAY_OUT}",
        FairstreamWarning,
        stacklevel=3,
    )
    return column


def label_order(label: Hashable) -> tuple[int, Any]:
    """Sort key that orders labels of mixed types the same way in every block and on every machine."""
    if isinstance(label, bool | int | float):
        return (0, label)
    if isinstance(label, str):
        return (1, label)
    return (2, (type(label).__name__, repr(label)))


def _columns(sensitive_features: object) -> list[tuple[str, Any]]:
    """Split any accepted form into (name, one-dimensional values)."""
    if isinstance(sensitive_features, Mapping):
        return [(str(name), _one_column(str(name), col)) for name, col in sensitive_features.items()]
    native: Any = nw.from_native(sensitive_features, allow_series=True, pass_through=True)  # type: ignore[call-overload,unused-ignore]
    if isinstance(native, nw.LazyFrame):
        raise ValueError("sensitive_features is a lazy frame: collect() it first")
    if isinstance(native, nw.DataFrame):
        # Not native[name]: a frame made from an array has integers for names, which would select rows.
        columns = zip(native.columns, native.iter_columns(), strict=True)
        return [(str(name), _series_values(column)) for name, column in columns]
    if isinstance(native, nw.Series):
        return [(str(native.name or "sensitive_feature_0"), _series_values(native))]
    values = _as_array("sensitive_features", sensitive_features)
    if values.ndim == 1:
        return [("sensitive_feature_0", values)]
    return [(f"sensitive_feature_{j}", values[:, j]) for j in range(values.shape[1])]


def _one_column(name: str, column: Any) -> Any:
    if isinstance(column, GroupColumn):
        return column
    if not isinstance(column, list | tuple):  # no series, and asked for in every block of a table
        native = nw.from_native(column, series_only=True, pass_through=True)
        if isinstance(native, nw.Series):
            return _series_values(native)
    values = _as_array(f"sensitive_features[{name!r}]", column)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"sensitive_features[{name!r}] has shape {values.shape}: give each attribute as one column"
        )
    return values


def _series_values(series: Any) -> NDArray[Any]:
    if series.dtype.is_integer() and series.null_count():
        # As floats, which missing values would make of them, labels above 2**53 merge.
        return np.ma.masked_array(series.fill_null(0).to_numpy(), series.is_null().to_numpy())
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return np.asarray(series.to_numpy())
    native = intervals_as_text(series.to_native())
    return _object_array(nw.from_native(native, series_only=True).to_list())


def intervals_as_text(series: Any) -> Any:
    """Return a pandas Series of intervals, as `pd.cut` makes them, with their text as categories.

    No file could hold the intervals; any other series is returned as it is.
    """
    categories = getattr(getattr(series, "dtype", None), "categories", None)
    of_intervals = type(categories).__name__ == "IntervalIndex"
    return series.cat.rename_categories(str) if of_intervals else series


def _as_array(name: str, values: object) -> NDArray[Any]:
    """Turn a list or array-like into a 1-D or 2-D array without ever turning NaN into the text 'nan'."""
    if isinstance(values, str | bytes) or values is None or np.isscalar(values):
        raise ValueError(f"{name} is {values!r}: pass one label per row (list, array, Series or frame)")
    if sp.issparse(values):
        raise ValueError(f"{name} is a sparse matrix: pass a list, array, Series or frame")
    if isinstance(values, np.ma.MaskedArray):
        masked, values = np.ma.getmaskarray(values), values.data.astype(object)
        values[masked] = None  # a masked label is an unknown one
    values = _exact_integers(values)
    if isinstance(values, Sequence):
        rows = [*values]
        nested = bool(rows) and all(isinstance(row, list | tuple | np.ndarray) for row in rows)
        array = np.array(rows, dtype=object) if nested else _object_array(rows)
    else:
        array = np.asarray(values)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {array.shape}: pass one column, or one column per attribute")
    return array


def _exact_integers(values: Any) -> Any:
    """Return pandas and pyarrow arrays as objects: NumPy makes floats of integers if one is missing."""
    if hasattr(values, "isna") and not isinstance(getattr(values, "dtype", None), np.dtype):
        return np.asarray(values, dtype=object)
    return values.to_pylist() if type(values).__module__.startswith("pyarrow.") else values


def _object_array(values: Sequence[Any]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _encode_column(name: str, values: NDArray[Any]) -> GroupColumn:
    if isinstance(values, np.ma.MaskedArray):
        known_rows = ~np.ma.getmaskarray(values)
        column = _encode_column(name, values.data[known_rows])
        codes = np.full(len(values), UNKNOWN, dtype=np.intp)
        codes[known_rows] = column.codes
        return GroupColumn(codes, column.labels)
    if values.dtype.kind == "O":
        codes, labels = _factorise_objects(name, values)
    elif values.dtype.kind in "biu" and _lie_close(values):
        codes, labels = _factorise_by_counting(values)
    else:
        unique, inverse = np.unique(values, return_inverse=True)
        codes, labels = inverse.astype(np.intp, copy=False).ravel(), [value.item() for value in unique]
    known = sorted((label for label in labels if not _is_unknown(label)), key=label_order)
    if any(isinstance(label, float) and np.inf > abs(label) >= 2**53 for label in known):
        raise ValueError(
            f"sensitive_features[{name!r}] holds floats of 2**53 or more, which cannot be told from their "
            'neighbours: pass integers (dtype "Int64" if some are missing) or text'
        )
    if len(known) > MAX_GROUPS:
        raise ValueError(
            f"sensitive_features[{name!r}] has {len(known):,} different labels, at most {MAX_GROUPS:,} are "
            f"allowed: {WAY_OUT}"
        )
    if known == labels:
        return GroupColumn(codes, tuple(known))
    position = {label: index for index, label in enumerate(known)}
    recode = np.array([UNKNOWN if _is_unknown(label) else position[label] for label in labels], dtype=np.intp)
    return GroupColumn(recode[codes], tuple(known))


def _lie_close(values: NDArray[Any]) -> bool:
    """Whether whole numbers or booleans span so few values that these can be counted one by one."""
    return bool(len(values) and int(values.max()) - int(values.min()) < max(len(values), MAX_GROUPS))


def _factorise_by_counting(values: NDArray[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """Return what `np.unique` finds by sorting, of whole numbers or booleans that lie close together."""
    least = int(values.min())
    if values.dtype.itemsize < np.dtype(np.intp).itemsize:
        values_above = np.subtract(values, least, dtype=np.intp)
    else:
        values_above = (values - values.dtype.type(least)).astype(np.intp, copy=False)
    occurring = np.bincount(values_above) > 0
    labels = [values.dtype.type(least + above).item() for above in np.flatnonzero(occurring).tolist()]
    if occurring.all():
        return values_above, labels
    return (np.cumsum(occurring) - 1)[values_above], labels


def _factorise_objects(name: str, values: NDArray[np.object_]) -> tuple[NDArray[np.intp], list[Any]]:
    listed = values.tolist()
    try:
        index = {value: i for i, value in enumerate(dict.fromkeys(listed))}
    except TypeError as error:
        raise ValueError(f"sensitive_features[{name!r}] holds an unhashable label: {error}") from None
    codes = np.fromiter(map(index.__getitem__, listed), dtype=np.intp, count=len(listed))
    return codes, [value.item() if isinstance(value, np.generic) else value for value in index]


def _is_unknown(label: Any) -> bool:
    if label is None or type(label).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(label, float) and label != label
