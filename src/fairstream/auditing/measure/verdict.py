"""Does an embedding keep a promise such as "no attacker above AUC 0.65"? Yes, no, or cannot tell."""

from __future__ import annotations

from scipy.special import ndtri

from fairstream.auditing.report import AttackResult, Estimate, Verdict

HOLDS, FAILS, CANNOT_TELL = "holds", "does not hold", "cannot tell"


def verdict(
    found: AttackResult | Estimate,
    limit: float,
    *,
    confidence: float = 0.95,
    level: float = 0.95,
    accept_rising: bool = False,
) -> Verdict:
    """Compare the strongest attacker's AUC with a limit.

    The limit holds if the upper confidence bound is at most the limit, and does not hold if the lower bound
    is above it. If the attacker's curve is still rising, an attacker with more rows would read more: then
    "holds" becomes "cannot tell". So it does if the attacker left rows unused and its curve is not flat.

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
    accept_rising : bool
        Let "holds" stand although the curve is still rising, for attackers that cannot have more rows.

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
    if isinstance(found, AttackResult):
        auc, error, trend = found.strongest.auc.value, found.strongest.standard_error, found.curve.trend
        n_rows = found.strongest.n_rows
    else:
        # The interval is cut at 0 and 1, so its longer side shows the error.
        auc, trend, n_rows = found.value, "unclear", None
        error = max(auc - found.low, found.high - auc) / float(ndtri(0.5 + level / 2))
    reach = float(ndtri(confidence)) * error
    lower, upper = max(auc - reach, 0.0), min(auc + reach, 1.0)
    fitted = "" if n_rows is None else f" (fitted on {n_rows:,} rows)"
    sure = f"with {100 * confidence:.4g} % confidence"
    reads = f"the strongest attacker{fitted} reads the group at AUC {auc:.3f}, {sure}"
    if lower > limit:
        sentence = f"Does not hold: {reads} at least {lower:.3f}; the limit is {limit:.3f}."
        return Verdict(FAILS, confidence, sentence, lower, upper, limit)
    if upper > limit:
        sentence = (
            f"Cannot tell: {reads} between {lower:.3f} and {upper:.3f}, and the limit of {limit:.3f} lies "
            "between. Score more rows."
        )
        return Verdict(CANNOT_TELL, confidence, sentence, lower, upper, limit)
    if trend == "rising" and not accept_rising:
        sentence = (
            f"Cannot tell: {reads} at most {upper:.3f}, and the limit is {limit:.3f}, but its curve is still "
            "rising: an attacker with more rows would read more."
        )
        return Verdict(CANNOT_TELL, confidence, sentence, lower, upper, limit)
    if isinstance(found, AttackResult) and n_rows is not None and n_rows < found.n_fit and trend != "flat":
        sentence = (
            f"Cannot tell: {reads} at most {upper:.3f}, and the limit is {limit:.3f}, but it left "
            f"{found.n_fit - n_rows:,} rows unused, and its curve is not flat. Attack with all rows (strong)."
        )
        return Verdict(CANNOT_TELL, confidence, sentence, lower, upper, limit)
    sentence = f"Holds: {reads} at most {upper:.3f}; the limit is {limit:.3f}."
    if trend == "rising":
        sentence += " Its curve is still rising: this is for attackers with no more rows than these."
    return Verdict(HOLDS, confidence, sentence, lower, upper, limit)
