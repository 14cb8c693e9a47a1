"""Turns table columns into numbers: pass, one-hot, standardise, impute, with what one first pass learns."""

from __future__ import annotations

import copy
import re
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
_MOST_NAMED = 8  # columns in a message
_FEWEST_ROWS = 100  # fewer whole numbers differ by chance
_TILE_BYTES = 2**20  # of rows that are written at once
_FEWEST_TILE_ROWS = 64  # a slice of the table costs something for each column
# Not "none": it often says that there is no such thing, as the guarantors of German credit.
_WRITTEN_NUMBER = re.compile(r"\s*[-+]?[$€£]?\s*(\d{1,3}([.,' ]\d{3})+([.,]\d+)?|\d+([.,]\d+)?)\s*[%€$£]?\s*")
_MEANT_AS_MISSING = frozenset(("?", "-", "na", "n/a", "unknown", "null", "nan", "missing"))


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
    def meant_as_missing(self) -> dict[str, int]:
        """Nothing: numbers do not say that they are missing."""
        return {}

    @property
    def passes(self) -> bool:
        """Whether a column of single numbers passes as it is, if none is missing."""
        return self.width == 1 and self._centre is None and self._fill is None

    @property
    def is_empty(self) -> bool:
        """Whether the first pass saw no value to take a mean of."""
        return self._impute and not self._count.all()

    @property
    def unfilled(self) -> int:
        """Rows with a missing value that nothing fills, as far as the first pass saw them."""
        return 0 if self._impute else self._missing

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
        if self._impute:
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
                raise MissingValuesError({self.name: int(missing.any(axis=1).sum())}, where)
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

    @property
    def is_empty(self) -> bool:
        """Whether the first pass saw no value, and needs one."""
        return not any(self._counts.values()) and (self._impute or not self._given)

    @property
    def unfilled(self) -> int:
        """Rows with a missing value that nothing fills, as far as the first pass saw them."""
        return 0 if self._impute else self._missing

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
        if not self._given:
            self._warn_of_identifiers()
            self._warn_of_numbers()
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
                f"features: if it is a name or an identifier, leave it out with exclude=[{self.name!r}]; if "
                f"it tells whose row it is, pass ids={self.name!r}",
                FairstreamWarning,
                stacklevel=2,
            )

    @property
    def meant_as_missing(self) -> dict[str, int]:
        """Categories that nobody listed and whose name usually says that the value is not known."""
        listed = {} if self._given else self._counts
        return {
            value: count
            for value, count in listed.items()
            if isinstance(value, str) and value.strip().casefold() in _MEANT_AS_MISSING
        }

    def _warn_of_numbers(self) -> None:
        """Warn of numbers that are text for the way they are written: 1,234 or 0,5, 12 % or $5."""
        texts = [value for value in self._counts if isinstance(value, str)]
        written = next((value for value in texts if not _is_number(value)), None)
        if written is None or len(texts) < 2 or not all(map(_WRITTEN_NUMBER.fullmatch, texts)):
            return
        warnings.warn(
            f"column {self.name!r} holds numbers written as {written!r}, taken for categories: write them as "
            f"1234.5, pass decimal=',' if a comma is their decimal mark, or list all of them in "
            f"categories={{{self.name!r}: [...]}} if they are names",
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
                raise MissingValuesError({self.name: int(missing.sum())}, where)
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

    def _unseen(self, values: list[Any]) -> UnseenCategoryError:
        origin = "is not in categories" if self._given else "was not there in the first pass"
        more = f" and {len(values) - 1} more" if len(values) > 1 else ""
        listing = f'pass unseen="ignore", or list every category in categories={{{self.name!r}: [...]}}'
        if self._restored:
            origin = "the encoding does not know"
            listing = (
                'drop those rows, pass unseen="ignore", or fit again and list every category in '
                f"categories={{{self.name!r}: [...]}}"
            )
        return UnseenCategoryError(f"column {self.name!r} holds {values[0]!r}{more}, which {origin}", listing)


@dataclass
class TableEncoder:
    """All feature columns of a table, in order, and what the first pass learned about them."""

    columns: list[NumberColumn | CategoryColumn]
    null_values: tuple[str, ...] = ()  # texts that count as missing
    excluded: Sequence[str] | None = ()  # columns that are no features; None if the features were listed
    is_restored: bool = False  # from the encoding of another table, which settles what is a feature
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
        null_values: Sequence[str] = (),
        excluded: Sequence[str] | None = (),
        unread: str = "",
    ) -> TableEncoder:
        """Decide from the schema how each feature column is encoded.

        `excluded` are the columns that the user left out, None if the features were listed: a refusal names
        all that must be left out together. `unread` is added to it if a column seems to hold no value.
        """
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
        types = {name: schema.field(name).type for name in features}
        held = {"empty": "no value", "other": "{} values"}
        unusable = {name: held.get(column_kind(of), "").format(of) for name, of in types.items()}
        _refuse_unusable({name: what for name, what in unusable.items() if what}, excluded, unread)
        columns: list[NumberColumn | CategoryColumn] = []
        for name, arrow_type in types.items():
            kind = column_kind(arrow_type)
            if kind == "category" or name in categories:
                given, filled = categories.get(name), impute == "mean"
                columns.append(CategoryColumn(name, given, impute=filled, unseen=policy, max_categories=most))
            else:
                columns.append(
                    NumberColumn(name, arrow_type, standardize=standardize, impute=impute == "mean")
                )
        return cls(columns, tuple(sorted({*null_values})), excluded)

    @classmethod
    def restored(
        cls,
        schema: Any,
        encoding: Mapping[str, Any],
        *,
        unseen: str | None = None,
        null_values: Sequence[str] = (),
        unread: str = "",
    ) -> TableEncoder:
        """Build the encoder that `to_state` described, for a table with this schema.

        `null_values` are those of the table, which join those of the encoding; `unread` is as in `plan`.
        """
        columns: list[NumberColumn | CategoryColumn] = []
        nulls = {*encoding.get("null_values", ()), *null_values}
        for state in encoding["columns"]:
            arrow_type = schema.field(state["name"]).type
            found = column_kind(arrow_type)
            if found != state["kind"] and (state["kind"] == "number" or found != "number"):
                held, more = ("no value", unread) if found == "empty" else (f"{arrow_type} values", "")
                raise ValueError(
                    f"column {state['name']!r} holds {held}, the encoding wants a {state['kind']}: pass the "
                    f"table it was made for{more}"
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
        return cls(columns, tuple(sorted(nulls)), None, is_restored=True)

    def to_state(self) -> dict[str, Any]:
        """Return, as plain data, how columns become features."""
        nulls = {"null_values": [*self.null_values]} if self.null_values else {}
        return {"columns": [column.to_state() for column in self.columns], **nulls}

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

    def learn(self, tables: Iterable[Any], place: str) -> None:
        """Make the first pass over the columns that need one; `place` is the table, for messages."""
        pending = [column for column in self.columns if column.needs_pass]
        rows = 0
        for table in tables:
            rows += table.num_rows
            for column in pending:
                column.learn(table.column(column.name))
        empty = [column.name for column in pending if column.is_empty]
        if empty and not rows:
            raise no_rows(place)
        _refuse_unusable(dict.fromkeys(empty, "no value at all"), self.excluded)
        unfilled = {column.name: column.unfilled for column in pending if column.unfilled}
        if unfilled:
            where = f"the table of {rows:,} row{'s' * (rows != 1)}"
            raise MissingValuesError(unfilled, where, rows, self.excluded)
        missing = [(column.name, column.meant_as_missing) for column in pending]
        for column in pending:
            column.finish()
        _warn_of_missing(missing)
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
        missing: dict[str, int] = {}
        for column in self.columns:
            stop = start + column.width
            try:
                column.encode(table.column(column.name), X[:, start:stop], where)
            except MissingValuesError as found:
                missing |= found.counts
            start = stop
        if missing:
            n_rows = None if self.is_restored else table.num_rows
            raise MissingValuesError(missing, where, n_rows, self.excluded)
        return X

    def _together(self, table: Any) -> NDArray[np.float64] | None:
        """Return columns of floats that pass as they are, turned into rows; None if some do not pass.

        A tile of rows at a time, which stays in the processor's cache: a column is read in long stretches,
        and rows are written where their neighbours still are. Record batches are not joined before.
        """
        if not all(isinstance(column, NumberColumn) and column.passes for column in self.columns):
            return None
        chosen = table.select([column.name for column in self.columns])
        if any(field.type != pa.float64() for field in chosen.schema):
            return None
        X = np.empty((chosen.num_rows, self.width))
        step = max(_TILE_BYTES // (8 * self.width), _FEWEST_TILE_ROWS)
        stop = 0
        for batch in chosen.to_batches():
            for first in range(0, batch.num_rows, step):
                rows: NDArray[np.float64] = batch.slice(first, step).to_tensor(null_to_nan=True).to_numpy()
                with np.errstate(over="ignore", invalid="ignore"):
                    if not np.isfinite(rows.sum()):  # cheaper than a look at each value
                        return None  # column by column tells which
                start, stop = stop, stop + len(rows)
                X[start:stop] = rows
        return X


def _warn_of_missing(found: Iterable[tuple[str, Mapping[str, int]]]) -> None:
    """Warn of categories, once of each, whose name usually says that the value is not known."""
    holding: dict[str, dict[str, int]] = {}
    for name, values in found:
        for value, count in values.items():
            holding.setdefault(value, {})[name] = count
    for value, counts in holding.items():
        rows = [f"{count:,} row{'s' * (count > 1)}" for count in counts.values()]
        first = next(iter(counts))
        told = f"column {first!r} holds {value!r} in {rows[0]}, taken for a category"
        if len(counts) > 1:
            listed = ", ".join(f"{name!r} ({n})" for name, n in zip(counts, rows, strict=True))
            told = f"{len(counts)} columns hold {value!r}, taken for a category: {listed}"
        warnings.warn(
            f"{told}: if it means a missing value, pass null_values=[{value!r}] for CSV, or make it null; if "
            f"it is a category, list all of them in categories={{{first!r}: [...]}}",
            FairstreamWarning,
            stacklevel=2,
        )


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
                f"identifier, leave it out with exclude=[{name!r}]; if it tells whose row it is, pass "
                f"ids={name!r}",
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
    values = _plain(column)
    letters = _single_bytes(values)
    encoded = (values if letters is None else letters).dictionary_encode()
    labels = encoded.dictionary.to_pylist()
    if letters is not None:
        labels = [bytes([letter]).decode() for letter in labels]
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


def _single_bytes(values: Any) -> Any | None:
    """Return text of one byte a row, such as "f" and "m", as these bytes; None if it is anything else.

    Bytes are told apart four times as quickly as text, which is a tenth of the time of a narrow table.
    """
    if not len(values) or values.null_count:
        return None
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return None
    _, ends, text = values.buffers()
    kind = np.int32 if pa.types.is_string(values.type) else np.int64
    offsets = np.frombuffer(ends, dtype=kind)[values.offset : values.offset + len(values) + 1]
    if offsets[-1] - offsets[0] != len(values) or (np.diff(offsets) != 1).any():
        return None
    return pa.Array.from_buffers(pa.uint8(), len(values), [None, text], offset=int(offsets[0]))


def plain_columns(table: Any, names: Sequence[str]) -> Any:
    """Return some columns of a table without dictionary encoding or views, as every format can hold them."""
    return pa.table({name: _plain(table.column(name)) for name in names})


def with_nulls(batch: Any, null_values: Sequence[str]) -> Any:
    """Return a record batch in which these texts are missing values, as the parser of CSV reads them.

    Columns that hold none of them stay as they are, except that text is no longer dictionary-encoded.
    """
    arrays = []
    for column in batch.columns:
        if column_kind(column.type) == "category":
            column = _plain(column)
        if column_kind(column.type) == "category":  # not numbers that were dictionary-encoded
            named = pc.is_in(column, value_set=pa.array(null_values, type=column.type))
            column = pc.if_else(named, pa.scalar(None, type=column.type), column)
        arrays.append(column)
    return pa.record_batch(arrays, names=batch.schema.names)


def missing_rows(column: Any) -> int:
    """Return in how many rows a column misses a value; a list misses one if any of its numbers is missing."""
    if column_kind(column.type) == "number":
        return int(np.isnan(_numbers(column)).any(axis=1).sum())
    return int(_plain(column).is_null(nan_is_null=True).true_count)


def target_values(column: Any) -> NDArray[Any]:
    """Return the target as a NumPy array: numbers as they are, anything else as objects."""
    values: NDArray[Any] = _plain(column).to_numpy(zero_copy_only=False)
    return values


class UnseenCategoryError(ValueError):
    """A category that has no feature.

    Parameters
    ----------
    told : str
        Which column holds which.
    way_out : str
        For whoever opens the table.
    """

    def __init__(self, told: str, way_out: str) -> None:
        super().__init__(f"{told}: {way_out}")
        self.told, self._way_out = told, way_out

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what it was built from, as errors of workers are."""
        return type(self), (self.told, self._way_out)


class MissingValuesError(ValueError):
    """Missing values that nothing fills.

    Parameters
    ----------
    counts : mapping
        Rows with a missing value, by column.
    where : str
        The rows that were looked at.
    n_rows : int, optional
        Their number: columns that most of them lack are better left out. None if no column can be.
    excluded : sequence of str, optional
        Columns that are left out already; None if the features were listed.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        where: str,
        n_rows: int | None = None,
        excluded: Sequence[str] | None = None,
    ) -> None:
        self.counts, self._where, self._n_rows, self._excluded = dict(counts), where, n_rows, excluded
        if len(counts) == 1:
            ((name, count),) = counts.items()
            values = "1 missing value" if count == 1 else f"{count:,} missing values"
            told, them = f"column {name!r} has {values} in {where}", "it"
        else:
            most_first = sorted(counts.items(), key=lambda item: -item[1])
            listed = _some([f"{name!r} ({count:,} row{'s' * (count > 1)})" for name, count in most_first])
            told, them = f"{len(counts)} columns have missing values in {where}: {listed}", "them"
        self.told = told
        mostly = [name for name, count in counts.items() if n_rows is not None and 2 * count > n_rows]
        filled = 'with open_source(..., impute="mean")'
        rest = f"{filled}, drop those rows, or leave {them} out of features"
        if not mostly:
            super().__init__(f"{told}: fill them {rest}")
            return
        out = f"Most of these rows lack {_some([*map(repr, mostly)])}: {left_out(mostly, excluded)}"
        others = (
            f". Fill the others {rest}"
            if len(mostly) < len(counts)
            else f", or fill what is missing {filled}"
        )
        super().__init__(f"{told}. {out}{others}")

    def of(self, counts: Mapping[str, int]) -> MissingValuesError:
        """Return the error for other columns of the same rows."""
        return type(self)(counts, self._where, self._n_rows, self._excluded)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what it was built from, as errors of workers are."""
        return type(self), (self.counts, self._where, self._n_rows, self._excluded)


def left_out(names: Sequence[str], excluded: Sequence[str] | None) -> str:
    """Return how columns are left out: beside those that are already, or of the list of features."""
    them = "it" if len(names) == 1 else "them"
    if excluded is None:
        return f"leave {them} out of features"
    return f"leave {them} out with exclude={[*excluded, *names]!r}"


def no_rows(place: str) -> ValueError:
    """Return the error of a table without rows, about whose columns no advice would help."""
    return ValueError(f"{place} has no rows: pass a table with rows")


def _refuse_unusable(held: Mapping[str, str], excluded: Sequence[str] | None, unread: str = "") -> None:
    """Refuse columns that cannot be features, all at once; `held` says what each of them holds."""
    if not held:
        return
    way_out = left_out([*held], excluded)
    if any(what.endswith("values") for what in held.values()):
        which = "it" if len(held) == 1 else "those with values"
        way_out = f"convert {which} to numbers or text, or {way_out}"
    if "no value" in held.values():
        way_out += unread
    if len(held) == 1:
        ((name, what),) = held.items()
        raise ValueError(f"column {name!r} holds {what}: {way_out}")
    by_kind: dict[str, list[str]] = {}
    for name, what in held.items():
        by_kind.setdefault(what, []).append(repr(name))
    told = "; ".join(f"{what} in {_some(names)}" for what, names in by_kind.items())
    raise ValueError(f"{len(held)} columns cannot be features ({told}): {way_out}")


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
