"""Which rows of a block are multiplied together, so that all groups' scatters cost few products.

A cell is some rows whose scatter is needed as a whole. Two plans, the cheaper one is taken:

- One attribute's groups add up to all rows. Of every other attribute the largest group is what the others
  leave of all rows, so its rows are not multiplied again.
- The cells of all attributes together: every row is multiplied once, and a cell's scatter is added to one
  group of each attribute. That pays if the cells are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ADDING = 300  # rows whose products take as long as adding one d x d matrix to another


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

    @property
    def cost(self) -> int:
        """What it takes, in rows multiplied."""
        added = sum(len(cell.slots) + cell.of_all + bool(cell.taken_from) for cell in self.cells)
        added += len(self.by_subtraction) + bool(self.by_subtraction)
        return sum(len(cell.rows) for cell in self.cells) + ADDING * added


def plan_cells(member: NDArray[np.bool_], partition: list[list[int]]) -> CellPlan:
    """Return the cheaper plan; `member` is slots x rows, `partition` lists the slots of each attribute.

    Examples
    --------
    >>> member = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    >>> plan = plan_cells(member, [[1, 2], [3, 4]])
    >>> [(cell.rows.tolist(), cell.slots, cell.taken_from) for cell in plan.cells]
    [([0, 1], (1,), 0), ([2], (2,), 0), ([0], (4,), 3)]
    >>> plan.by_subtraction
    [3]
    """
    split = _one_after_another(member, partition)
    if len(partition) < 2:
        return split
    joint = _together(member, partition, most=split.cost // (ADDING * (len(partition) + 1)))
    return split if joint is None or split.cost <= joint.cost else joint


def _one_after_another(member: NDArray[np.bool_], partition: list[list[int]]) -> CellPlan:
    groups = [_groups_of(member, slots) for slots in partition]
    # The attribute whose largest group is smallest gives the most products to all rows.
    order = sorted(range(len(groups)), key=lambda j: max(len(rows) for _, rows in groups[j]))
    if not order:
        return CellPlan([Cell(np.arange(member.shape[1]), (), of_all=True)], [])
    cells = [Cell(rows, (slot,) if slot else (), of_all=True) for slot, rows in groups[order[0]]]
    by_subtraction = []
    for j in order[1:]:
        largest = max(groups[j], key=lambda group: len(group[1]))[0]
        by_subtraction += [largest] if largest else []
        for slot, rows in groups[j]:
            if slot != largest:
                cells.append(Cell(rows, (slot,) if slot else (), of_all=False, taken_from=largest))
    return CellPlan(cells, by_subtraction)


def _groups_of(member: NDArray[np.bool_], slots: list[int]) -> list[tuple[int, NDArray[np.intp]]]:
    """Return (slot, rows) of an attribute's groups that have rows here; slot 0 if unknown."""
    groups = [(slot, np.flatnonzero(member[slot])) for slot in slots]
    unknown = np.flatnonzero(~member[slots].any(axis=0)) if slots else np.arange(member.shape[1])
    return [(slot, rows) for slot, rows in [*groups, (0, unknown)] if rows.size]


def _together(member: NDArray[np.bool_], partition: list[list[int]], most: int) -> CellPlan | None:
    """Return the plan with the joint cells of all attributes; None if there may be more than `most`."""
    joint, n_cells = np.zeros(member.shape[1], dtype=np.int16), 1  # so short are sorted in linear time
    for slots in partition:
        n_cells *= len(slots) + 1
        if n_cells > min(most, np.iinfo(joint.dtype).max):
            return None
        joint *= len(slots) + 1
        for number, slot in enumerate(slots, start=1):
            joint[member[slot]] += number
    order = np.argsort(joint, kind="stable")
    bounds = np.flatnonzero(np.diff(joint[order])) + 1
    cells = []
    for rows in np.split(order, bounds):
        of_first = member[:, rows[0]]
        known = tuple(slot for slots in partition for slot in slots if of_first[slot])
        cells.append(Cell(rows, known, of_all=True))
    return CellPlan(cells, [])
