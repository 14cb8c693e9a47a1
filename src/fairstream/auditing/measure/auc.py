"""The area under the ROC curve with each row's influence on it, for comparisons of two attackers in pairs.

DeLong's variance of an AUC is the sum of squares of the rows' influences, each with the divisor of a sample
variance in its group: a fold may hold very few rows of a group. If two attackers score the same rows, the
influences of their difference are the differences of their influences: noise that both share cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from fairstream.auditing.report import Estimate

FloatArray = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]


def auc_influence(scores: FloatArray, codes: Codes) -> tuple[float, FloatArray]:
    """Return the AUC, one-versus-rest and averaged over groups, and the influence of every row on it.

    Parameters
    ----------
    scores : array of shape (n,) for two groups, (n, g) otherwise
        Larger means group 1, or the column's group.
    codes : array of shape (n,)
        The true groups.

    Examples
    --------
    >>> auc, influence = auc_influence(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    >>> auc, influence.round(3).tolist()
    (0.75, [0.177, -0.177, -0.177, 0.177])
    """
    columns = scores[:, None] if scores.ndim == 1 else scores
    targets = [1] if scores.ndim == 1 else range(columns.shape[1])
    total, influence = 0.0, np.zeros(len(codes))
    for column, target in zip(columns.T, targets, strict=True):
        inside = codes == target
        # The share of the other side that each row is ranked rightly against.
        ranks, wins = rankdata(column), np.empty(len(codes))
        wins[inside] = (ranks[inside] - rankdata(column[inside])) / np.sum(~inside)
        wins[~inside] = 1 - (ranks[~inside] - rankdata(column[~inside])) / np.sum(inside)
        auc = float(wins[inside].mean())
        total += auc / len(columns.T)
        sizes = np.where(inside, inside.sum(), np.sum(~inside))
        influence += (wins - auc) / np.sqrt(sizes * np.maximum(sizes - 1, 1)) / len(columns.T)
    return total, influence


def auc_with_variance(scores: FloatArray, codes: Codes) -> tuple[float, float]:
    """Return the AUC as in `auc_influence`, and its variance by DeLong's method.

    Examples
    --------
    >>> auc_with_variance(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))[0]
    0.75
    """
    auc, influence = auc_influence(scores, codes)
    return auc, _variance(influence)


def _variance(influence: FloatArray) -> float:
    # Perfect separation has no visible variance; assume at least that of one misranked pair.
    return max(float(influence @ influence), 1 / (4 * len(influence) ** 2))


def standard_error(influences: Sequence[FloatArray]) -> float:
    """Return the standard error of a mean over folds, each given by its rows' influences.

    One array means one set of scored rows that no fitting has seen. Several are the folds of a
    cross-validation, which share fitting rows: their variance is multiplied by 1 + K / (K - 1), as in
    `fairstream.auditing.measure.probes`.

    Examples
    --------
    >>> round(standard_error([np.array([0.3, -0.3, 0.1, -0.1])]), 4)
    0.4472
    """
    n_folds = len(influences)
    inflation = 1 + n_folds / (n_folds - 1) if n_folds > 1 else 1.0
    return float(np.sqrt(inflation * np.mean([_variance(fold) for fold in influences]) / n_folds))


def error_of(found: Estimate, level: float) -> float:
    """Return the standard error behind an interval; it may be cut at 0 or 1, so the longer side tells.

    Examples
    --------
    >>> round(error_of(interval(0.95, 0.05, 0.95), 0.95), 3)
    0.05
    """
    return max(found.value - found.low, found.high - found.value) / float(ndtri(0.5 + level / 2))


def interval(value: float, deviation: float, level: float, *, lowest: float = 0.0) -> Estimate:
    """Return a number with its two-sided normal interval, inside `lowest` to 1.

    Examples
    --------
    >>> found = interval(0.95, 0.05, 0.95)
    >>> round(found.low, 3), found.high
    (0.852, 1.0)
    """
    reach = float(ndtri(0.5 + level / 2)) * deviation
    return Estimate(value, max(value - reach, lowest), min(value + reach, 1.0))
