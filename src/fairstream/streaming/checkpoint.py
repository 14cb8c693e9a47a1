"""Checkpoints: a folder with the last two states of a half-finished fit, and what they were made with."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from fairstream.errors import FairstreamFileError, FairstreamWarning
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import PathLike, build, library_versions, read_file, sync_folder, write_file
from fairstream.files.locking import folder_locked

GENERATIONS = 2
_NAME = re.compile(r"rows-(\d{15})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A half-finished fit read back: the estimator, the rows behind it, and the environment then.

    `digest` is what `RowDigest.to_json` said of those rows, None in files of before there was one.
    """

    path: Path
    estimator: FairStreamingPCA
    rows: int
    environment: Mapping[str, Any]
    digest: Mapping[str, Any] | None = None


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
        estimator: FairStreamingPCA,
        rows: int,
        environment: Mapping[str, Any],
        digest: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint, and only once it is safely on disk drop all but the two newest."""
        header, arrays = estimator.to_state()
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
                digest = record.get("digest")
                digest = None if digest is None else {**digest, "labels": dict(digest["labels"])}
                estimator = build(file, about, arrays)
            except (OSError, FairstreamFileError, KeyError, TypeError, ValueError) as error:
                problems.append(str(error))
                continue
            for problem in problems:
                warnings.warn(f"{problem}; going on from {file.name}", FairstreamWarning, stacklevel=3)
            return Checkpoint(file, estimator, rows, environment, digest)
        if problems:
            raise FairstreamFileError(f"no checkpoint in {self.path} can be read: {'; '.join(problems)}")
        return None

    def _drop_drafts(self) -> None:
        """Remove what processes that were killed while writing have left.

        Only under the lock, which shows that nobody else is writing.
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
            f"checkpoint={str(path)!r} already holds a fit: pass resume=True to go on, or name another folder"
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


def warn_of_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Warn where a fit goes on in another environment than it began in."""
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
            stacklevel=4,
        )


def warn_of_no_digest(found: Checkpoint) -> None:
    """Warn of a checkpoint that does not tell whether the data is still the same."""
    if found.digest is None:
        warnings.warn(
            f"{found.path.name} holds no digest of its rows, it was written by an earlier version: whether "
            "the data still begins with those rows is not checked",
            FairstreamWarning,
            stacklevel=4,
        )
