"""Choices on the command line: shares of variance and intersections of attributes."""

import numpy as np
import pytest
from support.command import answer, run

from fairstream import FairStreamingPCA, fit_source, load, open_source

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture
def people(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 8)) * np.arange(1, 9), columns=list("abcdefgh"))
    frame = frame.assign(sex=rng.choice(["f", "m"], 400), race=rng.choice(["x", "y"], 400))
    frame.to_csv(tmp_path / "d.csv", index=False)
    return tmp_path, frame


def test_a_share_of_the_variance_chooses_the_number_of_components(people):
    folder, frame = people
    facts = answer("fit", folder / "d.csv", "-s", "sex", "-s", "race", "-k", 0.9, "-o", folder / "model")
    labels = frame[["sex", "race"]]
    expected = FairStreamingPCA(0.9).fit(frame.drop(columns=["sex", "race"]), sensitive_features=labels)
    assert facts["n_components"] == expected.n_components_ > 1
    run("moments", folder / "d.csv", "-s", "sex", "-s", "race", "-o", folder / "m")
    solved = answer("solve", folder / "m", "-k", 0.9, "-o", folder / "model")
    assert solved["n_components"] == expected.n_components_
    assert answer("frontier", folder / "m", "-k", 0.5, "-m", 1)


@pytest.mark.parametrize("value", ["0", "1.5", "-3", "many", "nan"])
def test_what_is_neither_a_number_nor_a_share_is_refused(people, value):
    folder, _ = people
    fit = ["fit", folder / "d.csv", "-s", "sex", "-k", value, "-o", folder / "model"]
    assert "neither a whole number" in run(*fit, code=2).stderr


@pytest.mark.parametrize("command", ["fit", "moments"])
def test_intersections_are_groups_too(people, command):
    folder, _ = people
    line = [command, folder / "d.csv", "-s", "sex", "-s", "race", "-o", folder / "out"]
    line += ["-k", 1, "--constraint", "mean"] if command == "fit" else []
    groups = answer(*line, "--intersections", "sex,race")["groups"]
    assert [*groups] == ["sex", "race", "sex & race"]
    assert len(groups["sex & race"]) == 4
    assert "sex & race" not in answer(*line)["groups"]  # the control
    assert "names no two attributes" in run(*line, "--intersections", "sex", code=2).stderr
    assert "'age'" in run(*line, "--intersections", "sex,age", code=1).stderr


def test_intersections_are_the_library_s(people):
    folder, frame = people
    fit = ["fit", folder / "d.csv", "-s", "sex", "-s", "race", "--intersections", "sex,race", "-k", 2]
    run(*fit, "--constraint", "mean", "-o", folder / "model")
    source = open_source(frame, sensitive_features=["sex", "race"])
    pca = FairStreamingPCA(2, constraint="mean", intersections=[("sex", "race")])
    expected = fit_source(source, pca).subspace_
    np.testing.assert_allclose(load(folder / "model").components, expected.components, atol=1e-10)
