"""The constants of the paper's Assumptions 1 and 2, from a known population or plugged in from data.

Symbols: d features, m unfair directions, k components, f mean gap, g = f less its part in P_m, S
second-moment gap, nu singular values of S, kappa those of the covariance outside U.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.optimize

from fairstream.data.alignment import paired
from fairstream.data.groups import UNKNOWN, encode_groups
from fairstream.linalg import (
    FloatArray,
    lapack,
    orthonormalise,
    project_out,
    spectrum_outside,
    top_eigenvectors,
)
from fairstream.moments import GroupMoments

# Below this share of |f|, g is rounding and f lies in the span of P_m.
_NO_MEAN_GAP = 1e-8


class KnownGroups(Protocol):
    """What must be known of a population; `datasets.SyntheticStream` provides it."""

    @property
    def probabilities(self) -> tuple[float, float]:
        """Probability of group 0 and of group 1."""

    @property
    def mean_gap(self) -> FloatArray:
        """Mean of group 1 less mean of group 0."""

    @property
    def group_means(self) -> FloatArray:
        """Group means less the total mean, as rows."""

    @property
    def group_second_moments(self) -> FloatArray:
        """Second moments about the total mean, shape (2, d, d)."""

    @property
    def norm_sub_gaussian(self) -> float:
        """A sigma that is valid for both groups."""

    @property
    def radius(self) -> float:
        """Largest distance of a row from its group's mean, infinite if there is none."""

    @property
    def matrix_variance(self) -> float:
        """Largest variance of xx' given the group."""


@dataclass(frozen=True)
class PafoConstants:
    """The constants of Assumptions 1 and 2 for one problem.

    Attributes
    ----------
    n_features, n_unfair, n_components : int
        d, m and k.
    p_min : float
        Probability of the smaller group.
    norm_sub_gaussian : float
        sigma: P(|x - mu_a| >= t) <= 2 exp(-t^2 / (2 sigma^2)) in both groups.
    second_moment_bound : float
        V, the largest norm of E[xx'|a].
    deviation_bound : float
        M: no row has |xx' - E[xx'|a]| or |xx' - Sigma| above it. The proof of Lemma 3 takes the second from
        the first; here M covers both.
    matrix_variance : float
        Script V, the largest variance of xx' given the group.
    mean_gap, residual_mean_gap : float
        |f| and |g|. A residual of 0 is the appendix's Case 2: U = P_m.
    unfair_gap, fair_gap : float
        Delta_m = nu_m - nu_{m+1} and Delta_k = kappa_k - kappa_{k+1}.
    unfair_level, fair_level : float
        K_m = nu_m and K_k = kappa_k.
    tail : float
        Probability that an unbounded row exceeds `deviation_bound`.
    """

    n_features: int
    n_unfair: int
    n_components: int
    p_min: float
    norm_sub_gaussian: float
    second_moment_bound: float
    deviation_bound: float
    matrix_variance: float
    mean_gap: float
    residual_mean_gap: float
    unfair_gap: float
    fair_gap: float
    unfair_level: float
    fair_level: float
    tail: float = 0.0

    @property
    def constraint(self) -> str:
        """The constraint whose U these constants describe: "covariance" if g = 0, else "all"."""
        return "all" if self.residual_mean_gap > 0 else "covariance"


def pafo_constants(
    known: KnownGroups | GroupMoments,
    n_components: int,
    n_unfair: int = 1,
    *,
    constraint: str = "all",
    sample: tuple[Any, Any] | None = None,
    attribute: str | None = None,
    group: Hashable = None,
    tail: float = 0.0,
) -> PafoConstants:
    """Return the constants of Assumptions 1 and 2, from a known population or plugged in from data.

    Parameters
    ----------
    known : KnownGroups or GroupMoments
        A population with closed forms (`datasets.SyntheticStream`), or moments collected from rows.
    n_components, n_unfair : int
        k and m.
    constraint : {"all", "covariance"}
        Whether U contains the mean gap as well as the m eigenvectors of S.
    sample : (X, sensitive_features), optional
        Needed with moments: rows from which sigma, M and the matrix variance are estimated. M is then the
        largest value seen, which the next row may exceed, so the plan is an estimate, not a promise.
    attribute, group : optional
        Which comparison of the moments; the first if not given.
    tail : float
        Gaussian rows have no bound M. With tail > 0, M is a bound that a row exceeds with at most this
        probability, from the norm-sub-Gaussian tail. The failure probability of a plan of N rows then grows
        by at most N * tail; the moments of truncated rows count as those of the whole distribution.

    Returns
    -------
    PafoConstants

    Examples
    --------
    >>> from fairstream.datasets.synthetic import synthetic_stream
    >>> stream = synthetic_stream(6, distribution="rademacher", random_state=3)
    >>> constants = pafo_constants(stream, n_components=1, n_unfair=1)
    >>> constants.p_min, constants.constraint
    (0.2, 'all')
    """
    if constraint not in ("all", "covariance"):
        raise ValueError(f"constraint is {constraint!r}: the theorem covers 'all' and 'covariance'")
    if not 0 <= tail < 1:
        raise ValueError(f"tail is {tail}: give the probability, per row, of leaving the bound")
    if isinstance(known, GroupMoments):
        parts = _from_sample(known, sample, attribute, group)
    else:
        parts = _from_population(known, tail)
    d = parts.f.size
    S, Sigma = parts.moments[1] - parts.moments[0], parts.covariance
    # The gap needs m unfair directions and one more eigenvalue.
    if not 1 <= n_unfair < d:
        raise ValueError(f"n_unfair is {n_unfair}: the theorem needs 1 <= n_unfair < {d}")
    nu, P = top_eigenvectors(S, d, by="absolute")
    nu, P = np.abs(nu), P[:, :n_unfair]
    f_norm = float(np.linalg.norm(parts.f))
    g_norm = float(np.linalg.norm(project_out(P, parts.f[:, None]))) if constraint == "all" else 0.0
    if g_norm <= _NO_MEAN_GAP * f_norm:
        g_norm = 0.0
    U = P if g_norm == 0 else orthonormalise(np.column_stack([P, parts.f]))
    if not 1 <= n_components <= d - U.shape[1]:
        raise ValueError(
            f"n_components is {n_components}: between 1 and {d - U.shape[1]} fit beside {U.shape[1]} unfair "
            f"directions in {d} features"
        )
    kappa = np.append(spectrum_outside(Sigma, U), 0.0)
    V = max(float(lapack(np.linalg.norm, M, 2)) for M in parts.moments)
    return PafoConstants(
        n_features=d,
        n_unfair=n_unfair,
        n_components=n_components,
        p_min=parts.p_min,
        norm_sub_gaussian=parts.sigma,
        second_moment_bound=V,
        deviation_bound=max(parts.largest_square, V),
        matrix_variance=parts.matrix_variance,
        mean_gap=f_norm,
        residual_mean_gap=g_norm,
        unfair_gap=float(nu[n_unfair - 1] - nu[n_unfair]),
        fair_gap=float(kappa[n_components - 1] - kappa[n_components]),
        unfair_level=float(nu[n_unfair - 1]),
        fair_level=float(kappa[n_components - 1]),
        tail=tail if math.isinf(getattr(known, "radius", 0.0)) else 0.0,
    )


# The parts of the constants -----------------------------------------------------------------------


class _Parts(NamedTuple):
    p_min: float
    f: FloatArray
    moments: tuple[FloatArray, FloatArray]
    covariance: FloatArray
    sigma: float
    largest_square: float
    matrix_variance: float


def _from_population(known: KnownGroups, tail: float) -> _Parts:
    p0, p1 = known.probabilities
    first, second = known.group_second_moments
    radius = known.radius
    if math.isinf(radius) and tail > 0:
        radius = known.norm_sub_gaussian * math.sqrt(2 * math.log(2 / tail))
    farthest = float(np.linalg.norm(known.group_means, axis=1).max()) + radius
    return _Parts(
        min(p0, p1),
        known.mean_gap,
        (first, second),
        p0 * first + p1 * second,
        known.norm_sub_gaussian,
        farthest**2,
        known.matrix_variance,
    )


def _from_sample(
    moments: GroupMoments, sample: tuple[Any, Any] | None, attribute: str | None, group: Hashable
) -> _Parts:
    if sample is None:
        raise ValueError(
            "sample is None: moments alone do not tell sigma, M and the matrix variance; pass rows"
        )
    pairs = moments.comparisons(attribute)
    chosen = [pair for pair in pairs if group is None or pair[1] == group]
    if not chosen:
        raise ValueError(f"group is {group!r}: choose one of {[pair[1] for pair in pairs]}")
    attribute, group = chosen[0]
    X = np.asarray(sample[0], dtype=float) - moments.mean()
    columns = encode_groups(paired(sample[1], sample[0], "sample[1]"), X.shape[0])
    column = columns[attribute] if attribute in columns else next(iter(columns.values()))
    known = column.codes != UNKNOWN
    inside = known & np.array([*(label == group for label in column.labels), False])[column.codes]
    sides = [X[known & ~inside], X[known & inside]]
    if not all(len(rows) for rows in sides):
        raise ValueError(f"sample has no row inside or none outside group {group!r}: pass rows of both sides")
    second = moments.second_moments(attribute, group)
    share = moments.count(attribute, group) / sum(
        moments.count(attribute, label) for label in moments.groups[attribute]
    )
    return _Parts(
        min(share, 1 - share),
        moments.mean_gap(attribute, group),
        (second[1].to_dense(), second[0].to_dense()),
        moments.covariance().to_dense(),
        max(_sample_sigma(rows - rows.mean(axis=0)) for rows in sides),
        float(np.max(np.sum(X[known] ** 2, axis=1))),
        max(_sample_matrix_variance(rows) for rows in sides),
    )


def _sample_sigma(rows: FloatArray) -> float:
    """Return the least sigma with mean exp(|y|^2 / (2 sigma^2)) <= 2: the rows are then norm-sub-Gaussian."""
    squares = np.sum(rows**2, axis=1)
    largest = float(squares.max())
    if largest == 0:
        return 0.0

    def excess(variance: float) -> float:
        exponents = squares / (2 * variance)
        return float(np.logaddexp.reduce(exponents)) - math.log(2 * len(squares))

    # Lower end: only the longest row counts. Upper end: all rows are as long as the longest.
    low, high = largest / (2 * math.log(2 * len(squares))), largest / (2 * math.log(2)) * (1 + 1e-12)
    return math.sqrt(low if excess(low) <= 0 else scipy.optimize.brentq(excess, low, high))


def _sample_matrix_variance(rows: FloatArray) -> float:
    second = rows.T @ rows / len(rows)
    fourth = (rows * np.sum(rows**2, axis=1)[:, None]).T @ rows / len(rows)
    return float(lapack(np.linalg.norm, fourth - second @ second, 2))
