"""The command line, run in this process."""

import json

from click.testing import CliRunner

from fairstream.cli import demo, main

COMMANDS = {name: main.get_command(None, name) for name in main.list_commands(None)}


def run(*arguments, code=0):
    """Run `fairstream` with these arguments; they need not be strings."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def answer(*arguments):
    """What the command answers with `--json`."""
    return json.loads(run(*arguments, "--json").stdout)


def few_people_in_the_demo(monkeypatch, n_rows):
    """Let the demonstration learn from the first rows of Adult, and audit the next 400.

    Countries are left out: few rows do not have them all.
    """
    table = demo.load_adult(backend="pyarrow").drop_columns("native-country")
    monkeypatch.setattr(demo, "load_adult", lambda backend: table[: n_rows + 400])
    monkeypatch.setattr(demo, "TRAIN_ROWS", n_rows)
    monkeypatch.setattr(demo, "AUDITED_ROWS", 400)
