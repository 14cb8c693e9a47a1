"""How answers are printed: as JSON for programs, as aligned lines for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click


def answer(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print facts, one a line, or as one JSON object."""
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    shown = {name: readable(value) for name, value in facts.items() if value not in (None, {})}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        say(printable(f"{name.replace('_', ' '):<{width}}  {value}"))


def answer_table(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows that have the same columns, aligned, or as a JSON list."""
    if as_json:
        say(json.dumps(rows, indent=2))
        return
    for line in table_lines(rows):
        say(printable(line))


def say(text: str, *, err: bool = False) -> None:
    """Print text on standard output or error; nothing else writes to the terminal.

    Newlines and tabs count as layout, so text from data must pass through `printable` first.
    """
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    click.echo("\n".join(lines), err=err)


def printable(text: str) -> str:
    r"""Escape control characters: labels come from data, which must not control the terminal.

    Examples
    --------
    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a header line and a line per row, right-aligned.

    Examples
    --------
    >>> table_lines([{"m": 1, "variance": 0.5}, {"m": 10, "variance": 0.25}])
    [' m  variance', ' 1    0.5000', '10    0.2500']
    """
    flat = [dict(_flattened(row)) for row in rows]
    names = list(flat[0]) if flat else []
    cells = [names, *([readable(row[name]) for name in names] for row in flat)]
    widths = [max(len(line[j]) for line in cells) for j in range(len(names))]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in cells]


def readable(value: Any) -> str:
    """Return a value as a person reads it."""
    if isinstance(value, Mapping):
        parts = ((name, readable(item), isinstance(item, Mapping)) for name, item in value.items())
        return ", ".join(f"{name} ({item})" if nested else f"{name}: {item}" for name, item, nested in parts)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"
    return ", ".join(map(readable, value)) if isinstance(value, Sequence) else str(value)


def _flattened(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Give every entry of a nested mapping its own column."""
    flat: list[tuple[str, Any]] = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat += [(f"{name.replace('_', ' ')} ({key})", item) for key, item in value.items()]
        else:
            flat.append((name.replace("_", " "), value))
    return flat
