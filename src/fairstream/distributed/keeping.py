"""Keeps what a distributed fit has merged so far on disk, and takes it up again."""

from __future__ import annotations

import time
from typing import Any

from fairstream.checkpoint import CheckpointFolder, environment_of, warn_of_differences
from fairstream.distributed.partitioning import Partitioned
from fairstream.estimator import FairStreamingPCA
from fairstream.fitting import CHECKPOINT_SECONDS
from fairstream.moments import GroupMoments
from fairstream.persist import PathLike


class Keeper:
    """The checkpoints of one distributed fit: merged moments, and how many partitions they hold."""

    def __init__(self, path: PathLike, resume: bool, estimator: FairStreamingPCA, data: Partitioned) -> None:
        self._folder = CheckpointFolder(path)
        self._parameters = estimator.get_params(deep=False)
        self._cut = {"partitions": len(data.parts), "rows": data.n_rows}
        if self._folder.files() and not resume:
            raise ValueError(
                f"checkpoint={str(self._folder.path)!r} already holds a fit: pass resume=True to go on, or "
                "name another folder"
            )
        self._saved, self._saved_at = 0, time.monotonic()

    @property
    def way_on(self) -> str:
        """What a message says about the way on after a failure."""
        return f"; what was merged is in {self._folder.path}, resume=True goes on from there"

    def write_now_and_then(self, moments: GroupMoments, done: int) -> None:
        """Write about once a minute."""
        if time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self.write(moments, done)

    def write(self, moments: GroupMoments, done: int) -> None:
        """Write the moments of the first `done` partitions, unless that is done or there is nothing yet."""
        if done == self._saved or not moments.n_rows:
            return
        half = FairStreamingPCA(**self._parameters)
        half._learner, half._subspace, half.n_features_in_ = moments, None, moments.n_features
        environment = {**environment_of(None), **self._cut, "partitions done": done}
        self._folder.write(half, int(moments.n_rows), environment)
        self._saved, self._saved_at = done, time.monotonic()

    def taken_up(self, empty: GroupMoments) -> tuple[GroupMoments, int]:
        """Return the moments of the newest checkpoint and how many partitions they hold, else `empty` and 0.

        Refuses the checkpoint of another fit.
        """
        found = self._folder.newest()
        if found is None:
            return empty, 0
        then = found.estimator.get_params(deep=False)
        for name, value in self._parameters.items():
            if value != then[name]:
                raise ValueError(
                    f"{name} is {value!r}, the checkpoint {found.path.name} was written with {then[name]!r}: "
                    "resume with that, or begin anew in another folder"
                )
        written: dict[str, Any] = dict(found.environment)
        done = written.pop("partitions done", None)
        other = done is None or any(written.pop(name) != value for name, value in self._cut.items())
        if other or not isinstance(found.estimator, FairStreamingPCA):
            raise ValueError(
                f"the checkpoint {found.path.name} belongs to data cut into other partitions: resume with "
                "the same data and partition_rows, or begin anew in another folder"
            )
        moments: GroupMoments = found.estimator.moments_
        if moments.n_features != empty.n_features:
            raise ValueError(
                f"X has {empty.n_features} features, the checkpoint {found.path.name} has "
                f"{moments.n_features}: it belongs to other data"
            )
        warn_of_differences(written, environment_of(None))
        self._saved = int(done)
        return moments, int(done)
