"""Schema: what the columns of X are called, and how the columns of a table became them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairstream.linalg import FloatArray

UNSEEN = ("raise", "ignore", "other")
"""What may become of a category that an encoding does not know."""

_POLICIES = {"raise": "refused", "ignore": "ignored", "other": "taken for other"}


@dataclass(frozen=True)
class Schema:
    """Feature names and table encoding. They travel with a learner and with its result.

    Attributes
    ----------
    feature_names : tuple of str, optional
        A name per feature.
    encoding : dict, optional
        How table columns became features, as `TableSource.encoding` has it: plain JSON values.

    Examples
    --------
    >>> encoding = {"columns": [{"name": "age", "kind": "number", "width": 1},
    ...                         {"name": "sex", "kind": "category", "categories": ["f", "m"]}]}
    >>> schema = Schema(("age", "sex=f", "sex=m"), encoding)
    >>> schema.variables()
    {'age': slice(0, 1, None), 'sex': slice(1, 3, None)}
    """

    feature_names: tuple[str, ...] | None = None
    encoding: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, source: Any) -> Schema:
        """Return the schema of a source."""
        return cls(source.feature_names, getattr(source, "encoding", None))

    def filled(self, other: Schema) -> Schema:
        """Return this schema, with what it lacks taken from `other`."""
        names = other.feature_names if self.feature_names is None else self.feature_names
        return Schema(names, other.encoding if self.encoding is None else self.encoding)

    def variables(self) -> dict[str, slice]:
        """Return the features of every table column: one for a number, one per category for a category.

        Without an encoding every named feature is a variable of its own, and without names there are none.
        """
        if self.encoding is None:
            return {name: slice(j, j + 1) for j, name in enumerate(self.feature_names or ())}
        found, start = {}, 0
        for column in self.encoding["columns"]:
            width = len(column["categories"]) if column["kind"] == "category" else column["width"]
            found[column["name"]] = slice(start, start + width)
            start += width
        return found

    def names_table(self, columns: Iterable[Any]) -> bool:
        """Whether these are the columns of the table, which must still be encoded, rather than the features.

        A frame with all columns of the table is taken for one, also if numbers are scaled and the features
        have the same names (see `in_table_units`), or if there are further columns, which are dropped.

        Parameters
        ----------
        columns : iterable
            Names of the columns of a frame that was passed as rows of features.

        Examples
        --------
        >>> encoding = {"columns": [{"name": "sex", "kind": "category", "categories": ["f", "m"]}]}
        >>> Schema(("sex=f", "sex=m"), encoding).names_table(["sex", "age"])
        True
        """
        if self.encoding is None:
            return False
        given, own = {*map(str, columns)}, {column["name"] for column in self.encoding["columns"]}
        return own <= given and not (given == own and all(map(_passes, self.encoding["columns"])))

    @property
    def shares_names(self) -> bool:
        """Whether features have the names of the table's columns but other units: all are numbers, scaled."""
        if self.encoding is None:
            return False
        columns = self.encoding["columns"]
        same = self.feature_names == tuple(column["name"] for column in columns)
        return same and any("centre" in column for column in columns)

    def in_table_units(self, rows: FloatArray) -> FloatArray:
        """Return features as they go into a frame or a table file under `feature_names`.

        If the features have the names of the table's columns they get the units of these, since whoever reads
        such a frame takes it for the table; else they are returned as they are.

        Parameters
        ----------
        rows : array (n, d)

        Examples
        --------
        >>> column = {"name": "age", "kind": "number", "width": 1, "centre": [40.0], "scale": [9.0]}
        >>> Schema(("age",), {"columns": [column]}).in_table_units(np.array([[1.0], [-1.0]]))
        array([[49.],
               [31.]])
        """
        if self.encoding is None or not self.shares_names:
            return rows
        columns = self.encoding["columns"]
        centre = np.array([column.get("centre", [0.0])[0] for column in columns], dtype=rows.dtype)
        scale = np.array([column.get("scale", [1.0])[0] for column in columns], dtype=rows.dtype)
        units: FloatArray = rows * scale + centre
        return units

    def describe(self) -> dict[str, Any]:
        """Return which columns a table must have, and how they become features, as plain data.

        Examples
        --------
        >>> encoding = {"columns": [{"name": "sex", "kind": "category", "categories": ["f", "m"]}]}
        >>> for fact in Schema(("sex=f", "sex=m"), encoding).describe().items():
        ...     print(fact)
        ('columns', {'sex': {'kind': 'category', 'categories': ['f', 'm']}})
        ('missing_values', 'refused')
        ('unknown_categories', 'refused')
        """
        if self.encoding is None:
            names = self.feature_names or ()
            return {"columns": {name: {"kind": "number"} for name in names}} if names else {}
        columns = self.encoding["columns"]
        filled = any("fill" in column for column in columns)
        facts: dict[str, Any] = {
            "columns": {
                column["name"]: {key: value for key, value in column.items() if key not in ("name", "unseen")}
                for column in columns
            },
            "missing_values": "filled: means, shares of categories" if filled else "refused",
        }
        if nulls := self.encoding.get("null_values"):
            facts["null_values"] = [*nulls]
        policies = {column.get("unseen", "raise") for column in columns if column["kind"] == "category"}
        if policies:
            facts["unknown_categories"] = ", ".join(_POLICIES[policy] for policy in sorted(policies))
        return facts

    def to_header(self) -> dict[str, Any]:
        """Return it as JSON values, under the names that files have always had for it."""
        names = None if self.feature_names is None else list(self.feature_names)
        return {"feature_names": names, "encoding": self.encoding}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_header` described; a header without one gives an empty schema."""
        names = header.get("feature_names")
        return cls(None if names is None else tuple(map(str, names)), header.get("encoding"))


def _passes(column: Mapping[str, Any]) -> bool:
    """Whether a table column is a feature as it is."""
    return column["kind"] == "number" and column["width"] == 1 and not {"centre", "fill"} & {*column}


def same_features(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two encodings make the same features of all rows that both take.

    Whether an unknown category is refused or ignored is not compared.

    Examples
    --------
    >>> column = {"name": "sex", "kind": "category", "categories": ["f", "m"]}
    >>> same_features({"columns": [column]}, {"columns": [{**column, "unseen": "ignore"}]})
    True
    """

    def columns(encoding: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {**column, "unseen": column.get("unseen") == "other"}  # which is a feature of its own
            for column in encoding["columns"]
        ]

    return columns(one) == columns(other) and {**one, "columns": ()} == {**other, "columns": ()}
