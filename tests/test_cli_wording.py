"""What the command line says: in its own words, with options that exist, and nothing a terminal obeys."""

import ast
import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import click
import numpy as np
import pytest
from support.command import COMMANDS, run

import fairstream
from fairstream.auditing.tuning.search import SEARCHED
from fairstream.cli import main
from fairstream.cli.answers import say
from fairstream.cli.name_lists import joined_names, split_names
from fairstream.cli.wording import ARGUMENTS, OPTION, RULES, Wording

SOURCE = Path(fairstream.__file__).parent
COMMAND = [sys.executable, "-m", "fairstream.cli"]
DOCS = Path(__file__).parents[1] / "docs" / "reference"


def options_of(name):
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


def unknown_options(text, name):
    """Return the options in a text that neither the command has nor the one whose line they stand in."""
    for other in COMMANDS:
        # `fairstream fit --impute mean` is a line of another command.
        for line in re.findall(rf"fairstream {other}\b(?: with(?:out)?\b)?((?: --[a-z-]+)*)", text):
            assert set(OPTION.findall(line)) <= options_of(other), text
        text = re.sub(rf"fairstream {other}\b(?: with(?:out)?\b)?(?: --[a-z-]+)*", "", text)
    return set(OPTION.findall(text)) - options_of(name)


@pytest.fixture
def table(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    rows = [
        f"{a},{int(b > 0)},{'mf'[s]}"
        for a, b, s in zip(*rng.normal(size=(2, 60)), rng.integers(0, 2, 60), strict=True)
    ]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,sex", *rows]))
    return tmp_path / "d.csv"


# Options that exist -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_message_never_names_an_option_that_the_command_lacks(name):
    options = options_of(name)
    for rule in RULES:
        assert unknown_options(rule.words(options), name) == set(), rule.pattern
    wording = Wording(options)
    for argument in ARGUMENTS:
        for text in (f"lower {argument.name}", f"pass {argument.name}=3", f"{argument.name} is 3: lower it"):
            assert unknown_options(wording(text), name) == set(), text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_message_of_the_library_becomes_one_with_an_option_that_the_command_lacks(name):
    wording = Wording(options_of(name))
    texts = messages()
    assert len(texts) > 200
    for text in texts:
        assert unknown_options(wording(text), name) <= {"--option"}, text


@cache
def messages():
    """All texts of errors and warnings in the library, with the values left out."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(SOURCE / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(
                r"Error$|\.warn$|Interrupted$", ast.unparse(node.func)
            ):
                parts = [
                    p for p in ast.walk(node) if isinstance(p, ast.Constant) and isinstance(p.value, str)
                ]
                found.append("".join(part.value for part in parts))
    return found


def test_the_library_itself_names_options_only_with_their_command():
    for text in messages():
        assert unknown_options(text, "inspect") == set(), text


def test_the_help_of_guard_names_what_tune_searches():
    told = next(parameter.help for parameter in COMMANDS["fit"].params if parameter.name == "guard")
    usual = re.search(r"([\d.]+) to ([\d.]+) for tables", told)
    guards = [asked["guard"] for asked in SEARCHED if "guard" in asked]
    assert [min(guards), max(guards)] == [*map(float, usual.groups())]


def test_an_option_that_is_not_there_would_be_noticed():
    assert unknown_options("pass --impute mean", "transform") == {"--impute"}
    assert unknown_options("use fairstream fit --impute mean", "transform") == set()
    with pytest.raises(AssertionError):
        unknown_options("use fairstream transform --impute mean", "fit")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (
            ["--solver", "power", "--power-steps", "1,1", "--seed", 0],
            0,
            "raise --power-steps, or use --solver exact or sketch",
        ),
        (["--option", "delimiter=ab"], 1, "--delimiter is 'ab': pass a single character"),
        (["--option", "text_encoding=none"], 1, "--text-encoding is 'none': pass the name"),
    ],
)
def test_hints_are_in_the_words_of_the_command_line(table, more, code, said):
    table.write_text("\n".join(f"{line},{len(line)}" for line in table.read_text().split("\n")))
    fit = ["fit", table, "-s", "sex", "-k", 1, "--constraint", "mean", "-o", table.with_name("m")]
    text = run(*fit, *more, code=code).stderr
    assert said in text
    assert "power_steps" not in text
    assert "'sketch'" not in text


def test_a_demonstration_without_its_extra_names_the_extra():
    text = "backend='pyarrow' needs pyarrow: pip install 'fairstream[tables]'"
    assert Wording(options_of("demo"))(text).startswith("the data of this command needs pyarrow: pip install")


def test_transform_does_not_advise_what_only_fit_can_do(table):
    run("fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m"))
    table.write_text(table.read_text() + "\n,1,m")
    transform = ["transform", table.with_name("m"), table, "-o", table.with_name("z.npy")]
    text = run(*transform, code=1).stderr
    assert "pass --impute" not in text
    assert "fairstream fit --impute mean" in text
    fit = run("fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("n"), code=1)
    assert "pass --impute mean" in fit.stderr


def test_a_table_without_a_column_of_the_model_is_told_what_the_model_needs(table):
    """It used to speak of --features, which nobody had typed."""
    run("fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m"))
    rows = [line.split(",") for line in table.read_text().split("\n")]
    other = table.with_name("other.csv")
    other.write_text("\n".join(f"{a},{sex}" for a, _, sex in rows))
    lacking = f"the model needs column 'b', which {other} does not have (it has a, sex): pass a table"
    for command in ("transform", "erase"):
        said = run(command, table.with_name("m"), other, "-o", table.with_name("z.npy"), code=1).stderr
        assert said == f"Error: {lacking} with the columns it was fitted on\n"
    assert lacking in run("audit", table.with_name("m"), other, "-s", "sex", code=1).stderr
    fit = ["fit", other, "-s", "sex", "-k", 1, "-m", 0, "--like", table.with_name("m")]
    said = run(*fit, "-o", table.with_name("n"), code=1).stderr
    assert "the file of --like needs column 'b', which " in said


def test_columns_that_are_mostly_empty_are_to_be_left_out_first(table):
    header, *rows = table.read_text().split("\n")
    more = [f"{row},{'' if j else 1},{j if j else ''}" for j, row in enumerate(rows)]
    table.write_text("\n".join([f"{header},c,d", *more]))
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    for how in ([], ["--standardize"]):
        said = run(*fit, *how, code=1).stderr
        assert (
            "'c' (59 rows), 'd' (1 row). Most of these rows lack 'c': leave it out with --exclude c. " in said
        )
        assert "For the others pass --impute mean, drop those rows, or leave them out (--exclude, or" in said
    said = run(*fit, "--features", "a,c", code=1).stderr
    assert "leave it out of --features, or pass --impute mean\n" in said


def test_columns_that_share_a_name_are_to_be_renamed_first(table):
    table.write_text("a,a,b,sex\n1,2,3,f\n4,5,6,m\n")
    said = run("fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m"), code=1).stderr
    assert said.endswith(
        "2 columns named 'a': rename one of them, or leave all of them out with --exclude a\n"
    )


# No Python ----------------------------------------------------------------------------------------


def test_the_command_line_does_not_speak_python(table):
    fit = ["fit", table, "-k", 1, "-m", 0, "-o", table.with_name("m")]
    assert "name its column with --sensitive" in run(*fit, code=1).stderr
    assert "--sensitive names 'gender'" in run(*fit, "-s", "gender", code=1).stderr
    (table.parent / "categories.json").write_text('{"sex": ["m"]}')
    listed = [*fit, "-s", "b", "--categories", table.parent / "categories.json"]
    assert 'in the JSON file of --categories: {"sex": [...]}' in run(*listed, code=1).stderr
    table.write_text("a,b,sex\n1,2\n")
    text = run(*fit, "-s", "sex", code=1).stderr
    assert """--option 'column_types={"NAME": "TYPE"}'""" in text
    table.write_text("a;b;sex\n1;2;m\n")
    assert "--delimiter ';'" in run(*fit, "-s", "sex", code=1).stderr
    assert "--option key=... does not apply" in run(*fit, "-s", "sex", "--option", "key=x", code=1).stderr
    table.write_text("a;b;sex\n1,5;2;m\n")
    assert "with --decimal , if numbers are written 0,5" in run(*fit, "-s", "sex", code=1).stderr


def test_a_sensitive_column_and_the_target_are_refused_as_features(table):
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m"), "--features"]
    said = (
        "Error: --features names 'sex', which is sensitive and so never a feature: leave it out of --features"
    )
    assert run(*fit, "a,b,sex", code=1).stderr.strip() == said
    assert "--features names 'b', which is the target" in run(*fit, "a,b", "--target", "b", code=1).stderr


def test_what_must_be_left_out_of_a_messy_table_is_ready_to_be_pasted(table):
    header, *rows = table.read_text().split("\n")
    more = [
        f"{row},{'' if j < 9 else 1},2013-08-{j % 9 + 10},,2013-08-14 06:03:42,3"
        for j, row in enumerate(rows)
    ]
    table.write_text("\n".join([f"{header},c,born,gone,jailed at,d e", *more]))
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    said = run(*fit, "--exclude", "d e", code=1).stderr
    assert "or leave them out with --exclude 'd e,born,gone,jailed at'\n" in said
    said = run(*fit, "--exclude", "d e,born,gone,jailed at", code=1).stderr
    assert "or leave it out (--exclude, or --features without it)" in said
    run(*fit, "--exclude", "c,d e,born,gone,jailed at")


def test_columns_whose_names_have_commas_or_quotes_can_be_left_out_as_advised(table):
    header, *rows = table.read_text().split("\n")
    more = [f"{row},,2013-08-14,1" for row in rows]
    table.write_text("\n".join([f'{header},"a, or b","5"" disks",\'c\'', *more]))
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    said = run(*fit, "--exclude", "'c'", code=1).stderr
    advice = shlex.split(said[said.index("--exclude") :])
    assert advice[1] == """'c',"a, or b","5"" disks\""""
    run(*fit, *advice)
    assert "--exclude names '', " in run(*fit, "--exclude", "", code=1).stderr
    run(*fit, "--features", "a,'c'", "--overwrite")
    kept = ["transform", table.with_name("m"), table, "--keep", 'b,"a, or b"', "-o", table.with_name("z.csv")]
    run(*kept)
    assert table.with_name("z.csv").read_text().startswith('"b","a, or b",')


@pytest.mark.parametrize("text", ['5" disks', '"', '"a"b', "a\nb", "'c'", ""])
def test_a_name_that_was_typed_without_quotes_is_taken_as_it_is(text):
    assert split_names(text) == [text]
    assert split_names(f"x,{text}") == ["x", text]
    assert split_names(joined_names(["x,y", text])) == ["x,y", text]


def test_what_does_not_apply_beside_another_option_is_said_without_python(table):
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    said = run(*fit, "--exclude", "a", "--features", "b", code=1).stderr
    assert "Error: --exclude does not apply beside --features: leave one of them out" in said
    run(*fit)
    said = run(
        *fit[:-1], table.with_name("n"), "--exclude", "a", "--like", table.with_name("m"), code=1
    ).stderr
    assert "--exclude does not apply beside --like, which settles it: leave it out" in said
    transform = ["transform", table.with_name("m"), table, "-o", table.with_name("z.npy")]
    said = run(*transform, "--exclude", "a", code=1).stderr
    assert "--exclude does not apply beside a model, which settles it: leave it out" in said


def test_a_column_that_is_empty_for_long_is_told_of_in_the_words_of_the_command_line(table):
    table.write_text("a,c,sex\n" + "1.5,,f\n" * 160_000 + "2.5,1,m\n")
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    said = run(*fit, "--impute", "mean", code=1).stderr
    assert "leave it out with --exclude c; only the first 1,048,5" in said
    assert """if values follow, fix a type with --option 'column_types={"NAME": "TYPE"}'""" in said


def test_moments_beyond_memory_name_options_that_the_command_has(table, monkeypatch):
    monkeypatch.setattr("fairstream.linalg.memory.free_bytes", lambda: 10)
    said = run(
        "fit", table, "-s", "sex", "-k", 1, "-m", 0, "--solver", "exact", "-o", table.with_name("m"), code=1
    )
    assert "use --solver sketch or power, or leave out columns of many categories" in said.stderr
    said = run("moments", table, "-s", "sex", "-o", table.with_name("m"), code=1)
    assert "pass --rank for a sketch, or leave out columns of many categories" in said.stderr
    said = run("tune", table, "-s", "sex", "--limit", 0.7, "-o", table.with_name("m"), code=1)
    assert "GB are free: choose fewer columns" in said.stderr


def test_other_sources_and_outputs_do_not_speak_python_either(table):
    fit = ["fit", table, "-s", "sex", "-m", 0, "-o", table.with_name("m")]
    assert run(*fit, "-k", 20, code=1).stderr.endswith(
        "--n-components 20: give a whole number from 1 to 2 features\n"
    )
    asked = run("fit", "sqlite:///people.db", *fit[2:], "-k", 1, code=1).stderr
    wanted = "say what to read from sqlite:///people.db, as in --option 'query=SELECT * FROM people'"
    assert asked == f"Error: {wanted}\n"
    run(*fit, "-k", 1)
    transform = ["transform", table.with_name("m"), table, "--keep", "sex", "-o"]
    assert "Error: --keep names columns" in run(*transform, table.with_name("z.npy"), code=1).stderr
    assert "z ends in nothing: name" in run(*transform, table.with_name("z"), code=1).stderr


def test_what_was_typed_and_what_the_data_holds_is_not_translated():
    wording = Wording({"--rank", "--n-unfair"}, ["n_unfair=1/rank is 3.csv"])
    assert wording("n_unfair=1/rank is 3.csv does not exist") == "n_unfair=1/rank is 3.csv does not exist"
    assert wording("column 'n_unfair' has no value") == "column 'n_unfair' has no value"
    assert wording("rank=5: lower n_unfair") == "--rank 5: lower --n-unfair"


@pytest.mark.parametrize("name", ["encoding", "sensitive", "block_size", "client", "nonsense"])
def test_an_option_that_is_none_for_files_is_refused_in_words(table, name):
    result = run(
        "fit", table, "-s", "sex", "-k", 1, "-o", table.with_name("m"), "--option", f"{name}=latin-1", code=2
    )
    assert "TypeError" not in result.stderr
    assert name in result.stderr
    if name == "encoding":
        assert "--text-encoding latin-1" in result.stderr


# Numbers and paths at the edge --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--power-steps", "0"),
        ("--power-steps", "0,5"),
        ("--power-steps", "-1"),
        ("--step-rows", "0"),
        ("--step-rows", "1,2,3"),
        ("--block-size", "0"),
        ("--rank", "0"),
        ("--every", "0"),
        ("--workers", "0"),
        ("--workers", "1" + "0" * 21),
        ("--n-components", "0"),
    ],
)
def test_a_number_out_of_range_is_refused_not_replaced(table, option, value):
    fit = ["fit", table, "-s", "sex", "-o", table.with_name("m"), "--solver", "power"]
    assert option in run(*fit, option, value, code=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "", "-s", "sex", "-k", "1", "-o", "m"],
        ["fit", ".", "-s", "sex", "-k", "1", "-o", ""],
        ["fit", ".", "-s", "sex", "-k", "1", "-o", "m", "--checkpoint", ""],
        ["transform", "", "d.csv", "-o", "z.npy"],
        ["merge", "a", "", "-o", "m"],
        ["inspect", ""],
        ["demo", "--folder", ""],
    ],
)
def test_an_empty_path_is_not_the_current_folder(arguments):
    assert "path is empty" in run(*arguments, code=2).stderr


# Terminals ----------------------------------------------------------------------------------------

STEERING = "\x1b]0;pwned\x07\x9b31m\u202e"


def assert_harmless(text):
    assert "pwned" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_nothing_from_data_steers_the_terminal(table):
    fit = ["-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    named = table.with_name(f"{STEERING}.csv")
    head, *rows = table.read_text().splitlines()
    named.write_text("\n".join([head.replace("a", STEERING), *rows[:-1], "1,2,3,4"]), encoding="utf-8")
    assert_harmless(run("fit", named, *fit, code=1).stderr)  # a bad row, and the file's name
    assert_harmless(run("--debug", "fit", named, *fit, code=1).stderr)
    table.write_text("\n".join([head.replace("a", STEERING), *rows]), encoding="utf-8")
    assert_harmless(run("fit", table, "-s", "gender", *fit[2:], code=1).stderr)  # names of columns
    run("fit", table, *fit)
    table.write_text("\n".join([head.replace("a", f"={STEERING}"), *rows]), encoding="utf-8")
    run("fit", table, *fit)
    warning = run("erase", table.with_name("m"), table, "-o", table.with_name("e.csv")).stderr
    assert "Warning" in warning
    assert_harmless(warning)
    assert_harmless(run("fit", table, f"--{STEERING}", code=2).stderr)
    assert_harmless(run(f"--{STEERING}", code=2).stderr)


def test_our_own_layout_is_kept(capsys):
    say("a\tb\n\x1bc")
    assert capsys.readouterr().out == "a\tb\n\\x1bc\n"


def test_only_say_prints():
    for path in (SOURCE / "cli").glob("*.py"):
        calls = re.findall(r"\b(?:click\.s?echo|print)\(", path.read_text(encoding="utf-8"))
        assert len(calls) == (path.name == "answers.py"), path.name


# Exit codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 74),
        (PermissionError(errno.EACCES, "Permission denied"), 74),
        (FileNotFoundError(errno.ENOENT, "No such file"), 1),
        (FileNotFoundError("x does not exist: check the path"), 1),
        (ValueError("no"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes_tell_errors_apart_and_are_documented(table, monkeypatch, error, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("fairstream.cli.learning.fit_source", fail)
    fit = ["fit", table, "-s", "sex", "-k", 1, "-m", 0, "-o", table.with_name("m")]
    assert "Traceback" not in run(*fit, code=code).output
    documented = re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(), flags=re.MULTILINE)
    assert documented == ["0", "1", "2", "3", "4", "74", "130", "143"]


def test_a_full_disk_behind_another_error_is_still_a_full_disk(table, monkeypatch):
    def fail(*_, **__):
        try:
            raise OSError(errno.EIO, "Input/output error")
        except OSError:
            raise ValueError("d.csv cannot be read") from None

    monkeypatch.setattr("fairstream.cli.learning.fit_source", fail)
    run("fit", table, "-s", "sex", "-k", 1, "-o", table.with_name("m"), code=74)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_ctrl_c_says_what_is_kept(table, monkeypatch, checkpoint):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fairstream.cli.learning.fit_source", stop)
    fit = ["fit", table, "-s", "sex", "-k", 1, "-o", table.with_name("m")]
    text = run(*fit, *(["--checkpoint", table.with_name("c")] if checkpoint else []), code=130).stderr
    assert f"{table.with_name('m')} not written" in text
    assert ("only what" in text) if checkpoint else ("nothing is kept of this fit" in text)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    rng = np.random.default_rng(0)
    np.save(folder / "X.npy", rng.normal(size=(20_000, 20)))
    np.save(folder / "sex.npy", rng.integers(0, 2, 20_000))
    how = ["-s", f"sex={folder / 'sex.npy'}"]
    run("fit", folder / "X.npy", *how, "-k", 3, "-o", folder / "m")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_transform_leaves_no_draft_and_says_so(slow, tmp_path, number, code):
    out = tmp_path / "z.npy"
    line = [*COMMAND, "transform", slow / "m", slow / "X.npy", "--block-size", "1", "-o", out]
    process = subprocess.Popen([*map(str, line)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".z.npy*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "z.npy not written" in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_while_importing_is_quiet_and_130(tmp_path):
    # A module that the command imports and that takes long, told apart by a file that it makes.
    (tmp_path / "threadpoolctl.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'here')!r}).touch()\ntime.sleep(60)\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(SOURCE.parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*COMMAND, "fit", "--help"],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "here").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == ""


@pytest.mark.slow
def test_importing_the_library_leaves_ctrl_c_alone():
    code = "import signal, fairstream; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_click_still_runs_commands_within_programs(tmp_path):
    with pytest.raises(click.UsageError):
        main(["inspect"], standalone_mode=False)
