"""The rows that a model is applied to: checked, and mapped slice by slice so that no copy of them exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.data.matrices import check_matrix
from fairstream.linalg import FloatArray, is_finite

_SLICE_BYTES = 16_000_000


def checked_matrix(
    X: Any,
    n_columns: int,
    feature_names: tuple[str, ...] | None = None,
    *,
    name: str = "X",
    sparse: bool = True,
) -> Matrix:
    """Return X as something with rows of `n_columns` real numbers, or say what is wrong with it.

    Arrays, also such as lie in a file, and sparse matrices are returned as they are; frames and lists become
    arrays. A frame whose columns are named otherwise than the features is refused.

    Examples
    --------
    >>> checked_matrix([[1, 2], [3, 4]], 2).shape
    (2, 2)
    >>> checked_matrix(np.array([["a", "b"]]), 2)
    Traceback (most recent call last):
    ValueError: X has dtype <U1: pass real numbers
    """
    if sp.issparse(X) and not sparse:
        raise ValueError(f"{name} is sparse: pass an array")
    check_matrix(X, name)
    _check_column_names(X, n_columns, feature_names, name)
    if not isinstance(getattr(X, "dtype", None), np.dtype):
        X = np.asarray(X)
    if len(X.shape) != 2 or X.shape[1] != n_columns:
        raise ValueError(f"{name} has shape {tuple(X.shape)}, {n_columns} columns are expected")
    if X.dtype.kind == "O":
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} has values that are not numbers: pass real numbers") from None
    elif X.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {X.dtype}: pass real numbers")
    return X


def _check_column_names(X: Any, n_columns: int, feature_names: tuple[str, ...] | None, name: str) -> None:
    """Refuse a frame with the right number of columns in another order or under other names."""
    columns = [*getattr(X, "columns", ())]
    if feature_names is None or len(columns) != n_columns or not all(isinstance(c, str) for c in columns):
        return
    for found, wanted in zip(columns, feature_names, strict=True):
        if found != wanted:
            raise ValueError(
                f"{name} has the column {found!r} where {wanted!r} is expected: select the columns in the "
                "order of feature_names"
            )


def check_finite(values: NDArray[Any], name: str = "X") -> None:
    """Refuse NaN and infinity."""
    if not is_finite(values):
        raise ValueError(f"{name} has NaN or infinite values: drop those rows or fill them in first")


def by_slices(
    X: NDArray[Any], width: int, dtype: Any, apply: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Check and map rows slice by slice, so that no second copy of X exists and X is read once."""
    if X.dtype in (np.float32, np.float64):
        dtype = X.dtype
    result = np.empty((X.shape[0], width), dtype=dtype)
    for rows, values in checked_slices(X):
        result[rows] = apply(values.astype(dtype, copy=False))
    return result


def checked_slices(X: Matrix) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield rows slice by slice, checked and dense."""
    X = sp.csr_array(X) if sp.issparse(X) else X
    step = max(1, _SLICE_BYTES // (8 * max(X.shape[1], 1)))
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        values = X[rows].toarray() if sp.issparse(X) else np.asarray(X[rows])
        check_finite(values)
        yield rows, values
