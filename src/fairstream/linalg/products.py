"""The numbers of a block's rows: what they must be, and the products that are taken with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def check_values(values: NDArray[Any], dtype: DTypeLike, *, scale_known: bool = False) -> None:
    """Refuse NaN, infinity, and numbers whose products would overflow or underflow in `dtype`.

    Neither may pass: an unfair direction of infinite size, or of size zero, is none, and nothing would be
    nulled. The upper limit leaves a factor of 1e12 for how many products are summed, the lower one of 1e6 for
    how small a product may be beside the largest. Rows that are all tiny are harmless after larger ones
    (`scale_known`), and so are zeros.

    Examples
    --------
    >>> check_values(np.array([1e30], dtype=np.float32), np.float32)
    Traceback (most recent call last):
    ValueError: X has values up to 1e+30: beyond 1.8e+13 sums of squares overflow in float32, rescale X
    """
    limit = largest_value(dtype)
    least = 1e3 * float(np.sqrt(np.finfo(dtype).tiny))
    if values.size == 0 or (values.dtype.kind in "bui" and values.dtype.itemsize <= 4):
        return
    if values.dtype.kind == "f" and values.ndim <= 2:
        # One quick pass tells for nearly all data: NaN, infinity and a large number all show in the squares.
        squares = np.einsum(values, [*range(values.ndim)], values, [*range(values.ndim)], [])
        own = np.finfo(values.dtype)
        least_squares = values.size * max(least**2, float(own.tiny))
        if (scale_known or squares >= least_squares) and squares <= min(limit, float(np.sqrt(own.max))) ** 2:
            return
    largest = max(abs(float(values.min())), abs(float(values.max())))  # NaN if any value is
    if not np.isfinite(largest):
        raise ValueError("X has NaN or infinite values: drop those rows or fill them in first")
    if largest > limit:
        raise ValueError(
            f"X has values up to {largest:.2g}: beyond {limit:.2g} sums of squares overflow in "
            f"{np.dtype(dtype)}, rescale X"
        )
    if 0 < largest < least and not scale_known:
        raise ValueError(
            f"X has no value beyond {largest:.2g}: below {least:.2g} sums of squares underflow in "
            f"{np.dtype(dtype)}, rescale X"
        )


def largest_value(dtype: DTypeLike) -> float:
    """Return the largest value whose products can be summed in `dtype`.

    Examples
    --------
    >>> f"{largest_value(np.float32):.2g}"
    '1.8e+13'
    """
    return 1e-6 * float(np.sqrt(np.finfo(dtype).max))
