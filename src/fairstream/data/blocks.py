"""What flows through the library: blocks of rows with their encoded group labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

Matrix: TypeAlias = Any  # a 2-D numpy array or a scipy CSR or CSC matrix; the latter has no usable type

MAX_GROUPS = 1_000
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """One attribute of a block: a small integer per row, and what the integers stand for.

    `codes[i]` indexes `labels`; `UNKNOWN` (-1) marks a row whose group is not known. Such a row is the
    paper's (*, x): it counts for the total covariance and for no group.
    """

    codes: NDArray[np.intp]
    labels: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: slice | NDArray[np.intp]) -> GroupColumn:
        """Return the same column for some of the rows (a view where `rows` is a slice)."""
        return GroupColumn(self.codes[rows], self.labels)

    def decode(self) -> NDArray[np.object_]:
        """Return the labels row by row, None where unknown."""
        table = np.empty(len(self.labels) + 1, dtype=object)
        table[:-1] = [*self.labels]
        decoded: NDArray[np.object_] = table[self.codes]
        return decoded


Groups: TypeAlias = Mapping[str, GroupColumn]


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that arrive together: features, encoded groups and, where there is one, the target."""

    X: Matrix
    groups: Groups = field(default_factory=dict)
    target: NDArray[Any] | None = None

    @property
    def n_rows(self) -> int:
        """How many rows the block holds."""
        return int(self.X.shape[0])


@runtime_checkable
class BlockSource(Protocol):
    """A re-iterable origin of blocks. Every iteration starts again at the first row."""

    @property
    def n_features(self) -> int:
        """Number of columns of every block."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, None where the origin has none."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None where only reading would tell."""

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""


def take_rows(groups: Groups, rows: slice | NDArray[np.intp]) -> dict[str, GroupColumn]:
    """Return every column of `groups` for some of the rows."""
    return {attribute: column.take(rows) for attribute, column in groups.items()}


def check_values(values: NDArray[Any], dtype: DTypeLike, *, scale_known: bool = False) -> None:
    """Refuse NaN, infinity, and numbers whose products would overflow or underflow in `dtype`.

    Neither may pass: an unfair direction of infinite size, or of size zero, is none, and nothing would be
    nulled. The upper limit leaves a factor of 1e12 for how many products are summed, the lower one of 1e6 for
    how small a product may be beside the largest. Rows that are all tiny are harmless after larger ones
    (`scale_known`), and so are zeros.

    Examples
    --------
    >>> check_values(np.array([1e30], dtype=np.float32), np.float32)
    Traceback (most recent call last):
    ValueError: X has values up to 1e+30: beyond 1.8e+13 sums of squares overflow in float32, rescale X
    """
    limit = largest_value(dtype)
    least = 1e3 * float(np.sqrt(np.finfo(dtype).tiny))
    if values.size == 0 or (values.dtype.kind in "bui" and values.dtype.itemsize <= 4):
        return
    if values.dtype.kind == "f" and values.ndim <= 2:
        # One quick pass tells for nearly all data: NaN, infinity and a large number all show in the squares.
        squares = np.einsum(values, [*range(values.ndim)], values, [*range(values.ndim)], [])
        own = np.finfo(values.dtype)
        least_squares = values.size * max(least**2, float(own.tiny))
        if (scale_known or squares >= least_squares) and squares <= min(limit, float(np.sqrt(own.max))) ** 2:
            return
    largest = max(abs(float(values.min())), abs(float(values.max())))  # NaN where there is one
    if not np.isfinite(largest):
        raise ValueError("X has NaN or infinite values: drop those rows or fill them in first")
    if largest > limit:
        raise ValueError(
            f"X has values up to {largest:.2g}: beyond {limit:.2g} sums of squares overflow in "
            f"{np.dtype(dtype)}, rescale X"
        )
    if 0 < largest < least and not scale_known:
        raise ValueError(
            f"X has no value beyond {largest:.2g}: below {least:.2g} sums of squares underflow in "
            f"{np.dtype(dtype)}, rescale X"
        )


def largest_value(dtype: DTypeLike) -> float:
    """Return the largest value whose products can be summed in `dtype`.

    Examples
    --------
    >>> f"{largest_value(np.float32):.2g}"
    '1.8e+13'
    """
    return 1e-6 * float(np.sqrt(np.finfo(dtype).max))


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
        encoded[name] = values if isinstance(values, GroupColumn) else _encode_column(name, values)
    if not encoded:
        raise ValueError("sensitive_features has no column: pass at least one attribute")
    return encoded


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
    return _object_array(series.to_list())


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
    """Return pandas and pyarrow arrays as objects: NumPy turns integers beside a missing one into floats."""
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
    else:
        unique, inverse = np.unique(values, return_inverse=True)
        codes, labels = inverse.astype(np.intp, copy=False).ravel(), [value.item() for value in unique]
    known = sorted((label for label in labels if not _is_unknown(label)), key=label_order)
    if len(known) > MAX_GROUPS:
        raise ValueError(
            f"sensitive_features[{name!r}] has {len(known):,} different labels, at most {MAX_GROUPS:,} are "
            "allowed: bin a continuous attribute into groups first"
        )
    position = {label: index for index, label in enumerate(known)}
    recode = np.array([UNKNOWN if _is_unknown(label) else position[label] for label in labels], dtype=np.intp)
    return GroupColumn(recode[codes] if len(labels) else codes, tuple(known))


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
