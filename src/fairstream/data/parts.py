"""Sources that can be divided: the rows at which they may be cut, and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairstream.data.blocks import BlockSource
from fairstream.data.groups import GroupColumn, Groups

PART_BYTES = 2**26


@runtime_checkable
class DivisibleSource(BlockSource, Protocol):
    """A source that can be divided into parts, which are sources too, cheap to send and opened on arrival.

    Examples
    --------
    >>> from fairstream.data import open_source
    >>> source = open_source(np.arange(12.0).reshape(6, 2), sensitive_features={"sex": ["f", "m"] * 3})
    >>> isinstance(source, DivisibleSource), source.cuts
    (True, range(0, 7))
    >>> [block.X[:, 0].tolist() for block in source.part(2, 5)]
    [[4.0, 6.0, 8.0]]
    """

    @property
    def cuts(self) -> Sequence[int] | None:
        """Rows that a part may begin or end at without reading other rows, from 0 to the number of rows.

        None if the rows can only be read from front to back.
        """

    @property
    def part_rows(self) -> int:
        """Rows that are worth a task of their own."""

    def part(self, start: int, stop: int) -> BlockSource:
        """Return a source over rows start..stop, with their labels and target."""


def rows_worth_a_task(row_bytes: float) -> int:
    """Return the rows of 64 MB.

    Every task has a fixed cost, because its summary is built, sent and merged: with d features and exact
    moments it takes as long as some hundred rows.

    Examples
    --------
    >>> rows_worth_a_task(512 * 4)
    32768
    """
    return max(64, int(PART_BYTES // max(row_bytes, 1)))


def check_part(source: Any, start: int, stop: int) -> None:
    """Refuse rows that the source does not have, and sources that cannot be divided."""
    if source.cuts is None:
        raise ValueError(f"the {type(source).__name__} can only be read from front to back: iterate it")
    n_rows = source.cuts[-1]
    if not 0 <= start <= stop <= n_rows:
        raise ValueError(f"rows {start} to {stop} are asked for, there are {n_rows:,}: 0 <= start <= stop")


def cut_groups(groups: Groups, start: int, stop: int) -> dict[str, GroupColumn]:
    """Return the labels of rows start..stop, copied into the smallest integers that hold them.

    Examples
    --------
    >>> from fairstream.data.groups import encode_groups
    >>> cut_groups(encode_groups({"sex": ["f", "m", None]}, 3), 1, 3)["sex"].codes
    array([ 1, -1], dtype=int8)
    """
    cut = {}
    for attribute, column in groups.items():
        smallest = np.min_scalar_type(-len(column.labels) - 2)  # two to spare: readers may add one to a code
        cut[attribute] = GroupColumn(column.codes[start:stop].astype(smallest), column.labels)
    return cut
