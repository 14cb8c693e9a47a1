"""The numbers of one embedding: what it gives away, what it keeps, how a task fares on it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure import views
from fairstream.auditing.measure.attack import LEAST_ROWS, Progress
from fairstream.auditing.measure.embeddings import EmbeddedRows, embedded_rows
from fairstream.auditing.measure.floors import floors
from fairstream.auditing.measure.leaks import GUESSING, MMD_ROWS, leak_result, raw_control, worst
from fairstream.auditing.measure.setting import Setting, spread_rows
from fairstream.auditing.measure.task import TargetScores, decision_view, target_scores
from fairstream.auditing.measure.variance import KeptVariance
from fairstream.auditing.measure.words import removed_in_words
from fairstream.auditing.report import Floors, ModelReport, RawControl, TaskScore
from fairstream.auditing.subjects import Subject
from fairstream.auditing.survey import codes_among
from fairstream.data.blocks import Block, BlockSource
from fairstream.linalg import lapack
from fairstream.linalg.kernels import median_squared_distance

FloatArray = NDArray[np.floating[Any]]
Rows = tuple[EmbeddedRows, EmbeddedRows | None]

RAW_FEATURES = 256
RAW_BYTES = 2**27  # of raw rows that are held at a time; if there are more, the sample serves


@dataclass(frozen=True)
class AttackedRows:
    """Where the rows come from that are attacked, and those that attackers are fitted on.

    A standard attack has the samples; a strong one reads all rows of both sources again.
    """

    sample: Block
    train_sample: Block | None
    source: BlockSource
    train_source: BlockSource | None
    all_rows: bool
    n_rows: int

    def embedded(self, subject: Subject, setting: Setting) -> Rows:
        """Embed the rows by one model."""
        if not self.all_rows:
            return self._from_samples(subject, setting)
        train = self.train_source
        return (
            embedded_rows(self.source, subject.embed, setting.kept),
            None if train is None else embedded_rows(train, subject.embed, setting.kept),
        )

    def raw(self, setting: Setting) -> Rows:
        """Return the rows as they are; very wide ones by their leading directions, too many by the sample."""
        subject = Subject("raw data", "raw", _as_they_are(self.sample))
        width = min(self.sample.X.shape[1], RAW_FEATURES)
        if self.all_rows and self.n_rows * width * 8 <= RAW_BYTES:
            return self.embedded(subject, setting)
        return self._from_samples(subject, setting)

    def _from_samples(self, subject: Subject, setting: Setting) -> Rows:
        train = self.train_sample
        return (
            embedded_rows([self.sample], subject.embed, setting.kept),
            None if train is None else embedded_rows([train], subject.embed, setting.kept),
        )


def model_report(
    subject: Subject,
    control: Subject,
    attacked: AttackedRows,
    bandwidth: float,
    setting: Setting,
    progress: Iterable[Progress | None],
) -> ModelReport:
    """Measure one embedding beside plain PCA of the same size; `bandwidth` is that of MMD^2.

    `progress` has one function for every attribute.
    """
    found, names = setting.survey, setting.feature_names(subject)
    rows = attacked.embedded(subject, setting)
    kept = KeptVariance(found.moments, setting.embedded, setting.kept, setting.trust)
    explained, recovered = ((of(subject), of(control)) for of in (kept.explained, kept.recovered))
    Z = subject.embed_block(found.sample)
    maps = [views.embedding_map(Z, name, setting.codes[name], setting.names(name)) for name in setting.kept]
    leaks = tuple(
        leak_result(name, subject, control, rows, bandwidth, setting, tick)
        for name, tick in zip(setting.kept, progress, strict=True)
    )
    directions = views.removed_directions(
        subject, found.moments.restricted(setting.kept), views.comparisons_of(setting.kept), names
    )
    screened = tuple(views.feature_name(index, names) for index in subject.screened)
    scores = _scores(rows, setting)
    return ModelReport(
        name=subject.name,
        role=subject.role,
        kind=subject.kind,
        n_components=Z.shape[1],
        n_removed=subject.n_removed,
        explained_variance=explained[0],
        explained_variance_relative=_share(*explained),
        recovered_variance=recovered[0],
        recovered_variance_relative=_share(*recovered),
        reconstruction_error=kept.reconstruction_error(subject),
        leaks=leaks,
        by_group=kept.by_group(subject),
        directions=directions,
        maps=tuple(view for view in maps if view is not None),
        # On the model's own rows it would tell how many of them are left out.
        fitted_rows=None if setting.n_left_out and subject.name in setting.own_rows else subject.fitted_rows,
        looks_like_training=subject.name in setting.own_rows,
        parameters=subject.parameters,
        digest=subject.digest(),
        removed=removed_in_words(subject, screened, [direction.sentence for direction in directions]),
        screened=screened,
        task=None if scores is None else scores.score,
        decisions=None
        if scores is None
        else decision_view(
            scores,
            rows[0].codes,
            {name: setting.names(name) for name in setting.kept},
            intersections=[c for c in setting.options["intersections"] if setting.kept.keys() >= {*c}],
            min_group_size=setting.options["min_group_size"],
            level=setting.options["level"],
            target=setting.target_name,
        ),
        seen_share=setting.seen.get(subject.name),
        twin_share=setting.twin_share(subject.name),
        answer=worst(
            [leak.verdict for leak in leaks], all_audited=len(setting.kept) == len(setting.group_numbers)
        ),
    )


def _share(ours: float | None, control: float | None) -> float | None:
    return ours / control if ours and control else None


def raw_report(
    attacked: AttackedRows, setting: Setting, progress: Iterable[Progress | None]
) -> tuple[tuple[RawControl, ...], TaskScore | None, tuple[Floors, ...]]:
    """Measure the rows as they are: the same attack, the score of the target, and the floors of the task."""
    rows = attacked.raw(setting)
    scores = _scores(rows, setting)
    raw = tuple(
        raw_control(name, rows, setting, tick) for name, tick in zip(setting.kept, progress, strict=True)
    )
    return (
        raw,
        None if scores is None else scores.score,
        tuple(_floors(name, rows[0], scores, setting) for name in setting.kept),
    )


def _scores(rows: Rows, setting: Setting) -> TargetScores | None:
    scored, fit = rows
    if scored.target is None:
        return None
    return target_scores(
        scored.Z,
        scored.target,
        None if fit is None or fit.target is None else (fit.Z, fit.target),
        level=setting.options["level"],
        seed=setting.options["random_state"],
    )


def _floors(attribute: str, rows: EmbeddedRows, scores: TargetScores | None, setting: Setting) -> Floors:
    codes, target = rows.codes[attribute], rows.target
    counts = np.bincount(codes[codes >= 0], minlength=len(setting.kept[attribute]))
    codes = np.where(np.isin(codes, np.flatnonzero(counts < LEAST_ROWS)), -1, codes)
    known = int(np.sum(codes >= 0))
    if target is None or scores is None or np.sum(counts >= LEAST_ROWS) < 2:
        return Floors(attribute, GUESSING, None, None, None, known, len(codes) - known)
    return floors(
        target,
        codes,
        scores,
        attribute=attribute,
        level=setting.options["level"],
        seed=setting.options["random_state"],
    )


def _as_they_are(sample: Block) -> Any:
    X = np.asarray(sample.X, dtype=float)
    if X.shape[1] <= RAW_FEATURES:
        return lambda rows, ids=None: np.asarray(rows, dtype=float)
    mean = X.mean(axis=0)
    _, _, directions = lapack(np.linalg.svd, X - mean, full_matrices=False)
    leading = directions[:RAW_FEATURES].T
    return lambda rows, ids=None: (np.asarray(rows, dtype=float) - mean) @ leading


def paper_bandwidth(control: Subject, setting: Setting) -> float:
    """Return the paper's bandwidth: the median squared distance of training rows under plain PCA."""
    rows = setting.survey.sample if setting.train is None else setting.train
    return median_squared_distance(control.embed_block(rows.take(spread_rows(rows.n_rows, MMD_ROWS))))


def sampled_codes(sample: Block, attribute: str, labels: tuple[Hashable, ...]) -> NDArray[np.intp]:
    """Return the sample's groups; one with too few sampled rows to compare counts as unknown."""
    codes = codes_among(sample.groups[attribute], labels)
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    rare = np.flatnonzero(counts < LEAST_ROWS)
    return np.where(np.isin(codes, rare), -1, codes)
