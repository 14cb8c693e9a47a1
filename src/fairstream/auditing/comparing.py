"""Which of two embeddings hides an attribute better, by the AUCs of their strongest attackers."""

from __future__ import annotations

from fairstream.auditing.report import AttackResult, Estimate

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


def best_read(found: AttackResult) -> tuple[Estimate, str]:
    """Return the AUC that a limit is compared with, and of more than two groups the words for whose it is."""
    if not found.by_group:
        return found.strongest.auc, ""
    group = max(found.by_group, key=lambda one: found.by_group[one].value)
    return found.by_group[group], f"; for {group}, the group it reads best"
