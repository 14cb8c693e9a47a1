"""The floor under every useful embedding: what guessing, the target label and a good score tell of the group.

If the target depends on the group, an embedding that serves the target must tell of the group too. An AUC
near these floors is the price of the target, not a fault of the embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from fairstream.auditing.measure.attack import N_FOLDS, attack
from fairstream.auditing.measure.auc import auc_influence, interval, standard_error
from fairstream.auditing.measure.probes import CHANCE_AUC
from fairstream.auditing.measure.task import TargetScores
from fairstream.auditing.report import Estimate, Floors

FloatArray = NDArray[np.floating[Any]]


def floors(
    y: ArrayLike,
    codes: ArrayLike,
    scores: TargetScores | None = None,
    *,
    attribute: str = "group",
    level: float = 0.95,
    seed: int = 0,
) -> Floors:
    """Measure what the target label, and a good score for it, tell of the group.

    Every row is judged by shares and attackers from the other folds.

    Parameters
    ----------
    y : array of shape (n,)
        The target labels, at least two, each in at least five rows.
    codes : array of shape (n,)
        The group of each row, as codes 0, 1, ...; -1 means unknown.
    scores : TargetScores, optional
        Scores of these rows for the target, by a classifier that has not seen them.
    attribute : str
        What the groups are called.
    level : float
        Confidence level of the intervals.
    seed : int
        Seed of folds and trees.

    Examples
    --------
    >>> codes = np.arange(400) % 2
    >>> y = np.where(np.arange(400) % 10 < 6, codes, 1 - codes)
    >>> round(floors(y, codes).label.value, 2)
    0.6
    """
    labels, groups = np.asarray(y), np.asarray(codes)
    if labels.ndim != 1 or labels.shape != groups.shape:
        raise ValueError(f"y has shape {labels.shape}, codes has {groups.shape}: pass one of each per row")
    known = groups >= 0
    _, groups = np.unique(groups[known], return_inverse=True)
    _, target = np.unique(labels[known], return_inverse=True)
    for name, values in (("y", target), ("codes", groups)):
        counts = np.bincount(values)
        if len(counts) < 2 or counts.min() < N_FOLDS:
            raise ValueError(
                f"{name} has {len(counts)} different values, the rarest in {counts.min(initial=0)} rows: two "
                f"values with at least {N_FOLDS} rows each are needed"
            )
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
    score = None
    if scores is not None:
        if len(scores.shares) != len(known):
            raise ValueError(
                f"scores has {len(scores.shares)} rows, y has {len(known)} rows: pass one row per label"
            )
        shares = scores.shares[known]
        columns = shares[:, 1:] if shares.shape[1] == 2 else shares
        score = attack(
            columns, groups, families=["linear", "quadratic"], level=level, seed=seed
        ).strongest.auc
    return Floors(
        attribute=attribute,
        guessing=CHANCE_AUC,
        label=_label_auc(target, groups, folds, level),
        score=score,
        target_auc=None if scores is None else scores.score.auc,
        n_rows=int(known.sum()),
        n_unknown=int(np.sum(~known)),
    )


def _label_auc(target: NDArray[Any], groups: NDArray[Any], folds: Any, level: float) -> Estimate:
    """Judge each row by the shares of the groups among the rows of the other folds that have its label."""
    n_labels, n_groups = int(target.max()) + 1, int(groups.max()) + 1
    parts = []
    for fit_rows, score_rows in folds.split(target, groups):
        pairs = target[fit_rows] * n_groups + groups[fit_rows]
        table = np.bincount(pairs, minlength=n_labels * n_groups).reshape(n_labels, n_groups) + 1e-9
        shares = (table / table.sum(axis=1, keepdims=True))[target[score_rows]]
        parts.append(auc_influence(shares[:, 1] if n_groups == 2 else shares, groups[score_rows]))
    return _over_folds(parts, level)


def _over_folds(parts: list[tuple[float, FloatArray]], level: float) -> Estimate:
    error = standard_error([influence for _, influence in parts])
    return interval(float(np.mean([auc for auc, _ in parts])), error, level)
