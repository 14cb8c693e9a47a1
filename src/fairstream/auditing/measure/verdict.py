"""Does an embedding keep a promise such as "no attacker above AUC 0.65"? Yes, no, or cannot tell."""

from __future__ import annotations

import math

from scipy.special import ndtri

from fairstream.auditing.measure.attack import trend_of
from fairstream.auditing.measure.auc import error_of
from fairstream.auditing.measure.probes import CHANCE_AUC
from fairstream.auditing.report import AttackResult, Estimate, Verdict

HOLDS, FAILS, CANNOT_TELL = "holds", "does not hold", "cannot tell"


def verdict(
    found: AttackResult | Estimate,
    limit: float,
    *,
    confidence: float = 0.95,
    level: float = 0.95,
    most_rows: int | None = None,
) -> Verdict:
    """Compare the strongest attacker's AUC with a limit.

    The limit holds if the upper confidence bound is at most the limit, and does not hold if the lower bound
    is above it. Unless the attacker's curve is flat, "holds" must be true of attackers with more rows too:
    its bound is raised by as much for every doubling of the rows as the last doubling may have brought. Of
    more than two groups the limit holds if it holds for each of them. An AUC below 0.5 is bad luck of the
    attacker on these rows, and counts as 0.5.

    Parameters
    ----------
    found : AttackResult or Estimate
        The result of an attack, or any AUC with a two-sided interval.
    limit : float
        The AUC that no attacker may exceed, above 0.5 and below 1.
    confidence : float
        Confidence of each one-sided bound.
    level : float
        Confidence level of the interval of an `Estimate`; an `AttackResult` states its own.
    most_rows : int, optional
        The rows of the attackers that the limit is for. By default all rows that could be learned from, and
        twice as many if the curve is still rising.

    Examples
    --------
    >>> verdict(Estimate(0.60, 0.58, 0.62), 0.65).answer
    'holds'
    >>> verdict(Estimate(0.64, 0.62, 0.66), 0.65).answer
    'cannot tell'
    >>> print(verdict(Estimate(0.80, 0.78, 0.82), 0.65).sentence)
    Does not hold: the strongest attacker reads the group at AUC 0.800, with 95 % confidence at least 0.783; \
the limit is 0.650.
    """
    for name, value in (("limit", limit), ("confidence", confidence)):
        if not 0.5 < value < 1:
            raise ValueError(f"{name} is {value!r}: pass a number above 0.5 and below 1")
    fitted, read, more = "", {"": (0.0, 0.0)}, {"": (0, 0.0)}
    if isinstance(found, Estimate):
        read[""] = found.value, error_of(found, level)
    else:
        fitted, read = f" (fitted on {found.strongest.n_rows:,} rows)", readings(found)
        more = {group: _more_rows(found, group, confidence, most_rows) for group in read}
    # That one group of many is read too well is likelier by luck than that a certain one is.
    down, up = (float(ndtri(1 - (1 - confidence) / compared)) for compared in (len(read), 1))
    lower = {group: max(counted(auc) - down * error, 0.0) for group, (auc, error) in read.items()}
    upper = {group: bound_above(auc, error, up) for group, (auc, error) in read.items()}
    ahead = {group: min(upper[group] + growth, 1.0) for group, (_, growth) in more.items()}
    sure = f", with {100 * confidence:.4g} % confidence"

    def answered(answer: str, group: str, sentence: str) -> Verdict:
        best = group == max(read, key=lambda one: read[one][0])
        which = f"of {len(read)} groups the one it reads best," if best else f"one of {len(read)} groups,"
        who = f"{group}, {which}" if len(read) > 1 else "the group"
        told = f"{answer.capitalize()}: the strongest attacker{fitted} reads {who} at AUC "
        luck = f", which counts as guessing, {CHANCE_AUC:.3f}" if read[group][0] < CHANCE_AUC else ""
        told += f"{read[group][0]:.3f}{luck}{sentence}"
        return Verdict(answer, confidence, told, max(lower.values()), max(upper.values()), limit)

    surest, highest, farthest = (max(bound, key=bound.__getitem__) for bound in (lower, upper, ahead))
    if lower[surest] > limit:
        return answered(FAILS, surest, f"{sure} at least {lower[surest]:.3f}; the limit is {limit:.3f}.")
    if upper[highest] > limit:
        bounds = f"{lower[highest]:.3f} and {upper[highest]:.3f}"
        between = f"; the limit of {limit:.3f} lies between its bounds, {bounds}. Score more rows."
        return answered(CANNOT_TELL, highest, between)
    within = f"{sure} at most {upper[farthest]:.3f}; the limit is {limit:.3f}."
    if n_rows := more[farthest][0]:
        within += f" Its curve is not flat: with {n_rows:,} rows it may read up to {ahead[farthest]:.3f}."
    if ahead[farthest] <= limit:
        return answered(HOLDS, farthest, within)
    return answered(CANNOT_TELL, farthest, f"{within} Let attackers have more rows.")


def counted(auc: float) -> float:
    """Return what an AUC counts for a limit: an attacker that did worse than guess may do better elsewhere.

    Examples
    --------
    >>> counted(0.46), counted(0.61)
    (0.5, 0.61)
    """
    return max(auc, CHANCE_AUC)


def bound_above(auc: float, error: float, z: float) -> float:
    """Return the upper bound of an AUC, `z` standard errors above what it counts.

    Examples
    --------
    >>> round(bound_above(0.46, 0.02, 1.645), 3), bound_above(0.99, 0.02, 1.645)
    (0.533, 1.0)
    """
    return min(counted(auc) + z * error, 1.0)


def reach(found: AttackResult, *, confidence: float, most_rows: int) -> list[float]:
    """Return for every group the upper bound on the AUC of an attacker with `most_rows` rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fairstream.auditing.measure.attack import attack
    >>> rng = np.random.default_rng(0)
    >>> found = attack(rng.normal(size=(400, 2)), rng.integers(0, 2, 400))
    >>> found.strongest.auc.value < reach(found, confidence=0.95, most_rows=10_000)[0] <= 1
    True
    """
    z = float(ndtri(confidence))
    return [
        min(bound_above(auc, error, z) + _more_rows(found, group, confidence, most_rows)[1], 1.0)
        for group, (auc, error) in readings(found).items()
    ]


def readings(found: AttackResult) -> dict[str, tuple[float, float]]:
    """Return the AUC of every group against the rest and its standard error; of two groups only one."""
    if not found.by_group:
        return {"": (found.strongest.auc.value, found.strongest.standard_error)}
    return {group: (auc.value, error_of(auc, found.level)) for group, auc in found.by_group.items()}


def _more_rows(
    found: AttackResult, group: str, confidence: float, most_rows: int | None
) -> tuple[int, float]:
    """Return how many rows an attacker may have, 0 if more would not help it, and what they may bring."""
    used, gain, trend = found.strongest.n_rows, found.curve.gain, found.curve.trend
    if group:
        gain = found.curve.gain_by_group.get(group)
        trend = trend_of(gain)
    if most_rows is None:
        most_rows = found.n_fit * (2 if trend == "rising" else 1)
    if trend == "flat" or most_rows <= used:
        return 0, 0.0
    if gain is None:  # too few rows to show what a doubling brings
        return most_rows, 1.0
    doubling = max(gain.value + float(ndtri(confidence)) * error_of(gain, found.level), 0.0)
    return most_rows, doubling * math.log2(most_rows / used)
