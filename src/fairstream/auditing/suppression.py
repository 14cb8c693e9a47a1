"""Which rows an audit leaves out, so that no subtraction of its numbers shows a small group.

A report that hides a group of one row, but sums over all rows and over every other group, gives that row
away: total minus groups. Here every row has a pattern: for each audited attribute, whether its group is
reported, suppressed as too small, or unknown. An attribute's total minus its groups is a sum over whole
patterns, and so is the difference of two such remainders. So rows of a pattern with fewer than
`min_group_size` rows are left out of everything. Larger patterns stay: what subtraction shows of them is a
sum over as many rows as a reported group has.

Not covered: two reported groups of different attributes that have all but a few rows in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.rows import View
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.groups import GroupColumn, label_order

Combination = tuple[Hashable, ...]  # a row's label of every attribute; None if it is unknown
Kept = dict[str, tuple[Hashable, ...]]


def label_combinations(
    groups: Mapping[str, GroupColumn], attributes: Sequence[str]
) -> tuple[list[Combination], NDArray[np.intp]]:
    """Return the combinations of labels that occur, and which of them each row has.

    Examples
    --------
    >>> from fairstream.data.groups import encode_groups
    >>> label_combinations(encode_groups({"sex": ["f", "m", "f"]}, 3), ["sex"])
    ([('f',), ('m',)], array([0, 1, 0]))
    """
    columns = [groups[name] for name in attributes]
    codes = np.column_stack([column.codes for column in columns])
    unique, position = np.unique(codes, axis=0, return_inverse=True)
    found = [
        tuple(None if code < 0 else column.labels[code] for code, column in zip(row, columns, strict=True))
        for row in unique.tolist()
    ]
    return found, position.ravel()


def rare_combinations(
    counts: Mapping[Combination, int], attributes: Sequence[str], min_group_size: int
) -> frozenset[Combination]:
    """Return the combinations whose rows must be left out.

    Leaving rows out can make another group too small, which hides it in turn: so this is repeated until
    nothing changes.

    Examples
    --------
    >>> sorted(rare_combinations({("f",): 30, ("m",): 30, ("x",): 1}, ["sex"], 20))
    [('x',)]
    >>> sorted(rare_combinations({("f",): 30, ("m",): 30, (None,): 25}, ["sex"], 20))
    []
    """
    left = dict(counts)
    while True:
        kept = reported_groups(left, attributes, min_group_size)
        places = [place for place, name in enumerate(attributes) if name in kept]
        patterns = {
            combination: tuple(
                "unknown"
                if combination[place] is None
                else ("reported" if combination[place] in kept[attributes[place]] else "suppressed")
                for place in places
            )
            for combination in left
        }
        sizes: Counter[tuple[str, ...]] = Counter()
        for combination, pattern in patterns.items():
            sizes[pattern] += left[combination]
        rare = [c for c, pattern in patterns.items() if sizes[pattern] < min_group_size]
        if not rare or not places:
            return frozenset(counts) - frozenset(left)
        for combination in rare:
            del left[combination]


def reported_groups(
    counts: Mapping[Combination, int], attributes: Sequence[str], min_group_size: int
) -> Kept:
    """Return the groups large enough to be reported, for attributes with at least two of them."""
    kept: Kept = {}
    for place, name in enumerate(attributes):
        sizes: Counter[Hashable] = Counter()
        for combination, count in counts.items():
            if combination[place] is not None:
                sizes[combination[place]] += count
        groups = sorted((g for g, size in sizes.items() if size >= min_group_size), key=label_order)
        if len(groups) >= 2:
            kept[name] = tuple(groups)
    return kept


def without_combinations(
    source: BlockSource, attributes: Sequence[str], left_out: frozenset[Combination]
) -> BlockSource:
    """Return the source without the rows whose labels are one of these combinations."""

    def shown(block: Block) -> Block:
        if block.n_rows == 0:
            return block
        found, position = label_combinations(block.groups, attributes)
        stays = np.array([combination not in left_out for combination in found])
        rows = np.flatnonzero(stays[position])
        return block if rows.size == block.n_rows else block.take(rows)

    return View(source, shown)
