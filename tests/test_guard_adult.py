"""The guard on Adult, from moments and 4,096 rows a group: merged parts, memory, and no guard at all."""

import numpy as np
import pytest
from support.memory import peak_of

from fairstream import GroupMoments, solve
from fairstream.data import open_source
from fairstream.datasets import load_adult
from fairstream.linalg import principal_angles
from fairstream.subspace.guard import COSINES

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.full_guard,
    pytest.mark.filterwarnings("ignore:the guard has not converged"),
]
GUARDED = {"n_components": 10, "constraint": "none", "guard": 1.0}
ROWS = 4_096


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr("fairstream.subspace.guard.STEPS", 12)  # of 400: what is tested shows in few


@pytest.fixture(scope="module")
def adult():
    source = open_source(
        load_adult(backend="pyarrow"),
        sensitive_features=["sex"],
        target="income",
        standardize=True,
        impute="mean",
    )
    blocks = [*source]
    return (
        np.concatenate([block.X for block in blocks]),
        np.concatenate([block.groups["sex"].codes for block in blocks]),
    )


def _merged(X, sex, rank=None, parts=7):
    merged = GroupMoments(X.shape[1], rank, sample=ROWS)
    for part in np.array_split(np.arange(len(X)), parts):
        merged.merge(GroupMoments(X.shape[1], rank, sample=ROWS).update(X[part], {"sex": sex[part]}))
    return merged


def test_seven_merged_parts_of_adult_give_the_same_guarded_components(adult):
    X, sex = adult
    whole = GroupMoments(X.shape[1], sample=ROWS).update(X, {"sex": sex})
    parts = _merged(X, sex)
    np.testing.assert_array_equal(whole.sample.rows().X, parts.sample.rows().X)
    first, again = (solve(moments, **GUARDED).components for moments in (whole, parts))
    np.testing.assert_allclose(first, again, atol=1e-5)
    plain = solve(whole, 10, constraint="none").components
    assert np.sin(principal_angles(first.T, plain.T).max()) > 0.05  # the control: the guard did something


def test_seven_merged_sketches_of_adult_give_nearly_the_same_guarded_components(adult):
    X, sex = adult
    whole = GroupMoments(X.shape[1], 48, sample=ROWS).update(X, {"sex": sex})
    parts = _merged(X, sex, 48)
    np.testing.assert_array_equal(whole.sample.rows().X, parts.sample.rows().X)
    first, again = (solve(moments, **GUARDED) for moments in (whole, parts))
    assert np.sin(principal_angles(first.components.T, again.components.T).max()) < 0.1
    kept = [model.explained_variance_ratio.sum() for model in (first, again)]
    np.testing.assert_allclose(*kept, rtol=0.01)


def test_memory_of_a_guard_is_that_of_its_sample_and_draws_not_of_the_data(adult):
    """Per draw: some arrays of 4,000 rows and about 300 features of the adversary, in float32."""
    X, sex = adult
    moments = GroupMoments(X.shape[1], sample=ROWS).update(X, {"sex": sex})
    peak, _ = peak_of(lambda: solve(moments, **GUARDED))
    held = 2 * ROWS * X.shape[1] * 8
    draw = 4_000 * (COSINES + X.shape[1]) * 4
    assert peak < 3 * held + 12 * draw
    assert moments.sample.nbytes < 1.1 * held


def test_without_a_guard_a_sample_changes_no_bit_of_the_solution(adult):
    X, sex = adult
    models = [
        solve(GroupMoments(X.shape[1], sample=sample).update(X, {"sex": sex}), 10, guard=0.0)
        for sample in (None, ROWS)
    ]
    for name in ("components", "unfair_basis", "explained_variance", "mean"):
        np.testing.assert_array_equal(*(getattr(model, name) for model in models))
