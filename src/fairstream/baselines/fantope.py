"""Optimise over relaxed projections: symmetric P with eigenvalues in [0, 1] and trace k (the fantope)."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fairstream.baselines.base import Array
from fairstream.linalg import eigh, lapack, small_lapack
from fairstream.linalg.memory import refuse_beyond_memory

_SMALL = 512  # up to here one thread is faster
_OVER_RELAXATION = 1.6
_CHECK_EVERY = 10
_ADAPT_EVERY, _ADAPT_UNTIL = 50, 2_000
_JUMP_EVERY, _MEMORY = 5, 10


def symmetric(A: Array) -> Array:
    """Return the symmetric part of A."""
    return (A + A.T) / 2


def to_fantope(A: Array, rank: int) -> Array:
    """Return the nearest matrix with eigenvalues in [0, 1] and trace `rank`.

    Examples
    --------
    >>> to_fantope(np.diag([3.0, 0.5, 0.0]), 1).diagonal().tolist()
    [1.0, 0.0, 0.0]
    """
    values, vectors = eigh(symmetric(A))
    projected: Array = (vectors * _capped_simplex(values, rank)) @ vectors.T
    return projected


def _capped_simplex(values: NDArray[np.floating], total: int) -> Array:
    """Return min(max(values - t, 0), 1) with t such that the sum is `total`.

    The sum falls piecewise linearly in t with kinks at the values and the values minus one: bracket, then
    solve.
    """
    values = values - np.partition(values, -total)[-total]  # then t is in [-1, 0]: nothing cancels
    kinks = np.unique(np.concatenate([values, values - 1]))
    sums = np.clip(values - kinks[:, None], 0, 1).sum(axis=1)
    right = int(np.searchsorted(-sums, -float(total)))
    if right == 0:
        shift = kinks[0]
    else:
        low, high = kinks[right - 1], kinks[right]
        shift = low + (high - low) * (sums[right - 1] - total) / (sums[right - 1] - sums[right])
    capped: Array = np.clip(values - shift, 0, 1)
    return capped


@dataclass(frozen=True, slots=True)
class RelaxedProjection:
    """A point of the fantope, the squared norms |G_i'P|^2, and how far the iteration came."""

    P: Array
    squared_norms: Array
    n_iter: int
    residual: float


def penalised_projection(
    C: Array,
    factors: tuple[Array, Array],
    k: int,
    *,
    weight: float,
    bound: float | None,
    tolerance: float,
    max_iter: int,
) -> RelaxedProjection:
    """Minimise -<C, P> + weight (|G_0'P|^2 + |G_1'P|^2) over the fantope, with spectral norms.

    ADMM with Anderson's acceleration, for P and T = SP, in which S stacks I, G_0' and G_1'. S'S is a multiple
    of I, so the step in P is a product; the step in T is a projection on the fantope and two singular value
    decompositions of size d; Schur complements would take eigenvalues of size 2d.

    Parameters
    ----------
    C : ndarray of shape (d, d)
        What is worth keeping.
    factors : pair of ndarrays with d rows
        G_0 and G_1, with G_0 G_0' + G_1 G_1' a multiple of the identity.
    k : int
        Trace of P.
    weight : float
        Weight of the squared norms.
    bound : float, optional
        Upper bound on the first entry of P's diagonal.
    tolerance : float
        Relative size of the primal and dual residuals at which to stop.
    max_iter : int
        Iterations at most.

    Examples
    --------
    >>> G = np.eye(3) / np.sqrt(2)
    >>> C = np.diag([3.0, 2.0, 1.0])
    >>> found = penalised_projection(C, (G, G), 1, weight=0.0, bound=None, tolerance=1e-9, max_iter=1000)
    >>> found.P.diagonal().round(6).tolist()
    [1.0, 0.0, 0.0]
    """
    n_entries = len(C) * (len(C) + sum(G.shape[1] for G in factors))
    refuse_beyond_memory(
        8 * n_entries * (2 * _MEMORY + 10),
        f"solving for a projection of size {len(C):,}",
        "reduce the features first, or use KleindessnerFairPCA(fraction=0.85)",
    )
    splitting = _Splitting(C, factors, k, weight, _BoundedFantope(k, bound, tolerance))
    threads = small_lapack() if len(C) <= _SMALL else nullcontext()
    with threads:
        n_iter = _iterate(splitting, tolerance, max_iter)
    P = splitting.T[: len(C)]
    squared_norms = [float(lapack(np.linalg.norm, G.T @ P, 2)) ** 2 if G.size else 0.0 for G in factors]
    return RelaxedProjection(P, np.array(squared_norms), n_iter, max(splitting.residuals()))


def _iterate(splitting: _Splitting, tolerance: float, max_iter: int) -> int:
    """Iterate until both residuals are small; return the number of steps."""
    accelerated = _Acceleration()
    z, plain = splitting.start(), None
    adapted = 0
    for step in range(1, max_iter + 1):
        f = splitting.move(z)
        if plain is not None and np.linalg.norm(f) > plain.length:
            z = plain.z  # the accelerated step was worse: take the plain one
            accelerated.forget()
            f = splitting.move(z)
        plain = None
        if step % _CHECK_EVERY == 0:
            primal, dual = splitting.residuals()
            if max(primal, dual) <= tolerance:
                break
            factor = float(np.clip(np.sqrt(primal / max(dual, 1e-300)), 0.2, 5))
            if step >= adapted + _ADAPT_EVERY and step <= _ADAPT_UNTIL and not 0.5 < factor < 2:
                z, adapted = splitting.rescale(factor), step
                accelerated.forget()
                continue
        accelerated.remember(z, f)
        if step % _JUMP_EVERY == 0 and accelerated.changes:
            plain = _Plain(z + f, float(np.linalg.norm(f)))
            z = accelerated.jump(z, f)
        else:
            z = z + f
    return step


class _Plain(NamedTuple):
    """The plain step that acceleration replaced, and its length, which must not be exceeded."""

    z: Array
    length: float


class _Splitting:
    """The fixed-point iteration on z = T + D, with T = SP at the solution and D the multipliers."""

    def __init__(
        self, C: Array, factors: tuple[Array, Array], k: int, weight: float, fantope: _BoundedFantope
    ) -> None:
        d = len(C)
        # With G_0 G_0' + G_1 G_1' = I both parts of S weigh the same, whatever the units of the features.
        unit = np.sqrt(sum(float(np.sum(G**2)) for G in factors) / d) or 1.0
        self.C, self.k, self.weight, self.fantope = C, k, weight * unit**2, fantope
        self.S = np.vstack([np.eye(d), *(G.T / unit for G in factors)])
        self.square = float(np.sum(self.S**2)) / d  # S'S = square I
        self.parts = np.cumsum([d, *(G.shape[1] for G in factors)])
        self.size = max(float(np.linalg.norm(C)), self.weight * k / d, 1e-300)
        self.rho = 0.1 * self.size * np.sqrt(d) / k
        self.T = self.D = np.empty((0, d))

    def start(self) -> Array:
        return self.S * (self.k / len(self.C))

    def move(self, z: Array) -> Array:
        """Return by how much a step changes z; leave T and D."""
        d = len(self.C)
        self.T = np.empty_like(z)
        self.T[:d] = self.fantope.nearest(z[:d])
        for start, stop in pairwise(self.parts):
            self.T[start:stop] = _shrunk_norm(z[start:stop], self.weight / self.rho)
        self.D = z - self.T
        P = symmetric(self.S.T @ (self.T - self.D) + self.C / self.rho) / self.square
        moved: Array = _OVER_RELAXATION * (self.S @ P - self.T)
        return moved

    def residuals(self) -> tuple[float, float]:
        """Return how far T is from any SP, and the multipliers from balancing C, relative to their size."""
        nearest = self.S @ (symmetric(self.S.T @ self.T) / self.square)
        primal = np.linalg.norm(self.T - nearest) / np.linalg.norm(self.T)
        dual = np.linalg.norm(self.rho * symmetric(self.S.T @ self.D) - self.C) / self.size
        return float(primal), float(dual)

    def rescale(self, factor: float) -> Array:
        """Change the penalty parameter; return the z of the same T and multipliers."""
        self.rho *= factor
        self.fantope.rescale(factor)
        return self.T + self.D / factor


class _Acceleration:
    """Anderson's acceleration of z -> z + f: combine past points so that their steps nearly cancel."""

    def __init__(self) -> None:
        self.last: tuple[Array, Array] | None = None
        self.changes: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)  # of z + f, and of f

    def remember(self, z: Array, f: Array) -> None:
        if self.last is not None:
            by_f = f - self.last[1]
            self.changes.append((z - self.last[0] + by_f, by_f))
        self.last = z, f

    def forget(self) -> None:
        self.last = None
        self.changes.clear()

    def jump(self, z: Array, f: Array) -> Array:
        """Return the combination of the remembered points, this one among them, whose steps nearly cancel."""
        gram = np.array([[np.vdot(one, other) for _, one in self.changes] for _, other in self.changes])
        gram += 1e-10 * max(np.trace(gram), 1e-300) * np.eye(len(gram))
        weights = lapack(np.linalg.solve, gram, [np.vdot(by_f, f) for _, by_f in self.changes])
        jumped = z + f
        for weight, (by_point, _) in zip(weights, self.changes, strict=True):
            jumped -= weight * by_point
        return jumped


def _shrunk_norm(M: Array, weight: float) -> Array:
    """Return the Y with the smallest |Y - M|_F^2 / 2 + weight |Y|^2, |Y| the spectral norm.

    Singular values above some level t are cut to it; t balances what is cut off against 2 weight t.
    """
    if not M.size:
        return M
    vectors = eigh(M.T @ M)[1][:, ::-1]
    scaled = M @ vectors
    values = np.linalg.norm(scaled, axis=0)
    levels = np.cumsum(values) / (np.arange(1, len(values) + 1) + 2 * weight)
    n_cut = int(np.sum(values > levels))
    if n_cut == 0:
        return M
    lost = 1 - levels[n_cut - 1] / values[:n_cut]
    shrunk: Array = M - (scaled[:, :n_cut] * lost) @ vectors[:, :n_cut].T
    return shrunk


class _BoundedFantope:
    """Project on the fantope, with a bound on the first diagonal entry.

    The nearest such matrix is to_fantope(A - shift e e') with e the first unit vector and shift >= 0 such
    that the bound just holds. The shift hardly changes from one step of the iteration to the next.
    """

    def __init__(self, rank: int, bound: float | None, tolerance: float) -> None:
        self.rank = rank
        self.bound = bound
        self._search = None if bound is None else _ShiftSearch(rank, bound, tolerance)
        self._shift = 0.0
        self._last_change = 0.0

    def rescale(self, factor: float) -> None:
        """Follow a change of the penalty parameter."""
        self._shift /= factor

    def nearest(self, A: Array) -> Array:
        """Return the nearest matrix."""
        if self.bound is None or self._search is None:
            return to_fantope(A, self.rank)
        before = self._shift
        self._shift, found = self._search.root(A, before, max(2 * self._last_change, self.bound))
        self._last_change = abs(self._shift - before)
        return found


class _ShiftSearch:
    """Find the shift at which to_fantope(A - shift e e') keeps a bound on its first entry."""

    def __init__(self, rank: int, bound: float, tolerance: float) -> None:
        self.rank, self.bound, self.tolerance = rank, bound, tolerance
        self._start(np.empty((0, 0)))

    def root(self, A: Array, shift: float, step: float) -> tuple[float, Array]:
        """Return the shift and its matrix; `shift` is a guess, `step` how far off it may be."""
        self._start(A)
        found = self._root(shift, step)
        return found, self._matrix(found)

    def _start(self, A: Array) -> None:
        self._A = A
        self._known: dict[float, float] = {}
        self._latest: tuple[float, Array] = np.nan, A

    def _matrix(self, shift: float) -> Array:
        if self._latest[0] != shift:
            shifted = self._A.copy()
            shifted[0, 0] -= shift
            self._latest = shift, to_fantope(shifted, self.rank)
        return self._latest[1]

    def _excess(self, shift: float) -> float:
        """Return how far the first entry is above the bound, exactly 0 within the tolerance."""
        if shift not in self._known:
            excess = float(self._matrix(shift)[0, 0]) - self.bound
            self._known[shift] = 0.0 if abs(excess) <= self.tolerance * self.bound else excess
        return self._known[shift]

    def _root(self, shift: float, step: float) -> float:
        """Return the shift at which the bound just holds, 0 if it holds without one."""
        upwards = self._excess(shift) > 0
        other, furthest = shift, 1e15 * (1 + float(np.abs(self._A).max()))
        while self._excess(other) and (self._excess(other) > 0) == upwards:
            if (other == 0 and not upwards) or other > furthest:
                return other
            shift, other = other, max(0.0, other + step if upwards else other - step)
            step *= 4
        if not self._excess(other):
            return other
        return float(brentq(self._excess, shift, other, xtol=1e-15 * max(shift, other), maxiter=1_000))
