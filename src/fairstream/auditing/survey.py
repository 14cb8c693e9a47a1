"""The first pass over the audited rows: moments, a sample, a digest, and which labels occur together."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.rows import dense
from fairstream.auditing.suppression import Combination, label_combinations
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.cutting import join_blocks
from fairstream.data.groups import GroupColumn
from fairstream.moments import GroupMoments

EXACT_FEATURES = 2_048
SAMPLE_BYTES = 2**29


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    `sample` holds rows drawn uniformly from the stream, in stream order; they never leave the audit.
    `combinations` counts the rows of every combination of labels.
    """

    moments: GroupMoments
    sample: Block
    digest: str
    feature_names: tuple[str, ...] | None
    combinations: Counter[Combination]


def survey(source: BlockSource, *, sample_rows: int, seed: int) -> Survey:
    """Read the source once. Moments are exact up to 2,048 features, sketched above.

    Every row gets a uniform random key; the sample is the rows with the smallest keys. It depends on the seed
    and on the order of the rows, never on how they were cut into blocks.
    """
    d = source.n_features
    moments = GroupMoments(d, rank=None if d <= EXACT_FEATURES else 256)
    reservoir = _Reservoir(sample_rows, seed)
    digest = _Digest()
    combinations: Counter[Combination] = Counter()
    for block in source:
        if block.n_rows == 0:
            continue
        if not block.groups:
            raise ValueError("the source has no sensitive attribute: open it with sensitive_features=...")
        moments.update(block.X, dict(block.groups))
        reservoir.offer(block)
        digest.update(block)
        found, position = label_combinations(block.groups, [*moments.groups])
        for combination, count in zip(found, np.bincount(position).tolist(), strict=True):
            combinations[combination] += count
    if moments.n_rows == 0:
        raise ValueError("the source has no rows: nothing to audit")
    return Survey(moments, reservoir.sample(), digest.hexdigest(), source.feature_names, combinations)


def codes_among(column: GroupColumn, kept: tuple[Hashable, ...]) -> NDArray[np.intp]:
    """Return the position of each row's label in `kept`, -1 for unknown and suppressed ones."""
    place: Mapping[Hashable, int] = {label: code for code, label in enumerate(kept)}
    # The extra last entry serves the code -1: unknown stays unknown.
    table = np.array([*(place.get(label, -1) for label in column.labels), -1], dtype=np.intp)
    return table[column.codes]


class _Digest:
    """SHA-256 over the rows and over each attribute's labels; it does not depend on the blocks."""

    def __init__(self) -> None:
        self._rows, self._labels = hashlib.sha256(), dict[str, Any]()

    def update(self, block: Block) -> None:
        self._rows.update(np.ascontiguousarray(dense(block.X), dtype="<f8").data)
        for attribute, column in block.groups.items():
            lines = np.array([*(f"{label!r}\n" for label in column.labels), "None\n"], dtype=object)
            text = "".join(lines[column.codes].tolist())
            self._labels.setdefault(attribute, hashlib.sha256()).update(text.encode(errors="replace"))

    def hexdigest(self) -> str:
        whole = hashlib.sha256(self._rows.digest())
        for attribute in sorted(self._labels):
            whole.update(attribute.encode(errors="replace") + self._labels[attribute].digest())
        return whole.hexdigest()


class _Reservoir:
    """The rows with the smallest random keys so far."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self._n_rows, self._rng = n_rows, np.random.default_rng(seed)
        self._limit = 1.0
        self._keys = np.empty(0)
        self._parts: list[Block] = []

    def offer(self, block: Block) -> None:
        if not self._parts:
            row_bytes = max(1, block.X.shape[1] * block.X.dtype.itemsize)
            self._n_rows = max(min(self._n_rows, SAMPLE_BYTES // row_bytes), 1)
        keys = self._rng.random(block.n_rows)
        chosen = np.flatnonzero(keys < self._limit)
        if chosen.size:
            taken = block.take(chosen)  # a copy, so that the sample does not keep the whole block in memory
            self._parts.append(replace(taken, X=dense(taken.X)))
            self._keys = np.concatenate([self._keys, keys[chosen]])
        if len(self._keys) > self._n_rows + self._n_rows // 4:
            self._shrink()

    def sample(self) -> Block:
        if len(self._keys) > self._n_rows:
            self._shrink()
        return join_blocks(self._parts)

    def _shrink(self) -> None:
        stays = np.zeros(len(self._keys), dtype=bool)
        stays[np.argpartition(self._keys, self._n_rows - 1)[: self._n_rows]] = True
        # Part by part: whoever joins them first holds the sample three times.
        ends = np.cumsum([part.n_rows for part in self._parts])
        cut = zip(self._parts, np.split(stays, ends[:-1]), strict=True)
        self._parts = [part.take(np.flatnonzero(rows)) for part, rows in cut]
        self._keys = self._keys[stays]
        self._limit = float(self._keys.max())
