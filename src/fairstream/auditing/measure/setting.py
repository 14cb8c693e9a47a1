"""What all models of one audit share: the data, its groups, the options, and the warnings about them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure.embeddings import EmbeddingMoments
from fairstream.auditing.measure.words import listed
from fairstream.auditing.report import AttributeSummary, DataSummary, Estimate
from fairstream.auditing.rows import dense
from fairstream.auditing.subjects import Subject
from fairstream.auditing.survey import Survey
from fairstream.data.blocks import Block
from fairstream.subspace.guard import trust_in

TRUST_ROWS = 8_000  # of the sample: they tell which columns' variance a handful of rows carries
SEEN_SHARE = 0.05  # of the audited rows, beyond their twins: fewer rows of the fit change no number much


@dataclass(frozen=True)
class Setting:
    """What all models of one audit share.

    `survey` covers the rows that are not left out, `group_numbers` and `n_left_out` cover all rows;
    `own_rows` names the models that were fitted on these very rows, `seen` tells for each model which share
    of the rows equals rows of its fit, `twins` which share of unseen rows would, and which share is reused.
    """

    survey: Survey
    kept: dict[str, tuple[Hashable, ...]]
    codes: dict[str, NDArray[np.intp]]
    embedded: EmbeddingMoments
    train: Block | None
    seen: Mapping[str, Estimate | None]
    twins: Mapping[str, tuple[Estimate, Estimate] | None]
    options: dict[str, Any]
    own_rows: frozenset[str]
    group_numbers: dict[str, int]
    n_left_out: int
    train_is_audited: bool
    target_name: str | None = None

    @cached_property
    def trust(self) -> NDArray[np.floating[Any]]:
        """How far the variance of each feature can be trusted: new rows lack what a few rows carry."""
        sample = self.survey.sample.take(spread_rows(self.survey.sample.n_rows, TRUST_ROWS))
        moments = self.survey.moments
        centred = np.asarray(dense(sample.X), dtype=float) - moments.mean()
        return trust_in(centred, np.ones(len(centred)), self.embedded.variances, moments.n_rows)

    @property
    def left_out_below(self) -> int:
        """A bound on the number of rows left out, 0 if there are none: the exact number is not published."""
        size = int(self.options["min_group_size"])
        return (self.n_left_out // size + 1) * size if self.n_left_out else 0

    def n_unknown(self, attribute: str) -> int:
        """Return the number of surveyed rows without a label of this attribute."""
        place = [*self.group_numbers].index(attribute)
        return sum(count for labels, count in self.survey.combinations.items() if labels[place] is None)

    def has_seen(self, model: str) -> bool:
        """Whether a model was fitted on these rows, or probably on a share of them that matters."""
        return model in self.own_rows or (self._many_equal(model) and not self._explained(model))

    def has_twins(self, model: str) -> bool:
        """Whether many of the rows equal rows of a model's fit, but no more than chance explains."""
        return self._many_equal(model) and not self.has_seen(model)

    def _explained(self, model: str) -> bool:
        """Whether chance explains the rows that equal rows of the fit; if in doubt, it does not."""
        found, share = self.twins.get(model), self.seen.get(model)
        if found is None or share is None:
            return False
        twins, reused = found
        likely = (reused.low + reused.value) / 2  # one deviation below the estimate, not two: it is doubtful
        return likely <= SEEN_SHARE and twins.high >= share.low

    def reused_share(self, model: str) -> Estimate | None:
        """Return the share of the rows that are rows of a model's fit, None if it is not known."""
        found = self.twins.get(model)
        return None if found is None else found[1]

    def twin_share(self, model: str) -> Estimate | None:
        """Return the share of unseen rows that would equal rows of a model's fit, None if it is not known."""
        found = self.twins.get(model)
        return None if found is None else found[0]

    def _many_equal(self, model: str) -> bool:
        share = self.seen.get(model)
        return share is not None and share.low > SEEN_SHARE

    def feature_names(self, subject: Subject) -> tuple[str, ...] | None:
        """Return the data's feature names, or those that the model remembers."""
        return self.survey.feature_names or subject.feature_names

    def names(self, attribute: str) -> tuple[str, ...]:
        """Return the reported groups of an attribute as text."""
        return tuple(map(str, self.kept[attribute]))


def data_summary(setting: Setting) -> DataSummary:
    """Describe the audited data by its sizes and its digest."""
    found, moments = setting.survey, setting.survey.moments
    attributes = []
    for name, n_groups in setting.group_numbers.items():
        counts = {str(label): int(moments.count(name, label)) for label in setting.kept.get(name, ())}
        attributes.append(
            AttributeSummary(
                attribute=name,
                groups=counts,
                n_suppressed_groups=n_groups - len(counts),
                n_other_rows=int(moments.n_rows) - sum(counts.values()),
                n_unknown_rows=setting.n_unknown(name) if name in setting.kept else None,
            )
        )
    return DataSummary(
        n_rows=int(moments.n_rows),
        n_features=moments.n_features,
        total_variance=moments.total_variance,
        attributes=tuple(attributes),
        digest=found.digest,
        sample_rows=found.sample.n_rows,
        sample_seed=setting.options["random_state"],
        left_out_below=setting.left_out_below,
    )


def warnings_of(subjects: list[Subject], setting: Setting) -> tuple[str, ...]:
    """Return what a reader must know before any number, most serious first."""
    found, kept = setting.survey, setting.kept
    names = [subject.name for subject in subjects]
    own = (
        "These look like the very rows that {} fitted on (same number of rows, mean and variance). On the "
        "rows of its fit a linear probe is at chance by construction: audit unseen rows instead."
    )
    lines = _once([(name, own) for name in names if name in setting.own_rows], len(names))
    seen = [name for name in names if name not in setting.own_rows and setting.has_seen(name)]
    lines += _once([(name, _seen_line(name, setting)) for name in seen], len(names))
    if setting.train_is_audited:
        lines.append(
            "train holds the very rows that are audited: its classifiers are scored on rows they have seen. "
            "Audit unseen rows instead."
        )
    lines += [_unknown_line(name, setting) for name in kept if setting.n_unknown(name)]
    lines += [
        f"{name} has fewer than two groups that are large enough to report: it was not audited."
        for name in setting.group_numbers
        if name not in kept
    ]
    for name, labels in kept.items():
        if setting.options["attack"] == "strong":
            continue
        probed = np.unique(setting.codes[name])
        unseen = [str(label) for code, label in enumerate(labels) if code not in probed]
        if unseen:
            lines.append(
                f"Too few rows were sampled to attack {name} = {', '.join(unseen)}: raise sample_rows, or "
                'use attack="strong".'
            )
    if found.sample.n_rows < min(setting.options["sample_rows"], found.moments.n_rows):
        lines.append(f"The rows are so wide that the sample has only {found.sample.n_rows:,} of them.")
    twins = [(name, _twin_line(name, setting)) for name in names if setting.has_twins(name)]
    lines += _once(twins, len(names))
    if found.moments.lost_energy > 0:
        lines.append(
            f"The frontier and the control come from a sketch that misses {found.moments.lost_energy:.1%} of "
            "the variance; all other numbers are exact."
        )
    if setting.left_out_below:
        lines.append(
            f"Fewer than {setting.left_out_below:,} rows are left out of every number: their groups, or the "
            "labels they lack, are so rare that subtracting the other numbers would show theirs."
        )
    return tuple(lines)


def _once(said: Iterable[tuple[str, str]], n_models: int) -> list[str]:
    """Say once what is said of several models; a pair of braces stands for their names.

    Examples
    --------
    >>> _once([("A", "Rows that {} fitted on."), ("B", "Rows that {} fitted on.")], 3)
    ['Rows that A and B were fitted on.']
    """
    names: dict[str, list[str]] = {}
    for name, told in said:
        names.setdefault(told, []).append(name)
    return [
        told.replace("{}", f"{of[0]} was")
        if len(of) == 1
        else told.replace(
            "{}", f"all {n_models} models were" if len(of) == n_models else f"{listed(of)} were"
        )
        for told, of in names.items()
    ]


def _seen_line(model: str, setting: Setting) -> str:
    share, twins = setting.seen[model], setting.twin_share(model)
    assert share is not None
    beyond = "" if twins is None else f", where unseen rows would be in about {twins.value:.0%} of the cases"
    return (
        f"About {share.value:.0%} of the audited rows are equal in all features to rows that {{}} fitted on "
        f"({share.low:.0%} to {share.high:.0%}){beyond}. A model hides more of the rows it was fitted on "
        "than of others: audit unseen rows instead."
    )


def _twin_line(model: str, setting: Setting) -> str:
    share, twins, reused = setting.seen[model], setting.twin_share(model), setting.reused_share(model)
    assert share is not None
    assert twins is not None
    assert reused is not None
    return (
        f"Note: about {share.value:.0%} of the audited rows are equal in all features to rows that {{}} "
        f"fitted on, as many as chance explains ({twins.low:.0%} to {twins.high:.0%} of unseen rows): "
        "twins, people with the same values. They do not stand against a verdict; an attacker who knows the "
        "people of the fit knows their twins too. Values cannot tell whether some are the same people: up to "
        f"{reused.high:.0%} of the rows may be."
    )


def _unknown_line(attribute: str, setting: Setting) -> str:
    unknown, n_rows = setting.n_unknown(attribute), int(setting.survey.moments.n_rows)
    return (
        f"The {attribute} of {unknown:,} of {n_rows:,} rows ({unknown / n_rows:.1%}) is unknown: they are in "
        f"no comparison by {attribute}, and nothing here says how they fare."
    )


def spread_rows(n_rows: int, limit: int) -> NDArray[np.intp]:
    """Return at most `limit` row numbers, spread evenly.

    Examples
    --------
    >>> spread_rows(5, 3).tolist()
    [0, 2, 4]
    """
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, limit)).astype(np.intp))
