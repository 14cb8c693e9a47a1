"""The floor under every useful embedding: what guessing, the target label and a good score tell of the group.

If the target depends on the group, an embedding that serves the target must tell of the group too. An AUC
near these floors is the price of the target, not a fault of the embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from fairstream.auditing.measure.attack import N_FOLDS, attack
from fairstream.auditing.measure.auc import auc_influence, interval, standard_error
from fairstream.auditing.measure.probes import CHANCE_AUC, one_thread
from fairstream.auditing.report import Estimate, Floors

FloatArray = NDArray[np.floating[Any]]


def floors(
    y: ArrayLike,
    codes: ArrayLike,
    features: ArrayLike | None = None,
    *,
    attribute: str = "group",
    level: float = 0.95,
    seed: int = 0,
) -> Floors:
    """Measure what the target label, and a good score for it, tell of the group.

    Every row is judged by shares, scores and attackers from the other folds.

    Parameters
    ----------
    y : array of shape (n,)
        The target labels, at least two, each in at least five rows.
    codes : array of shape (n,)
        The group of each row, as codes 0, 1, ...; -1 means unknown.
    features : array of shape (n, d), optional
        What the score for the target is learned from by boosted trees: all features, or an embedding.
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
    names, target = np.unique(labels[known], return_inverse=True)
    for name, values in (("y", target), ("codes", groups)):
        counts = np.bincount(values)
        if len(counts) < 2 or counts.min() < N_FOLDS:
            raise ValueError(
                f"{name} has {len(counts)} different values, the rarest in {counts.min(initial=0)} rows: two "
                f"values with at least {N_FOLDS} rows each are needed"
            )
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
    score = target_auc = None
    if features is not None:
        X = np.asarray(features, dtype=float)
        if X.ndim != 2 or len(X) != len(known):
            raise ValueError(f"features has shape {X.shape}, y has {len(known)} rows: pass one row per label")
        shares, target_auc = _scores(X[known], target, folds, level, seed)
        columns = shares[:, 1:] if len(names) == 2 else shares
        score = attack(columns, groups, families=["linear", "boosting"], level=level, seed=seed).strongest.auc
    return Floors(
        attribute=attribute,
        guessing=CHANCE_AUC,
        label=_label_auc(target, groups, folds, level),
        score=score,
        target_auc=target_auc,
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


def _scores(
    X: FloatArray, target: NDArray[Any], folds: Any, level: float, seed: int
) -> tuple[FloatArray, Estimate]:
    """Return scores of the target for every row from the other folds, and how well they predict it."""
    n_labels = int(target.max()) + 1
    shares, parts = np.empty((len(X), n_labels)), []
    for fit_rows, score_rows in folds.split(X, target):
        model = HistGradientBoostingClassifier(random_state=seed)
        with one_thread():
            shares[score_rows] = model.fit(X[fit_rows], target[fit_rows]).predict_proba(X[score_rows])
        scored = shares[score_rows]
        parts.append(auc_influence(scored[:, 1] if n_labels == 2 else scored, target[score_rows]))
    return shares, _over_folds(parts, level)


def _over_folds(parts: list[tuple[float, FloatArray]], level: float) -> Estimate:
    error = standard_error([influence for _, influence in parts])
    return interval(float(np.mean([auc for auc, _ in parts])), error, level)
