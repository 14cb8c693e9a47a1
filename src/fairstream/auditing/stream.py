"""The two passes over audited data: survey it, then measure every embedding exactly."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.auditing.measure.suppression import Combination, label_combinations
from fairstream.auditing.subjects import Subject
from fairstream.data.alignment import paired
from fairstream.data.blocks import Block, BlockSource, Matrix, take_rows
from fairstream.data.groups import GroupColumn, encode_groups, label_order
from fairstream.moments import GroupMoments

FloatArray = NDArray[np.floating[Any]]

EXACT_FEATURES = 2_048
SAMPLE_BYTES = 2**29
_ARRAY_BLOCK = 8_192


@dataclass(frozen=True)
class Sample:
    """Rows drawn uniformly from the stream, in stream order; they never leave the audit."""

    X: NDArray[Any]
    groups: dict[str, NDArray[np.object_]]
    target: NDArray[Any] | None


@dataclass(frozen=True)
class Survey:
    """What the first pass found. `combinations` counts the rows of every combination of labels."""

    moments: GroupMoments
    sample: Sample
    digest: str
    feature_names: tuple[str, ...] | None
    combinations: Counter[Combination]


@dataclass(frozen=True)
class EmbeddingMoments:
    """The second pass: the moments of every embedding, the groups' sums of |x - mu|^2."""

    moments: dict[str, GroupMoments]
    squares: dict[tuple[str, Hashable], float]


class ArrayBlocks:
    """Arrays in memory as a source of blocks."""

    def __init__(self, X: Any, sensitive_features: object, y: Any = None) -> None:
        sensitive_features, y = paired(sensitive_features, X), paired(y, X, "y")
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        self.feature_names: tuple[str, ...] | None = None
        if isinstance(frame, nw.DataFrame):
            self.feature_names = tuple(map(str, frame.columns))
            X = frame.to_numpy()
        self._X: Matrix = _rows_of(X)
        if self._X.ndim != 2 or self._X.shape[0] == 0:
            raise ValueError(f"X has shape {self._X.shape}: pass at least one row, one column per feature")
        self.n_rows, self.n_features = map(int, self._X.shape)
        self._groups = encode_groups(sensitive_features, self.n_rows)
        self._y = None if y is None else np.asarray(y)
        if self._y is not None and self._y.shape != (self.n_rows,):
            raise ValueError(
                f"y has shape {self._y.shape}, X has {self.n_rows} rows: pass one target per row"
            )

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        for start in range(0, self.n_rows, _ARRAY_BLOCK):
            rows = slice(start, start + _ARRAY_BLOCK)
            yield Block(
                self._X[rows], take_rows(self._groups, rows), None if self._y is None else self._y[rows]
            )


class _ChosenAttributes:
    """A source with only some of its attributes."""

    def __init__(self, source: BlockSource, attributes: list[str]) -> None:
        self._source, self._attributes = source, attributes
        self.n_features, self.feature_names = source.n_features, source.feature_names
        self.n_rows, self.encoding = source.n_rows, getattr(source, "encoding", None)

    def __iter__(self) -> Iterator[Block]:
        for block in self._source:
            missing = [name for name in self._attributes if name not in block.groups]
            if missing:
                raise ValueError(
                    f"sensitive_features names {missing[0]!r}, the source has {[*block.groups]}: name these, "
                    "or open the source with that column as sensitive"
                )
            yield Block(block.X, {name: block.groups[name] for name in self._attributes}, block.target)


def as_source(
    X: Any, sensitive_features: object = None, y: Any = None, *, encoding: Mapping[str, Any] | None = None
) -> BlockSource:
    """Return blocks for arrays, a path (through `open_source`) or a source with its own labels.

    A path or a frame is read with `encoding`, that of the models.
    """
    if isinstance(X, str | Path):
        from fairstream.data import open_source

        named = [sensitive_features] if isinstance(sensitive_features, str) else sensitive_features
        options: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
        return open_source(X, sensitive=named, target=y, **options)
    if not isinstance(X, BlockSource):
        if sensitive_features is None:
            raise ValueError("sensitive_features is None: pass one label per row of X")
        return ArrayBlocks(_encoded(X, encoding), sensitive_features, y)
    if y is not None:
        raise ValueError("y is given beside a source: open the source with its target instead")
    if sensitive_features is None:
        return X
    names = [sensitive_features] if isinstance(sensitive_features, str) else sensitive_features
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"sensitive_features is a {type(sensitive_features).__name__} beside a source: name the source's "
            "attributes, or leave it out to audit them all"
        )
    return _ChosenAttributes(X, [*names])


def _encoded(X: Any, encoding: Mapping[str, Any] | None) -> Any:
    """Turn a frame like the one behind the models into their features; leave any other data as they are."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if encoding is None or not isinstance(frame, nw.DataFrame):
        return X
    if not {column["name"] for column in encoding["columns"]} <= set(frame.columns):
        return X
    from fairstream.data import open_source

    return np.concatenate([_dense(block.X) for block in open_source(X, encoding=encoding)])


def survey(source: BlockSource, *, sample_rows: int, seed: int) -> Survey:
    """Read the source once: moments (exact up to 2,048 features, sketched above), a sample, a digest.

    Every row gets a uniform random key; the sample is the rows with the smallest keys. It depends on the seed
    and on the order of the rows, never on how they were cut into blocks.
    """
    d = source.n_features
    moments = GroupMoments(d, rank=None if d <= EXACT_FEATURES else 256)
    reservoir = _Reservoir(sample_rows, seed)
    hashes: dict[str, Any] = {"": hashlib.sha256()}
    combinations: Counter[Combination] = Counter()
    for block in source:
        if block.n_rows == 0:
            continue
        if not block.groups:
            raise ValueError("the source has no sensitive attribute: open it with sensitive=...")
        moments.update(block.X, dict(block.groups))
        reservoir.offer(block)
        found, position = label_combinations(block.groups, [*moments.groups])
        for combination, count in zip(found, np.bincount(position).tolist(), strict=True):
            combinations[combination] += count
        hashes[""].update(np.ascontiguousarray(_dense(block.X), dtype="<f8"))
        for attribute, column in block.groups.items():
            labels = "".join(f"{label!r}\n" for label in column.decode().tolist())
            hashes.setdefault(attribute, hashlib.sha256()).update(labels.encode(errors="replace"))
    if moments.n_rows == 0:
        raise ValueError("the source has no rows: nothing to audit")
    digest = hashlib.sha256()
    for attribute in sorted(hashes):
        digest.update(attribute.encode(errors="replace") + hashes[attribute].digest())
    return Survey(moments, reservoir.sample(), digest.hexdigest(), source.feature_names, combinations)


def measure(
    source: BlockSource,
    subjects: Iterable[Subject],
    mean: FloatArray,
    groups: Mapping[str, tuple[Hashable, ...]],
) -> EmbeddingMoments:
    """Read the source again and return the exact moments of every embedding, of the kept groups only."""
    subjects = [*subjects]
    embedded: dict[str, GroupMoments] = {}
    squares: dict[tuple[str, Hashable], float] = {}
    for block in source:
        if block.n_rows == 0:
            continue
        X = _dense(block.X)
        columns = {name: _only(block.groups[name], labels) for name, labels in groups.items()}
        centred = X - mean
        distances = np.einsum("ij,ij->i", centred, centred)
        for name, column in columns.items():
            known = column.codes >= 0
            sums = np.bincount(column.codes[known], distances[known], minlength=len(column.labels))
            for label, total in zip(column.labels, sums, strict=True):
                squares[name, label] = squares.get((name, label), 0.0) + float(total)
        for subject in subjects:
            Z = subject.embed(X)
            if subject.name not in embedded:
                embedded[subject.name] = GroupMoments(Z.shape[1])
            embedded[subject.name].update(Z, columns)
    return EmbeddingMoments(embedded, squares)


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
            # A copy, so that the sample does not hold on to the whole block.
            rows = np.array(_dense(block.X[chosen]))
            target = None if block.target is None else np.asarray(block.target)[chosen]
            self._parts.append(Block(rows, take_rows(block.groups, chosen), target))
            self._keys = np.concatenate([self._keys, keys[chosen]])
        if len(self._keys) > 2 * self._n_rows:
            self._shrink()

    def sample(self) -> Sample:
        if len(self._keys) > self._n_rows:
            self._shrink()
        X, groups, target = self._joined()
        return Sample(X, groups, target)

    def _shrink(self) -> None:
        kept = np.sort(np.argpartition(self._keys, self._n_rows - 1)[: self._n_rows])
        X, groups, target = self._joined()
        columns = {name: encode_groups(labels[kept].tolist(), len(kept)) for name, labels in groups.items()}
        encoded = {name: next(iter(column.values())) for name, column in columns.items()}
        self._parts = [Block(X[kept], encoded, None if target is None else target[kept])]
        self._keys = self._keys[kept]
        self._limit = float(self._keys.max())

    def _joined(self) -> tuple[NDArray[Any], dict[str, NDArray[np.object_]], NDArray[Any] | None]:
        X = np.concatenate([np.asarray(part.X) for part in self._parts])
        groups = {
            name: np.concatenate([part.groups[name].decode() for part in self._parts])
            for name in self._parts[0].groups
        }
        targets = [part.target for part in self._parts if part.target is not None]
        target = np.concatenate(targets) if len(targets) == len(self._parts) else None
        return X, groups, target


def codes_of(labels: NDArray[np.object_], kept: tuple[Hashable, ...]) -> NDArray[np.intp]:
    """Return the position of each label in `kept`, -1 for unknown and suppressed ones."""
    position = {label: code for code, label in enumerate(kept)}
    return np.array([position.get(label, -1) for label in labels.tolist()], dtype=np.intp)


def kept_groups(moments: GroupMoments, min_group_size: int) -> dict[str, tuple[Hashable, ...]]:
    """Return the groups large enough to be reported, for attributes with at least two of them."""
    kept = {
        name: tuple(sorted((g for g in labels if moments.count(name, g) >= min_group_size), key=label_order))
        for name, labels in moments.groups.items()
    }
    return {name: labels for name, labels in kept.items() if len(labels) >= 2}


def _only(column: GroupColumn, kept: tuple[Hashable, ...]) -> GroupColumn:
    table = np.array(
        [kept.index(label) if label in kept else -1 for label in column.labels] + [-1], dtype=np.intp
    )
    return GroupColumn(table[column.codes], kept)


def _rows_of(X: Any) -> Matrix:
    rows: Matrix = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    return rows


def _dense(X: Matrix) -> NDArray[Any]:
    sparse: Any = X
    return sparse.toarray() if sp.issparse(X) else np.asarray(X)
