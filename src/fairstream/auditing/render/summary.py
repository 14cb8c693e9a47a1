"""The findings in sentences that need no mathematics, the uncomfortable ones first."""

from __future__ import annotations

from collections.abc import Callable

from fairstream.auditing.report import LeakResult, ModelReport, ProbeResult, RawControl, Report

# What the method can promise and what it cannot; shown with every report.
CAVEAT = (
    "The method makes the groups' averages and spreads agree. It does not make the groups identical: a "
    "flexible probe can still tell them apart by what averages and spreads do not show. A probe that fails "
    "is no proof that every probe fails."
)
PROBE_NAMES = {
    "linear": "linear (logistic)",
    "quadratic": "quadratic",
    "kernel": "kernel (RBF)",
    "trees": "boosted trees",
    "mlp": "neural network",
}
PROBE_PHRASES = {
    "linear": "a linear probe",
    "quadratic": "a quadratic probe",
    "kernel": "a kernel probe",
    "trees": "boosted trees",
    "mlp": "a small neural network",
}
SCALE = "0.5 is pure guessing, 1 is certainty"


def summarise(report: Report) -> tuple[str, ...]:
    """Return warnings, then what leaks and what it cost for each model, then the caveat."""
    sentences = [*report.warnings]
    for model in report.models:
        if model.role == "model":
            sentences += [f"{model.name}: {finding}" for finding in findings(report, model)]
    return (*sentences, CAVEAT)


def findings(report: Report, model: ModelReport, shown: Callable[[str], str] = str) -> list[str]:
    """Say of one model what leaks, then what it cost; `shown` prepares the names that come from the data.

    Attributes that the model hides no better than plain PCA come first.
    """
    pca = control_of(report, model)
    leaks = [(leak, _leak_of(pca, leak.attribute)) for leak in model.leaks if leak.probes]
    leaks.sort(key=lambda pair: not _is_no_better(*pair))
    said = [_leak_sentence(report, leak, of_pca, shown) for leak, of_pca in leaks]
    return said + [_cost_sentence(model)] * (model.explained_variance_relative is not None)


def control_of(report: Report, model: ModelReport) -> ModelReport | None:
    """Return the plain PCA that a model is compared with, that of the same size."""
    controls = [other for other in report.models if other.role == "control"]
    same_size = [control for control in controls if control.n_components == model.n_components]
    return next(iter([*same_size, *controls]), None)


def raw_control(report: Report, attribute: str) -> RawControl | None:
    """Return the raw-data probes of one attribute."""
    return next((raw for raw in report.raw if raw.attribute == attribute), None)


def _leak_of(model: ModelReport | None, attribute: str) -> LeakResult | None:
    leaks = () if model is None else model.leaks
    return next((leak for leak in leaks if leak.attribute == attribute), None)


def _is_no_better(leak: LeakResult, of_pca: LeakResult | None) -> bool:
    """Whether the best probe does at least as well as on plain PCA, and better than luck explains."""
    best, reference = leak.best_probe, None if of_pca is None else of_pca.best_probe
    if best is None or reference is None:
        return False
    return leak.detected and best.auc.value >= reference.auc.value


def _leak_sentence(
    report: Report, leak: LeakResult, of_pca: LeakResult | None, shown: Callable[[str], str]
) -> str:
    """Say how well the attribute can be guessed from the embedding, from plain PCA and from the raw data."""
    best = leak.best_probe
    if best is None:
        return ""
    name, phrase = shown(leak.attribute), PROBE_PHRASES[best.probe]
    who = f"the best of {len(leak.probes)} probes ({phrase})" if len(leak.probes) > 1 else phrase
    raw = raw_control(report, leak.attribute)
    beside = _beside("plain PCA", None if of_pca is None else of_pca.best_probe)
    beside += _beside("the raw data", None if raw is None else raw.best_probe)
    measured = f"with AUC {best.auc.value:.2f}{beside} ({SCALE})"
    if _is_no_better(leak, of_pca):
        return f"the embedding hides {name} no better than plain PCA does: {who} guesses it {measured}."
    sentence = f"knowing only the embedding, {who} guesses {name} {measured}. "
    if not leak.detected:
        return sentence + "No probe did better than luck explains."
    reference = None if of_pca is None else of_pca.best_probe
    if reference is not None and best.auc.high >= reference.auc.low:
        return sentence + "The attribute still leaks; luck may explain the difference from plain PCA."
    return sentence + "The attribute still leaks."


def _beside(name: str, best: ProbeResult | None) -> str:
    return "" if best is None else f", from {name} {best.auc.value:.2f}"


def _cost_sentence(model: ModelReport) -> str:
    """Say how much of the variance that plain PCA keeps was given up."""
    lost = max(1 - (model.explained_variance_relative or 0.0), 0.0)
    return (
        f"the cost is {lost:.0%} of the variance that plain PCA keeps with the same {model.n_components} "
        f"components ({model.explained_variance or 0.0:.1%} of all variance is kept)."
    )
