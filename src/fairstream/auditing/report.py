"""What an audit found, as plain frozen data: aggregates only, never a row.

Every class is a node of one tree; `Report.to_dict` turns the tree into dicts, lists, numbers and strings with
the field names as keys. The keys of one `FORMAT_VERSION` never change their meaning.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairstream.files.format import atomic_file

FORMAT = "fairstream.auditing"
FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How well one kind of probe recovers an attribute.

    `auc` is one-versus-rest, averaged over the groups if there are more than two. `chance` is the balanced
    accuracy of guessing (one over the number of groups); `base_rate` the share of the largest group.
    `p_value` is one-sided, for "the AUC is no better than chance".
    """

    probe: str
    auc: Estimate
    balanced_accuracy: Estimate
    chance: float
    base_rate: float
    p_value: float
    n_rows: int
    n_folds: int


@dataclass(frozen=True, slots=True)
class AttributeSummary:
    """One sensitive attribute of the audited data: its groups and their sizes.

    Groups with fewer rows than `min_group_size` appear in `n_suppressed_groups` only. `n_other_rows` counts
    their rows and those of unknown group, `n_unknown_rows` the latter alone (None if the attribute was not
    audited); rows that are left out of the report are in neither.
    """

    attribute: str
    groups: dict[str, int]
    n_suppressed_groups: int
    n_other_rows: int
    n_unknown_rows: int | None


@dataclass(frozen=True, slots=True)
class DataSummary:
    """The audited data: sizes, digest, and the sample that the probes saw.

    `n_rows` counts the rows behind the numbers; fewer than `left_out_below` more were left out of all of
    them, because subtraction would have shown a small group. The digest is of all rows.
    """

    n_rows: int
    n_features: int
    total_variance: float
    attributes: tuple[AttributeSummary, ...]
    digest: str
    sample_rows: int
    sample_seed: int
    left_out_below: int


@dataclass(frozen=True, slots=True)
class GapResult:
    """One group against the others in an embedding: gaps of moments over all rows, MMD^2 over the sample.

    `mean_gap` is |V'f|, `second_moment_gap` the spectral norm of V'SV; the relative ones are shares of plain
    PCA's with the same number of components. `mmd2` is the paper's biased statistic, None if the sample
    has too few rows of the group.
    """

    group: str
    mean_gap: float
    mean_gap_relative: float | None
    second_moment_gap: float
    second_moment_gap_relative: float | None
    mmd2: float | None
    mmd2_unbiased: float | None
    mmd2_p_value: float | None


@dataclass(frozen=True, slots=True)
class LeakResult:
    """What one embedding gives away about one attribute.

    `detected` says whether some probe beats chance at the 5 % level, with Bonferroni's correction for their
    number.
    """

    attribute: str
    detected: bool
    probes: tuple[ProbeResult, ...]
    gaps: tuple[GapResult, ...]

    @property
    def best_probe(self) -> ProbeResult | None:
        """The probe with the highest AUC, None if none was run."""
        return _best(self.probes)


@dataclass(frozen=True, slots=True)
class RawControl:
    """The same probes on the data before any embedding."""

    attribute: str
    n_features: int
    probes: tuple[ProbeResult, ...]

    @property
    def best_probe(self) -> ProbeResult | None:
        """The probe with the highest AUC, None if none was run."""
        return _best(self.probes)


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """Explained variance and reconstruction error of one group."""

    attribute: str
    group: str
    explained_variance: float | None
    reconstruction_error: float | None


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction that the model removes: its largest weights, and the gaps along it in the audited data."""

    mean_gap: float
    second_moment_gap: float
    weights: dict[str, float]


@dataclass(frozen=True, slots=True)
class GroupCloud:
    """One group in the first two coordinates: mean, covariance, counts per cell (small ones left out)."""

    group: str
    n_rows: int
    mean: tuple[float, float]
    covariance: tuple[tuple[float, float], tuple[float, float]]
    cells: tuple[tuple[int, int, int], ...]
    n_hidden_rows: int


@dataclass(frozen=True, slots=True)
class EmbeddingMap:
    """The first two coordinates of an embedding on a grid of cells, by group of one attribute."""

    attribute: str
    n_bins: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    smallest_cell: int
    clouds: tuple[GroupCloud, ...]


@dataclass(frozen=True, slots=True)
class GroupFairness:
    """Differences in how a downstream classifier treats the groups of one attribute."""

    attribute: str
    demographic_parity_difference: float
    equalized_odds_difference: float
    accuracy_by_group: dict[str, float]


@dataclass(frozen=True, slots=True)
class DownstreamResult:
    """One classifier of the target on one embedding.

    `protocol` is "paper" (fitted and scored on the same audited rows: a training accuracy) or "honest"
    (scored on rows the classifier has not seen); `protocol_note` says which rows exactly.
    """

    classifier: str
    protocol: str
    protocol_note: str
    n_rows: int
    accuracy: float
    majority_rate: float
    fairness: tuple[GroupFairness, ...]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Everything measured on one embedding. `role` is "model" or "control" (plain PCA of the same size)."""

    name: str
    role: str
    kind: str
    n_components: int
    n_removed: int | None
    explained_variance: float | None
    explained_variance_relative: float | None
    reconstruction_error: float | None
    leaks: tuple[LeakResult, ...]
    by_group: tuple[GroupNumbers, ...]
    directions: tuple[Direction, ...]
    maps: tuple[EmbeddingMap, ...]
    downstream: tuple[DownstreamResult, ...]
    fitted_rows: int | None
    looks_like_training: bool
    parameters: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class FrontierChoice:
    """Variance and gaps that another choice would have given, measured on the audited data.

    The gaps are the largest over the comparisons of all attributes.
    """

    constraint: str
    directions: str
    n_unfair: int
    n_removed: int
    explained_variance: float
    mean_gap: float
    mean_gap_relative: float | None
    second_moment_gap: float
    second_moment_gap_relative: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """The root of the tree."""

    title: str
    warnings: tuple[str, ...]
    data: DataSummary
    models: tuple[ModelReport, ...]
    raw: tuple[RawControl, ...]
    frontier: tuple[FrontierChoice, ...]
    frontier_fitted_on: str
    parameters: dict[str, Any]
    fairstream_version: str

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as dicts, lists, numbers and strings; not-a-number becomes None."""
        tree = dataclasses.asdict(self)
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **_plain(tree)}

    def to_json(self, path: str | Path | None = None, *, indent: int | None = 2) -> str:
        """Return the report as JSON; if `path` is given, also write it there."""
        text = json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
        return written(text, path)


def written(text: str, path: str | Path | None) -> str:
    """Write the whole text or nothing; half a surrogate pair, which UTF-8 cannot encode, becomes "?"."""
    if path is not None:
        with atomic_file(path) as stream:
            stream.write(text.encode("utf-8", errors="replace"))
    return text


def _best(probes: tuple[ProbeResult, ...]) -> ProbeResult | None:
    return max(probes, key=lambda result: result.auc.value, default=None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
