"""The type of every array of real numbers, and whether one is finite."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[Any]


def is_finite(array: NDArray[Any]) -> bool:
    """Whether an array holds neither NaN nor infinity; one quick pass, and no copy, unless it nearly does.

    Examples
    --------
    >>> is_finite(np.array([1e308, 1e308])), is_finite(np.array([np.inf, -np.inf]))
    (True, False)
    """
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return True
    return bool(np.isfinite(array).all())
