"""Leaks through rounding: a coefficient of 1e-16 instead of 0 lets trees tell one-hot rows apart.

Noise of a millionth of each column's deviation changes nothing that a user of the embedding needs, and
destroys what is written in the last digits. If a forest, which sees the order of values to the last digit,
loses more than `DROP` by it, and more than luck explains, the embedding leaks through rounding.

Such noise can only change the order of values that lie closer together than a few times its size, and trees
see nothing but that order. If hardly any row has such a neighbour, beyond those that many values on a line
have by chance, nothing is attacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from fairstream.auditing.measure.attack import first_rows, folds_needed
from fairstream.auditing.measure.attackers import FOREST
from fairstream.auditing.measure.auc import auc_influence, interval, standard_error
from fairstream.auditing.measure.fitting import side_by_side
from fairstream.auditing.report import Estimate, RoundingLeak

FloatArray = NDArray[np.floating[Any]]

NOISE = 1e-6
DROP = 0.02
TINY = 1e-9
REACH = 10 * NOISE  # noise terms differ by less
FEW = 0.01  # share of rows that noise may reorder without an AUC falling by 0.02
MOST_ROWS = 8_000


def rounding_leak(
    Z: ArrayLike,
    codes: ArrayLike,
    *,
    fit: tuple[ArrayLike, ArrayLike] | None = None,
    components: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> RoundingLeak:
    """Attack an embedding with and without noise of a millionth of each column's deviation.

    Parameters
    ----------
    Z, codes, fit, level, seed
        As in `fairstream.auditing.measure.attack.attack`. Z must be float64: float32 has lost the digits. At
        most 8,000 rows are fitted on.
    components : array of shape (k, d), optional
        The directions of the embedding; features with tiny coefficients are then named.
    feature_names : sequence of d str, optional
        Their names; without them, features are named by their numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(200, 2))
    >>> found = rounding_leak(Z, np.arange(200) % 2, components=[[1.0, 1e-16], [0.5, 0.0]])
    >>> found.leaks, found.features
    (False, ('1',))
    """
    features = None if components is None else tiny_coefficients(components, feature_names)
    affected = max(reordered_share(Z), 0.0 if fit is None else reordered_share(fit[0]))
    if affected < FEW:
        return RoundingLeak(None, None, None, False, features, affected)
    rng = np.random.default_rng(seed)
    noisy = _with_noise(Z, rng), None if fit is None else (_with_noise(fit[0], rng), fit[1])
    both = ((Z, fit), noisy)
    before, after = side_by_side([(_forest, rows, codes, to_fit, seed) for rows, to_fit in both])
    # On the same rows: noise that both share cancels.
    parts = [(a - b, of_a - of_b) for (a, of_a), (b, of_b) in zip(before, after, strict=True)]
    drop = _over_folds(parts, level, lowest=-1.0)
    leaks = drop.value > DROP and drop.low > 0
    return RoundingLeak(
        _over_folds(before, level), _over_folds(after, level), drop.value, leaks, features, affected
    )


def _forest(
    Z: ArrayLike, codes: ArrayLike, fit: tuple[ArrayLike, ArrayLike] | None, seed: int
) -> list[tuple[float, FloatArray]]:
    """Return a forest's AUC and each row's influence on it, for every fold."""
    rows, labels = _known(Z, codes)
    fit_rows, fit_labels = (rows, labels) if fit is None else _known(*fit)
    folds: list[tuple[Any, Any]] = [(np.arange(len(fit_rows)), slice(None))]
    if fit is None:
        n_folds = folds_needed(len(rows), MOST_ROWS)
        folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(rows, labels))
    rng = np.random.default_rng(seed)
    parts = []
    for used, scored in folds:
        drawn = first_rows(rng.permutation(used), fit_labels, MOST_ROWS)
        # As many trees as a trial has: two forests are compared, not a leak measured.
        odds = FOREST.log_odds(fit_rows[drawn], fit_labels[drawn], rows[scored], seed, trial=True)
        parts.append(auc_influence(odds, labels[scored]))
    return parts


def _known(Z: ArrayLike, codes: ArrayLike) -> tuple[FloatArray, NDArray[np.intp]]:
    known = np.asarray(codes) >= 0
    _, labels = np.unique(np.asarray(codes)[known], return_inverse=True)
    return np.asarray(Z, dtype=float)[known], labels.astype(np.intp)


def _over_folds(parts: Sequence[tuple[float, FloatArray]], level: float, *, lowest: float = 0.0) -> Estimate:
    error = standard_error([influence for _, influence in parts])
    return interval(float(np.mean([value for value, _ in parts])), error, level, lowest=lowest)


def reordered_share(Z: ArrayLike) -> float:
    """Return the share of rows that only rounding tells from as many others, in the worst column.

    These have different values within reach of the noise, less what chance explains: on a smooth density, as
    many gaps between neighbours are below some small length as the gaps up to ten times that length predict.

    Examples
    --------
    >>> reordered_share([[0.0], [0.0], [1.0], [1.0]]), reordered_share([[0.0], [1e-12], [1.0], [1.0 + 1e-12]])
    (0.0, 0.5)
    >>> reordered_share(np.random.default_rng(0).normal(size=(8_000, 3))) < FEW
    True
    """
    rows = np.asarray(Z, dtype=float)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.intp))]
    largest = 0.0
    for column in rows.T:
        values, counts = np.unique(column, return_counts=True)
        gaps = np.diff(values) / (column.std() or 1.0)
        # Rows of a table are often equal: a gap counts by the rows that it tells apart.
        told_apart = np.minimum(counts[1:], counts[:-1]) / len(column)
        within, wider = (float(told_apart[gaps < reach].sum()) for reach in (REACH, 10 * REACH))
        by_chance = 1 - (1 - (wider - within) / (1 - within)) ** (1 / 9)
        largest = max(largest, within - by_chance)
    return largest


def tiny_coefficients(components: ArrayLike, feature_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Name the features that were meant to be left out, but have coefficients that are not exactly 0.

    Every coefficient of such a feature is below 1e-9 of the largest one of its direction, and at least one
    is not 0. A feature with one larger coefficient is part of the embedding anyway.

    Parameters
    ----------
    components : array of shape (k, d)
        The directions.
    feature_names : sequence of d str, optional
        Names of the features.

    Examples
    --------
    >>> tiny_coefficients([[1.0, 0.0, 1e-16], [2.0, 0.0, 0.0]], ["age", "sex=f", "sex=m"])
    ('sex=m',)
    """
    sizes = np.abs(np.asarray(components, dtype=float))
    names = [str(number) for number in range(sizes.shape[1])] if feature_names is None else feature_names
    if len(names) != sizes.shape[1]:
        raise ValueError(
            f"feature_names has {len(names)} names, components have {sizes.shape[1]} columns: pass one each"
        )
    tiny = (sizes <= TINY * sizes.max(axis=1, keepdims=True)).all(axis=0) & (sizes > 0).any(axis=0)
    return tuple(name for name, is_tiny in zip(names, tiny, strict=True) if is_tiny)


def _with_noise(Z: ArrayLike, rng: np.random.Generator) -> FloatArray:
    rows = np.asarray(Z, dtype=float)
    return rows + NOISE * rows.std(axis=0) * rng.normal(size=rows.shape)
