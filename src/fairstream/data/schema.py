"""Schema: what the columns of X are called, and how the columns of a table became them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

UNSEEN = ("raise", "ignore", "other")
"""What may become of a category that an encoding does not know."""


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

    def refuse_table(self, columns: Iterable[Any]) -> None:
        """Refuse the columns of a table that must still be encoded, and name what encodes them.

        Parameters
        ----------
        columns : iterable
            Names of the columns of a frame that was passed as rows of features.

        Examples
        --------
        >>> encoding = {"columns": [{"name": "sex", "kind": "category", "categories": ["f", "m"]}]}
        >>> Schema(("sex=f", "sex=m"), encoding).refuse_table(["sex", "age"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: X has the columns of the table that the model was fitted on, not its features: ...
        """
        if self.encoding is None:
            return
        given, own = {*map(str, columns)}, {column["name"] for column in self.encoding["columns"]}
        if own <= given and not given >= {*(self.feature_names or ())}:
            raise ValueError(
                "X has the columns of the table that the model was fitted on, not its features: encode them "
                "as in the fit with open_like(model, X), and write all rows with embed_source or "
                "erase_source, or pass a block's X (model: the subspace_ of an estimator)"
            )

    def to_header(self) -> dict[str, Any]:
        """Return it as JSON values, under the names that files have always had for it."""
        names = None if self.feature_names is None else list(self.feature_names)
        return {"feature_names": names, "encoding": self.encoding}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_header` described; a header without one gives an empty schema."""
        names = header.get("feature_names")
        return cls(None if names is None else tuple(map(str, names)), header.get("encoding"))
