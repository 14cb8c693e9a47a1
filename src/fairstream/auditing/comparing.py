"""Which of two embeddings hides an attribute better, by the AUCs of their strongest attackers."""

from __future__ import annotations

from fairstream.auditing.report import Estimate

GUESSING = 0.5
LITTLE = 0.1  # share of the other's leak that must be gone to call an embedding better
BETTER, SLIGHTLY, UNCLEAR, WORSE = "better", "little better", "not clearly better", "worse"


def compared(ours: Estimate, theirs: Estimate) -> str:
    """Return how one embedding hides an attribute beside another.

    "better" and "worse" are said only if the intervals do not overlap.

    Examples
    --------
    >>> compared(Estimate(0.88, 0.87, 0.89), Estimate(0.89, 0.88, 0.90))
    'not clearly better'
    >>> compared(Estimate(0.66, 0.65, 0.67), Estimate(0.89, 0.88, 0.90))
    'better'
    """
    if ours.low > theirs.high:
        return WORSE
    if ours.high >= theirs.low:
        return UNCLEAR
    return SLIGHTLY if ours.value - GUESSING > (1 - LITTLE) * (theirs.value - GUESSING) else BETTER
