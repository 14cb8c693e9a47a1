"""audit: measure what one or several embeddings keep, cost and give away."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream._version import __version__
from fairstream.auditing.measure import views
from fairstream.auditing.measure.downstream import GroupCodes, check_target, classify
from fairstream.auditing.measure.metrics import relative_gap
from fairstream.auditing.measure.mmd import Discrepancy, discrepancy
from fairstream.auditing.measure.probes import PROBES, ProbeResult, run_probes
from fairstream.auditing.measure.suppression import ShownRows, rare_combinations
from fairstream.auditing.measure.variance import KeptVariance
from fairstream.auditing.report import (
    AuditReport,
    GapResult,
    LeakResult,
    ModelReport,
    RawControl,
)
from fairstream.auditing.setting import (
    N_FOLDS,
    PROBED_ROWS,
    Setting,
    check_encodings,
    check_options,
    check_widths,
    data_summary,
    warnings_of,
)
from fairstream.auditing.stream import (
    Sample,
    Survey,
    as_source,
    codes_of,
    kept_groups,
    measure,
    survey,
)
from fairstream.auditing.subjects import Subject, as_subjects, plain_parameter, plain_pca
from fairstream.linalg.kernels import median_squared_distance

FloatArray = NDArray[np.floating[Any]]

RAW_FEATURES = 256


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
        A source alone, `(source,)`, will do. Without it both come from the audited rows.
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
        Called with a line of text before each part of the work, for a caller who waits.

    Returns
    -------
    AuditReport
        Aggregates only. Render it with `to_json`, `to_markdown`, `to_html` or `to_rich`.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, size=600)
    >>> X = rng.normal(size=(600, 4))
    >>> X[:, 0] += 4 * sex
    >>> report = audit(PCA(2).fit(X[:300]), X[300:], sex[300:], probes=["linear"], n_permutations=0)
    >>> report.models[0].leaks[0].best_probe.auc.value > 0.95
    True
    """
    kinds = [*(PROBES if probes is None else probes)]
    options = {
        "probes": kinds,
        "sample_rows": sample_rows,
        "downstream_rows": downstream_rows,
        "n_permutations": n_permutations,
        "min_group_size": min_group_size,
        "level": level,
        "random_state": random_state,
    }
    check_options(options)
    say = announce or (lambda line: None)
    subjects = as_subjects(model)
    encoding = next((subject.encoding for subject in subjects if subject.encoding is not None), None)
    source = as_source(X, sensitive_features, y, encoding=encoding)
    check_widths(subjects, source.n_features)
    check_encodings(subjects, source)
    say("reading the data: moments, sample, digest")
    everything = found = survey(source, sample_rows=sample_rows, seed=random_state)
    own_rows = {subject.name for subject in subjects if subject.looks_like(everything.moments)}
    groups = {name: len(labels) for name, labels in everything.moments.groups.items()}
    left_out = rare_combinations(everything.combinations, [*groups], min_group_size)
    n_left_out = sum(everything.combinations[combination] for combination in left_out)
    if left_out and n_left_out < everything.moments.n_rows:
        say("reading the data once more: without the rows of small groups")
        source = ShownRows(source, [*groups], left_out)
        found = survey(source, sample_rows=sample_rows, seed=random_state)
        found = replace(found, digest=everything.digest)
    kept = kept_groups(found.moments, min_group_size)
    if not kept:
        raise ValueError(
            f"no attribute has two groups of at least {min_group_size} rows: nothing can be compared; lower "
            "min_group_size or audit more rows"
        )
    if found.sample.target is not None:
        check_target(found.sample.target[_spread_rows(len(found.sample.X), downstream_rows)])
    training, train_is_audited = None, False
    if train is not None:
        surveyed = survey(as_source(*train, encoding=encoding), sample_rows=sample_rows, seed=random_state)
        training, train_is_audited = surveyed.sample, surveyed.digest == everything.digest
        if found.sample.target is not None and training.target is not None:
            check_target(training.target[_spread_rows(len(training.X), downstream_rows)])
    subjects = [_checked_linear(subject, found.sample) for subject in subjects]
    controls = _controls(subjects, found)
    say("reading the data again: every embedding's moments")
    embedded = measure(source, [*subjects, *controls.values()], found.moments.mean(), kept)
    codes = {name: _probed_codes(found.sample, name, labels) for name, labels in kept.items()}
    setting = Setting(
        found,
        kept,
        codes,
        embedded,
        training,
        options,
        frozenset(own_rows),
        groups,
        n_left_out,
        train_is_audited,
    )
    bandwidths = {k: _bandwidth(control, setting) for k, control in controls.items()}
    reports = []
    for subject in [*subjects, *controls.values()]:
        say(f"probing {subject.name}")
        reports.append(_model_report(subject, controls, bandwidths, setting))
    say("probing the raw data")
    raw = tuple(_raw_control(name, setting) for name in kept)
    fitted, audited = subjects[0].moments, found.moments.restricted(kept)
    points = views.frontier(
        audited if fitted is None else fitted,
        audited,
        _width(subjects[0], found),
        views.comparisons_of(kept),
    )
    return AuditReport(
        title=title,
        warnings=warnings_of(subjects, setting),
        data=data_summary(setting),
        models=tuple(reports),
        raw=raw,
        frontier=points,
        frontier_fitted_on="audited data" if fitted is None else "training data",
        parameters={name: plain_parameter(value) for name, value in options.items()}
        | {"train": train is not None},
        fairstream_version=__version__,
    )


def _controls(subjects: list[Subject], found: Survey) -> dict[int, Subject]:
    """Return plain PCA for every size in use, from the training moments where a model still has them."""
    fitted = next((s.moments for s in subjects if s.moments is not None), None)
    origin = "audited data" if fitted is None else "training data"
    controls = {}
    for k in sorted({min(_width(subject, found), found.moments.n_features) for subject in subjects}):
        name = next(n for n in _control_names(k) if n not in {s.name for s in subjects})
        controls[k] = plain_pca(found.moments if fitted is None else fitted, k, name, origin)
    return controls


def _control_names(k: int) -> Iterable[str]:
    yield f"plain PCA (k={k})"
    yield f"plain PCA (k={k}, control)"


def _model_report(
    subject: Subject, controls: dict[int, Subject], bandwidths: dict[int, float], setting: Setting
) -> ModelReport:
    found = setting.survey
    k = min(_width(subject, found), found.moments.n_features)
    control = controls[k]
    Z = _embedded(subject, found.sample)
    kept = KeptVariance(found.moments, setting.embedded, setting.kept)
    kept_share, control_share = kept.explained(subject), kept.explained(control)
    maps = [views.embedding_map(Z, name, setting.codes[name], setting.names(name)) for name in setting.kept]
    names = views.shared_names([subject], found.feature_names)
    return ModelReport(
        name=subject.name,
        role=subject.role,
        kind=subject.kind,
        n_components=Z.shape[1],
        n_removed=subject.n_removed,
        explained_variance=kept_share,
        explained_variance_relative=None
        if not (kept_share and control_share)
        else kept_share / control_share,
        reconstruction_error=kept.reconstruction_error(subject),
        leaks=tuple(_leak(name, subject, control, Z, bandwidths[k], setting) for name in setting.kept),
        by_group=kept.by_group(subject),
        directions=views.removed_directions(
            subject, found.moments.restricted(setting.kept), views.comparisons_of(setting.kept), names
        ),
        maps=tuple(view for view in maps if view is not None),
        downstream=_downstream(subject, Z, setting),
        # On the model's own rows it would tell how many of them are left out.
        fitted_rows=None if setting.n_left_out and subject.name in setting.own_rows else subject.fitted_rows,
        looks_like_training=subject.name in setting.own_rows,
        parameters=subject.parameters,
        digest=subject.digest(),
    )


def _leak(
    attribute: str, subject: Subject, control: Subject, Z: FloatArray, bandwidth: float, setting: Setting
) -> LeakResult:
    codes, options = setting.codes[attribute], setting.options
    moments, control_moments = (setting.embedded.moments[s.name] for s in (subject, control))
    gaps = []
    for _, label in views.comparisons_of({attribute: setting.kept[attribute]}):
        mean_gap, covariance_gap = views.largest_gaps(moments, [(attribute, label)])
        of_pca = views.largest_gaps(control_moments, [(attribute, label)])
        distance = _discrepancy(Z, codes, setting.kept[attribute].index(label), bandwidth, options)
        gaps.append(
            GapResult(
                group=str(label),
                mean_gap=mean_gap,
                mean_gap_relative=relative_gap(mean_gap, of_pca[0]),
                covariance_gap=covariance_gap,
                covariance_gap_relative=relative_gap(covariance_gap, of_pca[1]),
                mmd2=None if distance is None else distance.biased,
                mmd2_unbiased=None if distance is None else distance.unbiased,
                mmd2_p_value=None if distance is None else distance.p_value,
            )
        )
    probes = _probed(Z, codes, options)
    detected = any(result.p_value * len(probes) < 0.05 for result in probes)
    return LeakResult(attribute, detected, probes, tuple(gaps))


def _discrepancy(
    Z: FloatArray, codes: NDArray[np.intp], code: int, bandwidth: float, options: dict[str, Any]
) -> Discrepancy | None:
    known = codes >= 0
    inside = codes[known] == code
    if min(inside.sum(), (~inside).sum()) < PROBED_ROWS or not bandwidth > 0:
        return None
    n_permutations, seed = options["n_permutations"], options["random_state"]
    return discrepancy(Z[known], inside, bandwidth, n_permutations=n_permutations, seed=seed)


def _raw_control(attribute: str, setting: Setting) -> RawControl:
    """Probe the rows as they are; very wide rows by their leading directions."""
    X = np.asarray(setting.survey.sample.X, dtype=float)
    if X.shape[1] > RAW_FEATURES:
        left, singular, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        X = left[:, :RAW_FEATURES] * singular[:RAW_FEATURES]
    return RawControl(attribute, X.shape[1], _probed(X, setting.codes[attribute], setting.options))


def _probed_codes(sample: Sample, attribute: str, labels: tuple[Hashable, ...]) -> NDArray[np.intp]:
    """Return the sample's groups; one with too few sampled rows to learn from counts as unknown."""
    codes = codes_of(sample.groups[attribute], labels)
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    rare = np.flatnonzero(counts < PROBED_ROWS)
    return np.where(np.isin(codes, rare), -1, codes)


def _probed(Z: FloatArray, codes: NDArray[np.intp], options: dict[str, Any]) -> tuple[ProbeResult, ...]:
    if len(np.unique(codes[codes >= 0])) < 2:
        return ()
    return run_probes(
        Z, codes, options["probes"], n_folds=N_FOLDS, level=options["level"], seed=options["random_state"]
    )


def _downstream(subject: Subject, Z: FloatArray, setting: Setting) -> Any:
    sample, train, limit = setting.survey.sample, setting.train, setting.options["downstream_rows"]
    if sample.target is None:
        return ()
    rows = _spread_rows(len(Z), limit)
    groups = {name: GroupCodes(codes[rows], setting.names(name)) for name, codes in setting.codes.items()}
    fitted = None
    if train is not None and train.target is not None:
        chosen = _spread_rows(len(train.X), limit)
        fitted = (_embedded(subject, train)[chosen], train.target[chosen])
    return classify(Z[rows], sample.target[rows], groups, fitted, seed=setting.options["random_state"])


def _bandwidth(control: Subject, setting: Setting) -> float:
    """Return the paper's bandwidth: the median squared distance of training rows under plain PCA."""
    rows = setting.survey.sample if setting.train is None else setting.train
    return median_squared_distance(_embedded(control, rows))


def _embedded(subject: Subject, sample: Sample) -> FloatArray:
    return subject.embed(np.asarray(sample.X))


def _width(subject: Subject, found: Survey) -> int:
    if subject.components is not None:
        return len(subject.components)
    return int(_embedded(subject, replace(found.sample, X=found.sample.X[:2])).shape[1])


def _checked_linear(subject: Subject, sample: Sample) -> Subject:
    """Drop the components of a model that does not embed as (x - mean)V: its variances would be wrong."""
    if subject.components is None or subject.mean is None:
        return replace(subject, components=None)
    head = np.asarray(sample.X[:8], dtype=float)
    expected, embedded = (head - subject.mean) @ subject.components.T, subject.embed(head)
    scale = float(np.abs(expected).max()) or 1.0
    same = embedded.shape == expected.shape and np.allclose(embedded, expected, atol=1e-3 * scale, rtol=1e-3)
    return subject if same else replace(subject, components=None)


def _spread_rows(n_rows: int, limit: int) -> NDArray[np.intp]:
    """Return at most `limit` row numbers spread evenly over the sample."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, limit)).astype(np.intp))
