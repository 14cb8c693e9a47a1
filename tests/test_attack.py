"""The strongest attacker is reported with its curve over rows, and does not cry wolf."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from fairstream.auditing.measure import attack as attack_module
from fairstream.auditing.measure import fitting
from fairstream.auditing.measure.attack import attack
from fairstream.auditing.measure.auc import auc_influence, auc_with_variance, standard_error
from fairstream.auditing.measure.probes import probe


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
    Z, codes = checkerboard(0, 600, cells=12)
    fit = checkerboard(1, 6_000, cells=12)
    result = attack(Z, codes, fit=fit, strength="strong", families=["linear", "forest"])
    assert result.strongest.auc.low > 0.9
    assert probe(Z, codes, "trees").auc.high < 0.8
    assert result.strongest.n_rows == result.n_fit == 6_000


def test_the_attacker_is_chosen_without_the_scored_rows():
    """Scored rows with the wrong labels change the score and nothing else."""
    Z, codes = checkerboard(0, 400)
    fit = checkerboard(1, 900)
    families = ["quadratic", "kernel", "forest"]
    right = attack(Z, codes, fit=fit, families=families)
    wrong = attack(Z, 1 - codes, fit=fit, families=families)
    assert wrong.strongest.auc.value == pytest.approx(1 - right.strongest.auc.value)
    for one, other in zip(
        (right.strongest, *right.attackers), (wrong.strongest, *wrong.attackers), strict=True
    ):
        chosen = [
            (result.name, result.setting, result.n_rows, result.validation_auc) for result in (one, other)
        ]
        assert chosen[0] == chosen[1]


def test_a_family_at_chance_is_not_blended():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=400)
    Z = rng.normal(size=(400, 2)) * np.where(codes, 4.0, 1.0)[:, None]
    result = attack(Z, codes, families=["linear", "quadratic"])
    assert result.strongest.name == "quadratic"
    assert result.strongest.auc == result.attackers[1].auc


def sets(seed, n_sets, size=2):
    """People in sets of nearly equal rows, one of each group: who knows some guesses the others wrongly."""
    rng = np.random.default_rng(seed)
    Z, codes = np.repeat(rng.normal(size=(n_sets, 2)), size, axis=0), np.arange(size * n_sets) % size
    order = rng.permutation(len(Z))
    return (Z + 1e-6 * rng.normal(size=Z.shape))[order], codes[order]


def test_guesses_that_are_wrong_consistently_are_reversed(monkeypatch):
    result = attack(*sets(0, 150), families=["forest"])
    assert result.strongest.auc.low > 0.6
    assert result.strongest.validation_auc > 0.6
    assert "guesses reversed" in result.strongest.setting
    assert result.curve.points[-1].auc == result.strongest.auc
    monkeypatch.setattr(
        attack_module, "SURELY", np.inf
    )  # the control: as they are, they look like protection
    blind = attack(*sets(0, 150), families=["forest"])
    assert blind.strongest.auc.high < 0.4
    assert "reversed" not in blind.strongest.setting


def test_of_many_groups_guesses_are_reversed_one_by_one():
    """A few people of a fourth group are told by a line; those of the others come in sets."""
    (Z, codes), few = sets(0, 150, size=3), np.random.default_rng(1).normal(size=(40, 2)) + 9
    Z, codes = np.concatenate([Z, few]), np.concatenate([codes, np.full(40, 3)])
    result = attack(Z, codes, families=["forest"])
    assert "guesses of some groups reversed" in result.strongest.setting
    assert result.by_group["3"].low > 0.95
    assert min(result.by_group[group].low for group in "012") > 0.55


def test_guesses_on_rows_of_the_fit_are_not_reversed_for_what_the_constraint_does(monkeypatch):
    """The gap of all rows together is 0, so a part shows it the other way round, and new rows do not."""
    rng = np.random.default_rng(0)
    Z_fit, codes_fit = rng.normal(size=(600, 20)), np.arange(600) % 2
    for code in (0, 1):
        Z_fit[codes_fit == code] -= Z_fit[codes_fit == code].mean(axis=0)
    Z, codes = rng.normal(size=(600, 20)), np.arange(600) % 2
    options = {"fit": (Z_fit, codes_fit), "families": ["linear"]}
    result = attack(Z, codes, **options)
    assert result.strongest.validation_auc < 0.45
    assert "reversed" not in result.strongest.setting
    monkeypatch.setattr(attack_module, "_doubt_on_own_rows", lambda width: 0.0)
    assert "reversed" in attack(Z, codes, **options).strongest.setting  # the control


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
    codes = rng.integers(0, 3, size=300)
    Z = rng.normal(size=(300, 2)) + 4 * np.eye(3)[codes][:, :2]
    result = attack(Z[:150], codes[:150], fit=(Z[150:], codes[150:]))
    assert result.n_groups == 3
    assert result.strongest.auc.low > 0.95


def test_all_families_of_both_strengths_run_and_see_a_planted_group():
    Z, codes = noise(0, n_rows=300)
    Z[:, 0] += 4 * codes
    for strength in ("standard", "strong"):
        result = attack(Z[:150], codes[:150], fit=(Z[150:], codes[150:]), strength=strength)
        assert len(result.attackers) == 6
        assert all(attacker.auc.low > 0.9 for attacker in result.attackers)


@pytest.mark.parametrize("n_columns", [2, 40])
def test_odds_of_attackers_that_are_sure_are_finite(n_columns):
    rng = np.random.default_rng(0)
    codes = np.arange(400) % 2
    Z = rng.normal(size=(400, n_columns)) + 1_000 * codes[:, None]
    for attacker in attack_module.ATTACKERS["standard"]:
        odds = attacker.log_odds(Z, codes, Z * [[1e6]], 0)
        assert np.isfinite(odds).all(), attacker


def test_false_alarms_of_the_strongest_attacker_stay_within_the_level():
    alarms = 0
    for seed in range(40):
        found = attack(*noise(seed, n_rows=100), families=["linear", "quadratic"], seed=seed).strongest.auc
        alarms += not found.low <= 0.5 <= found.high
    assert alarms <= 5  # of 40 at 5 %: exceeded with probability 1 %


def test_the_largest_of_all_aucs_is_flattered_and_the_chosen_one_is_not():
    """The control of the test above: the best of several attackers on the scored rows is biased upwards."""
    largest, chosen = [], []
    for seed in range(40):
        Z, codes = noise(seed, n_rows=200)
        families = ["linear", "quadratic", "kernel"]
        result = attack(Z[:100], codes[:100], fit=(Z[100:], codes[100:]), families=families, seed=seed)
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
    Z, codes = checkerboard(0, 120)
    results = []
    for n_threads in (1, 3):
        monkeypatch.setattr(fitting, "_processors", lambda n=n_threads: n)
        results.append(attack(Z, codes))
    assert results[0] == results[1]


def test_an_attack_leaves_no_warnings_and_the_filters_as_they_were():
    Z, codes = checkerboard(0, 300)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        for seed in range(5):
            attack(Z[:100], codes[:100], fit=(Z[100:], codes[100:]), families=["forest", "linear"], seed=seed)
        assert list(warnings.filters) == before
    assert seen == []


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


def test_a_group_of_few_rows_has_the_textbook_variance():
    """A fold of a small group holds two or three of its rows: their spread has the divisor of a sample."""
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=60), np.repeat([0, 1], [57, 3])
    right = scores[codes == 1][:, None] > scores[codes == 0]
    textbook = right.mean(axis=1).var(ddof=1) / 3 + right.mean(axis=0).var(ddof=1) / 57
    assert auc_with_variance(scores, codes) == pytest.approx((right.mean(), textbook))


def test_attackers_that_have_only_some_of_the_rows_know_every_group(monkeypatch):
    monkeypatch.setattr(attack_module, "STANDARD_ROWS", 200)
    n_rare = attack_module.LEAST_ROWS
    codes = np.repeat([0, 1, 2], [n_rare, 3_000, 3_000])
    Z = np.random.default_rng(0).normal(size=(len(codes), 2)) + 6 * np.eye(3)[codes][:, :2]
    found = attack(Z, codes, fit=(Z, codes), families=["linear", "forest"], names=["few", "f", "m"])
    assert found.strongest.n_rows == 200
    assert found.by_group.keys() == {"few", "f", "m"}
    assert min(auc.low for auc in found.by_group.values()) > 0.9


def test_a_result_is_plain_numbers():
    Z, codes = noise(0, n_rows=60)
    assert json.loads(json.dumps(dataclasses.asdict(attack(Z, codes, families=["linear"]))))


# Folds


def test_folds_that_chose_otherwise_are_counted_not_listed():
    Z, codes = checkerboard(0, 400, cells=3)
    strongest = attack(Z, codes, families=["quadratic", "kernel", "boosting", "forest"]).strongest
    assert strongest.name.count("folds") <= 1
    assert attack_module._most_often(["a", "b", "a"]) == "a (in 2 of 3 folds, others in the rest)"
    assert attack_module._most_often(["a", "a"]) == "a"


def test_a_strong_attack_with_few_fitting_rows_learns_from_scored_rows_too():
    """The embedding removed the gap of its own rows: only other rows show it."""
    rng = np.random.default_rng(0)
    n_given, n_scored = 300, 300
    codes_fit, codes = np.arange(n_given) % 2, np.arange(n_scored) % 2
    Z_fit, Z = rng.normal(size=(n_given, 3)), rng.normal(size=(n_scored, 3))
    Z[:, 0] += 1.5 * codes
    for code in (0, 1):
        Z_fit[codes_fit == code] -= Z_fit[codes_fit == code].mean(axis=0)
    fit, options = (Z_fit, codes_fit), {"families": ["linear", "forest"]}
    standard = attack(Z, codes, fit=fit, **options)
    strong = attack(Z, codes, fit=fit, strength="strong", **options)
    assert (standard.n_folds, standard.n_fit, standard.n_scored) == (1, 300, 300)
    assert (strong.n_folds, strong.n_fit, strong.n_scored) == (5, 540, 300)
    assert strong.strongest.auc.low > 0.7
    assert standard.strongest.auc.high < strong.strongest.auc.low


def test_few_fitting_rows_do_not_let_an_attacker_see_the_rows_it_is_scored_on():
    Z, codes = noise(0, n_rows=300)
    result = attack(Z, codes, fit=noise(1, n_rows=200), strength="strong", families=["quadratic", "kernel"])
    assert result.strongest.auc.low < 0.5 < result.strongest.auc.high


def test_settings_are_chosen_by_rows_the_embedding_was_not_fitted_on(monkeypatch):
    held = []

    class Recorder:
        def fit(self, Z, codes):
            return self

        def predict_proba(self, Z):
            held.append(Z[:, 0].min())
            return np.column_stack([1 - Z[:, 1], Z[:, 1]])

    recorder = attack_module.Attacker("linear", "", lambda *setting: Recorder())
    monkeypatch.setattr(attack_module, "ATTACKERS", attack_module.ATTACKERS | {"strong": (recorder,)})
    rng = np.random.default_rng(0)
    given, scored = (np.column_stack([np.arange(n), rng.random(n)]) for n in (200, 100))
    scored[:, 0] += 1_000
    attack(
        scored, np.arange(100) % 2, fit=(given, np.arange(200) % 2), strength="strong", families=["linear"]
    )
    assert min(held) >= 1_000


@pytest.mark.parametrize(
    ("n_rows", "n_folds", "n_fit"), [(330, 2, 165), (300, 2, 150), (270, 3, 180), (170, 5, 136)]
)
def test_a_standard_attack_makes_no_more_folds_than_its_attackers_need(monkeypatch, n_rows, n_folds, n_fit):
    monkeypatch.setattr(attack_module, "STANDARD_ROWS", 150)
    result = attack(*checkerboard(0, n_rows), families=["linear"])
    assert (result.n_folds, result.n_fit, result.strongest.n_rows) == (n_folds, n_fit, min(n_fit, 150))
    assert attack(*checkerboard(0, n_rows), families=["linear"], strength="strong").n_folds == 5


def test_folds_share_trials_that_have_seen_no_row_they_are_scored_on(monkeypatch):
    trials, refits = [], []

    class Recorder:
        def __init__(self, seen):
            self._seen = seen

        def fit(self, Z, codes):
            self._fitted = set(Z[:, 0])
            return self

        def predict_proba(self, Z):
            self._seen.append((self._fitted, set(Z[:, 0])))
            return np.column_stack([1 - Z[:, 1], Z[:, 1]])

    def build(n_rows, n_columns, n_groups, seed, trial):
        return Recorder(trials if trial else refits)

    recording = attack_module.ATTACKERS | {"strong": (attack_module.Attacker("linear", "", build),)}
    monkeypatch.setattr(attack_module, "ATTACKERS", recording)
    monkeypatch.setattr(attack_module, "FEW_ROWS", 100)
    monkeypatch.setattr(attack_module, "CURVE_POINTS", 1)
    rng = np.random.default_rng(0)
    Z, codes = np.column_stack([np.arange(500.0), rng.random(500)]), np.arange(500) % 2
    result = attack(Z, codes, strength="strong", families=["linear"])
    assert (result.n_folds, len(trials), len(refits)) == (5, 3, 5)
    assert set.union(*(scored for _, scored in refits)) == set(range(500))
    for fitted, held in trials:
        assert len(fitted) == 300
        assert not fitted & held
    for fitted, scored in refits:
        # Its choice was validated on rows of its own, by a fit that has not seen the rows scored now.
        assert any(held & fitted and not of_trial & scored for of_trial, held in trials)


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
    trends = []
    for seed in range(40):
        Z, codes = noise(seed, n_rows=400)
        fit = (Z[200:], codes[200:])
        trends.append(attack(Z[:200], codes[:200], fit=fit, families=["linear"], seed=seed).curve.trend)
    assert trends.count("rising") <= 4  # of 40 at 2.5 %: exceeded with probability 0.3 %


def test_classifiers_fitted_side_by_side_have_one_thread_each():
    """OpenMP keeps a limit for each thread, so one that is set outside the threads does nothing."""
    ask = "from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as n\n"
    ours = "from fairstream.auditing.measure.fitting import side_by_side\n"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OMP_NUM_THREADS": "3"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for code in (f"{ask}print(n())", f"{ours}{ask}print(*side_by_side([(n,)]))")
    ]
    assert found == ["3", "1"]  # the first is the control
