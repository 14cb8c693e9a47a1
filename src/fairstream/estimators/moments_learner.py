"""MomentsLearner: learns group moments, from which anything is solved later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from fairstream.data.blocks import Matrix
from fairstream.data.groups import Groups
from fairstream.estimators.learner import Learner, SingleLearner
from fairstream.files.format import Arrays, Header
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Choices
from fairstream.subspace.components import subspace_for
from fairstream.subspace.frontier import Frontier, frontier
from fairstream.subspace.model import FairSubspace


class MomentsLearner(SingleLearner):
    """Learns group moments, exact or sketched, in one pass.

    Examples
    --------
    >>> learner = MomentsLearner(GroupMoments(3))
    >>> learner.update(np.eye(3))
    >>> learner.solver, learner.n_rows
    ('exact', 3)
    """

    name = "moments"
    passes = 1
    needs_groups = True

    @property
    def is_settled(self) -> bool:
        return not self.moments.rows_wait

    @property
    def moments(self) -> GroupMoments:
        return self._held

    @property
    def power(self) -> Any:
        raise AttributeError(f'solver="{self.solver}" runs no power method: use solver="power"')

    @property
    def phase(self) -> str:
        return self.power.phase

    @property
    def n_features(self) -> int:
        return self.moments.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.moments.dtype

    @property
    def solver(self) -> str:
        return "exact" if self.moments.rank is None else "sketch"

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        self.moments.update(X, groups, sample_weight, target=target)

    fit = update

    def merge(self, other: Learner) -> None:
        self.moments.merge(other.moments)

    def end_step(self) -> None:
        pass

    def subspace(self, choices: Choices) -> FairSubspace:
        return subspace_for(self.moments, choices)

    def frontier(
        self, subspace: FairSubspace, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]
    ) -> Frontier:
        asked: dict[str, Any] = {"n_components": subspace.n_components, **choices}
        return frontier(self.moments, n_unfair=n_unfair, **asked)

    def describe(self) -> dict[str, Any]:
        return self.moments.describe()

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        return cls(GroupMoments.from_state(header["learned"], arrays))
