"""The findings of a report in words: what was removed, and the sentence that comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairstream.auditing.comparing import BETTER, UNCLEAR, best_read, compared
from fairstream.auditing.measure.verdict import CANNOT_TELL, FAILS, HOLDS
from fairstream.auditing.report import AttackResult, LeakResult, ModelReport, Verdict
from fairstream.auditing.subjects import Subject

MOST_NAMED = 3
MOST_COLUMNS = 12
NAMED_SHARE = 0.6  # of a direction's squared weights
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
        shown = ", ".join(screened[:MOST_COLUMNS])
        shown += f" and {more} more" if (more := len(screened) - MOST_COLUMNS) > 0 else ""
        said.append(f"Left out before: {shown}.")
    if subject.is_guarded:
        said.append("The components were chosen against a nonlinear adversary.")
    return " ".join(said)


def rounding_warnings(models: Sequence[ModelReport]) -> Iterator[str]:
    """Say which embeddings give an attribute away in digits that rounding left, and by which columns."""
    for model in models:
        for leak in model.leaks:
            found = leak.rounding
            if found is None or not found.leaks or found.before is None or found.after is None:
                continue
            told = (
                f"{_opening(model.name)} gives {leak.attribute} away through rounding: noise of a millionth "
                f"of each column's deviation lowers a forest's AUC from {found.before.value:.3f} to "
                f"{found.after.value:.3f}."
            )
            if found.features:
                more = len(found.features) - MOST_COLUMNS
                named = ", ".join(found.features[:MOST_COLUMNS])
                told += f" Columns with tiny coefficients instead of 0: {named}"
                told += f" and {more} more." if more > 0 else "."
            yield told


def headline(models: Sequence[ModelReport], limit: float | None) -> str:
    """Return the sentences that come first: each model beside plain PCA, then its verdict or its leak."""
    judged = [model for model in models if model.role == "model"]
    said: list[str] = []
    for model in judged:
        said += _beside_pca(model, _control_of(models, model), judged[1:] if model is judged[0] else ())
        said.append(_leaks(model) if limit is None else _verdicts(model, _control_of(models, model), limit))
    return " ".join(filter(None, said))


def _beside_pca(
    model: ModelReport, control: ModelReport | None, others: Sequence[ModelReport]
) -> Iterator[str]:
    """Say how a model hides each attribute beside plain PCA, and which other models it clearly beats."""
    leaks = _best_read_first(model)
    for leak in leaks:
        theirs = _attack_of(control, leak.attribute)
        if leak.attack is None or theirs is None:
            continue
        (ours, whom), (pca, _) = best_read(leak.attack), best_read(theirs)
        how = compared(ours, pca)
        if how == UNCLEAR and not leak.detected:
            continue  # nothing to hide: plain PCA does not give it away either
        overlap = "; the intervals overlap" if how == UNCLEAR else ""
        hides = f"hides {leak.attribute} {how}"
        if how == UNCLEAR:
            hides = f"does not hide {leak.attribute} clearly better"
        told = f"{_opening(model.name)} {hides} than plain PCA does"
        if len(leaks) > 1 and leak is leaks[0]:
            whom += f"; of {len(leaks)} attributes {leak.attribute} is read best"
        told += f" (AUC {ours.value:.3f} against {pca.value:.3f}{overlap}{whom})"
        beaten = [
            f"than {other.name} ({best_read(attack)[0].value:.3f})"
            for other in others
            if how == BETTER
            and (attack := _attack_of(other, leak.attribute)) is not None
            and compared(ours, best_read(attack)[0]) == BETTER
        ]
        yield f"{told}{''.join(f' and {other}' for other in beaten)}."


def _best_read_first(model: ModelReport) -> list[LeakResult]:
    """Return the leaks of a model, first that of the attribute which the attackers read best."""
    return sorted(model.leaks, key=lambda leak: -best_read(leak.attack)[0].value if leak.attack else 0.0)


def _opening(name: str) -> str:
    """Begin a sentence with a model's name: a phrase gets a capital letter, names stay as they are.

    Examples
    --------
    >>> _opening("the paper's method"), _opening("fair"), _opening("PCA")
    ("The paper's method", 'The embedding fair', 'PCA')
    """
    label = _label(name)
    return label if label[:1].isupper() else f"The embedding {name}"


def _label(name: str) -> str:
    """Return a model's name to stand before a colon: a phrase gets a capital letter."""
    words = name.split()
    is_phrase = len(words) > 1 and all(word.replace("'", "").replace("-", "").isalpha() for word in words)
    return name[:1].upper() + name[1:] if is_phrase else name


def _verdicts(model: ModelReport, control: ModelReport | None, limit: float) -> str:
    parts = []
    answers = {} if control is None else {leak.attribute: leak.verdict for leak in control.leaks}
    for answer in (FAILS, CANNOT_TELL, HOLDS):
        names = [
            leak.attribute + (_of_pca(answers.get(leak.attribute)) if answer == HOLDS else "")
            for leak in model.leaks
            if leak.verdict and leak.verdict.answer == answer
        ]
        if names:
            parts.append(f"{VERBS[answer]} for {listed(names)}")
    return f"{_label(model.name)}: the limit of {limit:.3g} {listed(parts)}." if parts else ""


def _of_pca(found: Verdict | None) -> str:
    """Say of a limit that holds if it would without hiding anything."""
    if found is None or found.answer == FAILS:
        return ""
    return " (for plain PCA too)" if found.answer == HOLDS else " (whether for plain PCA too cannot be told)"


def _leaks(model: ModelReport) -> str:
    parts = [part for leak in _best_read_first(model) if (part := _leak(leak))]
    if not parts:
        return ""
    name = _label(model.name)
    return f"{name}: the strongest attacker reads {listed(parts)} (0.5 is guessing, 1 is certainty)."


def _leak(leak: LeakResult) -> str:
    if leak.attack is None:
        return ""
    auc, whom = best_read(leak.attack)
    return f"{leak.attribute} at AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f}{whom})"


def _attack_of(model: ModelReport | None, attribute: str) -> AttackResult | None:
    leaks = () if model is None else model.leaks
    return next((leak.attack for leak in leaks if leak.attribute == attribute), None)


def _control_of(models: Sequence[ModelReport], model: ModelReport) -> ModelReport | None:
    """Return the plain PCA of the same size."""
    controls = [other for other in models if other.role == "control"]
    return next((c for c in controls if c.n_components == model.n_components), next(iter(controls), None))


def listed(parts: Sequence[str]) -> str:
    """Join parts of a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
