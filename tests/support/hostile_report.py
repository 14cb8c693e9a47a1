"""The example report with names that attack its renderings: markup, endless words, right-to-left text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from support.example_report import example_report

SCRIPT = "<script>document.title='owned'</script>"
QUOTES = "\"'><img src=x onerror=document.title='owned'>"
RIGHT_TO_LEFT = "\u202eevil \u05e9\u05dc\u05d5\u05dd"
ENDLESS = "W" * 10_000
NAMES = {
    "sex": "sex|column",
    "race": ENDLESS,
    "Female": SCRIPT,
    "Black": RIGHT_TO_LEFT,
    "White": ENDLESS + "2",
    "guarded PCA": QUOTES,
    "the paper's method": ENDLESS + "3",
    "relationship=Husband": "</svg></style></script>",
    "unseen.parquet": SCRIPT,
}


def hostile_report():
    """Return the example report under hostile names."""
    report = renamed(example_report(), NAMES)
    line = f"{ENDLESS}3 was fitted on these rows: {SCRIPT}"
    return dataclasses.replace(report, title=SCRIPT, warnings=(line,), headline=line)


def renamed(node, names: Mapping[str, str]):
    """Return the tree with every text that is one of the names replaced.

    Examples
    --------
    >>> renamed({"a": ("b", 1)}, {"a": "x", "b": "y"})
    {'x': ('y', 1)}
    """
    if dataclasses.is_dataclass(node):
        fields = [field.name for field in dataclasses.fields(node) if field.init]
        return dataclasses.replace(node, **{name: renamed(getattr(node, name), names) for name in fields})
    if isinstance(node, dict):
        return {names.get(key, key): renamed(value, names) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return type(node)(renamed(value, names) for value in node)
    return names.get(node, node) if isinstance(node, str) else node
