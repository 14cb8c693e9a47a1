"""A promise holds, does not hold, or cannot be judged."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from fairstream.auditing.measure.attack import attack
from fairstream.auditing.measure.verdict import reach, verdict
from fairstream.auditing.report import AttackCurve, Estimate


@functools.cache
def some_attack():
    return attack(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2, families=["linear"])


def attacked(auc, error, trend, gain=None):
    result = some_attack()
    strongest = dataclasses.replace(result.strongest, auc=Estimate(auc, 0, 1), standard_error=error)
    return dataclasses.replace(result, strongest=strongest, curve=AttackCurve((), gain, trend))


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
    assert ("curve" in found.sentence) == (trend == "rising" and answer == "cannot tell")


def test_a_limit_holds_if_twice_the_rows_of_a_rising_curve_would_not_break_it():
    small, large = (Estimate(gain, gain - 0.00196, gain + 0.00196) for gain in (0.01, 0.06))
    found = verdict(attacked(0.60, 0.01, "rising", small), 0.65)
    assert found.answer == "holds"
    assert "with 96 rows it may read up to 0.628" in found.sentence  # .60 + .01 + 1.645 (.01 + .001)
    assert verdict(attacked(0.60, 0.01, "rising", large), 0.65).answer == "cannot tell"
    assert verdict(attacked(0.60, 0.01, "flat", large), 0.65).answer == "holds"


def test_more_rows_than_the_attacker_had_are_reckoned_with_by_doublings():
    gain = Estimate(0.02, 0.02, 0.02)
    found = attacked(0.60, 0.0, "unclear", gain)
    n_rows = found.strongest.n_rows
    assert verdict(found, 0.65, most_rows=4 * n_rows).answer == "holds"  # .64
    assert verdict(found, 0.65, most_rows=8 * n_rows).answer == "cannot tell"  # .66
    assert verdict(found, 0.65, most_rows=n_rows // 2).answer == "holds"


def of_groups(aucs, errors, gains):
    """An attack on groups named a, b, ...; their average is far below every limit."""
    names = "abcdef"[: len(aucs)]
    around = [
        {
            n: Estimate(v, v - 1.95996 * e, v + 1.95996 * e)
            for n, v, e in zip(names, values, spread, strict=True)
        }
        for values, spread in ((aucs, errors), (gains, [0.001] * len(aucs)))
    ]
    found = attacked(0.52, 0.001, "flat", Estimate(0.0, -0.001, 0.001))
    curve = dataclasses.replace(found.curve, gain_by_group=around[1])
    return dataclasses.replace(found, by_group=around[0], curve=curve)


def test_a_limit_holds_only_if_it_holds_for_every_group():
    flat = [0.0, 0.0, 0.0]
    assert verdict(of_groups([0.60, 0.55, 0.59], [0.01, 0.01, 0.01], flat), 0.65).answer == "holds"
    unsure = verdict(of_groups([0.60, 0.55, 0.59], [0.01, 0.01, 0.05], flat), 0.65)
    assert unsure.answer == "cannot tell"
    assert "reads c, one of 3 groups, at AUC 0.590; the limit of 0.650 lies between" in unsure.sentence
    assert unsure.upper == pytest.approx(0.59 + 1.6449 * 0.05, abs=1e-4)
    broken = verdict(of_groups([0.72, 0.55, 0.71], [0.04, 0.01, 0.01], flat), 0.65)
    assert broken.answer == "does not hold"
    assert "reads c, one of 3 groups, at AUC 0.710" in broken.sentence


def test_a_group_whose_curve_rises_is_not_hidden_by_the_average():
    """Together the curves are flat; the one of b alone is not."""
    for gain, answer in ((0.0, "holds"), (0.05, "cannot tell")):
        found = verdict(of_groups([0.60, 0.61, 0.5], [0.01, 0.01, 0.01], [0.0, gain, 0.0]), 0.65)
        assert found.answer == answer
        assert ("curve is not flat" in found.sentence) == (answer == "cannot tell")
        assert "reads b, of 3 groups the one it reads best," in found.sentence


def test_an_interval_cut_at_1_gives_the_bounds_of_its_longer_side():
    found = verdict(Estimate(0.99, 0.95, 1.0), 0.9)
    assert found.answer == "does not hold"
    assert found.lower == pytest.approx(0.99 - 0.04 * 1.6449 / 1.96, abs=1e-4)


def test_an_attacker_that_did_worse_than_guess_counts_as_guessing():
    """At .46 with an error of .1, a bound of .625 would hold by bad luck; at .5 it is .664."""
    for found in (attacked(0.46, 0.1, "flat"), Estimate(0.46, 0.46 - 0.195996, 0.46 + 0.195996)):
        told = verdict(found, 0.65)
        assert told.answer == "cannot tell"
        assert told.upper == pytest.approx(0.5 + 1.6449 * 0.1, abs=1e-4)
        assert "at AUC 0.460, which counts as guessing, 0.500; the limit" in told.sentence
    assert verdict(attacked(0.50, 0.1, "flat"), 0.67).sentence.count("guessing") == 0
    assert reach(attacked(0.46, 0.1, "flat"), confidence=0.95, most_rows=10) == [
        pytest.approx(0.66449, abs=1e-4)
    ]
    lucky = of_groups([0.40, 0.55, 0.60], [0.1, 0.01, 0.01], [0.0, 0.0, 0.0])
    assert verdict(lucky, 0.65).answer == "cannot tell"  # .40 + .164 would be below it
    assert verdict(attacked(0.46, 0.01, "flat"), 0.65).answer == "holds"


def test_a_limit_that_is_no_auc_is_refused():
    with pytest.raises(ValueError, match="limit is 65"):
        verdict(Estimate(0.6, 0.5, 0.7), 65)


def test_an_attacker_that_left_rows_unused_proves_nothing_unless_its_curve_is_flat():
    for trend, answer in (("unclear", "cannot tell"), ("flat", "holds")):
        found = attacked(0.6, 0.01, trend)
        assert verdict(found, 0.65).answer == "holds"  # the control: it had all rows
        fewer = dataclasses.replace(found, n_fit=2 * found.strongest.n_rows)
        assert verdict(fewer, 0.65).answer == answer
    assert (
        "curve is not flat"
        in verdict(dataclasses.replace(attacked(0.6, 0.01, "unclear"), n_fit=10**6), 0.65).sentence
    )
