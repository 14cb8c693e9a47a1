"""The task: how well a target is predicted from an embedding, and how the decisions fall by group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from fairstream.auditing.measure.auc import auc_influence, interval, standard_error
from fairstream.auditing.measure.decisions import decisions
from fairstream.auditing.measure.fitting import side_by_side
from fairstream.auditing.report import DecisionView, TaskScore

FloatArray = NDArray[np.floating[Any]]

N_FOLDS = 5
MAX_LABELS = 20
THRESHOLD = 0.5
CLASSIFIER = "boosted trees"
TRAIN_NOTE = "fitted on the training rows, scored on the audited rows"
FOLDS_NOTE = "cross-validated: every audited row is scored by a classifier that has not seen it"


@dataclass(frozen=True)
class TargetScores:
    """Scores of every row for every value of the target, by a classifier that has not seen the row."""

    values: NDArray[Any]
    truth: NDArray[np.intp]
    shares: FloatArray
    score: TaskScore


def target_scores(
    Z: FloatArray,
    y: ArrayLike,
    fit: tuple[FloatArray, ArrayLike] | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> TargetScores:
    """Predict the target from an embedding by boosted trees.

    Parameters
    ----------
    Z : array of shape (n, k)
        The embedding of the scored rows.
    y : array of shape (n,)
        Their target.
    fit : (array of shape (n_fit, k), array of shape (n_fit,)), optional
        Rows to fit on. Without them, the scored rows are predicted in five folds.
    level : float
        Confidence level of the interval.
    seed : int
        Seed of folds and trees.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 2
    >>> target_scores(rng.normal(size=(300, 2)) + 3 * y[:, None], y).score.auc.low > 0.9
    True
    """
    labels = np.asarray(y)
    check_target(labels)
    values, truth = np.unique(labels, return_inverse=True)
    if fit is None:
        folds: Iterable[tuple[Any, Any]] = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(
            Z, truth
        )
        Z_fit, y_fit, note = Z, labels, FOLDS_NOTE
    else:
        folds = [(slice(None), slice(None))]
        (Z_fit, y_fit), note = (np.asarray(part) for part in fit), TRAIN_NOTE
        check_target(y_fit)

    def score(fit_rows: Any, score_rows: Any) -> FloatArray:
        model = HistGradientBoostingClassifier(random_state=seed)
        found = model.fit(Z_fit[fit_rows], y_fit[fit_rows]).predict_proba(Z[score_rows])
        # A value that only one side has is never predicted, or never right.
        known = np.isin(model.classes_, values)
        here = np.zeros((len(found), len(values)))
        here[:, np.searchsorted(values, model.classes_[known])] = found[:, known]
        return here

    shares, parts = np.zeros((len(Z), len(values))), []
    folds = [*folds]
    scored = side_by_side([(score, fit_rows, score_rows) for fit_rows, score_rows in folds])
    for here, (_, score_rows) in zip(scored, folds, strict=True):
        shares[score_rows] = here
        parts.append(auc_influence(here[:, 1] if len(values) == 2 else here, truth[score_rows]))
    error = standard_error([influence for _, influence in parts])
    auc = interval(float(np.mean([value for value, _ in parts])), error, level)
    return TargetScores(values, truth.astype(np.intp), shares, TaskScore(auc, len(Z), note))


def decision_view(
    found: TargetScores,
    groups: Mapping[str, NDArray[np.intp]],
    names: Mapping[str, Sequence[str]],
    *,
    intersections: Iterable[Sequence[str]] = (),
    min_group_size: int = 20,
    level: float = 0.95,
    target: str | None = None,
) -> DecisionView | None:
    """Return the decisions that follow from the scores by group, None unless the target has two values.

    The larger value of the target counts as selected; `target` is its name.
    """
    if len(found.values) != 2:
        return None
    by_attribute = decisions(
        found.truth,
        found.shares[:, 1],
        groups,
        names=names,
        threshold=THRESHOLD,
        intersections=intersections,
        min_group_size=min_group_size,
        level=level,
    )
    return DecisionView(
        positive=str(found.values[1]),
        threshold=THRESHOLD,
        classifier=CLASSIFIER,
        protocol=found.score.protocol,
        n_rows=len(found.truth),
        by_attribute=by_attribute,
        target=target,
    )


def check_target(labels: NDArray[Any]) -> None:
    """Refuse a target that is not a class label."""
    n_missing = sum(value is None or value != value for value in labels.tolist())
    if n_missing:
        raise ValueError(
            f"y is missing in {n_missing:,} of {len(labels):,} rows: drop such rows, or leave y out to skip "
            "the task"
        )
    values, counts = np.unique(labels, return_counts=True)
    if len(values) > MAX_LABELS:
        raise ValueError(
            f"y has {len(values):,} different values, at most {MAX_LABELS} are classes: bin it first"
        )
    if len(values) < 2 or counts.min() < N_FOLDS:
        raise ValueError(
            f"y has {len(values)} different values, the rarest in {counts.min()} rows: a classifier needs "
            "two classes with five rows each; raise sample_rows, or leave y out to skip the task"
        )
