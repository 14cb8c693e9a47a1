"""How decisions fall by group: selection, errors, calibration and scores, each with its interval.

Rates have Wilson intervals; the ratio of two selection rates has a log-normal one (Katz). Groups with fewer
than `min_group_size` rows are suppressed. Nothing that is shown gives fewer rows away by subtraction: if an
intersection is suppressed, others are too, until those of one group that are not shown have rows enough; the
true and the false positive rate are shown together or not at all; and neighbouring bins of scores are joined
until each has rows enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fairstream.auditing.report import AttributeDecisions, CalibrationBin, Estimate, GroupDecisions

FloatArray = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]

FOUR_FIFTHS = 0.8
SCORE_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
SCORE_DIGITS = 3  # a score with all its digits is one person's


def decisions(
    y: ArrayLike,
    scores: ArrayLike,
    groups: Mapping[str, ArrayLike],
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    decided: ArrayLike | None = None,
    threshold: float = 0.5,
    intersections: Iterable[Sequence[str]] = (),
    n_bins: int = 10,
    min_group_size: int = 20,
    level: float = 0.95,
) -> tuple[AttributeDecisions, ...]:
    """Compare groups by the decisions about their rows.

    Parameters
    ----------
    y : array of shape (n,)
        The truth, 0 or 1.
    scores : array of shape (n,)
        The score of each row, larger for 1; calibrated scores are probabilities.
    groups : dict of str to array of shape (n,)
        For each attribute, the group of each row as codes 0, 1, ...; -1 means unknown.
    names : dict of str to sequence of str, optional
        For each attribute, the names of its groups by code.
    decided : array of shape (n,), optional
        The decisions, 0 or 1. Without them, a row is selected if its score is at least `threshold`.
    threshold : float
        See `decided`.
    intersections : iterable of sequences of str
        Attributes to cross, for instance `[("sex", "race")]`.
    n_bins : int
        Number of calibration bins: quantiles of the scores of all rows. Small ones of a group are joined.
    min_group_size : int
        Groups and rates with fewer rows are suppressed, bins are joined.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> y = np.arange(200) % 2
    >>> sex = np.arange(200) // 100
    >>> found, = decisions(y, np.where(sex, 0.9, 0.1 + 0.8 * y), {"sex": sex}, names={"sex": ["f", "m"]})
    >>> [(group.group, group.selection_rate.value, group.four_fifths) for group in found.groups]
    [('f', 0.5, 'below'), ('m', 1.0, 'not below')]
    """
    truth, score = np.asarray(y), np.asarray(scores, dtype=float)
    if score.ndim != 1 or truth.shape != score.shape or not np.isin(truth, (0, 1)).all():
        raise ValueError(
            f"y has shape {truth.shape}, scores has {score.shape}: pass a 0 or 1 and a score per row"
        )
    if not np.isfinite(score).all():
        raise ValueError("scores has NaN or infinite values: drop such rows")
    chosen = score >= threshold if decided is None else np.asarray(decided)
    if chosen.shape != score.shape or not np.isin(chosen, (0, 1)).all():
        raise ValueError(f"decided has shape {chosen.shape}, y has {truth.shape}: pass 0 or 1, one per row")
    if not 0.5 <= level < 1:
        raise ValueError(f"level is {level!r}: pass a confidence level such as 0.95")
    columns = {attribute: np.asarray(codes) for attribute, codes in groups.items()}
    for attribute, codes in columns.items():
        if codes.shape != score.shape or codes.dtype.kind not in "iu":
            raise ValueError(
                f"groups[{attribute!r}] has shape {codes.shape} and dtype {codes.dtype}: pass one integer "
                "per row, -1 for unknown"
            )
    edges = np.unique(np.quantile(score, np.linspace(0, 1, n_bins + 1)).round(SCORE_DIGITS))
    rows = _Rows(truth.astype(bool), score, chosen.astype(bool), edges, min_group_size, level)
    found = []
    for crossed in [*((attribute,) for attribute in columns), *map(tuple, intersections)]:
        missing = [attribute for attribute in crossed if attribute not in columns]
        if missing:
            raise ValueError(f"intersections has {missing[0]!r}: groups has {', '.join(map(repr, columns))}")
        found.append(_by_group(rows, crossed, columns, names or {}))
    return tuple(found)


@dataclass(frozen=True)
class _Rows:
    truth: Flags
    score: FloatArray
    chosen: Flags
    edges: FloatArray
    min_group_size: int
    level: float


def _by_group(
    rows: _Rows,
    crossed: tuple[str, ...],
    columns: Mapping[str, NDArray[Any]],
    names: Mapping[str, Sequence[str]],
) -> AttributeDecisions:
    codes = np.column_stack([columns[attribute] for attribute in crossed])
    known = (codes >= 0).all(axis=1)
    present, place = np.unique(codes[known], axis=0, return_inverse=True)
    sizes = np.bincount(place.ravel(), minlength=len(present))
    shown = sizes >= rows.min_group_size
    if len(crossed) > 1:
        shown = _safe(present, sizes, shown, codes, rows.min_group_size)
    members = {}
    for number, combination in enumerate(present.tolist()):
        if shown[number]:
            labels = [
                str(names[attribute][code]) if attribute in names else str(code)
                for attribute, code in zip(crossed, combination, strict=True)
            ]
            members[" and ".join(labels)] = np.flatnonzero(known)[place.ravel() == number]
    most = max(members.values(), key=lambda inside: rows.chosen[inside].mean(), default=None)
    return AttributeDecisions(
        attribute=" and ".join(crossed),
        crossed=crossed,
        groups=tuple(_one_group(rows, name, inside, most) for name, inside in members.items()),
        n_suppressed_groups=int(np.sum(~shown)),
    )


def _safe(
    present: NDArray[Any], sizes: NDArray[Any], shown: Flags, codes: NDArray[Any], min_group_size: int
) -> Flags:
    """Hide more cells of a crossing until no group minus its shown cells leaves a few rows.

    The groups of each crossed attribute are shown by themselves, with all their rows. A group too small for
    that has no total to subtract from.
    """
    shown = shown.copy()
    while True:
        before = shown.sum()
        for axis in range(present.shape[1]):
            totals = np.bincount(codes[codes[:, axis] >= 0, axis])
            for code, total in enumerate(totals.tolist()):
                cells = present[:, axis] == code
                rest = total - sizes[cells & shown].sum()
                if total >= min_group_size and 0 < rest < min_group_size and (cells & shown).any():
                    hidden = np.flatnonzero(cells & shown)
                    shown[hidden[np.argmin(sizes[hidden])]] = False
        if shown.sum() == before:
            return shown


def _one_group(rows: _Rows, name: str, inside: NDArray[np.intp], most: Any) -> GroupDecisions:
    truth, chosen, score = rows.truth[inside], rows.chosen[inside], rows.score[inside]
    both = min(truth.sum(), (~truth).sum()) >= rows.min_group_size
    ratio = _ratio(chosen, rows.chosen[most], rows.level, same=inside is most)
    return GroupDecisions(
        group=name,
        n_rows=len(inside),
        selection_rate=wilson(int(chosen.sum()), len(chosen), rows.level),
        selection_ratio=ratio,
        four_fifths=_four_fifths(ratio),
        true_positive_rate=_rate(chosen[truth], rows) if both else None,
        false_positive_rate=_rate(chosen[~truth], rows) if both else None,
        calibration=_calibration(truth, score, rows),
        score_quantiles=tuple(np.quantile(score, SCORE_QUANTILES).round(SCORE_DIGITS).tolist()),
    )


def _rate(flags: Flags, rows: _Rows) -> Estimate:
    return wilson(int(flags.sum()), len(flags), rows.level)


def _calibration(truth: Flags, score: FloatArray, rows: _Rows) -> tuple[CalibrationBin, ...]:
    n_bins = max(len(rows.edges) - 1, 1)
    bins = np.clip(np.searchsorted(rows.edges, score, "right") - 1, 0, n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    found = []
    for first, last in _joined(counts.tolist(), rows.min_group_size):
        inside = (bins >= first) & (bins <= last)
        low, high = rows.edges[first], rows.edges[min(last + 1, len(rows.edges) - 1)]
        mean = float(score[inside].mean())
        found.append(
            CalibrationBin(float(low), float(high), int(inside.sum()), mean, _rate(truth[inside], rows))
        )
    return tuple(found)


def _joined(counts: list[int], least: int) -> list[tuple[int, int]]:
    """Join neighbouring bins until each has so many rows; return the first and the last bin of each.

    Examples
    --------
    >>> _joined([5, 30, 2, 3], 20)
    [(0, 3)]
    >>> _joined([25, 30, 2, 20], 20)
    [(0, 0), (1, 1), (2, 3)]
    """
    parts: list[tuple[int, int]] = []
    start, held = 0, 0
    for number, count in enumerate(counts):
        held += count
        if held >= least:
            parts.append((start, number))
            start, held = number + 1, 0
    if held and parts:
        parts[-1] = (parts[-1][0], len(counts) - 1)
    return parts


def wilson(hits: int, n_rows: int, level: float) -> Estimate:
    """Return a rate with its Wilson interval.

    Examples
    --------
    >>> found = wilson(0, 20, 0.95)
    >>> found.value, found.low, round(found.high, 3)
    (0.0, 0.0, 0.161)
    """
    z = float(ndtri(0.5 + level / 2))
    rate, weight = hits / n_rows, z**2 / n_rows
    middle = (rate + weight / 2) / (1 + weight)
    reach = z * np.sqrt(rate * (1 - rate) / n_rows + weight / (4 * n_rows)) / (1 + weight)
    low, high = float(middle - reach), float(middle + reach)
    return Estimate(rate, 0.0 if hits == 0 else low, 1.0 if hits == n_rows else high)


def _ratio(chosen: Flags, most: Flags, level: float, *, same: bool) -> Estimate:
    """Return the ratio of two selection rates; half a row is added to rates of 0 and 1 for their interval."""
    if same or not most.any():
        return Estimate(1.0, 1.0, 1.0)
    rate, reference = float(chosen.mean()), float(most.mean())
    smooth = [(flags.sum() + 0.5) / (len(flags) + 1) for flags in (chosen, most)]
    counts = [len(chosen) + 1, len(most) + 1]
    error = np.sqrt(sum((1 - share) / (count * share) for share, count in zip(smooth, counts, strict=True)))
    reach = float(np.exp(ndtri(0.5 + level / 2) * error))
    middle = smooth[0] / smooth[1]
    value = rate / reference
    return Estimate(value, float(min(middle / reach, value)), float(max(middle * reach, value)))


def _four_fifths(ratio: Estimate) -> str:
    if ratio.high < FOUR_FIFTHS:
        return "below"
    return "not below" if ratio.low >= FOUR_FIFTHS else "cannot tell"
