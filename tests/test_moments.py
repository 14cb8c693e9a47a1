import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import mean_gap, second_moment_gap

from fairstream import GroupMoments, NotEnoughGroupsError, fair_components, solve, unfair_basis
from fairstream.linalg import memory, principal_angles, top_eigenpairs
from fairstream.linalg.gathering import GatheredRows
from fairstream.linalg.products import centred_rows
from fairstream.moments import sketch
from fairstream.moments.sketch_step import leading_axes, orthonormal_rows

RANKS = [None, 16]  # exact, and a sketch of `widened` rows, wide enough to lose nothing


def make(rng, n=400, d=12, offset=0.0):
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + offset
    race = rng.choice(["a", "b", "c"], n)
    sex = rng.integers(0, 2, n).astype(object)
    sex[rng.random(n) < 0.1] = None
    X[sex == 1, 0] += 1
    return X, {"race": race, "sex": sex}


def widened(X, rank):
    """Return X, for a sketch with constant columns beside: of few features it keeps exact moments."""
    return X if rank is None else np.hstack([X, np.zeros((len(X), 40 - X.shape[1]), dtype=X.dtype)])


def rows_of(labels, rows):
    return {name: column[rows] for name, column in labels.items()}


def assert_same_statistics(moments, X, labels, tolerance=1e-10):
    scale = np.abs(np.cov(X.T, ddof=0)).max()
    assert np.abs(moments.covariance().to_dense() - np.cov(X.T, ddof=0)).max() < tolerance * scale
    assert np.abs(moments.mean() - X.mean(axis=0)).max() < tolerance * max(1, np.abs(X).max())
    for attribute, column in labels.items():
        for group in moments.groups[attribute]:
            assert moments.count(attribute, group) == sum(label == group for label in column)
        for _, group in moments.comparisons(attribute):
            f = mean_gap(X, column, group)
            assert np.abs(moments.mean_gap(attribute, group) - f).max() < tolerance * max(1, np.abs(X).max())
            S = second_moment_gap(X, column, group)
            assert (
                np.abs(moments.second_moment_gap(attribute, group).to_dense() - S).max()
                < tolerance * scale * 10
            )
            block = np.ones((X.shape[1], 2))
            assert np.allclose(
                moments.second_moment_gap(attribute, group) @ block, S @ block, atol=1e-6 * scale
            )


@pytest.mark.parametrize("rank", RANKS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_into_blocks_gives_the_statistics_of_the_whole(rank, data):
    X, labels = make(np.random.default_rng(data.draw(st.integers(0, 1000))), n=120, d=6)
    X = widened(X, rank)
    cuts = sorted(data.draw(st.sets(st.integers(1, 119), max_size=12)))
    moments = GroupMoments(X.shape[1], rank=rank)
    for start, stop in zip([0, *cuts], [*cuts, 120], strict=True):
        moments.update(X[start:stop], rows_of(labels, slice(start, stop)))
    assert moments.n_rows == 120
    assert_same_statistics(moments, X, labels)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_merging_in_any_order_equals_one_pass(rng, rank, parts):
    X, labels = make(rng)
    X = widened(X, rank)
    where = rng.integers(0, parts, len(X))
    summaries = [
        GroupMoments(X.shape[1], rank=rank).update(X[where == j], rows_of(labels, where == j))
        for j in range(parts)
    ]
    untouched = summaries[-1].copy()
    total = GroupMoments(X.shape[1], rank=rank)
    for j in rng.permutation(parts):
        total.merge(summaries[j])
    assert_same_statistics(total, X, labels)
    assert np.array_equal(summaries[-1].covariance().to_dense(), untouched.covariance().to_dense())


@pytest.mark.parametrize("rank", RANKS)
def test_an_offset_of_ten_thousand_costs_float32_nothing(rng, rank):
    X, labels = make(rng, n=2000)
    X = widened(X, rank)
    shifted = (X + 1e4).astype(np.float32)
    exact_shifted = shifted.astype(np.float64)
    moments = GroupMoments(X.shape[1], rank=rank, dtype=np.float32)
    for start in range(0, 2000, 150):
        moments.update(shifted[start : start + 150], rows_of(labels, slice(start, start + 150)))
    reference = np.cov(exact_shifted.T, ddof=0)
    error = np.abs(moments.covariance().to_dense() - reference).max() / np.abs(reference).max()
    assert error < 1e-5
    # Group means too, also where the groups come one after the other: a residual gap would be unfair.
    order = np.argsort(labels["race"], kind="stable")
    in_order = GroupMoments(X.shape[1], rank=rank, dtype=np.float32)
    for rows in np.array_split(order, 14):
        in_order.update(shifted[rows], rows_of(labels, rows))
    for label in np.unique(labels["race"]):
        truth = exact_shifted[labels["race"] == label].mean(axis=0)
        assert np.abs(in_order.mean("race", label) - truth).max() < 1e-6
    # The control: raw sums in float32 lose everything at that offset.
    raw = shifted.T @ shifted / np.float32(2000) - np.outer(shifted.mean(axis=0), shifted.mean(axis=0))
    assert np.abs(raw - reference).max() / np.abs(reference).max() > 0.1


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_equals_dense(rng, rank, form):
    X, labels = make(rng)
    X = widened(X, rank)
    X[rng.random(X.shape) < 0.7] = 0
    sparse = GroupMoments(X.shape[1], rank=rank).update(form(X), labels)
    assert_same_statistics(sparse, X, labels)
    weights = np.arange(len(X)) % 3
    dense = GroupMoments(X.shape[1], rank=rank).update(X, labels, sample_weight=weights)
    sparse = GroupMoments(X.shape[1], rank=rank).update(form(X), labels, sample_weight=weights)
    assert np.abs(sparse.covariance().to_dense() - dense.covariance().to_dense()).max() < 1e-10


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "bool", "int8"])
def test_every_number_type_in_every_memory_layout(rng, rank, dtype, tmp_path):
    X = (rng.random((200, 12)) * (1 if dtype == "bool" else 100)).round().astype(dtype)
    X = widened(X, rank)
    labels = {"sex": rng.integers(0, 2, 200)}
    np.save(tmp_path / "X.npy", X)
    read_only = X.copy()
    read_only.setflags(write=False)
    for form in (
        X,
        np.asfortranarray(X),
        read_only,
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        X[::-1][::-1],
    ):
        moments = GroupMoments(X.shape[1], rank=rank).update(form, labels)
        assert_same_statistics(moments, X.astype(float), labels)


@pytest.mark.parametrize("rank", RANKS)
def test_an_integer_weight_equals_repetition(rng, rank):
    X, labels = make(rng, n=100)
    X = widened(X, rank)
    weights = rng.integers(0, 4, 100)
    weighted = GroupMoments(X.shape[1], rank=rank).update(X, labels, sample_weight=weights)
    repeated = GroupMoments(X.shape[1], rank=rank).update(
        np.repeat(X, weights, axis=0), {a: np.repeat(c, weights) for a, c in labels.items()}
    )
    assert weighted.n_rows == repeated.n_rows == weights.sum()
    assert np.allclose(weighted.covariance().to_dense(), repeated.covariance().to_dense())
    for pair in repeated.comparisons():
        assert weighted.count(*pair) == repeated.count(*pair)
        assert np.allclose(
            weighted.second_moment_gap(*pair).to_dense(), repeated.second_moment_gap(*pair).to_dense()
        )


def test_counts_stay_exact_beyond_two_to_the_31(rng):
    moments = GroupMoments(2)
    for _ in range(3):
        moments.update(np.eye(2), ["a", "b"], sample_weight=[2.0**32, 1.0])
    assert moments.count("sensitive_feature_0", "a") == 3 * 2**32
    assert moments.n_rows == 3 * 2**32 + 3


def test_a_label_first_seen_later_is_a_new_group(rng):
    X, _ = make(rng, n=300)
    labels = {"race": np.array(["a"] * 100 + ["b"] * 100 + ["c"] * 100)}
    moments = GroupMoments(12)
    for start in range(0, 300, 50):
        moments.update(X[start : start + 50], rows_of(labels, slice(start, start + 50)))
    assert moments.groups == {"race": ("a", "b", "c")}
    assert_same_statistics(moments, X, labels)


def test_rows_of_unknown_group_count_for_the_total_only(rng):
    X, _ = make(rng, n=90)
    sex = np.array([0, 1, None] * 30, dtype=object)
    moments = GroupMoments(12).update(X, {"sex": sex})
    assert moments.n_rows == 90
    assert moments.count("sex", 0) + moments.count("sex", 1) == 60
    assert_same_statistics(moments, X, {"sex": sex})


def test_comparisons_are_one_for_two_groups_and_one_versus_rest_for_more(rng):
    X, labels = make(rng)
    moments = GroupMoments(12).update(X, labels)
    assert moments.comparisons() == [("race", "a"), ("race", "b"), ("race", "c"), ("sex", 1)]


def test_one_group_only_cannot_be_compared(rng):
    moments = GroupMoments(3).update(rng.normal(size=(5, 3)), {"sex": ["f"] * 5})
    with pytest.raises(NotEnoughGroupsError, match="'sex' shows only 1 group"):
        moments.comparisons()
    with pytest.raises(NotEnoughGroupsError, match="'sex'"):
        moments.second_moment_gap("sex", "f")


def test_a_group_that_never_appeared_is_an_error_by_name(rng):
    X, labels = make(rng)
    moments = GroupMoments(12).update(X, labels)
    with pytest.raises(ValueError, match="group 'z' of 'race' never appeared"):
        moments.second_moment_gap("race", "z")
    with pytest.raises(ValueError, match="attribute 'age' is unknown"):
        moments.mean_gap("age", 1)


def bits(moments):
    return repr([a.tobytes() if isinstance(a, np.ndarray) else a for a in _leaves(vars(moments))])


def _leaves(value):
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if hasattr(value, "__dict__") and not isinstance(value, type | np.dtype):
        return _leaves(vars(value))
    return [value]


@pytest.mark.parametrize("rank", [None, 5])
@pytest.mark.parametrize(
    ("X", "groups", "weight", "says"),
    [
        (np.zeros((3, 4)), [0, 1, 0], None, "columns are expected"),
        (np.zeros((0, 12)), [], None, "no rows"),
        (np.full((3, 12), np.nan), [0, 1, 0], None, "NaN"),
        (np.full((3, 12), np.inf), [0, 1, 0], None, "infinite"),
        (np.full((3, 12), -1e200), [0, 1, 0], None, "overflow"),
        (np.full((3, 12), "a"), [0, 1, 0], None, "real numbers"),
        (np.zeros((3, 12), dtype=complex), [0, 1, 0], None, "real numbers"),
        (np.zeros((3, 12)), [0, 1], None, "has 2 rows, X has 3"),
        (np.zeros((3, 12)), None, None, "same attributes"),
        (np.zeros((3, 12)), {"other": [0, 1, 0]}, None, "same attributes"),
        (np.zeros((3, 12)), [0, 1, 0], [1, -1, 1], "weights must be >= 0"),
        (np.zeros((3, 12)), [0, 1, 0], [1, 1], "one weight per row"),
        (np.zeros((3, 12)), [0, 1, 0], [0, 0, 0], "zero for every row"),
    ],
)
def test_a_rejected_block_leaves_every_bit_as_it_was(rng, rank, X, groups, weight, says):
    moments = GroupMoments(12, rank=rank).update(rng.normal(size=(50, 12)), rng.integers(0, 2, 50))
    before = bits(moments)
    with pytest.raises(ValueError, match=says):
        moments.update(X, groups, weight)
    assert bits(moments) == before


@pytest.mark.parametrize("n_rows", [8, 900])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sketch_refuses_values_in_rows_that_wait_and_in_rows_of_a_step(rng, n_rows, dtype):
    X, sex = rng.normal(size=(n_rows, 40)).astype(dtype), rng.integers(0, 2, n_rows)
    moments = GroupMoments(40, 8, dtype).update(X, sex)
    assert moments.rows_wait == (n_rows == 8)
    before = bits(moments)
    for value, says in ((np.nan, "NaN"), (np.inf, "infinite"), (np.finfo(dtype).max / 4, "overflow")):
        bad = X.copy()
        bad[n_rows // 2, 3] = value
        with pytest.raises(ValueError, match=says):
            moments.update(bad, sex)
        assert bits(moments) == before
    moments.update(X, sex)  # the control
    assert moments.n_rows == 2 * n_rows


def test_sparse_rows_of_a_sketch_wait_for_more_entries_than_dense_ones(rng):
    X = sp.random_array((800, 300), density=0.02, format="csr", rng=rng)
    sex = rng.integers(0, 2, 800)
    sparse, dense = (GroupMoments(300, 60).update(rows, sex) for rows in (X, X.toarray()))
    assert sparse.rows_wait
    assert not dense.rows_wait
    sparse.update(X, sex), dense.update(X.toarray(), sex)
    assert not sparse.rows_wait
    assert sparse.lost_energy == pytest.approx(dense.lost_energy, rel=0.05)


def test_summaries_that_do_not_fit_are_not_merged(rng):
    one = GroupMoments(3).update(rng.normal(size=(5, 3)), {"sex": [0, 1, 0, 1, 0]})
    for other, says in [
        (GroupMoments(4), "n_features"),
        (GroupMoments(3, rank=1), "rank"),
        (GroupMoments(3, dtype=np.float32), "dtype"),
        (GroupMoments(3).update(np.eye(3), {"race": [0, 1, 2]}), "attributes"),
    ]:
        with pytest.raises(ValueError, match=says):
            one.merge(other)


def test_a_copy_does_not_move(rng):
    moments = GroupMoments(3, rank=2).update(rng.normal(size=(50, 3)), rng.integers(0, 2, 50))
    copy = moments.copy()
    before = bits(copy)
    moments.update(rng.normal(size=(50, 3)), rng.integers(0, 2, 50))
    assert bits(copy) == before != bits(moments)


def test_sketch_memory_does_not_grow_with_rows_and_never_holds_d_by_d(rng):
    d, rank = 500, 8
    moments = GroupMoments(d, rank=rank)
    sizes = []
    for _ in range(6):
        moments.update(rng.normal(size=(200, d)), rng.integers(0, 2, 200))
        sizes.append(moments.nbytes)
    assert len(set(sizes)) == 1
    assert sizes[0] < 8 * (2 * rank * d + 3 * d + 3 * (4 * rank) ** 2)


def test_lost_energy_counts_what_was_cut(rng):
    X = rng.normal(size=(1000, 60)) * np.arange(1, 61) ** -1.0
    moments = GroupMoments(60, rank=8).update(X, rng.integers(0, 2, 1000))
    assert moments.total_variance == pytest.approx(X.var(axis=0).sum(), rel=1e-10)
    kept = moments.covariance().trace() / moments.total_variance
    assert moments.lost_energy == pytest.approx(1 - kept, abs=1e-12)
    assert 0 < moments.lost_energy < 0.2
    assert GroupMoments(60).update(X).lost_energy == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_shared_basis_stays_orthonormal(rng, dtype):
    moments = GroupMoments(100, rank=10, dtype=dtype)
    for _ in range(150):
        moments.update(rng.normal(size=(30, 100)) * np.arange(1, 101) ** -0.7 + 5, rng.integers(0, 2, 30))
    basis = moments.covariance().basis[0]
    tolerance = 2e-5 if dtype == np.float32 else 1e-12
    assert np.abs(basis @ basis.T - np.eye(len(basis))).max() < tolerance


def test_one_row_at_a_time_through_the_sketch(rng):
    X = rng.normal(size=(300, 40)) * np.arange(1, 41) ** -1.0
    sex = rng.integers(0, 2, 300)
    moments = GroupMoments(40, rank=10)
    for i in range(300):
        moments.update(X[i : i + 1], sex[i : i + 1])
    assert moments.n_rows == 300
    assert moments.total_variance == pytest.approx(X.var(axis=0).sum())
    leading = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1][:5]
    assert np.allclose(top_eigenpairs(moments.covariance(), 5)[0], leading, rtol=0.03)


def few_rows(rng, n=37, d=60):
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -1.0
    return X, rng.integers(0, 2, n)


def in_pieces(X, sex, rank, size, between=lambda moments: None):
    moments = GroupMoments(X.shape[1], rank)
    for start in range(0, len(X), size):
        moments.update(X[start : start + size], sex[start : start + size])
        between(moments)
    return moments


def test_reading_while_rows_wait_changes_nothing_that_comes_later(rng, monkeypatch):
    monkeypatch.setattr(sketch, "WAITING_BYTES", 0)
    X, sex = few_rows(rng)
    waited = []

    def read(moments):
        waited.append(moments.rows_wait)
        moments.lost_energy, moments.covariance().trace(), moments.copy().update(X[:1], sex[:1])
        if len(moments.groups["sensitive_feature_0"]) > 1:
            solve(moments, 2, constraint="mean")

    read_on, left_alone = in_pieces(X, sex, 20, 3, read), in_pieces(X, sex, 20, 3)
    assert {*waited} == {True, False}
    assert str(read_on.to_state()) == str(left_alone.to_state())
    for name, array in read_on.to_state()[1].items():
        assert array.tobytes() == left_alone.to_state()[1][name].tobytes()
    # The control: a file takes the rows in for good, and later steps begin from there.
    written = in_pieces(X, sex, 20, 3, GroupMoments.to_state)
    assert written.to_state()[1]["basis"].tobytes() != left_alone.to_state()[1]["basis"].tobytes()


def test_counts_means_and_traces_include_waiting_rows_at_once(rng):
    X, sex = few_rows(rng, n=10)
    moments = in_pieces(X, sex, 20, 1)
    assert moments.rows_wait
    assert moments.n_rows == 10
    assert np.allclose(moments.mean(), X.mean(axis=0))
    assert moments.total_variance == pytest.approx(X.var(axis=0).sum())
    assert np.allclose(moments.covariance().to_dense(), np.cov(X.T, ddof=0))


def test_waiting_rows_are_the_sketchs_own(rng):
    X, sex = few_rows(rng, n=5)
    moments, row = GroupMoments(60, 20), X[:1].copy()
    moments.update(row, sex[:1])
    row += 1e6
    assert np.allclose(moments.update(X[1:], sex[1:]).covariance().to_dense(), np.cov(X.T, ddof=0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_neither_a_file_nor_a_pickle_holds_waiting_rows(rng, form):
    X, sex = few_rows(rng, n=10)
    moments = GroupMoments(60, 20).update(form(X), sex)
    assert moments.rows_wait
    assert len(pickle.dumps(moments)) < len(pickle.dumps(in_pieces(X, sex, 20, 1))) + 2_000
    assert not pickle.loads(pickle.dumps(moments)).rows_wait
    assert moments.rows_wait
    assert moments.to_state()[1].keys() == {"weights", "means", "basis", "cores", "energy", "row_marks"}
    assert not moments.rows_wait


def test_waiting_rows_take_no_more_memory_than_the_basis(rng, monkeypatch):
    monkeypatch.setattr(sketch, "WAITING_BYTES", 0)  # far less than a basis is
    for form in (
        lambda X: X,
        lambda X: X.astype(np.float32),
        lambda X: (10 * X).astype(np.int8),
        sp.csr_array,
    ):
        moments = GroupMoments(60, 20, np.float64)
        sizes = [moments.update(form(few_rows(rng, 7)[0]), [0, 1] * 3 + [0]).nbytes for _ in range(90)]
        assert max(sizes) < 2 * 25 * 60 * 8 + 3 * 25**2 * 8 + 20_000


@pytest.mark.parametrize("arguments", [{"n_features": 0}, {"n_features": 3, "rank": 0}])
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="is 0"):
        GroupMoments(**arguments)


def test_only_two_precisions():
    with pytest.raises(ValueError, match="float64 or float32"):
        GroupMoments(3, dtype=np.float16)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_the_smallest_sketches_work(rng, rank):
    moments = GroupMoments(40, rank=rank)
    for _ in range(5):
        moments.update(rng.normal(size=(60, 40)), rng.integers(0, 2, 60))
    basis = moments.second_moment_gap("sensitive_feature_0", 1).basis
    assert basis is not None
    assert np.abs(basis[0] @ basis[0].T - np.eye(len(basis[0]))).max() < 1e-10
    assert 0 < moments.lost_energy < 1


def test_one_strong_feature_does_not_cost_a_sketch_the_weak_ones(rng):
    n, d = 4000, 200
    sex = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) / np.arange(1, d + 1)
    X[:, 5] = 1e4 * (rng.normal(size=n) + sex)
    moments = GroupMoments(d, rank=40)
    for start in range(0, n, 500):
        moments.update(X[start : start + 500], sex[start : start + 500])
    V, variances = fair_components(moments, unfair_basis(moments, constraint="mean"), 5)
    kept = np.trace(V.T @ np.cov(X.T) @ V)
    weak = np.delete(X, 5, axis=1)  # the strong one is the mean gap, which is nulled
    best = np.sort(np.linalg.eigvalsh(np.cov(weak.T)))[::-1][:5].sum()
    assert kept > 0.98 * best
    assert variances.sum() == pytest.approx(kept, rel=0.02)


def test_a_cut_in_which_the_groups_add_nothing_new(rng):
    moments = GroupMoments(60, rank=8)
    labelled = np.zeros((4, 60))
    labelled[2:, 0] = 100
    moments.update(labelled, [0, 0, 1, 1])
    for _ in range(4):
        moments.update(rng.normal(size=(50, 60)) * (np.arange(60) > 0), [None] * 50)
    basis = moments.to_state()[1]["basis"]
    assert np.abs(basis @ basis.T - np.eye(len(basis))).max() < 1e-10


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_noise_is_no_direction(rng, dtype):
    """Rows of rank 6 in 20 dimensions: later blocks bring nothing new, whatever the last digits say."""
    X = rng.normal(size=(3000, 6)) * [100, 30, 10, 3, 1, 1] @ rng.normal(size=(6, 20))
    sex = rng.integers(0, 2, 3000)
    moments = GroupMoments(20, rank=9, dtype=dtype)
    for start in range(0, 3000, 50):
        moments.update(X[start : start + 50].astype(dtype), sex[start : start + 50])
    basis = moments.covariance().basis[0]
    assert len(basis) == 6
    assert np.abs(basis @ basis.T - np.eye(6)).max() < (1e-5 if dtype == np.float32 else 1e-12)
    exact = np.cov(X.T, ddof=0)
    assert np.abs(moments.covariance().to_dense() - exact).max() < 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_equal_to_the_mean_bring_no_direction(rng, dtype):
    for _ in range(30):
        row = rng.normal(size=(1, 40)) * (rng.random((1, 40)) < 0.2)
        moments = GroupMoments(40, rank=11, dtype=dtype)
        for weight in (3.0, 0.7, 2.0):  # each lies at the running mean, to rounding
            moments.update(sp.csr_array(row), [0], [weight])
        assert len(moments.to_state()[1]["basis"]) == 0
        assert moments.update(sp.csr_array(row + 1), [1], [1.0]).total_variance > 0
        assert len(moments.to_state()[1]["basis"]) == 1


@pytest.mark.parametrize("rank", RANKS)
def test_a_restricted_summary_knows_only_the_groups_it_is_restricted_to(rng, rank):
    X, labels = make(rng)
    X = widened(X, rank)
    restricted = GroupMoments(X.shape[1], rank=rank).update(X, labels).restricted({"race": ["a", "b"]})
    race = np.where(labels["race"] == "c", None, labels["race"])
    assert restricted.groups == {"race": ("a", "b")}
    assert_same_statistics(restricted, X, {"race": race})
    with pytest.raises(ValueError, match="for reading only"):
        restricted.update(X, {"race": race})
    with pytest.raises(ValueError, match="for reading only"):
        GroupMoments(X.shape[1], rank=rank).update(X, {"race": race}).merge(restricted)


def test_rows_that_others_span_are_left_out_of_a_basis():
    W = np.random.default_rng(0).normal(size=(6, 400)).astype(np.float32)
    W[4], W[5] = 0, W[0] - 1e3 * W[1]
    with pytest.raises(np.linalg.LinAlgError):  # why Cholesky alone is not enough
        np.linalg.cholesky((W @ W.T).astype(float))
    Q = orthonormal_rows(W.copy())
    np.testing.assert_allclose(Q @ Q.T, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(W @ Q.T @ Q, W, atol=1e-3 * np.abs(W).max())


def test_leading_axes_are_those_of_the_total_and_the_best_of_the_balance_beside():
    rng = np.random.default_rng(0)
    total, balance = (
        A @ A.T for A in (rng.normal(size=(60, 60)) * np.arange(1, 61) ** -0.5 for _ in range(2))
    )
    found = leading_axes(total, balance, 20, 7)
    assert np.abs(found.T @ found - np.eye(20)).max() < 1e-12
    assert np.trace(found[:, :7].T @ total @ found[:, :7]) == pytest.approx(
        np.linalg.eigvalsh(total)[-7:].sum()
    )
    beside = np.eye(60) - found[:, :7] @ found[:, :7].T
    best = np.linalg.eigvalsh(beside @ balance @ beside)[-13:].sum()
    assert np.trace(found[:, 7:].T @ balance @ found[:, 7:]) == pytest.approx(best)


def image_like(n: int, d: int = 2000) -> np.ndarray:
    """Return uint8 rows with a few strong directions and a spectrum that falls slowly after them."""
    rng = np.random.default_rng(5)
    strengths = 60 / np.sqrt(np.arange(1, 401))
    rows = rng.normal(scale=strengths, size=(n, 400)) @ rng.normal(size=(400, d))
    return np.clip(128 + 0.5 * rows, 0, 255).astype(np.uint8)


def worst_basis(X: np.ndarray, rank: int, block: int) -> float:
    moments, worst = GroupMoments(X.shape[1], rank, np.float32), 0.0
    for start in range(0, len(X), block):
        B = moments.update(X[start : start + block]).covariance().basis[0]
        worst = max(worst, float(np.abs(B @ B.T - np.eye(len(B))).max()))
    return worst


@pytest.mark.parametrize(("rank", "block"), [(64, 64), (400, 72), (256, 320), (128, 250)])
def test_float32_basis_stays_orthonormal_on_images(rank, block):
    """Rows about their own mean are dependent, and in float32 rounding hides it from the factorisation."""
    assert worst_basis(image_like(800), rank, block) < 1e-4


@pytest.mark.parametrize("offset", [0, 100, 2e4])
def test_sparse_float32_rows_far_from_zero_are_sketched_like_dense_ones(offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 300)) * (rng.random((600, 300)) < 0.05)
    X[:, :2] += offset
    X[:, 2] = rng.normal(size=600) * 3 + offset
    X, sex = X.astype(np.float32), np.arange(600) % 2
    dense, sparse = (GroupMoments(300, 40, np.float32).update(rows, sex) for rows in (X, sp.csr_array(X)))
    assert sparse.lost_energy == pytest.approx(dense.lost_energy, abs=0.02)
    exact = np.cov(X.astype(float), rowvar=False, bias=True)
    leading = np.linalg.eigh(exact)[1][:, -1:]
    for moments in (dense, sparse):
        V = fair_components(moments, np.zeros((300, 0)), 1)[0].astype(float)
        assert abs(float((V.T @ leading)[0, 0])) > 0.999
    B = sparse.to_state()[1]["basis"].astype(float)
    assert np.abs(B @ B.T - np.eye(len(B))).max() < 1e-4


def test_exact_moments_name_the_memory_they_would_need(monkeypatch, tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 10 kB\n")
    moments = GroupMoments(50)
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    with pytest.raises(MemoryError, match=r"exact moments of 50 features and 2 groups so far.*sketch"):
        moments.update(np.ones((4, 50)), [0, 1, 0, 1])
    assert moments.n_rows == 0
    assert moments.groups == {}
    meminfo.write_text("MemTotal: 10 kB\n")  # a system that does not say what is free
    moments.update(np.ones((4, 50)), [0, 1, 0, 1])


# Sparse columns far from zero -------------------------------------------------------------------------


def far_column(offset, *, varies, half, dtype=np.float64, n=1200, d=24):
    """Sparse rows with one column about `offset`, in all rows or in half of them; two groups that differ."""
    rng = np.random.default_rng(3)
    sex = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) * 2.0 ** -np.arange(d) * (rng.random((n, d)) < 0.15)
    X[:, 0] += sex * (rng.random(n) < 0.15)
    X[:, 1] *= 1 + 2 * sex
    column = offset + varies * rng.normal(size=n)
    X[:, 5] = column * (rng.random(n) < 0.5) if half else column
    return X.astype(dtype), sex


def collected(X, sex, rank, cut, dtype=np.float64, weights=None):
    moments = GroupMoments(X.shape[1], rank, dtype)
    for start in range(0, X.shape[0], cut):
        rows = slice(start, start + cut)
        moments.update(X[rows], sex[rows], None if weights is None else weights[rows])
    return moments


@pytest.mark.parametrize("cut", [1200, 170])
@pytest.mark.parametrize("varies", [0.0, 1.0])
@pytest.mark.parametrize("offset", [1e3, 20241117.0, 1e8])
@pytest.mark.parametrize("rank", [None, 8])
def test_a_sparse_column_far_from_zero_gives_the_dense_answer(rank, offset, varies, cut):
    X, sex = far_column(offset, varies=varies, half=False)
    answers = [
        solve(collected(rows, sex, rank, cut), n_components=3, n_unfair=2) for rows in (X, sp.csr_array(X))
    ]
    assert answers[0].unfair_basis.shape == answers[1].unfair_basis.shape == (3, X.shape[1])
    for name in ("unfair_basis", "components"):
        assert principal_angles(*(getattr(answer, name).T for answer in answers)).max() < 1e-6
    assert answers[0].total_variance == pytest.approx(answers[1].total_variance, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rank", [None, 8])
@pytest.mark.parametrize("offset", [20241117.0, 1e8])
def test_a_sparse_column_that_half_of_the_rows_have_gives_the_dense_moments(rank, offset, weighted):
    """Its variance dwarfs all others', so the moments are compared entry by entry, each on its own scale."""
    X, sex = far_column(offset, varies=1.0, half=True)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X)) if weighted else None
    dense, sparse = (collected(rows, sex, rank, 300, weights=weights) for rows in (X, sp.csr_array(X)))
    lengths = np.sqrt(np.cov(X.T, aweights=weights, bias=True).diagonal())
    np.testing.assert_allclose(dense.mean() / lengths, sparse.mean() / lengths, atol=1e-9)
    U = [unfair_basis(moments, constraint="mean") for moments in (dense, sparse)]
    assert principal_angles(*U).max() < 1e-6
    assert dense.total_variance == pytest.approx(sparse.total_variance, rel=1e-9)
    if rank is None:
        for moment in ("covariance", "second_moment_gap"):
            arguments = () if moment == "covariance" else ("sensitive_feature_0", 1)
            found = [getattr(moments, moment)(*arguments).to_dense() for moments in (dense, sparse)]
            scaled = [matrix / np.outer(lengths, lengths) for matrix in found]
            np.testing.assert_allclose(*scaled, atol=1e-6)


@pytest.mark.parametrize("rank", [None, 8])
def test_float32_sparse_rows_far_from_zero_are_summed_in_float64(rank):
    X, sex = far_column(20241117.0, varies=0.0, half=False, dtype=np.float32)
    near = X.copy()
    near[:, 5] = 0
    answers = [
        solve(collected(sp.csr_array(rows), sex, rank, 300, np.float32), n_components=3) for rows in (X, near)
    ]
    for name in ("unfair_basis", "components"):
        assert principal_angles(*(getattr(answer, name).T for answer in answers)).max() < 1e-4


def test_sparse_products_are_those_of_the_dense_rows():
    rng = np.random.default_rng(0)
    fill = np.linspace(0, 1, 20)
    X = rng.normal(size=(40, 20)) * (rng.random((40, 20)) < fill)
    origin, scale = rng.normal(size=20), rng.uniform(0.5, 2, 40)
    dense, sparse = (centred_rows(rows, origin, scale, np.float64) for rows in (X, sp.csr_array(X)))
    A, T = rng.normal(size=(5, 20)), rng.normal(size=(3, 40))
    some = np.array([3, 4, 30])
    np.testing.assert_allclose(sparse.dot(A), dense.dot(A), atol=1e-12)
    np.testing.assert_allclose(sparse.combine(T), dense.combine(T), atol=1e-12)
    np.testing.assert_allclose(sparse.row_squares(), dense.row_squares(), atol=1e-12)
    for rows in (np.arange(40), some):
        np.testing.assert_allclose(sparse.scatter(rows), dense.R[rows].T @ dense.R[rows], atol=1e-12)
    gathered = GatheredRows(X, origin, scale, np.float64)
    cells = [some, np.arange(5, 20), np.arange(40)]
    found = [one for some in gathered.products(cells) for one in some]
    for (_, product, sums), (expected, their_sums) in zip(found, sparse.products(cells), strict=True):
        np.testing.assert_allclose(np.triu(product), np.triu(expected), atol=1e-12)
        np.testing.assert_allclose(sums, their_sums, atol=1e-12)


# Scales and weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1e-170), (np.float32, 1e-24)])
def test_rows_whose_squares_underflow_are_refused(rng, dtype, scale, rank):
    X, sex = rng.normal(size=(200, 6)) + 1, rng.integers(0, 2, 200)
    moments = GroupMoments(6, rank, dtype)
    with pytest.raises(ValueError, match=r"sums of squares underflow in float\d\d, rescale X"):
        moments.update((X * scale).astype(dtype), sex)
    assert moments.n_rows == 0
    moments.update(np.zeros((3, 6), dtype), [0, 1, 1])  # zeros are no small numbers
    moments.update(X.astype(dtype), sex).update((X * scale).astype(dtype), sex)  # small beside others: fine
    assert moments.n_rows == 403


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [None, 4])
def test_weights_that_would_overflow_are_refused(rng, rank, dtype):
    X, sex = rng.normal(size=(200, 6)).astype(dtype), rng.integers(0, 2, 200)
    moments = GroupMoments(6, rank, dtype).update(X, sex)
    before = solve(moments, 2)
    for heavy in (1e306, 1e200):
        with pytest.raises(ValueError, match=r"sample_weight has values up to .* rescale sample_weight"):
            moments.update(X, sex, np.where(np.arange(200) == 7, heavy, 1.0))
    assert moments.n_rows == 200
    np.testing.assert_array_equal(before.components, solve(moments, 2).components)
    solve(moments.update(X, sex, np.full(200, 1e9)), 2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sketch_of_half_the_features_keeps_exact_moments(rng, dtype):
    """Directions a thousand times weaker than the first count too, in float32 as well."""
    d, n = 12, 2000
    sex = rng.integers(0, 2, n)
    X = (rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, 3.5, d)).astype(dtype)
    X[:, -1] += dtype(1e-3) * sex.astype(dtype)
    sketch = collected(X, sex, d // 2, 300, dtype)
    assert sketch.rank is None
    assert len(sketch.covariance().core) == d
    assert sketch.lost_energy < 1e-6
    fair = solve(sketch, n_components=d - 1, constraint="mean")
    gap = X[sex == 1].mean(axis=0, dtype=float) - X[sex == 0].mean(axis=0, dtype=float)
    assert np.linalg.norm(fair.components @ gap) < 1e-5 * np.linalg.norm(gap)
    other = collected(X[::-1], sex[::-1], None, 170, dtype)
    merged = sketch.merge(other)
    assert merged.n_rows == 2 * n
    assert merged.total_variance == pytest.approx(float(X.var(axis=0, dtype=float).sum()), rel=1e-5)


def test_a_sketch_of_rank_d_names_the_memory_it_would_need():
    with pytest.raises(MemoryError, match="take a smaller rank"):
        GroupMoments(10_000_000, rank=10_000_000)
