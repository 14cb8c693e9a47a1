"""A folder of checkpoints: what an unfinished fit has learned, and from which rows; the last two are kept."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairstream.errors import FairstreamFileError, FairstreamWarning
from fairstream.estimators.base import FairEstimator
from fairstream.files.atomic import PathLike, sync_folder
from fairstream.files.format import build, read_file, write_file
from fairstream.files.locking import folder_locked

GENERATIONS = 2
_NAME = re.compile(r"rows-(\d{15})\.safetensors")
_CUT = ("partitions", "rows")  # how a cluster cut the data; stored with the environment


@dataclass
class FitState:
    """The state of a fit: what is learned, and from how many rows.

    Attributes
    ----------
    learner : Learner
        None before the first row.
    rows : int
        Rows it was learned from.
    done : int
        Partitions that are finished, or power steps that each read the whole data.
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

    `digest` is that of its `FitState`, None in files of earlier versions. `cut` tells the partitions
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
    def state(self) -> FitState:
        """Where the fit resumes."""
        return FitState(self.estimator.learner_, self.rows, self.done)


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
    """Refuse a folder that holds a fit, unless it is to be resumed; to be called before data is read."""
    if path is None or resume or not Path(path).is_dir():
        return
    if any(_NAME.fullmatch(file.name) for file in Path(path).iterdir()):
        raise ValueError(
            f"checkpoint={str(path)!r} already holds a fit: pass resume=True to continue, or name another "
            "folder"
        )
