"""Keeps what a distributed fit has come to on disk, and takes it up again."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from fairstream.estimators.learner import Learner
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import PathLike
from fairstream.streaming.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    environment_of,
    warn_of_differences,
    warn_of_no_digest,
)
from fairstream.streaming.dask.partitioning import Partitioned
from fairstream.streaming.dask.reducing import Stopped
from fairstream.streaming.dask.schema import SharedSchema
from fairstream.streaming.fit import CHECKPOINT_SECONDS
from fairstream.streaming.signals import FitInterrupted, PendingSignal, signals_held_back


@dataclass
class Standing:
    """How far a fit has come: what it learned, from how many rows, and from how many partitions or steps."""

    learner: Learner
    rows: int = 0
    done: int = 0


class Keeper:
    """The checkpoints of one distributed fit."""

    def __init__(self, path: PathLike, estimator: FairStreamingPCA, data: Partitioned) -> None:
        self._folder = CheckpointFolder(path)
        self._parameters = estimator.get_params(deep=False)
        self._cut = {"partitions": len(data.parts), "rows": data.n_rows}
        self._lengths = zlib.crc32(repr([part.n_rows for part in data.parts]).encode())
        self._first_rows: Mapping[str, Any] | None = None
        self._saved, self._saved_at = 0, time.monotonic()

    def locked(self) -> AbstractContextManager[None]:
        """Keep other fits out of the folder."""
        return self._folder.locked()

    def note_first_rows(self, schema: SharedSchema) -> None:
        """Remember what the data looks like at its beginning, for whoever resumes."""
        self._first_rows = schema.first_rows

    @property
    def way_on(self) -> str:
        """What a message says about the way on after a failure."""
        return f"; what was learned is in {self._folder.path}, resume=True goes on from there"

    def write_now_and_then(self, standing: Standing) -> None:
        """Write about once a minute."""
        if time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self.write(standing)

    def write(self, standing: Standing) -> None:
        """Write, unless that is done or there is nothing yet."""
        if standing.done == self._saved or not standing.rows:
            return
        half = FairStreamingPCA(**self._parameters).adopt(standing.learner)
        environment = {**environment_of(None), **self._cut, "done": standing.done}
        self._folder.write(half, standing.rows, environment, self._digest())
        self._saved, self._saved_at = standing.done, time.monotonic()

    def taken_up(self, empty: Standing) -> Standing:
        """Return where the newest checkpoint stands, else `empty`; refuse the checkpoint of another fit."""
        found = self._folder.newest()
        if found is None:
            return empty
        then = found.estimator.get_params(deep=False)
        for name, value in self._parameters.items():
            if value != then[name]:
                raise ValueError(
                    f"{name} is {value!r}, the checkpoint {found.path.name} was written with {then[name]!r}: "
                    "resume with that, or begin anew in another folder"
                )
        written: dict[str, Any] = dict(found.environment)
        done = written.pop("done", None)
        if done is None or any(written.pop(name, None) != value for name, value in self._cut.items()):
            raise ValueError(
                f"the checkpoint {found.path.name} belongs to data cut into other partitions: resume with "
                "the same data and partition_rows, or begin anew in another folder"
            )
        warn_of_no_digest(found)
        self._check_same_data(found)
        learner = found.estimator.learner_
        if learner.n_features != empty.learner.n_features:
            raise ValueError(
                f"X has {empty.learner.n_features} features, the checkpoint {found.path.name} has "
                f"{learner.n_features}: it belongs to other data"
            )
        warn_of_differences(written, environment_of(None))
        self._saved = int(done)
        return Standing(learner, found.rows, int(done))

    def _digest(self) -> dict[str, Any] | None:
        """Return what is at hand of the data without reading it again: lengths, and the first rows."""
        return None if self._first_rows is None else {**self._first_rows, "partitions": self._lengths}

    def _check_same_data(self, found: Checkpoint) -> None:
        if found.digest is None or self._digest() in (None, found.digest):
            return
        raise ValueError(
            f"the partitions or their first rows are not those that {found.path.name} was learned from: "
            "resume with the same data in the same order, or begin anew in another folder"
        )


@contextmanager
def kept(keeper: Keeper | None, standing: Standing) -> Iterator[PendingSignal]:
    """Write where the fit stands at the end, and also when it fails or is stopped by Ctrl-C or SIGTERM.

    Without a keeper nothing is written, and signals are left alone.
    """
    if keeper is None:
        yield PendingSignal()
        return
    with signals_held_back() as pending:
        try:
            yield pending
        except Stopped:
            keeper.write(standing)
            way_on = keeper.way_on if standing.rows else "; nothing was learned by then"
            raise FitInterrupted(
                f"stopped after {standing.rows:,} rows{way_on}", pending.number or 2
            ) from None
        except Exception:
            keeper.write(standing)
            raise
        keeper.write(standing)
    # After signals are let through again: one that came during the last write must not be lost.
    if pending.number is not None:
        raise FitInterrupted(f"stopped after {standing.rows:,} rows{keeper.way_on}", pending.number)
