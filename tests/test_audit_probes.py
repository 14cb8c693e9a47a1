"""Probes find what is there, and do not cry wolf."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fairstream.auditing.measure.auc import auc_with_variance
from fairstream.auditing.measure.probes import PROBES, probe, run_probes


def uninformative(seed, n_rows=200, n_columns=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_columns)), (rng.random(n_rows) < 0.4).astype(int)


def test_false_alarms_stay_within_the_nominal_level():
    """200 seeds without information: 5 % alarms, up to chance. The textbook interval fails the same test."""
    allowed = 18  # of 200 at 5 %: a fair interval exceeds this with probability 0.4 %
    alarms = textbook = accuracy_alarms = one_sided = 0
    for seed in range(200):
        result = probe(*uninformative(seed, n_rows=120), seed=seed)
        alarms += not result.auc.low <= 0.5 <= result.auc.high
        accuracy_alarms += not result.balanced_accuracy.low <= 0.5 <= result.balanced_accuracy.high
        one_sided += result.p_value < 0.05
        reach = (result.auc.high - result.auc.low) / 2 / np.sqrt(1 + 5 / 4)
        textbook += abs(result.auc.value - 0.5) > reach
    assert alarms <= allowed
    assert accuracy_alarms <= allowed
    assert one_sided <= allowed
    assert textbook > allowed


@pytest.mark.parametrize("kind", PROBES)
def test_every_probe_sees_a_planted_attribute_and_nothing_where_there_is_nothing(kind):
    Z, groups = uninformative(3, n_rows=400)
    nothing = probe(Z, groups, kind)
    assert nothing.auc.low <= 0.5 <= nothing.auc.high
    Z[:, 0] += 4 * groups
    assert probe(Z, groups, kind).auc.low > 0.9


@pytest.mark.parametrize("kind", ["quadratic", "kernel", "trees", "mlp"])
def test_nonlinear_probes_see_a_difference_of_spread_that_a_linear_one_misses(kind):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, size=1_500)
    Z = rng.normal(size=(1_500, 2)) * np.where(groups, 3.0, 1.0)[:, None]
    assert probe(Z, groups, kind).auc.low > 0.6
    assert probe(Z, groups, "linear").auc.value < 0.58


def test_the_kernel_probe_changes_to_sampled_features_for_many_rows(monkeypatch):
    from fairstream.auditing.measure import probes

    Z, groups = uninformative(0, n_rows=300)
    Z[:, 1] += 4 * groups
    exact = probe(Z, groups, "kernel")
    monkeypatch.setattr(probes, "EXACT_KERNEL_ROWS", 100)
    sampled = probe(Z, groups, "kernel")
    assert sampled.auc.value == pytest.approx(exact.auc.value, abs=0.02)


def test_auc_is_sklearns_and_its_variance_is_the_bootstraps():
    rng = np.random.default_rng(0)
    codes = (rng.random(500) < 0.3).astype(np.intp)
    scores = np.round(codes + rng.normal(size=500), 1)  # with ties
    auc, variance = auc_with_variance(scores, codes)
    assert auc == pytest.approx(roc_auc_score(codes, scores), abs=1e-12)
    draws = [rng.integers(0, 500, size=500) for _ in range(200)]
    bootstrap = np.var([roc_auc_score(codes[rows], scores[rows]) for rows in draws])
    assert variance == pytest.approx(bootstrap, rel=0.35)


def test_several_groups_are_scored_one_against_the_rest():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, size=400)
    scores = rng.random((400, 3)) + 0.3 * np.eye(3)[codes]
    auc, _ = auc_with_variance(scores, codes)
    assert auc == pytest.approx(
        np.mean([roc_auc_score(codes == c, scores[:, c]) for c in range(3)]), abs=1e-12
    )
    Z = rng.normal(size=(400, 2))
    Z[:, 0] += 8 * codes
    for kind in ("linear", "kernel", "trees"):
        result = probe(Z, codes, kind)
        assert result.chance == pytest.approx(1 / 3)
        assert result.auc.value > 0.9
        assert result.balanced_accuracy.value > 0.9


def test_balanced_accuracy_does_not_reward_guessing_the_larger_group():
    rng = np.random.default_rng(0)
    groups = (rng.random(1_000) < 0.05).astype(int)
    for kind in PROBES:
        result = probe(rng.normal(size=(1_000, 2)), groups, kind)
        assert result.base_rate > 0.9
        assert result.balanced_accuracy.value < 0.65


def test_unknown_groups_are_left_out():
    Z, groups = uninformative(0)
    Z[:, 0] += 5 * groups
    more = probe(np.vstack([Z, -Z]), np.r_[groups, np.full(len(Z), -1)])
    assert more.n_rows == len(Z)
    assert more.auc.value > 0.99


def test_the_same_seed_gives_the_same_result():
    Z, groups = uninformative(5)
    first, second = (run_probes(Z, groups, ["linear", "trees", "mlp"], seed=4) for _ in range(2))
    assert first == second


def test_a_probe_names_what_is_wrong():
    with pytest.raises(ValueError, match="kind is 'magic': choose one of linear"):
        probe(np.zeros((10, 1)), np.arange(10) % 2, "magic")
    with pytest.raises(ValueError, match="smallest of 2 groups has 3 rows"):
        probe(np.zeros((20, 1)), (np.arange(20) < 3).astype(int))
    with pytest.raises(ValueError, match="groups has 3 rows, Z has shape"):
        probe(np.zeros((4, 1)), [0, 1, 0])


def test_a_rare_group_in_wide_rows_can_be_probed():
    """Fewer rows of a group than columns: a Gaussian discriminant cannot even be fitted there."""
    rng = np.random.default_rng(0)
    groups = (np.arange(600) < 40).astype(int)
    Z = rng.normal(size=(600, 90))
    Z[groups == 1] *= 2
    assert probe(Z, groups, "quadratic").auc.value > 0.9


@pytest.mark.parametrize("kind", ["trees", "mlp"])
def test_many_small_groups_are_probed_without_early_stopping(kind):
    # Five groups of ten: a tenth of the rows set aside could not hold all five.
    groups = np.repeat(np.arange(5), 10)
    Z = np.random.default_rng(0).normal(size=(50, 3))
    assert probe(Z, groups, kind).n_rows == 50


def spread_leak(share, n_rows, seed=0):
    """Rows whose smaller group is spread 1.6 times as wide in 6 of 20 columns."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(n_rows) < share).astype(int)
    Z = rng.normal(size=(n_rows, 20))
    Z[:, :6] *= np.where(groups, 1.6, 1.0)[:, None]
    return Z, groups


def reachable_auc(Z, groups):
    """Return the AUC of the likelihood ratio, which no probe can beat."""
    return roc_auc_score(groups, (Z[:, :6] ** 2).sum(axis=1))


@pytest.mark.parametrize(
    ("share", "n_rows", "short"), [(0.05, 10_000, 0.1), (0.1, 2_500, 0.15), (0.5, 2_500, 0.08)]
)
@pytest.mark.parametrize("kind", ["quadratic", "kernel", "trees", "mlp"])
def test_every_nonlinear_probe_finds_a_leak_whatever_the_size_of_the_smaller_group(
    kind, share, n_rows, short
):
    Z, groups = spread_leak(share, n_rows)
    result = probe(Z, groups, kind)
    assert result.auc.value > reachable_auc(Z, groups) - short
    assert result.balanced_accuracy.value > 0.6


@pytest.mark.parametrize(("share", "n_rows"), [(0.05, 10_000), (0.1, 2_500), (0.5, 2_500)])
@pytest.mark.parametrize("kind", PROBES)
def test_every_probe_finds_a_shifted_group_of_any_size(kind, share, n_rows):
    _, groups = spread_leak(share, n_rows)
    Z = np.random.default_rng(1).normal(size=(n_rows, 20))
    Z[:, 0] += 2 * groups
    reachable = roc_auc_score(groups, Z[:, 0])
    assert probe(Z, groups, kind).auc.value > reachable - 0.1


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("kind", PROBES)
def test_no_probe_finds_what_is_not_there_whatever_the_size_of_the_smaller_group(kind, share):
    _, groups = spread_leak(share, 2_500)
    Z = np.random.default_rng(1).normal(size=(2_500, 20))
    result = probe(Z, groups, kind)
    assert result.auc.low <= 0.5 <= result.auc.high
