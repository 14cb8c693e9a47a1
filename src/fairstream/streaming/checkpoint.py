"""Keeper: writes the checkpoints of one fit, when due and when it is stopped, and resumes from the newest."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sklearn.base import clone
from threadpoolctl import threadpool_info

from fairstream.errors import FairstreamWarning
from fairstream.estimators.base import FairEstimator
from fairstream.files.atomic import PathLike
from fairstream.files.format import library_versions
from fairstream.streaming.checkpoint_folder import Checkpoint, CheckpointFolder, FitState
from fairstream.streaming.signals import FitInterrupted, PendingSignal, Stopped, signals_held_back

CHECKPOINT_SECONDS = 60.0


class Keeper:
    """Writes the checkpoints of one fit, on one machine or on a cluster, and resumes from the newest.

    Parameters
    ----------
    path : path
        The folder; made if it does not exist.
    estimator : FairStreamingPCA
        What is fitted; its parameters are stored and compared.
    every : int, optional
        Rows between checkpoints; by default one is written about once a minute.
    with_sample : bool
        Write sampled rows too: the files then hold row-level data.
    """

    def __init__(
        self,
        path: PathLike,
        estimator: FairEstimator,
        every: int | None = None,
        *,
        with_sample: bool = False,
    ) -> None:
        self._folder, self._estimator, self._every = CheckpointFolder(path), estimator, every
        self._with_sample = with_sample
        self._environment: Mapping[str, Any] = {}
        self._cut: Mapping[str, Any] = {}
        self._saved, self._saved_at = (0, 0), time.monotonic()

    def locked(self) -> AbstractContextManager[None]:
        """Keep other fits out of the folder."""
        return self._folder.locked()

    @property
    def how_to_resume(self) -> str:
        """How to resume after a failure, as the end of a message."""
        return f"; what was learned is in {self._folder.path}: pass resume=True to continue from there"

    def begin(
        self, source: Any, environment: Mapping[str, Any], cut: Mapping[str, Any] | None = None
    ) -> Checkpoint | None:
        """Return the checkpoint to resume from, None if there is none; refuse that of another fit.

        Parameters
        ----------
        source
            Anything with the `n_features` and `feature_names` of the data.
        environment : dict
            What `environment_of` returns.
        cut : dict, optional
            How a cluster cut the data: its number of "partitions" and of "rows".
        """
        self._environment, self._cut = environment, cut or {}
        self._saved_at = time.monotonic()
        found = self._folder.newest()
        if found is None:
            return None
        self._check_same_fit(found, source)
        _warn_of_differences(found.environment, environment)
        _warn_of_no_digest(found)
        self._saved = (found.rows, found.done)
        return found

    @contextmanager
    def keeping(self, state: FitState) -> Iterator[PendingSignal]:
        """Write a checkpoint at the end, and also if the fit fails or Ctrl-C or SIGTERM stops it.

        Yields the pending signal; a caller that sees one raises `Stopped`.
        """
        with signals_held_back() as pending:
            try:
                yield pending
            except Stopped:
                pass
            except Exception:
                self.write(state)
                raise
            self.write(state)
        # After signals are let through again: one that came during the last write must not be lost.
        if pending.number is not None:
            written = f"checkpoint written to {self._folder.path}: pass resume=True to continue from there"
            ending = written if state.rows else "nothing was learned by then"
            raise FitInterrupted(f"stopped after {state.rows:,} rows; {ending}", pending.number)

    def write_if_due(self, state: FitState, seconds: float | None = None) -> None:
        """Write if the last checkpoint is this old, by default a minute, or if `every` rows were learned."""
        age = CHECKPOINT_SECONDS if seconds is None else seconds
        if (
            time.monotonic() - self._saved_at >= age
            if self._every is None
            else state.rows - self._saved[0] >= self._every
        ):
            self.write(state)

    def write(self, state: FitState) -> None:
        """Write, unless this state is on disk already or nothing has been learned."""
        if (state.rows, state.done) == self._saved or not state.rows:
            return
        half = clone(self._estimator).adopt(state.learner)
        progress = {**self._cut, **({"done": state.done} if state.done else {})}
        environment = {**self._environment, **progress}
        self._folder.write(half, state.rows, environment, state.digest, with_sample=self._with_sample)
        self._saved, self._saved_at = (state.rows, state.done), time.monotonic()

    def _check_same_fit(self, found: Checkpoint, source: Any) -> None:
        """Refuse to resume with another estimator, other columns or another cut than the checkpoint's."""
        name, then, now = found.path.name, found.estimator, self._estimator
        if type(then) is not type(now):
            raise ValueError(
                f"the checkpoint {name} is of a {type(then).__name__}, the estimator a "
                f"{type(now).__name__}: resume with the former, or begin anew in another folder"
            )
        parameters = now.get_params(deep=False)
        for parameter, value in then.get_params(deep=False).items():
            if _as_stored(value) != _as_stored(parameters[parameter]):
                raise ValueError(
                    f"{parameter} is {parameters[parameter]!r}, the checkpoint {name} was written with "
                    f"{value!r}: resume with that, or begin anew in another folder"
                )
        if found.cut != self._cut:
            raise ValueError(
                f"the checkpoint {name} belongs to data cut into other partitions: resume with the same data "
                "and partition_rows, or begin anew in another folder"
            )
        if then.learner_.schema.feature_names not in (None, source.feature_names):
            raise ValueError(f"the source has other column names than {name}: it belongs to other data")
        if source.n_features != then.n_features_in_:
            raise ValueError(
                f"the source has {source.n_features} features, the checkpoint {name} has "
                f"{then.n_features_in_}: it belongs to other data"
            )


def _as_stored(value: Any) -> Any:
    """Return a parameter as a file tells it: tuples are lists, paths are text."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return [*map(_as_stored, value)] if isinstance(value, list | tuple) else value


def environment_of(source: Any) -> dict[str, Any]:
    """Return what the last bits of a result depend on: block size, threads, BLAS, versions."""
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    libraries = sorted(
        {f"{b['internal_api']} {b['version']} {b.get('architecture', '')}".strip() for b in blas}
    )
    return {
        "block size": getattr(source, "block_size", None),
        "threads": max((library["num_threads"] for library in blas), default=None),
        "BLAS": libraries,
        **library_versions(),
    }


def _warn_of_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Warn if a fit resumes in another environment than it began in."""
    differences = [
        f"{name} {now.get(name)} (was {then.get(name)})"
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    ]
    if differences:
        warnings.warn(
            f"resuming with another {', '.join(differences)}: the result is right, but not bit for bit that "
            "of an uninterrupted fit",
            FairstreamWarning,
            stacklevel=5,
        )


def _warn_of_no_digest(found: Checkpoint) -> None:
    """Warn of a checkpoint without a digest, which cannot tell whether the data is still the same."""
    if found.digest is None:
        warnings.warn(
            f"{found.path.name} holds no digest of its rows, it was written by an earlier version: whether "
            "the data still begins with those rows is not checked",
            FairstreamWarning,
            stacklevel=5,
        )
