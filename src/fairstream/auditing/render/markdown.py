"""The report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairstream.auditing.render.summary import summarise
from fairstream.auditing.render.tables import Row, reproduce_call, reproduce_rows, tables
from fairstream.auditing.report import Report


def render_markdown(report: Report) -> str:
    """Return the whole report as GitHub-flavoured Markdown; everything from the data is escaped."""
    parts = [f"# {_escape(report.title)}", ""]
    parts += [f"> **Warning.** {_escape(line)}\n" for line in report.warnings]
    parts += [f"- {_escape(line)}" for line in summarise(report)[len(report.warnings) :]]
    for table in tables(report):
        if table.rows:
            parts += ["", f"## {table.title}", "", *_table(table.header, table.rows)]
    parts += ["", "## How to reproduce this report", "", *_table(("what", "value"), reproduce_rows(report))]
    parts += ["", "```python", reproduce_call(report), "```"]
    return "\n".join(parts) + "\n"


def _table(header: Row, rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(map(_escape, header)) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(_escape, row)) + " |" for row in rows]


def _escape(text: str) -> str:
    """Make text from the data harmless in Markdown: no markup, no HTML, no link, no new line."""
    flat = " ".join(text.split())
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in flat)
    # GitHub turns bare addresses into links. A backslash stops it at :// and www., but not at the @ of an
    # e-mail address; an invisible word joiner stops it there.
    unlinked = re.sub(r"(?i)(www)\.", r"\1\\.", escaped.replace("://", "\\://"))
    return unlinked.replace("@", "@\u2060")
