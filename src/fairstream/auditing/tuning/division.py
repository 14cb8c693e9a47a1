"""The rows that tuning fits on, judges by and confirms with: three parts that share no row.

Rows are divided by a hash of their number, not of their values: equal rows come into different parts, as
attackers know rows equal to those they attack. Keeping them together would understate what leaks.

Groups and targets are learned from the fitting rows alone. Mean and covariance are those of all rows, without
their groups: a rare value that only some parts have would otherwise take a component of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure.attack import LEAST_ROWS
from fairstream.auditing.rows import open_rows
from fairstream.data.blocks import Block
from fairstream.data.fingerprints import scrambled
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups
from fairstream.data.schema import Schema
from fairstream.data.small_groups import listed_groups
from fairstream.data.targets import TargetNumbers
from fairstream.errors import FairstreamWarning
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.estimators.solvers import working_dtype
from fairstream.moments import GroupMoments
from fairstream.moments.sample import RowSample, SampledRows

PARTS: Mapping[str, float] = {"fit": 0.65, "judge": 0.2, "confirm": 0.15}
_SPLIT_KEY = 0x7E57
_MANY_CATEGORIES = 50


@dataclass(frozen=True)
class Division:
    """Moments of the rows to fit on, and the three parts of the rows.

    `held_back` is about the share of all rows whose groups the moments do not count.
    """

    moments: GroupMoments
    parts: Mapping[str, SampledRows]
    held_back: float = 0.0

    @property
    def n_rows(self) -> int:
        """Rows of the data, sampled or not: an attacker may have them all."""
        return int(self.moments.n_rows)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The sensitive attributes."""
        return tuple(self.moments.groups)

    def check_target(self, *, needed: bool) -> None:
        """Refuse rows whose target cannot be predicted, or warn: there is none, or it has not two classes."""
        found = [rows.target for rows in self.parts.values() if rows.target is not None]
        if not found and not needed:
            return
        if not found:
            raise ValueError(
                "maximise='target' needs the target of the rows, these have none: pass y, or collect the "
                "moments with sample=30000 from a source with a target"
            )
        n_classes = len(np.unique(np.concatenate(found)))
        if n_classes != 2 and not needed:
            warnings.warn(
                f"the target has {n_classes:,} values: how well it is predicted is told of two classes only, "
                "so nothing is said of it; name another, or join some",
                FairstreamWarning,
                stacklevel=3,
            )
        elif n_classes != 2:
            raise ValueError(
                f"maximise='target' needs a target of two classes, this one has {n_classes:,} values: name "
                "another, or join some"
            )

    def one_by_one(self) -> Division:
        """Return the same rows with equal ones apart, each of weight 1, instead of once with their number."""
        return replace(self, parts={name: _one_by_one(part) for name, part in self.parts.items()})

    def judged_groups(self, attribute: str) -> tuple[Hashable, ...]:
        """Return the groups that are not too small to be judged, as `codes` numbers them."""
        thin = self.thin_groups.get(attribute, {})
        return tuple(label for label in self.moments.groups[attribute] if label not in thin)

    def codes(self, attribute: str) -> dict[str, NDArray[np.intp]]:
        """Return the group of every row by part, numbered from 0; -1 if unknown or too small to be judged.

        Rows that only a group of another attribute keeps count as unknown: with them a large group would have
        too many rows of that attribute's small groups.
        """
        numbers = {label: number for number, label in enumerate(self.judged_groups(attribute))}
        shared = {}
        for name, rows in self.parts.items():
            table = np.array([numbers.get(label, -1) for label in rows.labels[attribute]] + [-1], np.intp)
            shared[name] = np.where(rows.own[attribute], table[rows.codes[attribute]], -1)
        return shared

    @cached_property
    def thin_groups(self) -> dict[str, dict[Hashable, int]]:
        """Groups with too few rows in some part to be attacked, and their rows in all parts together."""
        found = {}
        for attribute, labels in self.moments.groups.items():
            counts = dict.fromkeys(labels, 0)
            fewest = dict.fromkeys(labels, np.inf)
            for rows in self.parts.values():
                own = [*rows.labels[attribute]]
                known = rows.own[attribute] & (rows.codes[attribute] >= 0)
                sums = np.bincount(rows.codes[attribute][known], rows.weights[known], minlength=len(own))
                in_part = dict(zip(own, sums, strict=True))
                for label in labels:
                    counts[label] += int(in_part.get(label, 0))
                    fewest[label] = min(fewest[label], in_part.get(label, 0))
            thin = {label: counts[label] for label in labels if fewest[label] < LEAST_ROWS and counts[label]}
            if thin:
                found[attribute] = thin
        return found

    def check_groups(self) -> None:
        """Warn of groups that cannot be judged; refuse attributes that have not two others."""
        for attribute, thin in self.thin_groups.items():
            named = listed_groups({attribute: thin})
            if len(self.moments.groups[attribute]) - len(thin) < 2:
                raise ValueError(
                    f"{attribute!r} has not two groups with at least {LEAST_ROWS} rows in each of the three "
                    f"parts of the rows (too few in {named}): give more rows, or merge rare groups"
                )
            warnings.warn(
                f"fewer than {LEAST_ROWS} rows to fit, judge or confirm by in {named}: no attacker is tried "
                "on them, and no verdict speaks of them; merge rare groups, or label them None (unknown)",
                FairstreamWarning,
                stacklevel=3,
            )


def divided(
    data: Any, sensitive_features: Any, y: Any, sample: int, id_column: bool | str = False
) -> Division:
    """Read the rows once and return them divided; moments and fitted estimators have their sample divided.

    A column of ids is no feature.
    """
    if isinstance(data, FairStreamingPCA):
        data = data.moments_
    if isinstance(data, GroupMoments):
        return _divided_sample(data)
    source = open_rows(data, sensitive_features, y, id_column=id_column)
    moments: GroupMoments | None = None
    parts = {name: RowSample(sample) for name in PARTS if name != "fit"}
    numbers, start = TargetNumbers(), 0
    for block in source:
        place, start = row_places(start, block.n_rows), start + block.n_rows
        if moments is None:
            moments = GroupMoments(source.n_features, None, working_dtype(block.X.dtype), sample=sample)
        for name, part in _parts_of(block, place):
            target = numbers(part.target)
            groups = dict(part.groups) if name == "fit" else _unknown(part.groups)
            if name != "fit":
                parts[name].update(part.X, part.groups, None, target)
            try:
                moments.update(part.X, groups, target=target)
            except MemoryError as error:
                raise _too_wide(error, source) from None
    if moments is None:
        raise ValueError("the data has no rows: nothing to tune")
    moments.schema = Schema.of(source)
    assert moments.sample is not None
    rows = {name: part.rows() for name, part in parts.items()} | {"fit": moments.sample.rows()}
    return Division(moments, rows, held_back=round(1.0 - PARTS["fit"], 2))


def row_places(first: int, n_rows: int) -> NDArray[np.intp]:
    """Return the part, by number, of so many rows from the first one on."""
    keys = scrambled(np.arange(first, first + n_rows, dtype=np.uint64) ^ np.uint64(_SPLIT_KEY))
    uniform = keys.astype(np.float64) / 2.0**64
    return np.searchsorted(np.cumsum([*PARTS.values()])[:-1], uniform, side="right")


def repeated(values: Any, rows: SampledRows) -> NDArray[Any]:
    """Return a value for every row of the data: equal rows are sampled once, with their number."""
    return np.repeat(np.asarray(values), np.maximum(rows.weights.astype(np.intp), 1), axis=0)


def _one_by_one(rows: SampledRows) -> SampledRows:
    apart = rows.taken(repeated(np.arange(len(rows.weights)), rows))
    return replace(apart, weights=np.ones(len(apart.weights)))


def _divided_sample(moments: GroupMoments) -> Division:
    if moments.sample is None or not len(moments.sample):
        raise ValueError("the moments hold no sample of rows: collect them with sample=30000 or so")
    rows = moments.sample.rows()
    if rows.mixer is not None:
        raise ValueError(
            f"the sample keeps {rows.mixer.n_numbers:,} mixed values of each row, tune needs the rows: tune "
            "the data itself, or collect the moments with a smaller sample"
        )
    # A sampled row stands for all rows equal to it: they are divided one by one.
    times = np.maximum(rows.weights.astype(np.intp), 1)
    shares = np.random.default_rng(_SPLIT_KEY).multinomial(times, [*PARTS.values()])
    parts = {}
    for name, counts in zip(PARTS, shares.T, strict=True):
        chosen = np.flatnonzero(counts)
        parts[name] = replace(rows.taken(chosen), weights=counts[chosen].astype(np.float64))
    return Division(moments.with_sample_of(shares[:, 0] > 0), parts)


def _too_wide(error: MemoryError, source: Any) -> MemoryError:
    """Return the error of moments that do not fit into memory with the way out of a search."""
    columns = (getattr(source, "encoding", None) or {"columns": []})["columns"]
    widths = {column["name"]: len(column.get("categories", ())) for column in columns}
    wide = sorted(
        (name for name, n in widths.items() if n > _MANY_CATEGORIES), key=lambda name: -widths[name]
    )
    way_out = "choose fewer columns"
    if wide[:5]:
        listed = ", ".join(f"{name!r} ({widths[name]:,})" for name in wide[:5])
        way_out = (
            f"the columns with most categories are {listed}; leave them out with exclude={wide[:5]!r}, or "
            f'pass unseen="other" and max_categories={_MANY_CATEGORIES} to join the rarest'
        )
    return MemoryError(f"{str(error).rpartition(': ')[0] or error}: {way_out}")


def _parts_of(block: Block, place: NDArray[np.intp]) -> Iterator[tuple[str, Block]]:
    for number, name in enumerate(PARTS):
        rows = np.flatnonzero(place == number)
        if rows.size:
            yield name, block.take(rows)


def _unknown(groups: Groups) -> dict[str, GroupColumn]:
    """Return the same attributes with no row's group known."""
    return {name: replace(c, codes=np.full_like(c.codes, UNKNOWN)) for name, c in groups.items()}
