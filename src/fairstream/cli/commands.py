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
from types import FrameType
from typing import Any

import click

from fairstream._starting import ready
from fairstream._version import __version__
from fairstream.cli.answers import printable, say
from fairstream.cli.auditing import audit
from fairstream.cli.learning import fit, merge, moments, solve
from fairstream.cli.showing import demo, frontier, inspect, plan
from fairstream.cli.tuning import tune
from fairstream.cli.using import erase, transform
from fairstream.cli.wording import Wording
from fairstream.cli.writing import TYPED, checkpoint_folder, unwritten
from fairstream.streaming.signals import FitInterrupted

IO_ERROR = 74  # EX_IOERR of sysexits.h

_ARGUMENT_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


class Commands(click.Group):
    """A click group whose errors are one line, and whose exit codes are those of docs/cli.md."""

    def main(self, args: Any = None, *, standalone_mode: bool = True, **settings: Any) -> Any:  # type: ignore[override]
        """Run the command line and end the process, as click does, but print by `say` alone."""
        ready()
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
                ": nothing is kept of this fit; with --checkpoint FOLDER, --resume could go on from there"
                if folder is None
                else f": of this fit only what {printable(str(folder))} holds is kept, --resume goes on"
            )
        say(f"\n{text}", err=True)


class _Failure(click.ClickException):
    """An error of the library in the command's words, and the exit code that tells its kind."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click sets it on the class, and reads the instance


class _Terminated(KeyboardInterrupt):
    """SIGTERM came; drafts of files are removed on the way out, as after Ctrl-C."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, instead of leaving drafts of files behind."""
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


for command in (fit, transform, erase, moments, merge, solve, frontier, inspect, audit, tune, plan, demo):
    main.add_command(command)
