"""The one door: what it recognises, what it refuses, and that extras stay optional."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fairstream.data import open_source
from fairstream.data.open import _KINDS


def test_an_open_source_passes_through_and_takes_no_options():
    source = open_source(np.eye(3))
    assert open_source(source) is source
    for options in ({"block_size": 2}, {"sensitive_features": [0]}, {"features": [0]}, {"mode": "grey"}):
        with pytest.raises(ValueError, match="already open"):
            open_source(source, **options)


@pytest.mark.parametrize("name", ["no.npy", "no.csv", "no/folder", "no.zip"])
def test_a_wrong_path_says_so(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="does not exist: check the path"):
        open_source(tmp_path / name)


def test_a_glob_that_matches_nothing_says_so(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(FileNotFoundError, match="matches no file"):
        open_source(str(tmp_path / "*.parquet"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nosuch://bucket/a.parquet", "nosuch://bucket/a.parquet cannot be opened"),
        (3, "a int cannot be opened"),
        ({"X": 1}, "a dict cannot be opened"),
        (b"a.csv", "a bytes cannot be opened"),
        (None, "a NoneType cannot be opened"),
    ],
)
def test_what_cannot_be_opened_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        open_source(data)


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="the path is empty: name a file"):
        open_source("")
    assert open_source(".").n_features == 1, "the control"


def test_unknown_endings_and_folders_are_refused(tmp_path):
    (tmp_path / "a.docx").write_text("")
    (tmp_path / "plain").write_text("")
    (tmp_path / "empty").mkdir()
    for name, message in [
        ("a.docx", "ends in .docx"),
        ("plain", "ends in nothing"),
        ("empty", "a folder without"),
    ]:
        with pytest.raises(ValueError, match=message):
            open_source(tmp_path / name)


def test_every_option_is_in_the_documentation():
    for kind in _KINDS.values():
        for option in kind.options:
            assert option in open_source.__doc__


def test_a_misspelt_option_raises():
    with pytest.raises(ValueError, match="standardise does not apply to an array"):
        open_source(np.eye(3), standardise=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "data", "extra"),
    [("pyarrow", "a.csv", "tables"), ("h5py", "a.h5", "stores"), ("zarr", "a.zarr", "stores")],
)
def test_a_missing_package_names_its_extra(tmp_path, package, data, extra):
    (tmp_path / data).mkdir() if data.endswith("zarr") else (tmp_path / data).write_text("a\n1\n")
    code = f"import sys; sys.modules[{package!r}] = None; from fairstream.data import open_source; "
    ran = subprocess.run(
        [sys.executable, "-c", code + f"open_source({str(tmp_path / data)!r})"],
        capture_output=True,
        text=True,
    )
    assert f"fairstream[{extra}]" in ran.stderr


@pytest.mark.parametrize(
    ("package", "place", "extra"),
    [
        ("fsspec.core", "memory://a.csv", "remote"),
        ("adbc_driver_sqlite", "sqlite:///a.db", "sql"),
        ("adbc_driver_postgresql", "postgresql://host/database", "sql"),
        ("duckdb", "duckdb:///a.db", "sql"),
    ],
)
def test_a_missing_driver_names_its_extra(monkeypatch, package, place, extra):
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, package, None)
    options = {"query": "SELECT 1"} if extra == "sql" else {}
    with pytest.raises(ImportError, match=rf"reading .* needs .*fairstream\[{extra}\]"):
        open_source(place, **options)


@pytest.mark.slow
def test_sources_need_no_extra_for_arrays():
    extras = ["pyarrow", "pandas", "polars", "h5py", "zarr", "PIL", "simplejpeg"]
    code = f"import sys; sys.modules |= dict.fromkeys({extras}); "
    code += "import numpy; import fairstream.data as s; print(next(iter(s.open_source(numpy.eye(3)))).n_rows)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "3", ran.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(ValueError, match=r"p\.csv is not a regular file"):
        open_source(tmp_path / "p.csv", sensitive_features=["sex"])
