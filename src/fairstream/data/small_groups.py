"""Small groups: stored moments of a few rows nearly reveal the rows themselves."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import TypeAlias

from fairstream.errors import FairstreamWarning

Counts: TypeAlias = Mapping[str, Mapping[Hashable, int | float]]
"""Attribute -> label -> rows."""

MIN_GROUP_SIZE = 20  # rows: the mean of one row is that row, and two rows follow from their second moments
_LISTED = 5  # groups named in a message
_ROUNDING = 1e-9  # share of all rows, for sums of weights


def small_groups(
    counts: Counts, min_group_size: float = MIN_GROUP_SIZE
) -> dict[str, dict[Hashable, int | float]]:
    """Return the groups that have rows, but fewer than `min_group_size`; attributes without any are left out.

    Examples
    --------
    >>> small_groups({"sex": {"f": 300, "m": 280, "x": 2}, "age": {"young": 291, "old": 291}})
    {'sex': {'x': 2}}
    """
    small = {a: {g: n for g, n in of.items() if 0 < n < min_group_size} for a, of in counts.items()}
    return {attribute: of for attribute, of in small.items() if of}


def withheld_groups(
    counts: Counts, n_rows: float, min_group_size: float = MIN_GROUP_SIZE
) -> dict[str, tuple[Hashable, ...]]:
    """Return the groups whose count and mean are not published.

    These are the small ones, and the next smaller ones until the rest (all rows that are in no published
    group, those of unknown group among them) has at least `min_group_size` rows or nothing is left to
    publish: the mean of the rest follows from the total mean and the published ones.

    Examples
    --------
    >>> withheld_groups({"sex": {"f": 300, "m": 280, "x": 2}}, 582)
    {'sex': ('x', 'm')}
    >>> withheld_groups({"sex": {"f": 300, "m": 280}}, 581)  # one row of unknown sex
    {'sex': ('m',)}
    >>> withheld_groups({"sex": {"f": 300, "m": 280}}, 580)
    {}
    """
    withheld = {}
    for attribute, of in counts.items():
        smallest_first = sorted(of, key=lambda label: of[label])
        rest = n_rows - sum(of.values())
        chosen: list[Hashable] = []
        for label in smallest_first:
            is_small = 0 < of[label] < min_group_size
            if is_small or n_rows * _ROUNDING < rest < min_group_size:
                chosen.append(label)
                rest += of[label]
        if chosen:
            withheld[attribute] = tuple(chosen)
    return withheld


WITHHELD_REASON = (
    "groups of fewer than {} rows, and as many others as keep their counts and means from following by "
    "subtraction"
)


def told_unlabelled(
    counts: Counts, n_rows: float, unlabelled: Mapping[str, int], min_group_size: float = MIN_GROUP_SIZE
) -> dict[str, int | str]:
    """Return how many rows have no label, as far as that tells the size of no group that is withheld.

    The total less the groups that are told leaves the withheld ones and the rows without a label together:
    either number gives the other away.

    Examples
    --------
    >>> told_unlabelled({"sex": {"f": 300, "m": 280}}, 605, {"sex": 25})
    {'sex': 25}
    >>> told_unlabelled({"sex": {"f": 300, "m": 280}}, 587, {"sex": 7})
    {'sex': 'fewer than 20'}
    >>> told_unlabelled({"sex": {"f": 300, "m": 280, "x": 2}}, 607, {"sex": 25})
    {'sex': 'at most 27'}
    """
    withheld = withheld_groups(counts, n_rows, min_group_size)
    told: dict[str, int | str] = {}
    for attribute, number in unlabelled.items():
        of = counts.get(attribute, {})
        hidden = sum(of[label] for label in withheld.get(attribute, ()))
        if 0 < number < min_group_size:
            told[attribute] = f"fewer than {min_group_size:,}"
        elif number and 0 < hidden < min_group_size:
            told[attribute] = f"at most {number + hidden:,.6g}"
        else:
            told[attribute] = number
    return told


def row_level_caution(counts: Counts, n_rows: float, min_group_size: float = MIN_GROUP_SIZE) -> str | None:
    """Return a caution if the moments nearly reveal single rows, else None.

    Examples
    --------
    >>> row_level_caution({"sex": {"f": 300, "x": 2}}, 303)
    "holds the moments of fewer than 20 rows: sex='x' (2 rows), sex unknown (1 row); treat as row-level data"
    """
    if 0 < n_rows < min_group_size:
        told = [f"all rows there are ({_rows(n_rows)})"]
    else:
        told = _named(small_groups(counts, min_group_size))
        for attribute, of in counts.items():
            unknown = n_rows - sum(of.values())
            if n_rows * _ROUNDING < unknown < min_group_size:
                told.append(f"{attribute} unknown ({_rows(unknown)})")
    if not told:
        return None
    few = f"fewer than {min_group_size:,} rows"
    return f"holds the moments of {few}: {_listed(told)}; treat as row-level data"


def warn_of_row_level(counts: Counts, n_rows: float, min_group_size: float = MIN_GROUP_SIZE) -> None:
    """Warn before a file is written that holds the moments of small groups."""
    caution = row_level_caution(counts, n_rows, min_group_size)
    if caution is not None:
        warnings.warn(
            f"the file {caution}; to hand a model on, save subspace_, which leaves such groups out",
            FairstreamWarning,
            stacklevel=3,
        )


def warn_of_few_rows(n_rows: float, min_group_size: float = MIN_GROUP_SIZE) -> None:
    """Warn before a model is written whose mean and components come from a few rows."""
    if n_rows < min_group_size:
        warnings.warn(
            f"the model was learned from {_rows(n_rows)}, fewer than min_group_size={min_group_size:,}: its "
            "mean and directions nearly tell them; treat as row-level data",
            FairstreamWarning,
            stacklevel=3,
        )


def plain_counts(counts: Counts) -> dict[str, dict[str, int | float]]:
    """Return counts with labels as text, as JSON can hold them."""
    return {attribute: {str(label): n for label, n in of.items()} for attribute, of in counts.items()}


def listed_groups(small: Counts) -> str:
    """Name groups and their sizes in a message.

    Examples
    --------
    >>> listed_groups({"sex": {"x": 2}})
    "sex='x' (2 rows)"
    """
    return _listed(_named(small))


def _named(small: Counts) -> list[str]:
    return [f"{a}={label!r} ({_rows(n)})" for a, of in small.items() for label, n in of.items()]


def _listed(told: list[str]) -> str:
    more = len(told) - _LISTED
    return ", ".join(told[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _rows(n: float) -> str:
    return f"{n:,.6g} row{'s' * (n != 1)}"
