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

    Parameters
    ----------
    title, headline : str
        The heading, and the first sentence: the verdict if a limit was stated, and whether the embedding
        hides anything better than plain PCA.
    limit : float or None
        The AUC that no attacker may exceed.
    warnings : tuple of str
        What to know before reading on: missing labels, rows of the fit among those audited.
    data : DataSummary
        Rows, features and groups that were audited.
    models : tuple of ModelReport
        One for every embedding; the last is plain PCA, the control.
    raw : tuple of RawControl
        What attackers read from the data before any embedding, by attribute.
    raw_task : TaskScore or None
        The score of the target from that data.
    floors : tuple of Floors
        What guessing and the target give away, by attribute.
    frontier : tuple of FrontierChoice
        What other choices would keep and leave.
    frontier_fitted_on : str
        Which rows the frontier was computed from.
    reproduction : Reproduction
        Date, call, inputs with digests, versions, seeds.
    parameters : dict
        The options of the audit.
    fairstream_version : str
        What measured.

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
