"""Intersections: attributes whose groups are the combinations of other attributes' groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairstream.data.blocks import Block, BlockSource, SourceAround
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups

JOINED = " & "


def intersection_names(intersections: Any) -> list[tuple[str, ...]]:
    """Return which attributes are to be combined, or say what is wrong with them.

    Examples
    --------
    >>> intersection_names([["sex", "race"]])
    [('sex', 'race')]
    """
    listed = intersections if isinstance(intersections, list | tuple) else [None]
    combined = [tuple(names) if isinstance(names, list | tuple) else () for names in listed]
    for names in combined:
        if len({*names}) < max(len(names), 2) or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"intersections={intersections!r}: give a list of at least two attributes each, such as "
                '[("sex", "race")]'
            )
    return combined


def with_intersections(groups: Groups | None, intersections: Any) -> Groups | None:
    """Return the groups of some rows and, as attributes of their own, those of the intersections.

    A row is in an intersection's group if it is known in all its attributes. Only combinations that occur are
    groups; their labels are text.

    Examples
    --------
    >>> from fairstream.data.groups import encode_groups
    >>> groups = encode_groups({"sex": ["f", "m", "f"], "race": ["a", "a", None]}, 3)
    >>> column = with_intersections(groups, [("sex", "race")])["sex & race"]
    >>> column.labels, column.codes.tolist()
    (('f & a', 'm & a'), [0, 1, -1])
    """
    if intersections is None or groups is None:
        return groups
    found = dict(groups)
    for names in intersection_names(intersections):
        missing = [name for name in names if name not in groups]
        if missing:
            raise ValueError(
                f"intersections names {missing[0]!r}, the rows come with the attributes {[*groups]}: pass "
                "its labels too"
            )
        joined = JOINED.join(names)
        if joined in found:
            raise ValueError(f"there is an attribute {joined!r} already: leave it out of intersections")
        found[joined] = _combined([(name, groups[name]) for name in names])
    return found


def _combined(columns: Sequence[tuple[str, GroupColumn]]) -> GroupColumn:
    codes = np.stack([column.codes for _, column in columns], axis=1)
    known = (codes != UNKNOWN).all(axis=1)
    occurring, inverse = np.unique(codes[known], axis=0, return_inverse=True)
    parts = [_texts(name, column) for name, column in columns]
    labels = [JOINED.join(part[code] for part, code in zip(parts, row, strict=True)) for row in occurring]
    combined = np.full(len(codes), UNKNOWN, dtype=np.intp)
    order = np.argsort(np.array(labels, dtype=object), kind="stable")
    place = np.empty(len(labels), dtype=np.intp)
    place[order] = np.arange(len(labels))
    combined[known] = place[inverse.ravel()]
    return GroupColumn(combined, tuple(labels[j] for j in order))


def _texts(name: str, column: GroupColumn) -> list[str]:
    """Return labels as text in which the sign that joins them stands for itself."""
    texts = [str(label).replace("&", "&&") for label in column.labels]
    if len({*texts}) < len(texts):
        raise ValueError(
            f"two groups of {name!r} read the same as text ({column.labels}): label its groups differently"
        )
    return texts


class IntersectedSource(SourceAround):
    """Another source's blocks with the groups of intersections beside their own."""

    def __init__(self, source: BlockSource, intersections: Any) -> None:
        super().__init__(source)
        self._intersections = intersections

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        for block in self._source:
            yield replace(block, groups=with_intersections(block.groups, self._intersections) or {})
