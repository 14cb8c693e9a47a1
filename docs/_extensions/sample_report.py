"""A report of a real audit, made when the site is built: whole, as a page, and with notes in the margin.

The directive `sample-report` shows the report section by section. Its content is a list of notes, each behind
the beginning of a heading and a colon; a section without one is shown alone. Page and text are those of the
library, so they cannot fall behind it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

PAGE = "sample-report.html"
DATE = "2026-01-01T12:00:00+00:00"  # of the sample, so that two builds are equal
_sections: list[tuple[str, str]] = []


def sample() -> Any:
    """Return the report of an embedding of census records."""
    from fairstream import FairStreamingPCA, audit, fit_source, open_like, open_source
    from fairstream.datasets import load_adult

    adult = load_adult(drop_missing=True).drop(columns=["fnlwgt", "relationship", "native-country"])
    adult = adult.sample(4_500, random_state=0)
    seen, unseen = adult.iloc[:3_000], adult.iloc[3_000:]
    roles: dict[str, Any] = {"sensitive_features": ["sex"], "target": "income"}
    source = open_source(seen, standardize=True, **roles)
    model = fit_source(source, FairStreamingPCA(n_components=6, constraint="mean", screen=2))
    opened = [open_like(model.subspace_, rows, **roles) for rows in (unseen, seen)]
    report = audit(
        {"embedding": model},
        opened[0],
        train=(opened[1],),
        limit=0.75,
        attackers=["linear", "boosting", "forest"],
        title="Embedding of census records",
    )
    return replace(report, reproduction=replace(report.reproduction, date=DATE))


def build_sample(app: Any) -> None:
    """Audit, write the page beside the site's own files, and keep the sections for the directive."""
    report = sample()
    folder = Path(app.outdir)
    folder.mkdir(parents=True, exist_ok=True)
    report.to_html(folder / PAGE)
    _sections.extend(sections_of(report.to_markdown()))


def sections_of(text: str) -> list[tuple[str, str]]:
    """Divide a report in Markdown by its headings of the second level; what comes first is "The verdict"."""
    found, heading, lines = [], "The verdict", []
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        if line.startswith("## "):
            found.append((heading, "\n".join(lines)))
            heading, lines = line[3:], []
        else:
            lines.append(line)
    return [*found, (heading, "\n".join(lines))]


class SampleReport(SphinxDirective):
    """The sample with notes."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Build a pair of boxes for every section: what the report says, and the note."""
        notes = dict(line.split(": ", 1) for line in self.content if ": " in line)
        result: list[nodes.Node] = []
        for heading, text in _sections:
            section = nodes.section(ids=[f"sample-{nodes.make_id(heading)}"])
            section += nodes.title("", heading.partition(" (")[0])
            begins = next((start for start in notes if heading.startswith(start)), None)
            both = nodes.container(classes=["noted"] if begins else ["unnoted"])
            said = nodes.container(classes=["said"])
            plain = [line.lstrip("# ") and f"**{line.lstrip('# ')}**" if line.startswith("#") else line
                     for line in text.splitlines()]  # fmt: skip
            self.state.nested_parse(StringList(plain, "the sample report"), 0, said)
            both += said
            if begins:
                note = nodes.container(classes=["note"])
                self.state.nested_parse(StringList([notes.pop(begins)], "the sample report"), 0, note)
                both += note
            section += both
            result.append(section)
        for heading in notes:
            logging.getLogger(__name__).info("the report has no section %r: its note is not shown", heading)
        return result


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.connect("builder-inited", build_sample)
    app.add_directive("sample-report", SampleReport)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
