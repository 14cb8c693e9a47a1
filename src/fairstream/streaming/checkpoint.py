"""Checkpoints: what an unfinished fit has learned, and from which rows; a folder keeps the last two."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.base import clone
from threadpoolctl import threadpool_info

from fairstream.errors import FairstreamFileError, FairstreamWarning
from fairstream.estimators.base import FairEstimator
from fairstream.files.format import PathLike, build, library_versions, read_file, sync_folder, write_file
from fairstream.files.locking import folder_locked
from fairstream.streaming.signals import FitInterrupted, PendingSignal, Stopped, signals_held_back

CHECKPOINT_SECONDS = 60.0
GENERATIONS = 2
_NAME = re.compile(r"rows-(\d{15})\.safetensors")
_CUT = ("partitions", "rows")  # how a cluster cut the data; stored with the environment


@dataclass
class Standing:
    """The state of a fit: what is learned, and from how many rows.

    Attributes
    ----------
    learner : Learner
        None before the first row.
    rows : int
        Rows it was learned from.
    done : int
        Partitions, or power steps that each read the whole data, that are finished.
    digest : dict, optional
        What is known of the rows, to compare with when the fit is resumed.
    """

    learner: Any = None
    rows: int = 0
    done: int = 0
    digest: Mapping[str, Any] | None = None

    def reach(self, learner: Any, rows: int, digest: Mapping[str, Any], done: int = 0) -> None:
        """Note that a learner has learned from so many rows, in so many whole steps."""
        self.learner, self.rows, self.digest, self.done = learner, rows, digest, done


@dataclass(frozen=True)
class Checkpoint:
    """An unfinished fit read back: parameters and learner, rows done, and the environment it ran in.

    `digest` is that of its `Standing`, None in files of earlier versions. `cut` tells the partitions
    and the rows of a fit on a cluster, of which `done` were merged.
    """

    path: Path
    estimator: FairEstimator
    rows: int
    environment: Mapping[str, Any]
    digest: Mapping[str, Any] | None = None
    cut: Mapping[str, Any] = field(default_factory=dict)
    done: int = 0

    @property
    def standing(self) -> Standing:
        """Where the fit resumes."""
        return Standing(self.estimator.learner_, self.rows, self.done)


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
    def way_on(self) -> str:
        """The part of a message that says how to resume after a failure."""
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
    def keeping(self, standing: Standing) -> Iterator[PendingSignal]:
        """Write a checkpoint at the end, and also if the fit fails or Ctrl-C or SIGTERM stops it.

        Yields the pending signal; a caller that sees one raises `Stopped`.
        """
        with signals_held_back() as pending:
            try:
                yield pending
            except Stopped:
                pass
            except Exception:
                self.write(standing)
                raise
            self.write(standing)
        # After signals are let through again: one that came during the last write must not be lost.
        if pending.number is not None:
            written = f"checkpoint written to {self._folder.path}: pass resume=True to continue from there"
            ending = written if standing.rows else "nothing was learned by then"
            raise FitInterrupted(f"stopped after {standing.rows:,} rows; {ending}", pending.number)

    def write_if_due(self, standing: Standing, seconds: float | None = None) -> None:
        """Write if the last checkpoint is this old, by default a minute, or if `every` rows were learned."""
        age = CHECKPOINT_SECONDS if seconds is None else seconds
        if (
            time.monotonic() - self._saved_at >= age
            if self._every is None
            else standing.rows - self._saved[0] >= self._every
        ):
            self.write(standing)

    def write(self, standing: Standing) -> None:
        """Write, unless this is on disk already or there is nothing yet."""
        if (standing.rows, standing.done) == self._saved or not standing.rows:
            return
        half = clone(self._estimator).adopt(standing.learner)
        progress = {**self._cut, **({"done": standing.done} if standing.done else {})}
        environment = {**self._environment, **progress}
        self._folder.write(half, standing.rows, environment, standing.digest, with_sample=self._with_sample)
        self._saved, self._saved_at = (standing.rows, standing.done), time.monotonic()

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


class CheckpointFolder:
    """The checkpoints of one fit. Files are named by the rows they hold; the two newest are kept.

    Parameters
    ----------
    path : path
        Made if it does not exist.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._alone = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other fits out of the folder, in this process and in others."""
        with folder_locked(self.path) as self._alone:
            try:
                yield
            finally:
                self._alone = False

    def files(self) -> list[Path]:
        """List the checkpoints, newest first."""
        return sorted((file for file in self.path.iterdir() if _NAME.fullmatch(file.name)), reverse=True)

    def write(
        self,
        estimator: FairEstimator,
        rows: int,
        environment: Mapping[str, Any],
        digest: Mapping[str, Any] | None = None,
        *,
        with_sample: bool = False,
    ) -> Path:
        """Write a checkpoint and, once it is safely on disk, remove all but the two newest."""
        header, arrays = estimator.to_state(with_sample=with_sample)
        header["checkpoint"] = {"rows": rows, "environment": dict(environment)}
        if digest is not None:
            header["checkpoint"]["digest"] = dict(digest)
        file = self.path / f"rows-{rows:015d}.safetensors"
        write_file(file, estimator.kind, header, arrays)
        for old in self.files()[GENERATIONS:]:
            old.unlink()
        self._drop_drafts()
        return file

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that can be read, None for an empty folder.

        A newest generation that is damaged or may not be read warns and gives way to the one before; raises
        if none can be read.
        """
        problems = []
        for file in self.files():
            try:
                about, arrays = read_file(file)
                record = about["state"]["checkpoint"]
                rows, environment = int(record["rows"]), dict(record["environment"])
                cut = {name: environment.pop(name) for name in _CUT if name in environment}
                done, digest = int(environment.pop("done", 0)), record.get("digest")
                digest = None if digest is None else {**digest, "labels": dict(digest["labels"])}
                estimator = build(file, about, arrays)
            except (OSError, FairstreamFileError, KeyError, TypeError, ValueError) as error:
                problems.append(str(error))
                continue
            for problem in problems:
                warnings.warn(f"{problem}; resuming from {file.name}", FairstreamWarning, stacklevel=5)
            return Checkpoint(file, estimator, rows, environment, digest, cut, done)
        if problems:
            raise FairstreamFileError(f"no checkpoint in {self.path} can be read: {'; '.join(problems)}")
        return None

    def _drop_drafts(self) -> None:
        """Remove temporary files of processes that were killed while writing.

        Only under the lock, which guarantees that nobody else is writing.
        """
        drafts = [*self.path.glob(".rows-*.part")] if self._alone else []
        for draft in drafts:
            draft.unlink(missing_ok=True)
        if drafts:
            sync_folder(self.path)


def refuse_occupied(path: PathLike | None, resume: bool) -> None:
    """Refuse a folder that holds a fit which is not to be resumed. Call it before any data is read."""
    if path is None or resume or not Path(path).is_dir():
        return
    if any(_NAME.fullmatch(file.name) for file in Path(path).iterdir()):
        raise ValueError(
            f"checkpoint={str(path)!r} already holds a fit: pass resume=True to continue, or name another "
            "folder"
        )


def environment_of(source: Any) -> dict[str, Any]:
    """Return what decides the last bits of a result: block size, threads, BLAS, versions."""
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
    """Warn of a checkpoint that does not tell whether the data is still the same."""
    if found.digest is None:
        warnings.warn(
            f"{found.path.name} holds no digest of its rows, it was written by an earlier version: whether "
            "the data still begins with those rows is not checked",
            FairstreamWarning,
            stacklevel=5,
        )
