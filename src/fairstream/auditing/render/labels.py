"""Text from the data made fit to be read: names that are long, empty, or written from right to left."""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup, escape

LONGEST_NAME = 60
LONGEST_VALUE = 600


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name on one line, clipped, isolated in its own writing direction.

    Examples
    --------
    >>> len(shown("x" * 10_000))
    62
    """
    flat = " ".join(name.split()) or "(empty)"
    return f"\u2068{clipped(flat, longest)}\u2069"


def clipped(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return the text, or its beginning and an ellipsis.

    Examples
    --------
    >>> clipped("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def breakable(name: str) -> Markup:
    """Return a name that may also break after = _ - / at the end of a line.

    Examples
    --------
    >>> str(breakable("a=b"))[1:-1]
    'a=<wbr>b'
    """
    return Markup(re.sub(r"(?<=[=_/-])(?=\w)", "<wbr>", str(escape(shown(name)))))


def cell(value: str) -> str:
    """Return the text of a table cell: numbers and short words as they are, anything else as a name."""
    return value if len(value) <= 20 and value.isascii() else shown(value)


def without_control_characters(value: object) -> object:
    """Drop what no page can show: control characters (but new lines and tabs) and lone surrogates."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c for c in value if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))
