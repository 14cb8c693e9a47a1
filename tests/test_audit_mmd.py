"""The distance between distributions against naive sums written from the definition."""

from __future__ import annotations

import numpy as np
import pytest
from support.embedded import explained_variance_ratio

from fairstream.auditing.measure import mmd
from fairstream.linalg.kernels import median_squared_distance


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(157, 7)) @ rng.normal(size=(7, 7)) + 100.0
    groups = rng.integers(-1, 3, size=157)
    V, _ = np.linalg.qr(rng.normal(size=(7, 3)))
    return X, groups, V.T


def naive_mmd2(A, B, bandwidth):
    def mean_kernel(P, Q):
        return np.mean([[np.exp(-sum((p - q) ** 2) / bandwidth) for q in Q] for p in P])

    return mean_kernel(A, A) + mean_kernel(B, B) - 2 * mean_kernel(A, B)


def naive_unbiased_mmd2(A, B, bandwidth):
    def kernel(p, q):
        return np.exp(-sum((p - q) ** 2) / bandwidth)

    def within(P):
        n = len(P)
        return sum(kernel(P[i], P[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))

    return within(A) + within(B) - 2 * np.mean([[kernel(p, q) for q in B] for p in A])


@pytest.mark.parametrize("tile", [7, 64, 1024])
def test_mmd2_is_the_naive_double_sum(rows, tile):
    X, groups, V = rows
    Z, inside = X @ V.T, groups == 2
    found = mmd.discrepancy(Z, inside, 9.0, n_permutations=3, tile=tile)
    assert found.biased == pytest.approx(naive_mmd2(Z[inside], Z[~inside], 9.0), abs=1e-10)
    assert found.unbiased == pytest.approx(naive_unbiased_mmd2(Z[inside], Z[~inside], 9.0), abs=1e-10)
    assert mmd.mmd2(Z, inside, 9.0) == pytest.approx(found.biased, abs=1e-12)


def test_p_values_are_uniform_without_a_difference():
    """Kolmogorov-Smirnov over 300 samples without a difference; the control has one and must fail it."""
    from scipy.stats import kstest

    def p_values(shift):
        values = []
        for seed in range(300):
            rng = np.random.default_rng(seed)
            Z, inside = rng.normal(size=(60, 2)), np.arange(60) < 25
            Z[inside] += shift
            found = mmd.discrepancy(Z, inside, 4.0, n_permutations=99, seed=seed)
            values.append(
                found.p_value - rng.random() / 100
            )  # p is one of 100 steps: spread it over its step
        return values

    assert kstest(p_values(0.0), "uniform").pvalue > 0.01
    assert kstest(p_values(0.3), "uniform").pvalue < 1e-6


def test_mmd_refuses_what_it_cannot_measure():
    Z = np.zeros((6, 2))
    with pytest.raises(ValueError, match="in_group has 5 rows, Z has 6"):
        mmd.discrepancy(Z, np.ones(5, dtype=bool), 1.0)
    with pytest.raises(ValueError, match="each side needs at least two"):
        mmd.discrepancy(Z, np.arange(6) < 1, 1.0)
    with pytest.raises(ValueError, match="bandwidth is 0"):
        mmd.discrepancy(Z, np.arange(6) < 3, 0.0)


def test_mmd_never_holds_all_pairs():
    """3,000 rows have 9 million pairs, 72 MB: tiles stay far below. Control: the naive array does not."""
    import tracemalloc

    Z = np.random.default_rng(0).normal(size=(3_000, 3))
    inside = np.arange(3_000) % 3 == 0

    def peak(call):
        tracemalloc.start()
        call()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    pairs = 8 * len(Z) ** 2
    assert peak(lambda: mmd.discrepancy(Z, inside, 6.0, n_permutations=50, tile=256)) < pairs / 10
    assert peak(lambda: median_squared_distance(Z, tile=256, keep=10**5)) < pairs / 4
    assert peak(lambda: Z[:, :1] - Z[:, :1].T) >= pairs


def test_the_papers_row_for_pca_on_german_credit():
    """%Var 11.13 (0.32) and MMD^2 0.293 (0.054) over the ten splits, k = 2, to the last printed digit."""
    from fairstream.datasets import paper_split

    found = []
    for number in range(10):
        split = paper_split("german", number)
        _, vectors = np.linalg.eigh(np.cov(split.X_train.T))
        V = vectors[:, -2:]
        bandwidth = median_squared_distance(split.X_train @ V)
        variance = 100 * explained_variance_ratio(split.X_test, V.T)
        found.append((variance, mmd.mmd2(split.X_test @ V, split.groups_test == 1, bandwidth)))
    (variance, distance), (variance_std, distance_std) = np.mean(found, axis=0), np.std(found, axis=0)
    assert (round(variance, 2), round(variance_std, 2)) == (11.13, 0.32)
    assert (round(distance, 3), round(distance_std, 3)) == (0.293, 0.054)
