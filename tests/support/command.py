"""The command line, run in this process."""

import json

from click.testing import CliRunner

from fairstream.cli import main

COMMANDS = {name: main.get_command(None, name) for name in main.list_commands(None)}


def run(*arguments, code=0):
    """Run `fairstream` with these arguments; they need not be strings."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def answer(*arguments):
    """What the command answers with `--json`."""
    return json.loads(run(*arguments, "--json").stdout)
