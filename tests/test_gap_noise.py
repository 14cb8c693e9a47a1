"""Gaps are compared with those of shuffled labels."""

from __future__ import annotations

import numpy as np
import pytest
from support.embedded import mean_gap, second_moment_gap

from fairstream.auditing.measure import gap_noise as module
from fairstream.auditing.measure.gap_noise import gap_noise


def rows(seed, n_rows=300, n_columns=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_columns)), rng.integers(0, 2, size=n_rows)


def test_observed_gaps_are_those_of_the_definitions():
    Z, codes = rows(0)
    mean, second = gap_noise(Z, codes, n_permutations=5)
    assert mean.observed == pytest.approx(mean_gap(Z, codes == 1))
    assert second.observed == pytest.approx(second_moment_gap(Z, codes == 1))


def test_shuffled_gaps_are_those_of_shuffled_labels():
    Z, codes = rows(0)
    mean, second = gap_noise(Z, codes, n_permutations=2_000)
    rng = np.random.default_rng(5)
    shuffled = [rng.permutation(codes) == 1 for _ in range(2_000)]
    for found, gap in ((mean, mean_gap), (second, second_moment_gap)):
        direct = np.quantile([gap(Z, labels) for labels in shuffled], (0.5, 0.95))
        assert found.quantiles == pytest.approx(direct, rel=0.06)


def test_a_planted_gap_is_above_the_noise_and_groups_alike_seldom_are():
    Z, codes = rows(0)
    wide = Z * np.where(codes, 2.0, 1.0)[:, None]
    assert gap_noise(Z + codes[:, None], codes)[0].p_value < 0.01
    assert gap_noise(wide, codes)[1].p_value < 0.01
    alarms = sum(
        found.p_value <= 0.05
        for seed in range(40)
        for found in gap_noise(*rows(seed, n_rows=80), n_permutations=99, seed=seed)
    )
    assert alarms <= 9  # of 80 at 5 %: exceeded with probability 1 %


def test_wide_embeddings_give_the_same_gaps_without_square_matrices(monkeypatch):
    Z, codes = rows(0, n_rows=150, n_columns=30)
    direct = gap_noise(Z, codes, n_permutations=5)
    monkeypatch.setattr(module, "WIDE", 10)
    for found, expected in zip(gap_noise(Z, codes, n_permutations=5), direct, strict=True):
        assert found.observed == pytest.approx(expected.observed, rel=1e-2)
        assert found.quantiles == pytest.approx(expected.quantiles, rel=1e-2)


def test_three_groups_have_three_comparisons_and_unknown_rows_none():
    Z, codes = rows(0)
    three = np.where(np.arange(300) < 100, 2, codes)
    three[::10] = -1
    assert [found.group for found in gap_noise(Z, three, n_permutations=3)] == [0, 0, 1, 1, 2, 2]
    known = three >= 0
    assert gap_noise(Z, three, n_permutations=3)[0].observed == pytest.approx(
        mean_gap(Z[known], three[known] == 0)
    )


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="codes has 1 groups"):
        gap_noise(np.zeros((4, 1)), np.zeros(4, dtype=int))
    with pytest.raises(ValueError, match="n_permutations is 0"):
        gap_noise(np.zeros((4, 1)), np.arange(4) % 2, n_permutations=0)
    with pytest.raises(ValueError, match="pass one group per row"):
        gap_noise(np.zeros((4, 1)), np.arange(3) % 2)
