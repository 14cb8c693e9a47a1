"""Starting: what an import and `fairstream --help` load, and how the command is called and completed."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import COMMANDS

import fairstream
from fairstream.cli.commands import COMMANDS as LISTED
from fairstream.files.format import HOMES, Storable

STORED = Path(__file__).parent / "stored"
HEAVY = {"sklearn", "scipy", "pyarrow", "pandas", "numpy", "tqdm", "jinja2", "dask"}


def loaded_after(code):
    """The packages that a new interpreter has imported after running some code."""
    ending = "\nimport sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


COMMAND = "import sys\nfrom fairstream.cli import main\nmain({}, standalone_mode=False)"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["import fairstream", COMMAND.format(["--help"])])
def test_neither_the_import_nor_help_loads_what_only_a_fit_needs(code):
    assert not loaded_after(code) & HEAVY


@pytest.mark.slow
def test_the_help_of_a_command_loads_it():
    """The control: what is loaded is seen."""
    assert loaded_after(COMMAND.format(["fit", "--help"])) >= {"sklearn", "scipy", "numpy"}


@pytest.mark.slow
def test_a_file_of_any_kind_loads_before_anything_else_is_imported():
    code = (
        "import sys\nfrom fairstream.files.format import load\n"
        "for path in sys.argv[1:]:\n    print(type(load(path)).__name__)"
    )
    files = [str(path) for path in sorted(STORED.rglob("*")) if path.suffix in (".safetensors", ".moments")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True)
    assert files
    assert {*done.stdout.split()} <= {*HOMES}


def test_every_kind_of_file_has_a_home():
    for room in ("estimators.images", "estimators.eraser", "subspace.channels"):
        importlib.import_module(f"fairstream.{room}")
    kinds, waiting = {}, [Storable]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__.startswith("fairstream.") and "kind" in vars(cls):
                kinds[cls.kind] = cls.__module__
    assert kinds == HOMES


def test_rooms_are_attributes_without_an_import_of_their_own():
    code = "import fairstream\nprint(fairstream.data.open_source, fairstream.theory.pafo_plan)"
    assert "numpy" in loaded_after(code)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fairstream.nothing


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_list_of_commands_says_what_the_command_says(name):
    first, _, _ = (COMMANDS[name].help or "").partition("\n\n")
    assert LISTED[name][1] == " ".join(first.split())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["fairstream", "fairstream.cli"])
def test_the_package_runs_as_the_command(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"fairstream, version {fairstream.__version__}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"), [("fairstream f", {"fit", "frontier"}), ("fairstream inspect --j", {"--json"})]
)
def test_a_shell_completes_commands_and_options(words, found):
    asked = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_FAIRSTREAM_COMPLETE": "bash_complete",
    }
    done = subprocess.run(
        [sys.executable, "-m", "fairstream"], env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert {line.partition(",")[2] for line in done.stdout.split()} == found
