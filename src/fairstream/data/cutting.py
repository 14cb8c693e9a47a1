"""How rows are cut into blocks: default block sizes, row ranges, exact boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups, label_order

Item = TypeVar("Item")
Piece = TypeVar("Piece")
Joined = TypeVar("Joined")

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
    """Return `block_size` as an int, or None if it is left to the source; refuse anything else."""
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
    return recut(blocks, block_size, attrgetter("n_rows"), cut_block, join_blocks)


def recut(
    pieces: Iterable[Piece],
    size: int,
    rows_of: Callable[[Piece], int],
    cut: Callable[[Piece, int, int], Piece],
    join: Callable[[list[Piece]], Joined],
) -> Iterator[Joined]:
    """Yield the rows of all pieces, joined to exactly `size` rows each (the last may be shorter).

    Examples
    --------
    >>> list(recut(["abc", "d", "efg"], 2, len, lambda text, start, stop: text[start:stop], "".join))
    ['ab', 'cd', 'ef', 'g']
    """
    pending: list[Piece] = []
    held = 0
    for piece in closing_early(pieces):
        start, n_rows = 0, rows_of(piece)
        while held + n_rows - start >= size:
            stop = start + size - held
            yield join([*pending, cut(piece, start, stop)])
            pending, held, start = [], 0, stop
        if start < n_rows:
            pending.append(cut(piece, start, n_rows))
            held += n_rows - start
    if pending:
        yield join(pending)


def rows_between(blocks: Iterable[Block], start: int, stop: int) -> Iterator[Block]:
    """Yield rows start..stop of a stream. Earlier rows are read and dropped, later ones are not read.

    Examples
    --------
    >>> stream = [Block(np.array([[0], [1]])), Block(np.array([[2], [3]])), Block(np.array([[4], [5]]))]
    >>> [block.X.ravel().tolist() for block in rows_between(stream, 1, 4)]
    [[1], [2, 3]]
    """
    at = 0
    for block in closing_early(blocks):
        first, last = max(start - at, 0), min(stop - at, block.n_rows)
        if first < last:
            yield cut_block(block, first, last)
        at += block.n_rows
        if at >= stop:
            return


def closing_early(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items. If the loop over them ends early, close their generator immediately."""
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
    return block.take(slice(start, stop))


def join_blocks(blocks: list[Block]) -> Block:
    """Return one block that holds the rows of all, in order."""
    if len(blocks) == 1:
        return blocks[0]
    X: Matrix
    if any(sp.issparse(block.X) for block in blocks):
        X = sp.csr_array(sp.vstack([block.X for block in blocks]))
    else:
        X = np.concatenate([np.asarray(block.X) for block in blocks])
    target = _join_values([block.target for block in blocks], "a target", "one")
    weights = _join_values([block.weights for block in blocks], "weights", "some")
    ids = _join_values([block.ids for block in blocks], "ids", "some")
    return Block(X, _join_groups([block.groups for block in blocks]), target, weights, ids)


def _join_values(parts: list[Any], what: str, wanted: str) -> Any:
    given = [part for part in parts if part is not None]
    if len(given) not in (0, len(parts)):
        raise ValueError(f"some blocks have {what} and some have none: give every block {wanted}")
    return np.concatenate(given) if given else None


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
