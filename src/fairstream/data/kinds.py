"""The same kind out as in: rows as they were passed, and results as the kind of thing that was passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairstream.data.frames import eager_frame, like
from fairstream.data.tensors import TensorRows, as_before, as_matrix, is_tensor, tensor_like
from fairstream.linalg import FloatArray


class Given:
    """Rows of any kind on the way in, and what was computed from them on the way out.

    Parameters
    ----------
    X : array, sparse matrix, frame or tensor
    axis : int, optional
        The axis of an array or tensor that holds the features; all others together count its rows.

    Attributes
    ----------
    rows : array, sparse matrix, frame or TensorRows
        What to compute with: a tensor's memory if NumPy can see it, else rows that are fetched block by
        block; anything else as it is.

    Examples
    --------
    >>> given = Given(np.zeros((2, 5, 3)), axis=-1)
    >>> given.rows.shape
    (10, 3)
    >>> given.back(np.zeros((10, 2)), ["u", "v"]).shape
    (2, 5, 2)
    """

    def __init__(self, X: Any, axis: int | None = None) -> None:
        self._X, self._axis = X, axis
        self._others: tuple[int, ...] = ()
        if axis is not None:
            if sp.issparse(X) or not (is_tensor(X) or isinstance(X, np.ndarray)):
                raise ValueError(f"axis={axis} is for arrays and tensors, X is a {type(X).__name__}")
            X, self._others = as_matrix(X, axis)
        elif is_tensor(X) and len(X.shape) != 2:
            raise ValueError(
                f"X has shape {tuple(X.shape)}: pass one row per sample, or axis=-1 if the last axis holds "
                "the features"
            )
        self.rows: Any = TensorRows(X).seen if is_tensor(X) else X

    @property
    def is_frame(self) -> bool:
        """Whether a frame was given, so that what goes back has names."""
        return eager_frame(self._X) is not None

    def back(self, rows: FloatArray, names: Sequence[str] | None = None) -> Any:
        """Return rows as the kind of thing that was given: a frame with its index, a tensor on its device.

        Parameters
        ----------
        rows : array (n, width)
        names : sequence of str, optional
            Of the columns, for a frame; by default those of the frame that was given.

        Returns
        -------
        frame, tensor or array
            A tensor of floats keeps their type, half precision too. Lists and sparse matrices give arrays.
        """
        if is_tensor(self._X):
            made = tensor_like(rows, self._X)
        else:
            made = like(rows, self._X, names)
        return made if self._axis is None else as_before(made, self._axis, self._others)
