"""What an installation without extras can do, and how it names the extra it lacks.

`make smoke` runs this in a fresh environment that holds the package and pytest alone.
"""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fairstream

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
COMMAND = Path(sys.executable).with_name("fairstream")
PIXEL = b"\x89PNG\r\n\x1a\n"
ALL_BUT_SEX = ["--features", "0,1,2,3,4,5"]


def run(*arguments, code=0):
    """Run the installed command as a user does, in a process of its own."""
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, size=400)
    np.save(folder / "rows.npy", np.column_stack([rng.normal(size=(400, 6)) + sex[:, None], sex]))
    for name in ("rows.parquet", "rows.csv", "rows.h5"):
        (folder / name).write_text("a,b,sex\n1,2,f\n2,1,m\n")
    (folder / "rows.zarr").mkdir()
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        archive.writestr("a.png", PIXEL)
    run("fit", folder / "rows.npy", "-s", 6, "-k", 2, "-m", 1, "-o", folder / "model")
    run("moments", folder / "rows.npy", "-s", 6, "-o", folder / "moments")
    return folder


def test_no_extra_is_installed():
    """Without this the other tests would show nothing."""
    optional = {re.split(r"[\[>]", one)[0] for name, of in EXTRAS.items() if name != "dev" for one in of}
    modules = {"pillow": "PIL", "torch-incremental-pca": "torch"}
    names = {modules.get(name, name.replace("-", "_")) for name in optional - {PROJECT["name"]}}
    assert {"pyarrow", "PIL", "dask"} <= names
    assert [name for name in sorted(names) if find_spec(name) is not None] == []


def test_every_module_imports():
    # A module named __main__ runs when it is imported.
    names = [found.name for found in pkgutil.walk_packages(fairstream.__path__, "fairstream.")]
    assert "fairstream.streaming.dask.fit" in names
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_every_command_shows_its_help():
    listed = run("--help").stdout.partition("Commands:")[2]
    commands = re.findall(r"^  ([a-z]+) ", listed, flags=re.MULTILINE)
    assert {"fit", "audit", "demo"} <= set(commands)
    for command in commands:
        assert "Usage: fairstream" in run(command, "--help").stdout


def test_a_model_is_fitted_shown_and_used(folder):
    assert json.loads(run("inspect", folder / "model", "--json").stdout)["n_components"] == 2
    run("transform", folder / "model", folder / "rows.npy", *ALL_BUT_SEX, "-o", folder / "z.npy")
    assert np.load(folder / "z.npy").shape == (400, 2)
    run("erase", folder / "model", folder / "rows.npy", *ALL_BUT_SEX, "-o", folder / "e.npy")
    assert np.load(folder / "e.npy").shape == (400, 6)


def test_moments_are_merged_and_solved(folder):
    run("merge", folder / "moments", folder / "moments", "-o", folder / "merged")
    run("solve", folder / "merged", "-k", 2, "-o", folder / "solved")
    run("frontier", folder / "merged", "-k", 2)


def test_a_model_is_audited(folder):
    page = folder / "report.html"
    run("audit", folder / "model", folder / "rows.npy", "-s", 6, "--html", page, "--attacker", "linear")
    assert "<html" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("tables", ["fit", "rows.parquet", "-s", "sex", "-o", "m"]),
        ("tables", ["fit", "rows.csv", "-s", "sex", "-o", "m"]),
        ("tables", ["moments", "rows.csv", "-s", "sex", "-o", "m"]),
        ("tables", ["transform", "model", "rows.npy", *ALL_BUT_SEX, "-o", "z.csv"]),
        ("tables", ["transform", "model", "rows.npy", *ALL_BUT_SEX, "-o", "z.parquet"]),
        ("tables", ["demo", "--folder", "demo"]),
        ("stores", ["fit", "rows.h5", "-s", "sex", "-o", "m"]),
        ("stores", ["fit", "rows.zarr", "-s", "sex", "-o", "m"]),
        ("images", ["fit", "images.zip", "--constraint", "none", "-o", "m"]),
        ("dask", ["fit", "rows.npy", "-s", "6", "--dask", "2", "-o", "m"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_missing_extra_is_named_in_one_line(folder, monkeypatch, extra, arguments):
    monkeypatch.chdir(folder)
    error = run(*arguments, code=1).stderr
    assert f"pip install 'fairstream[{extra}]'" in error
    assert len(error.splitlines()) == 1, error
