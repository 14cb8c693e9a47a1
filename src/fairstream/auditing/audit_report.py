"""AuditReport: the report as users hold it, with its renderings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairstream.auditing.render.markdown import render_markdown
from fairstream.auditing.render.page import render_page
from fairstream.auditing.render.summary import summarise
from fairstream.auditing.report import Report, written


@dataclass(frozen=True, slots=True)
class AuditReport(Report):
    """The result of `audit`: plain data that renders as JSON, Markdown or a page.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import PCA
    >>> from fairstream.auditing import audit
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> report = audit(PCA(2).fit(X), X, np.arange(200) % 2, attackers=["linear"], n_permutations=0)
    >>> report.to_dict()["format"], report.headline[:3]
    ('fairstream.auditing', 'PCA')
    """

    def summary(self) -> tuple[str, ...]:
        """Return the findings in plain sentences, warnings first."""
        return summarise(self)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the report as Markdown; if `path` is given, also write it there."""
        return written(render_markdown(self), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one self-contained page; if `path` is given, also write it there."""
        return written(render_page(self), path)
