"""What one embedding gives away about one attribute: the attack, its verdict, and gaps with their noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure import views
from fairstream.auditing.measure.attack import LEAST_ROWS, Progress, attack
from fairstream.auditing.measure.attackers import FAMILIES
from fairstream.auditing.measure.embeddings import EmbeddedRows
from fairstream.auditing.measure.gap_noise import gap_noise
from fairstream.auditing.measure.mmd import Discrepancy, discrepancy
from fairstream.auditing.measure.rounding import rounding_leak
from fairstream.auditing.measure.setting import Setting, spread_rows
from fairstream.auditing.measure.verdict import CANNOT_TELL, HOLDS, verdict
from fairstream.auditing.report import (
    AttackResult,
    GapResult,
    LeakResult,
    NoiseFloor,
    RawControl,
    RoundingLeak,
    Verdict,
)
from fairstream.auditing.subjects import Subject

FloatArray = NDArray[np.floating[Any]]
Codes = NDArray[np.intp]

CONFIDENCE = 0.95
MMD_ROWS = 4_000  # of the sample: it takes n^2 time
GUESSING = 0.5
TOO_FEW = "too few rows have a known group to attack"


def leak_result(
    attribute: str,
    subject: Subject,
    control: Subject,
    rows: tuple[EmbeddedRows, EmbeddedRows | None],
    bandwidth: float,
    setting: Setting,
    progress: Progress | None = None,
) -> LeakResult:
    """Measure what an embedding gives away about one attribute, beside plain PCA of the same size."""
    found = attacked(attribute, rows, setting, progress)
    limit = setting.options["limit"]
    return LeakResult(
        attribute=attribute,
        detected=found is not None and found.strongest.auc.low > GUESSING,
        gaps=_gaps(attribute, subject, control, rows[0], bandwidth, setting),
        attack=found,
        rounding=None if found is None else _rounding(attribute, subject, rows, setting),
        verdict=None
        if limit is None
        else _verdict(found, limit, setting.has_seen(subject.name), setting.options["attackers"]),
    )


def raw_control(
    attribute: str,
    rows: tuple[EmbeddedRows, EmbeddedRows | None],
    setting: Setting,
    progress: Progress | None = None,
) -> RawControl:
    """Attack the rows as they are."""
    return RawControl(attribute, rows[0].Z.shape[1], attacked(attribute, rows, setting, progress))


def attacked(
    attribute: str,
    rows: tuple[EmbeddedRows, EmbeddedRows | None],
    setting: Setting,
    progress: Progress | None = None,
) -> AttackResult | None:
    """Attack one attribute; None if fewer than two groups have rows enough."""
    scored, fit = rows
    codes, fit_codes = _learnable(attribute, rows, setting)
    if codes is None:
        return None
    return attack(
        scored.Z,
        codes,
        fit=None if fit is None else (fit.Z, fit_codes),
        strength=setting.options["attack"],
        families=setting.options["attackers"],
        level=setting.options["level"],
        seed=setting.options["random_state"],
        names=setting.names(attribute),
        progress=progress,
    )


def _learnable(
    attribute: str, rows: tuple[EmbeddedRows, EmbeddedRows | None], setting: Setting
) -> tuple[Codes | None, Any]:
    """Return the codes of the scored and of the fitting rows; a group that is too rare in one is unknown."""
    n_groups = len(setting.kept[attribute])
    sides = [side.codes[attribute] for side in rows if side is not None]
    counts = np.min([np.bincount(side[side >= 0], minlength=n_groups) for side in sides], axis=0)
    rare = np.flatnonzero(counts < LEAST_ROWS)
    if n_groups - len(rare) < 2:
        return None, None
    usable = [np.where(np.isin(side, rare), -1, side) for side in sides]
    fit_codes = None if rows[1] is None else _blurred(usable[1], int(setting.options["min_group_size"]))
    return usable[0], fit_codes


def _blurred(codes: Codes, min_group_size: int) -> Codes:
    """Leave so many fitting rows out that their number does not tell how many are of a small group."""
    n_left_out = int(np.sum(codes < 0))
    if not 0 < n_left_out < min_group_size:
        return codes
    # Of the largest group: another could become too small to attack.
    spared = np.flatnonzero(codes == np.bincount(codes[codes >= 0]).argmax())
    blurred = codes.copy()
    blurred[spared[spread_rows(len(spared), min_group_size - n_left_out)]] = -1
    return blurred


def _rounding(
    attribute: str,
    subject: Subject,
    rows: tuple[EmbeddedRows, EmbeddedRows | None],
    setting: Setting,
) -> RoundingLeak | None:
    """Look for leaks in the last digits, on as many rows as a standard attack has."""
    scored, fit = rows
    codes, fit_codes = _learnable(attribute, rows, setting)
    if codes is None:
        return None
    return rounding_leak(
        scored.Z,
        codes,
        fit=None if fit is None else (fit.Z, fit_codes),
        components=subject.components,
        feature_names=setting.feature_names(subject),
        level=setting.options["level"],
        seed=setting.options["random_state"],
    )


def _verdict(found: AttackResult | None, limit: float, seen: bool, tried: Sequence[str]) -> Verdict:
    if found is None:
        return Verdict(CANNOT_TELL, CONFIDENCE, f"Cannot tell: {TOO_FEW}.", 0.0, 1.0, limit)
    answer = verdict(found, limit, confidence=CONFIDENCE)
    if answer.answer == HOLDS and seen:
        # On its own rows a constraint hides more than it does on others.
        sentence = (
            "Cannot tell: too many of the audited rows are, or may be, rows of the fit. Audit rows that the "
            "model has not seen."
        )
        return replace(answer, answer=CANNOT_TELL, sentence=sentence)
    missing = [family for family in FAMILIES if family not in tried]
    if answer.answer == HOLDS and missing:
        sentence = (
            f"Cannot tell: the attackers that were tried stay below {limit:.3f}, but {', '.join(missing)} "
            "were left out. Let all attackers try."
        )
        return replace(answer, answer=CANNOT_TELL, sentence=sentence)
    return answer


def _gaps(
    attribute: str,
    subject: Subject,
    control: Subject,
    rows: EmbeddedRows,
    bandwidth: float,
    setting: Setting,
) -> tuple[GapResult, ...]:
    labels = setting.kept[attribute]
    comparisons = views.comparisons_of({attribute: labels})
    moments, control_moments = (setting.embedded.moments[s.name] for s in (subject, control))
    observed = {
        labels.index(label): views.largest_gaps(moments, [(attribute, label)]) for _, label in comparisons
    }
    floors = _noise(attribute, rows, observed, setting)
    gaps = []
    for _, label in comparisons:
        code = labels.index(label)
        mean_gap, second_moment_gap = observed[code]
        of_pca = views.largest_gaps(control_moments, [(attribute, label)])
        distance = _discrepancy(subject, attribute, label, bandwidth, setting)
        gaps.append(
            GapResult(
                group=str(label),
                mean_gap=mean_gap,
                mean_gap_relative=views.relative_gap(mean_gap, of_pca[0]),
                second_moment_gap=second_moment_gap,
                second_moment_gap_relative=views.relative_gap(second_moment_gap, of_pca[1]),
                mmd2=None if distance is None else distance.biased,
                mmd2_unbiased=None if distance is None else distance.unbiased,
                mmd2_p_value=None if distance is None else distance.p_value,
                mean_gap_noise=floors.get((code, "means")),
                second_moment_gap_noise=floors.get((code, "second moments")),
            )
        )
    return tuple(gaps)


def _noise(
    attribute: str, rows: EmbeddedRows, observed: dict[int, tuple[float, float]], setting: Setting
) -> dict[tuple[int, str], NoiseFloor]:
    """Return what shuffled labels show on as many rows as the gaps were measured on."""
    codes = rows.codes[attribute]
    counts = np.bincount(codes[codes >= 0], minlength=len(setting.kept[attribute]))
    # A group that the sample lacks would make its comparison another one.
    if setting.options["n_permutations"] == 0 or counts.min() < LEAST_ROWS:
        return {}
    moments = setting.survey.moments
    n_rows = sum(int(moments.count(attribute, label)) for label in setting.kept[attribute])
    found = gap_noise(
        rows.Z,
        codes,
        n_permutations=setting.options["n_permutations"],
        observed=observed,
        n_rows=n_rows,
        seed=setting.options["random_state"],
    )
    return {
        (noise.group, noise.gap): NoiseFloor(
            median=noise.quantiles[0],
            high=noise.quantiles[1],
            p_value=noise.p_value,
            beyond=noise.observed > noise.quantiles[1],
        )
        for noise in found
    }


def _discrepancy(
    subject: Subject, attribute: str, label: Hashable, bandwidth: float, setting: Setting
) -> Discrepancy | None:
    chosen = spread_rows(setting.survey.sample.n_rows, MMD_ROWS)
    codes = setting.codes[attribute][chosen]
    known = codes >= 0
    inside = codes[known] == setting.kept[attribute].index(label)
    if min(inside.sum(), (~inside).sum()) < LEAST_ROWS or not bandwidth > 0:
        return None
    Z = subject.embed_block(setting.survey.sample.take(chosen[known]))
    n_permutations, seed = setting.options["n_permutations"], setting.options["random_state"]
    return discrepancy(Z, inside, bandwidth, n_permutations=n_permutations, seed=seed)


def worst(verdicts: list[Verdict | None], *, all_audited: bool) -> str | None:
    """Return the worst answer, None without a limit; an attribute that was not audited cannot be told."""
    answers = [found.answer for found in verdicts if found is not None]
    if not answers:
        return None
    if not all_audited:
        answers.append(CANNOT_TELL)
    return next((answer for answer in answers if answer not in (HOLDS, CANNOT_TELL)), None) or (
        CANNOT_TELL if CANNOT_TELL in answers else HOLDS
    )
