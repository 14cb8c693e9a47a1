"""Which library multiplies the rows of dense blocks: NumPy, or torch on a processor or a graphics card."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fairstream.errors import missing_extra

BACKENDS = ("numpy", "torch")
_device: ContextVar[Any] = ContextVar("device of torch; None for NumPy", default=None)


@contextmanager
def backend(name: str, device: str = "cpu") -> Iterator[None]:
    """Let another library multiply rows, for everything that is fitted inside the `with`.

    Parameters
    ----------
    name : {"numpy", "torch"}
        "torch" needs the extra `torch`. Only products with the rows of dense blocks are its work: models,
        files and checkpoints are the same, and their numbers agree to rounding.
    device : str, default "cpu"
        What `torch.device` takes, such as "cuda" or "cuda:1"; for "torch" only.

    Notes
    -----
    It holds for the thread that enters it and for the threads that fairstream starts for it, not for the
    workers of a Dask cluster. No graphics card was at hand when this was tested: only "cpu" was.

    Examples
    --------
    >>> import fairstream
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> with fairstream.backend("numpy"):
    ...     model = fairstream.FairStreamingPCA(2).fit(X, sensitive_features=X[:, 0] > 0)
    >>> model.components_.shape
    (2, 5)
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}: use one of {', '.join(map(repr, BACKENDS))}")
    before = _device.set(None if name == "numpy" else _torch_device(device))
    try:
        yield
    finally:
        _device.reset(before)


def torch_device() -> Any:
    """Return the device of torch that multiplies rows; None if NumPy does."""
    return _device.get()


def _torch_device(device: str) -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise missing_extra("torch", "torch", 'backend("torch")') from error
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}, which torch does not have here: {error}") from error
    with warnings.catch_warnings():  # torch warns of read-only arrays once; rows are never written to
        warnings.simplefilter("ignore")
        torch.from_numpy(np.broadcast_to(np.zeros(1), 2)[:1])
    return found
