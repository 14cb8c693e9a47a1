"""Which rows of a block are multiplied together, so that all groups' scatters cost few products.

A cell is some rows whose scatter is needed as a whole. Some attributes, one at least, are taken together:
every row is multiplied once, in the joint cell of its groups, whose scatter is added to one group of each. Of
every other attribute the largest group is what the others leave of all rows, so its rows are not multiplied
again. To take more attributes together saves products of rows and costs additions of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 16_384  # of a cell: more would lose digits of float32 sums
_FEW_CELLS = 8  # that are found one by one as quickly as by sorting
_MOST_TOGETHER = 5  # attributes, of which all choices are compared


@dataclass(frozen=True, slots=True)
class Cell:
    """Some rows, and the slots that their scatter counts for."""

    rows: NDArray[np.intp]
    slots: tuple[int, ...]
    of_all: bool  # counts for all rows
    taken_from: int = 0  # the slot that is found by subtraction; 0 if none


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Cells, and the slots whose scatter is that of all rows less those of the cells taken from it."""

    cells: list[Cell]
    by_subtraction: list[int]


@dataclass(frozen=True, slots=True)
class Attribute:
    """The groups of an attribute that have rows here; slot 0 for rows of unknown group."""

    slots: list[int]
    sizes: list[int]

    @property
    def largest(self) -> int:
        return self.slots[self.sizes.index(max(self.sizes))]

    def cost_alone(self, adding: int) -> int:
        """Return what it takes beside others, in rows multiplied."""
        return sum(self.sizes) - max(self.sizes) + adding * 2 * len(self.slots)


def plan_cells(member: NDArray[np.bool_], partition: list[list[int]], adding: int) -> CellPlan:
    """Return the cheapest plan; `member` is slots x rows, `partition` lists the slots of each attribute.

    Adding one d x d matrix to another takes as long as the products of `adding` rows.

    Examples
    --------
    >>> member = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    >>> plan = plan_cells(member, [[1, 2], [3, 4]], adding=60)
    >>> [(cell.rows.tolist(), cell.slots, cell.taken_from) for cell in plan.cells]
    [([0, 1], (1,), 0), ([2], (2,), 0), ([0], (4,), 3)]
    >>> plan.by_subtraction
    [3]
    """
    attributes = [counted(member, slots) for slots in partition]
    dearest = sorted(range(len(attributes)), key=lambda j: -attributes[j].cost_alone(adding))[:_MOST_TOGETHER]
    choices = [chosen for n in range(1, len(dearest) + 1) for chosen in combinations(dearest, n)]
    together = min(choices, key=lambda chosen: _cost(attributes, chosen, adding), default=())
    return make_plan(member, attributes, together)


def counted(member: NDArray[np.bool_], slots: list[int]) -> Attribute:
    """Return the groups of an attribute that have rows."""
    sizes = np.count_nonzero(member[slots], axis=1).tolist()
    seen = [(slot, size) for slot, size in zip(slots, sizes, strict=True) if size]
    unknown = member.shape[1] - sum(sizes)
    seen += [(0, unknown)] if unknown else []
    return Attribute([slot for slot, _ in seen], [size for _, size in seen])


def _cost(attributes: list[Attribute], together: Sequence[int], adding: int) -> int:
    """Return what a choice takes beyond multiplying every row once, in rows multiplied."""
    joint = [len(attributes[j].slots) for j in together]
    alone = sum(attribute.cost_alone(adding) for j, attribute in enumerate(attributes) if j not in together)
    return adding * prod(joint) * (len(joint) + 1) + alone


def make_plan(member: NDArray[np.bool_], attributes: list[Attribute], together: Sequence[int]) -> CellPlan:
    """Return the plan that takes some attributes together."""
    cells = [
        Cell(rows, slots, of_all=True)
        for slots, rows in _joint_rows(member, [attributes[j] for j in together])
    ]
    by_subtraction = []
    for j, attribute in enumerate(attributes):
        if j in together:
            continue
        largest = attribute.largest
        by_subtraction += [largest] if largest else []
        for slots, rows in _joint_rows(member, [attribute]):
            if slots != ((largest,) if largest else ()):
                cells.append(Cell(rows, slots, of_all=False, taken_from=largest))
    return CellPlan([part for cell in cells for part in _parts(cell)], by_subtraction)


def _joint_rows(
    member: NDArray[np.bool_], attributes: list[Attribute]
) -> list[tuple[tuple[int, ...], NDArray[np.intp]]]:
    """Return the known slots and the rows of every joint cell of some attributes."""
    joint = np.zeros(member.shape[1], dtype=np.int16)  # so short are sorted in linear time
    for attribute in attributes:
        joint *= len(attribute.slots)
        for number, slot in enumerate(attribute.slots):
            if slot and number:
                joint += np.int16(number) * member[slot]
        if 0 in attribute.slots[1:]:
            joint += np.int16(len(attribute.slots) - 1) * ~member[attribute.slots[:-1]].any(axis=0)
    n_cells = prod(len(attribute.slots) for attribute in attributes)
    if n_cells <= _FEW_CELLS:
        cells = [rows for number in range(n_cells) if (rows := np.flatnonzero(joint == number)).size]
    else:
        order = np.argsort(joint, kind="stable")
        cells = np.split(order, np.flatnonzero(np.diff(joint[order])) + 1)
    groups = [slot for attribute in attributes for slot in attribute.slots if slot]
    return [(tuple(slot for slot in groups if member[slot, rows[0]]), rows) for rows in cells]


def _parts(cell: Cell) -> list[Cell]:
    """Cut a cell into cells of at most MOST_ROWS rows, nearly equal."""
    parts = np.array_split(cell.rows, -(-len(cell.rows) // MOST_ROWS))
    return [Cell(rows, cell.slots, cell.of_all, cell.taken_from) for rows in parts]
