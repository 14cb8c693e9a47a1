"""Does an embedding keep a promise such as "no attacker above AUC 0.65"? Yes, no, or cannot tell."""

from __future__ import annotations

import math

from scipy.special import ndtri

from fairstream.auditing.measure.auc import error_of
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
    more than two groups the one that is read best counts, with bounds that are valid for all of them.

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
    who, fitted, compared = "the group", "", 1
    if isinstance(found, Estimate):
        auc, error = found.value, error_of(found, level)
    else:
        auc, error = read_best(found)
        fitted = f" (fitted on {found.strongest.n_rows:,} rows)"
        if found.by_group:
            compared = len(found.by_group)
            best = max(found.by_group, key=lambda group: found.by_group[group].value)
            who = f"{best}, of {compared} groups the one it reads best,"
    reach = float(ndtri(1 - (1 - confidence) / compared)) * error
    lower, upper = max(auc - reach, 0.0), min(auc + reach, 1.0)
    reads = f"the strongest attacker{fitted} reads {who} at AUC {auc:.3f}"
    sure = f", with {100 * confidence:.4g} % confidence"

    def answered(answer: str, sentence: str) -> Verdict:
        return Verdict(answer, confidence, f"{answer.capitalize()}: {reads}{sentence}", lower, upper, limit)

    if lower > limit:
        return answered(FAILS, f"{sure} at least {lower:.3f}; the limit is {limit:.3f}.")
    if upper > limit:
        between = f"the limit of {limit:.3f} lies between its bounds, {lower:.3f} and {upper:.3f}"
        return answered(CANNOT_TELL, f"; {between}. Score more rows.")
    within = f"{sure} at most {upper:.3f}; the limit is {limit:.3f}."
    n_rows, growth = (0, 0.0) if isinstance(found, Estimate) else _more_rows(found, confidence, most_rows)
    if not n_rows:
        return answered(HOLDS, within)
    ahead = min(upper + growth, 1.0)
    return answered(
        CANNOT_TELL if ahead > limit else HOLDS,
        f"{within} Its curve is not flat: with {n_rows:,} rows it may read up to {ahead:.3f}.",
    )


def read_best(found: AttackResult) -> tuple[float, float]:
    """Return the AUC of the group that is read best, and its standard error."""
    if not found.by_group:
        return found.strongest.auc.value, found.strongest.standard_error
    best = max(found.by_group.values(), key=lambda auc: auc.value)
    return best.value, error_of(best, found.level)


def _more_rows(found: AttackResult, confidence: float, most_rows: int | None) -> tuple[int, float]:
    """Return how many rows an attacker may have, 0 if more would not help it, and what they may bring."""
    curve, used = found.curve, found.strongest.n_rows
    if most_rows is None:
        most_rows = found.n_fit * (2 if curve.trend == "rising" else 1)
    if curve.trend == "flat" or most_rows <= used:
        return 0, 0.0
    if curve.gain is None:  # too few rows to show what a doubling brings
        return most_rows, 1.0
    error = (curve.gain.high - curve.gain.value) / float(ndtri(0.5 + found.level / 2))
    doubling = max(curve.gain.value + float(ndtri(confidence)) * error, 0.0)
    return most_rows, doubling * math.log2(most_rows / used)
