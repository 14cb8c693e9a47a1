"""Groups of a few rows: a fit says what they cost, a model file leaves them out, other files warn of them."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import answer, run

from fairstream import (
    FairImagePCA,
    FairStreamingPCA,
    FairstreamWarning,
    GroupMoments,
    fit_source,
    load,
    open_source,
    solve,
)
from fairstream.cli.describe import inspect_file
from fairstream.data.small_groups import withheld_groups
from fairstream.files.format import read_file

N, D = 600, 24
SECRET = 17  # the row of the only member of its group
CAUTION = "holds the moments of fewer than 20 rows: sex='x' (1 row); treat as row-level data"

quiet = pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")


def people(n_small=1, n_unknown=0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) @ rng.normal(size=(D, D))
    sex = rng.choice(["f", "m"], N, p=[0.4, 0.6]).astype(object)
    sex[SECRET : SECRET + n_small] = "x"
    sex[300 : 300 + n_unknown] = None
    return X, sex


def fitted(X, sex, kind=FairStreamingPCA, **options):
    return kind(1, **options).fit(X, sensitive_features={"sex": sex})


def holds(path, row):
    """Whether any array of the file has the row, bit for bit or to rounding."""
    _, arrays = read_file(path)
    width = len(row)
    return any(
        array.ndim == 2 and array.shape[1] == width and np.isclose(array, row, rtol=1e-9).all(axis=1).any()
        for array in arrays.values()
    )


# A model file -------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_a_model_file_does_not_hold_the_row_of_a_group_of_one(tmp_path, solver):
    X, sex = people()
    pca = fitted(X, sex, solver=solver, random_state=0)
    assert np.allclose(pca.group_means_["sex"]["x"], X[SECRET], rtol=1e-9)  # in memory it is all there
    pca.subspace_.save(tmp_path / "model")
    assert not holds(tmp_path / "model", X[SECRET])
    opened = load(tmp_path / "model")
    assert [*opened.group_means["sex"]] == [*opened.group_counts["sex"]] == ["m"]
    assert opened.withheld_groups == {"sex": ("f", "x")}
    assert opened.groups == {"sex": ("f", "m", "x")}
    pca.moments_.save(tmp_path / "moments") if solver != "power" else pca.save(tmp_path / "moments")
    assert holds(tmp_path / "moments", X[SECRET])  # which such a file says of itself, see below


@quiet
def test_the_total_and_the_other_groups_do_not_give_a_small_group_away(tmp_path):
    X, sex = people()
    fitted(X, sex).subspace_.save(tmp_path / "model")
    opened = load(tmp_path / "model")
    counts, means = opened.group_counts["sex"], opened.group_means["sex"]
    n_left = opened.n_rows - sum(counts.values())
    left = opened.n_rows * opened.mean - sum(counts[label] * means[label] for label in counts)
    assert n_left >= 20
    assert np.allclose(left / n_left, X[sex != "m"].mean(axis=0))  # of many rows, not of one
    # Without the second group withheld, the difference is the row.
    whole = fitted(X, sex)
    others = sum(whole.group_counts_["sex"][g] * whole.group_means_["sex"][g] for g in "fm")
    assert np.allclose(N * whole.mean_ - others, X[SECRET])


@quiet
def test_a_single_row_of_unknown_group_is_not_given_away_either(tmp_path):
    X, sex = people(n_small=0, n_unknown=1)
    fitted(X, sex).subspace_.save(tmp_path / "model")
    assert load(tmp_path / "model").withheld_groups == {"sex": ("f",)}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(0, 40), st.integers(1, 30))
def test_what_is_withheld_is_nothing_or_many_rows(sizes, n_unknown, least):
    counts = {"a": dict(enumerate(sizes))}
    n_rows = sum(sizes) + n_unknown
    withheld = withheld_groups(counts, n_rows, least).get("a", ())
    published = {label: n for label, n in counts["a"].items() if label not in withheld}
    rest = n_rows - sum(published.values())
    assert not any(0 < n < least for n in published.values())
    assert rest == 0 or rest >= least or not any(published.values())
    if n_unknown == 0 and min(sizes) >= least:
        assert not withheld


@pytest.mark.parametrize("kind", [FairStreamingPCA, FairImagePCA])
def test_large_groups_are_stored_as_they_are(tmp_path, kind):
    X, sex = people(n_small=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca = fitted(X, sex, kind)
        pca.subspace_.save(tmp_path / "model")
        pca.save(tmp_path / "fit")
    opened = load(tmp_path / "model")
    assert opened.withheld_groups == {}
    assert opened.group_counts == pca.group_counts_
    for label, mean in pca.group_means_["sex"].items():
        assert np.array_equal(opened.group_means["sex"][label], mean)
    assert load(tmp_path / "fit").group_counts_ == pca.group_counts_


@quiet
def test_a_model_of_several_channels_withholds_in_each(tmp_path):
    X, sex = people()
    pca = fitted(X, sex, FairImagePCA)
    pca.subspace_.save(tmp_path / "model")
    opened = load(tmp_path / "model")
    assert opened.withheld_groups == {"sex": ("f", "x")}
    assert [*opened.group_means["sex"]] == ["m"]
    assert "channel_residual_mean_gap" in inspect_file(tmp_path / "model")
    assert np.array_equal(opened.embed(X), pca.transform(X))


@quiet
def test_a_model_that_was_loaded_saves_the_same_file_again(tmp_path):
    X, sex = people()
    fitted(X, sex).subspace_.save(tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@quiet
@pytest.mark.parametrize("kind", [FairStreamingPCA, FairImagePCA])
def test_an_attribute_of_which_nothing_can_be_told_keeps_its_labels_only(tmp_path, kind):
    X, _ = people()
    subspace = fitted(X, np.arange(N) < 3, kind).subspace_
    subspace.save(tmp_path / "model")
    for published in (subspace.publishable(), load(tmp_path / "model")):
        assert published.group_counts == published.group_means == {}
        assert published.groups == {"sex": (False, True)}


@pytest.mark.parametrize("name", ["format-1.safetensors", "format-1-channels.safetensors"])
def test_old_models_load_whole_and_leave_small_groups_out_when_saved_again(tmp_path, name):
    old = load(Path(__file__).parent / "stored" / name)
    assert {*old.group_means["sex"]} == {*"fm"}  # of 4 rows each
    with pytest.warns(FairstreamWarning, match="learned from 8 rows"):
        old.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.group_means == {}
    assert again.groups == {"sex": ("f", "m"), "old": (False, True)}


@quiet
def test_min_group_size_is_the_users_choice_and_travels_with_the_model(tmp_path):
    X, sex = people(n_small=5)
    for least, withheld in ((5, {}), (6, {"sex": ("f", "x")})):
        pca = fitted(X, sex, min_group_size=least)
        pca.subspace_.save(tmp_path / "model")
        assert load(tmp_path / "model").withheld_groups == withheld
        assert load(tmp_path / "model").parameters["min_group_size"] == least
    pca.save(tmp_path / "fit")
    assert load(tmp_path / "fit").min_group_size == 6
    power = fitted(X, sex, solver="power", min_group_size=5, random_state=0)
    assert power.subspace_.publishable().withheld_groups == {}


@pytest.mark.parametrize("size", [0, -1, 2.5, None, True, "20"])
def test_a_min_group_size_that_is_none_is_refused(size):
    X, sex = people()
    for kind in (FairStreamingPCA, FairImagePCA):
        with pytest.raises(ValueError, match=r"min_group_size=.*: give a whole number of rows from 1"):
            fitted(X, sex, kind, min_group_size=size)


def test_a_model_of_a_few_rows_says_so_when_it_is_saved(tmp_path):
    X, _ = people()
    subspace = FairStreamingPCA(1, constraint="none").fit(X[:19]).subspace_
    with pytest.warns(FairstreamWarning, match="learned from 19 rows, fewer than min_group_size=20"):
        subspace.save(tmp_path / "model")


# Files to go on from ------------------------------------------------------------------------------


def test_moments_and_estimator_files_with_small_groups_warn_when_saved(tmp_path):
    X, sex = people()
    moments = GroupMoments(D).update(X, {"sex": sex})
    with pytest.warns(FairstreamWarning, match=r"sex='x' \(1 row\); treat as row-level data"):
        moments.save(tmp_path / "moments")
    assert inspect_file(tmp_path / "moments")["caution"] == CAUTION
    for kind in (FairStreamingPCA, FairImagePCA):
        estimator = kind(1).partial_fit(X, sensitive_features={"sex": sex})
        with pytest.warns(FairstreamWarning, match="save subspace_, which leaves such groups out"):
            estimator.save(tmp_path / "fit")
        assert inspect_file(tmp_path / "fit")["caution"] == CAUTION
        assert load(tmp_path / "fit").n_samples_seen_ == N


@quiet
@pytest.mark.parametrize("solver", ["exact", "power"])
def test_a_checkpoint_says_in_inspect_that_it_holds_small_groups(tmp_path, solver):
    X, sex = people()
    options = {"step_rows": (200, 200), "power_steps": (1, 2)} if solver == "power" else {}
    source = open_source(X, sensitive_features={"sex": sex}, block_size=300)
    fit_source(source, n_components=1, solver=solver, **options, checkpoint=tmp_path / "c", every=300)
    for file in (tmp_path / "c").iterdir():
        assert inspect_file(file)["caution"] == CAUTION


def test_rows_of_unknown_group_and_few_rows_in_all_are_cautioned_about_too(tmp_path):
    X, sex = people(n_small=0, n_unknown=2)
    moments = GroupMoments(D).update(X, {"sex": sex})
    with pytest.warns(FairstreamWarning, match=r"rows: sex unknown \(2 rows\); treat"):
        moments.save(tmp_path / "moments")
    with pytest.warns(FairstreamWarning, match=r"rows: all rows there are \(4 rows\); treat"):
        GroupMoments(D).update(X[:4]).save(tmp_path / "moments")


def test_moments_of_large_groups_are_saved_without_a_word(tmp_path):
    X, sex = people(n_small=0, n_unknown=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GroupMoments(D).update(X, {"sex": sex}).save(tmp_path / "moments")
    assert inspect_file(tmp_path / "moments")["caution"] is None


# What a fit says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "added", "removed"),
    [
        ({}, 3, 5),
        ({"n_unfair": 2}, 5, 8),
        ({"n_unfair": {"sex": 2}}, 5, 8),
        ({"constraint": "mean"}, 1, 2),
        ({"constraint": "covariance"}, 2, 3),
        ({"directions": "relative"}, 3, 5),
        ({"solver": "sketch"}, 3, 5),
        ({"solver": "power", "random_state": 0}, 3, 5),
    ],
)
def test_a_fit_says_which_groups_are_small_and_how_many_directions_they_cost(options, added, removed):
    X, sex = people(n_small=2)
    says = rf"min_group_size=20 rows in sex='x' \(2 rows\): they add up to {added} of {removed} nulled"
    with pytest.warns(FairstreamWarning, match=says):
        pca = fitted(X, sex, **options)
    assert len(pca.unfair_basis_) == removed
    with warnings.catch_warnings():  # the way out
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the power method has not converged")
        sex[sex == "x"] = None
        assert len(fitted(X, sex, **options).unfair_basis_) == removed - added


def test_inspect_shows_what_small_groups_cost(tmp_path):
    X, sex = people(n_small=2)
    with pytest.warns(FairstreamWarning, match="add up to 3 of 5"):
        fitted(X, sex).subspace_.save(tmp_path / "model")
    facts = inspect_file(tmp_path / "model")
    assert facts["parameters"]["small_group_directions"] == {"sex": 3}
    assert facts["n_removed"] == 5
    assert facts["groups"] == {"sex": {"m": int((sex == "m").sum())}}
    assert facts["withheld_groups"] == {"sex": ["f", "x"]}


def test_solve_and_partial_fit_warn_when_something_is_solved():
    X, sex = people(n_small=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        half = FairStreamingPCA(1).partial_fit(X, sensitive_features={"sex": sex})
        fitted(X, sex, min_group_size=2)
        FairStreamingPCA(1, constraint="none").fit(X, sensitive_features={"sex": sex})
    with pytest.warns(FairstreamWarning, match="2 rows"):
        assert half.components_.shape == (1, D)
    with pytest.warns(FairstreamWarning, match="2 rows"):
        solve(half.moments_, 1)


def test_many_small_groups_are_not_all_listed():
    X, _ = people()
    names = np.array([f"g{i % 8}" if i < 40 else "large" for i in range(N)])
    with pytest.warns(FairstreamWarning, match=r"'g4' \(5 rows\) and 3 more: they add up to 8 of 8 nulled"):
        fitted(X, names, constraint="mean")


def test_small_groups_that_leave_no_room_are_named_beside_the_error():
    X, _ = people()
    names = np.array([f"g{i:02}" for i in np.arange(N) % 40])
    with (
        pytest.warns(FairstreamWarning, match=r"'g04' \(15 rows\) and 35 more: they add up to 24 of 24"),
        pytest.raises(ValueError, match="leave no room for any component"),
    ):
        fitted(X, names, constraint="mean")


def test_the_command_line_prints_what_the_file_holds(tmp_path):
    X, sex = people(n_small=2)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]).assign(sex=sex)
    data, model = tmp_path / "data.csv", tmp_path / "model"
    frame.to_csv(data, index=False)
    fit = run("fit", data, "-s", "sex", "-k", 1, "-o", model, "--json")
    shown = json.loads(fit.stdout)
    assert "sex='x' (2 rows)" in fit.stderr
    assert shown["withheld_groups"] == {"sex": ["f", "x"]}
    read = answer("inspect", model)
    assert shown["groups"] == read["groups"]
    assert shown["withheld_groups"] == read["withheld_groups"]
    moments = tmp_path / "moments"
    run("moments", data, "-s", "sex", "-o", moments)
    assert CAUTION.replace("1 row", "2 rows") in run("inspect", moments).stdout


def test_the_answer_of_a_fit_tells_no_withheld_count_by_subtraction(tmp_path):
    X, sex = people(n_small=2)
    labels = sex.astype(object)
    labels[np.flatnonzero(labels == "m")[:25]] = None
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]).assign(sex=labels)
    frame.to_csv(tmp_path / "data.csv", index=False)
    shown = answer("fit", tmp_path / "data.csv", "-s", "sex", "-k", 1, "-o", tmp_path / "model")
    assert shown["withheld_groups"] == {"sex": ["x"]}
    assert shown["rows_without_label"] == {"sex": "at most 27"}
    assert "fewer than 20 rows" in shown["withheld_because"]
    # The control: 25 beside the rest would have told the two rows of x.
    assert shown["n_rows"] - sum(shown["groups"]["sex"].values()) - 25 == 2
