"""What tuning tried and what it chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairstream.auditing.measure.verdict import HOLDS
from fairstream.auditing.report import AttackResult, Verdict
from fairstream.errors import missing_extra
from fairstream.estimators.pca import FairStreamingPCA

TARGET_KEPT = 0.5  # of what plain PCA's AUC has beyond 0.5: with less, a target is lost
CHANCE = 0.53  # an AUC of so little may be chance


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting that was tried, judged on rows it was not fitted on.

    `variance` is the share of X's variance that a linear map recovers from the embedding, so dither counts
    as loss; variance that a handful of rows carry counts less, because new rows do not have it. `leak` is the
    largest AUC of an attacker over the attributes, and over the groups of an attribute if there are more than
    two; `best_read` names that group, or of several attributes that one; `leak_bound` is the largest upper
    bound, corrected for the number of settings. For it, and for the choice, an AUC below 0.5 counts as 0.5.
    `leak_ahead` is a bound for attackers who learn from all rows of the data, as a verdict has it; None
    unless all families of attackers have tried the candidate. `target` is the AUC of the target, None without
    one.
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
    leak_ahead: float | None = None
    best_read: str = ""
    chosen: bool = False

    def in_words(self) -> str:
        """Return the setting in a phrase."""
        words = [f"{self.n_components} components"]
        words += [f"{self.screen} columns screened"] if self.screen else []
        words += [f"guard {self.guard:g}"] if self.guard else []
        words += ["mean gaps nulled"] if self.constraint in ("mean", "all") else []
        if self.constraint in ("covariance", "all"):
            words.append(f"{self.n_unfair} {self.directions} directions nulled for each comparison")
        words += [f"dither {self.dither:g}"] if self.dither else []
        return ", ".join(words)


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
        Of an attack on rows that took no part in the fit or in the choice. Empty without a limit.
    attacks : dict, attribute -> AttackResult
        Those attacks.
    plain_variance : float
        What plain PCA keeps, with the largest number of components that was searched.
    plain_target : float or None
        The AUC of the target with these components, None without a target.
    searches_before : int
        Earlier searches of this process that the same rows kept aside have confirmed. If there are any, the
        verdict is no clean confirmation.
    """

    estimator: FairStreamingPCA
    candidates: tuple[Candidate, ...]
    verdicts: Mapping[str, Verdict]
    attacks: Mapping[str, AttackResult]
    plain_variance: float
    plain_target: float | None = None
    searches_before: int = 0

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
        whom = f"{won.best_read} best, " if won.best_read else "the groups "
        lines = [
            f"Chosen: {won.in_words()}. It keeps {kept:.0%} of plain PCA's variance; on the rows that judged "
            f"{len(self.candidates)} candidates the attackers read {whom}at AUC {won.leak:.3f}."
        ]
        if won.target is not None:
            lines.append(f"The target is predicted from it at AUC {won.target:.3f}.")
        lines += [f"{name}: {found.sentence}" for name, found in self.verdicts.items()]
        return (*lines, *self._caveats())

    def _caveats(self) -> Iterator[str]:
        """Say what a verdict does not: that rows are worn out, the choice was none, or the target is lost."""
        if self.verdicts and self.searches_before:
            many = (
                "an earlier search"
                if self.searches_before == 1
                else f"{self.searches_before} earlier searches"
            )
            yield (
                f"The rows kept aside have confirmed {many} already. Whoever searches until they agree has "
                "chosen by them: this verdict is no clean confirmation. Audit the model on rows that no "
                "search has had."
            )
        limit = next((found.limit for found in self.verdicts.values()), None)
        if limit is not None and self.chosen.leak_bound > limit:
            yield (
                f"No candidate stayed below the limit of {limit:g} with confidence on the judging rows: "
                "this is the one that leaks least. A higher limit, fewer components or more rows may help."
            )
        own, plain = self.chosen.target, self.plain_target
        if own is not None and plain is not None and own - 0.5 < TARGET_KEPT * (plain - 0.5):
            what = "no better than by chance" if own < CHANCE else "far worse than from plain PCA"
            yield (
                f"The target is all but lost: it is predicted {what}, at AUC {own:.3f} against {plain:.3f}. "
                "Do not use this model for it: choose a higher limit, or let the search maximise the target."
            )
