"""The paths that a command reads and writes, checked against each other before any work is done."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click

from fairstream.cli.context import note_outputs, note_typed
from fairstream.files.atomic import check_target
from fairstream.files.outputs import check_apart, check_replaceable

MODEL = frozenset({"FairSubspace", "ChannelSubspaces"})
MOMENTS = frozenset({"GroupMoments"})


class NonEmptyPath(click.Path):
    """A path; an empty one, as an unset variable of the shell leaves it, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if os.fspath(value) == "":
            self.fail("the path is empty: name a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class InputPath(NonEmptyPath):
    """A path that is read."""

    def __init__(self, **checks: Any) -> None:
        super().__init__(path_type=Path, **checks)

    def paths(self, value: Path) -> list[Path]:
        """List the paths that a value names."""
        return [value]


class InputInText(click.types.StringParamType):
    """Text that may name a file to read: as a whole, or after an equals sign."""

    def __init__(self, *, after_equals: bool) -> None:
        self.after_equals = after_equals

    def paths(self, value: str) -> list[Path]:
        """List the paths that a value names."""
        text = value.partition("=")[2].strip('"') if self.after_equals else value
        return [Path(text)] if text else []


class OutputPath(NonEmptyPath):
    """A file that is written; files of these kinds are the command's own to replace."""

    def __init__(self, kinds: Collection[str] = ()) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.kinds = kinds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse one under which no file can be put."""
        path = super().convert(value, param, ctx)
        check_target(path)
        return path


class OutputFolder(NonEmptyPath):
    """A folder that files are written to; it may hold others."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)


class Command(click.Command):
    """A command whose errors can repeat what was typed as it was typed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Note what was typed, then run."""
        note_typed(ctx, (value for parameter in self.params for value in _values(ctx, parameter)))
        return super().invoke(ctx)


class WritingCommand(Command):
    """A command that writes: never over its input, and over a foreign file only with --overwrite."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        words = "Replace output files that exist, whatever they are."
        self.params.append(click.Option(["--overwrite"], is_flag=True, help=words))

    def invoke(self, ctx: click.Context) -> Any:
        """Check all outputs, then run."""
        overwrite = ctx.params.pop("overwrite")
        inputs, outputs = [*_inputs(ctx)], [*_outputs(ctx)]
        for option, path in outputs:
            check_apart(path, inputs)
            if isinstance(option.type, OutputPath) and not overwrite:
                check_replaceable(path, option.type.kinds)
        files = [path for option, path in outputs if isinstance(option.type, OutputPath)]
        for position, path in enumerate(files):
            if path.resolve() in [other.resolve() for other in files[:position]]:
                raise click.UsageError(f"{path} is named by two options: name a file for each")
        note_outputs(ctx, files)
        return super().invoke(ctx)


def _inputs(ctx: click.Context) -> Iterator[Path]:
    for parameter in ctx.command.params:
        if isinstance(parameter.type, InputPath | InputInText):
            for value in _values(ctx, parameter):
                yield from parameter.type.paths(value)


def _outputs(ctx: click.Context) -> Iterator[tuple[click.Parameter, Path]]:
    for parameter in ctx.command.params:
        if isinstance(parameter.type, OutputPath | OutputFolder):
            for path in _values(ctx, parameter):
                yield parameter, path


def _values(ctx: click.Context, parameter: click.Parameter) -> tuple[Any, ...]:
    value = ctx.params.get(parameter.name or "")
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
