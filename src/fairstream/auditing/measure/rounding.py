"""Leaks through rounding: a coefficient of 1e-16 instead of 0 lets trees tell one-hot rows apart.

Noise of a millionth of each column's deviation changes nothing that a user of the embedding needs, and
destroys what is written in the last digits. If an attack loses more than `DROP` by it, the embedding leaks
through rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairstream.auditing.measure.attack import attack
from fairstream.auditing.report import RoundingLeak

NOISE = 1e-6
DROP = 0.02
TINY = 1e-9
FAMILIES = ("linear", "boosting", "forest")  # trees see last digits; a line is the control


def rounding_leak(
    Z: ArrayLike,
    codes: ArrayLike,
    *,
    fit: tuple[ArrayLike, ArrayLike] | None = None,
    components: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    strength: str = "standard",
    level: float = 0.95,
    seed: int = 0,
) -> RoundingLeak:
    """Attack an embedding with and without noise of a millionth of each column's deviation.

    Parameters
    ----------
    Z, codes, fit, strength, level, seed
        As in `fairstream.auditing.measure.attack.attack`. Z must be float64: float32 has lost the digits.
    components : array of shape (k, d), optional
        The directions of the embedding; features with tiny coefficients are then named.
    feature_names : sequence of d str, optional
        Their names; without them, features are named by their numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(200, 2))
    >>> rounding_leak(Z, np.arange(200) % 2, components=[[1.0, 1e-16], [0.5, 0.0]]).features
    ('1',)
    """
    rng = np.random.default_rng(seed)
    before = attack(Z, codes, fit=fit, strength=strength, families=FAMILIES, level=level, seed=seed)
    noisy_fit = None if fit is None else (_with_noise(fit[0], rng), fit[1])
    after = attack(
        _with_noise(Z, rng),
        codes,
        fit=noisy_fit,
        strength=strength,
        families=FAMILIES,
        level=level,
        seed=seed,
    )
    drop = before.strongest.auc.value - after.strongest.auc.value
    features = None if components is None else tiny_coefficients(components, feature_names)
    return RoundingLeak(before.strongest.auc, after.strongest.auc, drop, drop > DROP, features)


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


def _with_noise(Z: ArrayLike, rng: np.random.Generator) -> NDArray[np.floating[Any]]:
    rows = np.asarray(Z, dtype=float)
    return rows + NOISE * rows.std(axis=0) * rng.normal(size=rows.shape)
