"""How data of any kind is cut into parts, independently of the number of workers."""

from __future__ import annotations

import itertools
import math
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairstream.data import open_source
from fairstream.data.blocks import BlockSource, is_source
from fairstream.data.dask_collections import encoded_alike, rows_in_all
from fairstream.data.file_search import absolute
from fairstream.data.other_libraries import is_dask, is_task
from fairstream.streaming.dask.parts import Part, SourcePart
from fairstream.streaming.dask.reducing import WINDOW

PARTS_WISHED = 128
LARGEST_PART = 8  # times what is worth a task


@dataclass(frozen=True)
class Partitioned:
    """The parts in order, and the encoding if opening the data has told it already."""

    parts: Sequence[Part]
    encoding: Mapping[str, Any] | None = None

    @property
    def n_rows(self) -> int | None:
        """Rows of all parts together, None if only reading would tell."""
        return rows_in_all(self.parts)


def cut(sources: Sequence[BlockSource], partition_rows: int | None = None) -> Partitioned:
    """Cut sources into parts, each of them for itself."""
    if partition_rows is not None and partition_rows < 1:
        raise ValueError(f"partition_rows is {partition_rows}: give a positive number of rows")
    each = [_cut(source, partition_rows) for source in sources]
    return Partitioned([part for one in each for part in one.parts], each[0].encoding)


def opened(source: Any, roles: Mapping[str, Any]) -> list[BlockSource]:
    """Return what is to be fitted as sources, one for each item of a list of paths or sources.

    `roles` are the options of `open_source` that the estimator implies, for what is not open yet.
    """
    listed = list(source) if isinstance(source, list | tuple) and source else [source]
    if is_dask(source) or any(map(is_task, listed)):
        return [open_source(source, **roles)]
    if all(isinstance(item, str | os.PathLike) for item in listed):
        # Absolute, since workers may have been started in another folder.
        first, *others = (absolute(Path(path)) for path in listed)
        leader = open_source(first, **roles)
        alike = encoded_alike(roles, getattr(leader, "encoding", None))
        return [leader, *(open_source(path, **alike) for path in others)]
    if not all(map(is_source, listed)):
        wrong = next(item for item in listed if not is_source(item))
        where = "is" if wrong is source else "is a list with"
        raise ValueError(
            f"source {where} a {type(wrong).__name__}: pass a dask array or DataFrame, a list of delayed "
            "blocks or futures, a path or a list of them, or an open source; what is in this process's "
            "memory fits without a client"
        )
    return listed


def _cut(source: BlockSource, partition_rows: int | None) -> Partitioned:
    """Cut a source at its `cuts`; one that can only be read from front to back is one part."""
    tasks = getattr(source, "task_parts", None)
    if tasks is not None:
        return Partitioned(tasks)
    try:
        source.__reduce_ex__(4)  # asks for the state and copies nothing
    except TypeError as error:
        raise ValueError(f"X cannot be sent to a worker: {error}") from None
    place = str(getattr(source, "path", f"the {type(source).__name__}"))
    encoding, cuts = getattr(source, "encoding", None), getattr(source, "cuts", None)
    if cuts is None:
        return Partitioned([SourcePart(source, place)], encoding)
    divisible: Any = source
    n_parts = _number_of_parts(cuts[-1], divisible.part_rows, partition_rows)
    parts = [
        SourcePart(divisible.part(start, stop), f"rows {start:,} to {stop - 1:,} of {place}")
        for start, stop in itertools.pairwise(_even_ends(cuts, n_parts))
    ]
    return Partitioned(parts, encoding)


def _number_of_parts(n_rows: int, worthwhile: int, partition_rows: int | None) -> int:
    """Return how many parts to make of `n_rows` rows, if `worthwhile` rows are worth a task.

    Numbers that few or many workers can share evenly, and that fill windows: powers of two, then multiples
    of a window.

    Examples
    --------
    >>> [_number_of_parts(n, 100, None) for n in (50, 500, 1_700, 10_000, 1_000_000)]
    [1, 8, 32, 112, 1264]
    """
    if partition_rows is not None:
        return max(1, math.ceil(n_rows / partition_rows))
    size = min(max(worthwhile, n_rows / PARTS_WISHED), LARGEST_PART * worthwhile)
    wished = max(1, math.ceil(n_rows / size))
    if wished > WINDOW:
        return math.ceil(wished / WINDOW) * WINDOW
    return 1 << (wished - 1).bit_length()


def _even_ends(cuts: Sequence[int], n_parts: int) -> list[int]:
    """Return ends of about equal parts, each the cut that is nearest.

    Examples
    --------
    >>> _even_ends([0, 30, 60, 90, 100], 3)
    [0, 30, 60, 100]
    """
    ends = {cuts[0], cuts[-1]}
    for number in range(1, n_parts):
        wished = cuts[-1] * number // n_parts
        after = bisect_left(cuts, wished)
        ends.add(min(cuts[max(after - 1, 0) : after + 1], key=lambda cut: abs(cut - wished)))
    return sorted(ends) if len(ends) > 1 else [cuts[0], cuts[-1]]
