"""How rows are cut into blocks: default block sizes, row ranges, exact boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from fairstream.data.blocks import Block, Matrix, take_rows
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups, label_order

Item = TypeVar("Item")

BLOCK_BYTES = 8 * 2**20
MIN_ROWS, MAX_ROWS = 64, 65_536


def default_block_size(row_bytes: float) -> int:
    """Return the rows that make a block of about 8 MB, at least 64 and at most 65,536.

    Examples
    --------
    >>> default_block_size(38_804 * 4)
    64
    >>> default_block_size(100 * 8)
    10485
    """
    return int(np.clip(BLOCK_BYTES // max(row_bytes, 1), MIN_ROWS, MAX_ROWS))


def check_block_size(block_size: object) -> int | None:
    """Return `block_size` as an int, None where it is to be chosen; refuse anything else."""
    if block_size is None:
        return None
    if isinstance(block_size, bool) or not isinstance(block_size, int | np.integer) or block_size < 1:
        raise ValueError(f"block_size is {block_size!r}: pass a whole number of rows, 1 or more, or None")
    return int(block_size)


def row_ranges(n_rows: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of every block in order.

    Examples
    --------
    >>> list(row_ranges(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, n_rows, block_size):
        yield start, min(start + block_size, n_rows)


def reslice(blocks: Iterable[Block], block_size: int) -> Iterator[Block]:
    """Yield the same rows in blocks of exactly `block_size` rows (the last may be shorter).

    A block that already has the right size passes through uncopied.
    """
    pending: list[Block] = []
    held = 0
    for block in closing_early(blocks):
        start = 0
        while held + block.n_rows - start >= block_size:
            stop = start + block_size - held
            yield join_blocks([*pending, cut_block(block, start, stop)])
            pending, held, start = [], 0, stop
        if start < block.n_rows:
            pending.append(cut_block(block, start, block.n_rows))
            held += block.n_rows - start
    if pending:
        yield join_blocks(pending)


def closing_early(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; when left early, close the generator they come from at once."""
    iterator = iter(items)
    try:
        yield from iterator
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def cut_block(block: Block, start: int, stop: int) -> Block:
    """Return rows start..stop of a block."""
    if start == 0 and stop == block.n_rows:
        return block
    rows = slice(start, stop)
    target = None if block.target is None else block.target[rows]
    return Block(block.X[rows], take_rows(block.groups, rows), target)


def join_blocks(blocks: list[Block]) -> Block:
    """Return one block that holds the rows of all, in order."""
    if len(blocks) == 1:
        return blocks[0]
    X: Matrix
    if any(sp.issparse(block.X) for block in blocks):
        X = sp.csr_array(sp.vstack([block.X for block in blocks]))
    else:
        X = np.concatenate([np.asarray(block.X) for block in blocks])
    targets = [block.target for block in blocks if block.target is not None]
    if len(targets) not in (0, len(blocks)):
        raise ValueError("some blocks have a target and some have none: give every block one")
    target: Any = np.concatenate(targets) if targets else None
    return Block(X, _join_groups([block.groups for block in blocks]), target)


def _join_groups(parts: list[Groups]) -> Mapping[str, GroupColumn]:
    attributes = list(parts[0])
    for part in parts:
        if set(part) != set(attributes):
            raise ValueError(
                f"blocks have different attributes, {sorted(attributes)} and {sorted(part)}: "
                "give every block the same sensitive features"
            )
    return {name: _join_columns([part[name] for part in parts]) for name in attributes}


def _join_columns(columns: list[GroupColumn]) -> GroupColumn:
    labels = sorted({label for column in columns for label in column.labels}, key=label_order)
    position = {label: index for index, label in enumerate(labels)}
    codes = []
    for column in columns:
        # The extra last entry serves the code -1: unknown stays unknown.
        recode = np.array([*(position[label] for label in column.labels), UNKNOWN], dtype=np.intp)
        codes.append(recode[column.codes])
    return GroupColumn(np.concatenate(codes), tuple(labels))
