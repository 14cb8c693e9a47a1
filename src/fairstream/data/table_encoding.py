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

from fairstream.data.arrow_columns import as_numbers, column_kind, plain, rows_of_floats
from fairstream.data.groups import label_order
from fairstream.data.schema import UNSEEN
from fairstream.data.table_errors import MissingValuesError, UnseenCategoryError, no_rows, refuse_unusable
from fairstream.errors import FairstreamWarning

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = pc = None

MAX_CATEGORIES = 10_000
OTHER = "other"
_TOO_MANY_TO_NAME = 5
_FEWEST_ROWS = 100  # fewer whole numbers differ by chance
_WRITTEN_NUMBER = re.compile(r"\s*[-+]?[$€£]?\s*(\d{1,3}([.,' ]\d{3})+([.,]\d+)?|\d+([.,]\d+)?)\s*[%€$£]?\s*")
# Not "none": it often says that there is no such thing, as the guarantors of German credit.
_MEANT_AS_MISSING = frozenset(("?", "-", "na", "n/a", "unknown", "null", "nan", "missing"))


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
        values = as_numbers(column)
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
        values = as_numbers(column)
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
        for item in pc.value_counts(plain(column)):
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
        values = plain(column)
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
        refuse_unusable({name: what for name, what in unusable.items() if what}, excluded, unread)
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
        refuse_unusable(dict.fromkeys(empty, "no value at all"), self.excluded)
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
        if all(isinstance(column, NumberColumn) and column.passes for column in self.columns):
            together = rows_of_floats(table.select([column.name for column in self.columns]))
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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
