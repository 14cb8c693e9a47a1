"""Minimise a smooth function of a matrix with orthonormal columns: Riemannian L-BFGS with QR retraction.

Symbols: V is d x k with V'V = I, G the Euclidean gradient at V, g its projection on the tangent space.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fairstream.baselines.base import Array
from fairstream.linalg import lapack

Objective = Callable[[Array], tuple[float, Array]]

_ARMIJO = 1e-4
_MAX_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class StiefelMinimum:
    """The point at which the iteration stopped."""

    V: Array
    value: float
    gradient_norm: float
    n_iter: int


def retract(A: Array) -> Array:
    """Return the orthonormal factor of A = QR with a positive diagonal of R, so that retract(V) is V.

    Examples
    --------
    >>> retract(np.array([[-3.0], [4.0]])).round(6).tolist()
    [[-0.6], [0.8]]
    """
    Q, R = lapack(scipy.linalg.qr, A, mode="economic", check_finite=False)
    signed: Array = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
    return signed


def to_tangent(V: Array, A: Array) -> Array:
    """Return the part of A that is tangent to the manifold at V."""
    inner = V.T @ A
    tangent: Array = A - V @ ((inner + inner.T) / 2)
    return tangent


def minimise(
    objective: Objective, V: Array, *, tolerance: float, max_iter: int, memory: int = 20, noise: float = 0.0
) -> StiefelMinimum:
    """Minimise from V until the gradient's norm is below `tolerance`.

    Parameters
    ----------
    objective : callable
        Returns the value and the Euclidean gradient (d x k) at V.
    V : ndarray of shape (d, k)
        Start, with orthonormal columns.
    tolerance : float
        Norm of the Riemannian gradient that counts as zero.
    max_iter : int
        Steps at most.
    memory : int
        Pairs of steps and gradient changes that are remembered.
    noise : float
        Error of the values. A step may raise the value by it: near the minimum gradients are more accurate.

    Returns
    -------
    StiefelMinimum
        Without noise the value never exceeds the one at the start.

    Examples
    --------
    >>> C = np.diag([3.0, 2.0, 1.0])
    >>> start = retract(np.ones((3, 1)))
    >>> result = minimise(lambda V: (-np.sum(V * (C @ V)), -2 * C @ V), start, tolerance=1e-8, max_iter=100)
    >>> round(float(result.value), 6)
    -3.0
    """
    value, G = objective(V)
    g = to_tangent(V, G)
    pairs: deque[tuple[Array, Array]] = deque(maxlen=memory)
    norm = float(np.linalg.norm(g))
    for step in range(max_iter):
        if norm <= tolerance:
            return StiefelMinimum(V, value, norm, step)
        direction = to_tangent(V, _two_loop(g, pairs))
        if np.sum(direction * g) > -1e-12 * norm * np.linalg.norm(direction):
            pairs.clear()  # not a descent direction: the stored curvature is no longer useful
            direction = -g
        length = 1.0 if pairs else min(1.0, 1.0 / norm)
        found = _search(objective, V, value + noise, direction, float(np.sum(direction * g)), length)
        if found is None:
            if not pairs:
                return StiefelMinimum(V, value, norm, step)
            pairs.clear()
            continue
        length, V_new, value, G = found
        g_new = to_tangent(V_new, G)
        # Everything remembered is carried to the new tangent space by projection.
        moved = [(to_tangent(V_new, s), to_tangent(V_new, y)) for s, y in pairs]
        s, y = to_tangent(V_new, length * direction), g_new - to_tangent(V_new, g)
        pairs.clear()
        pairs.extend(moved)
        if np.sum(s * y) > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
            pairs.append((s, y))
        V, g, norm = V_new, g_new, float(np.linalg.norm(g_new))
    return StiefelMinimum(V, value, norm, max_iter)


def _two_loop(g: Array, pairs: deque[tuple[Array, Array]]) -> Array:
    """Return minus the inverse Hessian estimate times g."""
    q = g.copy()
    used = [(s, y, float(np.sum(s * y))) for s, y in pairs]
    used = [(s, y, sy) for s, y, sy in used if sy > 0]  # projection may have turned a pair
    weights = []
    for s, y, sy in reversed(used):
        weight = float(np.sum(s * q)) / sy
        q -= weight * y
        weights.append(weight)
    if used:
        _, y, sy = used[-1]
        q *= sy / float(np.sum(y * y))
    for (s, y, sy), weight in zip(used, reversed(weights), strict=True):
        q += (weight - float(np.sum(y * q)) / sy) * s
    return -q


def _search(
    objective: Objective, V: Array, value: float, direction: Array, slope: float, length: float
) -> tuple[float, Array, float, Array] | None:
    """Return step length, point, value and gradient of a sufficient step, None if there is none."""
    for _ in range(_MAX_HALVINGS):
        candidate = retract(V + length * direction)
        new_value, G = objective(candidate)
        if new_value <= value + _ARMIJO * length * slope:
            return length, candidate, new_value, G
        # The minimum of the parabola through both values and the slope, kept away from both ends.
        curved = 2 * (new_value - value - length * slope)
        length *= float(np.clip(-length * slope / curved if curved > 0 else 0.5, 0.1, 0.5))
    return None
