"""FairProjection: a fair subspace as a torch module, for models to hold and state dicts to save."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairstream.errors import missing_extra
from fairstream.linalg import FloatArray

try:
    import torch
except ModuleNotFoundError:  # `projection` names the extra before anything here is called
    torch = None

_Module: Any = object if torch is None else torch.nn.Module


class FairProjection(_Module):  # type: ignore[misc]
    """Embeds and erases on whatever device it is moved to, along the last axis; gradients pass through.

    Parameters
    ----------
    mean : tensor (d,)
    components : tensor (k, d)
        Orthonormal rows.
    unfair_basis : tensor (m', d)
        Orthonormal rows.
    scale : tensor (k,)
        What coordinates are divided by: ones, or their deviations.
    only_scores : bool
        Whether only the k coordinates are fair, as in a guarded model: then `erase` returns what they stand
        for.

    Notes
    -----
    All tensors are buffers: `state_dict` holds them, `to` moves them, no optimiser changes them. Input of
    another type is computed in theirs and comes back in its own, so that half precision is rounded once.
    """

    def __init__(
        self, mean: Any, components: Any, unfair_basis: Any, scale: Any, only_scores: bool = False
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)
        self.register_buffer("unfair_basis", unfair_basis)
        self.register_buffer("scale", scale)
        self.only_scores = only_scores

    def forward(self, X: Any) -> Any:
        """Return the fair coordinates (..., k) of X (..., d)."""
        return _rounded(self._embedded(self._widened(X)), X)

    def erase(self, X: Any) -> Any:
        """Return X (..., d) without its unfair part."""
        rows = self._widened(X)
        if self.only_scores:
            return _rounded(self._reconstructed(self._embedded(rows)), X)
        return _rounded(rows - (rows - self.mean) @ self.unfair_basis.T @ self.unfair_basis, X)

    def reconstruct(self, Z: Any) -> Any:
        """Return the rows (..., d) that coordinates Z (..., k) stand for."""
        return _rounded(self._reconstructed(self._widened(Z)), Z)

    def extra_repr(self) -> str:
        """Return the sizes, for torch's description of a model."""
        k, d = self.components.shape
        return f"n_features={d}, n_components={k}, n_removed={len(self.unfair_basis)}"

    def _widened(self, X: Any) -> Any:
        return X.to(self.mean.dtype)

    def _embedded(self, rows: Any) -> Any:
        return (rows - self.mean) @ self.components.T / self.scale

    def _reconstructed(self, Z: Any) -> Any:
        return (Z * self.scale) @ self.components + self.mean


def _rounded(result: Any, X: Any) -> Any:
    """Return a result in the type of what it was computed from, if that is a type of floats."""
    return result.to(X.dtype) if X.dtype.is_floating_point else result


def projection(
    mean: FloatArray, components: FloatArray, unfair_basis: FloatArray, scale: FloatArray, only_scores: bool
) -> FairProjection:
    """Return the module of these arrays, which are copied, on the CPU."""
    if torch is None:
        raise missing_extra("torch", "torch", "a torch module")
    mean, components, unfair_basis, scale = (
        torch.from_numpy(np.array(of)) for of in (mean, components, unfair_basis, scale)
    )
    return FairProjection(mean, components, unfair_basis, scale, only_scores)
