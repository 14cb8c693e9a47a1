"""The rows that tuning fits on, judges by and confirms with: three parts that share no row.

Rows are divided by a hash of their number, not of their values: equal rows come into different parts, as
attackers know rows equal to those they attack. Keeping them together would understate what leaks.

Groups and targets are learned from the fitting rows alone. Mean and covariance are those of all rows, without
their groups: a rare value that only some parts have would otherwise take a component of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.rows import open_rows
from fairstream.data.blocks import Block, take_rows
from fairstream.data.fingerprints import scrambled
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups
from fairstream.data.schema import Schema
from fairstream.estimators.learner import working_dtype
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.moments import GroupMoments
from fairstream.moments.sample import RowSample, SampledRows

PARTS: Mapping[str, float] = {"fit": 0.65, "judge": 0.2, "confirm": 0.15}
_SPLIT_KEY = 0x7E57


@dataclass(frozen=True)
class Division:
    """Moments of the rows to fit on, and the three parts of the rows.

    `is_complete` says whether the parts hold every row there is, so that an attacker cannot have more.
    """

    moments: GroupMoments
    parts: Mapping[str, SampledRows]
    is_complete: bool

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The sensitive attributes."""
        return tuple(self.moments.groups)

    def one_by_one(self) -> Division:
        """Return the same rows with equal ones apart, each of weight 1, instead of once with their number."""
        return replace(self, parts={name: _one_by_one(part) for name, part in self.parts.items()})

    def codes(self, attribute: str) -> dict[str, NDArray[np.intp]]:
        """Return the group of every row by part, as indices into the moments' labels, -1 if unknown."""
        labels = self.moments.groups[attribute]
        shared = {}
        for name, rows in self.parts.items():
            table = np.array([labels.index(label) for label in rows.labels[attribute]] + [-1], dtype=np.intp)
            shared[name] = table[rows.codes[attribute]]
        return shared


def divided(data: Any, sensitive_features: Any, y: Any, sample: int) -> Division:
    """Read the rows once and return them divided; moments and fitted estimators have their sample divided."""
    if isinstance(data, FairStreamingPCA):
        data = data.moments_
    if isinstance(data, GroupMoments):
        return _divided_sample(data)
    source = open_rows(data, sensitive_features, y)
    moments: GroupMoments | None = None
    parts = {name: RowSample(sample) for name in PARTS if name != "fit"}
    numbers, start = _TargetNumbers(), 0
    for block in source:
        place, start = row_places(start, block.n_rows), start + block.n_rows
        if moments is None:
            moments = GroupMoments(source.n_features, None, working_dtype(block.X.dtype), sample=sample)
        for name, part in _parts_of(block, place):
            target = numbers(part.target)
            if name == "fit":
                moments.update(part.X, dict(part.groups), target=target)
            else:
                parts[name].update(part.X, part.groups, None, target)
                moments.update(part.X, _unknown(part.groups), target=target)
    if moments is None:
        raise ValueError("the data has no rows: nothing to tune")
    moments.schema = Schema.of(source)
    assert moments.sample is not None
    rows = {name: part.rows() for name, part in parts.items()} | {"fit": moments.sample.rows()}
    held = sum(float(part.weights.sum()) for part in rows.values())
    return Division(moments, rows, held >= moments.n_rows)


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
    # A sampled row stands for all rows equal to it: they are divided one by one.
    times = np.maximum(rows.weights.astype(np.intp), 1)
    shares = np.random.default_rng(_SPLIT_KEY).multinomial(times, [*PARTS.values()])
    parts = {}
    for name, counts in zip(PARTS, shares.T, strict=True):
        chosen = np.flatnonzero(counts)
        parts[name] = replace(rows.taken(chosen), weights=counts[chosen].astype(np.float64))
    return Division(moments.with_sample_of(shares[:, 0] > 0), parts, is_complete=False)


def _parts_of(block: Block, place: NDArray[np.intp]) -> Iterator[tuple[str, Block]]:
    for number, name in enumerate(PARTS):
        rows = np.flatnonzero(place == number)
        if rows.size:
            target = None if block.target is None else np.asarray(block.target)[rows]
            yield name, Block(block.X[rows], take_rows(block.groups, rows), target)


def _unknown(groups: Groups) -> dict[str, GroupColumn]:
    """Return the same attributes with no row's group known."""
    return {name: replace(c, codes=np.full_like(c.codes, UNKNOWN)) for name, c in groups.items()}


class _TargetNumbers:
    """Turns a target into numbers: two classes of text become 0 and 1, in the order in which they come."""

    def __init__(self) -> None:
        self._classes: dict[Hashable, int] = {}

    def __call__(self, target: Any) -> NDArray[np.float64] | None:
        if target is None:
            return None
        values = np.asarray(target)
        if values.dtype.kind in "fiub":
            return values.astype(np.float64)
        for value in values.tolist():
            self._classes.setdefault(value, len(self._classes))
        if len(self._classes) > 2:
            found = ", ".join(repr(value) for value in [*self._classes][:4])
            raise ValueError(f"y has more than two classes ({found}, ...): join some, such as y == 'yes'")
        return np.array([self._classes[value] for value in values.tolist()], dtype=np.float64)
