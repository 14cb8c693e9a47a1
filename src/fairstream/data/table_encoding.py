"""Turns table columns into numbers: pass, one-hot, standardise, impute, with what one first pass learns."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn, check_groups, encode_column, label_order
from fairstream.data.schema import UNSEEN
from fairstream.errors import FairstreamWarning

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = None

MAX_CATEGORIES = 10_000
OTHER = "other"
_MAX_LABEL = 1_000
_TOO_MANY_TO_NAME = 5
_FEWEST_ROWS = 100  # fewer whole numbers differ by chance


def column_kind(arrow_type: Any) -> str:
    """Return "number", "category", "empty" or "other" for an Arrow type; booleans are numbers."""
    types = pa.types
    if types.is_fixed_size_list(arrow_type):
        return "number" if column_kind(arrow_type.value_type) == "number" else "other"
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return "number"
    if types.is_decimal(arrow_type):
        return "number"
    if types.is_dictionary(arrow_type):
        return "other" if column_kind(arrow_type.value_type) == "other" else "category"
    if any(is_text(arrow_type) for is_text in (types.is_string, types.is_large_string, types.is_string_view)):
        return "category"
    return "empty" if types.is_null(arrow_type) else "other"


class NumberColumn:
    """A numeric column, or a fixed-size list of numbers, as one or several features."""

    def __init__(self, name: str, arrow_type: Any, *, standardize: bool, impute: bool) -> None:
        is_list = pa.types.is_fixed_size_list(arrow_type)
        self.name = name
        self.width = arrow_type.list_size if is_list else 1
        self.feature_names = [f"{name}_{j}" for j in range(self.width)] if is_list else [name]
        self.needs_pass = standardize or impute
        self._standardize, self._impute = standardize, impute
        self._centre: NDArray[np.float64] | None = None
        self._scale: NDArray[np.float64] | None = None
        self._fill: NDArray[np.float64] | None = None
        self._count = np.zeros(self.width)
        self._mean = np.zeros(self.width)
        self._scatter = np.zeros(self.width)
        self._missing = 0

    @property
    def passes(self) -> bool:
        """Whether a column of single numbers passes as it is, if none is missing."""
        return self.width == 1 and self._centre is None and self._fill is None

    def learn(self, column: Any) -> None:
        """Add a part of the column with Chan's update of count, mean and scatter, exact for large offsets."""
        values = _numbers(column)
        self._refuse_infinite(values)
        missing = np.isnan(values)
        self._missing += int(missing.any(axis=1).sum())
        count = (~missing).sum(axis=0)
        mean = np.where(missing, 0.0, values).sum(axis=0) / np.maximum(count, 1)
        scatter = (np.where(missing, 0.0, values - mean) ** 2).sum(axis=0)
        total = np.maximum(self._count + count, 1)
        step = mean - self._mean
        self._scatter += scatter + step**2 * self._count * count / total
        self._mean += step * count / total
        self._count += count

    def finish(self) -> None:
        """Check what the first pass saw and keep what encoding needs of it."""
        if self._missing and not self._impute:
            raise _missing_values(self.name, self._missing, "the table")
        if self._impute:
            if not self._count.all():
                raise ValueError(
                    f"column {self.name!r} has no value to take a mean of: leave it out of features"
                )
            self._fill = self._mean
        if self._standardize:
            scale = np.sqrt(self._scatter / np.maximum(self._count, 1))
            # The spread of a constant column is only rounding: centre it, do not scale it.
            scale[scale <= 1e-12 * np.maximum(np.abs(self._mean), 1e-300)] = 1.0
            self._centre, self._scale = self._mean, scale

    def encode(self, column: Any, out: NDArray[np.float64], where: str) -> None:
        """Write the features of some rows into `out`."""
        values = _numbers(column)
        missing = np.isnan(values)
        if missing.any():
            if self._fill is None:
                raise _missing_values(self.name, int(missing.any(axis=1).sum()), where)
            values = np.where(missing, self._fill, values)
        self._refuse_infinite(values)
        if self._centre is not None and self._scale is not None:
            values = (values - self._centre) / self._scale
        out[:] = values

    def _refuse_infinite(self, values: NDArray[np.float64]) -> None:
        if np.isinf(values).any():
            raise ValueError(
                f"column {self.name!r} holds infinite values: clean them, or leave it out of features"
            )

    def to_state(self) -> dict[str, Any]:
        """Return what encoding needs as plain data."""
        state: dict[str, Any] = {"name": self.name, "kind": "number", "width": self.width}
        for key, values in (("centre", self._centre), ("scale", self._scale), ("fill", self._fill)):
            if values is not None:
                state[key] = values.tolist()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` returned."""
        if state["width"] != self.width:
            raise ValueError(
                f"column {self.name!r} has lists of {self.width} numbers, the encoding {state['width']}: "
                "pass the table it was made for"
            )
        for key in ("centre", "scale", "fill"):
            if key in state:
                setattr(self, f"_{key}", np.array(state[key], dtype=np.float64))


class CategoryColumn:
    """A column of categories as one 0/1 feature per category.

    With `unseen` "other" the last feature is for all categories that are not among the others.
    """

    def __init__(
        self,
        name: str,
        categories: Sequence[Hashable] | None,
        *,
        impute: bool,
        unseen: str = "raise",
        max_categories: int = MAX_CATEGORIES,
    ) -> None:
        self.name = name
        self._policy, self._most = unseen, max_categories
        self.needs_pass = categories is None or impute
        self._given = categories is not None
        self._impute = impute
        self._counts: dict[Hashable, int] = dict.fromkeys(categories or (), 0)
        self._fill: NDArray[np.float64] | None = None
        self._missing = 0
        self._restored = False
        if categories is not None and (not categories or len(self._counts) < len(categories)):
            raise ValueError(f"categories[{name!r}] is {categories!r}: list each category once, at least one")
        if self._given and unseen == "other":
            self._counts.setdefault(OTHER, 0)

    @property
    def width(self) -> int:
        """Number of categories."""
        return len(self._counts)

    @property
    def feature_names(self) -> list[str]:
        """One name per category: "column=category"."""
        return [f"{self.name}={category}" for category in self._counts]

    def learn(self, column: Any) -> None:
        """Count the categories of a part of the column."""
        for item in pc.value_counts(_plain(column)):
            value, count = item["values"].as_py(), item["counts"].as_py()
            if value is None or value != value:
                self._missing += count
            elif self._given and value not in self._counts:
                if self._policy == "raise":
                    raise self._unseen([value])
                if self._policy == "other":
                    self._counts[OTHER] += count
            else:
                self._counts[value] = self._counts.get(value, 0) + count
        # Others may be joined at the end, but a column of names must not fill the memory before.
        if len(self._counts) > (max(self._most, MAX_CATEGORIES) if self._policy == "other" else self._most):
            raise ValueError(
                f"column {self.name!r} has more than {self._most:,} categories: it looks like a name, leave "
                'it out of features; else pass max_categories, with unseen="other" to join the rarest'
            )

    def finish(self) -> None:
        """Check what the first pass saw and fix the order of the categories."""
        if not self._given:
            self._refuse_numbers_with_strangers()
        if self._missing and not self._impute:
            raise _missing_values(self.name, self._missing, "the table")
        if not any(self._counts.values()) and (self._impute or not self._given):
            raise ValueError(f"column {self.name!r} has no value at all: leave it out of features")
        if not self._given:
            self._warn_of_identifiers()
            self._counts = {label: self._counts[label] for label in sorted(self._counts, key=label_order)}
            if self._policy == "other":
                self._join_rarest()
        if self._impute:
            counts = np.array(list(self._counts.values()), dtype=np.float64)
            self._fill = counts / counts.sum()

    def _join_rarest(self) -> None:
        """Make the others the last category, and join to them the rarest beyond `max_categories`."""
        others = self._counts.pop(OTHER, 0)
        by_count = sorted(self._counts, key=lambda label: -self._counts[label])
        rare = {*by_count[self._most - 1 :]}
        others += sum(self._counts[label] for label in rare)
        self._counts = {label: n for label, n in self._counts.items() if label not in rare} | {OTHER: others}

    def _warn_of_identifiers(self) -> None:
        """Warn if nearly every row has a category of its own: such features say nothing about other rows."""
        rows = sum(self._counts.values())
        if (self.width >= 20 and self.width == rows) or (self.width > 100 and self.width > rows / 2):
            warnings.warn(
                f"column {self.name!r} has {self.width:,} categories in {rows:,} rows and becomes as many "
                "features: if it is a name or an identifier, leave it out with features=[...]",
                FairstreamWarning,
                stacklevel=2,
            )

    def _refuse_numbers_with_strangers(self) -> None:
        """Refuse text that is numbers except for a few values: a column that changed its type half-way."""
        strangers = [value for value in self._counts if isinstance(value, str) and not _is_number(value)]
        if len(self._counts) >= 10 and 0 < len(strangers) <= len(self._counts) // 10:
            raise ValueError(
                f"column {self.name!r} holds {strangers[0]!r} among numbers: mend it, or list every value in "
                f"categories={{{self.name!r}: [...]}} to take the numbers as names"
            )

    def encode(self, column: Any, out: NDArray[np.float64], where: str) -> None:
        """Write the features of some rows into `out`."""
        values = _plain(column)
        listed = list(self._counts)
        if self._policy == "other" and column_kind(values.type) == "number":
            listed.remove(OTHER)  # no number is called so
        try:
            known = pa.array(listed).cast(values.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            raise ValueError(
                f"categories[{self.name!r}] holds {listed[:_TOO_MANY_TO_NAME]}, the column holds "
                f"{values.type}: give values of that type"
            ) from None
        codes = pc.index_in(values, value_set=known)
        found = codes.is_valid().to_numpy(zero_copy_only=False)
        missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        strange = ~(found | missing)
        if self._policy == "raise" and strange.any():
            unseen = pc.unique(values.filter(pa.array(strange))).to_pylist()
            raise self._unseen(unseen)
        out[:] = 0.0
        rows = np.flatnonzero(found)
        out[rows, codes.fill_null(0).to_numpy(zero_copy_only=False)[rows]] = 1.0
        if self._policy == "other":
            out[strange, [*self._counts].index(OTHER)] = 1.0
        if missing.any():
            if self._fill is None:
                raise _missing_values(self.name, int(missing.sum()), where)
            out[missing] = self._fill

    def to_state(self) -> dict[str, Any]:
        """Return what encoding needs as plain data."""
        state: dict[str, Any] = {"name": self.name, "kind": "category", "categories": list(self._counts)}
        if self._fill is not None:
            state["fill"] = self._fill.tolist()
        if self._policy != "raise":
            state["unseen"] = self._policy
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` returned (the categories were given)."""
        self._restored = True
        if "fill" in state:
            self._fill = np.array(state["fill"], dtype=np.float64)

    def _unseen(self, values: list[Any]) -> ValueError:
        origin = "is not in categories" if self._given else "was not there in the first pass"
        more = f" and {len(values) - 1} more" if len(values) > 1 else ""
        listing = f'pass unseen="ignore", or list every category in categories={{{self.name!r}: [...]}}'
        if self._restored:
            origin = "the encoding does not know"
            listing = (
                'drop those rows, pass unseen="ignore", or fit again and list every category in '
                f"categories={{{self.name!r}: [...]}}"
            )
        return ValueError(f"column {self.name!r} holds {values[0]!r}{more}, which {origin}: {listing}")


@dataclass
class TableEncoder:
    """All feature columns of a table, in order, and what the first pass learned about them."""

    columns: list[NumberColumn | CategoryColumn]
    learned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not self.columns_to_learn:
            self._check_names()

    def _check_names(self) -> None:
        """Refuse two columns that give one feature name, such as "a" with the category "x", and "a=x"."""
        owners: dict[str, str] = {}
        for column in self.columns:
            for name in column.feature_names:
                first = owners.setdefault(name, column.name)
                if first != column.name:
                    raise ValueError(
                        f"columns {first!r} and {column.name!r} both give a feature {name!r}: rename one"
                    )

    @classmethod
    def plan(
        cls,
        schema: Any,
        features: Sequence[str],
        *,
        categories: Mapping[str, Sequence[Hashable] | None],
        standardize: bool,
        impute: str | None,
        unseen: str | None = None,
        max_categories: int | None = None,
    ) -> TableEncoder:
        """Decide from the schema how each feature column is encoded."""
        policy = _checked_policy(unseen, UNSEEN)
        most = MAX_CATEGORIES if max_categories is None else max_categories
        if isinstance(most, bool) or not isinstance(most, int) or most < 1 + (policy == "other"):
            raise ValueError(
                f"max_categories is {max_categories!r}: give a whole number from 1, or from 2 with "
                'unseen="other"'
            )
        if impute not in (None, "mean"):
            raise ValueError(f'impute is {impute!r}: pass "mean", or None to refuse missing values')
        chosen = {*features}
        unused = [name for name in categories if name not in chosen]
        if unused:
            raise ValueError(f"categories names {unused[0]!r}, which is not a feature: leave it out")
        columns: list[NumberColumn | CategoryColumn] = []
        for name in features:
            arrow_type = schema.field(name).type
            kind = column_kind(arrow_type)
            if kind in ("other", "empty"):
                held = "no value" if kind == "empty" else f"{arrow_type} values"
                raise ValueError(
                    f"column {name!r} holds {held}: convert it to numbers or text, or leave it out"
                )
            if kind == "category" or name in categories:
                given, filled = categories.get(name), impute == "mean"
                columns.append(CategoryColumn(name, given, impute=filled, unseen=policy, max_categories=most))
            else:
                columns.append(
                    NumberColumn(name, arrow_type, standardize=standardize, impute=impute == "mean")
                )
        return cls(columns)

    @classmethod
    def restored(cls, schema: Any, encoding: Mapping[str, Any], *, unseen: str | None = None) -> TableEncoder:
        """Build the encoder that `to_state` described, for a table with this schema."""
        columns: list[NumberColumn | CategoryColumn] = []
        for state in encoding["columns"]:
            arrow_type = schema.field(state["name"]).type
            found = column_kind(arrow_type)
            if found != state["kind"] and (state["kind"] == "number" or found != "number"):
                raise ValueError(
                    f"column {state['name']!r} holds {arrow_type} values, the encoding wants a "
                    f"{state['kind']}: pass the table it was made for"
                )
            column: NumberColumn | CategoryColumn
            if state["kind"] == "number":
                column = NumberColumn(state["name"], arrow_type, standardize=False, impute=False)
            else:
                policy = state.get("unseen", "raise")
                if unseen is not None and policy != unseen:
                    policy = _checked_policy(
                        unseen, ("raise", "ignore"), " without that feature in the model"
                    )
                column = CategoryColumn(state["name"], state["categories"], impute=False, unseen=policy)
            column.restore(state)
            columns.append(column)
        return cls(columns)

    def to_state(self) -> dict[str, Any]:
        """Return, as plain data, how columns become features."""
        return {"columns": [column.to_state() for column in self.columns]}

    @property
    def columns_to_learn(self) -> list[str]:
        """Columns that a first pass must read."""
        return [column.name for column in self.columns if column.needs_pass]

    @property
    def number_names(self) -> list[str]:
        """Columns that pass as numbers."""
        return [column.name for column in self.columns if isinstance(column, NumberColumn)]

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(column.width for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def blank(self) -> TableEncoder:
        """Return a copy to learn on, so that a pass that fails leaves this one as it was."""
        return copy.deepcopy(self)

    def learn(self, tables: Iterable[Any]) -> None:
        """Make the first pass over the columns that need one."""
        pending = [column for column in self.columns if column.needs_pass]
        for table in tables:
            for column in pending:
                column.learn(table.column(column.name))
        for column in pending:
            column.finish()
        self._check_names()
        self.learned = True

    def encode(self, table: Any, first_row: int) -> NDArray[np.float64]:
        """Return the features of some rows, n x width, C order."""
        together = self._together(table)
        if together is not None:
            return together
        X = np.empty((table.num_rows, self.width))
        where = f"rows {first_row:,} to {first_row + table.num_rows - 1:,}"
        start = 0
        for column in self.columns:
            stop = start + column.width
            column.encode(table.column(column.name), X[:, start:stop], where)
            start = stop
        return X

    def _together(self, table: Any) -> NDArray[np.float64] | None:
        """Return columns of floats that pass as they are, turned into rows in one go; None if some do not."""
        if not all(isinstance(column, NumberColumn) and column.passes for column in self.columns):
            return None
        chosen = table.select([column.name for column in self.columns])
        if any(field.type != pa.float64() for field in chosen.schema) or not chosen.num_rows:
            return None
        (batch,) = chosen.combine_chunks().to_batches()
        X: NDArray[np.float64] = batch.to_tensor(null_to_nan=True).to_numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(X.sum())  # cheaper than a look at each value; column by column tells which
        return X if finite else None


def _checked_policy(unseen: str | None, choices: Sequence[str], why: str = "") -> str:
    if unseen is not None and unseen not in choices:
        raise ValueError(f"unseen is {unseen!r}: pass one of {', '.join(map(repr, choices))}{why}")
    return unseen or "raise"


class Identifiers:
    """Looks for columns of whole numbers that have a number of its own for every row.

    Blocks are compared with themselves only, so that memory stays flat: a number that never repeats within a
    block is taken for an identifier.
    """

    def __init__(self, schema: Any, features: Sequence[str]) -> None:
        self._names = tuple(name for name in features if pa.types.is_integer(schema.field(name).type))
        self._rows = 0

    def look(self, table: Any) -> None:
        """Take in the next rows of the table."""
        self._rows += table.num_rows
        alone = [name for name in self._names if table.num_rows == 1 or _all_differ(table.column(name))]
        self._names = tuple(alone)

    def warn(self) -> None:
        """Warn of what is left after all rows."""
        for name in self._names if self._rows >= _FEWEST_ROWS else ():
            warnings.warn(
                f"column {name!r} has a whole number of its own in each of {self._rows:,} rows: if it is an "
                "identifier, leave it out with features=[...]",
                FairstreamWarning,
                stacklevel=3,
            )


def _all_differ(column: Any) -> bool:
    head = column.slice(0, _FEWEST_ROWS)  # most columns repeat a number at once
    if pc.count_distinct(head).as_py() < len(head):
        return False
    return bool(pc.count_distinct(column).as_py() == len(column))


def encode_labels(name: str, column: Any) -> GroupColumn:
    """Encode one sensitive column; nulls and NaN are unknown."""
    encoded = _plain(column).dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    for label in labels:
        if isinstance(label, str) and len(label) > _MAX_LABEL:
            raise ValueError(
                f"sensitive column {name!r} holds a label of {len(label):,} characters, {label[:20]!r}...: "
                "close the quote that was left open there, or name a column of groups"
            )
    groups = encode_column(name, labels)
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    # Entry -1 of the table serves the nulls.
    return check_groups(name, GroupColumn(np.append(groups.codes, -1)[indices], groups.labels))


def plain_columns(table: Any, names: Sequence[str]) -> Any:
    """Return some columns of a table without dictionary encoding or views, as every format can hold them."""
    return pa.table({name: _plain(table.column(name)) for name in names})


def target_values(column: Any) -> NDArray[Any]:
    """Return the target as a NumPy array: numbers as they are, anything else as objects."""
    values: NDArray[Any] = _plain(column).to_numpy(zero_copy_only=False)
    return values


def _missing_values(name: str, count: int, where: str) -> ValueError:
    """Return the error for missing values."""
    values = "1 missing value" if count == 1 else f"{count:,} missing values"
    return ValueError(
        f'column {name!r} has {values} in {where}: fill them with open_source(..., impute="mean"), drop '
        "those rows, or leave it out of features"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plain(column: Any) -> Any:
    """Return one contiguous array without dictionary encoding or views."""
    if pa.types.is_dictionary(column.type):
        if pa.types.is_string_view(column.type.value_type):
            column = _without_views(column)
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):  # few of Arrow's functions take one
        column = column.cast(pa.large_string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_views(column: Any) -> Any:
    """Return a dictionary-encoded column whose dictionary was string views as one of plain text."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
        for chunk in chunks
    ]
    return pa.chunked_array(plain, pa.dictionary(column.type.index_type, pa.large_string()))


def _numbers(column: Any) -> NDArray[np.float64]:
    """Return float64 values, one matrix column per feature, with NaN for null."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_fixed_size_list(values.type):
        numbers: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers.reshape(-1, 1)
    width = values.type.list_size
    inner = values.values.slice(values.offset * width, len(values) * width)
    matrix = np.array(_numbers(inner)).reshape(-1, width)
    matrix[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return matrix
