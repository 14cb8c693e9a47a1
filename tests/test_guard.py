"""Guarded components hide what differs beyond second moments, and keep the variance that does not."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import GroupMoments, solve
from fairstream.subspace.guard import (
    GuardedAttribute,
    RandomFeatureAdversary,
    guard_told,
    guarded_components,
)

N, D, K = 6_000, 8, 3
SHAPES = {"steps": 80, "rows": 1_500}


def hidden_shape(seed=0):
    """Group 1 is two-valued in the first feature: its mean and variance are those of group 0."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, N)
    X = rng.normal(size=(N, D)) * [3.0, 2.5, 2.0, 1.8, 1, 1, 1, 1]
    X[group == 1, 0] = 3.0 * rng.choice([-1.0, 1.0], int(group.sum()))
    return X, group


def attribute(group, name="sex"):
    rows = tuple(np.flatnonzero(group == g) for g in np.unique(group))
    return GuardedAttribute(name, rows, (None,) * len(rows))


def guarded(X, *groups, strength=1.0, **options):
    X = X - X.mean(axis=0)
    Sigma = X.T @ X / len(X)
    start = np.linalg.eigh(Sigma)[1][:, -K:]
    nothing = np.zeros((X.shape[1], 0))
    attributes = [attribute(group, f"a{j}") for j, group in enumerate(groups)]
    return guarded_components(X, attributes, Sigma, start, nothing, strength=strength, **(SHAPES | options))


def leak(V, X, group):
    half = len(X) // 2
    attacker = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(X[:half] @ V, group[:half])
    return roc_auc_score(group[half:], attacker.predict_proba(X[half:] @ V)[:, 1])


def test_a_shape_that_moments_do_not_see_is_hidden_by_the_guard():
    X, group = hidden_shape()
    plain = solve(GroupMoments(D).update(X), K, constraint="none").components.T
    assert leak(plain, X, group) > 0.9  # the control: equal means and variances, and all is seen
    found = guarded(X, group)
    assert leak(found.components, X, group) < 0.6
    kept = X.var(axis=0) @ (found.components**2).sum(axis=1)
    assert kept > 0.95 * np.sort(X.var(axis=0))[-4:-1].sum()
    assert found.adversary[-10:].mean() < 0.05 < found.adversary[0]


def test_components_are_orthonormal_outside_what_is_nulled_and_strongest_first():
    X, group = hidden_shape()
    X = X - X.mean(axis=0)
    Sigma, U = X.T @ X / N, np.eye(D)[:, 1:3]
    V = guarded_components(X, [attribute(group)], Sigma, np.eye(D)[:, [0, 3, 4]], U, strength=1.0, **SHAPES)
    V = V.components
    np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-10)
    assert np.abs(U.T @ V).max() < 1e-12
    variances = np.diag(V.T @ Sigma @ V)
    assert (np.diff(variances) < 0).all()


def test_shuffled_labels_cost_no_variance_beyond_noise():
    X, group = hidden_shape()
    shuffled = np.random.default_rng(1).permutation(group)
    found = guarded(X, shuffled).components
    best = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[-K:].sum()
    assert np.trace(found.T @ np.cov(X.T) @ found) > 0.99 * best


def test_the_same_seed_gives_the_same_bits_and_another_one_as_good_a_subspace():
    X, group = hidden_shape()
    first, again, other = (guarded(X, group, seed=seed, steps=160) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.components, again.components)
    assert (first.components != other.components).any()
    for found in (first, other):  # the first feature may hide behind a plus or a minus the fourth
        assert found.objective[-40:].mean() == pytest.approx(first.objective[-40:].mean(), abs=0.02)
        assert leak(found.components, X, group) < 0.6


def test_several_attributes_with_several_groups_are_hidden_together():
    X, group = hidden_shape()
    rng = np.random.default_rng(2)
    race = rng.integers(0, 3, N)
    X[:, 1] = np.where(race == 2, 2.5 * rng.choice([-1.0, 1.0], N), X[:, 1])
    V = guarded(X, group, race, strength=4.0, steps=300, rows=3_000).components
    assert leak(V, X, group) < 0.68
    assert leak(V, X, (race == 2).astype(int)) < 0.68
    assert leak(guarded(X, group, strength=4.0).components, X, (race == 2).astype(int)) > 0.75  # the control


def test_a_target_to_keep_stays_readable():
    X, group = hidden_shape()
    y = (X[:, 5] > 0).astype(np.float32)  # a feature of little variance
    options = {"target": y[:, None], "keep": 3.0, "steps": 150}
    assert leak(guarded(X, group, **options).components, X, y) > 0.8
    assert leak(guarded(X, group).components, X, y) < 0.6


def test_products_find_a_gap_of_covariances_that_no_single_score_shows():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 4_000)
    Z = rng.normal(size=(4_000, 6)).astype(np.float32)
    Z[:, 1] = np.where(group, Z[:, 0], -Z[:, 0]) * 0.8 + 0.6 * Z[:, 1]
    T = (group - group.mean()).astype(np.float32)[:, None]
    r2 = {}
    for products in (False, True):
        adversary = RandomFeatureAdversary(20, products=products)
        adversary.draw(6, 2_000, np.random.default_rng(0))
        (r2[products],), _ = adversary.score(Z[:2_000], T[:2_000], Z[2_000:], T[2_000:])
    assert r2[True] > r2[False] + 0.05


@pytest.mark.parametrize("products", [False, True])
def test_the_gradient_is_that_of_the_score(products):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 4))
    T = rng.normal(size=(60, 2))
    T -= T.mean(axis=0)
    adversary = RandomFeatureAdversary(20, products=products)
    adversary.draw(4, 80, rng)
    fit, fit_targets = rng.normal(size=(80, 4)), rng.normal(size=(80, 2))
    r2, gradient = adversary.score(fit, fit_targets, Z, T)
    step = rng.normal(size=Z.shape)
    # Each row's features are centred over all rows, which the gradient leaves out: a step in few rows.
    step[3:] = 0
    numeric = (adversary.score(fit, fit_targets, Z + 1e-4 * step, T)[0] - r2) / 1e-4
    assert numeric == pytest.approx((gradient * step).sum(axis=(1, 2)), rel=0.25)


class Linear:
    """An adversary that reads means only: least squares on the scores themselves."""

    def draw(self, k, n_rows, rng):
        pass

    def score(self, Z_fit, T_fit, Z, T):
        slopes = np.linalg.lstsq(Z_fit - Z_fit.mean(axis=0), T_fit - T_fit.mean(axis=0), rcond=None)[0]
        residual = T - (Z - Z.mean(axis=0)) @ slopes
        total = (T**2).sum(axis=0)
        return 1 - (residual**2).sum(axis=0) / total, 2 * np.einsum("nc,kc->cnk", residual / total, slopes)


def test_another_adversary_can_be_given():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 2_000)
    X = rng.normal(size=(2_000, 5)) * [3, 2, 1, 1, 1]
    X[:, 0] += 4 * group  # a gap of means, which the linear adversary reads
    X[:, 1] *= np.where(group, 2, 0.3)  # a gap of spreads, which it does not
    moments = GroupMoments(5, sample=1_000).update(X, group)
    asked = {"n_components": 1, "constraint": "none", "guard": 2.0}
    fairest, linear = (abs(solve(moments, **asked, adversary=a).components[0]) for a in (None, Linear()))
    assert linear[0] < 0.2
    assert linear[1] > 0.9
    assert fairest[1] < 0.5
    with pytest.raises(ValueError, match="adversary needs a guard"):
        solve(moments, 1, adversary=Linear())


def test_progress_of_the_search_is_told():
    X, group = hidden_shape()
    told = []
    with guard_told(lambda done, of: told.append((done, of))):
        guarded(X, group, steps=5)
    guarded(X, group, steps=5)  # to nobody
    assert told == [(step, 5) for step in range(1, 6)]


def test_convergence_is_told():
    X, group = hidden_shape()
    assert guarded(X, group, steps=120).converged
    assert not guarded(X, group, steps=4).converged


@pytest.mark.full_guard
@pytest.mark.parametrize("sampled", [True, False])
def test_a_guard_does_not_take_variance_that_one_row_carries(sampled):
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 5)) * [1.2, 1.1, 1.0, 0.9, 0.9]
    X[group == 1, 0] = 1.2 * rng.choice([-1.0, 1.0], (group == 1).sum())
    X[:, 4] = 0
    X[17, 4] = np.sqrt(4000) * 1.05  # as a rare indicator that was scaled to unit variance
    moments = GroupMoments(5, sample=4000 if sampled else 1000)
    moments.update(X, group)
    assert (moments.sample.rows().X[:, 4] > 0).any() == sampled
    plain = solve(moments, 3, constraint="none")
    kept = solve(moments, 3, constraint="none", guard=2.0)
    assert np.abs(plain.components[:, 4]).max() > 0.9  # plain PCA does take it
    assert np.abs(kept.components[:, 4]).max() < 0.3


@pytest.mark.parametrize("one_hot", [False, True])
def test_a_guard_of_few_rows_stays_in_the_leading_directions_unless_most_columns_are_indicators(one_hot):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 30)) * np.linspace(3, 1, 30)
    if one_hot:
        X = np.greater(X, np.linspace(0, 3, 30)).astype(float)
    X[:, 0] += group
    moments = GroupMoments(30, sample=600).update(X, group)
    V = solve(moments, 2, constraint="none", guard=2.0).components.T
    leading = np.linalg.eigh(np.cov(X.T))[1][:, -10:]  # one for 60 rows; four a component are eight
    outside = np.linalg.norm(V - leading @ (leading.T @ V))
    assert (outside < 0.01) == (not one_hot)  # trusted variances weigh a little otherwise than all


def test_an_adversary_of_many_scores_sees_all_their_products_if_the_rows_suffice():
    adversary = RandomFeatureAdversary(products=True)
    Z = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    columns = {}
    for n_rows in (1_000, 8_000):
        adversary.draw(50, n_rows, np.random.default_rng(0))
        _, gradient = adversary.score(Z, Z[:, :1], Z, Z[:, :1])
        assert gradient.shape == (1, 40, 50)
        columns[n_rows] = adversary.n_features
    assert columns[1_000] == 200 + 50 + 50  # products, cosines, scores
    assert columns[8_000] == 1_275 + 270 + 50


def rare(n_positive):
    X, group = hidden_shape()
    y = np.zeros(len(X))
    y[:n_positive] = 1.0
    return X, group, y


@pytest.mark.parametrize("n_positive", [1, 3])
def test_a_target_that_most_draws_have_one_value_of_does_not_swamp_the_objective(n_positive):
    X, group, y = rare(n_positive)
    target = ((y - y.mean()) / y.std())[:, None]
    found = guarded(X, group, keep=1.0, target=target, steps=30, rows=200)
    assert np.isfinite(found.components).all()
    assert found.objective.min() > -3  # an R2 of a target without variance has no bound


def test_one_target_of_two_that_does_not_differ_leaves_the_other_as_it_is():
    X, group = hidden_shape()
    y = X[:, :1] - X[:, :1].mean()
    alone = guarded(X, group, keep=1.0, target=y, steps=10)
    beside = guarded(X, group, keep=1.0, target=np.hstack([y, np.zeros_like(y)]), steps=10)
    np.testing.assert_array_equal(alone.components, beside.components)


def test_a_target_of_one_value_is_refused_by_the_name_of_keep_target():
    X, group, y = rare(0)
    moments = GroupMoments(X.shape[1], sample=500).update(X, group, target=y)
    with pytest.raises(
        ValueError, match=r"keep_target=0\.5 has nothing to keep: the target is 0 in all 1,000"
    ):
        solve(moments, 2, constraint="none", guard=1.0, keep_target=0.5)
    # Other values among rows of unknown group alone, by which nothing is judged.
    labels = np.where(np.arange(len(X)) < 50, None, group.astype(object))
    other = np.where(np.arange(len(X)) < 50, 1.0, 0.0)
    moments = GroupMoments(X.shape[1], sample=500)
    moments.update(X, {"sex": labels, "all": np.arange(len(X)) % 2}, target=other)
    with pytest.raises(ValueError, match="has nothing to keep"):
        solve(moments, 2, constraint="none", guard=1.0, keep_target=0.5)


def test_groups_are_drawn_as_the_data_has_them_beside_a_small_group(monkeypatch):
    rng = np.random.default_rng(0)
    sex, race = rng.integers(0, 2, 20_000), (rng.random(20_000) < 0.05).astype(int)
    moments = GroupMoments(3, sample=1_000).update(rng.normal(size=(20_000, 3)), {"sex": sex, "race": race})
    drawn = {}

    def note(X, attributes, *others, **options):
        drawn.update({attribute.name: attribute.rows for attribute in attributes})
        raise InterruptedError

    monkeypatch.setattr("fairstream.subspace.guard.guarded_components", note)
    with pytest.raises(InterruptedError):
        solve(moments, 2, constraint="none", guard=1.0)
    held = moments.sample.rows().codes["race"]
    assert [len(rows) for rows in drawn["sex"]] == [1_000, 1_000]
    assert (held[drawn["sex"][0]] == 1).mean() < 0.07
