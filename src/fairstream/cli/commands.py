"""The group of all commands, and how their errors, warnings and signals end."""

from __future__ import annotations

import io
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

from fairstream._starting import ready
from fairstream._version import __version__
from fairstream.cli.answers import printable, say
from fairstream.cli.context import TYPED, checkpoint_folder, unwritten
from fairstream.cli.wording import Wording
from fairstream.streaming.signals import FitInterrupted

# The module of every command, imported when the command runs, and its line in the list of commands.
COMMANDS = {
    "fit": ("learning", "Fit a fair subspace on DATA in one pass and save it."),
    "transform": ("embedding", "Write the fair coordinates of DATA, block by block."),
    "erase": ("embedding", "Write DATA without its unfair part, in the original features, block by block."),
    "moments": ("learning", "Collect the group moments of DATA, to be merged with others and solved later."),
    "merge": ("learning", "Merge moments FILES, as if their rows had been seen together."),
    "solve": ("learning", "Solve a moments FILE for a fair subspace, without any pass over data."),
    "frontier": (
        "showing",
        "Show, for every m, the variance kept and the gaps left, from a moments FILE alone.",
    ),
    "inspect": ("showing", "Check a model, moments or checkpoint FILE and show what it holds."),
    "audit": (
        "auditing",
        "Measure on DATA, which the fit has not seen, what MODEL's embedding gives away and what it cost.",
    ),
    "tune": ("tuning", "Choose a model for DATA by what attackers read on rows held back, and save it."),
    "plan": (
        "showing",
        "Estimate from DATA how many rows the power method needs to keep a promise (PAFO, Theorem 1).",
    ),
    "demo": (
        "showing",
        "Choose a model for the Adult data and audit it on rows that it has not seen.",
    ),
}
IO_ERROR = 74  # EX_IOERR of sysexits.h

_ARGUMENT_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


class Commands(click.Group):
    """A click group whose errors are one line, and whose exit codes are those of docs/reference/cli.md."""

    def main(self, args: Any = None, *, standalone_mode: bool = True, **settings: Any) -> Any:  # type: ignore[override]
        """Run the command line and exit, as click does, but print everything with `say`."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **settings)
        try:
            sys.exit(super().main(args, standalone_mode=False, **settings) or 0)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            say(shown.getvalue().removesuffix("\n"), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(128 + signal.SIGINT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of their names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; the list of commands and completion do without."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fairstream.cli.{COMMANDS[cmd_name][0]}")
        ready()
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; the exit code tells what kind of error ended it, 128 + n for signal n."""
        with warnings.catch_warnings(), _stopped_by_sigterm():
            warnings.showwarning = partial(_show_warning, self, ctx)
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
                raise
            except FitInterrupted as stopped:
                say(f"\n{printable(self._wording(ctx)(str(stopped)))}", err=True)
                ctx.exit(128 + stopped.signal_number)
            except _Terminated:
                self._say_what_is_left(ctx)
                ctx.exit(128 + signal.SIGTERM)
            except KeyboardInterrupt:
                self._say_what_is_left(ctx)
                ctx.exit(128 + signal.SIGINT)
            except Exception as error:
                if ctx.params["debug"]:
                    say(traceback.format_exc().removesuffix("\n"), err=True)
                    ctx.exit(_exit_code(error))
                text = self._wording(ctx)(str(error)) or type(error).__name__
                if not isinstance(error, ValueError | OSError | ImportError):
                    text = f"{type(error).__name__}: {text} (fairstream --debug ... shows where)"
                raise _Failure(printable(text), _exit_code(error)) from error

    def _wording(self, ctx: click.Context) -> Wording:
        """Return how messages read for the command that runs."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        if command is None:
            return Wording(set())
        options = {name for parameter in command.params for name in parameter.opts}
        return Wording(options, ctx.meta.get(TYPED, ()))

    def _say_what_is_left(self, ctx: click.Context) -> None:
        files = ", ".join(printable(str(path)) for path in unwritten(ctx))
        text = f"stopped; {files} not written" if files else "stopped"
        if ctx.invoked_subcommand == "fit":
            folder = checkpoint_folder(ctx)
            text += (
                ": nothing is kept of this fit; with --checkpoint FOLDER it could be resumed"
                if folder is None
                else f": only what {printable(str(folder))} holds is kept: pass --resume to continue"
            )
        say(f"\n{text}", err=True)


class _Failure(click.ClickException):
    """An error of the library in the command's words, and the exit code that tells its kind."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click sets it on the class, and reads the instance


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived; unfinished files are removed, as after Ctrl-C."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that no unfinished file is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _exit_code(error: BaseException) -> int:
    """Return 74 if the system failed to read or write (disk full, no permission), else 1."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno is not None:
            return 1 if isinstance(found, _ARGUMENT_ERRORS) else IO_ERROR
        found = found.__cause__ or found.__context__
    return 1


def _show_warning(commands: Commands, ctx: click.Context, message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"Warning: {printable(commands._wording(ctx)(str(message)))}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairstream")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def main(debug: bool) -> None:
    """Fair streaming PCA: learn a subspace that gives no group away, in one pass over data of any size."""
