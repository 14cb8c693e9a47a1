"""PAFO plans: how many rows a promise needs, and a check that it is kept.

Definition 2 of the paper: with probability at least 1 - delta the learner's V has
tr(V' Sigma V) >= tr(V*' Sigma V*) - eps_optimality and ||Pi_U V|| <= eps_fairness. The appendix writes the
two epsilons the other way round; here they are always those of Definition 2.

Symbols: as in `assumptions`; b and T are block size and steps of the unfair phase, B and TT of the component
phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.stats

from fairstream.linalg import FloatArray, lapack
from fairstream.theory.assumptions import PafoConstants

# A valid constant of the vector Hoeffding inequality (Proposition 2, left open there): symmetrise, bound
# E cosh(2 theta |y|) <= exp(8 theta^2 sigma^2) from the moments E|y|^(2p) <= 2 p! (2 sigma^2)^p, dilate the
# vectors to matrices of d + 1 rows and minimise over theta.
HOEFFDING_CONSTANT = math.sqrt(32.0)
# Lemma 1's Theta: one noisy power step multiplies the tangent by (xi_{r+1} / xi_r)^(1/4) at worst.
STEP_CONSTANT = 4.0


class Truth(Protocol):
    """The exact answer to compare with; `datasets.Population` is one."""

    @property
    def U(self) -> FloatArray:  # noqa: N802
        """Unfair basis (d, m')."""

    @property
    def V(self) -> FloatArray:  # noqa: N802
        """Fair components (d, k)."""

    @property
    def covariance(self) -> FloatArray:
        """Sigma (d, d)."""


@dataclass(frozen=True)
class PafoPlan:
    """Block sizes and steps of the fair noisy power method that suffice for a PAFO promise.

    Attributes
    ----------
    unfair_block, unfair_steps : int
        b and T.
    component_block, component_steps : int
        B and TT.
    eps_optimality, eps_fairness, delta : float
        The promise.
    eta : float
        How close to U the unfair phase comes, the appendix's eta_k.
    terms : mapping of str to float
        Every lower bound that went into b ("unfair ...") and B ("component ..."); the largest decides.
    constants : PafoConstants
        The problem planned for.
    """

    unfair_block: int
    unfair_steps: int
    component_block: int
    component_steps: int
    eps_optimality: float
    eps_fairness: float
    delta: float
    eta: float
    terms: Mapping[str, float]
    constants: PafoConstants

    @property
    def unfair_rows(self) -> int:
        """N_1 = T b."""
        return self.unfair_block * self.unfair_steps

    @property
    def component_rows(self) -> int:
        """N_2 = TT B."""
        return self.component_block * self.component_steps

    @property
    def n_rows(self) -> int:
        """All rows the promise needs."""
        return self.unfair_rows + self.component_rows

    @property
    def step_rows(self) -> tuple[int, int]:
        """(b, B), as `FairStreamingPCA(solver="power", step_rows=...)` takes it."""
        return self.unfair_block, self.component_block

    @property
    def power_steps(self) -> tuple[int, int]:
        """(T, TT), as `FairStreamingPCA(solver="power", power_steps=...)` takes it."""
        return self.unfair_steps, self.component_steps


class PafoGap(NamedTuple):
    """How far a learner's V is from the best fair one.

    Parameters
    ----------
    optimality : float
        Variance that it loses against the best fair V.
    fairness : float
        How far it reaches into the unfair subspace.
    """

    optimality: float
    fairness: float


@dataclass(frozen=True)
class PafoCheck:
    """How often a learner kept a PAFO promise on fresh streams.

    Attributes
    ----------
    gaps : tuple of PafoGap
        One per trial.
    n_met : int
        Trials in which both gaps were within their epsilon.
    interval : (float, float)
        Clopper-Pearson interval of the probability of meeting them.
    confidence : float
        Of the interval.
    """

    gaps: tuple[PafoGap, ...]
    n_met: int
    interval: tuple[float, float]
    confidence: float

    @property
    def probability(self) -> float:
        """The observed share of trials that met the promise."""
        return self.n_met / len(self.gaps)

    def confirms(self, delta: float) -> bool:
        """Whether the trials show, at the confidence, a probability of at least 1 - delta."""
        return self.interval[0] >= 1 - delta


def pafo_plan(
    constants: PafoConstants,
    eps_optimality: float,
    eps_fairness: float,
    delta: float,
    *,
    step_constant: float = STEP_CONSTANT,
    hoeffding_constant: float = HOEFFDING_CONSTANT,
) -> PafoPlan:
    """Return block sizes and steps with which FNPM keeps the promise (Theorem 1, explicit constants).

    Parameters
    ----------
    constants : PafoConstants
        Of the problem.
    eps_optimality, eps_fairness, delta : float
        The promise of Definition 2.
    step_constant : float
        The Theta of Lemma 1: steps = step_constant / log(xi_r / xi_{r+1}) * log(2 d / (eps delta)), which is
        at most the printed step_constant * K / Delta * log(...). The default 4 means that one noisy step
        multiplies the tangent of the angle by at most (xi_{r+1} / xi_r)^(1/4).
    hoeffding_constant : float
        The constant of the vector Hoeffding inequality; the default sqrt(32) is valid for all
        norm-sub-Gaussian vectors.

    Returns
    -------
    PafoPlan

    Notes
    -----
    The failure probability is shared out as delta/4 for each random start, delta/4 for the noise of the
    component phase (which makes the 160 of the appendix's eta_k), delta/6 for the noise of the unfair phase
    and delta/12 for the mean gap (its log(48 d / delta)). The plan departs from the printed proofs in this:

    - The lemmas bound the noise of one block. The plan needs all blocks, so the logarithms use the failure
      probability of one block and one of its two conditions.
    - The constant of the unfair block is 25 * 32 = 800; the proof of Lemma 2 prints 400.
    - If several lower bounds apply to one block size, the plan takes their maximum, not their sum.
    - If g = 0, the promise of optimality is for constraint="covariance": a mean gap of pure noise, appended
      to U, nulls a direction that the proof of Case 2 does not count.

    Examples
    --------
    >>> from fairstream.datasets.synthetic import synthetic_stream
    >>> stream = synthetic_stream(6, distribution="rademacher", random_state=3)
    >>> from fairstream.theory import pafo_constants
    >>> plan = pafo_plan(pafo_constants(stream, 1), 0.5, 0.1, 0.1)
    >>> plan.n_rows == sum(b * t for b, t in zip(plan.step_rows, plan.power_steps))
    True
    """
    _check_plannable(constants, eps_optimality, eps_fairness, delta)
    c = constants
    start = delta / 4
    eps_components = min(eps_optimality / (2 * c.n_components * c.second_moment_bound), 0.5)
    overlap = start / (2 * math.sqrt(c.n_features * c.n_components))
    # Eqn. (condition-N): Lemma 3 with eps = eps_optimality / (2 k V), and fairness itself.
    eta = min(eps_fairness, c.fair_gap / (20 * c.second_moment_bound) * min(eps_components, overlap))
    TT = _steps(step_constant, c.fair_level, c.fair_gap, c.n_features, eps_components, start)
    component = _component_terms(c, eps_components, start, delta / 4 / (2 * TT))
    # Case 1: U is so close that g turns by at most eta / 2. Case 2: twice the distance stays below eta.
    eps_unfair = eta / 2
    if c.residual_mean_gap > 0:
        eps_unfair = min(eps_unfair, c.residual_mean_gap / (4 * c.mean_gap) * min(eta / math.sqrt(2), 1.0))
    T = _steps(step_constant, c.unfair_level, c.unfair_gap, c.n_features, eps_unfair, start)
    unfair = _unfair_terms(c, eps_unfair, start, delta / 6 / (2 * T))
    if c.residual_mean_gap > 0:
        unfair["unfair mean gap"] = _mean_gap_rows(c, eta, delta / 12, hoeffding_constant) / T
    return PafoPlan(
        unfair_block=math.ceil(max(unfair.values())),
        unfair_steps=T,
        component_block=math.ceil(max(component.values())),
        component_steps=TT,
        eps_optimality=eps_optimality,
        eps_fairness=eps_fairness,
        delta=delta,
        eta=eta,
        terms=unfair | component,
        constants=c,
    )


def pafo_gap(model: Any, truth: Truth) -> PafoGap:
    """Return what a model loses in variance and leaves in unfairness, against the truth (Definition 2).

    Parameters
    ----------
    model : FairSubspace, fitted estimator or array of shape (d, k)
        `components` or `components_` are read as rows, an array's columns as components.
    truth : Truth
        U, V and Sigma, as `SyntheticStream.population` gives them.

    Returns
    -------
    PafoGap
        tr(V*' Sigma V*) - tr(V' Sigma V), negative for a V that keeps more by being unfair, and ||Pi_U V||.

    Examples
    --------
    >>> from fairstream.datasets.synthetic import synthetic_stream
    >>> truth = synthetic_stream(6).population(2, 1)
    >>> max(map(abs, pafo_gap(truth.V, truth))) < 1e-12
    True
    """
    V = _components(model)
    if V.shape != truth.V.shape:
        raise ValueError(
            f"model has components of shape {V.shape}, the truth {truth.V.shape}: solve for the same k"
        )
    kept = [float(np.sum(W * (truth.covariance @ W))) for W in (truth.V, V)]
    violation = float(lapack(np.linalg.norm, truth.U.T @ V, 2)) if truth.U.shape[1] else 0.0
    return PafoGap(kept[0] - kept[1], violation)


class _Fresh(Protocol):
    def fresh(self, seed: int) -> Any: ...


Stream = TypeVar("Stream", bound=_Fresh)


def pafo_check(
    learner: Callable[[Stream], Any],
    stream: Stream,
    truth: Truth,
    eps_optimality: float,
    eps_fairness: float,
    *,
    n_trials: int = 20,
    confidence: float = 0.95,
    random_state: int = 0,
) -> PafoCheck:
    """Run a learner on fresh streams and report how often it meets (eps_optimality, eps_fairness).

    Parameters
    ----------
    learner : callable
        Takes a stream, returns a model that `pafo_gap` can read.
    stream : SyntheticStream
        Its `fresh(seed)` gives each trial its own rows.
    truth : Truth
        Of that stream.
    eps_optimality, eps_fairness : float
        The promise of Definition 2.
    n_trials : int
        Fresh streams to run on.
    confidence : float
        Of the Clopper-Pearson interval.
    random_state : int
        Seeds the trials.

    Returns
    -------
    PafoCheck

    Examples
    --------
    >>> from fairstream.datasets.synthetic import synthetic_stream
    >>> stream = synthetic_stream(6)
    >>> truth = stream.population(2, 1)
    >>> pafo_check(lambda fresh: truth.V, stream, truth, 0.1, 0.1, n_trials=5).n_met
    5
    """
    if n_trials < 1:
        raise ValueError(f"n_trials is {n_trials}: run the learner at least once")
    seeds = np.random.SeedSequence(random_state).generate_state(n_trials, np.uint64)
    gaps = tuple(pafo_gap(learner(stream.fresh(int(seed))), truth) for seed in seeds)
    met = sum(gap.optimality <= eps_optimality and gap.fairness <= eps_fairness for gap in gaps)
    exact = scipy.stats.binomtest(met, n_trials).proportion_ci(confidence, method="exact")
    return PafoCheck(gaps, met, (float(exact.low), float(exact.high)), confidence)


def _components(model: Any) -> FloatArray:
    for name in ("components", "components_"):
        if hasattr(model, name):
            return np.asarray(getattr(model, name)).T
    return np.asarray(model)


# The terms of the plan ----------------------------------------------------------------------------


def _check_plannable(c: PafoConstants, eps_optimality: float, eps_fairness: float, delta: float) -> None:
    if not eps_optimality > 0:
        raise ValueError(f"eps_optimality is {eps_optimality}: give a loss of variance above 0")
    for name, value in (("eps_fairness", eps_fairness), ("delta", delta)):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}: give a number between 0 and 1")
    if math.isinf(c.deviation_bound):
        raise ValueError(
            "constants.deviation_bound is infinite: the theorem wants bounded rows; pass tail=1e-15, say, to "
            "pafo_constants to truncate them, or plan for a bounded distribution"
        )
    for name, symbol in (("unfair_gap", "Delta_m"), ("fair_gap", "Delta_k")):
        if not getattr(c, name) > 0:
            raise ValueError(
                f"constants.{name} is {getattr(c, name)}: without a gap {symbol} no number of rows suffices; "
                f"choose another {'n_unfair' if name == 'unfair_gap' else 'n_components'}"
            )


def _steps(constant: float, level: float, gap: float, d: int, eps: float, delta: float) -> int:
    """Lemma 1: steps after which the distance is at most eps, if the noise keeps its bounds."""
    # A step multiplies the tangent by max(eps, ((level - gap) / level)^(1 / constant)) or better.
    rate = math.log(1 / eps)
    if gap < level:
        rate = min(rate, math.log(level / (level - gap)) / constant)
    return math.ceil(math.log(2 * d / (eps * delta)) / rate)


def _unfair_terms(c: PafoConstants, eps: float, start: float, share: float) -> dict[str, float]:
    """Lower bounds on b from the proof of Lemma 2; `share` is the failure probability of one condition."""
    d, m, gap, M = c.n_features, c.n_unfair, c.unfair_gap, c.deviation_bound
    # Any larger variance is valid; this one balances the two terms of Bernstein's inequality.
    variance = max(c.matrix_variance, M * eps * gap / 15)
    wide, narrow = math.log(2 * (d + m) / share), math.log(4 * m / share)
    return {
        "unfair error": 800 * variance / (eps * gap) ** 2 / c.p_min * wide,
        "unfair start": 3200 * d * m * variance / (start * gap) ** 2 / c.p_min * narrow,
        "unfair bound": 4 / c.p_min * max(1.0, 8 * M**2 / (9 * variance)) * wide,
    }


def _component_terms(c: PafoConstants, eps: float, start: float, share: float) -> dict[str, float]:
    """Lower bounds on B from the proof of Lemma 3."""
    d, k, gap = c.n_features, c.n_components, c.fair_gap
    variance = c.matrix_variance + c.second_moment_bound**2
    wide, narrow = math.log(4 * (d + k) / share), math.log(8 * k / share)
    return {
        "component error": 400 * variance / (eps * gap) ** 2 * wide,
        "component start": 1600 * d * k * variance / (start * gap) ** 2 * narrow,
        "component bound": 4 / 9 * c.deviation_bound**2 / variance * wide,
    }


def _mean_gap_rows(c: PafoConstants, eta: float, share: float, constant: float) -> float:
    """Rows T b from the mean-gap lemma, so that f is within |g| / 4 min(eta / sqrt(2), 1)."""
    logarithm = math.log(4 * c.n_features / share)
    ratio = (constant * c.norm_sub_gaussian / c.residual_mean_gap) ** 2
    return max(128 * ratio * max(2 / eta**2, 1.0), 2.0) * logarithm / c.p_min
