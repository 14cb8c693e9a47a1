"""A promise holds, does not hold, or cannot be judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fairstream.auditing.measure.attack import attack
from fairstream.auditing.measure.verdict import verdict
from fairstream.auditing.report import AttackCurve, Estimate


def attacked(auc, error, trend, gain=None):
    codes = np.arange(60) % 2
    Z = np.random.default_rng(0).normal(size=(60, 2))
    result = attack(Z, codes, families=["linear"])
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


def test_an_interval_cut_at_1_gives_the_bounds_of_its_longer_side():
    found = verdict(Estimate(0.99, 0.95, 1.0), 0.9)
    assert found.answer == "does not hold"
    assert found.lower == pytest.approx(0.99 - 0.04 * 1.6449 / 1.96, abs=1e-4)


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
