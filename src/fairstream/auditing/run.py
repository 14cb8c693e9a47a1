"""audit: the whole measurement, from the rows and the models to the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from fairstream._version import __version__
from fairstream.auditing.audit_report import AuditReport
from fairstream.auditing.measure import views
from fairstream.auditing.measure.downstream import check_target
from fairstream.auditing.measure.embeddings import embedding_moments
from fairstream.auditing.measure.model import (
    model_report,
    paper_bandwidth,
    probed_codes,
    raw_control,
    spread_rows,
)
from fairstream.auditing.measure.probes import PROBES
from fairstream.auditing.measure.setting import Setting, data_summary, warnings_of
from fairstream.auditing.rows import open_rows
from fairstream.auditing.subjects import (
    Subject,
    as_subjects,
    check_encodings,
    check_widths,
    plain_parameter,
    plain_pca,
)
from fairstream.auditing.suppression import rare_combinations, reported_groups, without_combinations
from fairstream.auditing.survey import Survey, survey
from fairstream.data.blocks import Block


def audit(
    model: object,
    X: Any,
    sensitive_features: object = None,
    y: Any = None,
    *,
    train: tuple[Any, ...] | None = None,
    probes: Iterable[str] | None = None,
    sample_rows: int = 10_000,
    downstream_rows: int = 2_000,
    n_permutations: int = 199,
    min_group_size: int = 20,
    level: float = 0.95,
    random_state: int = 0,
    title: str = "Fairness audit",
    announce: Callable[[str], Any] | None = None,
) -> AuditReport:
    """Measure what embeddings keep, what they cost and what they give away, on data they were not fitted on.

    Parameters
    ----------
    model : FairStreamingPCA, FairSubspace, transformer, or a list or dict of them
        Fitted. A transformer needs `transform`, and `components_` and `mean_` for the variance numbers.
        Plain PCA of the same size is always added as the control.
    X : array, frame, BlockSource or path
        The rows to audit, not those of the fit. A source is read twice (three times if rows are left out, see
        `min_group_size`), in O(block) memory and a counter for every combination of labels.
    sensitive_features : list, array, Series, frame or dict
        One label per row, one column or several. Beside a source: names of its attributes, None for all.
    y : array of shape (n,), optional
        Class labels of a downstream task. A source brings its own target.
    train : (X, sensitive_features, y), optional
        Training rows, for the paper's bandwidth and for classifiers that are fitted on train and scored here.
        `(source,)` is enough for a source. Without `train`, both come from the audited rows.
    probes : list of {"linear", "quadratic", "kernel", "trees", "mlp"}, optional
        Which probes to run, all by default.
    sample_rows : int
        How many rows, drawn uniformly with `random_state`, the probes and MMD^2 see. Moments see every row.
    downstream_rows : int
        How many of these the downstream classifiers see.
    n_permutations : int
        Relabellings behind each p-value of MMD^2.
    min_group_size : int
        Smaller groups are left out of the report and of every comparison. So are their rows, and rows of
        unknown group, from every number, if they are fewer than this in one pattern of such labels: else
        subtracting the groups from a total would show them.
    level : float
        Confidence level of the probes' intervals.
    random_state : int
        Seed of the sample, the folds, the probes and the permutations; it is part of the report.
    title : str
        Heading of the report.
    announce : callable, optional
        Called with a line of text before each part of the work.

    Returns
    -------
    AuditReport
        Aggregates only. Render it with `to_json`, `to_markdown` or `to_html`; `summary` says it in sentences.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import PCA
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, size=600)
    >>> X = rng.normal(size=(600, 4))
    >>> X[:, 0] += 4 * sex
    >>> report = audit(PCA(2).fit(X[:300]), X[300:], sex[300:], probes=["linear"], n_permutations=0)
    >>> report.models[0].leaks[0].best_probe.auc.value > 0.95
    True
    """
    options = {
        "probes": [*(PROBES if probes is None else probes)],
        "sample_rows": sample_rows,
        "downstream_rows": downstream_rows,
        "n_permutations": n_permutations,
        "min_group_size": min_group_size,
        "level": level,
        "random_state": random_state,
    }
    _check_options(options)
    say = announce or (lambda line: None)
    subjects = as_subjects(model)
    encoding = next((subject.encoding for subject in subjects if subject.encoding is not None), None)
    source = open_rows(X, sensitive_features, y, encoding=encoding)
    check_widths(subjects, source.n_features)
    check_encodings(subjects, source)

    say("reading the data: moments, sample, digest")
    everything = found = survey(source, sample_rows=sample_rows, seed=random_state)
    attributes = [*everything.moments.groups]
    left_out = rare_combinations(everything.combinations, attributes, min_group_size)
    n_left_out = sum(everything.combinations[combination] for combination in left_out)
    if left_out and n_left_out < everything.moments.n_rows:
        say("reading the data once more: without the rows of small groups")
        source = without_combinations(source, attributes, left_out)
        found = survey(source, sample_rows=sample_rows, seed=random_state)
        found = replace(found, digest=everything.digest)
    kept = reported_groups(found.combinations, attributes, min_group_size)
    if not kept:
        raise ValueError(
            f"no attribute has two groups of at least {min_group_size} rows: nothing can be compared; lower "
            "min_group_size or audit more rows"
        )
    _check_target(found.sample, downstream_rows)
    training, train_is_audited = None, False
    if train is not None:
        surveyed = survey(open_rows(*train, encoding=encoding), sample_rows=sample_rows, seed=random_state)
        training, train_is_audited = surveyed.sample, surveyed.digest == everything.digest
        if found.sample.target is not None:
            _check_target(training, downstream_rows)

    subjects = [subject.checked_linear(found.sample) for subject in subjects]
    controls = _controls(subjects, found)
    measured = [*subjects, *controls.values()]
    say("reading the data again: every embedding's moments")
    setting = Setting(
        survey=found,
        kept=kept,
        codes={name: probed_codes(found.sample, name, labels) for name, labels in kept.items()},
        embedded=embedding_moments(source, measured, found.moments.mean(), kept),
        train=training,
        options=options,
        own_rows=frozenset(s.name for s in subjects if s.looks_like(everything.moments)),
        group_numbers={name: len(labels) for name, labels in everything.moments.groups.items()},
        n_left_out=n_left_out,
        train_is_audited=train_is_audited,
    )
    bandwidths = {k: paper_bandwidth(control, setting) for k, control in controls.items()}
    reports = []
    for subject in measured:
        say(f"probing {subject.name}")
        k = subject.control_size(found.sample)
        reports.append(model_report(subject, controls[k], bandwidths[k], setting))
    say("probing the raw data")
    raw = tuple(raw_control(name, setting) for name in kept)
    fitted, audited = subjects[0].moments, found.moments.restricted(kept)
    return AuditReport(
        title=title,
        warnings=warnings_of(subjects, setting),
        data=data_summary(setting),
        models=tuple(reports),
        raw=raw,
        frontier=views.frontier(
            audited if fitted is None else fitted,
            audited,
            subjects[0].width(found.sample),
            views.comparisons_of(kept),
        ),
        frontier_fitted_on="audited data" if fitted is None else "training data",
        parameters={name: plain_parameter(value) for name, value in options.items()}
        | {"train": train is not None},
        fairstream_version=__version__,
    )


def _check_target(sample: Block, n_rows: int) -> None:
    if sample.target is not None:
        check_target(sample.target[spread_rows(sample.n_rows, n_rows)])


def _check_options(options: dict[str, Any]) -> None:
    """Refuse invalid options before any row is read."""
    unknown = [kind for kind in options["probes"] if kind not in PROBES]
    if unknown:
        raise ValueError(f"probes has {unknown[0]!r}: choose from {', '.join(PROBES)}")
    for name, least in (
        ("sample_rows", 50),
        ("downstream_rows", 50),
        ("n_permutations", 0),
        ("min_group_size", 5),
    ):
        if not isinstance(options[name], int) or options[name] < least:
            raise ValueError(f"{name} is {options[name]!r}: pass an integer of at least {least}")
    if not 0.5 <= options["level"] < 1:
        raise ValueError(f"level is {options['level']!r}: pass a confidence level such as 0.95")


def _controls(subjects: list[Subject], found: Survey) -> dict[int, Subject]:
    """Return plain PCA for every size in use, from the training moments if a model still has them."""
    fitted = next((s.moments for s in subjects if s.moments is not None), None)
    origin = "audited data" if fitted is None else "training data"
    controls = {}
    for k in sorted({subject.control_size(found.sample) for subject in subjects}):
        name = next(n for n in _control_names(k) if n not in {s.name for s in subjects})
        controls[k] = plain_pca(found.moments if fitted is None else fitted, k, name, origin)
    return controls


def _control_names(k: int) -> Iterable[str]:
    yield f"plain PCA (k={k})"
    yield f"plain PCA (k={k}, control)"
