"""PowerLearner: learns with the power method, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import Groups
from fairstream.data.small_groups import plain_counts
from fairstream.estimators.learner import Learner, SingleLearner
from fairstream.files.format import Arrays, Header, checked
from fairstream.power import FairPowerMethod
from fairstream.power.method import PartialSums
from fairstream.subspace.choices import Choices
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.unfair import small_group_directions, warn_of_small_groups


class PowerLearner(SingleLearner):
    """Learns with the power method, in one pass or in one pass per step. A `StepLearner`.

    Examples
    --------
    >>> PowerLearner(FairPowerMethod(3, 1, constraint="none", power_steps=7)).passes
    7
    """

    name = "power"
    solver = "power"
    is_settled = True

    @property
    def moments(self) -> Any:
        raise AttributeError('solver="power" keeps no moments: use "exact", "sketch" or "auto"')

    @property
    def power(self) -> FairPowerMethod:
        return self._held

    @property
    def phase(self) -> str:
        return self.power.phase

    @property
    def n_features(self) -> int:
        return self.power.plan.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.power.plan.dtype

    @property
    def passes(self) -> int:
        return 1 if self.power.plan.step_rows is not None else self.power.plan.total_steps

    @property
    def needs_groups(self) -> bool:
        return self.phase == "unfair"

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        self.power.update(X, groups, sample_weight=sample_weight)

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        if self.power.plan.step_rows is None and sample_weight is None:
            self.power.fit_full(X, groups)
        else:
            self.update(X, groups, sample_weight)

    def merge(self, other: Learner) -> NoReturn:
        raise ValueError("the power method does not merge: use solver 'exact' or 'sketch'")

    def end_step(self) -> None:
        if self.power.plan.step_rows is None:
            self.power.end_step()

    @property
    def step_rows(self) -> int | None:
        return self.power.plan.block_rows(sum(self.power.steps_done))

    def declare(self, groups: Mapping[str, Any]) -> None:
        method = self.power.copy()
        method.declare(groups)
        self._held = method

    def open_step(self, first_rows: Matrix) -> None:
        method = self.power.copy()
        method.open_step(first_rows)
        self._held = method

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        return (self.power.partial_sums(blocks),)

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        method, size, (all_rows,) = self.power.copy(), self.step_rows, sums
        method.add_partial(all_rows)
        if size is None or all_rows.counts[0] == size:
            method.end_partial_step()
        self._held = method

    def subspace(self, choices: Choices) -> FairSubspace:
        subspace, counts = self.power.subspace(), self.group_counts
        warn_of_small_groups(counts, choices, len(subspace.unfair_basis))
        from_small = small_group_directions(counts, choices)
        facts: dict[str, Any] = {
            "min_group_size": choices.min_group_size,
            "dither": choices.dither,
            "ids": choices.ids,
        }
        facts |= {"small_group_directions": from_small} if from_small else {}
        facts |= {"whiten": True} if choices.whiten else {}
        return replace(subspace, parameters={**subspace.parameters, **facts})

    def frontier(
        self, subspace: FairSubspace, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]
    ) -> Any:
        return self.moments  # there are none, and the error says so

    def describe(self) -> dict[str, Any]:
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "phase": self.phase,
            "groups": plain_counts(self.group_counts),
        }

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        # Before anything of that size is made.
        n_features = header["learned"]["options"]["n_features"]
        checked(arrays["means"].shape[1:] == (n_features,), "means and features")
        return cls(FairPowerMethod.from_state(header["learned"], arrays))
