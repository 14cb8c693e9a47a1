"""The report as Markdown: the sentences and tables of the page, without its figures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairstream.auditing.render.labels import clipped, shown
from fairstream.auditing.render.sections import SIGN_OFF, Part, first_screen, sections
from fairstream.auditing.render.summary import plain
from fairstream.auditing.render.tables import Cell, Table
from fairstream.auditing.report import Report


def render_markdown(report: Report) -> str:
    """Return the whole report as GitHub-flavoured Markdown; everything from the data is escaped."""
    first = first_screen(report)
    lines = [f"# {_escape(report.title)}", ""]
    lines += [f"> **Read this first.** {_escape(line)}\n" for line in first.warnings]
    lines += [f"**{_escape(first.headline)}**", ""] if first.headline else []
    lines += [_escape(first.limit), ""]
    for one in first.answers:
        lines.append(f"- **{_escape(shown(one.attribute))}: {one.told}.** {_escape(' '.join(one.says))}")
    lines += [
        "",
        f"## {_escape(first.overview.title)}",
        "",
        *_table(first.overview),
        "",
        _escape(first.caveat),
    ]
    for section in sections(report):
        lines += ["", f"## {section.heading}", *(line for part in section.parts for line in _part(part))]
    lines += ["", "## Sign-off", "", *_table(Table("", SIGN_OFF, [("", "", "", "")], 0))]
    return "\n".join(lines) + "\n"


def _part(part: Part) -> Iterator[str]:
    if part.title:
        yield from ("", f"### {_escape(part.title)}")
    for line in part.says:
        yield from ("", _escape(line))
    if part.table is not None:
        yield from ("", f"#### {_escape(part.table.title)}", "", *_table(part.table))
    if part.code:
        # Indented code has no closing mark that the code itself could contain.
        yield from ("", *(f"    {line}" for line in part.code.splitlines()))


def _table(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(map(_escape, table.header)) + " |"
    yield "|" + "---|" * len(table.header)
    for row in table.rows:
        cells = [_in_one_line(value, is_name=i < table.n_names) for i, value in enumerate(row)]
        yield "| " + " | ".join(map(_escape, cells)) + " |"


def _in_one_line(value: str | Cell, *, is_name: bool) -> str:
    cell = Cell(value) if isinstance(value, str) else value
    letter = f"{cell.series.key} · " if cell.series is not None and cell.series.lettered else ""
    beside = clipped(cell.beside.replace("\n", "; "))
    told = shown(cell.value) if is_name else clipped(cell.value)
    verdict = f", {cell.verdict}" if cell.verdict not in ("", cell.value) else ""
    return f"{letter}{told}{f' ({beside})' if beside else ''}{verdict}"


def _escape(text: str) -> str:
    """Make text from the data harmless in Markdown: no markup, no HTML, no link, no new line."""
    flat = " ".join(plain(text).split())
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in flat)
    # GitHub turns bare addresses into links. A backslash stops it at :// and www., but not at the @ of an
    # e-mail address; an invisible word joiner stops it there.
    unlinked = re.sub(r"(?i)(www)\.", r"\1\\.", escaped.replace("://", "\\://"))
    return unlinked.replace("@", "@\u2060")
