"""The report as Markdown and as a terminal table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fairstream.auditing.render.summary import PROBE_NAMES, summarise
from fairstream.auditing.report import GapResult, ModelReport, ProbeResult, Report

Row = tuple[str, ...]

NOISE_LEVEL = 0.05  # p-values from here on say that the groups may not differ at all


def render_markdown(report: Report) -> str:
    """Return the whole report as GitHub-flavoured Markdown; everything from the data is escaped."""
    parts = [f"# {_escape(report.title)}", ""]
    parts += [f"> **Warning.** {_escape(line)}\n" for line in report.warnings]
    parts += [f"- {_escape(line)}" for line in summarise(report)[len(report.warnings) :]]
    for title, header, rows in tables(report):
        if rows:
            parts += ["", f"## {title}", "", *_table(header, rows)]
    parts += ["", "## Reproduce", "", *_table(("what", "value"), reproduce_rows(report))]
    parts += ["", "```python", reproduce_call(report), "```"]
    return "\n".join(parts) + "\n"


def tables(report: Report) -> Iterable[tuple[str, Row, list[Row]]]:
    """Yield every table of the report: title, header, rows of text."""
    yield "What still leaks", LEAK_HEADER, leak_rows(report)
    yield "What it keeps and what gap is left", GAP_HEADER, gap_rows(report)
    yield (
        "By group",
        ("model", "attribute", "group", "explained variance", "reconstruction error"),
        group_rows(report),
    )
    yield "Downstream task", DOWNSTREAM_HEADER, downstream_rows(report)
    yield "Other choices (frontier)", FRONTIER_HEADER, frontier_rows(report)
    yield "Group sizes", ("attribute", "group", "rows"), size_rows(report)


LEAK_HEADER = (
    "embedding",
    "attribute",
    "probe",
    "AUC",
    "interval",
    "balanced accuracy",
    "interval",
    "chance",
)
GAP_HEADER = (
    "model", "attribute", "group", "explained variance", "mean gap", "of PCA's", "second-moment gap", "of PCA's",
    "MMD²", "unbiased", "p",
)  # fmt: skip
DOWNSTREAM_HEADER = (
    "model", "classifier", "protocol", "attribute", "accuracy", "majority", "Δ DP", "Δ odds",
    "accuracy by group",
)  # fmt: skip
FRONTIER_HEADER = (
    "directions",
    "m",
    "removed",
    "explained variance",
    "mean gap",
    "second-moment gap",
    "of PCA's",
)


def leak_rows(report: Report, attribute: str | None = None) -> list[Row]:
    """Return one row per probe: models first, then plain PCA, then the raw data."""
    rows = []
    for name, asked, probes in probed(report):
        if attribute in (None, asked):
            rows += [(name, asked, *_probe_cells(result)) for result in probes]
    return rows


def probed(report: Report) -> Iterable[tuple[str, str, tuple[ProbeResult, ...]]]:
    """Yield (embedding, attribute, probes), the raw data last."""
    for model in report.models:
        for leak in model.leaks:
            yield model.name, leak.attribute, leak.probes
    for raw in report.raw:
        yield "raw data", raw.attribute, raw.probes


def gap_rows(report: Report) -> list[Row]:
    """Return one row per model and comparison."""
    return [
        (
            model.name, leak.attribute, gap.group, share(model.explained_variance),
            number(gap.mean_gap), _share_or_noise(gap, gap.mean_gap_relative),
            number(gap.second_moment_gap), _share_or_noise(gap, gap.second_moment_gap_relative),
            number(gap.mmd2), number(gap.mmd2_unbiased), number(gap.mmd2_p_value),
        )
        for model in report.models
        for leak in model.leaks
        for gap in leak.gaps
    ]  # fmt: skip


def group_rows(report: Report) -> list[Row]:
    """Return one row per model and group."""
    return [
        (
            model.name,
            line.attribute,
            line.group,
            share(line.explained_variance),
            number(line.reconstruction_error),
        )
        for model in report.models
        for line in model.by_group
    ]


def downstream_rows(report: Report) -> list[Row]:
    """Return one row per model, classifier, protocol and attribute."""
    return [row for model in report.models for row in _downstream_of(model)]


def frontier_rows(report: Report) -> list[Row]:
    """Return one row per point of the frontier."""
    return [
        (
            frontier_name(point.constraint, point.directions), str(point.n_unfair), str(point.n_removed),
            share(point.explained_variance), number(point.mean_gap), number(point.second_moment_gap),
            share(point.second_moment_gap_relative),
        )
        for point in report.frontier
    ]  # fmt: skip


def size_rows(report: Report) -> list[Row]:
    """Return the size of every reported group, and what was left out."""
    rows: list[Row] = []
    for summary in report.data.attributes:
        rows += [(summary.attribute, group, f"{count:,}") for group, count in summary.groups.items()]
        unknown, small = summary.n_unknown_rows or 0, summary.n_suppressed_groups
        if unknown:
            rows.append((summary.attribute, "(unknown)", f"{unknown:,}"))
        if small:
            pooled = summary.n_other_rows - unknown
            shown = f"{pooled:,}" if pooled else "left out"
            rows.append((summary.attribute, f"({small} small group{'s' * (small != 1)})", shown))
    if report.data.left_out_below:
        rows.append(("(any)", "(left out of every number)", f"fewer than {report.data.left_out_below:,}"))
    return rows


def reproduce_rows(report: Report) -> list[Row]:
    """Return what is needed to run the same audit again and to see that it is the same."""
    data = report.data
    rows: list[Row] = [
        ("fairstream", report.fairstream_version),
        ("data", f"{data.n_rows:,} rows × {data.n_features:,} features"),
        ("data digest (SHA-256)", data.digest),
        ("probed sample", f"{data.sample_rows:,} rows, seed {data.sample_seed}"),
    ]
    rows += [(f"audit: {name}", _value(value)) for name, value in report.parameters.items()]
    for model in report.models:
        fitted = "" if model.fitted_rows is None else f", fitted on {model.fitted_rows:,} rows"
        settings = ", ".join(f"{name}={_value(value)}" for name, value in model.parameters.items())
        rows.append((f"{model.name}: model", f"{model.kind}({settings}){fitted}"))
        rows.append((f"{model.name}: digest (SHA-256)", model.digest))
    return rows


def reproduce_call(report: Report) -> str:
    """Return the call that makes this report again."""
    options = {name: value for name, value in report.parameters.items() if name != "train"}
    train = ["    train=(X_train, sensitive_train, y_train),"] if report.parameters.get("train") else []
    written = [f"    {name}={value!r}," for name, value in options.items()]
    return "\n".join(["audit(", "    models, X, sensitive_features, y,", *train, *written, ")"])


def frontier_name(constraint: str, directions: str) -> str:
    """Name a curve of the frontier."""
    return {"none": "plain PCA", "mean": "mean only"}.get(constraint, f"{directions} directions")


def _share_or_noise(gap: GapResult, relative: float | None) -> str:
    """Write a gap as a share of PCA's, unless random relabellings tell the groups apart as well."""
    if relative is not None and gap.mmd2_p_value is not None and gap.mmd2_p_value >= NOISE_LEVEL:
        return "within noise"
    return share(relative)


def share(value: float | None) -> str:
    """Write a share as a percentage, a dash for none."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Write a number with three significant digits, a dash for none."""
    return "–" if value is None else f"{value:.3g}"


def _probe_cells(result: ProbeResult) -> Row:
    auc, accuracy = result.auc, result.balanced_accuracy
    return (
        PROBE_NAMES[result.probe], f"{auc.value:.3f}", f"{auc.low:.3f}–{auc.high:.3f}",
        f"{accuracy.value:.3f}", f"{accuracy.low:.3f}–{accuracy.high:.3f}", f"{result.chance:.3f}",
    )  # fmt: skip


def _downstream_of(model: ModelReport) -> list[Row]:
    return [
        (
            model.name, result.classifier, result.protocol, fair.attribute,
            share(result.accuracy), share(result.majority_rate),
            number(fair.demographic_parity_difference), number(fair.equalized_odds_difference),
            ", ".join(f"{group} {share(value)}" for group, value in fair.accuracy_by_group.items()),
        )
        for result in model.downstream
        for fair in result.fairness
    ]  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _table(header: Row, rows: list[Row]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(_escape, row)) + " |" for row in rows]


def _escape(text: str) -> str:
    """Make text from the data harmless in Markdown: no markup, no HTML, no link, no new line."""
    flat = " ".join(text.split())
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in flat)
    # GitHub turns bare addresses into links. A backslash stops it at :// and www., but not at the @ of an
    # e-mail address: there an invisible word joiner does.
    unlinked = re.sub(r"(?i)(www)\.", r"\1\\.", escaped.replace("://", "\\://"))
    return unlinked.replace("@", "@\u2060")
