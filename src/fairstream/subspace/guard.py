"""Guarded components: as much variance as possible, as little as possible for a nonlinear adversary to read.

    maximise   tr(V' Sigma V) / tr_k  -  strength * sum_a R2_a(V)  +  keep * R2_target(V)
    over       V (d x k) with orthonormal columns outside span(U)

R2_a is what the best regularised regression of attribute a on nonlinear features of the standardised scores
explains on rows it was not fitted on; tr_k is the largest tr(V' Sigma V) there is. Every step draws rows and
features anew, so V cannot adapt to one adversary. Sigma comes from the moments of all rows, the adversary
sees a bounded sample of them.

Symbols: Z = X V / s are the scores of sampled rows in units of their deviation, T (n x c) indicators of
groups against the rest, F (n x L) the adversary's features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fairstream.linalg import (
    FloatArray,
    eigh,
    fix_signs,
    lapack,
    orthonormalise,
    orthonormalise_outside,
    project_out,
    small_lapack,
)
from fairstream.moments import GroupMoments

STEPS = 400
ROWS = 4_000
COSINES = 600  # 300 leave networks something to find on Adult (AUC .68, .62 with 600)
ROWS_A_COSINE = 6  # fewer, and the adversary learns its draw by heart
PRODUCTS = 400
RIDGE = 3e-3
RATE = 0.06
SCALES = (0.4, 1.0, 2.5)  # of the cosines, in deviations of a score
LEAST_STEPS = 20
LITTLE_GAIN = 0.01  # of the objective over the last fifth of the steps, beyond noise
FEW_ROWS = 10  # a feature whose variance so many rows carry counts half
FARTHEST = 8.0  # deviations: a score counts no farther in products, so that one row cannot swamp them
SPARSE_SHARE = 0.25  # of the cosines that see one or two scores only, as a tree does


class Adversary(Protocol):
    """Reads targets from scores; drawn anew in every step."""

    def draw(self, k: int, rng: np.random.Generator) -> None:
        """Choose new features of k scores."""

    def score(
        self, Z_fit: FloatArray, T_fit: FloatArray, Z: FloatArray, T: FloatArray
    ) -> tuple[float, FloatArray]:
        """Fit on (Z_fit, T_fit); return R2 on (Z, T) and its gradient with respect to Z."""


class RandomFeatureAdversary:
    """Ridge regression on random cosines of the scores, the scores themselves and, if asked, their products.

    Parameters
    ----------
    n_cosines : int
        Cosines at three scales, a quarter of them on one or two scores only.
    products : bool
        Add products of two scores, at most 400 of them at a time: on data such as images groups differ in
        covariances, which cosines learn slowly.
    ridge : float
        Penalty, relative to features of unit variance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2000, 2)).astype(np.float32)
    >>> T = (np.abs(Z[:, :1]) > 1).astype(np.float32)
    >>> adversary = RandomFeatureAdversary()
    >>> adversary.draw(2, rng)
    >>> r2, gradient = adversary.score(Z[:1000], T[:1000] - T.mean(), Z[1000:], T[1000:] - T.mean())
    >>> bool(r2 > 0.5), gradient.shape
    (True, (1000, 2))
    """

    def __init__(self, n_cosines: int = COSINES, *, products: bool = False, ridge: float = RIDGE) -> None:
        self.n_cosines, self.products, self.ridge = n_cosines, products, ridge
        self._directions: FloatArray = np.zeros((0, n_cosines), dtype=np.float32)
        self._shifts: FloatArray = np.zeros(n_cosines, dtype=np.float32)
        self._pairs: tuple[NDArray[np.intp], NDArray[np.intp]] = np.triu_indices(0)

    def draw(self, k: int, rng: np.random.Generator) -> None:
        """Choose new cosines of k scores."""
        W = rng.normal(size=(k, self.n_cosines)) / rng.choice(SCALES, self.n_cosines)
        for j in range(int(self.n_cosines * SPARSE_SHARE)):
            chosen = rng.choice(k, min(int(rng.integers(1, 3)), k), replace=False)
            W[:, j] = 0
            W[chosen, j] = rng.normal(size=len(chosen)) * rng.choice([1.0, 3.0, 8.0])
        self._directions = W.astype(np.float32)
        self._shifts = rng.uniform(0, 2 * np.pi, self.n_cosines).astype(np.float32)
        left, right = np.triu_indices(k)
        if len(left) > PRODUCTS:
            chosen = rng.choice(len(left), PRODUCTS, replace=False)
            left, right = left[chosen], right[chosen]
        self._pairs = left, right

    def score(
        self, Z_fit: FloatArray, T_fit: FloatArray, Z: FloatArray, T: FloatArray
    ) -> tuple[float, FloatArray]:
        """Fit on (Z_fit, T_fit); return R2 on (Z, T) and its gradient with respect to Z."""
        F_fit, _ = self._features(Z_fit)
        F, phase = self._features(Z)
        gram = (F_fit.T @ F_fit).astype(np.float64) / len(F_fit)
        gram[np.diag_indices_from(gram)] += self.ridge
        moments = (F_fit.T @ T_fit).astype(np.float64) / len(F_fit)
        beta = lapack(scipy.linalg.solve, gram, moments, assume_a="pos", check_finite=False)
        beta = beta.astype(np.float32)
        residual = T - F @ beta
        total = float((T * T).sum())
        gradient = self._pull_back((2.0 / total) * residual, beta, Z, phase)
        return 1.0 - float((residual * residual).sum()) / total, gradient

    def _features(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        phase = Z @ self._directions
        phase += self._shifts
        parts = [np.cos(phase), Z]
        if self.products:
            left, right = self._pairs
            near = np.clip(Z, -FARTHEST, FARTHEST)
            parts.append(near[:, left] * near[:, right] * np.float32(np.sqrt(0.5)))
        F = np.hstack(parts)
        F -= F.mean(axis=0)
        return F, phase

    def _pull_back(
        self, weights: FloatArray, beta: FloatArray, Z: FloatArray, phase: FloatArray
    ) -> FloatArray:
        """Gradient with respect to Z of sum(weights * (features(Z) beta)), the centring left out."""
        n, k = self.n_cosines, Z.shape[1]
        outer = weights @ beta[:n].T
        outer *= np.sin(phase)
        dZ: FloatArray = weights @ beta[n : n + k].T - outer @ self._directions.T
        if self.products:
            near = np.clip(Z, -FARTHEST, FARTHEST)
            inside = near == Z
            for column in range(weights.shape[1]):
                pairs = np.zeros((k, k), dtype=Z.dtype)
                pairs[self._pairs] = beta[n + k :, column] * np.float32(np.sqrt(0.5))
                dZ += weights[:, column : column + 1] * (near @ (pairs + pairs.T)) * inside
        return dZ


@dataclass(frozen=True)
class GuardedAttribute:
    """The sampled rows of every group of one attribute, by row number, and how often each stands for."""

    name: str
    rows: tuple[NDArray[np.intp], ...]
    shares: tuple[FloatArray | None, ...]  # of a group's draws that each row gets; None: equal

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], FloatArray]:
        """Return rows, as many of every group, and centred indicators of the compared groups."""
        each = max(n_rows // len(self.rows), 2)
        drawn = [
            rng.choice(rows, each, replace=share is not None or len(rows) < each, p=share)
            for rows, share in zip(self.rows, self.shares, strict=True)
        ]
        member = np.repeat(np.eye(len(drawn), dtype=np.float32), each, axis=0)
        compared = member[:, 1:] if len(drawn) == 2 else member
        return np.concatenate(drawn), compared - compared.mean(axis=0)


@dataclass(frozen=True)
class GuardResult:
    """What guarding found, and how it got there."""

    components: FloatArray
    objective: FloatArray  # per step, of that step's draw
    adversary: FloatArray  # R2 per step, all attributes together

    @property
    def last_gain(self) -> float:
        """Growth of the objective from the last but one to the last fifth of the steps, less its noise."""
        fifth = len(self.objective) // 5
        if fifth < 2:
            return float("inf")
        last, before = self.objective[-fifth:], self.objective[-2 * fifth : -fifth]
        noise = np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / fifth)
        return float(max(last.mean() - before.mean() - 2 * noise, 0.0))

    @property
    def converged(self) -> bool:
        """Whether the objective has stopped growing; a few steps cannot tell."""
        return len(self.objective) >= LEAST_STEPS and self.last_gain < LITTLE_GAIN


def guarded_from(
    moments: GroupMoments,
    U: FloatArray,
    start: FloatArray,
    *,
    strength: float,
    keep: float = 0.0,
    dither: float = 0.0,
    adversary: Adversary | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> GuardResult:
    """Return guarded components from moments that keep a sample of rows; no pass over data.

    Parameters
    ----------
    moments : GroupMoments
        With `sample`.
    U : array (d, m')
        Orthonormal columns to stay out of.
    start : array (d, k)
        Where the search begins, for instance the components without a guard.
    strength, keep, dither, adversary, seed, progress
        As in `guarded_components`. With `keep` the sample must hold a target. Without an adversary it is a
        `RandomFeatureAdversary`, with products unless most columns of the sample are indicators.

    Returns
    -------
    GuardResult
        Its components are d x k.
    """
    if not moments.groups:
        raise ValueError("guard has no groups to hide: pass sensitive_features")
    if moments.sample is None or not len(moments.sample):
        raise ValueError("guard needs a sample of rows: collect the moments with sample=4096 or so")
    sampled, covariance = moments.sample.rows(), moments.covariance()
    if keep and sampled.target is None:
        raise ValueError("keep_target needs the target of the sampled rows: pass y to fit")
    attributes = []
    for name, labels in moments.groups.items():
        codes = [np.flatnonzero(sampled.codes[name] == code) for code in range(len(sampled.labels[name]))]
        if len(labels) > 1:
            attributes.append(
                GuardedAttribute(name, tuple(codes), tuple(_shares(sampled.weights[c]) for c in codes))
            )
    X = np.asarray(sampled.X, dtype=np.float64) - _settled(moments.mean())
    inside = orthonormalise(covariance.coordinates(U.astype(np.float64)))
    target = None
    if keep and sampled.target is not None:
        deviation = max(float(sampled.target.std()), np.finfo(float).tiny)
        target = ((sampled.target - sampled.target.mean()) / deviation)[:, None]
    rows = min(ROWS, len(X))
    if adversary is None:
        adversary = RandomFeatureAdversary(_cosines(rows), products=not _mostly_indicators(sampled.X))
    trust = np.sqrt(_trust(X, sampled.weights, moments.n_rows))
    weighing = covariance.coordinates(trust[:, None] * covariance.expand(np.eye(len(covariance.core))))
    found = guarded_components(
        covariance.coordinates(X.T).T,
        attributes,
        _settled(covariance.core),
        _settled(covariance.coordinates(start.astype(np.float64))),
        inside,
        worth=_settled(weighing.T @ covariance.core @ weighing),
        strength=strength,
        target=target,
        keep=keep,
        dither=dither,
        adversary=adversary,
        rows=rows,
        seed=seed,
        progress=progress,
    )
    return replace(found, components=fix_signs(covariance.expand(found.components)))


def _trust(X: FloatArray, weights: FloatArray, n_rows: float) -> FloatArray:
    """Return how far the variance of each feature can be trusted, from 0 to 1: r / (r + 10).

    r = n (E x^2)^2 / E x^4 is the number of rows that carry the variance, for an indicator the rows that have
    it. An indicator that one row in the data has, of unit variance after scaling, tells no adversary anything
    and would take a component, but new rows do not have that variance.
    """
    powers, share = X * X, weights / weights.sum()
    second = share @ powers
    powers *= powers
    fourth = share @ powers
    rows = n_rows * second**2 / np.maximum(fourth, np.finfo(np.float64).tiny)
    trust: FloatArray = rows / (rows + FEW_ROWS)
    return trust


def _settled(A: FloatArray) -> FloatArray:
    """Round to about 2^-30 of the largest entry.

    Moments that were summed in another order differ in their last bits, which hundreds of steps would
    magnify; rounded, they give the same components.
    """
    _, exponent = np.frexp(np.abs(A).max(initial=0.0))
    settled: FloatArray = np.ldexp(np.round(np.ldexp(A, 30 - exponent)), exponent - 30)
    return settled


def _cosines(rows: int) -> int:
    """Return how many cosines an adversary can learn from so many rows."""
    return min(COSINES, max(rows // ROWS_A_COSINE, 50))


def _shares(weights: FloatArray) -> FloatArray | None:
    """Return how often each row of a group is drawn, None if all have the same weight."""
    return None if len(weights) == 0 or (weights == weights[0]).all() else weights / weights.sum()


def _mostly_indicators(X: NDArray[np.generic]) -> bool:
    """Whether most columns have two values at most, as one-hot tables do."""
    head = np.sort(X[:1_000], axis=0)
    return bool(((np.diff(head, axis=0) != 0).sum(axis=0) <= 1).mean() > 0.5)


def guarded_components(
    X: FloatArray,
    attributes: Sequence[GuardedAttribute],
    Sigma: FloatArray,
    start: FloatArray,
    U: FloatArray,
    *,
    worth: FloatArray | None = None,
    strength: float,
    target: FloatArray | None = None,
    keep: float = 0.0,
    dither: float = 0.0,
    adversary: Adversary | None = None,
    steps: int = STEPS,
    rows: int = ROWS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> GuardResult:
    """Return components that trade variance against what a nonlinear adversary reads from them.

    Parameters
    ----------
    X : array (n, d)
        Sampled rows less the mean of all rows, as d coordinates in an orthonormal basis.
    attributes : sequence of GuardedAttribute
        The groups to hide.
    Sigma : array (d, d)
        Covariance of all rows in the same coordinates.
    start : array (d, k)
        Where the search begins.
    U : array (d, m')
        Orthonormal columns to stay out of.
    worth : array (d, d), optional
        Covariance that the objective counts, if not all of Sigma is to be trusted.
    strength : float
        Price of the adversary's R2, in shares of the best variance.
    target : array (n, c), optional
        What shall stay readable, centred; `keep` is its price.
    dither : float
        Noise that scores will have when they are handed on, as a share of their deviation: the adversary sees
        it too.
    adversary : Adversary, optional
        By default `RandomFeatureAdversary`.
    steps, rows, seed : int
        Steps of the search, rows of each draw, seed of all draws.
    progress : callable, optional
        Called with (steps done, steps in all).

    Notes
    -----
    Momentum on the Stiefel manifold with a cosine decay. Memory is O(rows L), time 40 to 60 ms a step at the
    defaults.
    """
    rng = np.random.default_rng(seed)
    adversary = RandomFeatureAdversary(_cosines(rows)) if adversary is None else adversary
    X = np.ascontiguousarray(X, dtype=np.float32)
    d, k = start.shape
    worth = Sigma if worth is None else worth
    best = eigh(worth)[0][-k:].sum()
    U = np.asfortranarray(U, dtype=np.float64)
    V = _outside(U, start)
    momentum, size = np.zeros_like(V), 0.0
    objective, leak = np.zeros(steps), np.zeros(steps)
    for step in range(steps):
        images = worth @ V
        variances = np.einsum("ij,ij->j", V, Sigma @ V)
        scale = (1.0 / np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))).astype(np.float32)
        gradient = 2.0 * images / best
        objective[step] = np.vdot(V, images) / best
        scaled = V.astype(np.float32) * scale
        for number, attribute in enumerate(attributes):
            adversary.draw(k, rng)
            fit, T_fit = attribute.draw(rows, rng)
            judge, T = attribute.draw(rows, rng)
            X_judge = X[judge]
            Z_fit, Z = (_dithered(Z, dither, rng) for Z in (X[fit] @ scaled, X_judge @ scaled))
            r2, dZ = adversary.score(Z_fit, T_fit, Z, T)
            total = -strength * dZ
            leak[step] += r2
            objective[step] -= strength * r2
            if keep and target is not None and number == 0:
                r2, dZ = adversary.score(Z_fit, _centred(target[fit]), Z, _centred(target[judge]))
                total += keep * dZ
                objective[step] += keep * r2
            gradient += (X_judge.T @ (total * scale)).astype(np.float64)
        gradient = project_out(U, gradient)
        inner = V.T @ gradient
        gradient -= V @ ((inner + inner.T) / 2)
        momentum = 0.9 * momentum + 0.1 * gradient
        size = 0.99 * size + 0.01 * float((gradient**2).mean())
        typical = np.sqrt(size / (1.0 - 0.99 ** (step + 1))) + np.finfo(np.float64).tiny
        pace = RATE / np.sqrt(d) * (1.0 + np.cos(np.pi * step / steps)) / typical
        V = _outside(U, V + pace * momentum)
        if progress is not None:
            progress(step + 1, steps)
    return GuardResult(_principal_axes(V, Sigma), objective, leak)


def _dithered(Z: FloatArray, dither: float, rng: np.random.Generator) -> FloatArray:
    """Return scores of unit deviation with noise."""
    if dither:
        Z = Z + np.float32(dither) * rng.standard_normal(Z.shape, dtype=np.float32)
    return Z


def _outside(U: FloatArray, A: FloatArray) -> FloatArray:
    """Return an orthonormal basis of A's columns outside U."""
    basis = np.array(A, dtype=np.float64, order="F")
    with small_lapack():
        orthonormalise_outside(U, basis)
    return basis


def _centred(T: FloatArray) -> FloatArray:
    centred: FloatArray = (T - T.mean(axis=0)).astype(np.float32)
    return centred


def _principal_axes(V: FloatArray, Sigma: FloatArray) -> FloatArray:
    """Turn V within its span so that its scores are uncorrelated, strongest first."""
    _, axes = eigh(V.T @ Sigma @ V)
    return fix_signs(V @ axes[:, ::-1])
