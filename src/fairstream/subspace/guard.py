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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fairstream.data.groups import UNKNOWN
from fairstream.errors import NoRoomError
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
from fairstream.linalg.eigen import top_eigenvectors
from fairstream.linalg.threads import in_threads, shares
from fairstream.moments import GroupMoments

STEPS = 400
ROWS = 4_000
COSINES = 600  # 300 leave networks something to find on Adult (AUC .68, .62 with 600)
ROWS_A_COSINE = 6  # with fewer the adversary overfits its draw
ROWS_A_PRODUCT = 5
FEWEST_COSINES = 50
PRODUCTS = 1_500  # with 400 of the 1,275 of k = 50 a guard leaves faces readable (AUC .81, .73 with all)
ROWS_A_DIRECTION = 60  # of images and the like: with fewer, V overfits the sample
DIRECTIONS_A_COMPONENT = 4
RIDGE = 3e-3  # relative to features of unit variance
RATE = 0.06
SCALES = (0.4, 1.0, 2.5)  # of the cosines, in deviations of a score
LEAST_STEPS = 20
LITTLE_GAIN = 0.01  # of the objective over the last fifth of the steps, beyond noise
FEW_ROWS = 10  # a feature whose variance comes from this many rows counts half
FARTHEST = 8.0  # deviations at which scores are clipped in products, so that no row swamps them
STEEP = (1.0, 3.0, 8.0)  # of cosines that see one or two scores only, as steep as the steps of a tree
NO_VARIANCE = 1e-9  # of the largest
WORTH_THREADS = 500  # numbers to write and read for each row of a draw
SPARSE_SHARE = 0.25  # of the cosines that see one or two scores only, as a tree does


_REPORT: ContextVar[Callable[[int, int], object] | None] = ContextVar("guard", default=None)


@contextmanager
def guard_told(report: Callable[[int, int], object]) -> Iterator[None]:
    """Call `report` with (steps done, steps in all) during every guard's search in the block."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


class Adversary(Protocol):
    """What a guard hides groups from: it reads targets from scores, and is drawn anew in every step.

    `RandomFeatureAdversary` is one. Pass another as `adversary` of `solve`.

    Examples
    --------
    One that reads averages only. Scores are standardised, so their products with the targets are slopes:

    >>> class Linear:
    ...     def draw(self, k, n_rows, rng):
    ...         pass
    ...
    ...     def score(self, Z_fit, T_fit, Z, T):
    ...         slopes = Z_fit.T @ T_fit / len(Z_fit)
    ...         left, total = T - Z @ slopes, (T**2).sum(axis=0)
    ...         return 1 - (left**2).sum(axis=0) / total, 2 * np.einsum("nc,kc->cnk", left / total, slopes)
    >>> adversary: Adversary = Linear()
    """

    def draw(self, k: int, n_rows: int, rng: np.random.Generator) -> None:
        """Choose new features of k scores, no more than n_rows rows can teach.

        Parameters
        ----------
        k : int
            Number of scores of a row.
        n_rows : int
            Rows that `score` will fit on.
        rng : numpy.random.Generator
            The only source of randomness, so that equal seeds give equal components.
        """

    def score(
        self, Z_fit: FloatArray, T_fit: FloatArray, Z: FloatArray, T: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fit on some rows, and tell how well others are read, and in which direction that grows.

        Parameters
        ----------
        Z_fit, Z : arrays (n, k)
            Standardised scores of rows to fit on, and of rows to read.
        T_fit, T : arrays (n, c)
            Centred targets of these rows, such as indicators of groups.

        Returns
        -------
        r2 : array (c,)
            R2 of every column of T.
        gradient : array (c, n, k)
            Derivative of each with respect to Z.
        """


class RandomFeatureAdversary:
    """Reads groups from scores: ridge regression on random waves of them, themselves and their products.

    Parameters
    ----------
    n_cosines : int
        Cosines and sines at most, in pairs of one direction, at three scales, a quarter on one or two scores
        only. Few rows get fewer.
    products : bool
        Add products of two scores, all of them if the rows suffice: on data such as images groups differ in
        many covariances a little, which cosines learn slowly.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(2000, 2)).astype(np.float32)
    >>> T = (np.abs(Z[:, :1]) > 1).astype(np.float32)
    >>> adversary = RandomFeatureAdversary()
    >>> adversary.draw(2, 1000, rng)
    >>> r2, gradient = adversary.score(Z[:1000], T[:1000] - T.mean(), Z[1000:], T[1000:] - T.mean())
    >>> bool(r2[0] > 0.5), gradient.shape
    (True, (1, 1000, 2))
    """

    def __init__(self, n_cosines: int = COSINES, *, products: bool = False) -> None:
        self.n_cosines, self.products = n_cosines, products
        self._directions: FloatArray = np.zeros((0, n_cosines // 2), dtype=np.float32)
        self._pairs: tuple[NDArray[np.intp], NDArray[np.intp]] = np.triu_indices(0)

    def draw(self, k: int, n_rows: int, rng: np.random.Generator) -> None:
        """Choose new waves of k scores, and products if asked for, as many as n_rows rows can teach.

        Parameters
        ----------
        k, n_rows, rng
            As in `Adversary.draw`.
        """
        left, right = np.triu_indices(k if self.products else 0)
        if len(left) > (most := min(PRODUCTS, n_rows // ROWS_A_PRODUCT)):
            chosen = rng.choice(len(left), most, replace=False)
            left, right = left[chosen], right[chosen]
        self._pairs = left, right
        taught = (n_rows - ROWS_A_PRODUCT * len(left)) // ROWS_A_COSINE
        waves = min(self.n_cosines, max(taught, FEWEST_COSINES)) // 2
        W = rng.standard_normal((k, waves), dtype=np.float32)
        W /= rng.choice(np.array(SCALES, dtype=np.float32), waves)
        sparse = int(waves * SPARSE_SHARE)
        first, second = rng.integers(0, k, (2, sparse))
        steep = rng.choice(np.array(STEEP, dtype=np.float32), sparse)
        alone = rng.random(sparse) < 0.5
        numbers = np.arange(sparse)
        seen = np.zeros((k, sparse), dtype=np.float32)
        seen[np.where(alone, first, second), numbers] = steep
        seen[first, numbers] = steep
        W[:, :sparse] = rng.standard_normal((k, sparse), dtype=np.float32) * seen
        self._directions = W

    @property
    def n_features(self) -> int:
        """Number of features of the last draw."""
        k, waves = self._directions.shape
        return 2 * waves + k + len(self._pairs[0])

    def score(
        self, Z_fit: FloatArray, T_fit: FloatArray, Z: FloatArray, T: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Fit on (Z_fit, T_fit); return R2 on (Z, T) and its gradient with respect to Z, per column of T.

        T is centred. The first has c numbers for c columns, the second is c x n x k.
        """
        F = np.empty((len(Z), self.n_features), dtype=Z.dtype)
        T_fit = np.hstack([T_fit - T_fit.mean(axis=0), np.ones_like(T_fit[:, :1])])

        def sums(rows: slice, fit_rows: slice) -> tuple[FloatArray, FloatArray]:
            self._features(Z[rows], out=F[rows])
            F_fit = self._features(Z_fit[fit_rows])
            return F_fit.T @ F_fit, F_fit.T @ T_fit[fit_rows]

        beta = self._fitted(_in_halves(sums, len(Z), len(Z_fit)), len(Z_fit)).astype(Z.dtype)
        answers, gradient = self._read(Z, F, beta)
        residual = T - (answers - answers.mean(axis=0))
        totals = (T * T).sum(axis=0)
        gradient *= (2.0 / totals * residual).T[:, :, None]
        return 1.0 - (residual * residual).sum(axis=0) / totals, gradient

    def _fitted(self, halves: Sequence[tuple[FloatArray, FloatArray]], n_rows: int) -> FloatArray:
        """Return the coefficients of a ridge regression with an intercept, from sums over halves of the rows.

        The sums are products of the features with each other, and with the targets and a column of ones.
        """
        gram, moments = (
            sum(part.astype(np.float64) for part in of) / n_rows for of in zip(*halves, strict=True)
        )
        mean = moments[:, -1:]
        gram -= mean * mean.T
        gram[np.diag_indices_from(gram)] += RIDGE
        factor = lapack(scipy.linalg.cho_factor, gram, overwrite_a=True, check_finite=False)
        beta: FloatArray = scipy.linalg.cho_solve(factor, moments[:, :-1], check_finite=False)
        return beta

    def _features(self, Z: FloatArray, out: FloatArray | None = None) -> FloatArray:
        waves, k = self._directions.shape[1], Z.shape[1]
        F = np.empty((len(Z), self.n_features), dtype=Z.dtype) if out is None else out
        phase = Z @ self._directions
        np.cos(phase, out=F[:, :waves])
        np.sin(phase, out=F[:, waves : 2 * waves])
        F[:, 2 * waves : 2 * waves + k] = Z
        if self.products:
            near = np.clip(Z, -FARTHEST, FARTHEST) * Z.dtype.type(2**-0.25)
            left, right = self._pairs
            np.multiply(near[:, left], near[:, right], out=F[:, 2 * waves + k :])
        return F

    def _read(self, Z: FloatArray, F: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return predictions for Z, of features F, without the intercept, and their gradients by Z."""
        k, waves = self._directions.shape
        slopes = np.empty((beta.shape[1], len(Z), k), dtype=Z.dtype)
        for b, slope in zip(beta.T, slopes, strict=True):
            cosines, sines, scores, products = np.split(b, [waves, 2 * waves, 2 * waves + k])
            turned = np.vstack([sines[:, None] * self._directions.T, -cosines[:, None] * self._directions.T])
            np.matmul(F[:, : 2 * waves], turned, out=slope)
            slope += scores
            if self.products:
                near, pairs = np.clip(Z, -FARTHEST, FARTHEST), np.zeros((k, k), dtype=Z.dtype)
                pairs[self._pairs] = products * Z.dtype.type(2**-0.5)
                slope += near @ (pairs + pairs.T) * (near == Z)
        return F @ beta, slopes


def _in_halves(
    work: Callable[[slice, slice], tuple[FloatArray, FloatArray]], *n_rows: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Call work for the first and the second half of several sets of rows, in two threads if there are two.

    The halves are the same on one thread, so the results are too.
    """
    halves = [[slice(0, n // 2) for n in n_rows], [slice(n // 2, n) for n in n_rows]]

    def share(numbers: slice) -> list[tuple[FloatArray, FloatArray]]:
        return [work(*half) for half in halves[numbers]]

    parts = shares(2, WORTH_THREADS * sum(n_rows))
    return [found for some in in_threads(share, parts) for found in some]


@dataclass(frozen=True)
class GuardedAttribute:
    """The sampled rows of each group of one attribute, as row numbers, and how often each is drawn."""

    name: str
    rows: tuple[NDArray[np.intp], ...]
    shares: tuple[FloatArray | None, ...]  # probability of each row of a group; None: equal

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], FloatArray]:
        """Return row numbers, equally many of each group, and centred indicators of the compared groups."""
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
    """The components that a guard found, and the course of the search."""

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
    seed: int = 0,
    adversary: Adversary | None = None,
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
    strength, keep, dither, seed, adversary
        As in `guarded_components`. With `keep` the sample must hold a target. Without an adversary it is a
        `RandomFeatureAdversary`, with products of scores unless most columns of the sample are indicators.

    Returns
    -------
    GuardResult
        Its components are d x k.

    Notes
    -----
    Unless most columns are indicators, the search stays in the leading principal directions: four for every
    component, or one for every 60 rows of the sample if these are more. In directions of little variance a
    sample of images looks fairer than new images are.
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
        if len(labels) > 1:
            codes = np.where(sampled.own[name], sampled.codes[name], UNKNOWN)
            rows_of = [np.flatnonzero(codes == code) for code in range(len(sampled.labels[name]))]
            shares_of = [_shares(sampled.weights[of]) for of in rows_of]
            attributes.append(GuardedAttribute(name, tuple(rows_of), tuple(shares_of)))
    target = None
    if keep and sampled.target is not None:
        _check_differs(sampled.target, attributes, keep)
        deviation = max(float(sampled.target.std()), np.finfo(float).tiny)
        target = ((sampled.target - sampled.target.mean()) / deviation)[:, None]
    axes, mean = covariance.expand(np.eye(len(covariance.core))), _rounded(moments.mean())
    if sampled.mixer is None:
        X = np.asarray(sampled.X, dtype=np.float64) - mean
        coordinates, one_hot = covariance.coordinates(X.T).T, _mostly_indicators(sampled.X)
        trust = np.sqrt(trust_in(X, sampled.weights, covariance.diagonal(), moments.n_rows))
    else:  # features cannot be told apart: all are trusted
        coordinates, one_hot = sampled.mixer.coordinates(sampled.X, axes, mean), False
        trust = np.ones(len(axes))
    weighing = covariance.coordinates(trust[:, None] * axes)
    core, worth = _rounded(covariance.core), _rounded(weighing.T @ covariance.core @ weighing)
    k, rows = start.shape[1], ROWS
    within = np.eye(len(core))
    if not one_hot:
        rows = max(rows, ROWS_A_PRODUCT * min(PRODUCTS, k * (k + 1) // 2) + ROWS // 3)
        room = max(DIRECTIONS_A_COMPONENT * k, len(coordinates) // ROWS_A_DIRECTION) + U.shape[1]
        if room < len(core):
            within = top_eigenvectors(worth, room)[1]
    found = guarded_components(
        coordinates @ within,
        attributes,
        within.T @ core @ within,
        within.T @ _rounded(covariance.coordinates(start.astype(np.float64))),
        orthonormalise(within.T @ covariance.coordinates(U.astype(np.float64))),
        worth=within.T @ worth @ within,
        strength=strength,
        target=target,
        keep=keep,
        dither=dither,
        adversary=RandomFeatureAdversary(products=not one_hot) if adversary is None else adversary,
        steps=STEPS,
        rows=min(rows, len(coordinates)),
        seed=seed,
    )
    return replace(found, components=fix_signs(covariance.expand(within @ found.components)))


def _check_differs(target: FloatArray, attributes: Sequence[GuardedAttribute], keep: float) -> None:
    """Refuse a target with a single value in the rows of the first attribute, on which it is scored."""
    scored = target[np.concatenate(attributes[0].rows)] if attributes else target[:0]
    if len(scored) and (scored == scored[0]).all():
        raise ValueError(
            f"keep_target={keep:g} has nothing to keep: the target is {scored[0]:g} in all {len(scored):,} "
            "sampled rows; leave keep_target out, or keep a larger sample if other values are rare"
        )


def trust_in(X: FloatArray, weights: FloatArray, variances: FloatArray, n_rows: float) -> FloatArray:
    """Return how far the variance of each feature can be trusted, from 0 to 1: r / (r + 10).

    r = n (E x^2)^2 / E x^4 is the number of rows that carry the variance, for an indicator the rows that have
    it. An indicator that one row in the data has, of unit variance after scaling, tells no adversary anything
    and would take a component, but new rows do not have that variance.

    X are sampled rows less the mean, `variances` those of all n rows. If the sample shows less variance than
    there is, the rows that carry it are not in the sample, and r is lowered in proportion: without them a
    feature looks constant, as if all rows carried what little is left.
    """
    powers, share = X * X, weights / weights.sum()
    second = share @ powers
    powers *= powers
    fourth = share @ powers
    tiny = np.finfo(np.float64).tiny
    rows = (
        n_rows * second**2 / np.maximum(fourth, tiny) * np.minimum(1.0, second / np.maximum(variances, tiny))
    )
    trust: FloatArray = rows / (rows + FEW_ROWS)
    return trust


def _rounded(A: FloatArray) -> FloatArray:
    """Round to about 2^-30 of the largest entry.

    Moments that were summed in another order differ in their last bits, which hundreds of steps would
    magnify; rounded, they give the same components.
    """
    _, exponent = np.frexp(np.abs(A).max(initial=0.0))
    rounded: FloatArray = np.ldexp(np.round(np.ldexp(A, 30 - exponent)), exponent - 30)
    return rounded


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
        Covariance in the objective, if not all of Sigma is to be trusted.
    strength : float
        Price of the adversary's R2, in shares of the best variance.
    target : array (n, c), optional
        What is to stay readable, centred; `keep` is its price.
    dither : float
        Noise that scores will be published with, as a share of their deviation: the adversary sees it too.
    adversary : Adversary, optional
        By default a `RandomFeatureAdversary`.
    steps, rows, seed : int
        Steps of the search, rows of each draw, seed of all draws.

    Notes
    -----
    Momentum on the Stiefel manifold with a cosine decay. Memory is O(rows L), time 40 to 60 ms a step at the
    defaults on two processors. Half the rows in the first half of the steps would save 40 % of the time, but
    leave networks more to find on Adult.
    """
    rng = np.random.default_rng(seed)
    adversary = RandomFeatureAdversary() if adversary is None else adversary
    report = _REPORT.get()
    X = np.ascontiguousarray(X, dtype=np.float32)
    d, k = start.shape
    worth = Sigma if worth is None else worth
    best = eigh(worth)[0][-k:].sum()
    U = np.asfortranarray(U, dtype=np.float64)
    _check_room(Sigma, U, k)
    V = _outside(U, start)
    momentum, size = np.zeros_like(V), 0.0
    objective, leak = np.zeros(steps), np.zeros(steps)
    with small_lapack():  # BLAS's own threads would wait for each other at every small product
        for step in range(steps):
            images = worth @ V
            variances = np.einsum("ij,ij->j", V, Sigma @ V)
            scale = (1.0 / np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))).astype(np.float32)
            gradient = 2.0 * images / best
            objective[step] = np.vdot(V, images) / best
            scaled = V.astype(np.float32) * scale
            for number, attribute in enumerate(attributes):
                adversary.draw(k, rows, rng)
                fit, T_fit = attribute.draw(rows, rng)
                test, T = attribute.draw(rows, rng)
                hidden = _portions(T)
                prices = -strength * hidden
                if keep and target is not None and number == 0:
                    varied = _varied(target, test)
                    if varied.shape[1]:  # a target with a single value in the test rows has no R2
                        T_fit, wanted = np.hstack([T_fit, _centred(varied[fit])]), _centred(varied[test])
                        T, prices = np.hstack([T, wanted]), np.append(prices, keep * _portions(wanted))
                X_test = X[test]
                Z_fit, Z = (_dithered(Z, dither, rng) for Z in (X[fit] @ scaled, X_test @ scaled))
                r2, dZ = adversary.score(Z_fit, T_fit, Z, T)
                leak[step] += r2[: len(hidden)] @ hidden
                objective[step] += r2 @ prices
                gradient += (X_test.T @ (np.tensordot(prices, dZ, 1) * scale)).astype(np.float64)
            gradient = project_out(U, gradient)
            inner = V.T @ gradient
            gradient -= V @ ((inner + inner.T) / 2)
            momentum = 0.9 * momentum + 0.1 * gradient
            size = 0.99 * size + 0.01 * float((gradient**2).mean())
            typical = np.sqrt(size / (1.0 - 0.99 ** (step + 1))) + np.finfo(np.float64).tiny
            pace = RATE / np.sqrt(d) * (1.0 + np.cos(np.pi * step / steps)) / typical
            V = _outside(U, V + pace * momentum)
            if report is not None:
                report(step + 1, steps)
    return GuardResult(_principal_axes(V, Sigma), objective, leak)


def _check_room(Sigma: FloatArray, U: FloatArray, k: int) -> None:
    """Refuse more components than there are directions of variance: their scores would all be zero."""
    values = eigh(project_out(U, project_out(U, Sigma).T))[0]
    room = int(np.sum(values > NO_VARIANCE * values[-1]))
    if room < k:
        raise NoRoomError(
            f"n_components is {k}, but a guard has {room} directions of variance to choose from, outside "
            f"what is screened and nulled: lower n_components to {room}, or screen and null less"
        )


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


def _portions(T: FloatArray) -> FloatArray:
    """Return the share of each column in the sum of squares, and so of its R2 in that of all columns."""
    squares = np.einsum("ij,ij->j", T, T)
    portions: FloatArray = squares / squares.sum()
    return portions


def _varied(target: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
    """Return the columns with several values in these rows; the indicator of a rare class may have one."""
    differs = (target[rows] != target[rows[:1]]).any(axis=0)
    return target if differs.all() else target[:, differs]


def _centred(T: FloatArray) -> FloatArray:
    centred: FloatArray = (T - T.mean(axis=0)).astype(np.float32)
    return centred


def _principal_axes(V: FloatArray, Sigma: FloatArray) -> FloatArray:
    """Turn V within its span so that its scores are uncorrelated, strongest first."""
    _, axes = eigh(V.T @ Sigma @ V)
    return fix_signs(V @ axes[:, ::-1])
