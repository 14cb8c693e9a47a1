"""What an embedding keeps and what it gives away, as pure functions on arrays.

Symbols: X is n x d, V' = components is k x d, Z = XV is n x k, f is the mean gap (in minus out), S the gap of
the second moments about the total mean. `groups` holds one small integer per row, -1 if it is unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairstream.linalg import lapack

FloatArray = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]


def explained_variance_ratio(X: ArrayLike, components: ArrayLike) -> float:
    """Return the share of the variance of X that the components keep: tr(V'AV) / tr(A).

    A is the covariance of X about its own mean (the paper's %Var divided by 100). The components are used as
    they are, without making them orthonormal first.

    Examples
    --------
    >>> explained_variance_ratio([[2.0, 1.0], [-2.0, -1.0]], [[1.0, 0.0]])
    0.8
    """
    X = np.asarray(X, dtype=float)
    centred = X - X.mean(axis=0)
    return float(_share(centred @ np.asarray(components, dtype=float).T, centred))


def mean_gap(Z: ArrayLike, in_group: NDArray[np.bool_]) -> float:
    """Return the length of the mean gap in an embedding, the norm of V'f.

    Examples
    --------
    >>> mean_gap([[0.0], [2.0], [5.0]], np.array([True, True, False]))
    4.0
    """
    Z = np.asarray(Z, dtype=float)
    _check_both(in_group)
    return float(np.linalg.norm(Z[in_group].mean(axis=0) - Z[~in_group].mean(axis=0)))


def second_moment_gap(Z: ArrayLike, in_group: NDArray[np.bool_]) -> float:
    """Return the spectral norm of V'SV: how far the second moments of the two sides are apart.

    The moments are taken about the mean of all rows, as the paper assumes.

    Examples
    --------
    >>> second_moment_gap([[3.0], [-3.0], [1.0], [-1.0]], np.array([True, True, False, False]))
    8.0
    """
    Z = np.asarray(Z, dtype=float)
    _check_both(in_group)
    centred = Z - Z.mean(axis=0)
    inside, outside = centred[in_group], centred[~in_group]
    gap = inside.T @ inside / len(inside) - outside.T @ outside / len(outside)
    return float(np.abs(lapack(np.linalg.eigvalsh, gap)).max())


def relative_gap(gap: float, control: float) -> float | None:
    """Return a gap as a share of the same gap under plain PCA, None if plain PCA has none.

    Examples
    --------
    >>> relative_gap(0.5, 2.0)
    0.25
    """
    return gap / control if control > 0 else None


def accuracy_by_group(y_true: ArrayLike, y_pred: ArrayLike, groups: Codes) -> dict[int, float]:
    """Return the share of right predictions inside each group.

    Examples
    --------
    >>> accuracy_by_group([1, 0, 1, 0], [1, 1, 1, 0], np.array([0, 0, 1, 1]))
    {0: 0.5, 1: 1.0}
    """
    right = np.asarray(y_true) == np.asarray(y_pred)
    return {code: float(right[groups == code].mean()) for code in _known(groups)}


def demographic_parity_difference(y_pred: ArrayLike, groups: Codes) -> float:
    """Return the largest difference between groups in how often a label is predicted (the paper's Delta_DP).

    With two groups and labels 0 and 1 this is the absolute difference of the mean predicted label. With more
    than two labels it is the largest difference over the labels.

    Examples
    --------
    >>> demographic_parity_difference([1, 1, 1, 0], np.array([0, 0, 1, 1]))
    0.5
    """
    predicted = np.asarray(y_pred)
    spreads = [_spread(predicted == label, groups) for label in np.unique(predicted)]
    return max(spreads, default=0.0)


def equalized_odds_difference(y_true: ArrayLike, y_pred: ArrayLike, groups: Codes) -> float:
    """Return the largest difference between groups in predictions among rows of the same true label.

    With labels 0 and 1 this is the larger of the differences in true-positive and false-positive rates. A
    group without any row of a true label has no rate there and is left out of that comparison.

    Examples
    --------
    >>> equalized_odds_difference([1, 1, 1, 1], [1, 0, 1, 1], np.array([0, 0, 1, 1]))
    0.5
    """
    truth, predicted = np.asarray(y_true), np.asarray(y_pred)
    spreads = [
        demographic_parity_difference(predicted[truth == label], groups[truth == label])
        for label in np.unique(truth)
    ]
    return max(spreads, default=0.0)


def _share(kept: FloatArray, whole: FloatArray) -> float:
    total = np.vdot(whole, whole)
    return float(np.vdot(kept, kept) / total) if total > 0 else 0.0


def _known(groups: Codes) -> list[int]:
    return [int(code) for code in np.unique(groups) if code >= 0]


def _spread(event: NDArray[np.bool_], groups: Codes) -> float:
    rates = [float(event[groups == code].mean()) for code in _known(groups)]
    return max(rates) - min(rates) if rates else 0.0


def _check_both(in_group: NDArray[np.bool_]) -> None:
    if in_group.all() or not in_group.any():
        raise ValueError(
            f"in_group marks {int(in_group.sum())} of {in_group.size} rows: a gap needs rows on both sides"
        )
