"""Samples of wide rows: mixed to fewer numbers that depend on the row alone, read in any basis later."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import GroupMoments, encode_groups, load, solve, tune
from fairstream.errors import FairstreamFileError
from fairstream.moments.mixing import RowMixer
from fairstream.moments.sample import RowSample

N, D, RANK = 1_500, 3_000, 8
MANY = 20_000  # rows a group: so many rows of 3,000 numbers are too much beside a sketch


def wide_rows(seed=0):
    """Group 1 is two-valued along the first of four directions, with the mean and variance of group 0."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, N)
    scores = rng.normal(size=(N, 4)) * [30, 25, 20, 15]
    scores[group == 1, 0] = 30 * rng.choice([-1.0, 1.0], int(group.sum()))
    axes = np.linalg.qr(rng.normal(size=(D, 4)))[0]
    X = scores @ axes.T + 0.2 * rng.normal(size=(N, D)) + 3.0
    return X, group, axes


def wide_moments(X, group, sample=MANY, rank=RANK):
    return GroupMoments(D, rank, sample=sample).update(X, {"sex": group})


def test_a_wide_sample_takes_bounded_memory_and_a_narrow_one_keeps_its_rows():
    X, group, _ = wide_rows()
    wide, few = wide_moments(X, group), wide_moments(X, group, sample=5_000)
    assert wide.sample.mixer.n_numbers * MANY * 8 <= 2**26
    assert wide.sample.rows().X.shape == (N, wide.sample.mixer.n_numbers)
    assert few.sample.mixer is None
    assert few.sample.rows().X.shape == (N, D)
    assert GroupMoments(D, sample=MANY).sample.mixer is None  # exact moments are wider than any row


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_seven_parts_in_any_order_merge_to_the_sample_of_one_stream_bit_for_bit(storage):
    X, group, _ = wide_rows()
    X = np.where(np.abs(X) > 3, X, 0.0)
    whole = wide_moments(X, group, sample=MANY).sample.rows()
    parts = [wide_moments(storage(X[j::7]), group[j::7]) for j in (3, 0, 6, 1, 5, 2, 4)]
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    np.testing.assert_array_equal(merged.sample.rows().X, whole.X)
    np.testing.assert_array_equal(merged.sample.rows().codes["sex"], whole.codes["sex"])


def test_coordinates_are_those_of_the_rows_up_to_noise_that_more_numbers_lower():
    X, _, axes = wide_rows()
    exact = (X - X.mean(axis=0)) @ axes
    error = {}
    for n_numbers in (200, 1_600):
        mixer = RowMixer(D, n_numbers)
        found = mixer.coordinates(mixer.mixed(X), axes, X.mean(axis=0))
        error[n_numbers] = ((found - exact) ** 2).mean()
        outside = 0.2**2 * D / n_numbers  # the square of what lies outside, over the numbers
        assert 0.5 * outside < error[n_numbers] < 2 * outside
    assert error[1_600] < error[200] / 4


def test_screened_features_of_any_value_do_not_change_the_other_coordinates():
    X, _, axes = wide_rows()
    kept = np.arange(5, D)
    mixer = RowMixer(D, 1_000)
    basis, mean = np.linalg.qr(axes[kept])[0], X.mean(axis=0)[kept]
    loud = X.copy()
    loud[:, :5] += 1e4 * np.random.default_rng(1).normal(size=(N, 5))
    found = [mixer.selected(kept).coordinates(mixer.mixed(rows), basis, mean) for rows in (X, loud)]
    np.testing.assert_allclose(*found, atol=1e-6)
    whole = np.vstack([np.zeros((5, 4)), basis])  # the control: features that are not set apart
    blind = [mixer.coordinates(mixer.mixed(rows), whole, X.mean(axis=0)) for rows in (X, loud)]
    assert np.abs(blind[0] - blind[1]).max() > 10
    with pytest.raises(ValueError, match=r"too few to tell 4 directions from 2,000 screened features"):
        mixer.selected(np.arange(1_000)).coordinates(mixer.mixed(X), axes[:1_000], X.mean(axis=0)[:1_000])


def leak(V, X, group):
    half = len(X) // 2
    attacker = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    attacker.fit(X[:half] @ V.T, group[:half])
    return roc_auc_score(group[half:], attacker.predict_proba(X[half:] @ V.T)[:, 1])


def test_a_guard_hides_a_shape_that_mixed_rows_show(monkeypatch):
    monkeypatch.setattr("fairstream.subspace.guard.STEPS", 100)
    X, group, _ = wide_rows()
    moments = wide_moments(X, group)
    plain = solve(moments, 2, constraint="none").components
    assert leak(plain, X, group) > 0.9
    guarded = solve(moments, 2, constraint="none", guard=2.0).components
    assert leak(guarded, X, group) < 0.65
    assert (X @ guarded.T).var(axis=0).sum() > 0.9 * (25**2 + 20**2)
    screened = solve(moments, 2, constraint="none", guard=2.0, screen=3).components
    assert ((screened == 0).sum(axis=0) == 2).sum() == 3


def test_files_hold_mixed_rows_only_if_asked_and_say_so(tmp_path):
    X, group, _ = wide_rows()
    moments = wide_moments(X, group)
    moments.save(tmp_path / "a.moments", with_sample=True)
    again = load(tmp_path / "a.moments")
    np.testing.assert_array_equal(again.sample.rows().X, moments.sample.rows().X)
    assert again.sample.mixer == moments.sample.mixer
    assert "each as 419 mixed values: treat this as row-level data" in again.describe()["sample"]
    moments.save(tmp_path / "b.moments")
    assert load(tmp_path / "b.moments").sample is None
    other = RowSample(MANY).update(X, encode_groups({"sex": group}, N))
    with pytest.raises(ValueError, match="hold their rows in different ways"):
        again.sample.merge(other)


def test_tune_asks_for_rows():
    X, group, _ = wide_rows()
    with pytest.raises(ValueError, match="mixed values of each row, tune needs the rows: tune the data"):
        tune(wide_moments(X, group), limit=0.7, n_components=2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_rows_of_any_type_are_mixed_to_equal_numbers_in_any_order(dtype):
    rng = np.random.default_rng(0)
    values, group = rng.integers(0, 200, (40, D)), np.arange(40) % 2

    def part(kind):
        return GroupMoments(D, RANK, dtype, sample=MANY).update(values.astype(kind), group)

    kinds = (np.uint8, np.int64, np.float32, np.float64)
    one = part(kinds[0])
    for kind in kinds[1:]:
        one.update(values.astype(kind), group)
    merged = part(kinds[-1])
    for kind in kinds[-2::-1]:
        merged.merge(part(kind))
    first, second = one.sample.rows(), merged.sample.rows()
    assert first.X.dtype == second.X.dtype == dtype
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_a_size_of_any_whole_type_mixes_and_merges():
    X, group, _ = wide_rows()
    plain, numpy = (wide_moments(X[:100], group[:100], sample=size) for size in (MANY, np.int64(MANY)))
    assert plain.sample.mixer == numpy.sample.mixer is not None
    assert plain.merge(numpy).n_rows == 200
    with pytest.raises(ValueError, match="collect them with the same rank, dtype and sample"):
        plain.merge(wide_moments(X[:100], group[:100], sample=5_000))


def test_files_from_before_mixers_had_a_type_tell_it_by_their_numbers():
    X, group, _ = wide_rows()
    for dtype in (np.float32, np.float64):
        moments = GroupMoments(D, RANK, dtype, sample=MANY).update(X[:50], group[:50])
        header, arrays = moments.to_state(with_sample=True)
        header["sample"] = {name: value for name, value in header["sample"].items() if name != "dtype"}
        again = GroupMoments.from_state(header, arrays)
        assert again.sample.mixer == moments.sample.mixer
        header["sample"]["dtype"] = "int8"
        with pytest.raises(FairstreamFileError, match="numbers of sampled rows and their type"):
            GroupMoments.from_state(header, arrays)


def test_mixed_rows_of_some_features_are_read_and_merged_but_neither_stored_nor_updated(tmp_path):
    X, group, _ = wide_rows()
    kept = np.arange(10, D)
    first, second = (wide_moments(X[rows], group[rows]) for rows in (slice(0, 200), slice(200, 400)))
    some = first.selected(kept)
    assert some.sample.mixer == second.selected(kept).sample.mixer
    assert some.sample.mixer != second.selected(kept[1:]).sample.mixer
    assert some.selected(np.arange(5)).sample.mixer.features == tuple(range(10, 15))
    with pytest.raises(ValueError, match="of 2,990 of them and for reading only: save the one of all"):
        some.save(tmp_path / "some.moments", with_sample=True)
    assert not (tmp_path / "some.moments").exists()
    with pytest.raises(ValueError, match="for reading only: update the one of all features"):
        some.update(X[:50, kept], {"sex": group[:50]})
    assert some.n_rows == 200
    some.save(tmp_path / "some.moments")
    assert load(tmp_path / "some.moments").n_features == len(kept)
    assert some.merge(second.selected(kept)).n_rows == 400
    assert len(some.sample) == 400
