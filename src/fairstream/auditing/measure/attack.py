"""How well the strongest attacker reads the group off an embedding, and whether more rows would help it.

A probe fitted on few rows understates what leaks. Here several families of attackers are fitted, each in
several settings; validation on fitting rows chooses the setting of each family, and the strongest attacker:
one family, or a blend of the best two or three (the mean of their log-odds). It is then fitted on all fitting
rows and scored once, on rows that no choice has seen. So its interval needs no correction for having been
chosen as the best of many.

If the fitting rows are the embedding's own training rows, a constraint has removed the gap of all of them
together: what one part of them shows, another part shows the other way round. So the validation AUC of a
linear attacker can be below 0.5 there, and on few rows validation understates all attackers. A strong attack
with few fitting rows (`FEW_ROWS`) therefore learns from the scored rows too, in folds, and is validated on
those.

Guesses that are consistently wrong are information: people may come in pairs of different groups with nearly
equal rows. If validation says with certainty that an attacker guesses worse than chance, its guesses are
reversed. On rows that the embedding may have been fitted on, the constraint alone makes attackers look wrong,
so there it takes more to be certain.

The curve shows the strongest attacker with half, a quarter, an eighth and a sixteenth of the rows. Its trend
is read off the last doubling, compared on the same scored rows: "rising" if the AUC grew by `RISE` or more
and the interval of the growth lies above 0; "flat" if that interval lies below `LEVEL_OFF`; "unclear"
otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from fairstream.auditing.measure.attackers import ATTACKERS, FAMILIES, Attacker
from fairstream.auditing.measure.auc import auc_influence, interval, standard_error
from fairstream.auditing.measure.fitting import side_by_side
from fairstream.auditing.measure.probes import CHANCE_AUC
from fairstream.auditing.report import AttackCurve, AttackerResult, AttackResult, CurvePoint, Estimate

FloatArray = NDArray[np.floating[Any]]
Codes = NDArray[np.intp]
Progress = Callable[[int, int], object]
Judged = tuple[float, FloatArray]  # an AUC, and each row's influence on it

N_FOLDS = 5
LEAST_ROWS = 10  # of a group, to attack it at all
STANDARD_ROWS = 8_000
FEW_ROWS = 3_000  # below this, one validation part is too small to choose by
MOST_BLENDED = 3
WORTH_BLENDING = 0.25  # share of the best AUC's excess over chance
CURVE_POINTS = 5
SMALLEST_POINT = 100
SURELY = 3.0  # standard errors below guessing from which validation guesses are wrong by more than chance
RISE = 0.005
LEVEL_OFF = 0.01


def attack(
    Z: ArrayLike,
    codes: ArrayLike,
    *,
    fit: tuple[ArrayLike, ArrayLike] | None = None,
    strength: str = "standard",
    families: Iterable[str] = FAMILIES,
    level: float = 0.95,
    seed: int = 0,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> AttackResult:
    """Attack an embedding by the strongest of several families of classifiers.

    Parameters
    ----------
    Z : array of shape (n, k)
        The embedding of the scored rows, which the embedding was not fitted on.
    codes : array of shape (n,)
        The group of each row, as codes 0, 1, ...; -1 means unknown.
    fit : (array of shape (n_fit, k), array of shape (n_fit,)), optional
        Rows that an attacker may have, and their groups: for instance the embedding's own training rows.
        Without them, the scored rows are attacked in folds, and no choice has seen the rows it is scored on.
        There are five folds; a standard attack makes do with fewer if its attackers have 8,000 rows anyway.
        A strong attack with fewer than 3,000 such rows has the scored rows of the other folds as well.
    strength : {"standard", "strong"}
        "strong" fits on all rows, in more and larger settings. "standard" fits on at most 8,000 rows.
    families : iterable of str
        Any of "linear", "quadratic", "kernel", "boosting", "forest", "network".
    level : float
        Confidence level of the intervals.
    seed : int
        Seed of folds and attackers. The result does not depend on the number of threads.
    names : sequence of str, optional
        What the groups are called, by their codes.
    progress : callable, optional
        Called as `progress(fits_done, fits_in_all)`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes = np.arange(300) % 2
    >>> Z = rng.normal(size=(300, 2)) * np.where(codes, 4.0, 1.0)[:, None]
    >>> result = attack(Z, codes, families=["linear", "quadratic"])
    >>> result.strongest.name, result.strongest.auc.low > 0.8
    ('quadratic', True)
    """
    candidates = _candidates(strength, families)
    if not 0.5 <= level < 1:
        raise ValueError(f"level is {level!r}: pass a confidence level such as 0.95")
    scored_Z, labels, n_unknown = _known("Z", "codes", Z, codes)
    if fit is None:
        fit_Z, fit_labels, n_unknown_fit = scored_Z, labels, 0
    else:
        fit_Z, fit_labels, n_unknown_fit = _known("fit[0]", "fit[1]", *fit)
    present = _common_groups(labels, fit_labels, fit_Z.shape[1], scored_Z.shape[1])
    scored, fitted = np.searchsorted(present, labels), np.searchsorted(present, fit_labels)
    most_rows = STANDARD_ROWS if strength == "standard" else None
    n_scored, n_given = len(scored), 0
    if fit is not None and strength == "strong" and len(fitted) < FEW_ROWS:
        # An attacker of all rows there are: those given, and the scored rows of the other folds.
        n_given = len(fitted)
        fit_Z = scored_Z = np.concatenate([fit_Z, scored_Z])
        fitted = scored = np.concatenate([fitted, scored])
    if fit is None or n_given:
        kept = StratifiedKFold(folds_needed(n_scored, most_rows), shuffle=True, random_state=seed)
        given, judged = np.arange(n_given), scored[n_given:]
        parts = [
            (np.concatenate([given, n_given + rows]), n_given + held)
            for rows, held in kept.split(judged, judged)
        ]
    else:
        parts = [(np.arange(len(fitted)), np.arange(n_scored))]
    folds = []
    for rows, held in parts:
        ordered = first_rows(rows[_stratified_order(fitted[rows], seed)], fitted, most_rows)
        folds.append(_Fold(ordered, held, unused=ordered[ordered >= n_given]))
    doubt = SURELY if fit is None or n_given else SURELY + _doubt_on_own_rows(fit_Z.shape[1])
    outcomes = _attack_folds(fit_Z, fitted, scored_Z, folds, candidates, seed, doubt, progress)
    rounds = [(outcome, scored[fold.scored]) for outcome, fold in zip(outcomes, folds, strict=True)]
    called = {place: str(code if names is None else names[code]) for place, code in enumerate(present)}
    return AttackResult(
        strongest=_strongest(rounds, level),
        attackers=tuple(_family_result(family, rounds, level) for family in rounds[0][0].chosen),
        curve=_curve(rounds, called, level),
        strength=strength,
        n_groups=len(present),
        n_fit=min(len(rows) for rows, _ in parts),
        n_scored=n_scored,
        n_unknown=n_unknown,
        n_unknown_fit=n_unknown_fit,
        n_folds=len(folds),
        level=level,
        by_group={
            name: _mean([_one_group(o.strongest, c, place) for o, c in rounds], level)
            for place, name in (called if len(called) > 2 else {}).items()
        },
    )


@dataclass(frozen=True)
class _Round:
    """What one set of fitting rows leads to: log-odds of the scored rows, and how they were chosen."""

    chosen: dict[str, Attacker]
    signs: dict[str, FloatArray]
    validation: dict[str, float]
    n_rows: dict[str, int]
    scores: dict[str, FloatArray]
    members: tuple[str, ...]
    blend_validation: float
    curve: dict[int, FloatArray]

    @property
    def strongest(self) -> FloatArray:
        return _blend(self.scores[family] for family in self.members)

    @property
    def name(self) -> str:
        return self.members[0] if len(self.members) == 1 else f"blend of {' and '.join(self.in_order)}"

    @property
    def in_order(self) -> list[str]:
        """The members in the order of families: folds that rank the same members otherwise agree."""
        return sorted(self.members, key=FAMILIES.index)

    def setting(self, family: str) -> str:
        """Return the setting of a family, and whether its guesses are reversed."""
        reversed_groups = self.signs[family] < 0
        if not reversed_groups.any():
            return self.chosen[family].setting
        whose = "guesses" if reversed_groups.all() else "guesses of some groups"
        return f"{self.chosen[family].setting}, {whose} reversed"


@dataclass(frozen=True)
class _Fold:
    """The rows that attackers are fitted on, groups in their shares from the beginning, and those scored.

    Settings are chosen by rows that the embedding may not have been fitted on (`unused`), if some are known.
    """

    rows: Codes
    scored: Codes
    unused: Codes


@dataclass(frozen=True)
class _Trial:
    """Rows to fit every setting on once, and for every fold whose choice it serves the rows held out."""

    rows: Codes
    held: dict[int, Codes]


@dataclass(frozen=True)
class _Choice:
    """What validation chose in one fold; the log-odds of each family are to be multiplied by its signs."""

    chosen: dict[str, Attacker]
    signs: dict[str, FloatArray]
    validation: dict[str, float]
    ranked: list[str]
    members: tuple[str, ...]
    blend_validation: float


def _attack_folds(
    Z_fit: FloatArray,
    codes_fit: Codes,
    Z: FloatArray,
    folds: Sequence[_Fold],
    candidates: tuple[Attacker, ...],
    seed: int,
    doubt: float,
    progress: Progress | None,
) -> list[_Round]:
    fewest = min(len(fold.rows) for fold in folds)
    candidates = tuple(attacker for attacker in candidates if attacker.least_rows <= fewest)
    families = list(dict.fromkeys(attacker.family for attacker in candidates))
    trials = _trials(folds, codes_fit, seed)
    sizes = [_curve_sizes(codes_fit[fold.rows]) for fold in folds]
    n_refits = sum(len(families) + len(of_fold) - 1 for of_fold in sizes)
    counter = _Counter(len(candidates) * len(trials) + n_refits, progress)

    def try_out(attacker: Attacker, trial: _Trial) -> list[FloatArray]:
        rows, held = first_rows(trial.rows, codes_fit, attacker.most_rows), list(trial.held.values())
        odds = attacker.log_odds(Z_fit[rows], codes_fit[rows], Z_fit[np.concatenate(held)], seed, trial=True)
        return np.split(odds, np.cumsum([len(part) for part in held])[:-1])

    def refit(choice: _Choice, family: str, fold: _Fold, n_rows: int) -> FloatArray:
        attacker = choice.chosen[family]
        rows = first_rows(fold.rows, codes_fit, min(n_rows, attacker.most_rows or n_rows))
        odds = attacker.log_odds(Z_fit[rows], codes_fit[rows], Z[fold.scored], seed)
        return choice.signs[family] * odds

    def smaller(choice: _Choice, fold: _Fold, n_rows: int) -> FloatArray:
        return _blend(refit(choice, family, fold, n_rows) for family in choice.members)

    trying = [(try_out, attacker, trial) for attacker in candidates for trial in trials]
    tried = iter(side_by_side(trying, counter.one_more))
    scores: list[dict[Attacker, list[FloatArray]]] = [{} for _ in folds]
    for attacker in candidates:
        for trial in trials:
            for fold_number, odds in zip(trial.held, next(tried), strict=True):
                scores[fold_number].setdefault(attacker, []).append(odds)
    held_codes = [
        [codes_fit[trial.held[number]] for trial in trials if number in trial.held]
        for number in range(len(folds))
    ]
    choices = [_choice(of_fold, held, doubt) for of_fold, held in zip(scores, held_codes, strict=True)]
    jobs: list[tuple[Any, ...]] = []
    for fold, choice, of_fold in zip(folds, choices, sizes, strict=True):
        jobs += [(refit, choice, family, fold, len(fold.rows)) for family in choice.ranked]
        jobs += [(smaller, choice, fold, size) for size in of_fold[-2::-1]]
    done = iter(side_by_side(jobs, counter.one_more))
    return [
        _Round(
            chosen={family: choice.chosen[family] for family in families},
            signs=choice.signs,
            validation=choice.validation,
            n_rows={f: min(len(fold.rows), choice.chosen[f].most_rows or len(fold.rows)) for f in families},
            scores={family: next(done) for family in choice.ranked},
            members=choice.members,
            blend_validation=choice.blend_validation,
            curve={size: next(done) for size in of_fold[-2::-1]},
        )
        for fold, choice, of_fold in zip(folds, choices, sizes, strict=True)
    ]


def _choice(trials: dict[Attacker, list[FloatArray]], codes: Sequence[Codes], doubt: float) -> _Choice:
    """Choose the setting of each family, and the strongest attacker, by rows held out."""
    chosen: dict[str, Attacker] = {}
    signs: dict[str, FloatArray] = {}
    validation: dict[str, float] = {}
    guesses: dict[str, list[FloatArray]] = {}
    for attacker, scores in trials.items():
        family, sign = attacker.family, _signs(scores, codes, doubt)
        meant: list[FloatArray] = [sign * part for part in scores]
        auc = _mean_auc(meant, codes)
        if auc > validation.get(family, -1.0):
            chosen[family], signs[family], validation[family], guesses[family] = attacker, sign, auc, meant
    ranked = sorted(validation, key=lambda family: -validation[family])
    # A family near chance, or below it, would only dilute a blend.
    least = CHANCE_AUC + WORTH_BLENDING * (validation[ranked[0]] - CHANCE_AUC)
    worthy = [family for family in ranked if family == ranked[0] or validation[family] >= least]
    members, blend_validation = _choose(worthy, guesses, codes)
    return _Choice(chosen, signs, validation, ranked, members, blend_validation)


def _signs(scores: Sequence[FloatArray], codes: Sequence[Codes], doubt: float) -> FloatArray:
    """Return -1 if guesses are `doubt` standard errors worse than chance, else 1; of many groups one each."""
    columns = [None] if scores[0].ndim == 1 else [*range(scores[0].shape[1])]
    signs = []
    for group in columns:
        judged = [
            auc_influence(part, held) if group is None else _one_group(part, held, group)
            for part, held in zip(scores, codes, strict=True)
        ]
        error = standard_error([influence for _, influence in judged])
        wrong = np.mean([auc for auc, _ in judged]) + doubt * error < CHANCE_AUC
        signs.append(-1.0 if wrong else 1.0)
    return np.array(signs if scores[0].ndim > 1 else signs[0])


def _doubt_on_own_rows(width: int) -> float:
    """Return by how many standard errors a constraint may make attackers look wrong on the rows of its fit.

    If a moment of all rows has no gap, that of a part has one gap and that of the rest the opposite one. Of p
    such moments an attacker sees about the root of p standard errors. The means and second moments of k
    scores are k + k (k + 1) / 2.
    """
    return float(np.sqrt(width * (width + 3) / 2))


def _choose(
    ranked: Sequence[str], scores: dict[str, list[FloatArray]], codes: Sequence[Codes]
) -> tuple[tuple[str, ...], float]:
    """Return the members of the strongest blend by validation, and its validation AUC.

    On few rows the best family is uncertain, and a blend is the safer choice: a smaller blend replaces a
    larger one only if it is better by more than the standard error of their difference.
    """
    members: tuple[str, ...] = ()
    best = -np.inf
    influences: list[FloatArray] = [np.zeros(len(part)) for part in codes]
    for size in range(min(MOST_BLENDED, len(ranked)), 0, -1):
        blended = [_blend(parts) for parts in zip(*(scores[f] for f in ranked[:size]), strict=True)]
        parts = [auc_influence(part, held) for part, held in zip(blended, codes, strict=True)]
        auc = float(np.mean([value for value, _ in parts]))
        error = standard_error([here - there for (_, here), there in zip(parts, influences, strict=True)])
        if auc > best + error:
            members, best, influences = tuple(ranked[:size]), auc, [influence for _, influence in parts]
    return members, best


class _Counter:
    """Count fits for the caller's progress function."""

    def __init__(self, total: int, tick: Progress | None) -> None:
        self._done, self._total, self._tick = 0, total, tick

    def one_more(self) -> None:
        self._done += 1
        if self._tick is not None:
            self._tick(self._done, self._total)


def _blend(scores: Iterable[FloatArray]) -> FloatArray:
    blended: FloatArray = np.mean(list(scores), axis=0)
    return blended


def _mean_auc(scores: Sequence[FloatArray], codes: Sequence[Codes]) -> float:
    return float(np.mean([auc_influence(s, c)[0] for s, c in zip(scores, codes, strict=True)]))


def folds_needed(n_rows: int, most_rows: int | None) -> int:
    """Return the smallest number of folds that leaves an attacker as many rows as it may have."""
    if most_rows is None:
        return N_FOLDS
    return next((n for n in range(2, N_FOLDS) if n_rows - n_rows // n >= most_rows), N_FOLDS)


def _trials(folds: Sequence[_Fold], codes: Codes, seed: int) -> list[_Trial]:
    """Return the fits that choose settings; none has seen a row that its choice will be scored on.

    Of five folds, two can share a fit on the other three: each is validated on the rows that the other one
    is scored on.
    """
    if len(folds) == N_FOLDS and min(len(fold.rows) for fold in folds) >= FEW_ROWS:
        return [_shared_trial(folds, pair) for pair in ((0, 1), (2, 3), (4, 0))]
    found = []
    for number, fold in enumerate(folds):
        few = len(fold.rows) < FEW_ROWS
        labels = codes[fold.unused]
        splits = StratifiedKFold(3 if few else 4, shuffle=True, random_state=seed).split(labels, labels)
        for _, places in splits if few else islice(splits, 1):
            held = fold.unused[places]
            found.append(_Trial(fold.rows[~np.isin(fold.rows, held)], {number: held}))
    return found


def _shared_trial(folds: Sequence[_Fold], pair: tuple[int, int]) -> _Trial:
    one, other = pair
    rows = folds[one].rows
    held = {one: folds[other].scored} | ({other: folds[one].scored} if other > one else {})
    return _Trial(rows[~np.isin(rows, folds[other].scored)], held)


def _stratified_order(codes: Codes, seed: int) -> Codes:
    """Return a random order of rows of which every beginning holds the groups in their shares."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(codes))
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        place[rows] = (rng.permutation(len(rows)) + rng.random()) / len(rows)
    return np.argsort(place, kind="stable").astype(np.intp)


def first_rows(rows: Codes, codes: Codes, most: int | None) -> Codes:
    """Return the first rows, among them some of every group: an attacker must know all groups.

    Examples
    --------
    >>> first_rows(np.arange(100), np.repeat([0, 1], [85, 15]), 15).tolist()
    [85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 0, 1, 2, 3, 4]
    """
    if most is None or most >= len(rows):
        return rows
    own = codes[rows]
    rare = [code for code in np.unique(own) if np.sum(own[:most] == code) < LEAST_ROWS]
    if not rare:
        return rows[:most]
    ahead = np.concatenate([np.flatnonzero(own == code)[:LEAST_ROWS] for code in rare])
    return np.concatenate([rows[ahead], np.delete(rows, ahead)])[:most]


def _curve_sizes(codes: Codes) -> list[int]:
    """Return the numbers of rows of the curve, smallest first: all, a half, a quarter, ..."""
    sizes = [len(codes)]
    while len(sizes) < CURVE_POINTS:
        size = sizes[-1] // 2
        smallest = np.bincount(codes[:size], minlength=int(codes.max()) + 1).min()
        if size < SMALLEST_POINT or smallest < LEAST_ROWS:
            break
        sizes.append(size)
    return sizes[::-1]


def _summary(
    name: str,
    setting: str,
    n_rows: int,
    validation: float,
    scores: Sequence[FloatArray],
    codes: Sequence[Codes],
    level: float,
) -> AttackerResult:
    parts = [auc_influence(s, c) for s, c in zip(scores, codes, strict=True)]
    error = standard_error([influence for _, influence in parts])
    return AttackerResult(name, setting, n_rows, _mean(parts, level), error, validation)


def _mean(parts: Sequence[Judged], level: float, *, lowest: float = 0.0) -> Estimate:
    """Return the mean over folds with its interval."""
    error = standard_error([influence for _, influence in parts])
    return interval(float(np.mean([value for value, _ in parts])), error, level, lowest=lowest)


def _one_group(scores: FloatArray, codes: Codes, group: int) -> Judged:
    """Judge how one group is told from the rest."""
    return auc_influence(scores[:, group], (codes == group).astype(np.intp))


def _family_result(family: str, rounds: Sequence[tuple[_Round, Codes]], level: float) -> AttackerResult:
    return _summary(
        name=family,
        setting=_most_often([outcome.setting(family) for outcome, _ in rounds]),
        n_rows=min(outcome.n_rows[family] for outcome, _ in rounds),
        validation=float(np.mean([outcome.validation[family] for outcome, _ in rounds])),
        scores=[outcome.scores[family] for outcome, _ in rounds],
        codes=[codes for _, codes in rounds],
        level=level,
    )


def _strongest(rounds: Sequence[tuple[_Round, Codes]], level: float) -> AttackerResult:
    settings = ["; ".join(outcome.setting(family) for family in outcome.in_order) for outcome, _ in rounds]
    return _summary(
        name=_most_often([outcome.name for outcome, _ in rounds]),
        setting=_most_often(settings),
        n_rows=min(max(outcome.n_rows[family] for family in outcome.members) for outcome, _ in rounds),
        validation=float(np.mean([outcome.blend_validation for outcome, _ in rounds])),
        scores=[outcome.strongest for outcome, _ in rounds],
        codes=[codes for _, codes in rounds],
        level=level,
    )


def _most_often(names: Sequence[str]) -> str:
    """Return the name that most folds chose, with their number unless all did."""
    name, count = Counter(names).most_common(1)[0]
    return name if count == len(names) else f"{name} (in {count} of {len(names)} folds, others in the rest)"


def _curve(rounds: Sequence[tuple[_Round, Codes]], called: dict[int, str], level: float) -> AttackCurve:
    # From all rows down: the folds' sizes may differ by a row.
    runs = [[outcome.strongest, *outcome.curve.values()] for outcome, _ in rounds]
    sizes = [max(rounds[0][0].n_rows.values()), *rounds[0][0].curve]
    n_points = min(map(len, runs))
    by_point = [
        [auc_influence(run[place], codes) for run, (_, codes) in zip(runs, rounds, strict=True)]
        for place in range(n_points)
    ]
    points = [CurvePoint(n, _mean(parts, level)) for n, parts in zip(sizes, by_point, strict=False)]
    gain, by_group = None, {}
    if n_points > 1:
        gain = _growth(by_point[0], by_point[1], level)
        for group, name in (called if len(called) > 2 else {}).items():
            judged = [
                [_one_group(run[place], codes, group) for run, (_, codes) in zip(runs, rounds, strict=True)]
                for place in (0, 1)
            ]
            by_group[name] = _growth(judged[0], judged[1], level)
    return AttackCurve(tuple(points[::-1]), gain, trend_of(gain), by_group)


def _growth(all_rows: Sequence[Judged], half: Sequence[Judged], level: float) -> Estimate:
    """Return the growth of an AUC over the last doubling of the rows; noise that both ends share cancels."""
    pairs = zip(all_rows, half, strict=True)
    grown = [(auc - before, here - there) for (auc, here), (before, there) in pairs]
    return _mean(grown, level, lowest=-1.0)


def trend_of(gain: Estimate | None) -> str:
    """Return "rising", "flat" or "unclear", by the growth over the last doubling of the rows."""
    if gain is None:
        return "unclear"
    if gain.low > 0 and gain.value >= RISE:
        return "rising"
    return "flat" if gain.high < LEVEL_OFF else "unclear"


def _candidates(strength: str, families: Iterable[str]) -> tuple[Attacker, ...]:
    if strength not in ATTACKERS:
        raise ValueError(f"strength is {strength!r}: choose one of {', '.join(map(repr, ATTACKERS))}")
    wanted = [families] if isinstance(families, str) else list(families)
    unknown = [family for family in wanted if family not in FAMILIES]
    if unknown or not wanted:
        raise ValueError(f"families has {unknown or wanted}: choose from {', '.join(map(repr, FAMILIES))}")
    return tuple(attacker for attacker in ATTACKERS[strength] if attacker.family in wanted)


def _known(name: str, codes_name: str, Z: ArrayLike, codes: ArrayLike) -> tuple[FloatArray, Codes, int]:
    rows, labels = np.asarray(Z, dtype=float), np.asarray(codes)
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ValueError(
            f"{codes_name} has shape {labels.shape}, {name} has shape {rows.shape}: pass one group per row"
        )
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"{codes_name} has dtype {labels.dtype}: pass groups as integers 0, 1, ..., and -1 for unknown"
        )
    known = labels >= 0
    if not np.isfinite(rows.sum(axis=1)[known]).all() and not np.isfinite(rows[known]).all():
        raise ValueError(f"{name} has values that are NaN or infinite: an embedding has none, drop such rows")
    if known.all():
        return rows, labels.astype(np.intp), 0
    return rows[known], labels[known].astype(np.intp), int(np.sum(~known))


def _common_groups(scored: Codes, fitted: Codes, fit_width: int, width: int) -> Codes:
    if fit_width != width:
        raise ValueError(f"fit[0] has {fit_width} columns, Z has {width}: pass rows of the same embedding")
    present, counts = np.unique(scored, return_counts=True)
    in_fit, fit_counts = np.unique(fitted, return_counts=True)
    if not np.array_equal(present, in_fit):
        odd = sorted(set(present.tolist()) ^ set(in_fit.tolist()))
        raise ValueError(
            f"group {odd[0]} is only among the scored rows or only among the fitting rows: no attacker can "
            "both learn and score it; give its rows the code -1"
        )
    smallest = min(counts.min(), fit_counts.min()) if len(present) else 0
    if len(present) < 2 or smallest < LEAST_ROWS:
        raise ValueError(
            f"codes has {len(present)} groups, the smallest with {smallest} rows: an attack needs two groups "
            f"with at least {LEAST_ROWS} rows each"
        )
    return present.astype(np.intp)
