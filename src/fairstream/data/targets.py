"""Targets as numbers: numbers stay as they are, each of two classes gets a number from its label alone."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TargetNumbers:
    """Turns the target of block after block into numbers.

    The number of a class depends on its label alone, not on which class comes first: parts of the data that
    are collected apart agree on it. Missing values become NaN.

    Examples
    --------
    >>> one, other = TargetNumbers(), TargetNumbers()
    >>> list(one(["yes", "no"])) == list(reversed(other(["no", "yes"])))
    True
    >>> one([0, 1, 1])
    array([0., 1., 1.])
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, float] = {}

    def __call__(self, target: Any) -> NDArray[np.float64] | None:
        """Return a number for each value; refuse a third class."""
        if target is None:
            return None
        values = np.asarray(target)
        if values.dtype.kind in "fiub":
            return values.astype(np.float64)
        listed = values.tolist()
        known = self._classes | {label: _number(label) for label in listed if label not in self._classes}
        if sum(number == number for number in known.values()) > 2:
            found = ", ".join(repr(label) for label in [*known][:4])
            raise ValueError(
                f"y has more than two classes ({found}, ...): join some, or name the features and leave y out"
            )
        self._classes = known
        return np.array([known[label] for label in listed], dtype=np.float64)


def _number(label: Hashable) -> float:
    if label is None or label != label:
        return float("nan")
    if isinstance(label, bool | int | float):
        return float(label)
    text = f"{type(label).__name__}\0{label!r}".encode()
    # 48 bits: a float holds such a whole number exactly.
    return float(int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "little"))
