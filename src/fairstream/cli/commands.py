"""The group of all commands, and how their errors, warnings and signals end."""

from __future__ import annotations

import warnings
from typing import Any

import click

from fairstream._version import __version__
from fairstream.cli.auditing import audit
from fairstream.cli.learning import fit, merge, moments, solve
from fairstream.cli.showing import demo, frontier, inspect, plan
from fairstream.cli.using import erase, transform
from fairstream.interrupts import FitInterrupted

_TYPED = {
    "resume=True": "--resume",
    'impute="mean"': "--impute mean",
    'constraint="none"': "--constraint none",
    'solver="power"': "--solver power",
    "open it with sensitive=...": "name it with --sensitive",
}


class Commands(click.Group):
    """A click group whose errors are one line, and whose exit codes are those of docs/cli.md."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; 1 for an error in the data or the arguments, 128 + n for signal n."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
                raise
            except FitInterrupted as stopped:
                click.echo(f"\n{as_typed(str(stopped))}", err=True)
                ctx.exit(128 + stopped.signal_number)
            except KeyboardInterrupt:
                ctx.exit(130)
            except Exception as error:
                if ctx.params["debug"]:
                    raise
                text = as_typed(str(error)) or type(error).__name__
                if not isinstance(error, ValueError | OSError | ImportError):
                    text = f"{type(error).__name__}: {text} (fairstream --debug ... shows where)"
                raise click.ClickException(text) from error


def as_typed(text: str) -> str:
    """Return a message of the library with its arguments as they are typed on the command line.

    Examples
    --------
    >>> as_typed('pass impute="mean", or drop those rows')
    'pass --impute mean, or drop those rows'
    """
    for argument, option in _TYPED.items():
        text = text.replace(argument, option)
    return text


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairstream")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def main(debug: bool) -> None:
    """Fair streaming PCA: learn a subspace that gives no group away, in one pass over data of any size."""


for command in (fit, transform, erase, moments, merge, solve, frontier, inspect, audit, plan, demo):
    main.add_command(command)
