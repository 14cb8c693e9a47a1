"""Text from the data made fit to be read: names that are long, empty, or written from right to left."""

from __future__ import annotations

import unicodedata

from markupsafe import Markup

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


def without_control_characters(value: object) -> object:
    """Drop what no page can show: control characters (but new lines and tabs) and lone surrogates."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c for c in value if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))
