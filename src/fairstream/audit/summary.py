"""The findings in sentences that need no mathematics, the uncomfortable ones first."""

from __future__ import annotations

from collections.abc import Callable

from fairstream.audit.report import AuditReport, LeakResult, ModelReport, RawControl

# What the method can promise and what it cannot; shown with every report.
CAVEAT = (
    "The method makes the groups' averages and spreads agree. It does not make the groups identical: a "
    "flexible probe can still tell them apart by what averages and spreads do not show. A probe that fails is "
    "no proof that every probe fails."
)
PROBE_NAMES = {
    "linear": "linear (logistic regression)",
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


def summarise(report: AuditReport, shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return warnings, then what leaks and what it cost for each model, then the caveat.

    `shown` prepares every name that comes from the data; a page clips and isolates it.
    """
    sentences = [*report.warnings]
    for model in report.models:
        if model.role == "model":
            sentences += [leak_sentence(report, model, leak, shown) for leak in model.leaks if leak.probes]
            cost = cost_sentence(model, shown)
            sentences += [cost] if cost else []
    return (*sentences, CAVEAT)


def leak_sentence(
    report: AuditReport, model: ModelReport, leak: LeakResult, shown: Callable[[str], str] = str
) -> str:
    """Say how well the attribute can be guessed from one embedding, beside the raw data and pure chance."""
    best = leak.best_probe
    if best is None:
        return ""
    many = f"the best of {len(leak.probes)} probes ({PROBE_PHRASES[best.probe]})"
    sentence = (
        f"{shown(model.name)}: knowing only the embedding, "
        f"{many if len(leak.probes) > 1 else PROBE_PHRASES[best.probe]} guesses {shown(leak.attribute)} with "
        f"balanced accuracy {best.balanced_accuracy.value:.2f} (AUC {best.auc.value:.2f}); "
        f"pure guessing gives {best.chance:.2f}"
    )
    raw = raw_control(report, leak.attribute)
    if raw is not None and raw.best_probe is not None:
        sentence += f", the raw data {raw.best_probe.balanced_accuracy.value:.2f}"
    if leak.detected:
        return sentence + ". The attribute still leaks."
    return sentence + ". No probe did better than luck explains."


def cost_sentence(model: ModelReport, shown: Callable[[str], str] = str) -> str:
    """Say how much of the variance that plain PCA keeps was given up."""
    if model.explained_variance_relative is None or model.explained_variance is None:
        return ""
    lost = max(1 - model.explained_variance_relative, 0.0)
    return (
        f"{shown(model.name)}: the cost is {lost:.0%} of the variance that plain PCA keeps with the same "
        f"{model.n_components} components ({model.explained_variance:.1%} of all variance is kept)."
    )


def raw_control(report: AuditReport, attribute: str) -> RawControl | None:
    """Return the raw-data probes of one attribute."""
    return next((raw for raw in report.raw if raw.attribute == attribute), None)
