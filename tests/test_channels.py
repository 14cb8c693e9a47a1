"""Colour: a model for each channel, learned in one pass; fair in every channel; files; genuine CelebA."""

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.bits import assert_same_bits
from support.brute_force import largest_sine, mean_gap
from support.command import run
from support.file_damage import DAMAGES, resealed, start_of
from support.memory import peak_of
from test_sklearn_contract import row_labels

from fairstream import (
    ChannelSubspaces,
    FairImagePCA,
    FairstreamFileError,
    FairStreamingPCA,
    FairSubspace,
    fit_source,
    load,
    open_source,
    solve,
)
from fairstream.auditing import audit
from fairstream.cli.describe import inspect_file
from fairstream.linalg import principal_angles
from fairstream.streaming.embed import embed_source, open_like

HEIGHT, WIDTH, C = 10, 8, 3
D = HEIGHT * WIDTH
N = 900
WAYS = {
    "exact": {"solver": "exact"},
    "sketch": {"solver": "sketch", "rank": 40},
    "power": {"solver": "power", "step_rows": (100, 150), "power_steps": (4, 3), "random_state": 3},
    "power, whole data": {"solver": "power", "power_steps": (10, 10), "random_state": 3},
}


def make_images(n=N, seed=0):
    """Planar uint8 images, each channel with structure and a glaring attribute of its own."""
    rng = np.random.default_rng(seed)
    glasses = rng.random(n) < 0.3
    smile = rng.choice(["no", "yes"], n)
    X = np.empty((n, C * D), dtype=np.uint8)
    for c in range(C):
        mixing = rng.normal(size=(12, D)) * np.linspace(3, 0.5, 12)[:, None]
        pixels = 110 + 15 * c + rng.normal(size=(n, 12)) @ mixing * 4 + rng.normal(size=(n, D)) * 3
        pixels[glasses, 10 * c : 10 * c + 20] -= 18 + 6 * c
        pixels[glasses] += rng.normal(size=(glasses.sum(), 1)) * rng.normal(size=D) * 6
        pixels[smile == "yes", 40 + c : 48 + c] += 12
        X[:, c * D : (c + 1) * D] = np.clip(pixels, 0, 255)
    return X, glasses, smile


@pytest.fixture(scope="module")
def images():
    return make_images()


@pytest.fixture(scope="module")
def source(images):
    return image_source(images)


def image_source(images, block_size=110):
    X, glasses, _ = images
    return CountedSource(open_source(X, sensitive_features={"glasses": glasses}, block_size=block_size))


class CountedSource:
    """A source of planar images that counts how often it is read."""

    n_channels = C

    def __init__(self, source):
        self._source, self.passes, self.blocks = source, 0, 0

    def __getattr__(self, name):
        return getattr(self._source, name)

    @property
    def n_features(self):
        return self._source.n_features

    @property
    def feature_names(self):
        return self._source.feature_names

    @property
    def n_rows(self):
        return self._source.n_rows

    def __iter__(self):
        self.passes += 1
        for block in self._source:
            self.blocks += 1
            yield block


def red_green_blue(X):
    return [X[:, c * D : (c + 1) * D] for c in range(C)]


def relative_gaps(Z_channels, X, groups):
    """|mean_in - mean_out| after projection over the same before it, for each channel."""
    gaps = []
    for Z, pixels in zip(Z_channels, red_green_blue(X.astype(float)), strict=True):
        after = Z[groups].mean(axis=0, dtype=float) - Z[~groups].mean(axis=0, dtype=float)
        gaps.append(np.linalg.norm(after) / np.linalg.norm(mean_gap(pixels, groups.tolist(), True)))
    return gaps


def deviation_from_orthonormal(U):
    return np.linalg.norm(np.asarray(U, dtype=float) @ np.asarray(U, dtype=float).T - np.eye(len(U)), 2)


# Fair in every channel ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_each_channel_has_an_orthonormal_unfair_basis(source, way):
    pca = fit_source(source, FairImagePCA(5, n_unfair=2, **WAYS[way]))
    assert len(pca.unfair_basis_) == len(pca.components_) == C
    for U, V in zip(pca.unfair_basis_, pca.components_, strict=True):
        assert U.shape == (3, D)
        assert U.dtype == V.dtype == np.float32
        assert deviation_from_orthonormal(U) <= 1e-5
        assert deviation_from_orthonormal(V) <= 1e-5
        assert np.abs(U @ V.T).max() <= 1e-5


@pytest.mark.parametrize("way", ["exact", "sketch", "power, whole data"])
def test_group_means_coincide_in_every_channel_of_the_training_stream(images, source, way):
    X, glasses, _ = images
    pca = fit_source(source, FairImagePCA(5, n_unfair=2, **WAYS[way]))
    Z = pca.transform(X)
    split = [Z[:, columns] for columns in pca.subspace_.component_slices]
    assert max(relative_gaps(split, X, glasses)) < 1e-4
    assert max(gap["glasses"] for gap in pca.subspace_.residual_mean_gaps()) < 1e-4
    erased = pca.erase(X)
    assert max(relative_gaps(red_green_blue(erased), X, glasses)) < 1e-4


def test_the_power_method_on_a_stream_nulls_the_means_of_its_first_phase(images, source):
    X, glasses, _ = images
    pca = fit_source(source, FairImagePCA(5, n_unfair=2, **WAYS["power"]))
    first = 400
    Z = pca.transform(X[:first])
    split = [Z[:, columns] for columns in pca.subspace_.component_slices]
    assert max(relative_gaps(split, X[:first], glasses[:first])) < 1e-4
    assert 1e-4 < max(gap["glasses"] for gap in pca.subspace_.residual_mean_gaps()) < 0.3


def test_plain_pca_leaves_a_gap_in_every_channel(images):
    """The control: without the constraint the gaps are there to be seen."""
    X, glasses, _ = images
    plain = FairImagePCA(5, constraint="none").fit(X, sensitive_features=glasses)
    assert min(gap["sensitive_feature_0"] for gap in plain.subspace_.residual_mean_gaps()) > 0.1


def test_normalising_the_mean_gap_over_all_channels_at_once_leaves_a_gap(images):
    """The control: one length for the f of all channels makes every channel's column of U too short.

    I - UU' is then no projection, and part of f stays in every channel. With its own length it does not.
    """
    X, glasses, _ = images
    parts = red_green_blue(X.astype(float))
    gaps = [mean_gap(part, glasses.tolist(), True) for part in parts]
    lengths = [np.linalg.norm(f) for f in gaps]
    left = {"together": [], "own": []}
    for part, f, own in zip(parts, gaps, lengths, strict=True):
        for name, length in (("together", np.linalg.norm(lengths)), ("own", own)):
            U = f[:, None] / length
            outside = np.eye(D) - U @ U.T
            V = np.linalg.eigh(outside @ np.cov(part.T) @ outside)[1][:, -20:]
            left[name].append(np.linalg.norm(V.T @ f) / own)
    assert all(0.4 < own / np.linalg.norm(lengths) < 0.8 for own in lengths)  # of 1 each
    assert min(left["together"]) > 0.1
    assert max(left["own"]) < 1e-10


@pytest.mark.parametrize("way", WAYS)
def test_separate_channels_are_three_independent_fits(images, source, way):
    X, glasses, _ = images
    pca = fit_source(source, FairImagePCA(4, n_unfair=2, **WAYS[way]))
    for c, part in enumerate(red_green_blue(X)):
        alone = FairStreamingPCA(4, n_unfair=2, **WAYS[way])
        fit_source(open_source(part, sensitive_features={"glasses": glasses}, block_size=110), alone)
        assert largest_sine(pca.components_[c].T, alone.components_.T) < 1e-5
        assert largest_sine(pca.unfair_basis_[c].T, alone.unfair_basis_.T) < 1e-5
        Z = pca.transform(X)[:, 4 * c : 4 * (c + 1)]
        np.testing.assert_allclose(Z, alone.transform(part), rtol=1e-4, atol=0.05)


@pytest.mark.parametrize("way", WAYS)
def test_joint_channels_are_one_fit_of_the_flattened_rows(images, way):
    X, glasses, _ = images
    joint = FairImagePCA(4, n_unfair=2, channels="joint", **WAYS[way]).fit(X, sensitive_features=glasses)
    flat = FairStreamingPCA(4, n_unfair=2, **WAYS[way]).fit(X, sensitive_features=glasses)
    assert len(joint.components_) == 1
    np.testing.assert_array_equal(joint.components_[0], flat.components_)
    for verb in ("transform", "erase"):
        np.testing.assert_array_equal(getattr(joint, verb)(X), getattr(flat, verb)(X))
    separate = FairImagePCA(4, n_unfair=2, **WAYS[way]).fit(X, sensitive_features=glasses)
    assert separate.transform(X).shape == (N, 4 * C)


def test_several_attributes_and_weights(images):
    X, glasses, smile = images
    weights = 1 + np.arange(N) % 2
    columns = {"glasses": glasses, "smile": smile}
    pca = FairImagePCA(4, constraint="mean").fit(X, sensitive_features=columns, sample_weight=weights)
    again = FairImagePCA(4, constraint="mean").fit(
        np.repeat(X, weights, axis=0),
        sensitive_features={name: np.repeat(of, weights) for name, of in columns.items()},
    )
    assert pca.n_samples_seen_ == again.n_samples_seen_ == weights.sum()
    for one, two in zip(pca.components_, again.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-3
    assert [len(U) for U in pca.unfair_basis_] == [2, 2, 2]
    assert pca.group_counts_["smile"]["yes"] == weights[smile == "yes"].sum()


# One pass, little memory --------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "passes"), [("exact", 1), ("sketch", 1), ("power", 1)])
def test_all_channels_are_learned_in_one_pass(images, way, passes):
    source = image_source(images)
    fit_source(source, FairImagePCA(4, **WAYS[way]))
    assert source.passes == passes
    assert source.blocks == -(-N // 110)


def test_power_steps_over_the_whole_source_share_their_passes(images):
    source, rows = image_source(images), []
    pca = FairImagePCA(4, solver="power", power_steps=(3, 2), random_state=0)
    fit_source(source, pca, progress=lambda done, total: rows.append((done, total)))
    assert source.passes == 3 + 2
    assert rows[-1] == (5 * N, 5 * N)
    assert pca.n_samples_seen_ == N
    by_hand = FairImagePCA(4, solver="power", power_steps=(3, 2), random_state=0)
    X, glasses, _ = images
    by_hand.fit(X, sensitive_features=glasses)
    for one, two in zip(pca.components_, by_hand.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-4


def test_whole_steps_work_for_a_single_model_too(images):
    X, glasses, _ = images
    source = open_source(X, sensitive_features={"glasses": glasses}, block_size=100)
    options = {"solver": "power", "power_steps": (3, 3), "random_state": 0}
    streamed = fit_source(source, n_components=4, **options)
    whole = FairStreamingPCA(4, **options).fit(X, sensitive_features=glasses)
    assert largest_sine(streamed.components_.T, whole.components_.T) < 1e-4


def test_whole_steps_of_all_channels_take_checkpoints(source, tmp_path):
    options = {"solver": "power", "power_steps": (1, 2), "random_state": 0}

    def stop(done, total):
        if done > 2 * source.n_rows:
            raise RuntimeError("the third step fails")

    with pytest.raises(RuntimeError, match="third step"):
        fit_source(source, FairImagePCA(4, **options), checkpoint=tmp_path, progress=stop)
    assert [int(file.stem[5:]) // source.n_rows for file in sorted(tmp_path.glob("rows-*"))] == [1, 2]
    resumed = fit_source(source, FairImagePCA(4, **options), checkpoint=tmp_path, resume=True)
    assert_same_bits(resumed, fit_source(source, FairImagePCA(4, **options)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"solver": "sketch", "rank": 16}, (4_000, 3 * 3_000)),
        ({"solver": "power", "step_rows": (1_000, 1_000), "power_steps": (2, 2)}, (4_000, 3 * 3_000)),
        ({"solver": "power", "power_steps": (1, 1)}, (4_000, 3 * 3_000)),
        ({"solver": "exact"}, (200_000, 3 * 60)),
    ],
)
def test_no_float_copy_of_a_block_exists(options, shape):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, shape, dtype=np.uint8)
    glasses = rng.random(shape[0]) < 0.3
    pca = FairImagePCA(3, **options)
    learn = pca.partial_fit if "step_rows" in options else pca.fit
    peak, _ = peak_of(lambda: learn(X, sensitive_features=glasses))
    assert peak < X.nbytes  # a float32 copy of the block is four times that, of a channel 4/3
    control, _ = peak_of(lambda: learn(X.astype(np.float32), sensitive_features=glasses))
    assert control > 4 * X.nbytes
    peak, Z = peak_of(lambda: pca.transform(X))
    assert peak - 2 * Z.nbytes < X.nbytes / 2 + 17_000_000  # slices of at most 16 MB


# Streaming, resolving, refusing -------------------------------------------------------------------


def test_any_blocks_give_the_same_exact_solution(images):
    X, glasses, _ = images
    whole = FairImagePCA(3).fit(X, sensitive_features=glasses)
    streamed = FairImagePCA(3)
    for rows in np.split(np.arange(N), [1, 7, 300, 301]):
        streamed.partial_fit(X[rows], sensitive_features=glasses[rows])
    for one, two in zip(whole.components_, streamed.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-4
    np.testing.assert_allclose(whole.mean_, X.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        whole.group_means_["sensitive_feature_0"][True], X[glasses].mean(axis=0), rtol=1e-4
    )


def test_sparse_rows_are_learned_alike(images):
    X, glasses, _ = images
    X = np.where(X > 140, X, 0).astype(np.float64)
    dense = FairImagePCA(3).fit(X, sensitive_features=glasses)
    sparse = FairImagePCA(3).fit(sp.csr_array(X), sensitive_features=glasses)
    for one, two in zip(dense.components_, sparse.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-6
    np.testing.assert_allclose(dense.erase(X), sparse.erase(sp.csr_array(X)), atol=1e-8)


def test_explained_variance_is_in_the_order_of_the_columns_and_of_all_channels(images):
    X, glasses, _ = images
    pca = FairImagePCA(4).fit(X.astype(float), sensitive_features=glasses)
    Z = pca.transform(X.astype(float))
    np.testing.assert_allclose(pca.explained_variance_, Z.var(axis=0, ddof=1), rtol=1e-6)
    total = X.astype(float).var(axis=0, ddof=1).sum()
    np.testing.assert_allclose(pca.explained_variance_ratio_, pca.explained_variance_ / total, rtol=1e-6)
    np.testing.assert_allclose(
        pca.inverse_transform(Z)[:, D : 2 * D],
        Z[:, 4:8] @ pca.components_[1] + pca.mean_[D : 2 * D],
    )


def test_resolve_and_frontier_need_no_data(images):
    X, glasses, _ = images
    pca = FairImagePCA(4).fit(X, sensitive_features=glasses)
    other = pca.resolve(n_components=3, n_unfair=5, constraint="covariance")
    anew = FairImagePCA(3, n_unfair=5, constraint="covariance").fit(X, sensitive_features=glasses)
    for one, two in zip(other.components_, anew.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-4
    assert other.get_params() == anew.get_params()
    points = pca.frontier(m for m in (0, 2))
    assert [[point.n_unfair for point in channel] for channel in points] == [[0, 2]] * C
    assert all(channel[1].mean_gap["sensitive_feature_0"] < 1e-3 for channel in points)
    with pytest.raises(ValueError, match=r"resolve cannot change \['rank'\]"):
        pca.resolve(rank=3)


def test_one_pass_of_many_attributes_serves_each_by_itself(images):
    X, glasses, smile = images
    both = FairImagePCA(4).fit(X, sensitive_features={"glasses": glasses, "smile": smile})
    alone = FairImagePCA(4).fit(X, sensitive_features={"smile": smile})
    from_both = ChannelSubspaces(
        [solve(moments.restricted({"smile": ["no", "yes"]}), 4) for moments in both.moments_]
    )
    for one, two in zip(from_both.components, alone.components_, strict=True):
        assert largest_sine(one.T, two.T) < 1e-4


def test_a_value_that_one_channel_refuses_is_learned_by_none(images):
    X, glasses, _ = images
    X = X.astype(np.float32)
    pca = FairImagePCA(3).partial_fit(X[:300], sensitive_features=glasses[:300])
    before = pca.components_
    broken = X[300:600].copy()
    broken[5, -1] = 1e30
    with pytest.raises(ValueError, match="sums of squares overflow"):
        pca.partial_fit(broken, sensitive_features=glasses[300:600])
    assert pca.n_samples_seen_ == 300
    for one, two in zip(before, pca.components_, strict=True):
        np.testing.assert_array_equal(one, two)
    # The control: the first two channels alone would have learned those rows; the estimator would not.
    for one in pca.estimators_[:2]:
        columns = slice(0, X.shape[1] // 3)
        assert one.partial_fit(broken[:, columns], sensitive_features=glasses[300:600]).n_samples_seen_ == 600
    assert [moments.n_rows for moments in pca.moments_] == [300, 300, 300]


@pytest.mark.parametrize(
    ("options", "n_features", "problem"),
    [
        ({}, 3 * D + 1, "X has 241 features, n_channels=3 does not divide them: rows must be planar"),
        ({"channels": "mixed"}, 3 * D, "channels='mixed' is not one of 'separate', 'joint'"),
        ({"n_channels": 0}, 3 * D, "n_channels=0: give a whole number from 1"),
        ({"n_channels": 1.5}, 3 * D, "n_channels=1.5: give a whole number from 1"),
        ({"n_components": 90}, 3 * D, "n_components=90: give a whole number from 1 to n_features=80"),
        ({"solver": "quick"}, 3 * D, "solver='quick' is not one of"),
        ({"rank": 3, "solver": "exact"}, 3 * D, "rank=3 has no meaning"),
    ],
)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_bad_input_is_refused_and_leaves_nothing(options, n_features, problem, verb):
    rng = np.random.default_rng(0)
    pca = FairImagePCA(**{"n_components": 2, **options})
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        getattr(pca, verb)(rng.normal(size=(50, n_features)), sensitive_features=rng.integers(0, 2, 50))
    assert not pca.__sklearn_is_fitted__()
    assert not hasattr(pca, "n_features_in_")


def test_missing_groups_are_an_error(images):
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        FairImagePCA(2).fit(images[0])


def test_channels_cannot_change_halfway(images):
    X, glasses, _ = images
    pca = FairImagePCA(2).partial_fit(X, sensitive_features=glasses)
    pca.set_params(n_channels=2)
    with pytest.raises(ValueError, match="3 models were fitted so far, n_channels=2"):
        pca.partial_fit(X, sensitive_features=glasses)
    pca.set_params(n_channels=3, n_components=5).partial_fit(X, sensitive_features=glasses)
    assert pca.transform(X).shape == (N, 15)


def test_a_source_must_have_the_estimator_s_channels(images, source):
    with pytest.raises(ValueError, match="n_channels=1, the source has 3: pass n_channels=3"):
        fit_source(source, FairImagePCA(2, n_channels=1))
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.0, 2, 3], "b": [0.0, 1, 0], "c": [1.0, 1, 2], "sex": ["f", "m", "f"]})
    with pytest.raises(ValueError, match="the source is a table, which has no colour channels"):
        fit_source(open_source(table, sensitive_features=["sex"]), FairImagePCA(1))


class SelfGroupedImagePCA(FairImagePCA):
    """With groups taken from X, so that checks which know no groups can run it."""

    def fit(self, X, y=None, sensitive_features=None, sample_weight=None):
        return super().fit(X, y, sensitive_features=row_labels(X), sample_weight=sample_weight)

    def partial_fit(self, X, y=None, sensitive_features=None, sample_weight=None):
        return super().partial_fit(X, y, sensitive_features=row_labels(X), sample_weight=sample_weight)


@pytest.mark.filterwarnings("ignore:fewer than min_group_size")  # the checks know few rows
@parametrize_with_checks(
    [
        FairImagePCA(n_channels=1, constraint="none"),
        FairImagePCA(channels="joint", constraint="none"),
        SelfGroupedImagePCA(n_channels=1, constraint="mean"),
    ]
)
def test_scikit_learn_common_checks(estimator, check):
    check(estimator)


# Files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_result_survives_its_file(images, source, tmp_path, way):
    X, _, _ = images
    result = fit_source(source, FairImagePCA(4, n_unfair=2, **WAYS[way])).subspace_
    result.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, ChannelSubspaces)
    assert_same_bits(result, again)
    np.testing.assert_array_equal(result.embed(X), again.embed(X))
    np.testing.assert_array_equal(result.erase(X), again.erase(X))
    assert again.groups == result.groups == {"glasses": (False, True)}
    assert pickle.loads(pickle.dumps(result)).embed(X[:3]).shape == (3, 12)


@pytest.mark.parametrize("way", ["exact", "sketch", "power"])
def test_a_half_finished_fit_goes_on_from_its_file(images, tmp_path, way):
    X, glasses, _ = images
    straight, first = FairImagePCA(4, **WAYS[way]), FairImagePCA(4, **WAYS[way])
    for rows in (slice(0, 330), slice(330, N)):
        straight.partial_fit(X[rows], sensitive_features={"glasses": glasses[rows]})
    first.partial_fit(X[:330], sensitive_features={"glasses": glasses[:330]})
    first.save(tmp_path / "half")
    second = load(tmp_path / "half")
    assert second.get_params() == first.get_params()
    second.partial_fit(X[330:], sensitive_features={"glasses": glasses[330:]})
    assert_same_bits(straight, second)


class BreaksOff(CountedSource):
    """Fails in the middle of its first pass."""

    def __iter__(self):
        for block in super().__iter__():
            if self.passes == 1 and self.blocks == 6:
                raise OSError("the disk is gone")
            yield block


@pytest.mark.parametrize("way", ["exact", "sketch", "power"])
def test_a_broken_off_fit_resumes_to_the_same_bits(images, tmp_path, way):
    X, glasses, _ = images
    opened = open_source(X, sensitive_features={"glasses": glasses}, block_size=110)
    straight = fit_source(CountedSource(opened), FairImagePCA(4, **WAYS[way]))
    source, folder = BreaksOff(opened), tmp_path / "checkpoints"
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(source, FairImagePCA(4, **WAYS[way]), checkpoint=folder, every=100)
    assert inspect_file(next(iter(sorted(folder.iterdir()))))["kind"] == "FairImagePCA"
    resumed = fit_source(source, FairImagePCA(4, **WAYS[way]), checkpoint=folder, resume=True)
    assert_same_bits(straight, resumed)
    with pytest.raises(ValueError, match="is of a FairImagePCA, the estimator a FairStreamingPCA"):
        fit_source(source, FairStreamingPCA(4, **WAYS[way]), checkpoint=folder, resume=True)


@pytest.fixture(scope="module")
def files(images, tmp_path_factory):
    X, glasses, _ = images
    folder = tmp_path_factory.mktemp("files")
    pca = FairImagePCA(3, solver="sketch", rank=12).fit(X, sensitive_features={"glasses": glasses})
    pca.save(folder / "estimator")
    pca.subspace_.save(folder / "result")
    return [(folder / name).read_bytes() for name in ("result", "estimator")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(files, tmp_path, damage):
    rng = np.random.default_rng(len(damage.__name__))
    for turn in range(12):
        data, other = files[turn % 2], files[1 - turn % 2]
        (tmp_path / "a").write_bytes(damage(data, [other], rng))
        with pytest.raises(FairstreamFileError):
            load(tmp_path / "a")


def drop_a_channel(about, table):
    key = "channels" if "channels" in about["state"] else "estimators"
    about["state"][key].pop()


def no_channel(about, table):
    about["state"]["channels" if "channels" in about["state"] else "estimators"] = []


def rename_an_array(about, table):
    name = next(name for name in table if name.startswith("2."))
    table["7" + name[1:]] = table.pop(name)


def unnumbered_array(about, table):
    name = next(name for name in table if name.startswith("0."))
    table[name[2:]] = table.pop(name)


def narrower_channel(about, table):
    for name, entry in table.items():
        if name.startswith("1.") and D in entry["shape"]:
            entry["shape"] = [n // 2 if n == D else n for n in entry["shape"]] + [2]


def other_rows(about, table):
    state = about["state"]
    if "channels" in state:
        state["channels"][1]["n_rows"] = 7
    else:
        state["parameters"]["n_channels"] = 2


def other_parameters(about, table):
    state = about["state"]
    if "estimators" in state:
        state["estimators"][2]["learned"]["groups"][0][1] = "other"
    else:
        state["channels"][2]["group_counts"][0][2] += 1


FORGERIES = [
    drop_a_channel,
    no_channel,
    rename_an_array,
    unnumbered_array,
    narrower_channel,
    other_rows,
    other_parameters,
]


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("which", [0, 1])
def test_a_file_whose_channels_do_not_go_together_is_refused(files, tmp_path, forge, which):
    about, table = start_of(files[which])
    (tmp_path / "a").write_bytes(resealed(files[which], about, table))
    load(tmp_path / "a")  # the control: sealed again without a change, it is read
    forge(about, table)
    (tmp_path / "a").write_bytes(resealed(files[which], about, table))
    with pytest.raises(FairstreamFileError):
        load(tmp_path / "a")


def test_files_of_format_1_are_read():
    stored = Path(__file__).parent / "stored"
    result, estimator = (
        load(stored / "format-1-channels.safetensors"),
        load(stored / "format-1-image-fit.safetensors"),
    )
    assert result.n_channels == 2
    assert [V.shape for V in result.components] == [(1, 3), (1, 3)]
    assert result.group_counts["old"] == {False: 4, True: 4}
    for one, two in zip(result.components, estimator.components_, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)
    assert estimator.n_samples_seen_ == 8


def test_subspaces_of_other_rows_make_no_image():
    def one(d=2, n=10):
        return FairSubspace(np.eye(d)[:1], np.eye(d)[1:2], np.zeros(d), np.ones(1), 2.0, n)

    assert ChannelSubspaces([one(), one()]).n_features == 4
    for others, problem in (
        ([], "channels is empty"),
        ([one(), one(3)], "n_features"),
        ([one(), one(n=9)], "n_rows"),
    ):
        with pytest.raises(ValueError, match=problem):
            ChannelSubspaces(others)
    with pytest.raises(ValueError, match=r"X has shape \(1, 3\), 4 columns are expected"):
        ChannelSubspaces([one(), one()]).embed(np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"Z has shape \(1, 3\), 2 columns are expected"):
        ChannelSubspaces([one(), one()]).reconstruct(np.ones((1, 3)))


# From images, on the command line -----------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(images, tmp_path_factory):
    Image = pytest.importorskip("PIL.Image")
    X, glasses, smile = images
    folder = tmp_path_factory.mktemp("archive")
    lines = ["120", "Eyeglasses Smiling"]
    with zipfile.ZipFile(folder / "images.zip", "w") as into:
        for i, row in enumerate(X[:120]):
            file = io.BytesIO()
            Image.fromarray(row.reshape(C, HEIGHT, WIDTH).transpose(1, 2, 0)).save(file, "png")
            into.writestr(f"{i:03}.png", file.getvalue())
            lines.append(f"{i:03}.png {1 if glasses[i] else -1} {1 if smile[i] == 'yes' else -1}")
    (folder / "list.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_the_command_line_fits_and_uses_channels(images, archive, tmp_path):
    X, glasses, _ = images
    labels = ["--attributes", archive / "list.txt", "-s", "Eyeglasses"]
    model = tmp_path / "model.safetensors"
    told = run(
        "fit",
        archive / "images.zip",
        *labels,
        "--channels",
        "separate",
        "-k",
        3,
        "-m",
        2,
        "-o",
        model,
        "--json",
    )
    facts = json.loads(told.stdout)
    assert facts["n_channels"] == 3
    assert facts["n_components"] == 9
    assert facts["n_removed"] == [3, 3, 3]
    assert max(facts["channel_residual_mean_gap"]["Eyeglasses"]) < 1e-4
    assert facts["groups"]["Eyeglasses"] == {
        "False": int((~glasses[:120]).sum()),
        "True": int(glasses[:120].sum()),
    }
    expected = FairImagePCA(3, n_unfair=2).fit(X[:120], sensitive_features={"Eyeglasses": glasses[:120]})
    for verb, values in (("transform", expected.transform(X[:120])), ("erase", expected.erase(X[:120]))):
        run(verb, model, archive / "images.zip", "-o", tmp_path / f"{verb}.npy")
        np.testing.assert_allclose(np.load(tmp_path / f"{verb}.npy"), values, rtol=1e-3, atol=0.2)
    assert json.loads(run("inspect", model, "--json").stdout)["kind"] == "ChannelSubspaces"
    assert "n channels" in run("inspect", model).stdout


def test_the_command_line_s_joint_model_is_the_one_before(archive, tmp_path):
    labels = ["--attributes", archive / "list.txt", "-s", "Eyeglasses"]
    run("fit", archive / "images.zip", *labels, "-k", 3, "-o", tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), FairSubspace)


def test_the_command_line_checkpoints_channels(archive, tmp_path):
    fit = ["fit", archive / "images.zip", "--attributes", archive / "list.txt", "-s", "Eyeglasses", "-k", 3]
    fit += ["--channels", "separate", "--checkpoint", tmp_path / "checkpoints", "-o", tmp_path / "model"]
    run(*fit, "--every", 50, "--block-size", 40)
    newest = max((tmp_path / "checkpoints").iterdir())
    facts = json.loads(run("inspect", newest, "--json").stdout)
    assert facts["kind"] == "FairImagePCA"
    assert facts["n_features"] == C * D
    assert facts["checkpoint"]["rows"] == 120
    run("transform", newest, archive / "images.zip", "-o", tmp_path / "out.npy")
    assert "holds moments channel by channel" in run("frontier", newest, "-k", 2, code=1).output
    run(*fit, "--resume", "--block-size", 40)


def test_the_command_line_fits_channels_on_workers(archive, tmp_path):
    pytest.importorskip("distributed")
    fit = ["fit", archive / "images.zip", "--attributes", archive / "list.txt", "-s", "Eyeglasses", "-k", 3]
    fit += ["--channels", "separate"]
    run(*fit, "-o", tmp_path / "here")
    run(*fit, "--workers", 1, "-o", tmp_path / "there")
    here, there = load(tmp_path / "here"), load(tmp_path / "there")
    for ours, theirs in zip(there.channels, here.channels, strict=True):
        assert principal_angles(ours.components.T, theirs.components.T).max() < 1e-2


def test_the_command_line_says_where_channels_do_not_apply(archive, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 7)))
    end = ["-k", 2, "--channels", "separate", "-o", tmp_path / "model"]
    said = run("fit", tmp_path / "x.npy", "-s", 0, *end, code=2).output
    assert "--channels separate is for images" in said
    labels = ["--attributes", archive / "list.txt", "-s", "Eyeglasses"]
    said = run("fit", tmp_path / "x.npy", *labels, "-k", 2, "-o", tmp_path / "model", code=1).output
    assert "attributes does not apply to a .npy file" in said


def test_a_model_of_colour_is_not_used_on_other_channels(images, source, tmp_path):
    result = fit_source(source, FairImagePCA(2)).subspace_
    grey = image_source(images)
    grey.n_channels = 1
    with pytest.raises(ValueError, match="the data has other channels than the model's 3"):
        open_like(result, grey)
    assert embed_source(result, open_like(result, source), tmp_path / "out.npy") == N


def test_an_audit_reads_a_model_of_several_channels(images):
    X, glasses, _ = images
    pca = FairImagePCA(2, constraint="mean").fit(
        X[:450].astype(float), sensitive_features={"glasses": glasses[:450]}
    )
    report = audit(
        {"colour": pca.subspace_}, X[450:].astype(float), sensitive_features={"glasses": glasses[450:]},
        attackers=["linear"], sample_rows=400,
    )  # fmt: skip
    assert "colour" in "\n".join(report.summary())


# Genuine images -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def celeba():
    root = Path(os.environ.get("FAIRSTREAM_DATA", Path(__file__).parents[2] / "shared" / "data")) / "celeba"
    if not (root / "img_align_celeba.zip").is_file():
        pytest.skip("CelebA is not on this machine: set FAIRSTREAM_DATA")
    pytest.importorskip("simplejpeg")
    return root


def faces(root, n, **options):
    from fairstream.datasets.celeba import CelebA

    names = CelebA(root).names[:n]
    table = {"attributes": root / "list_attr_celeba.txt", "sensitive_features": ["Eyeglasses"]}
    return open_source(root / "img_align_celeba.zip", names=names, **table, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "options", "how"),
    [
        (400, {"resize": (54, 44)}, {"solver": "sketch", "rank": 64}),
        (200, {"resize": (54, 44)}, {"solver": "power", "power_steps": (3, 2), "random_state": 0}),
        (150, {}, {"solver": "sketch", "rank": 32}),  # 218 x 178 x 3
    ],
)
def test_genuine_faces_are_fair_in_every_channel(celeba, n, options, how):
    source = faces(celeba, n, block_size=64, **options)
    pca = fit_source(source, FairImagePCA(8, n_unfair=2, **how))
    X = np.concatenate([block.X for block in source])
    glasses = np.concatenate([block.groups["Eyeglasses"].decode().astype(bool) for block in source])
    assert X.dtype == np.uint8
    Z = pca.transform(X)
    plain = pca.resolve(constraint="none").transform(X) if how["solver"] == "sketch" else None
    for c, columns in enumerate(source.channel_slices):
        assert pca.components_[c].dtype == np.float32
        assert deviation_from_orthonormal(pca.unfair_basis_[c]) <= 1e-5
        pixels = X[:, columns].astype(float)
        f = pixels[glasses].mean(axis=0) - pixels[~glasses].mean(axis=0)

        def gap(of, c=c, f=f):
            mine = of[:, 8 * c : 8 * (c + 1)].astype(float)
            return np.linalg.norm(mine[glasses].mean(axis=0) - mine[~glasses].mean(axis=0)) / np.linalg.norm(
                f
            )

        assert gap(Z) < 1e-4
        if plain is not None:
            assert gap(plain) > 0.1
    assert pca.inverse_transform(Z[:1]).reshape(3, *source.image_shape).shape[0] == 3


def test_parameters_set_after_learning_reach_every_channel(tmp_path):
    rng = np.random.default_rng(0)
    X, glasses = rng.integers(0, 255, (200, 24), dtype=np.uint8), rng.integers(0, 2, 200)
    pca = FairImagePCA(3).partial_fit(X, sensitive_features=glasses).set_params(n_components=2)
    assert [V.shape for V in pca.components_] == [(2, 8)] * 3
    pca = FairImagePCA(3).partial_fit(X, sensitive_features=glasses).set_params(n_components=2)
    pca.save(tmp_path / "image.safetensors")
    assert [V.shape for V in load(tmp_path / "image.safetensors").components_] == [(2, 8)] * 3
    with pytest.raises(ValueError, match="fit anew"):
        pca.set_params(n_channels=2).save(tmp_path / "other.safetensors")
