"""The strongest attacker is reported with its curve, its floors and its verdict, and does not cry wolf."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fairstream.auditing.measure import attack as attack_module
from fairstream.auditing.measure.attack import AttackCurve, attack
from fairstream.auditing.measure.auc import auc_influence, standard_error
from fairstream.auditing.measure.floors import floors
from fairstream.auditing.measure.probes import auc_with_variance, probe
from fairstream.auditing.measure.rounding import rounding_leak, tiny_coefficients
from fairstream.auditing.measure.verdict import verdict
from fairstream.auditing.report import Estimate

QUICK = ("linear", "quadratic", "boosting", "forest")


def checkerboard(seed, n_rows, cells=6):
    """Rows whose group is the colour of their cell: nothing for a line, much for trees with enough rows."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, 2)) * cells
    return Z, (np.floor(Z).sum(axis=1) % 2).astype(int)


def noise(seed, n_rows=600, n_columns=4, n_groups=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_columns)), rng.integers(0, n_groups, size=n_rows)


# The strongest attacker


def test_the_strongest_attacker_reads_what_a_probe_on_few_rows_misses():
    Z, codes = checkerboard(0, 800, cells=12)
    result = attack(Z, codes, fit=checkerboard(1, 6_000, cells=12), strength="strong", families=QUICK)
    assert result.strongest.auc.low > 0.9
    assert probe(Z, codes, "trees").auc.high < 0.8
    assert result.strongest.n_rows == result.n_fit == 6_000


def test_the_attacker_is_chosen_without_the_scored_rows():
    """Scored rows with the wrong labels change the score and nothing else."""
    Z, codes = checkerboard(0, 400)
    fit = checkerboard(1, 1_500)
    right, wrong = attack(Z, codes, fit=fit, families=QUICK), attack(Z, 1 - codes, fit=fit, families=QUICK)
    assert wrong.strongest.auc.value == pytest.approx(1 - right.strongest.auc.value)
    for one, other in zip(
        (right.strongest, *right.attackers), (wrong.strongest, *wrong.attackers), strict=True
    ):
        chosen = [
            (result.name, result.setting, result.n_rows, result.validation_auc) for result in (one, other)
        ]
        assert chosen[0] == chosen[1]


def test_every_family_is_stated_with_its_setting_rows_and_validation():
    Z, codes = checkerboard(0, 300)
    result = attack(Z, codes, families=["linear", "forest"])
    assert [attacker.name for attacker in result.attackers] == ["linear", "forest"]
    forest = result.attackers[1]
    assert "trees" in forest.setting
    assert forest.n_rows == result.n_fit == 240
    assert forest.auc.low < forest.auc.value < forest.auc.high
    assert 0.5 < forest.validation_auc < 1


def test_standard_strength_states_the_rows_it_was_limited_to(monkeypatch):
    monkeypatch.setattr(attack_module, "STANDARD_ROWS", 500)
    Z, codes = checkerboard(0, 300)
    result = attack(Z, codes, fit=checkerboard(1, 900), families=["forest"])
    assert (result.strongest.n_rows, result.n_fit) == (500, 900)


def test_more_than_two_groups_are_attacked_one_versus_rest():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, size=600)
    Z = rng.normal(size=(600, 2)) + 4 * np.eye(3)[codes][:, :2]
    result = attack(Z, codes, families=QUICK)
    assert result.n_groups == 3
    assert result.strongest.auc.low > 0.95


def test_all_families_of_both_strengths_run_and_see_a_planted_group():
    Z, codes = noise(0, n_rows=300)
    Z[:, 0] += 4 * codes
    for strength in ("standard", "strong"):
        result = attack(Z[:150], codes[:150], fit=(Z[150:], codes[150:]), strength=strength)
        assert len(result.attackers) == 6
        assert all(attacker.auc.low > 0.9 for attacker in result.attackers)


def test_false_alarms_of_the_strongest_attacker_stay_within_the_level():
    alarms = 0
    for seed in range(40):
        found = attack(*noise(seed, n_rows=150), families=["linear", "quadratic"], seed=seed).strongest.auc
        alarms += not found.low <= 0.5 <= found.high
    assert alarms <= 5  # of 40 at 5 %: exceeded with probability 1 %


def test_the_largest_of_all_aucs_would_cry_wolf_where_the_chosen_one_does_not():
    """The control of the test above: the best of several attackers on the scored rows is biased upwards."""
    largest, chosen = [], []
    for seed in range(30):
        result = attack(*noise(seed, n_rows=150), families=QUICK[:3], seed=seed)
        largest.append(max(attacker.auc.value for attacker in result.attackers))
        chosen.append(result.strongest.auc.value)
    assert np.mean(largest) > 0.52
    assert abs(np.mean(chosen) - 0.5) < 0.02


def test_unknown_rows_are_counted_and_change_nothing():
    Z, codes = checkerboard(0, 300)
    hidden = np.concatenate([codes, np.full(40, -1)])
    more = np.vstack([Z, np.full((40, 2), np.nan)])
    fit_Z, fit_codes = checkerboard(1, 400)
    plain = attack(Z, codes, fit=(fit_Z, fit_codes), families=["forest"])
    fit = (np.vstack([fit_Z, Z[:7]]), np.concatenate([fit_codes, np.full(7, -1)]))
    result = attack(more, hidden, fit=fit, families=["forest"])
    assert (result.n_unknown, result.n_unknown_fit, result.n_scored) == (40, 7, 300)
    assert dataclasses.replace(result, n_unknown=0, n_unknown_fit=0) == plain


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    Z, codes = checkerboard(0, 300)
    results = []
    for n_threads in (1, 3):
        monkeypatch.setattr(attack_module, "_processors", lambda n=n_threads: n)
        results.append(attack(Z, codes))
    assert results[0] == results[1]


def test_progress_counts_every_fit_once():
    seen = []
    Z, codes = checkerboard(0, 300)
    attack(
        Z, codes, families=["linear", "quadratic"], progress=lambda done, total: seen.append((done, total))
    )
    done, totals = zip(*seen, strict=True)
    assert list(done) == list(range(1, totals[0] + 1))
    assert len(set(totals)) == 1


def test_a_failing_progress_stops_the_attack():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack(*checkerboard(0, 300), families=["linear"], progress=stop)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strength": "weak"}, "strength is 'weak'"),
        ({"families": ["knn"]}, "families has"),
        ({"families": []}, "families has"),
        ({"level": 95}, "level is 95"),
        ({"codes": np.zeros(300, dtype=int)}, "codes has 1 groups"),
        ({"codes": np.full(300, -1)}, "codes has 0 groups"),
        ({"codes": np.zeros(299, dtype=int)}, "pass one group per row"),
        ({"codes": np.full(300, "f")}, "pass groups as integers"),
        ({"fit": (np.zeros((50, 3)), np.arange(50) % 2)}, "fit\\[0\\] has 3 columns"),
        ({"fit": (np.zeros((60, 2)), np.arange(60) % 3)}, "group 2 is only among"),
        ({"Z": np.full((300, 2), np.nan)}, "Z has values that are NaN"),
    ],
)
def test_bad_arguments_are_named(change, message):
    Z, codes = checkerboard(0, 300)
    arguments = {"Z": Z, "codes": codes, **change}
    with pytest.raises(ValueError, match=message):
        attack(arguments.pop("Z"), arguments.pop("codes"), **arguments)


def test_paired_influences_give_delongs_variance():
    rng = np.random.default_rng(0)
    for n_groups in (2, 3):
        codes = rng.integers(0, n_groups, size=200)
        scores = rng.normal(size=200 if n_groups == 2 else (200, 3))
        auc, influence = auc_influence(scores, codes)
        value, variance = auc_with_variance(scores, codes)
        assert auc == pytest.approx(value)
        assert standard_error([influence]) ** 2 == pytest.approx(variance)


# The curve over the attacker's rows


def test_a_curve_that_still_rises_is_said_to_rise():
    Z, codes = checkerboard(0, 1_500, cells=20)
    curve = attack(Z, codes, fit=checkerboard(1, 4_000, cells=20), families=["forest"]).curve
    assert curve.trend == "rising"
    assert "more rows would learn more" in curve.sentence
    assert [point.n_rows for point in curve.points] == [250, 500, 1_000, 2_000, 4_000]
    aucs = [point.auc.value for point in curve.points]
    assert aucs[-1] > aucs[-2] + 0.01


def test_a_curve_at_its_plateau_is_flat():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=8_000)
    Z = rng.normal(size=(8_000, 2)) + codes[:, None]
    curve = attack(Z[:3_000], codes[:3_000], fit=(Z[3_000:], codes[3_000:]), families=["linear"]).curve
    assert curve.trend == "flat"
    assert curve.gain.high < attack_module.LEVEL_OFF


def test_too_few_rows_for_a_trend_are_unclear():
    Z, codes = noise(0, n_rows=60)
    curve = attack(Z, codes, families=["linear"]).curve
    assert (curve.trend, curve.gain, len(curve.points)) == ("unclear", None, 1)


def test_a_curve_without_information_seldom_rises():
    trends = [
        attack(*noise(seed, n_rows=300), families=["linear", "quadratic"], seed=seed).curve.trend
        for seed in range(20)
    ]
    assert trends.count("rising") <= 2


# Rounding


def one_hot(seed, n_rows=1_500):
    """Rows with two one-hot variables; the first is the group, and a number that has nothing to do with it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, size=n_rows)
    other = np.eye(5)[rng.integers(0, 5, size=n_rows)]
    return np.column_stack([np.eye(2)[codes], other]), codes


@pytest.mark.parametrize(("coefficient", "leaks"), [(1e-16, True), (0.0, False)])
def test_coefficients_of_1e_16_on_one_hot_columns_are_found_and_exact_zeros_are_not(coefficient, leaks):
    X, codes = one_hot(0)
    rng = np.random.default_rng(1)
    V = np.hstack([np.full((3, 2), coefficient) * [1, -1], rng.normal(size=(3, 5)) / 5])
    names = ["sex=f", "sex=m", *"abcde"]
    found = rounding_leak(X @ V.T, codes, components=V, feature_names=names)
    assert found.leaks is leaks
    assert found.features == (("sex=f", "sex=m") if leaks else ())
    assert (found.before.low > 0.6) is leaks
    assert found.after.low <= 0.5 <= found.after.high


def test_a_leak_that_noise_does_not_remove_is_no_rounding_leak():
    Z, codes = checkerboard(0, 500)
    found = rounding_leak(Z, codes)
    assert found.before.low > 0.6
    assert not found.leaks
    assert abs(found.drop) < 0.02


def test_a_feature_with_one_real_coefficient_is_not_named():
    assert tiny_coefficients([[1.0, 1e-16], [1.0, 0.5]]) == ()
    with pytest.raises(ValueError, match="feature_names has 1 names"):
        tiny_coefficients([[1.0, 0.0]], ["a"])


# Floors


def test_the_label_alone_tells_what_its_rates_by_group_say():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=6_000)
    y = rng.random(6_000) < np.where(codes, 0.3, 0.1)
    found = floors(y, codes)
    assert found.label.low < 0.5 + (0.3 - 0.1) / 2 < found.label.high
    assert (found.guessing, found.balanced_guessing, found.score) == (0.5, 0.5, None)


def test_a_score_for_the_target_tells_at_least_as_much_as_it_must():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=1_200)
    X = rng.normal(size=(1_200, 3))
    X[:, 0] += codes
    y = X[:, 0] + 0.3 * rng.normal(size=1_200) > 0.5
    found = floors(y, np.where(np.arange(1_200) < 50, -1, codes), X)
    assert found.target_auc.low > 0.9
    assert found.score.value > found.label.value - 0.02 > 0.6
    assert (found.n_rows, found.n_unknown) == (1_150, 50)


def test_a_label_that_has_nothing_to_do_with_the_group_is_at_chance():
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = floors(rng.integers(0, 2, size=300), rng.integers(0, 2, size=300), seed=seed).label
        alarms += not found.low <= 0.5 <= found.high
    assert alarms <= 5


def test_floors_name_bad_arguments():
    with pytest.raises(ValueError, match="y has 1 different values"):
        floors(np.zeros(20), np.arange(20) % 2)
    with pytest.raises(ValueError, match="codes has"):
        floors(np.zeros(20), np.zeros(19, dtype=int))
    with pytest.raises(ValueError, match="features has shape"):
        floors(np.arange(20) % 2, np.arange(20) % 2, np.zeros((3, 2)))


# Verdicts


def attacked(auc, error, trend):
    Z, codes = noise(0, n_rows=60)
    result = attack(Z, codes, families=["linear"])
    strongest = dataclasses.replace(result.strongest, auc=Estimate(auc, 0, 1), standard_error=error)
    return dataclasses.replace(result, strongest=strongest, curve=AttackCurve((), None, trend))


@pytest.mark.parametrize(
    ("auc", "error", "trend", "answer"),
    [
        (0.60, 0.01, "flat", "holds"),
        (0.60, 0.01, "unclear", "holds"),
        (0.60, 0.01, "rising", "cannot tell"),
        (0.64, 0.01, "flat", "cannot tell"),
        (0.66, 0.01, "flat", "cannot tell"),
        (0.70, 0.01, "rising", "does not hold"),
    ],
)
def test_a_verdict_follows_the_one_sided_bounds_and_the_trend(auc, error, trend, answer):
    found = verdict(attacked(auc, error, trend), 0.65)
    assert found.answer == answer
    assert found.sentence.lower().startswith(answer)
    assert found.upper == pytest.approx(auc + 1.6449 * error, abs=1e-5)
    assert ("rising" in found.sentence) == (trend == "rising" and answer == "cannot tell")


def test_a_rising_curve_can_be_accepted_and_is_still_mentioned():
    found = verdict(attacked(0.60, 0.01, "rising"), 0.65, accept_rising=True)
    assert found.answer == "holds"
    assert "still rising" in found.sentence


def test_an_interval_cut_at_1_gives_the_bounds_of_its_longer_side():
    found = verdict(Estimate(0.99, 0.95, 1.0), 0.9)
    assert found.answer == "does not hold"
    assert found.lower == pytest.approx(0.99 - 0.04 * 1.6449 / 1.96, abs=1e-4)


def test_a_limit_that_is_no_auc_is_refused():
    with pytest.raises(ValueError, match="limit is 65"):
        verdict(Estimate(0.6, 0.5, 0.7), 65)
