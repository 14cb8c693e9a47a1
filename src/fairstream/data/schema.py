"""Schema: what the columns of X are called, and how the columns of a table became them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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

    def to_header(self) -> dict[str, Any]:
        """Return it as JSON values, under the names that files have always had for it."""
        names = None if self.feature_names is None else list(self.feature_names)
        return {"feature_names": names, "encoding": self.encoding}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_header` described; a header without one gives an empty schema."""
        names = header.get("feature_names")
        return cls(None if names is None else tuple(map(str, names)), header.get("encoding"))
