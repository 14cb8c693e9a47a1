"""The findings in sentences that need no mathematics, the uncomfortable ones first."""

from __future__ import annotations

from collections.abc import Callable

from fairstream.auditing.report import LeakResult, ModelReport, RawControl, Report

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


def summarise(report: Report) -> tuple[str, ...]:
    """Return warnings, then what leaks and what it cost for each model, then the caveat."""
    sentences = [*report.warnings]
    for model in report.models:
        if model.role == "model":
            sentences += [f"{model.name}: {finding}" for finding in findings(report, model)]
    return (*sentences, CAVEAT)


def findings(report: Report, model: ModelReport, shown: Callable[[str], str] = str) -> list[str]:
    """Say of one model what leaks, then what it cost; `shown` prepares the names that come from the data."""
    said = [leak_sentence(report, leak, shown) for leak in model.leaks if leak.probes]
    return said + [cost_sentence(model)] * (model.explained_variance_relative is not None)


def leak_sentence(report: Report, leak: LeakResult, shown: Callable[[str], str] = str) -> str:
    """Say how well the attribute can be guessed from one embedding, beside the raw data and pure chance."""
    best = leak.best_probe
    if best is None:
        return ""
    many = f"the best of {len(leak.probes)} probes ({PROBE_PHRASES[best.probe]})"
    sentence = (
        f"knowing only the embedding, {many if len(leak.probes) > 1 else PROBE_PHRASES[best.probe]} guesses "
        f"{shown(leak.attribute)} with balanced accuracy {best.balanced_accuracy.value:.2f} "
        f"(AUC {best.auc.value:.2f}); pure guessing gives {best.chance:.2f}"
    )
    raw = raw_control(report, leak.attribute)
    if raw is not None and raw.best_probe is not None:
        sentence += f", the raw data {raw.best_probe.balanced_accuracy.value:.2f}"
    if leak.detected:
        return sentence + ". The attribute still leaks."
    return sentence + ". No probe did better than luck explains."


def cost_sentence(model: ModelReport) -> str:
    """Say how much of the variance that plain PCA keeps was given up."""
    lost = max(1 - (model.explained_variance_relative or 0.0), 0.0)
    return (
        f"the cost is {lost:.0%} of the variance that plain PCA keeps with the same {model.n_components} "
        f"components ({model.explained_variance or 0.0:.1%} of all variance is kept)."
    )


def raw_control(report: Report, attribute: str) -> RawControl | None:
    """Return the raw-data probes of one attribute."""
    return next((raw for raw in report.raw if raw.attribute == attribute), None)
