"""Embedded rows: their exact moments from one pass, and the rows themselves for those who attack them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.rows import dense
from fairstream.auditing.subjects import Subject
from fairstream.auditing.survey import codes_among
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.groups import GroupColumn
from fairstream.moments import GroupMoments

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class EmbeddingMoments:
    """The moments of every embedding, by name, and each group's sum of |x - mu|^2.

    `with_features` are the covariances of the features and the coordinates of an embedding, d x k, and
    `variances` those of the features. `recognised` counts, for models that keep marks, the rows that equal
    rows of the fit, and the rows of which that can be told.
    """

    moments: dict[str, GroupMoments]
    squares: dict[tuple[str, Hashable], float]
    with_features: dict[str, FloatArray]
    variances: FloatArray
    recognised: dict[str, tuple[int, int]]


def embedding_moments(
    source: BlockSource,
    subjects: Sequence[Subject],
    mean: FloatArray,
    groups: Mapping[str, tuple[Hashable, ...]],
) -> EmbeddingMoments:
    """Read the source and return the moments of every embedding, of the reported groups only."""
    embedded: dict[str, GroupMoments] = {}
    squares: dict[tuple[str, Hashable], float] = {}
    products: dict[str, FloatArray] = {}
    feature_squares, n_rows = np.zeros(len(mean)), 0
    recognised: dict[str, tuple[int, int]] = {}
    for block in source:
        if block.n_rows == 0:
            continue
        X = dense(block.X)
        columns = {
            name: GroupColumn(codes_among(block.groups[name], labels), labels)
            for name, labels in groups.items()
        }
        centred = X - mean
        distances = np.einsum("ij,ij->i", centred, centred)
        feature_squares += np.einsum("ij,ij->j", centred, centred)
        n_rows += block.n_rows
        for name, column in columns.items():
            known = column.codes >= 0
            sums = np.bincount(column.codes[known], distances[known], minlength=len(column.labels))
            for label, total in zip(column.labels, sums, strict=True):
                squares[name, label] = squares.get((name, label), 0.0) + float(total)
        for subject in subjects:
            Z = subject.embed(X, block.ids)
            if subject.name not in embedded:
                embedded[subject.name] = GroupMoments(Z.shape[1])
                products[subject.name] = np.zeros((len(mean), Z.shape[1]))
            embedded[subject.name].update(Z, columns)
            products[subject.name] += centred.T @ Z
            if subject.row_marks is not None:
                hits, told = recognised.get(subject.name, (0, 0))
                more_hits, more_told = subject.row_marks.recognised(X)
                recognised[subject.name] = hits + more_hits, told + more_told
    n_rows = max(n_rows, 1)
    with_features: dict[str, FloatArray] = {name: product / n_rows for name, product in products.items()}
    return EmbeddingMoments(embedded, squares, with_features, feature_squares / n_rows, recognised)


@dataclass(frozen=True)
class EmbeddedRows:
    """Rows of an embedding, their target, and their groups: -1 if unknown or suppressed."""

    Z: FloatArray
    codes: dict[str, NDArray[np.intp]]
    target: NDArray[Any] | None


def embedded_rows(
    blocks: Iterable[Block],
    embed: Callable[..., FloatArray],
    groups: Mapping[str, tuple[Hashable, ...]],
) -> EmbeddedRows:
    """Embed blocks of rows and hold them all."""
    Z: list[FloatArray] = []
    codes: dict[str, list[NDArray[np.intp]]] = {name: [] for name in groups}
    target: list[NDArray[Any]] = []
    for block in blocks:
        if block.n_rows == 0:
            continue
        Z.append(embed(dense(block.X), block.ids))
        for name, labels in groups.items():
            known = block.groups.get(name)
            unknown = np.full(block.n_rows, -1, dtype=np.intp)
            codes[name].append(unknown if known is None else codes_among(known, labels))
        if block.target is not None:
            target.append(np.asarray(block.target))
    return EmbeddedRows(
        Z[0] if len(Z) == 1 else np.concatenate(Z),
        {name: np.concatenate(parts) for name, parts in codes.items()},
        np.concatenate(target) if len(target) == len(Z) else None,
    )
