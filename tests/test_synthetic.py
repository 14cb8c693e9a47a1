"""The synthetic streams: rows that do not depend on the cut, and a population that the rows really have."""

import itertools

import numpy as np
import pytest

from fairstream.data.blocks import BlockSource
from fairstream.datasets.synthetic import SyntheticStream, benchmark_stream, synthetic_stream
from fairstream.linalg import principal_angles


def concatenated(stream, block_size, n_rows):
    blocks = list(stream.blocks(block_size, n_rows))
    return np.concatenate([b.X for b in blocks]), np.concatenate([b.groups["group"].codes for b in blocks])


def test_it_is_a_block_source():
    stream = synthetic_stream(6, n_rows=100, block_size=30)
    assert isinstance(stream, BlockSource)
    assert [block.n_rows for block in stream] == [30, 30, 30, 10]
    assert stream.n_features == 6
    assert stream.feature_names is None


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "rademacher"])
@pytest.mark.parametrize("order", ["random", "sorted", "group_late"])
def test_rows_do_not_depend_on_the_block_size(distribution, order):
    # 40 features make tiles of 26,214 rows: every cut below crosses tiles.
    stream = synthetic_stream(40, distribution=distribution, order=order, late_row=30_000, n_rows=60_000)
    assert stream._tile_rows == 26_214
    n = stream.n_rows
    X, groups = stream.sample(n)
    for size in (n // 7, n // 2 + 1, n):
        cut_X, cut_groups = concatenated(stream, size, n)
        assert np.array_equal(cut_X, X)
        assert np.array_equal(cut_groups, groups)
    start = n // 2 + 13
    later_X, later_groups = stream.sample(50, start=start)
    assert np.array_equal(later_X, X[start : start + 50])
    assert np.array_equal(later_groups, groups[start : start + 50])


def test_every_iteration_starts_again_and_another_seed_is_another_draw():
    stream = synthetic_stream(5, n_rows=64, block_size=64)
    first, again = next(iter(stream)).X, next(iter(stream)).X
    assert np.array_equal(first, again)
    fresh = stream.fresh(1)
    assert not np.array_equal(next(iter(fresh)).X, first)
    assert np.array_equal(fresh.covariance, stream.covariance)


def test_an_endless_stream_goes_on():
    stream = synthetic_stream(200)
    assert stream.n_rows is None
    sizes = [block.n_rows for block in itertools.islice(stream.blocks(5_000), 4)]
    assert sizes == [5_000] * 4


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "rademacher"])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_the_population_is_that_of_the_rows(distribution, offset):
    stream = synthetic_stream(
        6, p=0.3, decay=(1.0, 0.5), mean_scale=2.0, distribution=distribution, offset=offset
    )
    X, groups = stream.sample(400_000)
    assert np.allclose(X.mean(axis=0), stream.mean, atol=0.02)
    centred = X - stream.mean
    assert groups.mean() == pytest.approx(0.3, abs=0.005)
    moments = [centred[groups == a].T @ centred[groups == a] / np.sum(groups == a) for a in (0, 1)]
    assert np.allclose(moments[1] - moments[0], stream.second_moment_gap, atol=0.03)
    assert np.allclose(np.cov(X.T), stream.covariance, atol=0.03)
    means = [centred[groups == a].mean(axis=0) for a in (0, 1)]
    assert np.allclose(means, stream.group_means, atol=0.02)
    assert np.allclose(means[1] - means[0], stream.mean_gap, atol=0.03)
    for a in (0, 1):
        assert np.allclose(np.cov(centred[groups == a].T), stream.group_covariances[a], atol=0.03)


def test_the_total_mean_is_zero_before_the_offset():
    stream = synthetic_stream(7, p=0.2, mean_scale=3.0)
    total = np.array(stream.probabilities) @ stream.group_means
    assert np.allclose(total, 0.0, atol=1e-15)
    assert np.linalg.norm(stream.mean_gap) == pytest.approx(3.0)


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "rademacher"])
def test_the_constants_of_assumption_1_hold_for_the_rows(distribution):
    stream = synthetic_stream(4, p=0.4, decay=(1.0, 0.3), mean_scale=1.5, distribution=distribution)
    X, groups = stream.sample(600_000)
    variances, tails = [], []
    for a in (0, 1):
        rows = X[groups == a]
        fourth = (rows * np.sum(rows**2, axis=1)[:, None]).T @ rows / len(rows)
        variances.append(
            np.linalg.norm(fourth - stream.group_second_moments[a] @ stream.group_second_moments[a], 2)
        )
        distance = np.linalg.norm(rows - stream.group_means[a], axis=1)
        assert distance.max() <= stream.radius * (1 + 1e-9)
        levels = np.linspace(0, 4, 60) * stream.norm_sub_gaussian
        observed = np.array([np.mean(distance >= level * (1 + 1e-9)) for level in levels])
        tails.append(observed - 2 * np.exp(-(levels**2) / (2 * stream.norm_sub_gaussian**2)))
    assert max(variances) == pytest.approx(stream.matrix_variance, rel=0.03)
    assert np.max(tails) <= 0.003
    # The control: half that sigma is refuted by the same rows.
    half = stream.norm_sub_gaussian / 2
    distance = np.linalg.norm(X - stream.group_means[groups], axis=1)
    assert any(
        np.mean(distance >= t) > 2 * np.exp(-(t**2) / (2 * half**2)) + 0.01
        for t in np.linspace(1, 4, 60) * half
    )


def test_the_rademacher_radius_is_reached_and_the_gaussian_one_infinite():
    stream = synthetic_stream(5, distribution="rademacher")
    X, groups = stream.sample(2_000)
    distance = np.linalg.norm(X - stream.group_means[groups], axis=1)
    assert np.allclose(distance, stream.radius)
    assert synthetic_stream(5).radius == np.inf


@pytest.mark.parametrize("constraint", ["none", "mean", "covariance", "all"])
def test_the_population_solves_the_constrained_problem(constraint):
    stream = synthetic_stream(12, p=0.3, random_state=4)
    truth = stream.population(3, 4, constraint)
    assert truth.U.shape[1] == {"none": 0, "mean": 1, "covariance": 4, "all": 5}[constraint]
    assert np.allclose(truth.V.T @ truth.V, np.eye(3), atol=1e-12)
    assert np.allclose(truth.U.T @ truth.V, 0.0, atol=1e-12)
    if constraint in ("mean", "all"):
        assert np.allclose(truth.V.T @ stream.mean_gap, 0.0, atol=1e-12)
    assert truth.explained_variance == pytest.approx(truth.fair_singular_values[:3].sum())
    # No other fair subspace does better, and plain PCA does better by being unfair.
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = np.linalg.qr(rng.standard_normal((12, 3)) * 0.3 + truth.V)[0]
        other = np.linalg.qr(other - truth.U @ (truth.U.T @ other))[0]
        assert np.trace(other.T @ stream.covariance @ other) <= truth.explained_variance + 1e-12
    best = np.linalg.eigvalsh(stream.covariance)[-3:].sum()
    assert (best > truth.explained_variance + 1e-6) == (constraint != "none")


def test_absolute_eigenvalues_choose_the_unfair_directions():
    basis, gap = np.eye(4), np.zeros(4)
    stream = SyntheticStream(
        np.stack([basis, basis]), np.array([[5.0, 2.0, 1.0, 1.0], [1.0, 4.0, 2.0, 1.0]]), gap, p=0.5
    )
    truth = stream.population(1, 2, "all")
    assert np.allclose(truth.unfair_singular_values, [4.0, 2.0, 1.0, 0.0])
    assert np.max(principal_angles(truth.U, basis[:, :2])) < 1e-7


def test_a_mean_gap_inside_the_nulled_directions_adds_no_direction():
    stream = synthetic_stream(6, shared_subspace=True, mean_scale=2.0)
    assert stream.population(2, 1, "all").U.shape[1] == 1  # S is a multiple of ff'
    assert synthetic_stream(6, mean_scale=2.0).population(2, 1, "all").U.shape[1] == 2


def test_orders_put_group_1_where_they_say():
    sorted_groups = synthetic_stream(3, p=0.2, order="sorted", n_rows=1_000).sample(1_000)[1]
    assert np.array_equal(sorted_groups, np.repeat([0, 1], [800, 200]))
    late = synthetic_stream(3, p=0.5, order="group_late", late_row=600).sample(1_000)[1]
    assert late[:600].sum() == 0
    assert 130 < late[600:].sum() < 270
    independent = synthetic_stream(3, p=0.5).sample(1_000)[1]
    assert independent[:600].sum() > 200


def test_dtype_and_the_benchmark_problem():
    stream = benchmark_stream(decay=1.0, dtype=np.float32)
    X, _ = stream.sample(10)
    assert X.dtype == np.float32
    assert (stream.n_features, stream.p) == (200, 0.2)
    assert np.allclose(stream.spectra[0], 1 / np.arange(1, 201))
    assert stream.sample(0)[0].shape == (0, 200)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": 0.0}, "p is 0.0: both groups"),
        ({"bases": np.ones((2, 3, 3))}, "not orthonormal"),
        ({"bases": np.eye(3)}, r"bases has shape \(3, 3\)"),
        ({"spectra": -np.ones((2, 3))}, "minimum -1.0"),
        ({"mean_gap": np.zeros(4)}, r"mean_gap has shape \(4,\)"),
        ({"distribution": "cauchy"}, "distribution is 'cauchy'"),
        ({"order": "shuffled"}, "order is 'shuffled'"),
        ({"order": "sorted"}, "endless stream"),
    ],
)
def test_refusals_name_the_argument(changes, message):
    arguments = {"bases": np.stack([np.eye(3)] * 2), "spectra": np.ones((2, 3)), "mean_gap": np.zeros(3)}
    SyntheticStream(**arguments)
    with pytest.raises(ValueError, match=message):
        SyntheticStream(**{**arguments, **changes})


def test_a_problem_without_room_is_refused():
    stream = synthetic_stream(5)
    with pytest.raises(ValueError, match="n_components is 3 and 3 directions are nulled"):
        stream.population(3, 2)
    with pytest.raises(ValueError, match="constraint is 'both'"):
        stream.population(1, 1, "both")


def test_random_signs_are_fair_coins_with_few_columns_and_with_many():
    for d in (3, 8, 9, 21):  # up to 8 columns are looked up in a table, more are multiplied
        basis = np.stack([np.eye(d)] * 2)
        stream = SyntheticStream(basis, np.ones((2, d)), np.zeros(d), p=0.5, distribution="rademacher")
        X, groups = stream.sample(60_000)
        assert np.array_equal(np.abs(X), np.ones_like(X))
        assert np.max(np.abs(np.corrcoef(np.column_stack([X, groups]).T) - np.eye(d + 1))) < 0.03
