"""The command line: what it answers, how it fails, and that the documents name every command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.command import COMMANDS, answer, few_people_in_the_demo, run

import fairstream
from fairstream import load
from fairstream.data import open_source
from fairstream.datasets import load_adult
from fairstream.linalg import principal_angles
from fairstream.streaming.fit import fit_source

pa = pytest.importorskip("pyarrow")
DOCS = Path(__file__).parents[1] / "docs" / "reference"
READING = ["--sensitive", "sex", "--target", "income", "--standardize", "--impute", "mean"]


@pytest.fixture(scope="module")
def adult():
    return load_adult(backend="pyarrow").slice(0, 6_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, adult):
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("cli")
    pq.write_table(adult, folder / "adult.parquet")
    run("fit", folder / "adult.parquet", *READING, "-k", 4, "-m", 2, "-o", folder / "model.safetensors")
    run("moments", folder / "adult.parquet", *READING, "-o", folder / "all.moments")
    return folder


# Every command is documented ----------------------------------------------------------------------


def documented_commands(text):
    return set(re.findall(r"^### fairstream (\S+)$", text, flags=re.MULTILINE))


def test_every_command_is_in_the_documents():
    text = (DOCS / "cli.md").read_text()
    assert documented_commands(text) == set(COMMANDS)
    for name in COMMANDS:
        assert f"    fairstream {name}" in text, f"docs/reference/cli.md has no example of fairstream {name}"


def test_a_command_that_is_not_documented_would_be_noticed():
    text = (DOCS / "cli.md").read_text().replace("### fairstream merge\n", "")
    assert documented_commands(text) != set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_help(name):
    command = COMMANDS[name]
    assert command.help
    assert command.help.strip().endswith(".")
    output = run(name, "--help").output
    assert "Usage:" in output
    choices = {"constraint", "directions", "solver", "folder"}  # their choices or default say it
    for option in command.params:
        if option.param_type_name == "option" and option.name not in choices:
            assert option.help, f"--{option.name} of fairstream {name} has no help"


def test_every_long_option_in_the_documents_exists():
    text = (DOCS / "cli.md").read_text()
    known = {name for command in COMMANDS.values() for option in command.params for name in option.opts}
    known |= {"--help", "--debug"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= known


# What the commands do -----------------------------------------------------------------------------


def test_fit_gives_the_library_s_subspace(folder, adult):
    facts = answer(
        "fit", folder / "adult.parquet", *READING, "-k", 4, "-m", 2, "-o", folder / "again.safetensors"
    )
    source = open_source(adult, sensitive_features=["sex"], target="income", standardize=True, impute="mean")
    expected = fit_source(source, n_components=4, n_unfair=2).subspace_
    model = load(folder / "again.safetensors")
    np.testing.assert_allclose(model.components, expected.components, atol=1e-12)
    assert model.feature_names == expected.feature_names
    assert facts["n_rows"] == 6_000
    assert facts["n_removed"] == 3
    assert facts["groups"]["sex"] == {str(g): n for g, n in expected.group_counts["sex"].items()}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npy"])
def test_transform_writes_the_embedding_of_new_rows_with_the_fit_s_encoding(folder, adult, suffix, tmp_path):
    import pyarrow.parquet as pq

    new = adult.slice(10, 30)  # few rows: own categories and means would be others
    pq.write_table(new, tmp_path / "new.parquet")
    facts = answer(
        "transform", folder / "model.safetensors", tmp_path / "new.parquet", "-o", tmp_path / f"out.{suffix}"
    )
    assert facts["n_rows"] == 30
    model = load(folder / "model.safetensors")
    source = open_source(adult, sensitive_features=["sex"], target="income", standardize=True, impute="mean")
    expected = model.embed(np.concatenate([block.X for block in source])[10:40])
    np.testing.assert_allclose(read_rows(tmp_path / f"out.{suffix}"), expected, atol=1e-12)


def read_rows(path):
    if path.suffix == ".npy":
        return np.load(path)
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    return np.column_stack([column.to_numpy() for column in table.columns])


def test_transform_writes_block_by_block(folder, tmp_path):
    import pyarrow.parquet as pq

    how = ["--block-size", 500, "-o", tmp_path / "out.parquet"]
    run("transform", folder / "model.safetensors", folder / "adult.parquet", *how)
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 12
    run(
        "transform",
        folder / "model.safetensors",
        folder / "adult.parquet",
        *how[:2],
        "-o",
        tmp_path / "a.npy",
    )
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), read_rows(tmp_path / "out.parquet"))


def test_erase_removes_the_unfair_part(folder, tmp_path):
    run("erase", folder / "model.safetensors", folder / "adult.parquet", "-o", tmp_path / "out.parquet")
    model = load(folder / "model.safetensors")
    rows = read_rows(tmp_path / "out.parquet")
    assert np.abs((rows - model.mean) @ model.unfair_basis.T).max() < 1e-10
    assert pa.parquet.read_schema(tmp_path / "out.parquet").names == list(model.feature_names)


def test_an_interrupted_output_leaves_no_file(folder, tmp_path):
    run("transform", folder / "model.safetensors", folder / "no.parquet", "-o", tmp_path / "out.npy", code=1)
    run(
        "transform",
        folder / "model.safetensors",
        folder / "adult.parquet",
        "-o",
        tmp_path / "out.txt",
        code=1,
    )
    assert not list(tmp_path.iterdir())


def test_four_parts_merged_and_solved_equal_the_whole(tmp_path):
    import pyarrow.parquet as pq

    adult = load_adult(backend="pyarrow")
    text = [c for c in adult.column_names if pa.types.is_string(adult.schema.field(c).type)]
    features = [c for c in text if c not in ("sex", "race", "income")]
    categories = {c: sorted({v for v in adult[c].to_pylist() if v is not None}) for c in features}
    (tmp_path / "categories.json").write_text(json.dumps(categories))
    cuts = [0, 700, 1_500, 20_000, adult.num_rows]
    for part, (start, stop) in enumerate(pairwise(cuts)):
        pq.write_table(adult.slice(start, stop - start), tmp_path / f"part{part}.parquet")
    pq.write_table(adult, tmp_path / "whole.parquet")
    parts = [tmp_path / f"part{part}.moments" for part in range(4)]
    # The first part says how columns become features, the others and the whole follow it.
    first = [
        "--target",
        "income",
        "--standardize",
        "--impute",
        "mean",
        "--categories",
        tmp_path / "categories.json",
    ]
    like, groups = ["--like", parts[0]], ["-s", "sex", "-s", "race"]
    for part, file in enumerate(parts):
        run("moments", file.with_suffix(".parquet"), *groups, *(like if part else first), "-o", file)
    assert answer("merge", *parts, "-o", tmp_path / "all.moments")["n_rows"] == adult.num_rows
    run("solve", tmp_path / "all.moments", "-k", 5, "-m", 1, "-o", tmp_path / "merged")
    run("fit", tmp_path / "whole.parquet", *groups, *like, "-k", 5, "-m", 1, "-o", tmp_path / "whole")
    merged, whole = load(tmp_path / "merged"), load(tmp_path / "whole")
    assert principal_angles(merged.components.T, whole.components.T).max() < 1e-8
    assert principal_angles(merged.unfair_basis.T, whole.unfair_basis.T).max() < 1e-8
    assert merged.feature_names == whole.feature_names
    # The control: a part left out is seen.
    run("merge", *parts[1:], "-o", tmp_path / "some.moments")
    run("solve", tmp_path / "some.moments", "-k", 5, "-m", 1, "-o", tmp_path / "some")
    assert principal_angles(load(tmp_path / "some").components.T, whole.components.T).max() > 1e-6
    # The merged model transforms tables like any other.
    run("transform", tmp_path / "merged", tmp_path / "part1.parquet", "-o", tmp_path / "out.npy")


def test_parts_with_other_categories_are_refused(adult, tmp_path):
    import pyarrow.parquet as pq

    for part, start in enumerate((0, 40)):
        pq.write_table(adult.slice(start, 40), tmp_path / f"{part}.parquet")
        run("moments", tmp_path / f"{part}.parquet", *READING, "-o", tmp_path / f"{part}.moments")
    result = run("merge", tmp_path / "0.moments", tmp_path / "1.moments", "-o", tmp_path / "x", code=1)
    assert "does not go with" in result.stderr
    assert not (tmp_path / "x").exists()


def test_like_encodes_a_part_as_another_file(folder, adult, tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(adult.slice(0, 40), tmp_path / "part.parquet")
    how = ["-s", "sex", "--like", folder / "all.moments", "-o", tmp_path / "part.moments"]
    run("moments", tmp_path / "part.parquet", *how)
    run("merge", folder / "all.moments", tmp_path / "part.moments", "-o", tmp_path / "both.moments")
    assert load(tmp_path / "both.moments").n_rows == 6_040


def test_frontier_is_the_library_s(folder):
    points = answer("frontier", folder / "all.moments", "-k", 3, "-m", 4)
    expected = fairstream.frontier(load(folder / "all.moments"), 3, range(5))
    assert [point["n_unfair"] for point in points] == [0, 1, 2, 3, 4]
    for point, other in zip(points, expected, strict=True):
        assert point == other.to_dict()
    lines = run("frontier", folder / "all.moments", "-k", 3, "-m", 4).stdout.splitlines()
    assert len(lines) == 6
    assert len({len(line) for line in lines}) == 1, "the columns are aligned"


def test_frontier_ends_where_no_direction_fits(tmp_path):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
    fairstream.GroupMoments(5).update(X, {"sex": sex}).save(tmp_path / "a.moments")
    points = answer("frontier", tmp_path / "a.moments", "-k", 2)
    assert [point["n_unfair"] for point in points] == [0, 1, 2]
    run("frontier", tmp_path / "a.moments", "-k", 2, "-m", 10, code=1)
    only = answer("frontier", tmp_path / "a.moments", "-k", 2, "-m", 2, "--constraint", "covariance")
    assert [point["n_unfair"] for point in only] == [1, 2]


def test_inspect_tells_what_a_file_holds(folder):
    model = answer("inspect", folder / "model.safetensors")
    assert model["kind"] == "FairSubspace"
    assert model["n_components"] == 4
    assert model["parameters"]["n_unfair"] == 2
    moments = answer("inspect", folder / "all.moments")
    assert moments["kind"] == "GroupMoments"
    assert sum(moments["groups"]["sex"].values()) == 6_000
    assert "GroupMoments" in run("inspect", folder / "all.moments").stdout


def test_inspect_tells_which_columns_a_model_needs_and_how_they_become_numbers(tmp_path):
    rows = "".join(f"{j},{30 + j % 7},{'xyz'[j % 3]},{'fm'[j % 2]}\n" for j in range(90))
    (tmp_path / "a.csv").write_text(f"person,age,job,sex\n{rows}90,?,?,f\n")
    fit = ["fit", tmp_path / "a.csv", "-s", "sex", "-k", 1, "-m", 0, "--id-column", "person", "--standardize"]
    fit += ["--null-values", "?", "--impute", "mean", "--unseen", "other", "--dither", 0.1]
    run(*fit, "-o", tmp_path / "model")
    facts = answer("inspect", tmp_path / "model")
    assert facts["columns"]["job"]["categories"] == ["x", "y", "z", "other"]
    assert {*facts["columns"]["age"]} == {"kind", "width", "centre", "scale", "fill"}
    assert facts["null_values"] == ["?"]
    assert facts["id_column"] == "person"
    lines = {tuple(line.split("  ", 1)) for line in run("inspect", tmp_path / "model").stdout.splitlines()}
    told = {name: value.strip() for name, value in lines}
    assert told["columns"] == "age (number, scaled), job (4 categories)"
    assert told["missing values"] == "filled: means, shares of categories"
    assert told["unknown categories"] == "taken for other"
    assert told["null values"] == "?"
    assert told["id column"] == "person"


def test_plan_counts_rows(tmp_path):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 2_000)
    X = rng.uniform(-1, 1, size=(2_000, 4)) * np.where(sex[:, None], [3, 1, 1, 1], [1, 1, 2, 1])
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "sex.npy", sex)
    how = ["-s", f"sex={tmp_path / 'sex.npy'}", "-k", 1, "--eps-optimality", 0.5, "--eps-fairness", 0.1]
    plan = answer("plan", tmp_path / "X.npy", *how)
    rows = plan["unfair_block"] * plan["unfair_steps"] + plan["component_block"] * plan["component_steps"]
    assert plan["n_rows"] == rows


def test_npy_columns_are_named_by_index_and_labels_by_file(tmp_path):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 5)) + sex[:, None]
    np.save(tmp_path / "with.npy", np.column_stack([X[:, :2], sex, X[:, 2:]]))
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "sex.txt").write_text("\n".join(map(str, sex)))
    run("fit", tmp_path / "with.npy", "-s", "2", "-k", 2, "-o", tmp_path / "a")
    run("fit", tmp_path / "X.npy", "-s", f"sex={tmp_path / 'sex.txt'}", "-k", 2, "-o", tmp_path / "b")
    one, two = load(tmp_path / "a"), load(tmp_path / "b")
    assert list(one.groups) == ["column_2"]
    assert two.groups == {"sex": ("0", "1")}
    np.testing.assert_allclose(one.components, two.components, atol=1e-12)
    run("transform", tmp_path / "a", tmp_path / "with.npy", "-s", 2, "-o", tmp_path / "z.npy")
    assert (
        "6 features, the model 5"
        in run("transform", tmp_path / "a", tmp_path / "with.npy", "-o", tmp_path / "y.npy", code=1).stderr
    )


def test_the_power_method_on_the_command_line(folder, tmp_path):
    power = ["--solver", "power", "--step-rows", "900,1000", "--power-steps", "2,3", "--seed", 0]
    run("fit", folder / "adult.parquet", *READING, *power, "-k", 3, "-o", tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors")
    assert model.parameters["solver"] == "power"
    run("transform", tmp_path / "model.safetensors", folder / "adult.parquet", "-o", tmp_path / "out.npy")


def test_unfair_directions_per_attribute(folder, tmp_path):
    how = ["-s", "sex", "-s", "race", "--target", "income", "--impute", "mean", "-k", 2]
    run("fit", folder / "adult.parquet", *how, "-m", "sex=3", "-m", "race=0", "-o", tmp_path / "m")
    assert load(tmp_path / "m").parameters["n_unfair"] == {"sex": 3, "race": 0}
    assert (
        "ATTRIBUTE=M"
        in run(
            "fit", folder / "adult.parquet", *how, "-m", "sex=3", "-m", "2", "-o", tmp_path / "m", code=2
        ).stderr
    )


@pytest.mark.slow
def test_demo_streams_saves_compares_and_audits(tmp_path, monkeypatch, few_families):
    few_people_in_the_demo(monkeypatch, 4_000)
    output = run("demo", "--folder", tmp_path / "demo").stdout
    model = load(tmp_path / "demo" / "model.safetensors")
    assert model.n_rows == 4_000  # mean and covariance are those of all training rows
    assert model.dither > 0
    assert "Chosen: 10 components, guard 1" in output
    assert (tmp_path / "demo" / "report.html").exists()
    assert (tmp_path / "demo" / "adult.parquet").exists()
    plain, fair = re.search(r"mean gap, sex +([\d.]+) +([\d.]+)", output).groups()
    assert float(plain) > 0.5
    assert float(fair) < 1e-3
    assert "frontier" in output


# How it fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect", "no such file"], 1, "no such file does not exist"),
        (["inspect", __file__], 1, "is not a fairstream file"),
        (["fit", "no.parquet", "-s", "sex", "-o", "x"], 1, "no.parquet does not exist"),
        (["fit", __file__, "-s", "sex", "-o", "x"], 1, "ends in .py: rename"),
        (["frontier"], 2, "Missing argument"),
        (["fit", "a.csv", "--no-such-option"], 2, "No such option"),
        (["no-such-command"], 2, "No such command"),
        (
            ["fit", "a.csv", "-s", "x", "-k", "0", "-o", "x"],
            2,
            "'0' is neither a whole number from 1",
        ),
    ],
)
def test_errors_are_one_line_without_a_traceback(arguments, code, message):
    result = run(*arguments, code=code)
    assert message in result.stderr
    assert "Traceback" not in result.output
    if code == 1:
        assert len(result.stderr.splitlines()) == 1


def test_an_output_that_cannot_be_written_is_refused_before_the_fit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("fairstream.cli.learning.fit_source", lambda *_, **__: pytest.fail("it was fitted"))
    fit = ["fit", folder / "adult.parquet", "-s", "sex", "-k", 2]
    assert "no is not a folder" in run(*fit, "-o", "no/model.safetensors", code=1).stderr
    assert "not a regular file" in run(*fit, "-o", "/dev/null", code=1).stderr
    with pytest.raises(pytest.fail.Exception):
        run(*fit, "-o", tmp_path / "model.safetensors")


def test_files_beside_the_data_are_named_when_they_cannot_be_read(folder, tmp_path):
    fit = ["fit", folder / "adult.parquet", "-k", 2, "-o", tmp_path / "m"]
    (tmp_path / "c.json").write_text("{")
    assert "c.json is not JSON" in run(*fit, "-s", "sex", "--categories", tmp_path / "c.json", code=1).stderr
    (tmp_path / "c.json").write_text("[1]")
    assert "c.json holds no" in run(*fit, "-s", "sex", "--categories", tmp_path / "c.json", code=1).stderr
    assert "no.txt is not a file" in run(*fit, "-s", "sex=no.txt", code=1).stderr


def test_features_of_a_store_are_chosen_by_index(tmp_path):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["sex"] = rng.normal(size=(100, 6)), rng.integers(0, 2, 100)
    fit = ["fit", tmp_path / "a.h5", "-s", "sex", "-k", 1, "-o", tmp_path / "m"]
    assert answer(*fit, "--features", "0,2,3,5")["n_features"] == 4


def test_the_way_out_is_told_as_it_is_typed(folder, tmp_path):
    fit = ["fit", folder / "adult.parquet", "-s", "sex", "-k", 2, "-o", tmp_path / "m"]
    assert "pass --impute mean" in run(*fit, code=1).stderr
    fit += ["--impute", "mean", "--checkpoint", tmp_path / "checkpoints"]
    run(*fit)
    assert "pass --resume to continue" in run(*fit, code=1).stderr


def test_debug_shows_the_traceback(tmp_path):
    result = run("--debug", "inspect", tmp_path / "no", code=1)
    assert "Traceback (most recent call last)" in result.stderr
    assert "FileNotFoundError" in result.stderr


def test_a_model_is_not_moments_and_moments_are_no_model(folder, tmp_path):
    assert "holds no moments" in run("frontier", folder / "model.safetensors", "-k", 2, code=1).stderr
    arguments = ["transform", folder / "all.moments", folder / "adult.parquet", "-o", tmp_path / "x.npy"]
    assert "fairstream solve" in run(*arguments, code=1).stderr


def test_a_matrix_for_a_model_of_a_table_is_refused(folder, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    how = ["transform", folder / "model.safetensors", tmp_path / "a.npy", "-o", tmp_path / "e.npy"]
    assert "a.npy is a matrix, the model was fitted on a table" in run(*how, code=1).stderr


def test_a_missing_column_is_named(folder, tmp_path):
    result = run("fit", folder / "adult.parquet", "-s", "gender", "-o", tmp_path / "x", code=1)
    assert "'gender'" in result.stderr


def test_writing_tables_without_pyarrow_names_the_extra(folder, tmp_path, monkeypatch):
    from fairstream.streaming.sinks import open_sink

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for suffix in ("csv", "parquet"):
        with (
            pytest.raises(ImportError, match=r"fairstream\[tables\]"),
            open_sink(tmp_path / f"x.{suffix}", ["a"]),
        ):
            pass
    assert not list(tmp_path.iterdir())
    with open_sink(tmp_path / "x.npy", ["a"]) as write:
        write(np.ones((2, 1), dtype=np.float32))
        write(np.zeros((3, 1), dtype=np.float32))
    assert np.load(tmp_path / "x.npy").ravel().tolist() == [1, 1, 0, 0, 0]


# Real processes: signals, pipes, terminals --------------------------------------------------------

COMMAND = [sys.executable, "-m", "fairstream.cli"]
ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def long_fit(tmp_path_factory):
    """A fit that takes a few seconds: one row at a time."""
    folder = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(0)
    np.save(folder / "X.npy", rng.normal(size=(6_000, 20)))
    np.save(folder / "sex.npy", rng.integers(0, 2, 6_000))
    data = [str(folder / "X.npy"), "-s", f"sex={folder / 'sex.npy'}", "-k", "3", "--block-size", "1"]
    return [*COMMAND, "fit", *data]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_write_a_checkpoint_and_say_so_in_the_exit_code(long_fit, tmp_path, number, code):
    arguments = [
        *long_fit,
        "-o",
        str(tmp_path / "model"),
        "--checkpoint",
        str(tmp_path / "c"),
        "--every",
        "400",
    ]
    process = subprocess.Popen(arguments, env=ONE_THREAD, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("c/rows-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "checkpoint written" in errors
    assert "pass --resume to continue" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "model").exists()
    if number == signal.SIGTERM:
        resumed = subprocess.run([*arguments, "--resume"], env=ONE_THREAD, capture_output=True, text=True)
        assert resumed.returncode == 0, resumed.stderr
        assert "Warning" not in resumed.stderr
        assert load(tmp_path / "model").n_rows == 6_000


@pytest.mark.slow
def test_in_a_pipe_it_is_quiet(folder, tmp_path):
    arguments = ["fit", folder / "adult.parquet", *READING, "-k", "2", "-o", tmp_path / "m", "--json"]
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert json.loads(done.stdout)["n_components"] == 2


def test_on_a_terminal_it_shows_rows_per_second_and_time_left(monkeypatch):
    from fairstream.cli.progress import progress_on_terminal

    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pytest.importorskip("pty").openpty()
    with os.fdopen(theirs, "w") as terminal, progress_on_terminal("fit", terminal) as report:
        for done in (1_000, 2_000, 3_000):
            report(done, 4_000)
            time.sleep(0.15)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert "rows/s" in shown
    assert "3.00k/4.00k" in shown
    assert re.search(r"<\d\d:\d\d", shown), "time left"


def test_the_first_pass_over_a_table_moves_the_bar(folder, monkeypatch):
    from fairstream.cli.progress import progress_on_terminal
    from fairstream.data.progress import first_pass_told

    def opened():
        columns = {"sensitive_features": ["sex"], "target": "income", "block_size": 3_000}
        return open_source(folder / "adult.parquet", impute="mean", **columns)

    monkeypatch.setattr("fairstream.data.parquet_files.READ_ROWS", 2_000)
    told = []
    with first_pass_told(lambda *done: told.append(done)):
        assert opened().n_features
    assert told == [(2_000, 6_000), (4_000, 6_000), (6_000, 6_000)]

    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pytest.importorskip("pty").openpty()
    with os.fdopen(theirs, "w") as terminal, progress_on_terminal("fit", terminal) as report:
        fit_source(opened(), n_components=2, progress=report)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert re.search(r"fit, first pass: .*/6\.00k.*\rfit: .*/6\.00k", shown)


def test_labels_cannot_steer_a_terminal(tmp_path):
    steering = "\x1b[31mred\u202e"
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(40, 3)))
    (tmp_path / "labels.txt").write_text("\n".join(["plain", steering] * 20), encoding="utf-8")
    labels = f"group={tmp_path / 'labels.txt'}"
    shown = run("moments", tmp_path / "X.npy", "-s", labels, "-o", tmp_path / "all.moments").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "red" in shown
