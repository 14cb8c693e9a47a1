"""Lists of names as they are typed: A,B, with a name that contains a comma in double quotes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable


def split_names(text: str) -> list[str]:
    """Return the names that were typed; quotes that are not in pairs around a name are part of it.

    Examples
    --------
    >>> split_names('age,"a, or b"')
    ['age', 'a, or b']
    >>> split_names('age,5" or less')
    ['age', '5" or less']
    """
    try:
        return next(csv.reader([text], strict=True)) or [text]
    except csv.Error:
        return text.split(",")


def joined_names(names: Iterable[str]) -> str:
    """Return names as they are to be typed.

    Examples
    --------
    >>> joined_names(["age", "a, or b"])
    'age,"a, or b"'
    """
    text = io.StringIO()
    csv.writer(text).writerow(names)
    return text.getvalue().removesuffix("\r\n")
