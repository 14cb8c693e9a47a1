"""A sample of rows depends on the rows alone: not on cuts, order, parts or how the rows are stored."""

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream import GroupMoments, encode_groups, load
from fairstream.data.fingerprints import row_fingerprints
from fairstream.moments.sample import RowSample

N, D, R = 3_000, 12, 200


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    X[:, :6] = X[:, :6] > 0.5
    return X, rng.choice(["f", "m"], N, p=[0.2, 0.8]), rng.choice(["a", "b", None], N), rng.random(N).round()


def sampled(X, sex, race, y, order, cuts, weights=None, stored=np.asarray):
    sample = RowSample(R)
    for start, stop in zip([0, *cuts], [*cuts, N], strict=True):
        part = order[start:stop]
        groups = encode_groups({"sex": sex[part], "race": race[part]}, len(part))
        sample.update(stored(X[part]), groups, None if weights is None else weights[part], y[part])
    return sample


def content(sample):
    rows = sample.rows()
    labels = {
        name: [*map(rows.labels[name].__getitem__, codes[codes >= 0])] for name, codes in rows.codes.items()
    }
    return rows.X.tobytes(), rows.weights.tobytes(), rows.target.tobytes(), labels


def test_merged_parts_hold_the_rows_of_one_stream_bit_for_bit(rows):
    whole = sampled(*rows, np.arange(N), [])
    shuffled = np.random.default_rng(1).permutation(N)
    assert content(sampled(*rows, shuffled, [10, 400, 401, 2_000])) == content(whole)
    X, sex, race, y = rows
    merged = RowSample(R)
    for part in np.array_split(shuffled, 7):
        groups = encode_groups({"sex": sex[part], "race": race[part]}, len(part))
        merged.merge(RowSample(R).update(X[part], groups, None, y[part]))
    assert content(merged) == content(whole)
    assert content(RowSample(R, key=1).update(X, encode_groups({"sex": sex, "race": race}, N), None, y)) != (
        content(whole)
    )


def test_sparse_rows_give_the_same_sample(rows):
    order = np.arange(N)
    assert content(sampled(*rows, order, [700], stored=sp.csr_array)) == content(sampled(*rows, order, []))


def test_every_group_keeps_its_number_of_rows_and_memory_is_bounded(rows):
    sample = sampled(*rows, np.arange(N), [])
    held = sample.rows()
    for name, codes in held.codes.items():
        assert (np.bincount(codes[codes >= 0]) >= R).all(), name
    assert len(sample) <= 4 * R
    assert sample.nbytes < 4 * R * (D + 8) * 8


def test_equal_rows_are_held_once_with_their_exact_weight():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(5_000, 2)).astype(float)
    sex, weights = rng.integers(0, 2, 5_000), rng.integers(1, 4, 5_000).astype(float)
    sample = RowSample(4)
    for part in np.array_split(np.arange(5_000), 11):
        sample.update(X[part], encode_groups(sex[part], len(part)), weights[part])
    held = sample.rows()
    (codes,), (labels,) = held.codes.values(), held.labels.values()
    for row, code, weight in zip(held.X, codes, held.weights, strict=True):
        assert weight == weights[(row == X).all(axis=1) & (sex == labels[code])].sum()


def test_a_sample_is_fair_to_its_group():
    """The control of the hash: means over the sample are those of the rows, within sampling error."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(0, 2, (20_000, 8)), rng.normal(size=(20_000, 2))]
    sample = RowSample(2_000).update(X, encode_groups(np.arange(20_000) % 2, 20_000))
    held = sample.rows()
    error = (held.X.mean(axis=0) - X.mean(axis=0)) / (X.std(axis=0) / np.sqrt(len(held.X)))
    assert np.abs(error).max() < 4


def test_the_own_rows_of_a_group_are_fair_to_it_beside_an_attribute_of_small_groups():
    rng = np.random.default_rng(0)
    sex, race = rng.integers(0, 2, 20_000), (rng.random(20_000) < 0.05).astype(int)
    groups = encode_groups({"sex": sex, "race": race}, 20_000)
    sample = RowSample(1_000).update(rng.normal(size=(20_000, 3)), groups)
    half = np.arange(len(sample)) % 2 == 0
    for held, n_rows in ((sample.rows(), 1_000), (sample.kept(half).rows(), 500)):
        women = held.codes["sex"] == 0
        own = women & held.own["sex"]
        assert own.sum() == pytest.approx(n_rows, rel=0.1)
        assert (held.codes["race"][own] == 1).mean() < 0.07
        assert (held.codes["race"][women] == 1).mean() > 0.2  # the control: all of a small race are held


def test_fingerprints_tell_rows_apart_and_ignore_how_they_are_stored():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(2_000, 40)).astype(float)
    hashes = row_fingerprints(X)
    assert len(set(hashes.tolist())) == len(np.unique(X, axis=0))
    assert (row_fingerprints(X.astype(np.float32)) == hashes).all()
    assert (row_fingerprints(np.asfortranarray(X)) == hashes).all()
    assert (row_fingerprints(-0.0 * X) == 0).all()
    assert (row_fingerprints(X, key=1) != hashes).mean() > 0.99


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "all"])
def test_a_size_that_is_no_number_of_rows_is_refused(size):
    with pytest.raises(ValueError, match=r"sample=.*number of rows to keep per group"):
        RowSample(size)


def test_samples_of_another_size_do_not_merge():
    with pytest.raises(ValueError, match="only samples of one size and key merge"):
        RowSample(3).merge(RowSample(4))
    with pytest.raises(ValueError, match="only samples of one size and key merge"):
        GroupMoments(2, sample=3).merge(GroupMoments(2, sample=4).update(np.eye(2)))  # the first is empty


# In a summary ---------------------------------------------------------------------------------------


def summary(X, sex, y, rank=None, sample=R):
    moments = GroupMoments(D, rank, sample=sample)
    for part in np.array_split(np.arange(N), 5):
        moments.update(X[part], {"sex": sex[part]}, target=y[part])
    return moments


@pytest.mark.parametrize("rank", [None, 6])
def test_moments_carry_a_sample_through_updates_and_merges(rows, rank):
    X, sex, _, y = rows
    whole = summary(X, sex, y, rank)
    parts = [
        GroupMoments(D, rank, sample=R).update(X[part], {"sex": sex[part]}, target=y[part])
        for part in np.array_split(np.arange(N), 7)
    ]
    for part in parts[1:]:
        parts[0].merge(part)
    np.testing.assert_array_equal(parts[0].sample.rows().X, whole.sample.rows().X)
    with pytest.raises(ValueError, match="only one of the summaries keeps a sample"):
        whole.merge(summary(X, sex, y, rank, sample=None))


def test_a_sample_changes_nothing_else(rows):
    X, sex, _, y = rows
    with_rows, without = summary(X, sex, y), summary(X, sex, y, sample=None)
    assert without.sample is None
    np.testing.assert_array_equal(with_rows.covariance().to_dense(), without.covariance().to_dense())


def test_a_file_holds_sampled_rows_only_if_told_to(rows, tmp_path):
    X, sex, _, y = rows
    moments = summary(X, sex, y)
    moments.save(tmp_path / "plain")
    moments.save(tmp_path / "whole", with_sample=True)
    assert load(tmp_path / "plain").sample is None
    again = load(tmp_path / "whole").sample.rows()
    held = moments.sample.rows()
    for name in ("X", "weights", "target"):
        np.testing.assert_array_equal(getattr(again, name), getattr(held, name))
    assert again.labels == held.labels
    canary = held.X[0].tobytes()
    assert canary in (tmp_path / "whole").read_bytes()
    assert canary not in (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("rank", [None, 8, D])
def test_a_summary_of_some_features_is_that_of_the_columns(rows, rank):
    X, sex, _, y = rows
    X = X * np.r_[np.full(4, 10.0), np.full(D - 4, 0.1)]  # within a sketch's reach
    kept = np.array([0, 2, 3, 7, 9])
    part = summary(X, sex, y, rank).selected(kept)
    exact = GroupMoments(len(kept)).update(X[:, kept], {"sex": sex})
    tolerance = 1e-10 if rank in (None, D) else 0.02
    np.testing.assert_allclose(
        part.covariance().to_dense(), exact.covariance().to_dense(), atol=tolerance * exact.total_variance
    )
    np.testing.assert_allclose(part.mean_gap("sex", "m"), exact.mean_gap("sex", "m"), atol=1e-10)
    assert part.total_variance == pytest.approx(exact.total_variance, rel=1e-9 if rank != 8 else 0.01)
    assert part.sample.rows().X.shape[1] == len(kept)


def test_rows_of_several_types_keep_their_values():
    small, wide = np.array([[1, 2], [3, 4]], np.uint8), np.array([[0.5, 0.25], [300.5, 1e-9]])
    for first, second in ((small, wide), (wide, small), (wide.astype(np.float32), wide)):
        rows = GroupMoments(2, sample=9).update(first, [0, 1]).update(second, [0, 1]).sample.rows().X
        assert {*map(tuple, rows.tolist())} == {*map(tuple, [*first.tolist(), *second.tolist()])}
