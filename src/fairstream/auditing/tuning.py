"""tune: the library chooses. Users say how much may leak, or how much must be kept; rows held back judge.

Rows are divided by a hash of their values, so that equal rows stay together: most are fitted on, some judge
the candidates, and some confirm the winner once. A candidate is a screen, a guard or a number of nulled
directions, and a share of dither. The bounds that candidates are judged by are corrected for their number.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from fairstream.auditing.measure.attack import attack as attack_rows
from fairstream.auditing.measure.probes import auc_with_variance
from fairstream.auditing.measure.verdict import HOLDS, verdict
from fairstream.auditing.report import AttackResult, Verdict
from fairstream.auditing.rows import open_rows
from fairstream.data.blocks import Block, BlockSource, take_rows
from fairstream.data.fingerprints import row_fingerprints, scrambled
from fairstream.data.schema import Schema
from fairstream.errors import FairstreamWarning, NoRoomError, missing_extra
from fairstream.estimators.learner import MomentsLearner, working_dtype
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.moments import GroupMoments
from fairstream.moments.sample import RowSample, SampledRows
from fairstream.subspace.choices import Choices
from fairstream.subspace.components import subspace_for
from fairstream.subspace.model import FairSubspace

Announce = Callable[[str], object]

SAMPLE_ROWS = 30_000  # of each group, to fit and attack with
DITHERS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
SEARCHED: tuple[Mapping[str, Any], ...] = (
    {"constraint": "none", "guard": 1.0},
    {"constraint": "none", "guard": 3.0},
    {"constraint": "none", "guard": 3.0, "screen": 2},
    {"constraint": "mean", "screen": 4},
    {"constraint": "all", "directions": "relative", "n_unfair": 3},
)
_PARTS = {"fit": 0.7, "judge": 0.15, "confirm": 0.15}
_SPLIT_KEY = 0x7E57


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting that was tried, judged on rows it was not fitted on.

    `variance` is the share of X's variance that a linear map recovers from the embedding, so dither counts
    as loss. `leak` is the largest AUC of an attacker over the attributes, `leak_bound` its upper bound,
    corrected for the number of candidates. `target` is the AUC of the target, None without one.
    """

    n_components: int
    constraint: str
    directions: str
    n_unfair: int
    screen: int
    guard: float
    keep_target: float
    dither: float
    variance: float
    leak: float
    leak_bound: float
    target: float | None
    chosen: bool = False


@dataclass(frozen=True)
class Tuned:
    """What `tune` chose, what it was chosen from, and whether it held on rows kept aside.

    Attributes
    ----------
    estimator : FairStreamingPCA
        Fitted, with the chosen parameters. It transforms with the chosen dither, for which it needs a key.
    candidates : tuple of Candidate
        Everything that was judged, in the order of the search.
    verdicts : dict, attribute -> Verdict
        Of a strong attack on rows that took no part in the fit or in the choice. Empty without a limit.
    attacks : dict, attribute -> AttackResult
        Those attacks.
    plain_variance : float
        What plain PCA of the same size keeps.
    """

    estimator: FairStreamingPCA
    candidates: tuple[Candidate, ...]
    verdicts: Mapping[str, Verdict]
    attacks: Mapping[str, AttackResult]
    plain_variance: float

    @property
    def holds(self) -> bool:
        """Whether the limit held for every attribute on the rows kept aside."""
        return bool(self.verdicts) and all(found.answer == HOLDS for found in self.verdicts.values())

    @property
    def chosen(self) -> Candidate:
        """The winner."""
        return next(candidate for candidate in self.candidates if candidate.chosen)

    def to_frame(self) -> Any:
        """Return the candidates as a pandas frame."""
        try:
            import pandas as pd
        except ImportError:
            raise missing_extra("pandas", "tables", "a frame of candidates") from None
        return pd.DataFrame([asdict(candidate) for candidate in self.candidates])

    def plot(self) -> Any:
        """Return a matplotlib figure: variance kept against what leaks, the chosen candidate marked."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise missing_extra("matplotlib", "plots", "a figure of candidates") from None
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for candidate in self.candidates:
            kept = candidate.variance / self.plain_variance
            colour, size = ("C1", 90) if candidate.chosen else ("C0", 30)
            axes.scatter(candidate.leak, kept, color=colour, s=size)
        axes.set_xlabel("AUC of the strongest attacker")
        axes.set_ylabel("variance kept, as a share of plain PCA's")
        axes.axvline(0.5, color="0.7", linewidth=1)
        return figure

    def summary(self) -> tuple[str, ...]:
        """Return the choice and its verdict in plain sentences."""
        won = self.chosen
        kept = won.variance / self.plain_variance
        lines = [
            f"Chosen: {_in_words(won)}. It keeps {kept:.0%} of plain PCA's variance; on the rows that judged "
            f"{len(self.candidates)} candidates the attackers read the groups at AUC {won.leak:.3f}."
        ]
        lines += [f"{name}: {found.sentence}" for name, found in self.verdicts.items()]
        return tuple(lines)


def tune(
    data: Any,
    sensitive_features: Any = None,
    y: Any = None,
    *,
    limit: float | None = None,
    keep: float | None = None,
    n_components: int = 10,
    maximise: str = "variance",
    searched: Sequence[Mapping[str, Any]] = SEARCHED,
    dithers: Sequence[float] = DITHERS,
    sample: int = SAMPLE_ROWS,
    confidence: float = 0.95,
    attack: str = "strong",
    seed: int = 0,
    announce: Announce | None = None,
) -> Tuned:
    """Choose how to hide sensitive attributes: the search, its judge and its confirmation in one call.

    Parameters
    ----------
    data : array, frame, source, path, or GroupMoments with a sample
        Rows are read once. From moments the sample alone is divided.
    sensitive_features : labels, or names of columns for a path
        As in `audit`. Not beside moments.
    y : array, or name of a column for a path, optional
        A target of two classes.
    limit : float, optional
        No attacker may read a group at a larger AUC; keep as much as possible below it.
    keep : float, optional
        Share of plain PCA's variance to keep; leak as little as possible.
    n_components : int
        Number of components, k.
    maximise : {"variance", "target"}
        What to keep below the limit: variance, or how well the target can be predicted (needs y).
    searched : sequence of dicts
        Choices to try, fields of `Choices`; each is tried with as little dither as the limit allows.
    dithers : sequence of float
        Shares of dither to try, ascending from 0.
    sample : int
        Rows of each group to fit guards and attackers with. Fewer rows understate what leaks.
    confidence : float
        Of the bounds and verdicts.
    attack : {"strong", "standard"}
        How hard the winner is attacked when it is confirmed, see `fairstream.auditing.measure.attack`.
    seed : int
        Seed of guards and attackers.
    announce : callable, optional
        Called with a line of text after every candidate.

    Returns
    -------
    Tuned

    Examples
    --------
    >>> tuned = tune("adult.parquet", ["sex"], "income", limit=0.65)  # doctest: +SKIP
    >>> tuned.holds, tuned.estimator, tuned.to_frame()  # doctest: +SKIP
    """
    _check_wishes(limit, keep, maximise, y, data)
    divided = _divide(data, sensitive_features, y, sample, seed)
    n_looks = len(searched) * max(len(dithers).bit_length(), 1)
    judge = _Judge(divided, limit, confidence, n_looks, seed, attack)
    plain = subspace_for(divided.moments, Choices(n_components, constraint="none"))
    plain_variance = float(plain.explained_variance_ratio.sum())
    found: list[tuple[Candidate, FairSubspace]] = []
    for asked in searched:
        extra = {"keep_target": 1.0} if maximise == "target" and asked.get("guard") else {}
        try:
            choices = Choices(n_components, **{**asked, **extra, "guard_seed": seed})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FairstreamWarning)
                subspace = subspace_for(divided.moments, choices)
        except NoRoomError:
            continue
        tried = judge.search(subspace, dithers, keep, plain_variance)
        for candidate in tried:
            found.append((candidate, subspace))
            if announce is not None:
                announce(_line(candidate, plain_variance))
    if not found:
        raise ValueError(f"no candidate leaves room for n_components={n_components}: lower it")
    winner = judge.choose([candidate for candidate, _ in found], keep, plain_variance, maximise)
    candidates = [replace(candidate, chosen=number == winner) for number, (candidate, _) in enumerate(found)]
    subspace, dither = found[winner][1], found[winner][0].dither
    attacks = judge.confirm(subspace, dither)
    verdicts = {}
    if limit is not None:
        verdicts = {
            name: verdict(result, limit, confidence=confidence, accept_rising=divided.is_complete)
            for name, result in attacks.items()
        }
    estimator = _fitted(divided.moments, subspace, dither, sample)
    return Tuned(estimator, tuple(candidates), verdicts, attacks, plain_variance)


# Rows, divided --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Divided:
    """Moments of the rows to fit on, and the three parts of the rows."""

    moments: GroupMoments
    parts: Mapping[str, SampledRows]
    is_complete: bool  # whether an attacker cannot have more rows than these

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        return tuple(self.moments.groups)


def _divide(data: Any, sensitive_features: Any, y: Any, sample: int, seed: int) -> _Divided:
    if isinstance(data, GroupMoments):
        return _divide_sample(data)
    source = open_rows(data, sensitive_features, y)
    moments: GroupMoments | None = None
    parts = {name: RowSample(sample) for name in ("judge", "confirm")}
    for block in source:
        for name, part in _parts_of(block):
            if name == "fit":
                if moments is None:
                    moments = GroupMoments(
                        source.n_features, None, working_dtype(block.X.dtype), sample=sample
                    )
                moments.update(part.X, dict(part.groups), target=_numbers(part.target))
            else:
                parts[name].update(part.X, part.groups, None, _numbers(part.target))
    if moments is None:
        raise ValueError("the data has no rows: nothing to tune")
    moments.schema = Schema.of(source)
    assert moments.sample is not None
    rows = {name: part.rows() for name, part in parts.items()} | {"fit": moments.sample.rows()}
    complete = sum(float(part.weights.sum()) for part in rows.values()) >= _n_rows(source, moments, parts)
    return _Divided(moments, rows, complete)


def _n_rows(source: BlockSource, moments: GroupMoments, parts: Mapping[str, RowSample]) -> float:
    return float(source.n_rows or moments.n_rows + sum(part.rows().weights.sum() for part in parts.values()))


def _divide_sample(moments: GroupMoments) -> _Divided:
    if moments.sample is None or not len(moments.sample):
        raise ValueError("the moments hold no sample of rows: collect them with sample=30000 or so")
    rows = moments.sample.rows()
    place = _places(rows.X)
    parts = {name: rows.taken(np.flatnonzero(place == number)) for number, name in enumerate(_PARTS)}
    return _Divided(moments.with_sample_of(place == 0), parts, is_complete=False)


def _parts_of(block: Block) -> Iterator[tuple[str, Block]]:
    place = _places(block.X)
    for number, name in enumerate(_PARTS):
        rows = np.flatnonzero(place == number)
        if rows.size:
            target = None if block.target is None else np.asarray(block.target)[rows]
            yield name, Block(block.X[rows], take_rows(block.groups, rows), target)


def _places(X: Any) -> NDArray[np.intp]:
    """Return which part every row belongs to, by a hash of its values: equal rows stay together."""
    uniform = scrambled(row_fingerprints(X, _SPLIT_KEY)).astype(np.float64) / 2.0**64
    edges = np.cumsum([*_PARTS.values()])[:-1]
    return np.searchsorted(edges, uniform, side="right")


def _numbers(target: Any) -> NDArray[np.float64] | None:
    """Return a target of two classes as 0 and 1; numbers stay as they are."""
    if target is None:
        return None
    values = np.asarray(target)
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    raise ValueError(f"y has dtype {values.dtype}: pass numbers or booleans, such as y == 'yes'")


# Judging --------------------------------------------------------------------------------------------


class _Judge:
    """Scores candidates on rows they were not fitted on, and the winner on rows kept aside."""

    def __init__(
        self,
        divided: _Divided,
        limit: float | None,
        confidence: float,
        n_looks: int,
        seed: int,
        strength: str,
    ) -> None:
        self._divided, self._limit, self._seed, self._strength = divided, limit, seed, strength
        self._key = secrets.token_bytes(32)  # of the dither that is judged; users have their own
        self._confidence = 1 - (1 - confidence) / max(n_looks, 1)

    def search(
        self, subspace: FairSubspace, dithers: Sequence[float], keep: float | None, plain: float
    ) -> list[Candidate]:
        """Return the candidates of one subspace that were judged: by bisection over dither, or at `keep`."""
        variance = float(subspace.explained_variance_ratio.sum())
        if keep is not None:
            allowed = [dither for dither in dithers if variance / (1 + dither**2) >= keep * plain]
            return [self._judged(subspace, allowed[-1])] if allowed else []
        tried: dict[int, Candidate] = {}
        low, high = 0, len(dithers)
        while low < high:
            middle = (low + high) // 2
            tried[middle] = self._judged(subspace, dithers[middle])
            if self._limit is not None and tried[middle].leak_bound <= self._limit:
                high = middle
            else:
                low = middle + 1
        return [tried[number] for number in sorted(tried)]

    def choose(self, candidates: Sequence[Candidate], keep: float | None, plain: float, maximise: str) -> int:
        """Return the number of the winner: the most kept within the limit, else the least leak."""
        numbers = range(len(candidates))
        if keep is None:
            within = [j for j in numbers if candidates[j].leak_bound <= (self._limit or 1.0)]
            if within:
                return max(within, key=lambda j: (_worth(candidates[j], maximise), -candidates[j].leak))
            warnings.warn(
                f"no candidate stays below limit={self._limit} with confidence on the judging rows: the one "
                "that leaks least is returned; allow more dither, fewer components or more screened columns",
                FairstreamWarning,
                stacklevel=3,
            )
        return min(numbers, key=lambda j: candidates[j].leak)

    def confirm(self, subspace: FairSubspace, dither: float) -> dict[str, AttackResult]:
        """Attack the winner with full strength on rows that took no part in the choice."""
        return self._attacks(subspace, dither, "confirm")

    def _judged(self, subspace: FairSubspace, dither: float) -> Candidate:
        found = [self._quick(subspace, dither, name) for name in self._divided.attributes]
        asked = subspace.parameters
        return Candidate(
            n_components=subspace.n_components,
            constraint=asked["constraint"],
            directions=asked["directions"],
            n_unfair=asked["n_unfair"],
            screen=asked.get("n_screened", 0),
            guard=asked["guard"],
            keep_target=asked["keep_target"],
            dither=dither,
            variance=float(subspace.explained_variance_ratio.sum()) / (1 + dither**2),
            leak=max(auc for auc, _ in found),
            leak_bound=max(bound for _, bound in found),
            target=self._target_score(subspace, dither),
        )

    def _quick(self, subspace: FairSubspace, dither: float, attribute: str) -> tuple[float, float]:
        """Return the AUC of a forest and boosted trees together, fitted on all fitting rows, and its bound.

        They are the attackers that gain most from many rows; the full set attacks the winner only.
        """
        fit, rows = (self._divided.parts[name] for name in ("fit", "judge"))
        codes = self._shared_codes(attribute)
        known, scored = np.flatnonzero(codes["fit"] >= 0), np.flatnonzero(codes["judge"] >= 0)
        Z_fit = self._embedded(subspace, fit, dither)[known]
        Z = self._embedded(subspace, rows, dither)[scored]
        odds: Any = 0.0
        for model in (
            RandomForestClassifier(100, min_samples_leaf=3, n_jobs=-1, random_state=self._seed),
            HistGradientBoostingClassifier(max_iter=150, max_leaf_nodes=63, random_state=self._seed),
        ):
            model.fit(Z_fit, codes["fit"][known], sample_weight=fit.weights[known])
            odds = odds + np.log(np.clip(model.predict_proba(Z), 1e-3, 1.0))
        scores = odds[:, 1] - odds[:, 0] if odds.shape[1] == 2 else odds
        kept = rows.taken(scored)
        auc, variance = auc_with_variance(_repeated(scores, kept), _repeated(codes["judge"][scored], kept))
        return auc, auc + float(ndtri(self._confidence)) * float(np.sqrt(variance))

    def _attacks(self, subspace: FairSubspace, dither: float, scored: str) -> dict[str, AttackResult]:
        fit, rows = (self._divided.parts[name] for name in ("fit", scored))
        Z_fit, Z = self._embedded(subspace, fit, dither), self._embedded(subspace, rows, dither)
        found = {}
        for name in self._divided.attributes:
            codes = self._shared_codes(name)
            found[name] = attack_rows(
                _repeated(Z, rows),
                _repeated(codes[scored], rows),
                fit=(_repeated(Z_fit, fit), _repeated(codes["fit"], fit)),
                strength=self._strength,
                seed=self._seed,
            )
        return found

    def _embedded(self, subspace: FairSubspace, rows: SampledRows, dither: float) -> NDArray[Any]:
        options: dict[str, Any] = {"dither": dither, "key": self._key} if dither else {}
        return np.asarray(subspace.embed(rows.X, **options))

    def _shared_codes(self, attribute: str) -> dict[str, NDArray[np.intp]]:
        """Return the codes of an attribute in all parts, about one list of labels."""
        labels = self._divided.moments.groups[attribute]
        shared = {}
        for name, rows in self._divided.parts.items():
            table = np.array([labels.index(label) for label in rows.labels[attribute]] + [-1], dtype=np.intp)
            shared[name] = table[rows.codes[attribute]]
        return shared

    def _target_score(self, subspace: FairSubspace, dither: float) -> float | None:
        fit, rows = (self._divided.parts[name] for name in ("fit", "judge"))
        if fit.target is None or rows.target is None or len(np.unique(fit.target)) != 2:
            return None
        model = HistGradientBoostingClassifier(random_state=self._seed)
        model.fit(self._embedded(subspace, fit, dither), fit.target, sample_weight=fit.weights)
        scores = model.predict_proba(self._embedded(subspace, rows, dither))[:, 1]
        return float(roc_auc_score(rows.target == fit.target.max(), scores, sample_weight=rows.weights))


def _repeated(values: ArrayLike, rows: SampledRows) -> NDArray[Any]:
    """Return a value for every row of the data: equal rows are sampled once, with their number."""
    return np.repeat(np.asarray(values), np.maximum(rows.weights.astype(np.intp), 1), axis=0)


def _worth(candidate: Candidate, maximise: str) -> float:
    return candidate.variance if maximise == "variance" else candidate.target or 0.0


def _fitted(moments: GroupMoments, subspace: FairSubspace, dither: float, sample: int) -> FairStreamingPCA:
    names = (
        "n_components",
        "n_unfair",
        "constraint",
        "directions",
        "screen",
        "guard",
        "keep_target",
        "guard_seed",
    )
    parameters = {name: subspace.parameters[name] for name in names}
    estimator = FairStreamingPCA(**parameters, dither=dither, sample=sample)
    return estimator.adopt(MomentsLearner(moments), subspace=subspace)


def _check_wishes(limit: float | None, keep: float | None, maximise: str, y: Any, data: Any) -> None:
    if (limit is None) == (keep is None):
        raise ValueError("give one of limit (the AUC no attacker may exceed) and keep (a share of variance)")
    if limit is not None and not 0.5 < limit < 1:
        raise ValueError(f"limit={limit!r}: give an AUC above 0.5 and below 1, such as 0.65")
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep={keep!r}: give a share of plain PCA's variance, such as 0.8")
    if maximise not in ("variance", "target"):
        raise ValueError(f"maximise={maximise!r} is not one of 'variance', 'target'")
    if maximise == "target" and y is None and not isinstance(data, GroupMoments | BlockSource):
        raise ValueError("maximise='target' needs the target: pass y")


def _in_words(candidate: Candidate) -> str:
    words = [f"{candidate.n_components} components"]
    words += [f"{candidate.screen} columns screened"] if candidate.screen else []
    words += [f"guard {candidate.guard:g}"] if candidate.guard else []
    words += ["mean gaps nulled"] if candidate.constraint in ("mean", "all") else []
    if candidate.constraint in ("covariance", "all"):
        words.append(f"{candidate.n_unfair} {candidate.directions} directions nulled for each comparison")
    words += [f"dither {candidate.dither:g}"] if candidate.dither else []
    return ", ".join(words)


def _line(candidate: Candidate, plain_variance: float) -> str:
    kept = candidate.variance / plain_variance
    return f"{_in_words(candidate)}: keeps {kept:.0%} of plain PCA's variance, AUC {candidate.leak:.3f}"
