"""tune: the search, its judge and its confirmation in one call.

A setting is a screen, a guard or a number of nulled directions, and a number of components. For each setting
the search finds the least dither that keeps the attackers below the limit, by bisection, and skips what
cannot keep more than the best so far. All families of attackers then attack the winner on the judging rows.
If they read more, or would with all rows of the data, the search is repeated below the limit by as much;
without a limit, the next best takes the winner's place. Rows kept aside confirm it once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairstream.auditing.measure.verdict import counted, verdict
from fairstream.auditing.report import Floors
from fairstream.auditing.tuning.candidates import Candidate, Tuned
from fairstream.auditing.tuning.confirmations import searches_before
from fairstream.auditing.tuning.division import Division, divided
from fairstream.auditing.tuning.judge import Judge
from fairstream.data.blocks import BlockSource
from fairstream.errors import FairstreamWarning, NoRoomError
from fairstream.estimators.moments_learner import MomentsLearner
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Choices, choice_names
from fairstream.subspace.components import subspace_for
from fairstream.subspace.model import FairSubspace

Announce = Callable[[str], object]

SAMPLE_ROWS = 30_000  # of each group, to fit and attack with
DITHERS = (0.0, 0.05, *(j / 50 for j in range(5, 21)), 0.45, 0.5, 0.6, 0.8)  # steps of .02 from .1 to .4
RECKONED = 0.2  # dither that guards reckon with before one is chosen
SEARCHED: tuple[Mapping[str, Any], ...] = (
    {"constraint": "none", "guard": 1.0},
    {"constraint": "none", "guard": 2.0},
    {"constraint": "none", "guard": 0.5},
    {"constraint": "none", "guard": 0.7},
    {"constraint": "none", "guard": 8.0},
    {"constraint": "none", "guard": 32.0},
    {"constraint": "none", "guard": 2.0, "screen": 3},
    {"constraint": "mean"},
    {"constraint": "mean", "guard": 1.0},
    {"constraint": "mean", "screen": 4},
    {"constraint": "all", "directions": "relative", "n_unfair": 3},
)


def tune(
    data: Any,
    sensitive_features: Any = None,
    y: Any = None,
    *,
    limit: float | None = None,
    keep: float | None = None,
    n_components: int | Sequence[int] = 10,
    maximise: str = "variance",
    searched: Sequence[Mapping[str, Any]] = SEARCHED,
    dithers: Sequence[float] = DITHERS,
    sample: int = SAMPLE_ROWS,
    confidence: float = 0.95,
    attack: str = "strong",
    ids: bool | str = False,
    seed: int = 0,
    announce: Announce | None = None,
) -> Tuned:
    """Choose how to hide sensitive attributes, for a limit on what leaks or a share of variance to keep.

    Rows kept aside confirm the choice once. They are the same in every search of the same data, whatever its
    seed and wishes: if you search again after you have seen the verdict, they have had a part in the choice,
    and the next verdict is too kind. Audit the model on other rows then.

    Parameters
    ----------
    data : array, frame, source, path, GroupMoments or fitted FairStreamingPCA with a sample
        Rows are read once. Of moments the sample alone is divided.
    sensitive_features : labels, or names of columns for a path
        As in `audit`. Not beside moments.
    y : array, or name of a column for a path, optional
        A target of two classes.
    limit : float, optional
        No attacker may read a group at a larger AUC; keep as much as possible below it.
    keep : float, optional
        Share of plain PCA's variance to keep; leak as little as possible.
    n_components : int or sequence of int
        Number of components, k, or several to search.
    maximise : {"variance", "target"}
        What to keep below the limit: variance, or how well the target can be predicted (needs y).
    searched : sequence of dicts
        Settings to try, fields of `Choices`; each is tried with as little dither as the limit allows.
    dithers : sequence of float
        Shares of dither to try, ascending from 0.
    sample : int
        Rows of each group to fit guards and attackers with. Fewer rows understate what leaks.
    confidence : float
        Of the bounds and verdicts. Bounds are corrected for the number of settings.
    attack : {"strong", "standard"}
        How hard the winner is attacked, see `fairstream.auditing.measure.attack`.
    ids : bool or str
        Rows will be embedded with `ids`, see `FairSubspace.embed`: equal rows get different noise. Otherwise
        attackers who know a row know all rows equal to it. A name is that of the column that holds the ids,
        which is no feature. Every row is judged as a person's only one. The estimator that is returned asks
        for ids whenever it adds noise.
    seed : int
        Seed of guards and attackers.
    announce : callable, optional
        Called with a line of text after every candidate, such as `print`: a search takes minutes. The first
        lines say what plain PCA gives away, and with a target what a good score for it does.

    Returns
    -------
    Tuned
        Keep its model by `estimator.subspace_.save`. Guards reckon with a dither of 0.2 before one is chosen.
        So if a guard is searched again with the one that was chosen, as by `estimator.resolve()`, by `clone`
        and `fit`, or by loading what `estimator.save` wrote, other components come out, and no verdict
        speaks of them.

    Warns
    -----
    FairstreamWarning
        If no candidate stays below the limit: the one that leaks least is returned. If a group has too few
        rows to be judged, or the limit is below what a good score for the target tells.

    Examples
    --------
    >>> tuned = tune("adult.parquet", ["sex"], "income", limit=0.65)  # doctest: +SKIP
    >>> tuned.holds, tuned.estimator, tuned.to_frame()  # doctest: +SKIP
    """
    _check_wishes(limit, keep, maximise, y, data)
    sizes = sorted({n_components} if isinstance(n_components, int) else set(n_components), reverse=True)
    division = divided(data, sensitive_features, y, sample, ids)
    division.check_groups()
    division.check_target(needed=maximise == "target")
    settings = [{"n_components": size, **asked} for size in sizes for asked in searched]
    compared = max(len(settings), 1)
    judge = Judge(division, confidence=confidence, compared=compared, seed=seed, ids=bool(ids))
    plain = subspace_for(division.moments, Choices(sizes[0], constraint="none"))
    most = judge.recovered_variance(plain, 0.0)
    wishes = _Wishes(limit, keep, maximise, most, tuple(dithers), attack, announce)
    beside = judge.judged(plain, 0.0)
    _tell_of_plain(beside, wishes)
    if limit is not None:
        _compare_with_floors(judge.floors(plain), limit, wishes)
    found, winner = _Search(division, judge, wishes, seed).run(settings)
    if not found:
        if keep is not None:
            raise ValueError(f"no candidate keeps keep={keep:g} of plain PCA's variance: lower it")
        raise ValueError(f"no candidate leaves room for n_components={n_components}: lower it")
    if winner is None:
        if keep is None:
            _warn_of_limit(limit)
        winner = min(range(len(found)), key=lambda j: (counted(found[j][0].leak), found[j][0].leak_bound))
    candidates = [replace(candidate, chosen=number == winner) for number, (candidate, _) in enumerate(found)]
    subspace, dither = found[winner][1], found[winner][0].dither
    wishes.say("confirming the choice on rows kept aside")
    before = searches_before(division.parts["confirm"])
    attacks = judge.attacks(subspace, dither, "confirm", attack)
    verdicts = {}
    if limit is not None:
        verdicts = {
            name: verdict(result, limit, confidence=confidence, most_rows=division.n_rows)
            for name, result in attacks.items()
        }
    chosen = {"dither": dither, "ids": ids}
    if division.held_back:
        chosen["held_back"] = division.held_back
    if subspace.parameters["guard"] and subspace.parameters["dither"] != dither:
        chosen["guard_dither"] = subspace.parameters["dither"]
    estimator = _fitted(division.moments, subspace, sample, chosen)
    return Tuned(
        estimator,
        tuple(candidates),
        verdicts,
        attacks,
        wishes.plain_variance,
        plain_target=beside.target,
        searches_before=before,
    )


Found = list[tuple[Candidate, FairSubspace]]


@dataclass(frozen=True)
class _Wishes:
    """What the user asked for."""

    limit: float | None
    keep: float | None
    maximise: str
    plain_variance: float
    dithers: tuple[float, ...]
    strength: str
    announce: Announce | None

    def say(self, line: str) -> None:
        """Announce what is being done, if anybody listens."""
        if self.announce is not None:
            self.announce(line)

    def worth(self, candidate: Candidate) -> tuple[float, float]:
        """Return what is to be as large as possible, and what decides between equals."""
        if self.keep is not None:
            return -counted(candidate.leak), candidate.variance
        return (candidate.variance if self.maximise == "variance" else candidate.target or 0.0), 0.0

    def met(self, candidate: Candidate) -> bool:
        """Whether a candidate does what it must, against the attackers that have tried it."""
        if self.limit is not None:
            return candidate.leak_bound <= self.limit
        return candidate.variance >= (self.keep or 0.0) * self.plain_variance


class _Search:
    """Tries settings one after the other, and remembers what it found."""

    def __init__(self, division: Division, judge: Judge, wishes: _Wishes, seed: int) -> None:
        self._division, self._judge, self._wishes, self._seed = division, judge, wishes, seed
        self._found: Found = []
        self._look_ahead = True  # to attackers with all rows of the data
        self._excess = 0.0  # of what all families read over what the quick attackers read
        self._place = ""  # in the search, for what is announced

    def run(self, settings: Sequence[Mapping[str, Any]]) -> tuple[Found, int | None]:
        """Return all that was judged, and the number of the best that does what it must."""
        began = time.monotonic()
        subspaces: list[FairSubspace] = []
        for number, asked in enumerate(settings, start=1):
            if number == 2:
                took, others = time.monotonic() - began, len(settings) - 1
                self._wishes.say(
                    f"the first of {len(settings)} settings took {took:.0f} s: the others take about "
                    f"{took * others:.0f} s at most, then all families of attackers try the best"
                )
            self._place = f"setting {number} of {len(settings)}: "
            if asked.get("guard"):
                self._wishes.say(f"searching components for {self._place}guard {asked['guard']:g}")
            subspace = self._solved(asked)
            if subspace is None:
                continue
            subspaces.append(subspace)
            if self._wishes.limit is None:
                self._at_kept_variance(subspace)
            else:
                self._below_limit(subspace)
        self._place = "more dither: "
        self._wishes.say("all families of attackers try the best of these")
        if self._wishes.limit is None:
            self._attack_the_best()
        else:
            self._withstand(subspaces)
        return self._found, self._best()

    def _solved(self, asked: Mapping[str, Any]) -> FairSubspace | None:
        extra: dict[str, Any] = {"guard_seed": self._seed}
        if asked.get("constraint") in ("none", "mean"):
            extra["n_unfair"] = 0  # such a model nulls no spread, and should not say that it does
        if asked.get("guard"):
            extra["dither"] = RECKONED if max(self._wishes.dithers) > 0 else 0.0
            extra["keep_target"] = 1.0 if self._wishes.maximise == "target" else 0.0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FairstreamWarning)
                return subspace_for(self._division.moments, Choices(**{**extra, **asked}))
        except NoRoomError as error:
            self._wishes.say(f"{self._place}skipped: {error}")
            return None

    def _at_kept_variance(self, subspace: FairSubspace) -> None:
        least = (self._wishes.keep or 0.0) * self._wishes.plain_variance
        allowed = [d for d in self._wishes.dithers if self._judge.recovered_variance(subspace, d) >= least]
        if allowed:
            self._add(subspace, self._judge.judged(subspace, allowed[-1]))
        else:
            self._skip(subspace, f"less than the {self._wishes.keep:.0%} asked for")

    def _below_limit(self, subspace: FairSubspace) -> None:
        """Find the least dither that meets the limit, among those that can still win."""
        allowed = [d for d in self._wishes.dithers if self._can_win(subspace, d)]
        if not allowed:
            self._skip(subspace, "no more than the best so far")
            return
        if not self._judged_met(subspace, allowed[-1]):
            return
        low, high = 0, len(allowed) - 1  # the last one meets the limit
        while low < high:
            middle = (low + high) // 2
            if self._judged_met(subspace, allowed[middle]):
                high = middle
            else:
                low = middle + 1

    def _judged_met(self, subspace: FairSubspace, dither: float) -> bool:
        """Judge a candidate, unless it has been judged; return whether it meets the limit."""
        for candidate, its_own in self._found:
            if its_own is subspace and candidate.dither == dither:
                return self._met(candidate)
        candidate = self._judge.judged(subspace, dither)
        self._add(subspace, candidate)
        return self._met(candidate)

    def _skip(self, subspace: FairSubspace, why: str) -> None:
        kept = self._judge.recovered_variance(subspace, 0.0) / self._wishes.plain_variance
        self._wishes.say(
            f"{self._place}skipped: without dither it would keep {kept:.0%} of plain PCA's variance, {why}"
        )

    def _can_win(self, subspace: FairSubspace, dither: float) -> bool:
        number = self._best()
        if number is None or self._wishes.maximise != "variance":
            return True
        return self._judge.recovered_variance(subspace, dither) > self._found[number][0].variance

    def _best(self) -> int | None:
        """Return the number of the best candidate that does what it must."""
        within = [j for j, (candidate, _) in enumerate(self._found) if self._met(candidate)]
        return max(within, key=lambda j: self._wishes.worth(self._found[j][0])) if within else None

    def _met(self, candidate: Candidate) -> bool:
        """Whether a candidate does what it must, and would against all families of attackers, it seems."""
        if self._wishes.limit is None:
            return self._wishes.met(candidate)
        return self._bound(candidate) <= self._wishes.limit

    def _bound(self, candidate: Candidate) -> float:
        """Return an upper bound on what all families read: found, or expected after what they have found."""
        if candidate.leak_ahead is None:
            return candidate.leak_bound + self._excess
        return candidate.leak_ahead if self._look_ahead else candidate.leak_bound

    def _attack_the_best(self) -> None:
        """Let all families attack the candidate that leaks least, until it is one that they have attacked."""
        attacked: set[int] = set()
        while (number := self._best()) is not None and number not in attacked:
            candidate, subspace = self._found[number]
            found = self._judge.attacked(subspace, candidate, self._wishes.strength)
            found = replace(found, leak=max(found.leak, candidate.leak))
            self._found[number] = found, subspace
            self._wishes.say(f"all families: {found.in_words()}: {_auc(found)}")
            attacked.add(number)

    def _withstand(self, subspaces: Sequence[FairSubspace]) -> None:
        """Let all families attack the winner; if it does not withstand them, search for one that does.

        If nothing withstands attackers with all rows of the data, those with the rows of this search must do:
        the verdict then says that it cannot tell of more.
        """
        self._attack_winners(subspaces)
        if self._best() is None:
            self._look_ahead, self._excess = False, 0.0
            self._search_again(subspaces)
            self._attack_winners(subspaces)

    def _attack_winners(self, subspaces: Sequence[FairSubspace]) -> None:
        """Attack the winner until it withstands; raise what is expected of the others by what is found."""
        while (number := self._best()) is not None:
            candidate, _ = self._found[number]
            if candidate.leak_ahead is not None:
                return
            attacked = self._attack(number)
            if not self._met(attacked):
                self._excess = max(self._excess, self._bound(attacked) - candidate.leak_bound)
                self._search_again(subspaces)

    def _search_again(self, subspaces: Sequence[FairSubspace]) -> None:
        for subspace in subspaces:
            if self._can_win(subspace, self._wishes.dithers[0]):
                self._below_limit(subspace)

    def _attack(self, number: int) -> Candidate:
        candidate, subspace = self._found[number]
        began = time.monotonic()
        attacked = self._judge.attacked(subspace, candidate, self._wishes.strength)
        self._found[number] = attacked, subspace
        told = f"all families: {attacked.in_words()}: {_auc(attacked)}"
        if not self._met(attacked):
            more = " if they had all rows of the data" if self._bound(attacked) > attacked.leak_bound else ""
            told += f", with confidence at most {self._bound(attacked):.3f}{more}"
            told += f"; searching again, such an attack takes about {time.monotonic() - began:.0f} s"
        self._wishes.say(told)
        return attacked

    def _add(self, subspace: FairSubspace, candidate: Candidate) -> None:
        self._found.append((candidate, subspace))
        kept = candidate.variance / self._wishes.plain_variance
        self._wishes.say(
            f"{self._place}{candidate.in_words()}: keeps {kept:.0%} of plain PCA's variance, "
            f"{_told(candidate)}"
        )


def _fitted(
    moments: GroupMoments, subspace: FairSubspace, sample: int, chosen: Mapping[str, float | bool | str]
) -> FairStreamingPCA:
    meant = replace(subspace, parameters={**subspace.parameters, **chosen})
    parameters = {name: meant.parameters[name] for name in choice_names()}
    estimator = FairStreamingPCA(**parameters, sample=sample)
    return estimator.adopt(MomentsLearner(moments), subspace=meant)


def _told(candidate: Candidate) -> str:
    """Return what quick attackers read of the groups, and what is read of the target if there is one."""
    target = "" if candidate.target is None else f", target AUC {candidate.target:.3f}"
    whom = f"{candidate.best_read} best, " if candidate.best_read else "the groups "
    return f"quick attackers read {whom}at AUC {candidate.leak:.3f}{target}"


def _auc(candidate: Candidate) -> str:
    """Return what all families read, and if there are several, of which group or attribute."""
    return f"AUC {candidate.leak:.3f}{f' of {candidate.best_read}' if candidate.best_read else ''}"


def _tell_of_plain(plain: Candidate, wishes: _Wishes) -> None:
    wishes.say(f"plain PCA, {plain.n_components} components: {_told(plain)} (0.5 is a coin, 1 is certainty)")
    if wishes.limit is not None and plain.best_read:
        wishes.say(
            f"the limit is for every group: for plain PCA the largest upper bound is {plain.leak_bound:.3f}"
        )
    if wishes.limit is not None and wishes.met(plain):
        wishes.say(
            f"plain PCA is below the limit of {wishes.limit:g} already, to these attackers: there may be "
            "little to hide; all families of attackers try the winner"
        )


def _compare_with_floors(found: Sequence[Floors], limit: float, wishes: _Wishes) -> None:
    """Say what a good score for the target tells of the groups, and warn of a limit below that."""
    for floor in found:
        if floor.score is None:
            continue
        told = floor.score.value
        luck = ", no better than by guessing" if told < counted(told) else ""
        wishes.say(f"a good score for the target tells {floor.attribute} at AUC {told:.3f}{luck}")
        if limit < told:
            warnings.warn(
                f"limit={limit:g} is below what a good score for the target tells of {floor.attribute!r}, "
                f"AUC {told:.3f}: below it the target is predicted worse; raise limit if the target matters",
                FairstreamWarning,
                stacklevel=3,
            )


def _warn_of_limit(limit: float | None) -> None:
    warnings.warn(
        f"no candidate stays below limit={limit} with confidence on the judging rows: the one that leaks "
        "least is returned; raise limit, lower n_components, or give more rows",
        FairstreamWarning,
        stacklevel=3,
    )


def _check_wishes(limit: float | None, keep: float | None, maximise: str, y: Any, data: Any) -> None:
    if (limit is None) == (keep is None):
        raise ValueError("give one of limit (the AUC no attacker may exceed) and keep (a share of variance)")
    if limit is not None and not 0.5 < limit < 1:
        raise ValueError(f"limit={limit!r}: give an AUC above 0.5 and below 1, such as 0.65")
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep={keep!r}: give a share of plain PCA's variance, such as 0.8")
    if maximise not in ("variance", "target"):
        raise ValueError(f"maximise={maximise!r} is not one of 'variance', 'target'")
    if (
        maximise == "target"
        and y is None
        and not isinstance(data, GroupMoments | BlockSource | FairStreamingPCA)
    ):
        raise ValueError("maximise='target' needs the target: pass y")
