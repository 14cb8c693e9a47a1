"""What the target tells of the group, without any embedding."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream.auditing.measure.floors import floors
from fairstream.auditing.measure.task import target_scores


def test_the_label_alone_tells_what_its_rates_by_group_say():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=6_000)
    y = rng.random(6_000) < np.where(codes, 0.3, 0.1)
    found = floors(y, codes)
    assert found.label.low < 0.5 + (0.3 - 0.1) / 2 < found.label.high
    assert (found.guessing, found.score) == (0.5, None)


def test_a_score_for_the_target_tells_at_least_as_much_as_it_must():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, size=1_200)
    X = rng.normal(size=(1_200, 3))
    X[:, 0] += codes
    y = X[:, 0] + 0.3 * rng.normal(size=1_200) > 0.5
    found = floors(y, np.where(np.arange(1_200) < 50, -1, codes), target_scores(X, y))
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
    fewer = target_scores(np.arange(20.0)[:, None], np.arange(20) % 2)
    with pytest.raises(ValueError, match="scores has 20 rows, y has 40"):
        floors(np.arange(40) % 2, np.arange(40) % 2, fewer)
