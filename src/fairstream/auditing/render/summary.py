"""The findings in sentences that need no mathematics, the uncomfortable ones first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fairstream.auditing.comparing import BETTER, best_read, compared
from fairstream.auditing.render.labels import LONGEST_NAME, clipped, shown
from fairstream.auditing.report import (
    AttackResult,
    AttributeDecisions,
    DecisionView,
    GapResult,
    LeakResult,
    ModelReport,
    NoiseFloor,
    Report,
)

# What the method can promise and what it cannot; shown with every report.
NO_PROOF = "That these attackers fail is no proof that every attacker fails."
CONSTRAINED = {"mean": "averages", "covariance": "spreads", "all": "averages and spreads"}
NO_LIMIT = "No limit was stated for this audit, so it gives no verdict."
SCALE = "0.5 is pure guessing, 1 is certainty"
MEASURE = f"AUC: the share of pairs of different groups that an attacker ranks the right way round; {SCALE}."
AVERAGE = (
    "The AUC of more than two groups is their average; below its interval stands the group that is read "
    "best. A limit is for each of them."
)
ATTACKERS = {
    "linear": "a linear classifier",
    "quadratic": "a quadratic classifier",
    "kernel": "a kernel classifier",
    "boosting": "boosted trees",
    "forest": "a random forest",
    "network": "a neural network",
}
ANSWERS = ("does not hold", "cannot tell", "holds")
NOISE_LEVEL = 0.05  # p-values from here on say that the groups may not differ at all


def summarise(report: Report) -> tuple[str, ...]:
    """Return warnings, the headline, each model's leaks, cost and score of the target, then the caveat."""
    sentences = [*report.warnings, *filter(None, [report.headline])]
    for model in report.models:
        if model.role == "model":
            sentences += [f"{sentence(model.name)}: {plain(finding)}" for finding in findings(report, model)]
    return (*sentences, caveat(report))


def averaged(report: Report) -> str:
    """Say what an AUC of more than two groups is, if there is one."""
    return AVERAGE if any(raw.attack and raw.attack.n_groups > 2 for raw in report.raw) else ""


def caveat(report: Report) -> str:
    """Say what the method cannot promise, by what the models were made to do."""
    told = {
        CONSTRAINED[str(model.parameters["constraint"])]
        for model in report.models
        if model.role == "model" and model.parameters.get("constraint") in CONSTRAINED
    }
    if not told:
        return NO_PROOF
    agree = told.pop() if len(told) == 1 else "averages or spreads"
    return (
        f"An embedding in which the groups' {agree} agree does not make the groups identical: a flexible "
        f"attacker can still tell them apart by what {agree} do not show. {NO_PROOF}"
    )


def findings(report: Report, model: ModelReport) -> list[str]:
    """Say of one model what leaks, why the limit holds or not, what it cost, how the target is predicted."""
    said = []
    for leak in model.leaks:
        if leak.attack is not None:
            said.append(_leak_sentence(report, model, leak))
        if leak.verdict is not None:
            said.append(f"{shown(leak.attribute)}: {leak.verdict.sentence}")
    return [*said, *costs(model), *_task_sentence(report, model)]


def costs(model: ModelReport) -> Iterable[str]:
    """Say how much of the variance that plain PCA keeps was given up, if that is known."""
    if model.role == "model" and model.recovered_variance_relative is not None:
        lost = max(1 - model.recovered_variance_relative, 0.0)
        yield (
            f"the cost is {lost:.0%} of the variance that plain PCA keeps with the same {model.n_components} "
            f"components ({model.recovered_variance or 0.0:.1%} of all variance is kept)."
        )


def costs_of_many(models: Iterable[tuple[str, ModelReport]]) -> str:
    """Say in one sentence what many models cost."""
    told = [
        f"{called} {max(1 - model.recovered_variance_relative, 0.0):.0%}"
        for called, model in models
        if model.role == "model" and model.recovered_variance_relative is not None
    ]
    said = "The cost, as a share of the variance that plain PCA keeps with as many components: "
    return f"{said}{', '.join(told)}."


def control_of(report: Report, model: ModelReport) -> ModelReport | None:
    """Return the plain PCA that a model is compared with, that of the same size."""
    controls = [other for other in report.models if other.role == "control"]
    same_size = [control for control in controls if control.n_components == model.n_components]
    return next(iter([*same_size, *controls]), None)


def attack_of(model: ModelReport | None, attribute: str) -> AttackResult | None:
    """Return the attack on one attribute."""
    leaks = () if model is None else model.leaks
    return next((leak.attack for leak in leaks if leak.attribute == attribute), None)


def raw_attack(report: Report, attribute: str) -> AttackResult | None:
    """Return the attack on the data before any embedding."""
    return next((raw.attack for raw in report.raw if raw.attribute == attribute), None)


def beside_pca(report: Report, model: ModelReport, attribute: str) -> str:
    """Return how a model hides an attribute beside plain PCA, as far as both were attacked."""
    ours, pca = attack_of(model, attribute), attack_of(control_of(report, model), attribute)
    return BETTER if ours is None or pca is None else compared(best_read(ours)[0], best_read(pca)[0])


def attacker_phrase(name: str) -> str:
    """Say who an attacker is.

    Examples
    --------
    >>> attacker_phrase("blend of boosting and forest")
    'a blend of boosted trees and a random forest'
    """
    return re.sub(r"\w+", lambda word: ATTACKERS.get(word[0], word[0]), name).replace(
        "blend of", "a blend of"
    )


def rows_sentence(attacks: Sequence[AttackResult]) -> str:
    """Say how many rows the attackers of one attribute had, and how many they could not use."""
    fitted = _from_to([attack.strongest.n_rows for attack in attacks])
    first = attacks[0]
    how = f", in {first.n_folds} folds" if first.n_folds > 1 else ", which they had not seen"
    said = f"The attackers ({first.strength} attack) were fitted on {fitted} rows and scored on "
    said += f"{_from_to([attack.n_scored for attack in attacks])} rows{how}."
    unknown = max(attack.n_unknown + attack.n_unknown_fit for attack in attacks)
    if unknown:
        said += f" {unknown:,} rows without a label could be used for neither."
    return said


def four_fifths(decided: AttributeDecisions) -> str:
    """Say which groups are selected at less than four fifths of the highest rate, and which may be."""
    most = max(decided.groups, key=lambda group: group.selection_rate.value)
    below = [
        f"{shown(group.group)} at {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        for group in decided.groups
        if group.four_fifths == "below" and (ratio := group.selection_ratio)
    ]
    unclear = [shown(group.group) for group in decided.groups if group.four_fifths == "cannot tell"]
    said = f"below four fifths of the rate of {shown(most.group)}: {', '.join(below) or 'no group'}."
    return said + (f" These rows cannot tell for {', '.join(unclear)}." if unclear else "")


def four_fifths_of_many(decided: Sequence[tuple[str, AttributeDecisions]]) -> list[str]:
    """Say of many embeddings at once what `four_fifths` says of each."""
    below: dict[str, list[tuple[str, float]]] = {}
    unclear: dict[str, list[str]] = {}
    for called, one in decided:
        for group in one.groups:
            if group.four_fifths == "below":
                below.setdefault(group.group, []).append((called, group.selection_ratio.value))
            elif group.four_fifths == "cannot tell":
                unclear.setdefault(group.group, []).append(called)

    def of(names: Sequence[str]) -> str:
        return "for every embedding" if len(names) == len(decided) else f"for {', '.join(names)}"

    told = []
    for name, found in below.items():
        ratios = [ratio for _, ratio in found]
        span = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else f"{ratios[0]:.2f}"
        told.append(f"{shown(name)} at {span} {of([called for called, _ in found])}")
    said = "Below four fifths of the rate of the group that is selected most often: "
    cannot = "; ".join(f"{shown(name)} {of(names)}" for name, names in unclear.items())
    return [
        f"{said}{'; '.join(told) or 'no group'}.",
        *([f"These rows cannot tell: {cannot}."] if cannot else []),
    ]


def decision_rule(view: DecisionView) -> str:
    """Say what a decision is here."""
    outcome = f"{shown(view.target or 'the target')} = {shown(view.positive)}"
    return (
        f"{sentence(view.classifier)} give each row a score for {outcome}. A row counts as selected if its "
        f"score is at least {view.threshold:g}, so selected means predicted to have {outcome} "
        f"({view.n_rows:,} rows; {view.protocol}). A ratio below four fifths is a disadvantage only if being "
        "selected is an advantage: if it is a harm, those selected most often have the disadvantage."
    )


def gap_reading(gap: GapResult, relative: float | None, noise: NoiseFloor | None) -> str:
    """Write a gap as a share of plain PCA's, unless shuffled labels show as large a one."""
    within = noise is not None and not noise.beyond
    if noise is None and gap.mmd2_p_value is not None:
        within = gap.mmd2_p_value >= NOISE_LEVEL
    if within:
        return "within noise"
    return "" if relative is None else f"{relative:.1%} of plain PCA's"


def sentence(text: str) -> str:
    """Return the text with a capital letter."""
    return text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """Return the text without the marks that isolate names in their writing direction."""
    return text.replace("\u2068", "").replace("\u2069", "")


def with_short_names(report: Report, line: str) -> str:
    """Return a line of the report with long names clipped: a name must not bury the message."""
    names = [model.name for model in report.models] + [raw.attribute for raw in report.raw]
    for name in sorted(names, key=len, reverse=True):
        if len(name) > LONGEST_NAME:
            line = line.replace(name, shown(name))
    return clipped(line)


def _leak_sentence(report: Report, model: ModelReport, leak: LeakResult) -> str:
    """Say how well the attribute can be read from the embedding, from plain PCA and from the raw data."""
    assert leak.attack is not None
    beside = "".join(
        f", from {name} {attack.strongest.auc.value:.3f}"
        for name, attack in (
            ("plain PCA", attack_of(control_of(report, model), leak.attribute)),
            ("the raw data", raw_attack(report, leak.attribute)),
        )
        if attack is not None
    )
    told = (
        f"knowing only the embedding, the strongest attacker reads {shown(leak.attribute)} at AUC "
        f"{leak.attack.strongest.auc.value:.3f}{beside} ({SCALE})."
    )
    return told if leak.detected else f"{told} That is no better than luck explains."


def _task_sentence(report: Report, model: ModelReport) -> Iterable[str]:
    """Say how well the target is predicted from the embedding, from plain PCA and from the raw data."""
    if model.task is None:
        return
    control = control_of(report, model)
    beside = "".join(
        f", from {name} {task.auc.value:.3f}"
        for name, task in (
            ("plain PCA", None if control is None else control.task),
            ("the raw data", report.raw_task),
        )
        if task is not None
    )
    target = None if model.decisions is None else model.decisions.target
    yield (
        f"{shown(target or 'the target')} is predicted from the embedding at AUC {model.task.auc.value:.3f}"
        f"{beside}."
    )


def _from_to(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
