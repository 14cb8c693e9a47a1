"""What commands may write over: never what they read, and files of others only if told to."""

import json
import os
import time
import zipfile

import click
import numpy as np
import pytest
from support.command import COMMANDS, few_people_in_the_demo, run

from fairstream import FairStreamingPCA, load, open_source
from fairstream.cli.progress import guard_announced
from fairstream.cli.writing import InputInText, InputPath, OutputFolder, OutputPath, WritingCommand
from fairstream.streaming.embed import embed_source, erase_source

N, D = 240, 6


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, N)
    X = rng.normal(size=(N, D)) + sex[:, None]
    (tmp_path / "sex.txt").write_text("\n".join("mf"[s] for s in sex))
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "table.csv").write_text(
        "\n".join([",".join(f"x{j}" for j in range(D)), *(",".join(map(str, row)) for row in X)])
    )
    reading = ["-s", f"sex={tmp_path / 'sex.txt'}"]
    run("fit", tmp_path / "X.npy", *reading, "-k", 2, "-o", tmp_path / "model")
    run("moments", tmp_path / "X.npy", *reading, "-o", tmp_path / "moments")
    run("moments", tmp_path / "X.npy", *reading, "-o", tmp_path / "others")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def lines_of(folder):
    """Every command that writes, with an output that is one of its inputs."""
    data, model, moments = folder / "X.npy", folder / "model", folder / "moments"
    labels = folder / "sex.txt"
    sensitive = ["-s", f"sex={labels}"]
    audit = ["audit", model, data, *sensitive, "--sample", 100, "--attacker", "linear"]
    (folder / "categories.json").write_text("{}")
    return {
        "fit, data": ["fit", data, *sensitive, "-k", 2, "-o", data],
        "fit, labels": ["fit", data, *sensitive, "-k", 2, "-o", labels],
        "fit, like": ["fit", data, *sensitive, "-k", 2, "--like", model, "-o", model],
        "fit, option": ["fit", data, *sensitive, "--option", f"attributes={model}", "-k", 2, "-o", model],
        "fit, categories": [
            "fit", data, *sensitive, "--categories", folder / "categories.json", "-k", 2,
            "-o", folder / "categories.json",
        ],
        "transform, data": ["transform", model, data, "-o", data],
        "erase, data": ["erase", model, data, "-o", data],
        "erase, model": ["erase", model, data, "-o", model],
        "moments, data": ["moments", data, *sensitive, "-o", data],
        "merge": ["merge", moments, folder / "others", "-o", folder / "others"],
        "solve": ["solve", moments, "-k", 2, "-o", moments],
        "audit, html": [*audit, "--html", data],
        "audit, json": [*audit, "--json", model],
        "audit, markdown": [*audit, "--markdown", labels],
        "audit, against": [*audit, "--against", folder / "others", "--json", folder / "others"],
        "audit, train": [*audit, "--train", folder / "table.csv", "--json", folder / "table.csv"],
    }  # fmt: skip


@pytest.mark.parametrize("which", range(16))
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_no_command_writes_over_what_it_reads(folder, which, overwrite):
    lines = lines_of(folder)
    assert len(lines) == 16
    before = contents(folder)
    result = run(*[*lines.values()][which], *overwrite, code=1)
    assert "is also an input: writing it would destroy what is read" in result.stderr
    assert contents(folder) == before


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_link_to_an_input_is_the_input(folder, link):
    link(folder / "X.npy", folder / "Y.npy")
    result = run("transform", folder / "model", folder / "X.npy", "-o", folder / "Y.npy", code=1)
    assert f"is the input {folder / 'X.npy'}" in result.stderr


def test_an_output_within_an_input_folder_is_refused(folder, tmp_path_factory):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    parts = tmp_path_factory.mktemp("parts")
    names = [f"x{j}" for j in range(D)]
    table = pa.table(dict(zip(names, np.load(folder / "X.npy").T, strict=True)))
    table = table.append_column("sex", pa.array((folder / "sex.txt").read_text().splitlines()))
    pq.write_table(table, parts / "0.parquet")
    before = contents(parts)
    fit = ["fit", parts, "-s", "sex", "-k", 2]
    assert "lies within the input" in run(*fit, "-o", parts / "model", code=1).stderr
    assert "lies within" in run(*fit, "--checkpoint", parts / "c", "-o", folder / "new", code=1).stderr
    assert "is also an input" in run(*fit, "--checkpoint", parts, "-o", folder / "new", code=1).stderr
    # By a pattern, and by a link from the folder to the output.
    glob = ["fit", parts / "*.parquet", "-s", "sex", "-k", 2, "-o", parts / "0.parquet"]
    assert "is also an input" in run(*glob, code=1).stderr
    links = tmp_path_factory.mktemp("links")
    (links / "a.parquet").symlink_to(parts / "0.parquet")
    result = run("fit", links, "-s", "sex", "-k", 2, "-o", parts / "0.parquet", code=1)
    assert "lies within the input" in result.stderr
    assert contents(parts) == before
    # The folder that the input lies in is no file to write; beside it there is room.
    run("fit", parts / "0.parquet", "-s", "sex", "-k", 2, "-o", parts, code=2)
    run("fit", parts / "0.parquet", "-s", "sex", "-k", 2, "-o", parts / "model")


def test_an_archive_is_an_input_like_any_file(folder):
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        archive.writestr("a.jpg", b"")
    how = ["fit", folder / "images.zip", "-s", "sex", "-k", 2, "-o"]
    assert "is also an input" in run(*how, folder / "images.zip", code=1).stderr
    assert "is not a folder" in run(*how, folder / "images.zip" / "model", code=1).stderr


def test_a_file_of_the_same_kind_is_replaced_and_no_other(folder):
    fit = ["fit", folder / "X.npy", "-s", f"sex={folder / 'sex.txt'}", "-k", 3, "-o"]
    run(*fit, folder / "model")
    assert load(folder / "model").n_components == 3
    (folder / "thesis.txt").write_text("years of work")
    moments = (folder / "moments").read_bytes()
    assert "exists and is not a fairstream file" in run(*fit, folder / "thesis.txt", code=1).stderr
    result = run(*fit, folder / "moments", code=1)
    assert "holds a GroupMoments, not a ChannelSubspaces or FairSubspace" in result.stderr
    assert "pass --overwrite to replace it" in result.stderr
    assert (folder / "thesis.txt").read_text() == "years of work"
    assert (folder / "moments").read_bytes() == moments
    run(*fit, folder / "thesis.txt", "--overwrite")
    assert load(folder / "thesis.txt").n_components == 3


def test_a_table_or_report_that_exists_is_replaced_only_if_told_to(folder):
    transform = ["transform", folder / "model", folder / "X.npy", "-o", folder / "out.npy"]
    run(*transform)
    before = (folder / "out.npy").read_bytes()
    assert "out.npy exists: name another file, or pass --overwrite" in run(*transform, code=1).stderr
    assert (folder / "out.npy").read_bytes() == before
    run(*transform, "--overwrite")


def test_outputs_are_checked_before_any_work(folder, monkeypatch):
    monkeypatch.setattr("fairstream.cli.learning.fit_source", lambda *_, **__: pytest.fail("it was fitted"))
    fit = ["fit", folder / "X.npy", "-s", f"sex={folder / 'sex.txt'}", "-k", 3, "-o"]
    run(*fit, folder / "X.npy", code=1)
    run(*fit, folder / "table.csv", code=1)


def test_two_reports_in_one_file_are_refused(folder):
    audit = ["audit", folder / "model", folder / "X.npy", "-s", f"sex={folder / 'sex.txt'}"]
    result = run(*audit, "--json", folder / "report", "--html", folder / "report", code=2)
    assert "named by two options" in result.stderr


def test_every_command_says_what_its_paths_are_for():
    writing = set()
    for name, command in COMMANDS.items():
        for parameter in command.params:
            kind = parameter.type
            if isinstance(kind, click.Path):
                known = isinstance(kind, InputPath | OutputPath | OutputFolder)
                assert known, f"{parameter.name} of {name} is neither input nor output"
            if isinstance(kind, OutputPath | OutputFolder):
                writing.add(name)
                assert any("--overwrite" in option.opts for option in command.params)
            if isinstance(kind, OutputPath):
                assert isinstance(command, WritingCommand)
            if parameter.name in ("sensitive", "others", "against"):
                assert isinstance(kind, InputInText)
    assert writing == {"fit", "transform", "erase", "moments", "merge", "solve", "audit", "tune", "demo"}


def test_the_demo_writes_again_only_what_it_wrote(tmp_path, monkeypatch, few_families):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    # What it writes is the claim, not how long it searches.
    few_people_in_the_demo(monkeypatch, 2_000)
    monkeypatch.setattr("fairstream.cli.demo.SEARCHED", ({"constraint": "mean"},))
    monkeypatch.setattr("fairstream.cli.demo.DITHERS", (0.0, 0.4))
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "adult.parquet")
    before = (tmp_path / "adult.parquet").read_bytes()
    result = run("demo", "--folder", tmp_path, code=1)
    assert "adult.parquet exists" in result.stderr
    assert "--overwrite" in result.stderr
    assert (tmp_path / "adult.parquet").read_bytes() == before
    run("demo", "--folder", tmp_path, "--overwrite")
    run("demo", "--folder", tmp_path)


@pytest.mark.parametrize("write", [embed_source, erase_source])
def test_python_does_not_write_over_its_own_source_either(folder, write):
    model = load(folder / "model")
    before = contents(folder)
    for data in (folder / "X.npy", str(folder / "X.npy"), np.load(folder / "X.npy", mmap_mode="r")):
        with pytest.raises(ValueError, match=r"X\.npy (is also an input|is the input)"):
            write(model, open_source(data), folder / "X.npy")
    assert contents(folder) == before
    assert write(model, open_source(folder / "X.npy"), folder / "Z.npy") == N
    assert write(model, open_source(np.load(folder / "X.npy")), folder / "Z.npy") == N


def test_names_that_a_spreadsheet_would_run_are_warned_of(folder, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_text("=cmd|' /C calc'!A0,b,sex\n" + "1,2,m\n3,5,f\n2,2,m\n7,1,f\n" * 5)
    run("fit", tmp_path / "t.csv", "-s", "sex", "-k", 1, "-m", 0, "-o", tmp_path / "m")
    erase = ["erase", tmp_path / "m", tmp_path / "t.csv", "-o"]
    assert "like a formula" in run(*erase, tmp_path / "out.csv").stderr
    assert run(*erase, tmp_path / "out.npy").stderr == ""
    # The names stay those of the model, so that the file can be used with it again.
    run("transform", tmp_path / "m", tmp_path / "out.csv", "-o", tmp_path / "again.npy")


def test_fit_and_moments_say_how_many_rows_have_no_label(folder):
    labels = (folder / "sex.txt").read_text().splitlines()
    labels[3:10] = [""] * 7
    (folder / "some.txt").write_text("\n".join(labels))
    sensitive = ["-s", f"sex={folder / 'some.txt'}", "-s", f"all={folder / 'sex.txt'}"]
    for solver in ("exact", "power"):
        fit = ["fit", folder / "X.npy", *sensitive, "-k", 1, "-m", 1, "--solver", solver]
        facts = json.loads(run(*fit, "-o", folder / "model", "--json").stdout)
        assert facts["rows_without_label"] == {"sex": "fewer than 20", "all": 0}
    assert "rows without label        sex: fewer than 20, all: 0" in run(*fit, "-o", folder / "model").stdout
    facts = json.loads(run("moments", folder / "X.npy", *sensitive, "-o", folder / "n", "--json").stdout)
    assert facts["rows_without_label"] == {"sex": 7, "all": 0}


def test_a_fit_on_workers_counts_rows_without_a_label_too():
    from fairstream.cli.learning import _unlabelled

    sex = ["m", "f", None] * 40
    X = np.random.default_rng(0).normal(size=(120, 4))
    fitted = FairStreamingPCA(2).fit(X, sensitive_features={"sex": sex})
    assert _unlabelled(fitted) == {"sex": 40}


def test_an_output_that_the_input_pattern_would_match_is_refused(tmp_path):
    from fairstream.files.outputs import check_apart

    (tmp_path / "1.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="matches the input"):
        check_apart(tmp_path / "2.parquet", [tmp_path / "*.parquet"])
    check_apart(tmp_path / "2.csv", [tmp_path / "*.parquet"])  # the control


def test_a_long_search_for_a_guard_is_announced_and_a_short_one_is_not():
    told = []
    with guard_announced(1.0, told.append, seconds=0.0):
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
    assert told[0].startswith("guard 1: components are searched for")
    with guard_announced(1.0, told.append, seconds=60.0), guard_announced(0.0, told.append, seconds=0.0):
        time.sleep(0.05)
    assert len(told) == 1
