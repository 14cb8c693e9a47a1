"""n_unfair="auto": as many directions as stand out of what chance shows."""

import numpy as np
import pytest
from support.command import answer

from fairstream import FairEraser, FairStreamingPCA, GroupMoments, solve
from fairstream.subspace.noise_floor import noise_floor


def _planted(n_directions, n=6_000, d=20, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) * np.linspace(3, 1, d)
    X[sex == 1, :n_directions] *= 1.5
    return X, sex


@pytest.mark.parametrize("n_directions", [0, 1, 4])
def test_auto_nulls_as_many_directions_as_differ(n_directions):
    X, sex = _planted(n_directions)
    model = solve(GroupMoments(20).update(X, {"sex": sex}), 4, "auto")
    assert model.parameters["n_unfair"] == {"sex": n_directions}
    assert len(model.unfair_basis) == 1 + n_directions


def test_with_shuffled_labels_auto_nulls_nothing_of_the_second_moments():
    X, sex = _planted(6)
    shuffled = np.random.default_rng(1).permutation(sex)
    moments = GroupMoments(20).update(X, {"sex": shuffled})
    assert solve(moments, 4, "auto").parameters["n_unfair"] == {"sex": 0}
    assert solve(moments, 4, "auto", "covariance").parameters["n_unfair"] == {"sex": 1}  # else plain PCA


@pytest.mark.parametrize("spectrum", [np.ones(60), 1 / np.arange(1, 61), np.r_[100.0, np.ones(59)]])
def test_the_floor_is_above_nearly_all_gaps_of_equal_groups_and_not_far_above(spectrum):
    rng = np.random.default_rng(0)
    tops = []
    for _ in range(40):
        X, inside = rng.normal(size=(2_000, 60)) * np.sqrt(spectrum), np.arange(2_000) < 500
        gap = X[inside].T @ X[inside] / 500 - X[~inside].T @ X[~inside] / 1_500
        tops.append(np.abs(np.linalg.eigvalsh(gap)).max())
    floor = noise_floor(spectrum, 500, 1_500)
    assert np.quantile(tops, 0.9) < floor < 4 * np.median(tops)


def test_auto_leaves_room_for_the_components_and_has_a_cap():
    X, sex = _planted(20)
    moments = GroupMoments(20).update(X, {"sex": sex})
    assert solve(moments, 3, "auto").parameters["n_unfair"] == {"sex": 10}
    assert solve(moments, 15, "auto").parameters["n_unfair"] == {"sex": 4}


def test_every_attribute_has_its_own_number():
    X, sex = _planted(3)
    race = np.random.default_rng(2).choice(["a", "b", "c"], len(X))
    moments = GroupMoments(20).update(X, {"sex": sex, "race": race})
    assert solve(moments, 4, "auto").parameters["n_unfair"] == {"sex": 3, "race": 0}


def test_a_sketch_and_relative_directions_take_auto_too():
    X, sex = _planted(3, d=400, n=8_000)
    X *= np.r_[np.full(10, 8.0), np.ones(390)]
    moments = GroupMoments(400, rank=60).update(X, {"sex": sex})
    assert solve(moments, 4, "auto").parameters["n_unfair"] == {"sex": 3}
    relative = solve(moments, 4, "auto", directions="relative")
    assert relative.parameters["n_unfair"] == {"sex": 3}
    assert len(relative.unfair_basis) == 4


def test_estimators_take_auto_and_resolve_it_again():
    X, sex = _planted(4)
    pca = FairStreamingPCA(4, n_unfair="auto").fit(X, sensitive_features={"sex": sex})
    assert pca.unfair_basis_.shape == (5, 20)
    assert FairStreamingPCA(4).fit(X, sensitive_features=sex).resolve(n_unfair="auto").n_unfair == "auto"
    eraser = FairEraser(n_unfair="auto").fit(X, sensitive_features=sex)
    assert eraser.unfair_basis_.shape == (5, 20)
    np.testing.assert_array_equal(
        FairStreamingPCA(4, n_unfair=4).fit(X, sensitive_features={"sex": sex}).components_, pca.components_
    )


def test_what_auto_cannot_mean_is_refused():
    X, sex = _planted(1)
    with pytest.raises(ValueError, match="n_unfair='auto' needs moments"):
        FairStreamingPCA(2, n_unfair="auto", solver="power").fit(X, sensitive_features=sex)
    with pytest.raises(
        ValueError, match="n_unfair='some': give a whole number from 0, one per attribute, or"
    ):
        FairStreamingPCA(2, n_unfair="some").fit(X, sensitive_features=sex)


def test_the_command_line_takes_auto(tmp_path):
    X, sex = _planted(2)
    np.save(tmp_path / "rows.npy", np.column_stack([X, sex]))
    fit = [
        "fit",
        tmp_path / "rows.npy",
        "-s",
        20,
        "-k",
        3,
        "-m",
        "auto",
        "-o",
        tmp_path / "model.safetensors",
    ]
    assert answer(*fit, "--json")["parameters"]["n_unfair"] == {"column_20": 2}
