"""A full example of a report, built without an audit: two attributes, one with five groups, three models.

The numbers are invented but consistent: intervals hold their values, and shares of one whole add up.
"""

from __future__ import annotations

import itertools

from fairstream.auditing.audit_report import AuditReport
from fairstream.auditing.measure.verdict import verdict
from fairstream.auditing.report import (
    AttackCurve,
    AttackerResult,
    AttackResult,
    AttributeDecisions,
    AttributeSummary,
    CalibrationBin,
    CurvePoint,
    DataSummary,
    DecisionView,
    Direction,
    EmbeddingMap,
    Estimate,
    Floors,
    FrontierChoice,
    GapResult,
    GroupCloud,
    GroupDecisions,
    GroupNumbers,
    InputFile,
    LeakResult,
    ModelReport,
    NoiseFloor,
    RawControl,
    Reproduction,
    RoundingLeak,
    TaskScore,
)

GROUPS = {
    "sex": {"Female": 5_421, "Male": 10_860},
    "race": {
        "Amer-Indian-Eskimo": 159,
        "Asian-Pac-Islander": 480,
        "Black": 1_561,
        "Other": 135,
        "White": 13_946,
    },
}
N_ROWS = 16_281
LIMIT = 0.65
FAMILIES = {
    "linear": "logistic regression",
    "quadratic": "logistic regression on products",
    "kernel": "512 landmarks",
    "boosting": "300 trees of 127 leaves",
    "forest": "180 randomised trees, leaves of 1 row",
    "network": "128 and 64 units",
}
# The strongest attacker's AUC of every model, by attribute; then what is left of the variance.
AUCS = {
    "guarded PCA": {"sex": 0.634, "race": 0.655},
    "the paper's method": {"sex": 0.973, "race": 0.871},
    "plain PCA (k=10)": {"sex": 0.999, "race": 0.862},
}
TRENDS = {"guarded PCA": "flat", "the paper's method": "rising", "plain PCA (k=10)": "flat"}
VARIANCE = {"guarded PCA": 0.181, "the paper's method": 0.262, "plain PCA (k=10)": 0.291}
RAW = {"sex": 1.0, "race": 0.902}
HEADLINE = (
    "Guarded PCA hides sex better than plain PCA does (AUC 0.634 against 0.999) and than the paper's method "
    "(0.973)."
)


def example_report(n_models: int = 3) -> AuditReport:
    """Return the example; more than three models repeat the first two under other names.

    Examples
    --------
    >>> len(example_report(9).models)
    9
    """
    names = [*AUCS][:2]
    while len(names) < n_models - 1:
        names.append(f"{[*AUCS][len(names) % 2]} ({len(names) // 2 + 1})")
    return AuditReport(
        title="Adult: what a fair embedding still gives away",
        headline=HEADLINE,
        limit=LIMIT,
        warnings=(
            "The race of 420 of 16,281 rows (2.6%) is unknown: they are in no comparison by race, and "
            "nothing here says how they fare.",
            "About 12 % of the audited rows were rows of the fit of the paper's method: audit unseen rows.",
        ),
        data=_data(),
        models=(*(_model(name) for name in names), _model("plain PCA (k=10)")),
        raw=tuple(RawControl(name, 108, _attack(auc, "flat", name)) for name, auc in RAW.items()),
        raw_task=_task(0.927),
        floors=tuple(
            Floors(name, 0.5, _around(label), _around(score), _around(0.927), N_ROWS - unknown, unknown)
            for name, label, score, unknown in (("sex", 0.607, 0.712, 0), ("race", 0.548, 0.617, 420))
        ),
        frontier=tuple(
            FrontierChoice(
                "all", directions, m, 7 * m, 0.29 - 0.006 * m * rate, 0.4 / m, 0.3 / m, 0.5 / m, 0.4 / m
            )
            for directions, rate in (("absolute", 1.0), ("relative", 1.3))
            for m in (1, 2, 3, 5, 8, 12, 15)
        ),
        frontier_fitted_on="training data",
        reproduction=Reproduction(
            date="2026-01-31T09:30:00+00:00",
            call='audit(\n    models, X, sensitive_features, y,\n    attack="strong",\n    limit=0.65,\n)',
            command="fairstream audit model.safetensors unseen.parquet --attack strong --limit 0.65",
            inputs=(
                InputFile("audited rows", "unseen.parquet", "1f" * 32, 108),
                InputFile("training rows", "adult.parquet", "2e" * 32, 108),
            ),
            versions={"fairstream": "0.0", "python": "3.13.1", "numpy": "2.3.0", "scikit-learn": "1.7.0"},
            seeds={"random_state": 0},
        ),
        parameters={
            "attack": "strong",
            "limit": LIMIT,
            "min_group_size": 20,
            "level": 0.95,
            "random_state": 0,
        },
        fairstream_version="0.0",
    )


def _around(value: float, reach: float = 0.008) -> Estimate:
    return Estimate(value, max(value - reach, 0.0), min(value + reach, 1.0))


def _data() -> DataSummary:
    attributes = (
        AttributeSummary("sex", GROUPS["sex"], 0, 0, 0),
        AttributeSummary("race", {**GROUPS["race"], "White": 13_526}, 1, 420, 420),
    )
    return DataSummary(N_ROWS, 108, 108.0, attributes, "1f" * 32, 10_000, 0, 20)


def _attack(auc: float, trend: str, attribute: str) -> AttackResult:
    shares = (0.62, 0.75, 0.9, 0.99, 0.97, 1.0)
    attackers = tuple(
        AttackerResult(
            name, setting, 32_561, _around(0.5 + (auc - 0.5) * share), 0.004, 0.5 + (auc - 0.5) * share
        )
        for (name, setting), share in zip(FAMILIES.items(), shares, strict=True)
    )
    strongest = AttackerResult("blend of boosting and network", "as below", 32_561, _around(auc), 0.004, auc)
    steps = (0.25, 0.19, 0.13, 0.07, 0.0) if trend == "rising" else (0.02, 0.012, 0.006, 0.001, 0.0)
    points = tuple(
        CurvePoint(32_561 // 2 ** (4 - place), _around(max(auc - step, 0.5)))
        for place, step in enumerate(steps)
    )
    gain = Estimate(steps[-2], steps[-2] - 0.003, steps[-2] + 0.003)
    return AttackResult(
        strongest=strongest,
        attackers=attackers,
        curve=AttackCurve(points, gain, trend),
        strength="strong",
        n_groups=len(GROUPS[attribute]),
        n_fit=32_561,
        n_scored=N_ROWS,
        n_unknown=0,
        n_unknown_fit=0,
        n_folds=1,
        level=0.95,
        by_group={
            label: _around(auc + aside, 0.02)
            for label, aside in zip(GROUPS[attribute], (-0.02, 0.01, 0.03, -0.03, 0.01), strict=False)
            if len(GROUPS[attribute]) > 2
        },
    )


def _leak(name: str, attribute: str, auc: float) -> LeakResult:
    labels = [*GROUPS[attribute]][1:] if len(GROUPS[attribute]) == 2 else [*GROUPS[attribute]]
    fair = name.startswith("guarded")
    gaps = tuple(
        GapResult(
            group=label,
            mean_gap=0.02 if fair else 1.1,
            mean_gap_relative=0.018 if fair else 1.0,
            second_moment_gap=0.05 if fair else 1.9,
            second_moment_gap_relative=0.026 if fair else 1.0,
            mmd2=0.0004,
            mmd2_unbiased=0.0001,
            mmd2_p_value=0.455 if fair else 0.005,
            mean_gap_noise=NoiseFloor(0.015, 0.031, 0.4 if fair else 0.005, not fair),
            second_moment_gap_noise=NoiseFloor(0.03, 0.06, 0.12 if fair else 0.005, not fair),
        )
        for label in labels
    )
    leaks = name.startswith("the paper's") and attribute == "sex"
    rounding = RoundingLeak(
        _around(auc),
        _around(auc - 0.11 if leaks else auc - 0.001),
        0.11 if leaks else 0.001,
        leaks,
        ("relationship=Husband", "relationship=Wife") if leaks else (),
    )
    found = _attack(auc, TRENDS[_base(name)], attribute)
    return LeakResult(
        attribute, True, found, rounding, verdict(Estimate(auc, auc - 0.0083, auc + 0.0083), LIMIT), gaps
    )


def _base(name: str) -> str:
    return next(known for known in AUCS if name.startswith(known))


def _decided(label: str, n_rows: int, rate: float, most: float) -> GroupDecisions:
    ratio = rate / most
    return GroupDecisions(
        group=label,
        n_rows=n_rows,
        selection_rate=_around(rate, 0.02),
        selection_ratio=_around(ratio, 0.05) if ratio < 1 else Estimate(1.0, 1.0, 1.0),
        four_fifths="below" if ratio < 0.75 else ("cannot tell" if ratio < 0.85 else "not below"),
        true_positive_rate=_around(0.55, 0.05) if n_rows > 200 else None,
        false_positive_rate=_around(0.08, 0.02) if n_rows > 200 else None,
        calibration=tuple(
            CalibrationBin(
                low / 10, low / 10 + 0.1, n_rows // 10, low / 10 + 0.05, _around(low / 10 + 0.06, 0.03)
            )
            for low in range(10)
        ),
        score_quantiles=(0.03, 0.08, 0.19, 0.45, 0.72),
    )


def _decisions() -> DecisionView:
    by_attribute = []
    for attribute, groups in GROUPS.items():
        rates = dict(zip(groups, (0.11, 0.26, 0.12, 0.14, 0.21), strict=False))
        decided = tuple(_decided(g, n, rates[g], max(rates.values())) for g, n in groups.items())
        by_attribute.append(AttributeDecisions(attribute, (attribute,), decided, 0))
    pairs = list(itertools.product(GROUPS["sex"], GROUPS["race"]))[:8]
    crossed = tuple(_decided(f"{a} and {b}", 240, 0.1 + 0.02 * i, 0.24) for i, (a, b) in enumerate(pairs))
    by_attribute.append(AttributeDecisions("sex and race", ("sex", "race"), crossed, 2))
    note = "fitted on the training rows, scored on the audited rows"
    return DecisionView(">50K", 0.5, "boosted trees", note, N_ROWS, tuple(by_attribute))


def _task(auc: float) -> TaskScore:
    return TaskScore(_around(auc), N_ROWS, "fitted on the training rows, scored on the audited rows")


def _map(attribute: str) -> EmbeddingMap:
    clouds = tuple(
        GroupCloud(
            group=label,
            n_rows=n_rows,
            mean=(0.3 * place, -0.2 * place),
            covariance=((1.0, 0.2), (0.2, 0.8)),
            cells=tuple((8 + i + place, 8 + j, 5 + i * j) for i in range(6) for j in range(6)),
            n_hidden_rows=20,
        )
        for place, (label, n_rows) in enumerate(GROUPS[attribute].items())
    )
    return EmbeddingMap(attribute, 24, (-4.0, 4.0), (-4.0, 4.0), 5, clouds)


def _model(name: str) -> ModelReport:
    base, control = _base(name), name.startswith("plain")
    directions = (
        ()
        if control
        else (
            Direction(
                mean_gap=1.2,
                second_moment_gap=0.8,
                weights={
                    "relationship=Husband": 0.71,
                    "marital-status=Married-civ-spouse": 0.52,
                    "age": -0.11,
                },
                sentence="mostly relationship=Husband, marital-status=Married-civ-spouse",
            ),
            Direction(
                0.2, -0.4, {"relationship=Wife": 0.93, "hours-per-week": -0.2}, "mostly relationship=Wife"
            ),
        )
    )
    screened = ("sex=Female", "sex=Male", "relationship=Husband") if base == "guarded PCA" else ()
    removed = (
        "Nothing was removed."
        if control
        else "2 directions were removed. The strongest is mostly relationship=Husband, "
        "marital-status=Married-civ-spouse."
    )
    return ModelReport(
        name=name,
        role="control" if control else "model",
        kind="PCA" if control else "FairStreamingPCA",
        n_components=10,
        n_removed=len(directions),
        explained_variance=VARIANCE[base],
        explained_variance_relative=VARIANCE[base] / VARIANCE["plain PCA (k=10)"],
        recovered_variance=VARIANCE[base],
        recovered_variance_relative=VARIANCE[base] / VARIANCE["plain PCA (k=10)"],
        reconstruction_error=108 * (1 - VARIANCE[base]),
        leaks=tuple(_leak(name, attribute, auc) for attribute, auc in AUCS[base].items()),
        by_group=tuple(
            GroupNumbers(attribute, label, VARIANCE[base], 80.0)
            for attribute, groups in GROUPS.items()
            for label in groups
        ),
        directions=directions,
        maps=tuple(map(_map, GROUPS)),
        fitted_rows=32_561,
        looks_like_training=False,
        parameters={"n_components": 10, "guard": 1.0},
        digest="3d" * 32,
        removed=removed,
        screened=screened,
        task=_task(0.78 if base == "guarded PCA" else 0.89),
        decisions=_decisions(),
        answer="cannot tell" if base == "guarded PCA" else "does not hold",
        seen_share=Estimate(0.12, 0.09, 0.16) if base == "the paper's method" else Estimate(0.0, 0.0, 0.012),
    )
