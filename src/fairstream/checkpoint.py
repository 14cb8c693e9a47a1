"""Checkpoints: a folder with the last two states of a half-finished fit, and what they were made with."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from fairstream.channels import FairImagePCA
from fairstream.errors import FairstreamFileError, FairstreamWarning
from fairstream.estimator import FairStreamingPCA
from fairstream.persist import PathLike, build, library_versions, read_file, sync_folder, write_file

GENERATIONS = 2
_NAME = re.compile(r"rows-(\d{15})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A half-finished fit read back: the estimator, the rows behind it, and the environment then."""

    path: Path
    estimator: FairStreamingPCA | FairImagePCA
    rows: int
    environment: Mapping[str, Any]


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

    def files(self) -> list[Path]:
        """List the checkpoints, newest first."""
        return sorted((file for file in self.path.iterdir() if _NAME.fullmatch(file.name)), reverse=True)

    def write(
        self, estimator: FairStreamingPCA | FairImagePCA, rows: int, environment: Mapping[str, Any]
    ) -> Path:
        """Write a checkpoint, and only once it is safely on disk drop all but the two newest."""
        header, arrays = estimator.to_state()
        header["checkpoint"] = {"rows": rows, "environment": dict(environment)}
        file = self.path / f"rows-{rows:015d}.safetensors"
        write_file(file, estimator.kind, header, arrays)
        for old in self.files()[GENERATIONS:]:
            old.unlink()
        self._drop_drafts()
        return file

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that can be read, None for an empty folder.

        A damaged newest generation warns and gives way to the one before; raises where none can be read.
        """
        problems = []
        for file in self.files():
            try:
                about, arrays = read_file(file)
                record = about["state"]["checkpoint"]
                rows, environment = int(record["rows"]), dict(record["environment"])
                estimator = build(file, about, arrays)
            except (FairstreamFileError, KeyError, TypeError, ValueError) as error:
                problems.append(str(error))
                continue
            for problem in problems:
                warnings.warn(f"{problem}; going on from {file.name}", FairstreamWarning, stacklevel=3)
            return Checkpoint(file, estimator, rows, environment)
        if problems:
            raise FairstreamFileError(f"no checkpoint in {self.path} can be read: {'; '.join(problems)}")
        return None

    def _drop_drafts(self) -> None:
        """Remove what processes that were killed while writing have left."""
        drafts = [draft for draft in self.path.glob(".rows-*.part") if f".{os.getpid()}." not in draft.name]
        for draft in drafts:
            draft.unlink(missing_ok=True)
        if drafts:
            sync_folder(self.path)


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
