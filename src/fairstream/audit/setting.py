"""What all models of one audit share: the data, its groups, the options, and what to warn of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.audit.probes import PROBES
from fairstream.audit.report import AttributeSummary, DataSummary
from fairstream.audit.stream import EmbeddingMoments, Sample, Survey
from fairstream.audit.subjects import Subject
from fairstream.blocks import BlockSource

N_FOLDS = 5
PROBED_ROWS = 2 * N_FOLDS  # of a group in the sample, to probe it at all


@dataclass(frozen=True)
class Setting:
    """What all models of one audit share."""

    survey: Survey
    kept: dict[str, tuple[Hashable, ...]]
    codes: dict[str, NDArray[np.intp]]
    embedded: EmbeddingMoments
    train: Sample | None
    options: dict[str, Any]

    def names(self, attribute: str) -> tuple[str, ...]:
        """Return the reported groups of an attribute as text."""
        return tuple(map(str, self.kept[attribute]))


def data_summary(found: Survey, kept: dict[str, tuple[Hashable, ...]], seed: int) -> DataSummary:
    """Describe the audited data by its sizes and its digest."""
    moments = found.moments
    attributes = []
    for name, labels in moments.groups.items():
        counts = {str(label): int(moments.count(name, label)) for label in kept.get(name, ())}
        hidden = len(labels) - len(counts)
        attributes.append(AttributeSummary(name, counts, hidden, int(moments.n_rows) - sum(counts.values())))
    return DataSummary(
        n_rows=int(moments.n_rows),
        n_features=moments.n_features,
        total_variance=moments.total_variance,
        attributes=tuple(attributes),
        digest=found.digest,
        sample_rows=len(found.sample.X),
        sample_seed=seed,
    )


def warnings_of(subjects: list[Subject], setting: Setting) -> tuple[str, ...]:
    """Return what a reader must know before any number, the gravest first."""
    found, kept = setting.survey, setting.kept
    lines = [
        f"These look like the very rows that {subject.name} was fitted on (same number of rows, mean and "
        "variance). On its own training rows a linear probe is at chance by construction: audit unseen rows "
        "instead."
        for subject in subjects
        if subject.looks_like(found.moments)
    ]
    lines += [
        f"{name} has fewer than two groups that are large enough to report: it was not audited."
        for name in found.moments.groups
        if name not in kept
    ]
    for name, labels in kept.items():
        probed = np.unique(setting.codes[name])
        unseen = [str(label) for code, label in enumerate(labels) if code not in probed]
        if unseen:
            lines.append(
                f"Too few rows were sampled to probe {name} = {', '.join(unseen)}: raise sample_rows."
            )
    if len(found.sample.X) < min(setting.options["sample_rows"], found.moments.n_rows):
        lines.append(f"The rows are so wide that the probes saw only {len(found.sample.X):,} of them.")
    if found.moments.lost_energy > 0:
        lines.append(
            f"The frontier and the control come from a sketch that misses {found.moments.lost_energy:.1%} of "
            "the variance; all other numbers are exact."
        )
    return tuple(lines)


def check_options(options: dict[str, Any]) -> None:
    """Refuse options that make no sense, before any row is read."""
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


def check_widths(subjects: list[Subject], n_features: int) -> None:
    """Refuse rows of another width than the models were fitted on."""
    for subject in subjects:
        if subject.mean is not None and len(subject.mean) != n_features:
            raise ValueError(
                f"X has {n_features} features, {subject.name} was fitted on {len(subject.mean)}: pass the "
                "same columns"
            )


def check_encodings(subjects: list[Subject], source: BlockSource) -> None:
    """Refuse a table whose columns became other features, or others in scale, than those of the fit."""
    used = getattr(source, "encoding", None)
    for subject in subjects:
        if used is not None and subject.encoding is not None and dict(subject.encoding) != dict(used):
            raise ValueError(
                f"{subject.name} was fitted on columns that were encoded or scaled otherwise: open the data "
                "with fairstream.sinks.open_like, and fit models to be compared on one encoding (fairstream "
                "fit --like)"
            )
