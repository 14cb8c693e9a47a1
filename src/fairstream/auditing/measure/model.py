"""The numbers of one embedding: what it gives away, what it keeps, how a task fares on it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure import views
from fairstream.auditing.measure.downstream import GroupCodes, classify
from fairstream.auditing.measure.metrics import relative_gap
from fairstream.auditing.measure.mmd import Discrepancy, discrepancy
from fairstream.auditing.measure.probes import run_probes
from fairstream.auditing.measure.setting import Setting
from fairstream.auditing.measure.variance import KeptVariance
from fairstream.auditing.report import (
    DownstreamResult,
    GapResult,
    LeakResult,
    ModelReport,
    ProbeResult,
    RawControl,
)
from fairstream.auditing.subjects import Subject
from fairstream.auditing.survey import codes_among
from fairstream.data.blocks import Block
from fairstream.linalg import lapack
from fairstream.linalg.kernels import median_squared_distance

FloatArray = NDArray[np.floating[Any]]

N_FOLDS = 5
PROBED_ROWS = 2 * N_FOLDS  # fewest sampled rows of a group that is probed
RAW_FEATURES = 256


def model_report(subject: Subject, control: Subject, bandwidth: float, setting: Setting) -> ModelReport:
    """Measure one embedding beside plain PCA of the same size; `bandwidth` is that of MMD^2."""
    found = setting.survey
    Z = subject.embed(found.sample.X)
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
        leaks=tuple(_leak(name, subject, control, Z, bandwidth, setting) for name in setting.kept),
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
        mean_gap, second_moment_gap = views.largest_gaps(moments, [(attribute, label)])
        of_pca = views.largest_gaps(control_moments, [(attribute, label)])
        distance = _discrepancy(Z, codes, setting.kept[attribute].index(label), bandwidth, options)
        gaps.append(
            GapResult(
                group=str(label),
                mean_gap=mean_gap,
                mean_gap_relative=relative_gap(mean_gap, of_pca[0]),
                second_moment_gap=second_moment_gap,
                second_moment_gap_relative=relative_gap(second_moment_gap, of_pca[1]),
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


def raw_control(attribute: str, setting: Setting) -> RawControl:
    """Probe the rows as they are; very wide rows by their leading directions."""
    X = np.asarray(setting.survey.sample.X, dtype=float)
    if X.shape[1] > RAW_FEATURES:
        left, singular, _ = lapack(np.linalg.svd, X - X.mean(axis=0), full_matrices=False)
        X = left[:, :RAW_FEATURES] * singular[:RAW_FEATURES]
    return RawControl(attribute, X.shape[1], _probed(X, setting.codes[attribute], setting.options))


def _probed(Z: FloatArray, codes: NDArray[np.intp], options: dict[str, Any]) -> tuple[ProbeResult, ...]:
    if len(np.unique(codes[codes >= 0])) < 2:
        return ()
    return run_probes(
        Z, codes, options["probes"], n_folds=N_FOLDS, level=options["level"], seed=options["random_state"]
    )


def _downstream(subject: Subject, Z: FloatArray, setting: Setting) -> tuple[DownstreamResult, ...]:
    sample, train, limit = setting.survey.sample, setting.train, setting.options["downstream_rows"]
    if sample.target is None:
        return ()
    rows = spread_rows(len(Z), limit)
    groups = {name: GroupCodes(codes[rows], setting.names(name)) for name, codes in setting.codes.items()}
    fitted = None
    if train is not None and train.target is not None:
        chosen = spread_rows(train.n_rows, limit)
        fitted = (subject.embed(train.X[chosen]), train.target[chosen])
    return classify(Z[rows], sample.target[rows], groups, fitted, seed=setting.options["random_state"])


def paper_bandwidth(control: Subject, setting: Setting) -> float:
    """Return the paper's bandwidth: the median squared distance of training rows under plain PCA."""
    rows = setting.survey.sample if setting.train is None else setting.train
    return median_squared_distance(control.embed(rows.X))


def probed_codes(sample: Block, attribute: str, labels: tuple[Hashable, ...]) -> NDArray[np.intp]:
    """Return the sample's groups; one with too few sampled rows to learn from counts as unknown."""
    codes = codes_among(sample.groups[attribute], labels)
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    rare = np.flatnonzero(counts < PROBED_ROWS)
    return np.where(np.isin(codes, rare), -1, codes)


def spread_rows(n_rows: int, limit: int) -> NDArray[np.intp]:
    """Return at most `limit` row numbers spread evenly over the sample."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, limit)).astype(np.intp))
