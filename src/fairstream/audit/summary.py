"""The findings in sentences that need no mathematics, the uncomfortable ones first."""

from __future__ import annotations

from fairstream.audit.report import AuditReport, LeakResult, ModelReport, RawControl

# What the method can promise and what it cannot; shown with every report.
CAVEAT = (
    "The method makes the groups' averages and spreads agree. It does not make the groups identical: a flexible "
    "probe can still tell them apart by what averages and spreads do not show. A probe that fails is no proof "
    "that every probe fails."
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


def summarise(report: AuditReport) -> tuple[str, ...]:
    """Return warnings, then for each model and attribute what leaks and what it cost, then the caveat."""
    sentences = [*report.warnings]
    for model in report.models:
        if model.role == "model":
            sentences += [leak_sentence(report, model, leak) for leak in model.leaks if leak.probes]
            cost = cost_sentence(model)
            sentences += [cost] if cost else []
    return (*sentences, CAVEAT)


def leak_sentence(report: AuditReport, model: ModelReport, leak: LeakResult) -> str:
    """Say how well the attribute can be guessed from one embedding, beside the raw data and pure chance."""
    best = leak.best_probe
    if best is None:
        return ""
    verdict = (
        f"the best of {len(leak.probes)} probes ({PROBE_PHRASES[best.probe]})"
        if len(leak.probes) > 1
        else PROBE_PHRASES[best.probe]
    )
    accuracy = best.balanced_accuracy
    sentence = (
        f"{model.name}: knowing only the embedding, {verdict} guesses {leak.attribute} with balanced "
        f"accuracy {accuracy.value:.2f} (AUC {best.auc.value:.2f}); pure guessing gives {best.chance:.2f}"
    )
    raw = raw_control(report, leak.attribute)
    if raw is not None and raw.best_probe is not None:
        sentence += f", the raw data {raw.best_probe.balanced_accuracy.value:.2f}"
    if leak.detected:
        return sentence + ". The attribute still leaks."
    return sentence + ". No probe did better than chance beyond what luck explains."


def cost_sentence(model: ModelReport) -> str:
    """Say how much of the variance that plain PCA keeps was given up."""
    if model.explained_variance_relative is None or model.explained_variance is None:
        return ""
    lost = 1 - model.explained_variance_relative
    return (
        f"{model.name}: the cost is {max(lost, 0.0):.0%} of the variance that plain PCA keeps with the same "
        f"{model.n_components} components ({model.explained_variance:.1%} of all variance is kept)."
    )


def raw_control(report: AuditReport, attribute: str) -> RawControl | None:
    """Return the raw-data probes of one attribute."""
    return next((raw for raw in report.raw if raw.attribute == attribute), None)
