"""The audit command: a fitted model, rows it has not seen, three renderings and a summary."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from support.command import run

from fairstream.datasets import load_adult

pq = pytest.importorskip("pyarrow.parquet")
READING = ["--sensitive", "sex", "--target", "income"]
BRIEF = ["--attacker", "linear", "--sample", 800]
pytestmark = pytest.mark.usefixtures("few_families")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    adult = load_adult(backend="pyarrow")
    pq.write_table(adult.slice(0, 4_000), folder / "seen.parquet")
    pq.write_table(adult.slice(40_000, 1_500), folder / "unseen.parquet")
    numbers = "age,education-num,capital-gain,capital-loss,hours-per-week,fnlwgt"
    fit = ["fit", folder / "seen.parquet", *READING, "--features", numbers, "--standardize", "-k", 2]
    run(*fit, "-m", 1, "-o", folder / "fair.safetensors")
    run(*fit, "--constraint", "mean", "-o", folder / "mean.safetensors")
    return folder


@pytest.mark.slow
def test_audit_writes_what_it_is_asked_for(folder):
    files = [folder / name for name in ("report.json", "report.html", "report.md")]
    result = run(
        "audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING,
        "--against", "pca", "--against", folder / "mean.safetensors", *BRIEF,
        "--json", files[0], "--html", files[1], "--markdown", files[2], "--title", "Sex & <income>",
    )  # fmt: skip
    report = json.loads(files[0].read_text())
    assert report["headline"] in result.stdout
    for model in report["models"][:2]:
        score = (
            f"income is predicted from the embedding at AUC {model['task']['auc']['value']:.3f}, from plain"
        )
        assert f"\n{model['name'].capitalize()}: {score} PCA 0." in f"\n{result.stdout}"
    assert report["reproduction"]["command"]
    assert [item["name"] for item in report["reproduction"]["inputs"]] == ["unseen.parquet"]
    names = [model["name"] for model in report["models"]]
    assert names[:2] == ["fair", "mean"]
    assert any("PCA" in name for name in names)
    assert "Sex &amp; &lt;income&gt;" in files[1].read_text()
    assert files[2].read_text().startswith("# ")


@pytest.mark.slow
def test_auditing_the_rows_of_the_fit_is_said_first(folder):
    result = run("audit", folder / "fair.safetensors", folder / "seen.parquet", *READING, *BRIEF)
    assert "fitted on" in result.stdout.splitlines()[0]
    unseen = run("audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING, *BRIEF)
    assert "fitted on" not in unseen.stdout.splitlines()[0]
    refused = ["audit", folder / "fair.safetensors", folder / "seen.parquet", *READING, *BRIEF]
    assert "was fitted on: audit other rows" in run(*refused, "--seen-rows", "refuse", code=1).output


def test_two_models_of_one_name_are_refused(folder):
    fair = folder / "fair.safetensors"
    result = run("audit", fair, folder / "unseen.parquet", *READING, "--against", fair, code=1)
    assert "rename one of the files" in result.output


@pytest.mark.slow
def test_the_report_calls_the_model_by_the_name_it_is_given(folder):
    how = ["audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING, *BRIEF]
    assert "\nfair: " in "\n" + run(*how).stdout
    assert "\nThe fair one: " in "\n" + run(*how, "--name", "the fair one").stdout


def test_small_groups_are_left_out_as_asked(folder):
    how = ["audit", folder / "fair.safetensors", folder / "unseen.parquet", "--sensitive", "race", *BRIEF]
    sizes = []
    for least in (5, 40):
        run(*how, "--min-group-size", least, "--json", folder / f"race{least}.json")
        sizes.append(
            json.loads((folder / f"race{least}.json").read_text())["data"]["attributes"][0]["groups"]
        )
    assert len(sizes[0]) > len(sizes[1])
    assert min(sizes[0].values()) < 40 <= min(sizes[1].values())


def test_the_exit_code_tells_whether_a_limit_holds(folder, monkeypatch):
    monkeypatch.setattr(
        "fairstream.auditing.measure.leaks.FAMILIES", ("linear",)
    )  # as if there were no others
    how = ["audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING, *BRIEF]
    run(*how, "--limit", 0.8, code=0)
    told = run(*how, "--limit", 0.51, code=4).stdout
    assert "cannot be confirmed" in told
    assert re.search(r"\nFair: sex: Cannot tell: .*; the limit of 0\.510 lies between its bounds, ", told)
    assert "limit" in run(*how, "--limit", 1.5, code=2).output
    columns = "relationship,marital-status,age,hours-per-week"
    leaky = ["fit", folder / "seen.parquet", *READING, "--features", columns, "--standardize", "-k", 4]
    run(*leaky, "--constraint", "none", "-o", folder / "plain.safetensors")
    how = ["audit", folder / "plain.safetensors", folder / "unseen.parquet", *READING, *BRIEF]
    result = run(*how, "--limit", 0.55, "--json", folder / "limited.json", code=3)
    assert "the limit of 0.55 does not hold for sex" in result.stdout
    report = json.loads((folder / "limited.json").read_text())
    assert report["models"][0]["answer"] == "does not hold"


def test_intersections_are_crossed_as_asked(folder):
    how = ["audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING, *BRIEF]
    run(*how, "--sensitive", "race", "--intersections", "sex,race", "--json", folder / "crossed.json")
    report = json.loads((folder / "crossed.json").read_text())
    parts = report["models"][0]["decisions"]["by_attribute"]
    assert [part["attribute"] for part in parts] == ["sex", "race", "sex and race"]


# tune -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table in which three columns tell the group and others do not, and moments of it with a sample."""
    folder = tmp_path_factory.mktemp("tuning")
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 1_200)
    X = rng.normal(size=(1_200, 6)) * [3, 2, 1.5, 1, 1, 1]
    X[:, 0] += 6 * group
    np.save(folder / "X.npy", X)
    np.save(folder / "sex.npy", group)
    return folder


@pytest.mark.slow
def test_tune_writes_a_model_and_exits_by_its_verdict(people):
    data, model = people / "X.npy", people / "model"
    options = ["-s", f"sex={people / 'sex.npy'}", "-k", "1,2", "--attack", "standard", "--json"]
    done = run("tune", data, *options, "--limit", 0.75, "--candidates", people / "tried.csv", "-o", model)
    answer = json.loads(done.stdout)
    assert answer["verdicts"] == {"sex": "holds"}
    assert answer["leak"] < 0.75
    assert answer["best_read"] is None  # one attribute of two groups: there is nobody to name
    assert "keeps" in done.stderr
    header, *lines = (people / "tried.csv").read_text().splitlines()
    assert header.startswith("n_components,constraint")
    assert sum(line.endswith("True") for line in lines) == 1
    facts = json.loads(run("inspect", model, "--json").stdout)
    assert facts["kind"] == "FairSubspace"
    assert sum(facts["groups"]["sex"].values()) < 0.7 * facts["n_rows"]  # else there is nothing to explain
    said = "without about 35% of the rows, which tuning held back to judge and confirm by"
    assert facts["groups_counted"] == said
    assert re.search(rf"^groups counted +{said}$", run("inspect", model).stdout, re.MULTILINE)


@pytest.mark.slow
def test_tune_reads_moments_with_a_sample_and_refuses_senseless_wishes(people):
    data, moments = people / "X.npy", people / "moments"
    labels = ["-s", f"sex={people / 'sex.npy'}"]
    run("moments", data, *labels, "--sample", 2_000, "-o", moments)
    tuned = run("tune", moments, "--keep", 0.3, "-k", 2, "--attack", "standard", "-o", people / "m", "--json")
    assert json.loads(tuned.stdout)["variance"] > 0
    facts = json.loads(run("inspect", people / "m", "--json").stdout)
    assert sum(facts["groups"]["sex"].values()) == facts["n_rows"]  # of moments the sample alone is divided
    assert "groups_counted" not in facts
    for wrong, words in ((["--limit", 0.3], "--limit 0.3"), ([], "--limit"), (["-k", "x"], "5,10,20")):
        refused = run("tune", data, *labels, *wrong, "-o", people / "n", code=2 if "-k" in wrong else 1)
        assert words in refused.stderr


def test_inspect_prints_the_digest_that_a_report_prints(folder, tmp_path):
    report, page = tmp_path / "report.json", tmp_path / "report.md"
    run(
        "audit", folder / "fair.safetensors", folder / "unseen.parquet", *READING, *BRIEF,
        "--json", report, "--markdown", page,
    )  # fmt: skip
    told = json.loads(report.read_text())["models"][0]["digest"]
    assert f"(model digest (SHA-256) {told})" in page.read_text().replace("\\", "")
    lines = run("inspect", folder / "fair.safetensors").stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("model digest ")] == [told]
    other = json.loads(run("inspect", folder / "mean.safetensors", "--json").stdout)["model_digest"]
    assert other != told


def test_categories_unknown_to_the_model_can_be_ignored(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.normal(size=(400, 3)), columns=["a", "b", "c"])
    people["job"], people["sex"] = rng.choice(["x", "y"], 400), rng.choice(["f", "m"], 400)
    people.to_csv(tmp_path / "people.csv", index=False)
    unseen = people.assign(a=people.a + 1).replace({"job": {"y": "z"}})
    unseen.to_csv(tmp_path / "unseen.csv", index=False)
    run(
        "fit",
        tmp_path / "people.csv",
        "--sensitive",
        "sex",
        "-k",
        2,
        "-m",
        0,
        "-o",
        tmp_path / "my.safetensors",
    )
    how = ["audit", tmp_path / "my.safetensors", tmp_path / "unseen.csv", "--sensitive", "sex", *BRIEF]
    assert "--unseen ignore" in run(*how, code=1).output
    assert "plain PCA" in run(*how, "--unseen", "ignore").stdout

    run(
        "fit",
        tmp_path / "people.csv",
        "--sensitive",
        "sex",
        "-k",
        2,
        "--standardize",
        "-o",
        tmp_path / "other.safetensors",
    )
    refused = run(*how, "--unseen", "ignore", "--against", tmp_path / "other.safetensors", code=1).output
    assert "encoded or scaled otherwise: fit models to be compared on one encoding" in refused
    assert "open_like" not in refused
