"""Decisions by group: rates, ratios and calibration with intervals that cover; small groups are hidden."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream.auditing.measure.decisions import decisions, wilson


def people(seed, n_rows=2_000):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, size=n_rows)
    scores = rng.beta(2 + sex, 3)
    y = (rng.random(n_rows) < scores).astype(int)
    return y, scores, sex


def test_a_ratio_is_that_of_the_selection_rates():
    y, scores, sex = people(0)
    (found,) = decisions(y, scores, {"sex": sex}, names={"sex": ["f", "m"]})
    f, m = found.groups
    assert (f.group, m.group) == ("f", "m")
    assert f.selection_ratio.value == pytest.approx(f.selection_rate.value / m.selection_rate.value)
    assert (f.four_fifths, m.four_fifths) == ("below", "not below")
    assert f.score_quantiles[2] == pytest.approx(np.median(scores[sex == 0]), abs=5e-4)


def test_rates_are_those_of_fairlearn():
    fairlearn = pytest.importorskip("fairlearn.metrics")
    y, scores, sex = people(0)
    (found,) = decisions(y, scores, {"sex": sex})
    names = ("selection_rate", "true_positive_rate", "false_positive_rate")
    frame = fairlearn.MetricFrame(
        metrics={name: getattr(fairlearn, name) for name in names},
        y_true=y,
        y_pred=scores >= 0.5,
        sensitive_features=sex,
    )
    for code, group in enumerate(found.groups):
        for name in names:
            assert getattr(group, name).value == pytest.approx(frame.by_group.loc[code, name])


def test_calibrated_scores_lie_inside_the_intervals_of_their_bins():
    y, scores, sex = people(1, n_rows=10_000)
    bins = [part for group in decisions(y, scores, {"sex": sex})[0].groups for part in group.calibration]
    inside = [part.positive_rate.low <= part.mean_score <= part.positive_rate.high for part in bins]
    assert len(bins) == 20
    assert np.mean(inside) >= 0.8
    shifted = decisions(y, np.clip(scores + 0.2, 0, 1), {"sex": sex})[0].groups
    outside = [part.mean_score > part.positive_rate.high for group in shifted for part in group.calibration]
    assert np.mean(outside) > 0.8


def test_the_interval_of_the_ratio_covers_the_true_ratio():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        sex = np.arange(300) % 2
        chosen = (rng.random(300) < np.where(sex, 0.5, 0.35)).astype(int)
        ratio = decisions(chosen, chosen, {"sex": sex})[0].groups[0].selection_ratio
        covered += ratio.low <= 0.7 <= ratio.high
    assert covered / 300 > 0.92


def test_wilson_intervals_cover_rare_events():
    rng = np.random.default_rng(0)
    found = [wilson(int(hits), 50, 0.95) for hits in rng.binomial(50, 0.03, size=1_000)]
    assert np.mean([part.low <= 0.03 <= part.high for part in found]) > 0.92


def test_equal_groups_are_not_said_to_be_below_four_fifths():
    rng = np.random.default_rng(0)
    below = 0
    for _ in range(100):
        chosen = rng.integers(0, 2, size=400)
        groups = decisions(chosen, chosen, {"sex": np.arange(400) % 2})[0].groups
        below += any(group.four_fifths == "below" for group in groups)
    assert below <= 2


def test_small_groups_rates_and_bins_are_suppressed():
    y, scores, sex = people(0, n_rows=300)
    race = np.where(np.arange(300) < 15, 2, sex)
    (found,) = decisions(y, scores, {"race": race}, min_group_size=20)
    assert [group.group for group in found.groups] == ["0", "1"]
    assert found.n_suppressed_groups == 1
    assert all(part.n_rows >= 20 for group in found.groups for part in group.calibration)
    rare = np.zeros(300, dtype=int)
    rare[:10] = 1
    (found,) = decisions(rare, scores, {"sex": np.zeros(300, dtype=int)})
    assert found.groups[0].true_positive_rate is None
    assert found.groups[0].false_positive_rate is None  # with it, subtraction would show the other


def test_intersections_are_reported_on_request():
    y, scores, sex = people(0)
    race = np.random.default_rng(1).integers(0, 2, size=len(y))
    race[:100] = -1
    names = {"sex": ["f", "m"], "race": ["a", "b"]}
    plain = decisions(y, scores, {"sex": sex, "race": race}, names=names)
    assert [part.attribute for part in plain] == ["sex", "race"]
    crossed = decisions(y, scores, {"sex": sex, "race": race}, names=names, intersections=[("sex", "race")])[
        2
    ]
    assert [group.group for group in crossed.groups] == ["f and a", "f and b", "m and a", "m and b"]
    inside = (sex == 0) & (race == 1)
    assert crossed.groups[1].selection_rate.value == pytest.approx(np.mean(scores[inside] >= 0.5))


def test_given_decisions_are_used_instead_of_a_threshold():
    y, scores, sex = people(0)
    found = decisions(y, scores, {"sex": sex}, decided=np.ones(len(y), dtype=int))[0]
    assert [group.selection_rate.value for group in found.groups] == [1.0, 1.0]


def test_scores_that_are_all_alike_make_one_bin():
    y, _, sex = people(0)
    found = decisions(y, np.full(len(y), 0.5), {"sex": sex})[0]
    assert [len(group.calibration) for group in found.groups] == [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full(40, 2)}, "pass a 0 or 1"),
        ({"scores": np.full(40, np.nan)}, "scores has NaN"),
        ({"groups": {"sex": np.zeros(39, dtype=int)}}, "groups\\['sex'\\] has shape"),
        ({"groups": {"sex": np.full(40, "f")}}, "pass one integer per row"),
        ({"decided": np.full(40, 0.5)}, "decided has shape"),
        ({"intersections": [("sex", "race")]}, "intersections has 'race'"),
        ({"level": 95}, "level is 95"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {
        "y": np.arange(40) % 2,
        "scores": np.linspace(0, 1, 40),
        "groups": {"sex": np.arange(40) % 2},
    }
    with pytest.raises(ValueError, match=message):
        decisions(**{**arguments, **change})


def test_no_group_minus_its_shown_intersections_leaves_a_few_rows():
    y, scores, sex = people(0)
    race = np.random.default_rng(1).integers(0, 3, size=len(y))
    rare = np.flatnonzero(sex == 0)[:4]
    race[sex == 0] = np.minimum(race[sex == 0], 1)
    race[rare] = 2  # four women of race 2: hidden, and so must be another race of women
    columns = {"sex": sex, "race": race}
    single, _, crossed = decisions(y, scores, columns, intersections=[("sex", "race")])
    shown = {group.group: group.n_rows for group in crossed.groups}
    assert "0 and 2" not in shown
    for code, group in enumerate(single.groups):
        rest = group.n_rows - sum(n for name, n in shown.items() if name.startswith(f"{code} and"))
        assert rest == 0 or rest >= 20
    for code in range(3):
        rest = np.sum(race == code) - sum(n for name, n in shown.items() if name.endswith(f"and {code}"))
        assert rest == 0 or rest >= 20
    assert crossed.n_suppressed_groups == 6 - len(shown)


def test_the_bins_of_a_group_hold_all_its_rows():
    y, scores, _ = people(0)
    (found,) = decisions(y, scores, {"sex": np.where(np.arange(len(y)) < 70, 0, 1)})
    for group in found.groups:
        assert sum(part.n_rows for part in group.calibration) == group.n_rows
        assert min(part.n_rows for part in group.calibration) >= 20
