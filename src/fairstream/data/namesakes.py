"""Namesakes: features named like a sensitive attribute, which most likely tell the group outright."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Iterable, Mapping

from fairstream.data.schema import Schema
from fairstream.errors import FairstreamWarning

# What a copy or another form of a column is called, after the column's own name.
_COPIES = re.compile(r"\d*|copy|code[sd]?|encoded|label|cat|category|num|flag|bin|binary|id|x|y|left|right")
_LISTED = 5


def namesakes(names: Iterable[str], attribute: str, labels: Iterable[Hashable] = ()) -> list[str]:
    """Return the names that are an attribute's own, but for case and punctuation, or those of a copy of it.

    A copy has a number, a word such as "code", or one of the attribute's labels after the name: "Sex.1",
    "sex_code", "sex_male".

    Examples
    --------
    >>> namesakes(["age", "Sex", "sex.1", "sex_f", "sexual_health"], "sex", ["f", "m"])
    ['Sex', 'sex.1', 'sex_f']
    """
    own, values = _words(attribute), {_words(str(label)) for label in labels}
    return [
        name
        for name in names
        if own
        and (found := _words(name))[: len(own)] == own
        and (found[len(own) :] in values or all(_COPIES.fullmatch(word) for word in found[len(own) :]))
    ]


def warn_of_namesakes(schema: Schema, groups: Mapping[str, Iterable[Hashable]]) -> None:
    """Warn of features that are named like a sensitive attribute.

    A column of a table under exactly the attribute's name is there only if it was asked for, and passes.

    Parameters
    ----------
    schema : Schema
        Of the features.
    groups : dict
        Attribute -> labels.
    """
    names = [*schema.variables()]
    for attribute, labels in groups.items():
        found = namesakes(names, attribute, labels)
        if schema.encoding is not None:
            found = [name for name in found if name != attribute]
        if found:
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            warnings.warn(
                f"{', '.join(map(repr, found[:_LISTED]))}{more} among the features is named like the "
                f"sensitive attribute {attribute!r}: if it holds the same, leave it out, for a subspace only "
                "nulls what it finds in moments",
                FairstreamWarning,
                stacklevel=3,
            )


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^\W_]+", name.casefold()))
