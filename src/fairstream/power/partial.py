"""Part of a power step done elsewhere: the sums over some rows of a block, and their way back in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairstream.data.blocks import Block
from fairstream.errors import NotEnoughGroupsError
from fairstream.linalg import FloatArray
from fairstream.moments.rows import provisional_origin
from fairstream.power.products import checked_rows

if TYPE_CHECKING:
    from fairstream.power.method import FairPowerMethod


@dataclass(frozen=True, slots=True)
class PartialSums:
    """What some rows add to the open block, about the shift that all parts of the step share."""

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: float
    products: FloatArray

    def __add__(self, other: PartialSums) -> PartialSums:
        return PartialSums(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.products + other.products,
        )


def open_step(method: FairPowerMethod, first_rows: FloatArray) -> None:
    """Fix what all parts of the coming step must share: the basis it multiplies with, and the shift.

    `first_rows` are the first rows of the data, at least 64 where there are as many; their mean is the shift
    of the first step. The groups must have been declared.
    """
    ledger = method._ledger
    if ledger.shift is None:
        head = checked_rows(first_rows[:64], method.plan.n_features, method.plan.dtype)
        ledger.shift = provisional_origin(head).astype(method.plan.dtype)
    if method.plan.block_size is None and not ledger.open_counts[0]:
        ledger.forget_closed()
    method._open_products(method._tallies())
    if not ledger.open_counts[0]:
        method._P = None  # zeros need not travel


def partial_sums(method: FairPowerMethod, blocks: Iterable[Block]) -> PartialSums:
    """Return the sums over some rows of the step that `method` has open; `method` stays as it is."""
    work = method.copy()
    ledger, tallies = work._ledger, work._tallies()
    ledger.open_counts[:], ledger.open_sums[:], ledger.open_squares = 0, 0.0, 0.0
    work._P = None
    for block in blocks:
        rows = checked_rows(block.X, work.plan.n_features, work.plan.dtype, scale_known=True)
        codes, _ = work._encode(block.groups if ledger.index.slots else None, rows.shape[0])
        work._read(rows, codes)
    _, products = work._open_products(tallies)
    return PartialSums(ledger.open_counts, ledger.open_sums, ledger.open_squares, products)


def add_partial(method: FairPowerMethod, part: PartialSums) -> None:
    """Add sums that `partial_sums` returned for the step that `method` has open."""
    ledger = method._ledger
    _, products = method._open_products(method._tallies())
    products += part.products
    ledger.open_counts += part.counts
    ledger.open_sums += part.sums
    ledger.open_squares += part.squares


def end_partial_step(method: FairPowerMethod) -> None:
    """Take the power step once all its parts have been added.

    Where a compared group has no row in them, a stream would read on; parts have a fixed end, so it raises.
    """
    ledger = method._ledger
    if method.phase == "unfair" and method.plan.on_empty_group == "extend":
        for attribute, empty in ledger.open_lacks().items():
            raise NotEnoughGroupsError(
                f"groups {empty} of {attribute!r} have no row in step {method.steps_done[0] + 1}: take a "
                'larger block_size, shuffle the rows, or pass on_empty_group="zero"'
            )
    method._end_block()
