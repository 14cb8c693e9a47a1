import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.brute_force import fair_pca, largest_sine, unfair_columns
from support.command import run

from fairstream import (
    FairStreamingPCA,
    FairstreamWarning,
    GroupMoments,
    fair_components,
    frontier,
    solve,
    unfair_basis,
)


def problem(seed, d, attributes, groups, n=None):
    """Random rows whose groups differ in mean and covariance, in general position."""
    rng = np.random.default_rng(seed)
    n = n or 40 * d
    labels = [rng.integers(0, groups, n) for _ in range(attributes)]
    X = rng.normal(size=(n, d)) * np.linspace(3, 1, d)
    for column in labels:
        for group in range(groups):
            rows = column == group
            X[rows] = X[rows] @ (np.eye(d) + 0.4 * rng.normal(size=(d, d)) / np.sqrt(d)) + 0.5 * rng.normal(
                size=d
            )
    return X, labels


def summary(X, labels, **options):
    return GroupMoments(X.shape[1], **options).update(X, {f"a{i}": column for i, column in enumerate(labels)})


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(3, 60),
    attributes=st.integers(1, 3),
    groups=st.integers(2, 5),
    m=st.integers(0, 4),
    constraint=st.sampled_from(["none", "mean", "covariance", "all"]),
    data=st.data(),
)
def test_closed_form_equals_brute_force(seed, d, attributes, groups, m, constraint, data):
    assume(not (constraint == "covariance" and m == 0))
    X, labels = problem(seed, d, attributes, groups)
    assume(m < d)
    if constraint == "none":
        U_true, V_true, spectrum = fair_pca(X, [], d, 0, "none")
    else:
        U_true, V_true, spectrum = fair_pca(X, labels, d, m, constraint)
    room = d - U_true.shape[1]
    assume(room >= 1)
    k = data.draw(st.integers(1, room), label="k")
    # The subspace is only defined up to the gap behind component k.
    assume(k == room or spectrum[k - 1] - spectrum[k] > 1e-5 * spectrum[0])
    moments = summary(X, labels)
    U = unfair_basis(moments, m, constraint)
    V, variances = fair_components(moments, U, k)
    assert U.shape == U_true.shape
    assert largest_sine(U, U_true) < 1e-8
    assert largest_sine(V, V_true[:, :k]) < 1e-8
    assert np.allclose(variances, spectrum[:k])
    assert np.abs(U.T @ U - np.eye(U.shape[1])).max(initial=0) < 1e-10
    assert np.abs(V.T @ V - np.eye(k)).max() < 1e-10
    assert np.abs(U.T @ V).max(initial=0) < 1e-10


@pytest.mark.parametrize("groups", [2, 4])
def test_group_means_coincide_after_projection(groups):
    X, labels = problem(1, 20, 2, groups)
    subspace = solve(summary(X, labels), 5, 1, "mean")
    Z = subspace.embed(X)
    plain = solve(summary(X, labels), 5, constraint="none").embed(X)
    for column in labels:
        means = np.array([Z[column == g].mean(axis=0) for g in range(groups)])
        assert np.ptp(means, axis=0).max() < 1e-10
        # The control: plain PCA leaks the group mean.
        leaked = np.array([plain[column == g].mean(axis=0) for g in range(groups)])
        assert np.ptp(leaked, axis=0).max() > 0.1


def test_second_moments_coincide_when_every_gap_direction_is_nulled():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 10))
    X[sex == 1, :2] *= [3.0, 0.3]
    moments = GroupMoments(10).update(X, sex)
    gaps = [point.covariance_gap["sensitive_feature_0"] for point in frontier(moments, 3, range(6))]
    plain = frontier(moments, 3, [0], constraint="none")[0].covariance_gap["sensitive_feature_0"]
    assert gaps[2] < 0.05 * plain
    assert plain > 1


def test_the_oja_example_of_the_paper():
    """S = -2 e1e1' + e2e2' + 4 e3e3' and m = 2: the negative direction e1 counts, e2 does not."""
    base = np.vstack([np.eye(3), -np.eye(3)]) * np.sqrt(3)
    inside = base * np.sqrt([1.0, 4.0, 7.0] * np.ones(3))
    outside = base * np.sqrt([3.0, 3.0, 3.0])
    moments = GroupMoments(3).update(np.vstack([inside, outside]), np.repeat([1, 0], 6))
    assert np.allclose(moments.second_moment_gap("sensitive_feature_0", 1).to_dense(), np.diag([-2, 1, 4]))
    U = unfair_basis(moments, 2, "covariance")
    assert np.abs(U[1]).max() < 1e-12


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), directions=st.sampled_from(["absolute", "relative"]))
def test_variance_is_below_pcas_and_falls_with_every_direction_nulled(seed, directions):
    X, labels = problem(seed, 15, 1, 2)
    moments = summary(X, labels)
    pca = frontier(moments, 4, [0], constraint="none")[0].explained_variance_ratio
    ratios = [
        point.explained_variance_ratio for point in frontier(moments, 4, range(8), directions=directions)
    ]
    assert all(0 <= ratio <= pca + 1e-12 for ratio in ratios)
    if directions == "absolute":
        assert all(b <= a + 1e-10 for a, b in pairwise(ratios))


def test_frontier_equals_solving_one_by_one():
    X, labels = problem(3, 30, 2, 3)
    moments = summary(X, labels)
    for point in frontier(moments, 3, [0, 2], constraint="all"):
        subspace = solve(moments, 3, point.n_unfair)
        assert point.n_removed == len(subspace.unfair_basis)
        assert point.explained_variance_ratio == pytest.approx(subspace.explained_variance_ratio.sum())
        f = moments.mean_gap("a0", 0)
        assert point.mean_gap["a0"] >= np.linalg.norm(subspace.components @ f) - 1e-12
        assert set(point.to_dict()) == {
            "n_unfair", "n_screened", "n_removed", "explained_variance_ratio", "mean_gap", "covariance_gap",
        }  # fmt: skip


def test_m_per_attribute():
    X, labels = problem(4, 20, 2, 2)
    moments = summary(X, labels)
    assert unfair_basis(moments, {"a0": 3, "a1": 0}).shape == (20, 5)
    for wrong in ({"a0": 1}, {"a0": 1, "a1": 1, "age": 1}):
        with pytest.raises(ValueError, match="give one number for each"):
            unfair_basis(moments, wrong)


def test_relative_directions_find_where_the_ratio_is_largest():
    """A weak direction in which the groups differ tenfold, beside a strong one where it is a fifth."""
    rng = np.random.default_rng(0)
    sex = np.repeat([0, 1], 4000)
    X = rng.normal(size=(8000, 12)) * np.array([10, 1, *np.full(10, 0.1)])
    X[sex == 1, 0] *= 1.2
    X[sex == 1, 1] *= 3.0
    moments = GroupMoments(12).update(X, sex)
    relative = unfair_basis(moments, 1, "covariance", "relative", n_components=3)
    absolute = unfair_basis(moments, 1, "covariance", "absolute")
    assert abs(relative[1, 0]) > 0.95
    assert abs(absolute[0, 0]) > 0.99


def test_relative_keeps_more_variance_at_a_smaller_ratio_gap():
    rng = np.random.default_rng(1)
    sex = np.repeat([0, 1], 4000)
    X = rng.normal(size=(8000, 30)) * np.arange(1, 31) ** -1.0
    X[sex == 1] *= np.where(np.arange(30) % 5 == 4, 2.0, 1.1)
    moments = GroupMoments(30).update(X, sex)
    kept = {
        d: solve(moments, 8, 4, directions=d).explained_variance_ratio.sum() for d in ("absolute", "relative")
    }
    assert kept["relative"] > 2 * kept["absolute"]


def test_no_room_says_how_many_directions_each_attribute_takes_and_what_helps():
    rng = np.random.default_rng(0)
    labels = {"sex": rng.integers(0, 2, 400), "race": rng.integers(0, 4, 400)}
    moments = GroupMoments(8).update(rng.normal(size=(400, 8)), labels)
    with pytest.raises(ValueError, match=r"8 unfair directions fill all of n_features=8") as full:
        solve(moments, 4, 2)
    assert "'sex' takes up to 3, 'race' takes up to 11" in str(full.value)
    assert "n_components" not in str(full.value), "fewer components cannot help"
    for way_out in ("lower n_unfair", "leave a sensitive attribute out", "join groups", "add features"):
        assert way_out in str(full.value)
    assert solve(moments, 4, 0).n_components == 4, "the advice works"
    with pytest.raises(ValueError, match="lower n_components to 4, or leave a sensitive") as means:
        solve(moments, 5, constraint="mean")
    assert "n_unfair" not in str(means.value), "no second-moment direction is nulled"
    assert solve(moments, 4, constraint="mean").n_components == 4
    with pytest.raises(ValueError, match="'sex' takes up to 3"):
        frontier(moments, 4, [2])


def test_plain_pca_needs_no_second_group():
    moments = GroupMoments(3).update(np.random.default_rng(0).normal(size=(20, 3)), {"sex": ["f"] * 20})
    assert solve(moments, 2, constraint="none").n_components == 2


def test_too_many_directions_name_the_numbers():
    X, labels = problem(5, 6, 1, 2)
    with pytest.raises(
        ValueError, match=r"n_components=4 and 3 unfair directions do not fit into n_features=6"
    ):
        solve(summary(X, labels), 4, 2)


def test_directions_at_rounding_level_are_not_nulled_silently():
    rng = np.random.default_rng(0)
    sex = np.repeat([0, 1], 100)
    X = rng.normal(size=(200, 6))
    X[100:] = X[:100]
    X[100:, 0] *= 2
    with pytest.warns(FairstreamWarning, match="only 2 directions above rounding"):
        U = unfair_basis(GroupMoments(6).update(X, sex), 3, "covariance")
    assert U.shape[1] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"constraint": "both"}, "constraint='both' is not one of"),
        ({"directions": "up"}, "directions='up'"),
        ({"n_unfair": -1}, "n_unfair=-1"),
        ({"n_unfair": 1.5}, "n_unfair=1.5"),
        ({"n_unfair": True}, "n_unfair=True"),
        ({"n_unfair": 99}, "n_unfair=99"),
        ({"n_components": 2.5}, "n_components=2.5"),
        ({"n_unfair": 0, "constraint": "covariance"}, "nulls nothing"),
        ({"directions": "relative", "n_components": None}, "give n_components"),
    ],
)
def test_wrong_choices_are_named(arguments, says):
    X, labels = problem(6, 8, 1, 2)
    with pytest.raises(ValueError, match=says):
        solve(summary(X, labels), **{"n_components": 2, **arguments})


def test_rank_deficient_data_still_gives_components_outside_u():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 30))
    sex = np.arange(10) % 2
    for rank in (None, 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairstreamWarning)
            subspace = solve(GroupMoments(30, rank=rank).update(X, sex), 15, 2)
        V, U = subspace.components, subspace.unfair_basis
        assert np.abs(V @ V.T - np.eye(15)).max() < 1e-10
        assert np.abs(U @ V.T).max() < 1e-10


def test_a_sketch_too_narrow_for_the_components_says_so():
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(300, 60)), np.arange(300) % 2
    moments = GroupMoments(60, rank=3).update(X, sex)
    with pytest.warns(FairstreamWarning, match="take a larger rank"):
        V, _ = fair_components(moments, unfair_basis(moments), 40)
    assert np.abs(V.T @ V - np.eye(40)).max() < 1e-10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fair_components(GroupMoments(60, rank=60).update(X, sex), unfair_basis(moments), 40)


@pytest.mark.parametrize("constraint", ["none", "mean", "covariance", "all"])
def test_a_frontier_without_numbers_goes_as_far_as_there_is_room(constraint):
    X, labels = problem(5, 6, 1, 2)
    points = frontier(summary(X, labels), 2, constraint=constraint)
    assert [point.n_unfair for point in points] == {
        "none": [0, 1, 2, 3, 4, 5],
        "mean": [0, 1, 2, 3, 4, 5],
        "covariance": [1, 2, 3, 4],
        "all": [0, 1, 2, 3],
    }[constraint]
    with pytest.raises(ValueError, match="do not fit"):
        frontier(summary(X, labels), 6)


def test_relative_directions_of_constant_rows_are_none():
    moments = GroupMoments(5).update(np.ones((9, 5)), [0, 1, 1] * 3)
    assert unfair_basis(moments, 2, directions="relative", n_components=2).shape == (5, 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_relative_directions_where_the_mean_gaps_hold_all_variance(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1)) @ rng.normal(size=(1, 6))
    moments = GroupMoments(6, dtype=dtype).update(X, np.arange(40) % 2)
    assert unfair_basis(moments, 2, directions="relative", n_components=2).shape == (6, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [None, 9])
def test_relative_directions_end_where_the_variance_does(rank, dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(400, 6)) @ rng.normal(size=(6, 20))).astype(dtype)
    groups = {"sex": rng.integers(0, 2, 400), "race": rng.integers(0, 3, 400)}
    moments = GroupMoments(20, rank, dtype).update(X, groups)
    U = unfair_basis(moments, 4, directions="relative", n_components=3).astype(np.float64)
    assert U.shape == (20, 6)  # of 3 mean gaps and 4 x 4 directions asked for
    left = X.astype(np.float64) @ (np.eye(20) - U @ U.T)
    assert np.square(left).sum() < 1e-6 * np.square(X).sum(dtype=np.float64)


def test_float32_is_orthonormal_to_its_precision():
    X, labels = problem(7, 50, 1, 2)
    for rank in (None, 30):
        moments = summary(X.astype(np.float32), labels, rank=rank, dtype=np.float32)
        subspace = solve(moments, 5, 3)
        assert subspace.components.dtype == np.float32
        V, U = subspace.components, subspace.unfair_basis
        assert np.abs(V @ V.T - np.eye(5)).max() < 1e-5
        assert np.abs(U @ U.T - np.eye(len(U))).max() < 1e-5
        assert np.abs(U @ V.T).max() < 1e-5


def test_a_planted_bug_is_caught():
    """The control of the brute-force comparison: nulling by signed eigenvalue gives another subspace."""
    X, labels = problem(8, 10, 1, 2)
    moments = summary(X, labels)
    values, vectors = np.linalg.eigh(moments.second_moment_gap("a0", 1).to_dense())
    assert values.min() < 0 < values.max()
    signed = vectors[:, np.argsort(-values)[:3]]
    assert largest_sine(signed, unfair_columns(X, labels, 3, "covariance")) > 0.1


@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_values_that_overflow_are_refused_not_silently_left_unfair(solver):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 200)
    X = (rng.normal(size=(200, 6)) + sex[:, None]).astype(np.float32)
    pca = FairStreamingPCA(n_components=2, solver=solver, random_state=0)
    with pytest.raises(ValueError, match=r"values up to .*e\+2\d: .*rescale X"):
        pca.fit(X * np.float32(1e20), sensitive_features=sex)
    assert pca.fit(X * np.float32(1e12), sensitive_features=sex).unfair_basis_.shape == (2, 6)


def test_moments_that_have_overflowed_are_refused_when_solving():
    moments = GroupMoments(4, dtype=np.float32).update(np.eye(4), np.arange(4) % 2)
    moments._scatter.cores[0, 0, 0] = np.inf
    with pytest.raises(ValueError, match="overflowed"):
        unfair_basis(moments)


def test_a_mean_gap_that_nearly_is_a_gap_direction_is_nulled_to_the_last_digit():
    """A gap of 1e5 standard deviations is almost the leading eigenvector of S; almost would leave a gap."""
    rng = np.random.default_rng(0)
    sex = np.repeat([0, 1], [300, 700])
    X = rng.normal(size=(1000, 8)) * np.arange(1, 9)
    X[sex == 1] += 1e5
    subspace = solve(GroupMoments(8).update(X, sex), 3, 2)
    f = X[sex == 1].mean(axis=0) - X[sex == 0].mean(axis=0)
    assert np.linalg.norm(subspace.components @ f) < 1e-12 * np.linalg.norm(f)


def test_a_weak_gap_beside_a_strong_feature_is_not_taken_for_rounding():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 10)) * np.array([1e4, *np.ones(9)])
    X[sex == 1, 5] *= 2
    moments = GroupMoments(10).update(X, sex)
    assert unfair_basis(moments, 2, "covariance").shape[1] == 2


def test_columns_on_very_different_scales_are_pointed_out():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 500)
    X = rng.normal(size=(500, 6)) + sex[:, None]
    X[:, 0] *= 1e5
    with pytest.warns(FairstreamWarning, match="standardise them first"):
        solve(GroupMoments(6).update(X, sex), 2, constraint="mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(GroupMoments(6).update(X / X.std(axis=0), sex), 2, constraint="mean")


# Damaged moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ["mean", "covariance", "all"])
def test_a_negative_total_variance_is_an_error_and_not_an_empty_basis(constraint):
    rng = np.random.default_rng(0)
    moments = GroupMoments(5).update(rng.normal(size=(100, 5)), rng.integers(0, 2, 100))
    moments._scatter.cores[0] -= 10 * moments.total_variance * 100 * np.eye(5)
    with pytest.raises(ValueError, match="the total variance has come to -"):
        unfair_basis(moments, constraint=constraint)


def test_rows_that_are_all_alike_are_no_damage():
    X = np.full((50, 4), 1234.5678)
    for rank in (None, 2):
        moments = GroupMoments(4, rank).update(X, np.arange(50) % 2)
        assert unfair_basis(moments, constraint="mean").shape == (4, 0)


@pytest.mark.parametrize("rank", [None, 3])
def test_moments_with_nan_are_refused_before_lapack_sees_them(rank):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(100, 8)), rng.integers(0, 2, 100)
    for slot in (0, 1):
        moments = GroupMoments(8, rank).update(X, sex)
        moments._scatter.cores[slot, 0, 1] = np.nan
        with pytest.raises(ValueError, match="NaN or infinite"):
            solve(moments, 2)


@pytest.fixture(scope="module")
def adult_moments():
    from fairstream.datasets import load_adult

    table = load_adult(backend="numpy", drop_missing=True)
    features = [name for name in table if name not in ("sex", "race", "income")]
    columns = []
    for name in features:
        values = table[name]
        if values.dtype == object:
            columns += [values == level for level in sorted(set(values.tolist()))]
        else:
            columns.append(values)
    X = np.column_stack(columns).astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return GroupMoments(X.shape[1]).update(X, {"sex": table["sex"], "race": table["race"]})


def test_a_frontier_warns_where_more_nulled_directions_leave_a_larger_gap(adult_moments):
    with pytest.warns(FairstreamWarning, match="gap of 'race' rises again: .* at n_unfair=") as caught:
        points = frontier(adult_moments, 10, range(10), directions="relative")
    said = " ".join(str(warning.message) for warning in caught)
    gaps = [point.covariance_gap["race"] for point in points]
    assert f"at n_unfair={int(np.argmin(gaps))}," in said
    assert max(gaps[int(np.argmin(gaps)) :]) > min(gaps) + 0.05 * gaps[0]


def test_more_relative_directions_than_adult_has_variance_for_are_no_error(adult_moments):
    U = unfair_basis(adult_moments, 15, directions="relative", n_components=10)
    assert U.shape[1] == np.linalg.matrix_rank(adult_moments.covariance().to_dense(), tol=1e-6)


def test_a_frontier_that_falls_is_silent(adult_moments):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        frontier(adult_moments, 10, range(5), directions="absolute")


def test_the_command_line_shows_that_a_frontier_rises_again(adult_moments, tmp_path):
    adult_moments.save(tmp_path / "adult.moments")
    shown = run("frontier", tmp_path / "adult.moments", "-k", 10, "-m", 9, "--directions", "relative")
    assert "Warning: the covariance gap of 'race' rises again" in shown.stderr


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("constraint", ["all", "mean", "covariance", "none"])
@pytest.mark.parametrize("where", ["means", "weights", "cores"])
def test_moments_poisoned_in_memory_are_refused_and_never_reach_lapack(rank, constraint, where):
    rng = np.random.default_rng(0)
    moments = GroupMoments(9, rank).update(rng.normal(size=(200, 9)), {"s": ["a", "b"] * 100})
    solve(moments, 2, constraint=constraint)  # the control
    moments.to_state()[1][where].flat[-1] = np.nan  # the arrays themselves, not copies
    with pytest.raises(ValueError, match="NaN or infinite values"):
        solve(moments, 2, constraint=constraint)
    if constraint != "none":
        with pytest.raises(ValueError, match="NaN or infinite values"):
            frontier(moments, 2, [1], constraint=constraint)
