"""Screened columns: found by their gap, whole variables at a time, exactly zero in every component."""

import numpy as np
import pytest

from fairstream import FairstreamWarning, GroupMoments, frontier, load, solve
from fairstream.data.schema import Schema
from fairstream.errors import NoRoomError
from fairstream.subspace.screen import ranked_variables, screened_features, standardised_gaps

N = 3_000
ENCODING = {
    "columns": [
        {"name": "age", "kind": "number", "width": 1},
        {"name": "relationship", "kind": "category", "categories": ["Husband", "Own-child", "Wife"]},
        {"name": "hours", "kind": "number", "width": 1},
        {"name": "job", "kind": "category", "categories": ["clerk", "driver"]},
        {"name": "noise", "kind": "number", "width": 3},
    ]
}
NAMES = (
    *("age", "relationship=Husband", "relationship=Own-child", "relationship=Wife", "hours"),
    *("job=clerk", "job=driver", "noise_0", "noise_1", "noise_2"),
)


@pytest.fixture(params=[None, 8], ids=["exact", "sketch"])
def people(request):
    """Sex is told by relationship above all, then by hours, hardly by age, not at all by the rest."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N)
    married = rng.random(N) < 0.5
    relation = np.where(married, np.where(sex == "m", 0, 2), 1)
    job = rng.integers(0, 2, N)
    X = np.c_[
        rng.normal(size=N) * 3 + 0.3 * (sex == "m"),
        np.eye(3)[relation],
        rng.normal(size=N) * 2 + 2.0 * (sex == "m"),
        np.eye(2)[job],
        rng.normal(size=(N, 3)),
    ]
    moments = GroupMoments(10, request.param, sample=400).update(X, {"sex": sex})
    moments.schema = Schema(NAMES, ENCODING)
    return X, sex, moments


def test_variables_are_ranked_by_their_strongest_column(people):
    X, sex, moments = people
    expected = np.abs(X[sex == "m"].mean(axis=0) - X[sex == "f"].mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(standardised_gaps(moments), expected, rtol=0.1, atol=0.02)
    ranked = ranked_variables(standardised_gaps(moments), moments.schema)
    assert [name for name, _, _ in ranked][:3] == ["relationship", "hours", "age"]


def test_numbers_limits_and_names_leave_out_whole_variables(people):
    _, _, moments = people
    assert screened_features(moments, None).tolist() == screened_features(moments, 0).tolist() == []
    assert screened_features(moments, 1).tolist() == [1, 2, 3]
    assert screened_features(moments, 2).tolist() == [1, 2, 3, 4]
    assert screened_features(moments, 0.5).tolist() == [1, 2, 3, 4]
    assert screened_features(moments, ["job", "age"]).tolist() == [0, 5, 6]
    assert screened_features(moments, ["relationship=Wife"]).tolist() == [3]
    with pytest.raises(ValueError, match="screen names 'income', which is no column: these are: "):
        screened_features(moments, ["income"])
    with pytest.raises(ValueError, match="leaves out all 10 features: ask for less"):
        screened_features(moments, 5)


@pytest.mark.parametrize("choices", [{}, {"directions": "relative", "n_unfair": 2}, {"constraint": "none"}])
def test_components_are_exactly_zero_in_screened_columns(people, choices, tmp_path):
    X, _, moments = people
    found = solve(moments, 3, screen=1, **choices)
    assert not found.components[:, 1:4].any()
    assert np.abs(solve(moments, 3, **choices).components[:, 1:4]).max() > 0  # the control
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(3), atol=1e-9)
    assert np.abs(found.components @ found.unfair_basis.T).max() < 1e-9
    found.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert not again.components[:, 1:4].any()
    changed = X.copy()
    changed[:, 1:4] = 7.0
    np.testing.assert_array_equal(again.embed(changed), again.embed(X))
    assert again.parameters["n_screened"] == 3


def test_nulled_directions_are_not_spent_on_screened_columns(people):
    X, sex, moments = people
    kept = [0, 4, 5, 6, 7, 8, 9]
    inside = GroupMoments(7, None if moments.rank is None else 7).update(X[:, kept], {"sex": sex})
    alone, screened = solve(inside, 3, n_unfair=2), solve(moments, 3, n_unfair=2, screen=1)
    cosines = np.linalg.svd(alone.components @ screened.components[:, kept].T, compute_uv=False)
    assert cosines.min() > (1 - 1e-9 if moments.rank is None else 0.95)


def test_a_frontier_has_a_curve_for_every_number_of_screened_columns(people):
    _, _, moments = people
    points = frontier(moments, 2, [0, 1], screen=[0, 1, 2])
    assert [(point.n_screened, point.n_unfair) for point in points] == [
        (0, 0), (0, 1), (3, 0), (3, 1), (4, 0), (4, 1),
    ]  # fmt: skip
    for point in points:
        number = {0: 0, 3: 1, 4: 2}[point.n_screened]
        expected = solve(moments, 2, point.n_unfair, screen=number).explained_variance_ratio.sum()
        assert point.explained_variance_ratio == pytest.approx(expected)


@pytest.mark.parametrize("screen", [-1, True, 0.0, [], [1], "sex", float("inf")])
def test_a_screen_that_means_nothing_is_refused(screen):
    with pytest.raises(ValueError, match=r"screen=.*: give a number of columns from 0, a limit above 0"):
        solve(GroupMoments(3).update(np.eye(3), [0, 1, 0]), 1, screen=screen)


# The guard, as a choice -----------------------------------------------------------------------------


def test_a_guard_is_a_choice_of_solve_and_without_it_nothing_changes(people):
    _, _, moments = people
    plain, guarded = solve(moments, 2, constraint="none"), solve(moments, 2, constraint="none", guard=5.0)
    np.testing.assert_array_equal(
        plain.components, solve(moments, 2, constraint="none", guard=0.0).components
    )
    assert np.abs(plain.components[:, 4]).max() > 0.5 > np.abs(guarded.components[:, 4]).max()
    assert guarded.parameters["guard"] == 5.0
    np.testing.assert_array_equal(
        guarded.components, solve(moments, 2, constraint="none", guard=5.0).components
    )


def test_merged_samples_give_the_same_guarded_components():
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(2_100, 6)), rng.integers(0, 2, 2_100)
    X[:, 0] = np.where(sex == 1, np.sign(X[:, 0]), X[:, 0])
    whole = GroupMoments(6, sample=300).update(X, sex)
    merged = GroupMoments(6, sample=300)
    for part in np.array_split(np.arange(2_100), 7):
        merged.merge(GroupMoments(6, sample=300).update(X[part], sex[part]))
    first, again = (solve(moments, 2, constraint="none", guard=1.0) for moments in (whole, merged))
    np.testing.assert_allclose(np.abs(first.components), np.abs(again.components), atol=1e-4)


def test_a_guard_and_a_screen_work_together(people):
    _, _, moments = people
    found = solve(moments, 2, constraint="none", guard=1.0, screen=2)
    assert not found.components[:, 1:5].any()


def test_a_guard_says_what_it_needs():
    X = np.random.default_rng(0).normal(size=(50, 4))
    with pytest.raises(ValueError, match="guard needs a sample of rows"):
        solve(GroupMoments(4).update(X, np.arange(50) % 2), 2, guard=1.0)
    moments = GroupMoments(4, sample=20).update(X, np.arange(50) % 2)
    with pytest.raises(ValueError, match="keep_target needs the target of the sampled rows"):
        solve(moments, 2, guard=1.0, keep_target=1.0)
    with pytest.raises(ValueError, match=r"keep_target=1\.0 has no meaning without guard"):
        solve(moments, 2, keep_target=1.0)
    with pytest.raises(ValueError, match="guard=-1: give a price from 0"):
        solve(moments, 2, guard=-1)
    with pytest.raises(ValueError, match="guard has no groups to hide"):
        solve(GroupMoments(4, sample=20).update(X), 2, constraint="none", guard=1.0)


def test_a_guard_that_still_rises_warns(people, monkeypatch):
    _, _, moments = people
    monkeypatch.setattr("fairstream.subspace.guard.LITTLE_GAIN", -1.0)
    with pytest.warns(FairstreamWarning, match="the guard has not converged"):
        solve(moments, 2, constraint="none", guard=1.0)


def wide_gaps(d=8):
    rng = np.random.default_rng(0)
    sex = np.arange(400) % 2
    return GroupMoments(d).update(rng.normal(size=(400, d)) + np.outer(sex, np.arange(d)), {"sex": sex})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"n_components": 5}, r"leaves 3 of 8 columns, too few for n_components=5 and the unfair directions"),
        ({"n_components": 1, "n_unfair": 3}, r"leaves 3 of 8 columns, too few for n_components=1"),
        ({"n_unfair": 2}, r"leaves 3 of 8 columns, too few for any component .*: screen fewer, or lower n_u"),
    ],
)
def test_a_screen_that_leaves_too_little_room_is_named(choices, message):
    with pytest.raises(NoRoomError, match=f"screen=5 {message}"):
        solve(wide_gaps(), screen=5, **choices)
    assert solve(wide_gaps(), screen=1, **choices).parameters["n_screened"] == 1  # the control


def test_a_frontier_of_a_screen_ends_where_the_room_does():
    points = frontier(wide_gaps(), n_components=1, constraint="covariance", screen=5)
    assert [point.n_unfair for point in points] == [1, 2]
