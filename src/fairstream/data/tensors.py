"""Tensors of torch and of the array-API standard: as rows for NumPy block by block, and back again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.other_libraries import is_dask_array, is_torch
from fairstream.linalg import FloatArray

# Types that NumPy lacks, and the smallest of its own that holds them. All others keep their name.
_HELD_BY = {"bfloat16": "float32"}


def is_tensor(X: Any) -> bool:
    """Whether it is a tensor of torch or another array of the array-API standard, but not of NumPy.

    Examples
    --------
    >>> is_tensor(np.eye(2))
    False
    """
    if isinstance(X, np.ndarray | np.generic) or is_dask_array(X):
        return False
    return is_torch(X) or hasattr(X, "__array_namespace__")


class TensorRows:
    """A tensor as something with rows for NumPy: `rows[start:stop]` fetches and converts these rows alone.

    Parameters
    ----------
    X : tensor (n, d)
        Of any device and real type. Gradients are left behind.
    """

    ndim = 2

    def __init__(self, X: Any) -> None:
        self._X = X.detach() if is_torch(X) else X
        self.shape = tuple(map(int, X.shape))
        own = _type_name(X)
        try:
            self.dtype = np.dtype(_HELD_BY.get(own, own))
        except TypeError:
            raise ValueError(f"X has dtype {X.dtype}: pass real numbers") from None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice | tuple[slice, slice]) -> Any:
        """Return some rows: a view if NumPy can see them where they are, else a copy.

        With a slice of columns too, nothing is fetched yet.
        """
        return TensorRows(self._X[key]) if isinstance(key, tuple) else fetched(self._X[key, :])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows."""
        return np.array(self[:], dtype=dtype, copy=copy or None)

    @property
    def seen(self) -> NDArray[Any] | TensorRows:
        """The whole as an array if NumPy can see it where it is, else itself."""
        return self[:] if np.shares_memory(self[:1], self[:1]) else self


def fetched(X: Any) -> NDArray[Any]:
    """Return an array, or what a tensor of any device and type holds: a view if NumPy can see it.

    Examples
    --------
    >>> fetched([1.0, 2.0])
    array([1., 2.])
    """
    if not is_tensor(X):
        return np.asarray(X)
    wider = _HELD_BY.get(_type_name(X))
    if is_torch(X):
        X = X.detach()
        return np.asarray((X.float() if wider else X).cpu().numpy())
    if wider:
        X = X.__array_namespace__().astype(X, getattr(X.__array_namespace__(), wider))
    try:
        return np.from_dlpack(X)
    except (BufferError, RuntimeError, TypeError, ValueError):  # on another device, or read-only
        return np.asarray(X.get() if hasattr(X, "get") else X)  # CuPy copies by name only


def tensor_like(rows: FloatArray, X: Any) -> Any:
    """Return rows as the kind of tensor that X is, on its device and, if that is a float, of its type."""
    if is_torch(X):
        import torch

        made = torch.from_numpy(rows)
        return made.to(device=X.device, dtype=X.dtype if X.dtype.is_floating_point else made.dtype)
    namespace = X.__array_namespace__()
    made = namespace.asarray(rows, device=X.device)
    if namespace.isdtype(X.dtype, "real floating") and made.dtype != X.dtype:
        made = namespace.astype(made, X.dtype)
    return made


def as_matrix(X: Any, axis: int) -> tuple[Any, tuple[int, ...]]:
    """Return an array or tensor as rows, and the lengths of its other axes; `axis` holds the features.

    Examples
    --------
    >>> rows, others = as_matrix(np.zeros((2, 5, 3)), 1)
    >>> rows.shape, others
    ((6, 5), (2, 3))
    """
    n_axes = len(X.shape)
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -n_axes <= axis < n_axes:
        raise ValueError(f"axis={axis!r}, X has shape {tuple(X.shape)}: give the axis of the features")
    X = _moved(X, axis, n_axes - 1)
    others = tuple(map(int, X.shape[:-1]))
    shape = (math.prod(others), int(X.shape[-1]))
    return _reshaped(X, shape), others


def as_before(rows: Any, axis: int, others: tuple[int, ...]) -> Any:
    """Return rows in the axes that `as_matrix` took them from.

    Examples
    --------
    >>> as_before(np.zeros((6, 4)), 1, (2, 3)).shape
    (2, 4, 3)
    """
    return _moved(_reshaped(rows, (*others, int(rows.shape[1]))), len(others), axis % (len(others) + 1))


def _moved(X: Any, source: int, destination: int) -> Any:
    if is_torch(X):
        return X.movedim(source, destination)
    if not is_tensor(X):
        return np.moveaxis(np.asarray(X), source, destination)
    order = [axis for axis in range(X.ndim) if axis != source % X.ndim]
    order.insert(destination, source % X.ndim)
    return X.__array_namespace__().permute_dims(X, tuple(order))


def _reshaped(X: Any, shape: tuple[int, ...]) -> Any:
    if is_tensor(X) and not is_torch(X):
        return X.__array_namespace__().reshape(X, shape)
    return X.reshape(shape)


def _type_name(X: Any) -> str:
    return str(X.dtype).rpartition(".")[2]  # torch.float32, array_api_strict.float64, float32
