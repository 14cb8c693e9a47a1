"""Checks of matrices: refuses masked arrays, types other than real numbers, and damaged sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def check_matrix(X: Any, name: str = "X") -> None:
    """Refuse a masked array, and a sparse matrix whose index arrays do not describe its shape.

    SciPy's compiled code does not check indices: a wrong one reads or writes foreign memory. So call this
    before anything else uses the matrix. It takes one pass over the indices and no copy.

    Examples
    --------
    >>> broken = sp.csr_array(np.eye(3))
    >>> broken.indices[1] = 7
    >>> check_matrix(broken)
    Traceback (most recent call last):
    ValueError: X is a damaged sparse matrix: it has a column index outside 0 to 2; build it again
    """
    if isinstance(X, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, and the mask would be lost: fill in what is masked (np.ma.filled, or "
            "an imputer), or drop those rows"
        )
    if sp.issparse(X):
        check_sparse(X, name)


def check_shape_and_type(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is not a numeric array with rows and columns."""
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects: save or pass plain numbers, or a DataFrame")
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} has type {dtype}: pass real numbers, or a DataFrame for mixed columns")
    if len(shape) < 2:
        raise ValueError(
            f"{name} has shape {shape}: pass one row per sample, .reshape(-1, 1) for a single feature"
        )


def check_sparse(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays do not describe its shape; formats without them pass."""
    if len(X.shape) != 2:
        raise ValueError(f"{name} is a sparse array of shape {X.shape}: pass a matrix, one row per sample")
    if X.format == "coo":
        for axis, indices, size in (("row", X.row, X.shape[0]), ("column", X.col, X.shape[1])):
            _check_indices(name, axis, indices, size)
            if len(indices) != len(X.data):
                raise _damaged(name, f"it has {len(indices)} {axis} indices for {len(X.data)} values")
    elif X.format in ("csr", "csc", "bsr"):
        rows, columns = X.shape
        if X.format == "bsr":
            rows, columns = rows // X.blocksize[0], columns // X.blocksize[1]
        major, minor, axis = (columns, rows, "row") if X.format == "csc" else (rows, columns, "column")
        check_pointers(name, X.indptr, major, min(len(X.indices), len(X.data)))
        _check_indices(name, axis, X.indices, minor)


def check_pointers(name: str, indptr: NDArray[Any], n_rows: int, n_values: int) -> None:
    """Refuse row pointers that do not rise from 0 to at most the number of stored values."""
    if indptr.ndim != 1 or len(indptr) != n_rows + 1:
        raise _damaged(name, f"indptr has shape {indptr.shape}, {n_rows + 1} entries are expected")
    if indptr.dtype.kind not in "iu":
        raise _damaged(name, f"indptr has dtype {indptr.dtype}")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise _damaged(name, "indptr does not rise from 0")
    if indptr[-1] > n_values:
        raise _damaged(name, f"indptr ends at {indptr[-1]}, {n_values} values are stored")


def _check_indices(name: str, axis: str, indices: NDArray[Any], size: int) -> None:
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise _damaged(name, f"its {axis} indices have shape {indices.shape} and dtype {indices.dtype}")
    # As an unsigned number a negative one is very large: one maximum finds both errors.
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))
    if unsigned.size and int(unsigned.max()) >= size:
        raise _damaged(name, f"it has a {axis} index outside 0 to {size - 1}")


def _damaged(name: str, what: str) -> ValueError:
    return ValueError(f"{name} is a damaged sparse matrix: {what}; build it again")
