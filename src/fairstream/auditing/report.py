"""What an audit found, as plain frozen data: aggregates only, never a row.

Every class is a node of one tree; `Report.to_dict` turns the tree into dicts, lists, numbers and strings with
the field names as keys. The keys of one `FORMAT_VERSION` never change their meaning. Leaks are measured by
the AUC throughout: 0.5 is guessing, 1 is certainty.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairstream.files.atomic import atomic_file

FORMAT = "fairstream.auditing"
FORMAT_VERSION = 3

TRENDS = {
    "rising": "still rising: an attacker with more rows would learn more",
    "flat": "flat: more rows of this kind would tell these attackers little more",
    "unclear": "unclear: too few rows to say whether an attacker with more of them would learn more",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval.

    Parameters
    ----------
    value : float
        The estimate.
    low, high : float
        The ends of the interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AttackerResult:
    """What one attacker reads.

    `auc` is one-versus-rest, averaged over the groups if there are more than two, and `standard_error` is
    that of its value. `n_rows` is the number of rows the attacker was fitted on. `validation_auc` is what it
    was chosen by, on rows that are not scored here.
    """

    name: str
    setting: str
    n_rows: int
    auc: Estimate
    standard_error: float
    validation_auc: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The strongest attacker's AUC after fitting on `n_rows` rows."""

    n_rows: int
    auc: Estimate


@dataclass(frozen=True, slots=True)
class AttackCurve:
    """The strongest attacker's AUC over the number of rows it was fitted on, smallest number first.

    `gain` is the growth over the last doubling of the rows, None if there are too few rows to halve them;
    `gain_by_group` that of each group against the rest, if there are more than two.
    `trend` is "rising", "flat" or "unclear", and `sentence` says what that means.
    """

    points: tuple[CurvePoint, ...]
    gain: Estimate | None
    trend: str
    gain_by_group: dict[str, Estimate] = field(default_factory=dict)
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", TRENDS[self.trend])


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The strongest attacker, every family it was chosen from, and the curve over the rows it was given.

    `n_fit` is the number of rows with a known group that attackers could be fitted on (in one fold, if
    cross-validated), `n_scored` of those they were scored on. Rows without a known group (`n_unknown`,
    `n_unknown_fit`) can neither be learned from nor scored. `n_folds` is 1 if enough fitting rows were given.
    `by_group` holds the strongest attacker's AUC of each group against the rest, if there are more than two:
    their average is the AUC, and a limit is for each of them.
    """

    strongest: AttackerResult
    attackers: tuple[AttackerResult, ...]
    curve: AttackCurve
    strength: str
    n_groups: int
    n_fit: int
    n_scored: int
    n_unknown: int
    n_unknown_fit: int
    n_folds: int
    level: float
    by_group: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundingLeak:
    """An attack on the embedding as it is, and after noise of a millionth of each column's deviation.

    `leaks` says whether the AUC drops by more than 0.02: then the group is written in the last digits.
    `features` names the features whose coefficients are all tiny without all being exactly 0, None if no
    components were given. `affected` is the share of rows that only rounding tells from as many others, in
    the column with most of them. If it is below 0.01, no attacker can lose 0.02 by the noise: then nothing
    was attacked, and `before`, `after` and `drop` are None.
    """

    before: Estimate | None
    after: Estimate | None
    drop: float | None
    leaks: bool
    features: tuple[str, ...] | None
    affected: float = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a limit on the AUC holds, the confidence of the one-sided bound, and why in one sentence.

    `answer` is "holds", "does not hold" or "cannot tell"; `lower` and `upper` are the one-sided bounds on
    the AUC, of more than two groups on that of the group that is read best. An AUC below 0.5 counts as 0.5.
    """

    answer: str
    confidence: float
    sentence: str
    lower: float
    upper: float
    limit: float


@dataclass(frozen=True, slots=True)
class Floors:
    """What tells of the groups of one attribute without any embedding, as AUCs.

    `label` is that of the true target label alone, `score` that of a score that predicts the target from the
    features, and `target_auc` says how good that score is at its own task (one-versus-rest average). All
    three are None without a target.
    """

    attribute: str
    guessing: float
    label: Estimate | None
    score: Estimate | None
    target_auc: Estimate | None
    n_rows: int
    n_unknown: int


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What a gap looks like on as many rows if the groups do not differ: labels shuffled.

    `median` and `high` (the 95 % quantile) are of the shuffled gaps. `p_value` is the share of them that are
    at least as large as the gap; `beyond` says whether the gap is above `high`.
    """

    median: float
    high: float
    p_value: float
    beyond: bool


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Rows of one group whose score lies from `low` to `high`: mean score and share of positives."""

    low: float
    high: float
    n_rows: int
    mean_score: float
    positive_rate: Estimate


@dataclass(frozen=True, slots=True)
class GroupDecisions:
    """What befalls one group; None if too few rows stand for a number.

    `selection_ratio` is the selection rate over that of the group selected most often. `four_fifths` is
    "below" if its interval lies below 0.8, "not below" if it lies at or above, and "cannot tell" otherwise.
    `score_quantiles` belong to the shares 0.1, 0.25, 0.5, 0.75 and 0.9.
    """

    group: str
    n_rows: int
    selection_rate: Estimate
    selection_ratio: Estimate
    four_fifths: str
    true_positive_rate: Estimate | None
    false_positive_rate: Estimate | None
    calibration: tuple[CalibrationBin, ...]
    score_quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AttributeDecisions:
    """The groups of one attribute, or of several attributes crossed (their names are in `crossed`).

    `n_suppressed_groups` have too few rows each, or would show such a group by subtraction.
    """

    attribute: str
    crossed: tuple[str, ...]
    groups: tuple[GroupDecisions, ...]
    n_suppressed_groups: int


@dataclass(frozen=True, slots=True)
class DecisionView:
    """Decisions that a classifier of the target takes from one embedding, by group.

    A row is selected if its score for the target value `positive` is at least `threshold`. `target` is the
    name of the target, None if it is not known. `protocol` says which rows the classifier was fitted on.
    Single attributes come first, then intersections.
    """

    positive: str
    threshold: float
    classifier: str
    protocol: str
    n_rows: int
    by_attribute: tuple[AttributeDecisions, ...]
    target: str | None = None


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How well the target can be predicted from an embedding: AUC, one-versus-rest average."""

    auc: Estimate
    n_rows: int
    protocol: str


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
    PCA's with the same number of components. The noise floors are what shuffled labels show, None if the
    sample has too few rows of the group. `mmd2` is the paper's biased statistic, None for the same reason.
    """

    group: str
    mean_gap: float
    mean_gap_relative: float | None
    mean_gap_noise: NoiseFloor | None
    second_moment_gap: float
    second_moment_gap_relative: float | None
    second_moment_gap_noise: NoiseFloor | None
    mmd2: float | None
    mmd2_unbiased: float | None
    mmd2_p_value: float | None


@dataclass(frozen=True, slots=True)
class LeakResult:
    """What one embedding gives away about one attribute.

    `attack` and `rounding` are None if too few rows have a known group; `verdict` is None if no limit was
    stated. `detected` says whether the interval of the strongest attacker's AUC lies above 0.5.
    """

    attribute: str
    detected: bool
    attack: AttackResult | None
    rounding: RoundingLeak | None
    verdict: Verdict | None
    gaps: tuple[GapResult, ...]


@dataclass(frozen=True, slots=True)
class RawControl:
    """The same attack on the data before any embedding; `n_features` were attacked."""

    attribute: str
    n_features: int
    attack: AttackResult | None


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """Explained variance and reconstruction error of one group."""

    attribute: str
    group: str
    explained_variance: float | None
    reconstruction_error: float | None


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction that the model removes: its largest weights, and the gaps along it in the audited data.

    `sentence` says it in words: "mostly relationship=Husband, marital-status=Married".
    """

    mean_gap: float
    second_moment_gap: float
    weights: dict[str, float]
    sentence: str


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
class ModelReport:
    """Everything measured on one embedding. `role` is "model" or "control" (plain PCA of the same size).

    `recovered_variance` is the share of the audited rows' variance that the best linear map recovers from
    the embedding, as `tune` counts it: features tell of each other, noise that the model adds (dither) counts
    as loss, and variance that a handful of rows carry counts less. `explained_variance` is the share that the
    coordinates themselves have, less such noise, None if the embedding is not linear. The relative ones are
    shares of plain PCA's with the same number of components. `removed` says in words what was removed,
    `screened` names the features that were left out before. `task` and `decisions` are None without a target;
    `decisions` also if the target has more than two values. `seen_share` is the share of the audited rows
    that are equal in all features to rows of the fit, None if the model has no record of them; `twin_share`
    is the share that unseen rows would show, None if no two audited rows are equal or too few can be
    compared. `answer` is the worst verdict over all attributes, None if no limit was stated. `digest` is that
    of the numbers that define the embedding, not of a file.
    """

    name: str
    role: str
    kind: str
    n_components: int
    answer: str | None
    leaks: tuple[LeakResult, ...]
    explained_variance: float | None
    explained_variance_relative: float | None
    recovered_variance: float | None
    recovered_variance_relative: float | None
    reconstruction_error: float | None
    by_group: tuple[GroupNumbers, ...]
    n_removed: int | None
    removed: str
    screened: tuple[str, ...]
    directions: tuple[Direction, ...]
    maps: tuple[EmbeddingMap, ...]
    task: TaskScore | None
    decisions: DecisionView | None
    fitted_rows: int | None
    looks_like_training: bool
    seen_share: Estimate | None
    parameters: dict[str, Any]
    digest: str
    twin_share: Estimate | None = None


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
class InputFile:
    """Data that went in: its role ("audited rows" or "training rows"), its file's name if there is one."""

    role: str
    name: str | None
    digest: str
    n_features: int


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What is needed to run the same audit again and to see that it is the same.

    `date` is that of the audit, in UTC; `call` is the call of `audit`, `command` the command line if there
    was one.
    """

    date: str
    call: str
    command: str | None
    inputs: tuple[InputFile, ...]
    versions: dict[str, str]
    seeds: dict[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """The root of the tree.

    `headline` is the first sentence: the verdict if a limit was stated, and whether the embedding hides
    anything better than plain PCA. `limit` is the AUC that no attacker may exceed, None if none was stated.
    `raw_task` is the score of the target from the data before any embedding.
    """

    title: str
    headline: str
    limit: float | None
    warnings: tuple[str, ...]
    data: DataSummary
    models: tuple[ModelReport, ...]
    raw: tuple[RawControl, ...]
    raw_task: TaskScore | None
    floors: tuple[Floors, ...]
    frontier: tuple[FrontierChoice, ...]
    frontier_fitted_on: str
    reproduction: Reproduction
    parameters: dict[str, Any]
    fairstream_version: str

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as dicts, lists, numbers and strings; not-a-number becomes None."""
        tree = dataclasses.asdict(self)
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **_plain(tree)}

    def to_json(self, path: str | Path | None = None, *, indent: int | None = 2) -> str:
        """Return the report as JSON with this `indent`; if `path` is given, also write it there."""
        text = json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
        return written(text, path)


def written(text: str, path: str | Path | None) -> str:
    """Write the whole text or nothing; half a surrogate pair, which UTF-8 cannot encode, becomes "?"."""
    if path is not None:
        with atomic_file(path) as stream:
            stream.write(text.encode("utf-8", errors="replace"))
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
