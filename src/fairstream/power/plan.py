"""The plan of a power method: its options, its two phases, and where blocks end."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairstream.data.groups import compared
from fairstream.errors import NoRoomError
from fairstream.subspace.choices import Choices, NUnfair

ON_EMPTY_GROUP = ("extend", "zero")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one block, and whether the block ends with them."""

    rows: slice
    ends_block: bool


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """What is fixed before the first row: sizes, precision, how long every block is and its phase.

    Use `PowerPlan.of(...)`, which checks its arguments. Steps count from 0 through both phases; `step_rows`
    is None if a step reads the whole data.

    Examples
    --------
    >>> plan = PowerPlan.of(10, 2, step_rows=(100, 500), power_steps=(2, 3))
    >>> [plan.block_rows(step) for step in range(9)]
    [100, 100, 500, 500, 500, 1000, 1000, 1000, 2000]
    >>> plan.rows_missing(step=1, open_rows=30)
    570
    """

    n_features: int
    n_components: int
    n_unfair: int | Mapping[str, int]
    constraint: str
    step_rows: tuple[int, int] | None
    power_steps: tuple[int, int]
    on_empty_group: str
    dtype: np.dtype[Any]

    @classmethod
    def of(
        cls,
        n_features: int,
        n_components: int,
        n_unfair: NUnfair = 1,
        constraint: str = "all",
        step_rows: Any = None,
        power_steps: Any = 10,
        on_empty_group: str = "extend",
        dtype: DTypeLike = np.float64,
    ) -> PowerPlan:
        """Check the options and return the plan."""
        choices = Choices(operator.index(n_components), n_unfair, constraint)
        d, k, m = operator.index(n_features), operator.index(n_components), choices.n_unfair
        if isinstance(m, str):
            raise ValueError(f"n_unfair={m!r} needs moments: give a whole number, or one per attribute")
        if k > d:
            raise NoRoomError(f"n_components is {k}, n_features is {d}: keep 1 <= n_components <= n_features")
        if on_empty_group not in ON_EMPTY_GROUP:
            raise ValueError(f"on_empty_group is {on_empty_group!r}: use 'extend' or 'zero'")
        if np.dtype(dtype) not in (np.float64, np.float32):
            raise ValueError(f"dtype is {np.dtype(dtype)}: use float64 or float32")
        sizes = None if step_rows is None else pair_of_counts("step_rows", step_rows)
        steps = pair_of_counts("power_steps", power_steps)
        most = max(m.values()) if isinstance(m, Mapping) else m
        if choices.nulls_second_moments and k + most > d:
            raise NoRoomError(
                f"n_components is {k}, n_unfair {most}, n_features {d}: keep the sum within features"
            )
        return cls(d, k, m, constraint, sizes, steps, on_empty_group, np.dtype(dtype))

    def to_header(self) -> dict[str, Any]:
        """Return the options as JSON values that `of` takes."""
        header = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return header | {"dtype": self.dtype.name}

    def width(self, attribute: str) -> int:
        """Return how many unfair directions per comparison of an attribute are followed by power steps."""
        if self.constraint in ("none", "mean"):
            return 0
        return self.n_unfair[attribute] if isinstance(self.n_unfair, Mapping) else self.n_unfair

    def check_attributes(self, attributes: Iterable[str]) -> None:
        """Refuse attributes that n_unfair does not name, or names beside them."""
        if isinstance(self.n_unfair, Mapping) and set(self.n_unfair) != set(attributes):
            raise ValueError(
                f"n_unfair names {sorted(self.n_unfair)}, groups has {sorted(attributes)}: name them all"
            )

    def check_room(self, group_numbers: Mapping[str, int]) -> None:
        """Refuse if U, counted before dependent directions are known, leaves no room for V."""
        taken = dict.fromkeys(group_numbers, 0)
        for attribute, number in group_numbers.items() if self.unfair_steps else ():
            taken[attribute] += self.width(attribute) * len(compared(range(number)))
            taken[attribute] += number - 1 if self.constraint in ("mean", "all") else 0
        size = sum(taken.values())
        if self.n_components + size > self.n_features:
            shares = ", ".join(f"{name!r} up to {number}" for name, number in taken.items())
            raise NoRoomError(
                f"n_components is {self.n_components} and there are up to {size} unfair directions, together "
                f"more than the {self.n_features} features ({shares}): lower n_components or n_unfair"
                if size < self.n_features
                else f"there are up to {size} unfair directions ({shares}) and {self.n_features} features, "
                "which leaves none for any component: lower n_unfair, leave an attribute out, or add features"
            )

    @property
    def unfair_steps(self) -> int:
        """How many steps the first phase has. Means need no iteration: one long block gives them."""
        return {"none": 0, "mean": 1}.get(self.constraint, self.power_steps[0])

    @property
    def total_steps(self) -> int:
        """How many steps are planned in both phases together."""
        return self.unfair_steps + self.power_steps[1]

    def block_rows(self, step: int) -> int | None:
        """Return how many rows the block of a step has, None for all of them.

        Beyond the planned steps, every further round of TT steps has blocks twice as long: the error of V
        is that of its last block, so blocks of one size would stop improving it.
        """
        if self.step_rows is None:
            return None
        if step < self.unfair_steps:
            return self.step_rows[0] * (self.power_steps[0] if self.constraint == "mean" else 1)
        return self.step_rows[1] << ((step - self.unfair_steps) // self.power_steps[1])

    def rows_missing(self, step: int, open_rows: int) -> int:
        """Return at least how many rows are needed until a first V exists (0 once it does).

        For steps over the whole data it is 1 until then: no row count is known.
        """
        if step > self.unfair_steps:
            return 0
        if self.step_rows is None:
            return 1
        sizes = [self.block_rows(later) or 0 for later in range(step, self.unfair_steps + 1)]
        return max(sizes[0] - open_rows, 1) + sum(sizes[1:])

    def stretches(
        self,
        n_rows: int,
        codes: Mapping[str, NDArray[np.intp]],
        *,
        step: int,
        open_rows: int,
        present: Mapping[str, set[int]],
        compared: Mapping[str, set[int]] | None,
    ) -> list[Stretch]:
        """Cut the next n_rows at the ends of blocks.

        `codes` holds every row's slot per attribute (0 unknown), `present` the slots that already have a
        row in the open block, `compared` those that every block must have: None while the first block is
        still finding them out, when any two of an attribute will do.
        """
        cuts: list[Stretch] = []
        start = 0
        while start < n_rows:
            size = self.block_rows(step)
            stop = n_rows + 1 if size is None else start + max(size - open_rows, 0)
            unfair = step < self.unfair_steps
            if unfair and stop <= n_rows and self.on_empty_group == "extend":
                complete = [
                    _complete_at(column, present.get(name, set()), start, stop, (compared or {}).get(name))
                    for name, column in codes.items()
                ]
                stop = max(stop, *complete)
            cuts.append(Stretch(slice(start, min(stop, n_rows)), stop <= n_rows))
            if unfair and stop <= n_rows and compared is None:
                compared = {a: _slots_in(c[:stop]) | present.get(a, set()) for a, c in codes.items()}
            start, step, open_rows, present = min(stop, n_rows), step + 1, 0, {}
        return cuts


def pair_of_counts(name: str, value: Any) -> tuple[int, int]:
    """Read one positive count for both phases, or one for each.

    Examples
    --------
    >>> pair_of_counts("step_rows", 100), pair_of_counts("power_steps", (5, 10))
    ((100, 100), (5, 10))
    """
    try:
        first, second = value if isinstance(value, Sequence) else (value, value)
        pair = (operator.index(first), operator.index(second))
    except (TypeError, ValueError):
        pair = (0, 0)
    if min(pair) < 1:
        raise ValueError(f"{name} is {value!r}: give a positive whole number, or one for each phase")
    return pair


def _slots_in(column: NDArray[np.intp]) -> set[int]:
    """Return which known groups occur in a column."""
    return {int(slot) for slot in np.flatnonzero(np.bincount(column))} - {0}


def _complete_at(
    column: NDArray[np.intp], present: set[int], start: int, stop: int, compared: set[int] | None
) -> int:
    """Return after which row, not before `stop`, the compared groups have one each; past the end if never."""
    never = len(column) + 1
    seen = _slots_in(column[start:stop]) | present
    lacking = 2 - len(seen) if compared is None else len(compared - seen)
    if lacking <= 0:
        return stop
    values, firsts = np.unique(column[stop:], return_index=True)
    arrivals = {int(e): stop + int(i) + 1 for e, i in zip(values, firsts, strict=True)}
    wanted = set(arrivals) - {0} - seen if compared is None else compared - seen
    rows = sorted(arrivals.get(slot, never) for slot in wanted)
    return rows[lacking - 1] if len(rows) >= lacking else never
