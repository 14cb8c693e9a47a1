"""Distances in tiles, and the median of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream.linalg.kernels import centred, median_squared_distance, negative_distances, upper_tiles


@pytest.mark.parametrize("n_rows", [1, 7, 40])
def test_tiles_hold_every_pair_once(n_rows):
    Z = np.random.default_rng(0).normal(size=(n_rows, 3))
    expected = -2.5 * ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    found = np.full((n_rows, n_rows), np.nan)
    for rows, columns, values in negative_distances(Z, upper_tiles(n_rows, tile=6), 2.5):
        assert np.isnan(found[rows, columns]).all()
        assert (values <= 0).all()
        found[rows, columns] = values
        found[columns, rows] = values.T
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not np.diag(found).any()


def test_rows_far_from_zero_are_centred_first():
    Z = np.random.default_rng(0).normal(size=(30, 2))
    far = Z + 1e7
    ((*_, near),) = negative_distances(centred(far), upper_tiles(30))
    np.testing.assert_allclose(near, -((far[:, None] - far[None]) ** 2).sum(axis=2), atol=1e-8)
    ((*_, lost),) = negative_distances(far, upper_tiles(30))  # the control: cancellation
    assert np.abs(lost - near).max() > 1e-3


@pytest.mark.parametrize(("n_rows", "keep"), [(40, 10**6), (41, 10**6), (40, 50), (151, 500), (250, 20_000)])
def test_the_bandwidth_is_the_median_over_all_pairs(n_rows, keep):
    rng = np.random.default_rng(n_rows)
    Z = rng.normal(size=(n_rows, 4)) + 1e3
    pairs = [np.sum((Z[i] - Z[j]) ** 2) for i in range(n_rows) for j in range(i)]
    assert median_squared_distance(Z, keep=keep, tile=128) == pytest.approx(np.median(pairs), rel=1e-9)


def test_the_bandwidth_survives_ties():
    Z = np.random.default_rng(0).integers(0, 2, size=(400, 3)).astype(float)
    assert median_squared_distance(Z, keep=100) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("n_equal", [2_900, 3_200])
def test_the_bandwidth_of_mostly_equal_rows_is_zero(n_equal):
    Z = np.random.default_rng(0).normal(size=(3_200, 2)) + 3.3
    Z[:n_equal] = Z[0]
    assert median_squared_distance(Z) == 0.0
    half = np.random.default_rng(0).permutation(3_200) < 1_600  # the control: half of the pairs are apart
    Z[half] = Z[0] + [3.0, 4.0]
    Z[~half] = Z[1]
    assert median_squared_distance(Z, keep=100) == pytest.approx(np.sum((Z[half][0] - Z[1]) ** 2), rel=1e-9)


def test_a_far_row_does_not_hide_the_distances_of_the_others():
    Z = np.random.default_rng(0).normal(size=(200, 2))
    expected = median_squared_distance(Z)
    Z[0] *= 1e6
    assert median_squared_distance(Z) == pytest.approx(expected, rel=0.05)
