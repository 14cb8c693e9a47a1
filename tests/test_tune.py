"""tune: what it chooses holds on rows it never saw, and it says so only then."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import FairstreamWarning, GroupMoments, open_source, solve
from fairstream.auditing.measure.verdict import verdict
from fairstream.auditing.report import Estimate, Floors
from fairstream.auditing.tuning import tune
from fairstream.auditing.tuning.division import divided, row_places
from fairstream.auditing.tuning.judge import Judge
from fairstream.cli.wording import Wording

KEY = b"a secret of more than sixteen bytes"
QUICK = {"attack": "standard", "dithers": (0.0, 0.3, 0.8), "n_components": 3}
SEARCHED = ({"constraint": "mean"}, {"constraint": "mean", "screen": 1}, {"constraint": "none"})
pytestmark = pytest.mark.usefixtures("few_families")


def people(n_rows, seed=0):
    """Group 1 is two-valued in one feature and shifted in another."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n_rows)
    X = rng.normal(size=(n_rows, 8)) * [3.0, 2.5, 2.0, 1.8, 1, 1, 1, 1]
    X[group == 1, 0] = 3.0 * rng.choice([-1.0, 1.0], int(group.sum()))
    X[:, 1] += 2.0 * group
    return X, group, (X[:, 2] + rng.normal(size=n_rows) > 0).astype(float)


@pytest.fixture(scope="module")
def tuned():
    X, group, y = people(6_000)
    lines = []
    found = tune(X, {"sex": group}, y, limit=0.75, searched=SEARCHED, announce=lines.append, **QUICK)
    return found, lines


def leak(Z_fit, fit, Z, group):
    attacker = HistGradientBoostingClassifier(random_state=0).fit(Z_fit, fit)
    return roc_auc_score(group, attacker.predict_proba(Z)[:, 1])


def test_a_tuned_limit_holds_on_new_rows(tuned):
    found, _ = tuned
    assert found.holds
    subspace, dither = found.estimator.subspace_, found.chosen.dither
    options = {"dither": dither, "key": KEY} if dither else {}
    (X, group, _), (new, new_group, _) = people(6_000), people(6_000, seed=1)
    fitted, scored = subspace.embed(X, **options), subspace.embed(new, **options)
    assert leak(fitted, group, scored, new_group) <= 0.75
    assert leak(X, group, new, new_group) > 0.95  # the control: without tuning all is told


def test_the_winner_keeps_most_of_all_that_stay_below_the_limit(tuned):
    found, lines = tuned
    within = [candidate for candidate in found.candidates if candidate.leak_bound <= 0.75]
    assert found.chosen.variance == max(candidate.variance for candidate in within)
    assert any(candidate.leak > 0.75 for candidate in found.candidates)  # some do leak
    told = [line for line in lines if "keeps" in line]
    assert len(told) == len(found.candidates)
    assert told[0].startswith("setting 1 of 3: ")
    assert told[-1].startswith(("setting 3 of 3: ", "more dither: "))
    assert lines[-1] == "confirming the choice on rows kept aside"
    assert "Holds: the strongest attacker" in " ".join(found.summary())


def test_candidates_are_a_frame_and_a_figure(tuned):
    found, _ = tuned
    frame = found.to_frame()
    assert len(frame) == len(found.candidates)
    assert frame.chosen.sum() == 1
    assert frame.target.between(0.5, 1).all()
    figure = found.plot()
    assert figure.axes[0].get_xlabel() == "AUC of the strongest attacker"


def test_to_keep_a_share_of_variance_the_least_leak_wins():
    X, group, _ = people(4_000)
    found = tune(X, group, keep=0.6, searched=SEARCHED, **QUICK)
    assert found.chosen.variance >= 0.6 * found.plain_variance
    assert found.chosen.leak == min(candidate.leak for candidate in found.candidates)
    assert found.verdicts == {}


def test_a_limit_that_cannot_be_kept_is_said():
    X, group, _ = people(3_000)
    with pytest.warns(FairstreamWarning, match=r"no candidate stays below limit=0\.51"):
        found = tune(
            X,
            group,
            limit=0.51,
            searched=[{"constraint": "none"}],
            dithers=(0.0,),
            n_components=3,
            attack="standard",
        )
    assert not found.holds


def test_a_model_that_nulls_no_spread_says_so(tuned):
    found, _ = tuned
    assert {candidate.n_unfair for candidate in found.candidates} == {0}
    assert found.estimator.subspace_.describe()["parameters"]["n_unfair"] == 0


READ = r"quick attackers read the groups at AUC 0\.\d+, target AUC 0\.\d+"


def announced(*data, **wishes):
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairstreamWarning)
        tune(*data, announce=lines.append, attack="standard", n_components=3, **wishes)
    return lines


def test_what_helps_to_choose_a_limit_is_said_first():
    X, group, y = people(3_000)
    lines = announced(X, {"sex": group}, y, limit=0.8, searched=[{"constraint": "mean"}], dithers=(0.3,))
    assert re.match(rf"plain PCA, 3 components: {READ} \(0\.5 is a coin", lines[0])
    assert re.fullmatch(r"a good score for the target tells sex at AUC 0\.\d+", lines[1])
    assert lines[2].startswith("setting 1 of 1: ")
    lines = announced(X, {"sex": group}, keep=0.3, searched=[{"constraint": "mean"}], dithers=(0.3,))
    assert "target" not in " ".join(lines)


def test_progress_shows_the_target_and_what_all_families_found(tuned):
    found, lines = tuned
    judged = [line for line in lines if line.startswith("setting ") and "skipped" not in line]
    assert all(re.search(rf"keeps \d+% of plain PCA's variance, {READ}$", line) for line in judged)
    told = [line for line in lines if line.startswith("all families: ")]
    assert told[-1] == f"all families: {found.chosen.in_words()}: AUC {found.chosen.leak:.3f}"
    assert any("The target is predicted from it at AUC 0." in line for line in found.summary())


def test_a_limit_below_what_the_target_tells_is_warned_of():
    X, group, _ = people(3_000)
    y = np.where(np.random.default_rng(1).random(3_000) < 0.9, X[:, 1] > 1, group)  # X[:, 1] tells the group
    how = {"searched": [{"constraint": "mean"}], "dithers": (0.8,), "n_components": 3, "attack": "standard"}
    with pytest.warns(
        FairstreamWarning, match=r"limit=0\.6 is below what a good score .* tells of 'sex', AUC 0"
    ):
        tune(X, {"sex": group}, y, limit=0.6, **how)


def test_a_target_that_is_not_told_of_is_warned_of():
    X, group, y = people(900)
    how = {"keep": 0.3, "searched": [{"constraint": "mean"}], "dithers": (0.3,), "attack": "standard"}
    with pytest.warns(FairstreamWarning, match="the target has 3 values: .* so nothing is said of it"):
        found = tune(X, {"sex": group}, y + (X[:, 3] > 2), n_components=2, **how)
    assert found.chosen.target is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        tune(X, {"sex": group}, y, n_components=2, **how)  # the control
        tune(X, {"sex": group}, n_components=2, **how)


def test_a_score_for_the_target_below_guessing_is_told_as_luck(monkeypatch):
    X, group, y = people(900)
    below = Floors("sex", 0.5, None, Estimate(0.32, 0.1, 0.54), None, 100, 0)
    monkeypatch.setattr(Judge, "floors", lambda judge, plain: (below,))
    lines = announced(X, {"sex": group}, y, limit=0.8, searched=[{"constraint": "mean"}], dithers=(0.8,))
    assert lines[1] == "a good score for the target tells sex at AUC 0.320, no better than by guessing"


def test_groups_too_small_to_be_judged_are_warned_of_and_left_out():
    """They used to end a search of minutes with an AUC of nan, or an error."""
    X, group, _ = people(2_000)
    groups = group.astype(str).astype(object)
    groups[:12] = "x"
    how = {"limit": 0.9, "searched": [{"constraint": "mean"}], "dithers": (0.8,), "n_components": 3}
    with pytest.warns(FairstreamWarning, match=r"fewer than 10 rows .* in sex='x' \(12 rows\): no attacker"):
        found = tune(X, {"sex": groups}, attack="standard", **how)
    assert found.attacks["sex"].n_groups == 2
    assert np.isfinite([candidate.leak for candidate in found.candidates]).all()
    with pytest.raises(ValueError, match="'sex' has not two groups with at least 10 rows"):
        tune(X, {"sex": np.where(groups == "x", "x", "y")}, **how)


def test_more_than_two_groups_are_named_and_the_one_that_is_read_best_is_told():
    X, group, _ = people(900)
    race = np.array(["a", "few", "b", "c"])[np.where(np.arange(900) < 5, 1, 2 * (group == 1))]
    race[group == 0] = np.where(np.arange(900) % 2, "a", "c")[group == 0]
    division = divided(X, {"race": race}, None, 1_000)
    found = Judge(division, confidence=0.95, seed=0).attacks(
        solve(division.moments, 2, constraint="none"), 0.0, "judge", "standard"
    )["race"]
    assert found.by_group.keys() == {"a", "b", "c"}  # "few" has too few rows
    assert "reads b, of 3 groups the one it reads best" in verdict(found, 0.6).sentence  # it differs


def test_moments_that_do_not_fit_into_memory_name_the_columns_with_most_categories(monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("fairstream.linalg.memory.free_bytes", lambda: 1_000)
    frame = pd.DataFrame(
        {"name": [f"n{j % 90}" for j in range(300)], "age": range(300), "sex": ["f", "m"] * 150}
    )
    source = open_source(frame, sensitive_features=["sex"])
    with pytest.raises(
        MemoryError, match="GB are free: the columns with most categories are 'name'"
    ) as error:
        tune(source, limit=0.7)
    text = Wording({"--exclude", "--impute", "--max-categories", "--unseen"})(str(error.value))
    assert text.endswith(
        "'name' (90); leave them out with --exclude name, or pass --unseen other and --max-categories 50 to "
        "join the rarest"
    )
    with pytest.raises(MemoryError, match="choose fewer columns"):
        tune(np.ones((300, 9)), {"sex": np.arange(300) % 2}, limit=0.7)


def test_moments_with_a_sample_are_enough():
    X, group, y = people(4_000)
    moments = GroupMoments(8, sample=4_000).update(X, {"sex": group}, target=y)
    found = tune(moments, limit=0.75, searched=SEARCHED[:2], **QUICK)
    assert found.estimator.components_.shape == (3, 8)
    with pytest.raises(ValueError, match="hold no sample of rows"):
        tune(GroupMoments(8).update(X, group), limit=0.75)


def test_rows_are_divided_by_their_number_so_that_equal_rows_come_into_all_parts():
    place = row_places(0, 5_000)
    np.testing.assert_array_equal(np.concatenate([row_places(0, 7), row_places(7, 4_993)]), place)
    np.testing.assert_allclose(np.bincount(place) / 5_000, [0.65, 0.2, 0.15], atol=0.02)
    X, group, _ = people(300)
    X, group = np.tile(X, (10, 1)), np.tile(group, 10)
    for data in (X, GroupMoments(8, sample=3_000).update(X, {"sex": group})):
        division = divided(data, None if data is not X else {"sex": group}, None, 3_000)
        fitted = {row.tobytes() for row in division.parts["fit"].X}
        assert all(row.tobytes() in fitted for row in division.parts["confirm"].X)
        assert sum(part.weights.sum() for part in division.parts.values()) == 3_000


def test_a_lookup_of_equal_rows_is_seen():
    """Every row has a twin, and the group is a coin toss: only whoever knows the twin knows the group."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(1_500, 4)), rng.integers(0, 2, 1_500)
    X, group = np.repeat(X, 6, axis=0), np.repeat(group, 6)
    with pytest.warns(FairstreamWarning, match="no candidate stays below"):
        found = tune(X, group, limit=0.6, searched=[{"constraint": "mean"}], **QUICK)
    assert not found.holds
    assert found.chosen.leak > 0.9
    apart = tune(X, group, limit=0.6, searched=[{"constraint": "mean"}], ids=True, **QUICK)
    assert apart.chosen.leak < 0.6
    assert apart.chosen.dither > 0  # without noise numbers do not help


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({}, "give one of limit"),
        ({"limit": 0.6, "keep": 0.5}, "give one of limit"),
        ({"limit": 0.4}, "limit=0.4: give an AUC above 0.5"),
        ({"keep": 2.0}, "keep=2.0: give a share"),
        ({"limit": 0.6, "maximise": "speed"}, "maximise='speed' is not one of"),
        ({"limit": 0.6, "maximise": "target"}, "needs the target: pass y"),
    ],
)
def test_wishes_that_mean_nothing_are_refused(wishes, message):
    X, group, _ = people(100)
    with pytest.raises(ValueError, match=message):
        tune(X, group, **wishes)


def test_mean_and_covariance_are_those_of_all_rows_and_groups_those_of_the_fitting_rows():
    X, groups, _ = people(2_000)
    X[:, -1] = 0
    rare = int(np.flatnonzero(row_places(0, len(X)) != 0)[0])
    X[rare, -1] = 100.0  # a value that no fitting row has
    division = divided(X, groups, None, 5_000)
    np.testing.assert_allclose(division.moments.covariance().to_dense(), np.cov(X.T, bias=True), atol=1e-8)
    counts = division.moments.group_counts["sensitive_feature_0"]
    assert sum(counts.values()) == (row_places(0, len(X)) == 0).sum()


def test_recovered_variance_is_what_a_linear_map_recovers():
    X, groups, _ = people(3_000)
    X = X @ (np.eye(8) + np.random.default_rng(1).normal(size=(8, 8)))  # features that tell of each other
    division = divided(X, groups, None, 5_000)
    judge = Judge(division, confidence=0.95, seed=0)
    found = solve(division.moments, 2, constraint="all", n_unfair=1)
    dither = 0.3
    Z = (X - X.mean(axis=0)) @ found.components.T
    Z = Z + dither * Z.std(axis=0) * np.random.default_rng(0).normal(size=Z.shape)
    design = np.column_stack([np.ones(len(Z)), Z])
    left = X - design @ np.linalg.lstsq(design, X, rcond=None)[0]
    told = 1 - left.var(axis=0).sum() / X.var(axis=0).sum()
    assert judge.recovered_variance(found, dither) == pytest.approx(told, abs=0.03)
    plain = found.explained_variance_ratio.sum() / (1 + dither**2)
    assert told > plain + 0.05  # the control: correlated features are told too


def test_variance_that_one_row_carries_is_none_for_new_rows():
    X, groups, _ = people(3_000)
    X[:, -1] = 0
    X[10, -1] = 200.0  # more variance than any other feature has
    X[:, -2] = np.where(np.arange(3_000) % 30 == 0, 20.0, 0.0)  # much, carried by a hundred rows
    division = divided(X, groups, None, 5_000)
    judge = Judge(division, confidence=0.95, seed=0)
    plain = solve(division.moments, 1, constraint="none")
    many, one = (replace(plain, components=np.eye(8)[[j]]) for j in (6, 7))
    shares = X.var(axis=0) / X.var(axis=0).sum()
    assert judge.recovered_variance(many, 0.0) > 0.9 * shares[6]  # the control
    assert judge.recovered_variance(one, 0.0) < 0.3 * shares[7]


def test_the_last_attackers_know_rows_that_no_guard_has_seen(tuned):
    found, _ = tuned
    assert found.attacks["sex"].n_fit == (row_places(0, 6_000) < 2).sum()


def test_a_share_that_no_candidate_keeps_is_refused():
    X, group, _ = people(1_000)
    with pytest.raises(ValueError, match=r"no candidate keeps keep=0.99 of plain PCA's variance: lower it"):
        tune(X, group, keep=0.99, searched=[{"constraint": "mean", "screen": 2}], **QUICK)


def test_settings_that_leave_too_few_features_are_skipped():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 2_000)
    X = rng.normal(size=(2_000, 4))
    X[:, 0] += group
    asked = [{"constraint": "mean", "screen": 3}, {"constraint": "mean", "screen": 4}, {"constraint": "mean"}]
    lines = []
    options = {"attack": "standard", "dithers": (0.0,), "announce": lines.append}
    found = tune(X, group, limit=0.95, n_components=2, searched=asked, **options)
    assert {candidate.screen for candidate in found.candidates} == {0}
    assert sum("skipped: " in line for line in lines) == 2
    assert "plain PCA is below the limit of 0.95 already" in lines[1]


def test_less_dither_than_a_guard_reckons_with_is_judged_without_a_warning():
    X, group, _ = people(900)
    division = divided(X, {"sex": group}, None, 500)
    guarded = solve(division.moments, 2, n_unfair=0, constraint="none", guard=1.0, dither=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        Judge(division, confidence=0.95, seed=0).judged(guarded, 0.0)
    with pytest.warns(FairstreamWarning, match="adds no noise"):  # the control: a user is told
        guarded.embed(X, dither=0.0)


def test_a_table_that_cannot_be_read_as_it_is_names_the_column_and_a_way(tmp_path):
    X, group, _ = people(600)
    frame = pd.DataFrame(X, columns=[*"abcdefgh"]).assign(job=["x", "y"] * 300)
    with pytest.raises(ValueError, match=r"'job' of X holds text .* let open_source\(frame\)"):
        tune(frame, group, limit=0.7)
    dated = frame.assign(when="2020-01-01", sex=group)
    dated.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(ValueError, match="'when'") as refused:
        tune(tmp_path / "people.csv", "sex", limit=0.7)
    assert "instead of the path, pass open_source(" in refused.value.__notes__[0]
    assert "exclude=[...])" in refused.value.__notes__[0]


def test_a_choice_that_is_none_and_a_target_that_is_lost_are_said_last(tuned):
    found, _ = tuned
    assert not [line for line in found.summary() if line.startswith(("No candidate", "The target is all"))]
    worst = tuple(
        replace(one, leak_bound=0.9, target=0.518) if one.chosen else one for one in found.candidates
    )
    lost = replace(found, candidates=worst, plain_target=0.677)
    assert lost.holds  # the verdict alone looks like a success
    none, useless = lost.summary()[-2:]
    assert none.startswith("No candidate stayed below the limit of 0.75")
    assert "no better than by chance, at AUC 0.518 against 0.677" in useless
    assert 0.5 < found.plain_target < 1


def test_of_more_than_two_groups_the_one_read_best_is_named_from_the_first_line():
    X, group, _ = people(900)
    race = np.where(group == 1, "b", np.where(np.arange(900) % 2, "a", "c"))
    how = {"limit": 0.9, "searched": [{"constraint": "mean"}], "dithers": (0.8,), "n_components": 3}
    lines = []
    found = tune(X, {"race": race}, attack="standard", announce=lines.append, **how)
    assert "quick attackers read race=b best, at AUC 0." in lines[0]  # it differs
    assert lines[1].startswith("the limit is for every group: for plain PCA the largest upper bound is ")
    assert found.chosen.best_read.startswith("race=")


def test_every_setting_has_a_line_and_the_time_left_is_told():
    X, group, y = people(1_500)
    searched = [{"constraint": "none", "guard": 1.0}, {"constraint": "none"}, {"constraint": "none"}]
    lines = announced(X, {"sex": group}, y, limit=0.999, searched=searched, dithers=(0.0,))
    assert "searching components for setting 1 of 3: guard 1" in lines
    told = [line for line in lines if line.startswith("setting ")]
    assert [line[: len("setting 1 of 3: ")] for line in told] == [f"setting {j} of 3: " for j in (1, 2, 3)]
    assert re.search(r"skipped: without dither it would keep \d+% .*, no more than the best so far", told[-1])
    assert any(re.search(r"took \d+ s: the others take about \d+ s at most", line) for line in lines)


def tuned_against(monkeypatch, found_by_all, **wishes):
    """Tune with what all families find replaced; return the result and the candidates they attacked."""
    attacked = []

    def attack(judge, subspace, judged, strength):
        attacked.append(judged)
        return replace(judged, **found_by_all(judged))

    monkeypatch.setattr(Judge, "attacked", attack)
    X, group, _ = people(3_000)
    searched = [{"constraint": "mean"}, {"constraint": "none"}]
    dithers = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    options = {"attack": "standard", "dithers": dithers, "n_components": 3}
    return tune(X, {"sex": group}, searched=searched, **options, **wishes), attacked


def test_a_winner_withstands_attackers_with_all_rows_and_is_found_without_creeping(monkeypatch):
    excess = {"leak_bound": 0.01, "leak_ahead": 0.06}

    def more(judged):
        return {name: judged.leak_bound + plus for name, plus in excess.items()}

    found, attacked = tuned_against(monkeypatch, more, limit=0.8)
    assert found.chosen.leak_ahead <= 0.8 < attacked[0].leak_bound + excess["leak_ahead"]
    assert len(attacked) == 2  # one shows by how much all families exceed, one confirms
    expected = [c for c in found.candidates if c.leak_bound + excess["leak_ahead"] <= 0.8]
    assert found.chosen.variance >= max(candidate.variance for candidate in expected)


def test_if_nothing_withstands_attackers_with_all_rows_those_of_the_search_decide(monkeypatch):
    found, _ = tuned_against(monkeypatch, lambda judged: {"leak_ahead": 1.0}, limit=0.8)
    assert found.chosen.leak_ahead == 1.0  # all families have tried it
    assert found.chosen.leak_bound <= 0.8
    within = [candidate.variance for candidate in found.candidates if candidate.leak_bound <= 0.8]
    assert found.chosen.variance == max(within)


def test_with_several_attributes_attackers_see_groups_as_they_are_in_the_data():
    rng = np.random.default_rng(0)
    sex, race = rng.integers(0, 2, 20_000), np.where(rng.random(20_000) < 0.05, "rare", "common")
    division = divided(rng.normal(size=(20_000, 3)), {"sex": sex, "race": race}, None, sample=400)
    rows = division.parts["judge"]
    rare = rows.codes["race"] == rows.labels["race"].index("rare")
    seen = division.codes("sex")["judge"] >= 0
    assert rare.mean() > 0.15  # the control: rare rows are kept for their own sake
    assert 0.02 < rare[seen].mean() < 0.09


def shifted(n_rows, seed=0):
    """A table of few columns in which the groups differ in their means alone, and in one category."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n_rows)
    job = np.where(rng.random(n_rows) < 0.3 + 0.4 * sex, 0, rng.integers(1, 5, n_rows))
    numbers = rng.normal(size=(n_rows, 4))
    numbers[:, 0] += 0.5 * sex
    numbers[:, 1] += 0.4 * sex
    return np.hstack([numbers, np.eye(5)[job] / 0.4]), sex


def test_usual_settings_hide_means_of_a_small_table_without_giving_it_up():
    X, sex = shifted(3_000)
    found = tune(X, {"sex": sex}, limit=0.65, n_components=4, attack="standard", ids=True)
    assert found.holds
    assert found.chosen.variance > 0.8 * found.plain_variance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairstreamWarning)
        control = tune(
            X,
            {"sex": sex},
            limit=0.65,
            n_components=4,
            attack="standard",
            ids=True,
            searched=[{"constraint": "none", "guard": 1.0}],
        )
    assert control.chosen.variance < 0.7 * found.plain_variance  # a weak guard needs much dither
    new, new_sex = shifted(3_000, seed=1)
    subspace, dither = found.estimator.subspace_, found.chosen.dither
    noisy = {"dither": dither, "key": KEY} if dither else {}
    fitted = subspace.embed(X, **noisy, **({"ids": np.arange(3_000)} if dither else {}))
    scored = subspace.embed(new, **noisy, **({"ids": 3_000 + np.arange(3_000)} if dither else {}))
    assert leak(fitted, sex, scored, new_sex) <= 0.65


def test_quick_attackers_read_lines_from_few_rows():
    X, sex = shifted(600)
    division = divided(X, {"sex": sex}, None, sample=1_000)
    plain = solve(division.moments, 4, constraint="none")
    judged = Judge(division, confidence=0.95, seed=0).judged(plain, 0.0)
    codes = division.codes("sex")
    trees = HistGradientBoostingClassifier(random_state=0)
    parts = {name: plain.embed(rows.X) for name, rows in division.parts.items()}
    trees.fit(parts["fit"], codes["fit"])
    read_by_trees = roc_auc_score(codes["judge"], trees.predict_proba(parts["judge"])[:, 1])
    assert judged.leak > read_by_trees + 0.02  # the control: trees alone miss it


@pytest.mark.parametrize(("read", "bound"), [((0.46, 4e-4), 0.5 + 1.6449 * 0.02), ((0.995, 4e-4), 1.0)])
def test_bounds_of_candidates_lie_between_guessing_and_certainty(monkeypatch, read, bound):
    """Bad luck of the attackers lowers no bound, and no AUC is above 1."""
    X, sex = shifted(600)
    division = divided(X, {"sex": sex}, None, sample=1_000)
    plain = solve(division.moments, 2, constraint="none")
    judge = Judge(division, confidence=0.95, seed=0)
    monkeypatch.setattr("fairstream.auditing.tuning.judge.auc_with_variance", lambda *rows: read)
    monkeypatch.setattr("fairstream.auditing.tuning.judge.readings", lambda result: {"": (read[0], 0.02)})
    judged = judge.judged(plain, 0.0)
    assert (judged.leak, judged.leak_bound) == (read[0], pytest.approx(bound, abs=1e-4))
    attacked = judge.attacked(plain, judged, "standard")
    assert (attacked.leak, attacked.leak_bound) == (read[0], pytest.approx(bound, abs=1e-4))
    assert attacked.leak_ahead <= 1.0


def test_of_candidates_that_are_not_read_the_one_that_keeps_most_wins(monkeypatch):
    """One AUC below 0.5 is no better than another: it is luck."""
    judged = Judge.judged

    def unlucky(judge, subspace, dither):
        found = judged(judge, subspace, dither)
        return replace(found, leak=0.49 if found.constraint == "none" else 0.47)

    monkeypatch.setattr(Judge, "judged", unlucky)
    found, _ = tuned_against(monkeypatch, lambda candidate: {}, keep=0.3)
    assert (found.chosen.constraint, found.chosen.leak) == ("none", 0.49)


def test_of_several_attributes_the_one_read_best_is_named():
    X, group, _ = people(1_500)
    other = np.random.default_rng(5).integers(0, 2, 1_500)
    how = {"limit": 0.9, "searched": [{"constraint": "none"}], "dithers": (0.8,), "n_components": 3}
    lines = []
    both = {"chance": other, "sex": group}
    found = tune(X, both, attack="standard", announce=lines.append, **how)
    assert "quick attackers read sex best, at AUC 0." in lines[0]
    assert f"the attackers read sex best, at AUC {found.chosen.leak:.3f}." in found.summary()[0]
    assert f"all families: {found.chosen.in_words()}: AUC {found.chosen.leak:.3f} of sex" in lines


def test_a_guard_that_is_searched_again_with_the_chosen_dither_is_said_to_be_another():
    X, group, _ = people(900)
    how = {"keep": 0.1, "searched": [{"constraint": "none", "guard": 1.0}], "n_components": 2}
    found = tune(X, {"sex": group}, attack="standard", dithers=(0.0, 0.5), **how).estimator
    assert (found.dither, found.subspace_.parameters["guard_dither"]) == (0.5, 0.2)
    with pytest.warns(FairstreamWarning, match=r"searched with dither=0\.2, this one .* with dither=0\.5"):
        other = found.resolve()
    assert not np.allclose(np.abs(other.components_), np.abs(found.components_), atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        same = found.resolve(dither=0.2)
        found.resolve(guard=0.0)
        other.resolve()
    np.testing.assert_allclose(same.components_, found.components_, atol=1e-9)


def test_rows_that_confirm_a_second_search_are_said_to_be_worn_out():
    X, group, _ = people(1_200, seed=77)
    how = {"searched": [{"constraint": "mean"}], "dithers": (0.8,), "n_components": 2, "attack": "standard"}
    first, second, third = (tune(X, {"sex": group}, limit=0.9, seed=seed, **how) for seed in (0, 1, 2))
    assert [found.searches_before for found in (first, second, third)] == [0, 1, 2]
    said = "have confirmed {} already"
    assert not any("have confirmed" in line for line in first.summary())
    assert any(said.format("an earlier search") in line for line in second.summary())
    assert any(said.format("2 earlier searches") in line for line in third.summary())
    other = people(1_200, seed=78)
    assert tune(other[0], {"sex": other[1]}, limit=0.9, **how).searches_before == 0  # the control
