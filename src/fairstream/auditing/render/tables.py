"""The tables of a report, as rows of text for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairstream.auditing.render.labels import clipped
from fairstream.auditing.render.summary import PROBE_NAMES
from fairstream.auditing.report import GapResult, ModelReport, ProbeResult, Report

Row = tuple[str, ...]

NOISE_LEVEL = 0.05  # p-values from here on say that the groups may not differ at all


@dataclass(frozen=True)
class Table:
    """A table with a heading; the first `n_names` columns hold names, the others numbers."""

    title: str
    header: Row
    rows: Sequence[Row]
    n_names: int


def tables(report: Report) -> Iterable[Table]:
    """Yield every table of the report."""
    yield overview_table(report)
    yield leak_table(report)
    yield gap_table(report)
    yield group_table(report)
    yield downstream_table(report)
    yield frontier_table(report)
    yield size_table(report)


def overview_table(report: Report) -> Table:
    """Return one row per embedding: its size, what it keeps, the best probe of every attribute."""
    attributes = [raw.attribute for raw in report.raw]
    header = ("embedding", "components", "directions removed", "explained variance")
    rows = []
    for model in report.models:
        best = {leak.attribute: leak.best_probe for leak in model.leaks}
        probes = [best.get(attribute) for attribute in attributes]
        aucs = ["–" if probe is None else f"{probe.auc.value:.3f}" for probe in probes]
        removed = "–" if model.n_removed is None else str(model.n_removed)
        rows.append((model.name, str(model.n_components), removed, share(model.explained_variance), *aucs))
    heads = [f"AUC of the best probe, {clipped(attribute, 40)}" for attribute in attributes]
    return Table("At a glance", (*header, *heads), rows, 1)


def leak_table(report: Report, attribute: str | None = None) -> Table:
    """Return one row per probe: models first, then plain PCA, then the raw data."""
    header = (
        "embedding", "attribute", "probe", "AUC", "interval", "balanced accuracy", "interval", "guessing",
    )  # fmt: skip
    rows = []
    for name, asked, probes in _probed(report):
        if attribute in (None, asked):
            rows += [(name, asked, *_probe_cells(result)) for result in probes]
    return Table("What can still be guessed", header, rows, 3)


def gap_table(report: Report) -> Table:
    """Return one row per model and comparison."""
    header = (
        "model", "attribute", "group", "mean gap", "of plain PCA's", "second-moment gap", "of plain PCA's",
        "MMD²", "MMD², unbiased", "p-value",
    )  # fmt: skip
    rows = [
        (
            model.name, leak.attribute, gap.group,
            number(gap.mean_gap), _share_or_noise(gap, gap.mean_gap_relative),
            number(gap.second_moment_gap), _share_or_noise(gap, gap.second_moment_gap_relative),
            number(gap.mmd2), number(gap.mmd2_unbiased), number(gap.mmd2_p_value),
        )
        for model in report.models
        for leak in model.leaks
        for gap in leak.gaps
    ]  # fmt: skip
    return Table("Gaps between the groups", header, rows, 3)


def group_table(report: Report) -> Table:
    """Return what each model keeps of each group."""
    header = ("model", "attribute", "group", "explained variance", "reconstruction error")
    rows = [
        (
            model.name, line.attribute, line.group,
            share(line.explained_variance), number(line.reconstruction_error),
        )
        for model in report.models
        for line in model.by_group
    ]  # fmt: skip
    return Table("What is kept of each group", header, rows, 3)


def downstream_table(report: Report) -> Table:
    """Return how classifiers of the target do on rows that they have not seen.

    The paper's protocol, a training accuracy, is in the data of the report only.
    """
    header = (
        "model", "classifier", "attribute", "accuracy", "most frequent class",
        "demographic parity difference", "equalized odds difference", "accuracy by group",
    )  # fmt: skip
    rows = [row for model in report.models for row in _downstream_rows(model)]
    return Table("Predicting the target from the embedding", header, rows, 3)


def frontier_table(report: Report) -> Table:
    """Return one row per point of the frontier."""
    header = (
        "directions", "m", "removed", "explained variance", "mean gap", "second-moment gap", "of plain PCA's",
    )  # fmt: skip
    rows = [
        (
            frontier_name(point.constraint, point.directions), str(point.n_unfair), str(point.n_removed),
            share(point.explained_variance), number(point.mean_gap), number(point.second_moment_gap),
            share(point.second_moment_gap_relative),
        )
        for point in report.frontier
    ]  # fmt: skip
    return Table("What other choices would cost", header, rows, 1)


def size_table(report: Report) -> Table:
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
    return Table("Group sizes", ("attribute", "group", "rows"), rows, 2)


def map_table(report: Report, attribute: str) -> Table:
    """Return where each group is in the first two coordinates."""
    header = (
        "embedding", "group", "rows", "mean 1", "mean 2", "deviation 1", "deviation 2", "rows not drawn",
    )  # fmt: skip
    rows = []
    for model in report.models:
        for cloud in (c for view in model.maps if view.attribute == attribute for c in view.clouds):
            spreads = (cloud.covariance[0][0] ** 0.5, cloud.covariance[1][1] ** 0.5)
            numbers = map(number, (*cloud.mean, *spreads))
            rows.append((model.name, cloud.group, f"{cloud.n_rows:,}", *numbers, f"{cloud.n_hidden_rows:,}"))
    return Table("Means and spreads", header, rows, 2)


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
    """Write a gap as a share of plain PCA's, unless random relabellings give as large a difference."""
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


def _probed(report: Report) -> Iterable[tuple[str, str, tuple[ProbeResult, ...]]]:
    """Yield (embedding, attribute, probes), the raw data last."""
    for model in report.models:
        for leak in model.leaks:
            yield model.name, leak.attribute, leak.probes
    for raw in report.raw:
        yield "raw data", raw.attribute, raw.probes


def _downstream_rows(model: ModelReport) -> list[Row]:
    return [
        (
            model.name, result.classifier, fair.attribute,
            share(result.accuracy), share(result.majority_rate),
            number(fair.demographic_parity_difference), number(fair.equalized_odds_difference),
            ", ".join(f"{clipped(name, 40)}\u00a0{share(of)}" for name, of in fair.accuracy_by_group.items()),
        )
        for result in model.downstream
        if result.protocol == "honest"
        for fair in result.fairness
    ]  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
