"""Relative directions are nested: nulling more never brings a nulled direction back."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.linalg

from fairstream import FairstreamWarning, GroupMoments, unfair_basis
from fairstream.datasets import load_adult
from fairstream.linalg import leading_outside, orthonormalise

K = 10


@pytest.fixture(scope="module")
def adult():
    """Adult's columns, one-hot and standardised, with sex and race."""
    table = load_adult(backend="numpy", drop_missing=True)
    columns = []
    for name in (name for name in table if name not in ("sex", "race", "income")):
        values = table[name]
        levels = sorted(set(values.tolist())) if values.dtype == object else None
        columns += [values] if levels is None else [values == level for level in levels]
    X = np.column_stack(columns).astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return GroupMoments(X.shape[1]).update(X, {"sex": table["sex"], "race": table["race"]})


def brought_back(smaller, larger):
    """Largest length of a vector of the smaller basis outside the larger one's span."""
    return float(np.linalg.norm(smaller - larger @ (larger.T @ smaller), 2))


def all_at_once(moments, m):
    """The control: all m directions chosen in one window that grows with m."""
    pairs = moments.comparisons()
    means = orthonormalise(np.stack([moments.mean_gap(*pair) for pair in pairs], axis=1))
    width = min(K + m * len(pairs), moments.n_features - means.shape[1])
    window = leading_outside(moments.covariance(), means, width)
    ridge = 1e-3 * float(np.trace(moments.covariance().compress(window))) / width * np.eye(width)
    columns = [means]
    for pair in pairs:
        inside, outside = (side.compress(window) for side in moments.second_moments(*pair))
        ratios, vectors = scipy.linalg.eigh(inside + ridge, outside + ridge)
        columns.append(window @ vectors[:, np.argsort(-np.abs(np.log(ratios)))[:m]])
    return orthonormalise(np.hstack(columns))


def test_more_nulled_directions_never_bring_one_back(adult):
    bases = [unfair_basis(adult, m, directions="relative", n_components=K) for m in range(3, 10)]
    assert max(brought_back(a, b) for a, b in itertools.pairwise(bases)) < 1e-6
    first = [all_at_once(adult, m) for m in range(3, 10)]
    assert max(brought_back(a, b) for a, b in itertools.pairwise(first)) > 0.5


def test_one_direction_nulls_the_largest_ratio_of_the_embedding():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 4_000)
    X = rng.normal(size=(4_000, 8)) * [8, 4, 3, 2, 1, 1, 1, 1]
    X[sex == 1, 1] *= 3
    moments = GroupMoments(8).update(X - [X[sex == s].mean(axis=0) for s in sex], sex)
    U = unfair_basis(moments, 1, "covariance", "relative", n_components=3)
    assert abs(U[1, 0]) > 0.99


@pytest.mark.parametrize("rank", [None, 30])
def test_directions_stop_when_the_embedding_is_used_up(rank):
    rng = np.random.default_rng(0)
    moments = GroupMoments(6, rank).update(rng.normal(size=(300, 6)), rng.integers(0, 3, 300))
    assert unfair_basis(moments, 5, directions="relative", n_components=2).shape[1] == 6


def test_fewer_relative_directions_than_asked_for_are_warned_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 8))  # of rank 3
    moments = GroupMoments(8).update(X, {"sex": rng.integers(0, 2, 300)})
    with pytest.warns(FairstreamWarning, match="finds only 2 directions with variance, n_unfair asks for 5"):
        U = unfair_basis(moments, 5, directions="relative", n_components=2)
    assert U.shape == (8, 3)  # the mean gap is the third
    with warnings.catch_warnings():  # the control
        warnings.simplefilter("error")
        unfair_basis(moments, 2, directions="relative", n_components=1)
