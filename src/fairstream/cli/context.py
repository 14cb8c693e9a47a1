"""Notes of a running command for the message at its end: what was typed, and which files it is to write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

TYPED = "fairstream.typed"
_CHECKPOINT = "fairstream.streaming.checkpoint"
_STATES = "fairstream.files.outputs"


def note_typed(ctx: click.Context, values: Iterable[object]) -> None:
    """Note what was typed, and the folder for checkpoints among it."""
    ctx.meta[TYPED] = [str(value) for value in values if isinstance(value, str | Path)]
    ctx.meta[_CHECKPOINT] = ctx.params.get("checkpoint")


def note_outputs(ctx: click.Context, files: Iterable[Path]) -> None:
    """Note the files that the command is going to write, as they are before it begins."""
    ctx.meta[_STATES] = {path: _state(path) for path in files}


def unwritten(ctx: click.Context) -> list[Path]:
    """List the outputs of the command that are as they were when it began."""
    return [path for path, state in ctx.meta.get(_STATES, {}).items() if _state(path) == state]


def checkpoint_folder(ctx: click.Context) -> Path | None:
    """Return the folder for checkpoints that the command was given."""
    folder: Path | None = ctx.meta.get(_CHECKPOINT)
    return folder


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
