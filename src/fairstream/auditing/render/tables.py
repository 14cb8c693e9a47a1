"""The tables of a report, as rows of text for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairstream.auditing.render.canvas import Series
from fairstream.auditing.render.labels import shown
from fairstream.auditing.render.summary import attack_of, attacker_phrase, gap_reading, raw_attack
from fairstream.auditing.report import (
    AttackResult,
    AttributeDecisions,
    EmbeddingMap,
    Estimate,
    ModelReport,
    Report,
    TaskScore,
)


@dataclass(frozen=True)
class Cell:
    """A value, lines beside it in smaller letters, a verdict on it, and its mark in the figures."""

    value: str
    beside: str = ""
    verdict: str = ""
    series: Series | None = None


Row = tuple[str | Cell, ...]
Attacks = Sequence[tuple[Series, AttackResult]]
Decided = Sequence[tuple[Series, AttributeDecisions]]

RAW = Series("raw data", "raw", "raw", "diamond")


@dataclass(frozen=True)
class Table:
    """A table with a title; the first `n_names` columns hold names, the others numbers unless they `wrap`.

    Rows from number `references_from` on are what the others are compared with.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[Row]
    n_names: int
    wrap: tuple[int, ...] = ()
    references_from: int | None = None


def overview_table(report: Report, looks: Sequence[tuple[ModelReport, Series]]) -> Table:
    """Return one row per embedding: the strongest attacker of every attribute, what is kept, the task."""
    attributes = [raw.attribute for raw in report.raw]
    has_task = any(model.task is not None for model in report.models)
    header = ["embedding", *(f"AUC of {attacked_groups(report, attribute)}" for attribute in attributes)]
    header += ["variance kept"] + ["task score (AUC)"] * has_task
    rows: list[Row] = []
    for model, look in sorted(looks, key=lambda pair: pair[0].role == "control"):
        leaks = [_leak_cell(model, attribute) for attribute in attributes]
        task = [_task_cell(model.task)] * has_task
        rows.append((_model_cell(model, look), *leaks, Cell(share(model.recovered_variance)), *task))
    attacks = [raw_attack(report, attribute) for attribute in attributes]
    raw = [_estimate(None if attack is None else attack.strongest.auc) for attack in attacks]
    rows.append(
        (
            Cell("raw data", "before any embedding"),
            *raw,
            Cell(share(1.0)),
            *[_task_cell(report.raw_task)] * has_task,
        )
    )
    rows.append((Cell("guessing", "knowing nothing"), *["0.500"] * len(raw), "–", *["0.500"] * has_task))
    measured = sum(model.role == "model" for model in report.models)
    signs = "" if report.limit is None else " (✓ limit holds, ✕ does not hold, ? cannot tell)"
    title = f"What the strongest attacker reads, and what is kept{signs}"
    return Table(title, tuple(header), rows, 1, references_from=measured)


def verdict_table(report: Report) -> Table:
    """Return the verdict on every embedding and attribute, with its reason."""
    rows = [
        (
            model.name,
            leak.attribute,
            Cell(leak.verdict.answer, verdict=leak.verdict.answer),
            leak.verdict.sentence,
        )
        for model in report.models
        for leak in model.leaks
        if leak.verdict is not None
    ]
    return Table(
        "Every verdict and its reason", ("embedding", "attribute", "verdict", "reason"), rows, 2, (2, 3)
    )


def curve_table(attribute: str, attacks: Attacks) -> Table:
    """Return the strongest attacker's AUC by the number of rows it was fitted on."""
    sizes = sorted({point.n_rows for _, attack in attacks for point in attack.curve.points})
    rows: list[Row] = []
    for look, attack in attacks:
        aucs = {point.n_rows: point.auc for point in attack.curve.points}
        gain = _estimate(attack.curve.gain, "+.3f")
        rows.append((look.name, *(_estimate(aucs.get(size)) for size in sizes), gain))
    header = ("embedding", *(f"{size:,} rows" for size in sizes), "growth over the last doubling")
    return Table(f"AUC of {shown(attribute, 40)} by the attacker's rows", header, rows, 1)


def attacker_table(attribute: str, attacks: Attacks) -> Table:
    """Return every family of attackers, with its rows and its AUC, the strongest attacker first."""
    header = ("embedding", "attacker", "setting", "rows it was fitted on", "AUC")
    rows: list[Row] = []
    for look, attack in attacks:
        for found in (attack.strongest, *(one for one in attack.attackers if one != attack.strongest)):
            who = "strongest: " * (found is attack.strongest) + attacker_phrase(found.name)
            rows.append((look.name, who, found.setting or "–", f"{found.n_rows:,}", _estimate(found.auc)))
    return Table(f"Every attacker of {shown(attribute, 40)}", header, rows, 1, wrap=(1, 2))


def rounding_table(report: Report) -> Table:
    """Return what is left of each attack after noise in the last digits."""
    header = (
        "embedding",
        "attribute",
        "forest's AUC",
        "after noise",
        "change",
        "reading",
        "features with tiny weights",
    )
    rows = [
        (
            model.name, leak.attribute, _estimate(found.before), _estimate(found.after),
            "–" if found.drop is None else f"{-found.drop:+.3f}",
            "leaks through rounding" if found.leaks else "no leak through rounding",
            ", ".join(shown(name, 40) for name in found.features or ()) or "–",
        )
        for model in report.models
        for leak in model.leaks
        if (found := leak.rounding) is not None
    ]  # fmt: skip
    return Table("A forest's attack before and after noise in the last digits", header, rows, 2, (5, 6))


def frontier_table(attribute: str, spots: Sequence[tuple[str, Estimate, float, bool]]) -> Table:
    """Return AUC and variance kept of every embedding, and whether another one beats it in both."""
    words = {True: "another keeps as much and gives away less", False: "none is better in both"}
    rows = [(name, _estimate(auc), share(kept), words[beaten]) for name, auc, kept, beaten in spots]
    header = ("embedding", "AUC", "variance kept", "beside the others")
    return Table(f"Variance kept and AUC of {shown(attribute, 40)}", header, rows, 1, wrap=(3,))


def direction_table(model: ModelReport, n_weights: int) -> Table:
    """Return the directions that a model removes, in words and with their largest weights."""
    rows = [
        (
            str(number), direction.sentence or "–",
            ", ".join(f"{shown(of, 40)} {by:+.2f}" for of, by in [*direction.weights.items()][:n_weights]),
            f"{direction.mean_gap:+.3g}", f"{direction.second_moment_gap:+.3g}",
        )
        for number, direction in enumerate(model.directions, 1)
    ]  # fmt: skip
    header = ("direction", "in words", "largest weights", "mean gap", "second-moment gap")
    return Table(f"Directions that {shown(model.name, 40)} removes", header, rows, 1, (1, 2))


def map_table(attribute: str, views: Sequence[tuple[Series, EmbeddingMap]]) -> Table:
    """Return where each group is in the first two coordinates."""
    header = (
        "embedding", "group", "rows", "mean 1", "mean 2", "deviation 1", "deviation 2", "rows in small cells",
    )  # fmt: skip
    rows: list[Row] = []
    for look, cloud in ((look, cloud) for look, view in views for cloud in view.clouds):
        spreads = (cloud.covariance[0][0] ** 0.5, cloud.covariance[1][1] ** 0.5)
        numbers = map(number, (*cloud.mean, *spreads))
        rows.append((look.name, cloud.group, f"{cloud.n_rows:,}", *numbers, f"{cloud.n_hidden_rows:,}"))
    return Table(f"Averages and spreads of the groups of {shown(attribute, 40)}", header, rows, 2)


def gap_table(report: Report) -> Table:
    """Return one row per model and comparison: each gap, what shuffled labels show, and what that means."""
    header = (
        "embedding", "group", "mean gap", "its noise floor", "second-moment gap", "its noise floor", "MMD²",
    )  # fmt: skip
    rows = [
        (
            model.name, Cell(gap.group, shown(leak.attribute, 40)),
            Cell(number(gap.mean_gap), gap_reading(gap, gap.mean_gap_relative, gap.mean_gap_noise)),
            number(None if gap.mean_gap_noise is None else gap.mean_gap_noise.high),
            Cell(
                number(gap.second_moment_gap),
                gap_reading(gap, gap.second_moment_gap_relative, gap.second_moment_gap_noise),
            ),
            number(None if gap.second_moment_gap_noise is None else gap.second_moment_gap_noise.high),
            Cell(number(gap.mmd2), "" if gap.mmd2_p_value is None else f"p = {number(gap.mmd2_p_value)}"),
        )
        for model in report.models
        for leak in model.leaks
        for gap in leak.gaps
    ]  # fmt: skip
    return Table("Gaps between the groups", header, rows, 2)


def choice_table(report: Report) -> Table:
    """Return one row per number of directions that could have been removed."""
    header = (
        "directions", "m", "removed", "explained variance", "mean gap", "second-moment gap", "of plain PCA's",
    )  # fmt: skip
    names = {"none": "plain PCA", "mean": "mean only"}
    rows = [
        (
            names.get(point.constraint, f"{point.directions} directions"),
            str(point.n_unfair), str(point.n_removed), share(point.explained_variance),
            number(point.mean_gap), number(point.second_moment_gap), share(point.second_moment_gap_relative),
        )
        for point in report.frontier
    ]  # fmt: skip
    return Table("Gaps that other choices would leave", header, rows, 1)


def floor_table(report: Report) -> Table:
    """Return what tells of each attribute without any embedding."""
    header = (
        "attribute", "guessing", "the target label alone", "a good score for the target",
        "how good that score is (task score)", "rows",
    )  # fmt: skip
    rows = [
        (
            floor.attribute, f"{floor.guessing:.3f}", _estimate(floor.label), _estimate(floor.score),
            _estimate(floor.target_auc), f"{floor.n_rows:,}",
        )
        for floor in report.floors
    ]  # fmt: skip
    return Table("AUC of the group without any embedding", header, rows, 1)


def decision_table(decided: Decided) -> Table:
    """Return rates by group of one attribute, for every embedding."""
    header = (
        "embedding", "group", "rows", "selection rate", "ratio to the group selected most often",
        "four fifths", "true positive rate", "false positive rate",
    )  # fmt: skip
    rows = [
        (
            look.name, group.group, f"{group.n_rows:,}", _rate(group.selection_rate),
            *((Cell("1", "the highest rate"), "–") if group is most else
              (_estimate(group.selection_ratio, ".2f"), group.four_fifths)),
            _rate(group.true_positive_rate), _rate(group.false_positive_rate),
        )
        for look, view in decided
        for most in [max(view.groups, key=lambda group: group.selection_rate.value)]
        for group in view.groups
    ]  # fmt: skip
    return Table(f"Decisions by {shown(decided[0][1].attribute, 60)}", header, rows, 2)


def score_table(decided: Decided) -> Table:
    """Return the distribution of the scores in every group."""
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    header = ("embedding", "group", *(f"{s:.0%} of the rows score below" for s in shares))
    rows = [
        (look.name, group.group, *(f"{score:.3f}" for score in group.score_quantiles))
        for look, view in decided
        for group in view.groups
    ]
    return Table(f"Scores by {shown(decided[0][1].attribute, 60)}", header, rows, 2)


def calibration_table(decided: Decided) -> Table:
    """Return, for scores of about the same size, the share that is truly positive in every group."""
    most = max(len(group.calibration) for _, view in decided for group in view.groups)
    rows: list[Row] = []
    for look, view in decided:
        for group in view.groups:
            parts = [
                Cell(share(part.positive_rate.value), f"of {part.mean_score:.2f}")
                for part in group.calibration
            ]
            rows.append((look.name, group.group, *parts, *["–"] * (most - len(parts))))
    header = ("embedding", "group", *(f"part {number}" for number in range(1, most + 1)))
    title = f"Calibration by {shown(decided[0][1].attribute, 60)}: truly positive, of a mean score"
    return Table(title, header, rows if most else [], 2)


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
            sized = f"{pooled:,}" if pooled else "left out"
            rows.append((summary.attribute, f"({small} small group{'s' * (small != 1)})", sized))
    if report.data.left_out_below:
        rows.append(("(any)", "(left out of every number)", f"fewer than {report.data.left_out_below:,}"))
    return Table("Group sizes", ("attribute", "group", "rows"), rows, 2)


def group_table(report: Report) -> Table:
    """Return what each model keeps of each group."""
    header = ("embedding", "group", "explained variance", "reconstruction error")
    rows = [
        (
            model.name, Cell(line.group, shown(line.attribute, 40)),
            share(line.explained_variance), number(line.reconstruction_error),
        )
        for model in report.models
        for line in model.by_group
    ]  # fmt: skip
    return Table("What is kept of each group", header, rows, 2)


def reproduce_table(report: Report) -> Table:
    """Return what is needed to run the same audit again and to see that it is the same."""
    data, made = report.data, report.reproduction
    rows: list[Row] = [
        ("date", made.date.replace("T", " ").replace("+00:00", " UTC")),
        ("data", f"{data.n_rows:,} rows × {data.n_features:,} features"),
        ("data digest (SHA-256)", data.digest),
        ("sample", f"{data.sample_rows:,} rows, seed {data.sample_seed}"),
    ]
    for file in made.inputs:
        beside = f"{file.n_features:,} features, digest (SHA-256) {file.digest}"
        rows.append((file.role, Cell(file.name or "in memory", beside)))
    rows += [
        ("versions", ", ".join(f"{name} {version}" for name, version in made.versions.items())),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in made.seeds.items())),
    ]
    for model in report.models:
        fitted = "" if model.fitted_rows is None else f", fitted on {model.fitted_rows:,} rows"
        settings = ", ".join(f"{name}={_value(value)}" for name, value in model.parameters.items())
        digest = f"model digest (SHA-256) {model.digest}"
        rows.append((model.name, Cell(f"{model.kind}({settings}){fitted}", digest)))
    equal: dict[str, list[str]] = {}
    for model in report.models:
        if model.seen_share is not None:
            seen = model.seen_share
            told = f"about {seen.value:.1%} ({seen.low:.1%} to {seen.high:.1%}) of the audited rows"
            if (twins := model.twin_share) is not None:
                told += f"; of unseen rows, about {twins.value:.1%} ({twins.low:.1%} to {twins.high:.1%})"
            equal.setdefault(told, []).append(shown(model.name))
    for told, names in equal.items():
        beside = (
            f"{', '.join(names)}. Clearly more than 5 % beyond the twins of unseen rows would be warned of"
        )
        rows.append(("equal in all features to rows of the fit", Cell(told, beside)))
    return Table("The audit and its inputs", ("what", "value"), rows, 1, (1,))


def attacked_groups(report: Report, attribute: str) -> str:
    """Return the name of an attribute; if its AUC is an average over groups, also over how many."""
    attack = raw_attack(report, attribute)
    many = "" if attack is None or attack.n_groups == 2 else f", average of {attack.n_groups} groups"
    return f"{shown(attribute, 28)}{many}"


def attacks_on(
    report: Report, looks: Sequence[tuple[ModelReport, Series]], attribute: str
) -> Iterable[tuple[Series, AttackResult]]:
    """Yield every attack on an attribute: models, then plain PCA, then the raw data."""
    for model, look in sorted(looks, key=lambda pair: pair[0].role == "control"):
        attack = attack_of(model, attribute)
        if attack is not None:
            yield look, attack
    raw = raw_attack(report, attribute)
    if raw is not None:
        yield RAW, raw


def share(value: float | None) -> str:
    """Write a share as a percentage, a dash for none."""
    return "–" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Write a number with three significant digits, a dash for none."""
    return "–" if value is None else f"{value + 0.0:.3g}"  # never "-0"


def _model_cell(model: ModelReport, look: Series) -> Cell:
    kept = f"{model.n_components} component{'s' * (model.n_components != 1)}"
    removed = f", {model.n_removed} removed" if model.n_removed else ""
    return Cell(model.name, f"{kept}{removed}", series=look)


def _task_cell(task: TaskScore | None) -> Cell:
    return _estimate(None if task is None else task.auc)


def _leak_cell(model: ModelReport, attribute: str) -> Cell:
    leak = next((leak for leak in model.leaks if leak.attribute == attribute), None)
    attack = None if leak is None else leak.attack
    cell = Cell("–", "too few rows") if attack is None else _estimate(attack.strongest.auc)
    if attack is not None and attack.by_group:
        group, auc = max(attack.by_group.items(), key=lambda one: one[1].value)
        cell = replace(cell, beside=f"{cell.beside}\n{shown(group, 20)}: {auc.value:.3f}")
    return cell if leak is None or leak.verdict is None else replace(cell, verdict=leak.verdict.answer)


def _estimate(value: Estimate | None, form: str = ".3f") -> Cell:
    if value is None:
        return Cell("–")
    dash = " to " if form.startswith("+") else "–"
    return Cell(f"{value.value:{form}}", f"{value.low:{form}}{dash}{value.high:{form}}")


def _rate(value: Estimate | None) -> Cell:
    if value is None:
        return Cell("–", "too few rows")
    return Cell(f"{value.value:.1%}", f"{value.low:.1%}–{value.high:.1%}")


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
