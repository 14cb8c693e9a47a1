"""The command line: every command opens, calls one library function and prints."""

from fairstream.cli.commands import main

__all__ = ["main"]
