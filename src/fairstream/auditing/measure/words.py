"""The findings of a report in words: what was removed, and the sentence that comes first."""

from __future__ import annotations

from collections.abc import Sequence

from fairstream.auditing.measure.verdict import CANNOT_TELL, FAILS, HOLDS
from fairstream.auditing.report import AttackResult, LeakResult, ModelReport
from fairstream.auditing.subjects import Subject

MOST_NAMED = 3
NAMED_SHARE = 0.6  # of a direction's squared weights
LITTLE = 0.1  # share of plain PCA's leak that must be gone to call it better
VERBS = {HOLDS: "holds", FAILS: "does not hold", CANNOT_TELL: "cannot be confirmed"}


def direction_in_words(weights: dict[str, float]) -> str:
    """Name the features that make up most of a direction.

    Examples
    --------
    >>> direction_in_words({"relationship=Husband": 0.7, "age": 0.1, "marital-status=Married": -0.6})
    'mostly relationship=Husband, marital-status=Married (in the other sense)'
    """
    heaviest = sorted(weights.items(), key=lambda item: -abs(item[1]))
    named: list[str] = []
    held = 0.0
    for name, weight in heaviest[:MOST_NAMED]:
        if held >= NAMED_SHARE:
            break
        turned = named and weight * heaviest[0][1] < 0
        named.append(f"{name} (in the other sense)" if turned else name)
        held += weight**2
    if not named:
        return ""
    return ("mostly " if held >= NAMED_SHARE else "spread over many features, first ") + ", ".join(named)


def removed_in_words(subject: Subject, screened: Sequence[str], directions: Sequence[str]) -> str:
    """Say what the embedding may no longer use."""
    n_directions = None if subject.n_removed is None else subject.n_removed - len(screened)
    if n_directions is None:
        said = ["Which directions were removed is not known."]
    elif n_directions == 0:
        said = [] if screened or subject.is_guarded else ["Nothing was removed."]
    else:
        many = f"{n_directions} directions were removed" if n_directions > 1 else "One direction was removed"
        which = "the strongest" if n_directions > 1 else "it"
        said = [f"{many}; {which} is {directions[0]}." if directions and directions[0] else f"{many}."]
    if screened:
        shown = ", ".join(screened[:12]) + (f" and {len(screened) - 12} more" if len(screened) > 12 else "")
        said.append(f"Left out before: {shown}.")
    if subject.is_guarded:
        said.append("The components were chosen against a nonlinear adversary.")
    return " ".join(said)


def headline(models: Sequence[ModelReport], limit: float | None) -> str:
    """Return the sentences that come first: no better than plain PCA, then the verdict or the leak."""
    said = []
    for model in models:
        if model.role != "model":
            continue
        control = _control_of(models, model)
        said += _no_better(model, control)
        said.append(_leaks(model) if limit is None else _verdicts(model, limit))
    return " ".join(filter(None, said))


def _no_better(model: ModelReport, control: ModelReport | None) -> list[str]:
    """Say of which attributes plain PCA hides as much."""
    said = []
    for leak in model.leaks:
        theirs = _attack_of(control, leak.attribute)
        if leak.attack is None or theirs is None or not leak.detected:
            continue
        ours, pca = leak.attack.strongest.auc, theirs.strongest.auc
        aucs = f"AUC {ours.value:.3f} against {pca.value:.3f}"
        if ours.high >= pca.low:
            said.append(f"{model.name} hides {leak.attribute} no better than plain PCA does ({aucs}).")
        elif ours.value - 0.5 > (1 - LITTLE) * (pca.value - 0.5):
            said.append(f"{model.name} hides {leak.attribute} little better than plain PCA does ({aucs}).")
    return said


def _verdicts(model: ModelReport, limit: float) -> str:
    parts = []
    for answer in (FAILS, CANNOT_TELL, HOLDS):
        names = [leak.attribute for leak in model.leaks if leak.verdict and leak.verdict.answer == answer]
        if names:
            parts.append(f"{VERBS[answer]} for {_listed(names)}")
    return f"{model.name}: the limit of {limit:.3g} {_listed(parts)}." if parts else ""


def _leaks(model: ModelReport) -> str:
    parts = [part for leak in model.leaks if (part := _leak(leak))]
    if not parts:
        return ""
    return f"{model.name}: the strongest attacker reads {_listed(parts)} (0.5 is guessing, 1 is certainty)."


def _leak(leak: LeakResult) -> str:
    if leak.attack is None:
        return ""
    auc = leak.attack.strongest.auc
    return f"{leak.attribute} at AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})"


def _attack_of(model: ModelReport | None, attribute: str) -> AttackResult | None:
    leaks = () if model is None else model.leaks
    return next((leak.attack for leak in leaks if leak.attribute == attribute), None)


def _control_of(models: Sequence[ModelReport], model: ModelReport) -> ModelReport | None:
    """Return the plain PCA of the same size."""
    controls = [other for other in models if other.role == "control"]
    return next((c for c in controls if c.n_components == model.n_components), next(iter(controls), None))


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
