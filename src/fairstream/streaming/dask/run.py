"""ClusterFit: a fit that is running on a cluster, its data and its state."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fairstream.data.progress import Progress
from fairstream.estimators.base import FairEstimator
from fairstream.streaming.checkpoint import Keeper
from fairstream.streaming.checkpoint_folder import FitState
from fairstream.streaming.dask.clients import explained_failures
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.schema import SharedSchema
from fairstream.streaming.signals import PendingSignal


@dataclass(frozen=True)
class ClusterFit:
    """The fit of an estimator on partitioned data, with its checkpoints and its progress if there are any."""

    client: Any
    estimator: FairEstimator
    data: Partitioned
    schema: SharedSchema
    state: FitState
    keeper: Keeper | None
    progress: Progress | None

    def keeping(self) -> AbstractContextManager[PendingSignal]:
        """Write a checkpoint at the end, on failure and on a signal; without a keeper do nothing."""
        return nullcontext(PendingSignal()) if self.keeper is None else self.keeper.keeping(self.state)

    def failures(self, when: str) -> AbstractContextManager[None]:
        """Explain what Dask raises if parts of the cluster are gone, and how to resume."""
        way_on = "" if self.keeper is None or not self.state.rows else self.keeper.how_to_resume
        return explained_failures(self.client, f"{when}{way_on}")

    def advanced(self, passes: int = 1, seconds: float | None = None) -> None:
        """Write a checkpoint if one is due after these seconds, and report the rows done in all passes."""
        if self.keeper is not None:
            self.keeper.write_if_due(self.state, seconds)
        if self.progress is not None:
            n_rows = self.data.n_rows
            self.progress(self.state.rows, None if n_rows is None else n_rows * passes)
