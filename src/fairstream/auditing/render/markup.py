"""HTML and SVG elements that escape by construction: plain strings are text, only `Markup` is markup."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from typing import TypeAlias

LONGEST_NAME = 60


class Markup(str):
    """Text that is already safe to stand in a page."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | Iterable[Child]"


def tag(name: str, *children: Child, **attributes: object) -> Markup:
    """Return an element; `class_` and `data_tip` become `class` and `data-tip`, None leaves an attribute out.

    Examples
    --------
    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_clean(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Return children one after the other, escaping all that is not markup.

    Examples
    --------
    >>> join(["<", tag("b", "x")])
    '&lt;<b>x</b>'
    """
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return Markup(html.escape(_clean(children)))
    return Markup("".join(join(child) for child in children))


def shown(name: str) -> str:
    """Return a name from the data fit to be read: one line, clipped, isolated in its own writing direction.

    Examples
    --------
    >>> len(shown("x" * 10_000))
    62
    """
    flat = " ".join(name.split()) or "(empty)"
    clipped = flat if len(flat) <= LONGEST_NAME else flat[: LONGEST_NAME - 1] + "…"
    return f"\u2068{clipped}\u2069"


def brief(name: str, longest: int = 22) -> str:
    """Return a name for a figure, where room is short."""
    return shown(name if len(name) <= longest else name[: longest - 1].rstrip() + "…")


def breakable(name: str) -> Markup:
    """Return a name that may also break after = _ - / where a line is full.

    Examples
    --------
    >>> breakable("a=b")[1:-1]
    'a=<wbr>b'
    """
    return Markup(re.sub(r"(?<=[=_/-])(?=\w)", "<wbr>", join(shown(name))))


def _clean(text: str) -> str:
    """Drop what no page can show: control characters (but new lines) and lone surrogates."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))
