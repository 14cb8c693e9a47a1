"""The relaxed projections under the semidefinite programme: nearest points, and both solvers agree."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from fairstream.baselines import OlfatAswaniFairPCA, fantope
from fairstream.baselines.fantope import (
    _BoundedFantope,
    _shrunk_norm,
    _Splitting,
    penalised_projection,
    symmetric,
)
from fairstream.errors import FairstreamWarning
from fairstream.linalg import memory


def some_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    groups = rng.random(400) < 0.4
    X = rng.normal(size=(400, 7)) * np.linspace(3, 1, 7)
    X[groups, 0] += 4.0
    X[groups, 1] *= 2.0
    return X @ np.linalg.qr(rng.normal(size=(7, 7)))[0], groups


def some_relaxed_projection(rng: np.random.Generator, d: int, k: int) -> np.ndarray:
    bases = [np.linalg.qr(rng.normal(size=(d, k)))[0] for _ in range(3)]
    return sum(share * V @ V.T for share, V in zip(rng.dirichlet(np.ones(3)), bases, strict=True))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("delta", [0.0, 0.1, 50.0])
def test_both_solvers_find_the_same_projection(k, delta):
    pytest.importorskip("cvxpy")
    X, groups = some_rows()
    ours, conic = (
        OlfatAswaniFairPCA(k, delta=delta, solver=solver).fit(X, sensitive_features=groups)
        for solver in ("ADMM", "SCS")
    )
    np.testing.assert_allclose(ours.projection_, conic.projection_, atol=1e-3)
    np.testing.assert_allclose(ours.covariance_gaps_, conic.covariance_gaps_, rtol=1e-3)
    other = OlfatAswaniFairPCA(k, delta=delta, mu=0.1).fit(X, sensitive_features=groups)  # the control
    assert np.abs(other.projection_ - conic.projection_).max() > 1e-2


def test_both_residuals_have_to_be_small(monkeypatch):
    X, groups = some_rows()
    both = _Splitting.residuals
    for shown in (lambda p, d: (0.0, d), lambda p, d: (p, 0.0)):
        seen = []

        def one_small(self, shown=shown, seen=seen):
            seen.append(shown(*both(self)))
            return seen[-1]

        monkeypatch.setattr(_Splitting, "residuals", one_small)
        model = OlfatAswaniFairPCA(2, delta=0.1).fit(X, sensitive_features=groups)
        assert model.status_ == "optimal"
        assert max(seen[-1]) <= 1e-6
        assert min(max(pair) for pair in seen[:-2]) > 1e-6  # it went on while the other was large
        with pytest.warns(FairstreamWarning, match="stopped early"):
            OlfatAswaniFairPCA(2, delta=0.1, max_iter=20).fit(X, sensitive_features=groups)


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("unit", [1e-6, 1e-2, 1e2, 1e7])
def test_units_of_the_features_do_not_matter(unit, delta):
    """The objective grows with the unit, the penalty with its square: mu makes up for it."""
    X, groups = some_rows()
    plain = OlfatAswaniFairPCA(2, delta=delta, mu=0.01).fit(X, sensitive_features=groups)
    model = OlfatAswaniFairPCA(2, delta=delta * unit, mu=0.01 / unit).fit(X * unit, sensitive_features=groups)
    np.testing.assert_allclose(model.projection_, plain.projection_, atol=1e-4)
    np.testing.assert_allclose(model.covariance_gaps_, plain.covariance_gaps_ * unit**2, rtol=1e-3)
    assert np.trace(model.projection_) == pytest.approx(2, abs=1e-9)
    assert model.n_iter_ < 10 * plain.n_iter_


def test_the_gaps_told_are_those_of_the_projection():
    X, groups = some_rows()
    X[:, 2] *= 1e4  # raw tables have such columns
    model = OlfatAswaniFairPCA(2, delta=0.1).fit(X, sensitive_features=groups)
    S = np.cov(X[groups].T, ddof=0) - np.cov(X[~groups].T, ddof=0)
    low, high = np.linalg.eigvalsh(S)[[0, -1]]
    P = model.projection_
    shifted = S + max(0, -low) * np.eye(7), max(0, high) * np.eye(7) - S
    expected = [np.linalg.eigvalsh(P @ M @ P)[-1] for M in shifted]
    np.testing.assert_allclose(model.covariance_gaps_, expected, rtol=1e-4)


def test_too_many_components_for_the_bound_are_refused():
    X, groups = some_rows()
    with pytest.raises(ValueError, match=r"n_components is 7 of 7 features, delta is 0.1"):
        OlfatAswaniFairPCA(7, delta=0.1).fit(X, sensitive_features=groups)
    OlfatAswaniFairPCA(7, delta=50.0).fit(X, sensitive_features=groups)  # a bound that binds nothing


@pytest.mark.parametrize("name", ["delta", "mu", "tolerance", "max_iter"])
def test_numbers_that_are_none_are_refused(name):
    X, groups = some_rows()
    for value in (np.nan, -1.0):
        with pytest.raises(ValueError, match=rf"{name} is {value}"):
            OlfatAswaniFairPCA(2, **{name: value}).fit(X, sensitive_features=groups)
    if name in ("tolerance", "max_iter"):
        with pytest.raises(ValueError, match=rf"{name} is 0"):
            OlfatAswaniFairPCA(2, **{name: 0}).fit(X, sensitive_features=groups)


@pytest.mark.parametrize("delta", [1e-200, 1e200])
def test_extreme_bounds_are_no_bound_or_none_of_it(delta):
    X, groups = some_rows()
    same = OlfatAswaniFairPCA(2, delta=0.0 if delta < 1 else 1e3).fit(X, sensitive_features=groups)
    model = OlfatAswaniFairPCA(2, delta=delta).fit(X, sensitive_features=groups)
    np.testing.assert_allclose(model.projection_, same.projection_, atol=1e-12)


def test_an_unknown_solver_is_named():
    pytest.importorskip("cvxpy")
    X, groups = some_rows()
    with pytest.raises(ValueError, match=r"solver is 'admm': pass \"ADMM\", or what cvxpy has installed"):
        OlfatAswaniFairPCA(2, solver="admm").fit(X, sensitive_features=groups)


@pytest.mark.parametrize("solver", ["ADMM", "SCS"])
def test_the_warning_points_at_the_line_that_fits(solver):
    if solver == "SCS":
        pytest.importorskip("cvxpy")
    X, groups = some_rows()
    with pytest.warns(FairstreamWarning, match="stopped early") as seen:
        OlfatAswaniFairPCA(2, solver=solver, max_iter=2).fit(X, sensitive_features=groups)
    assert seen[0].filename == __file__


@pytest.mark.parametrize("bound", [None, 0.3, 0.9])
def test_projection_on_the_bounded_fantope_is_the_nearest(bound):
    rng = np.random.default_rng(0)
    bounded = _BoundedFantope(2, bound, 1e-9)
    for first_entry in (3.0, 1.0, 0.2, 3.5, -3.0, 3.0, 100.0):  # each starts from the shift of the one before
        A = symmetric(rng.normal(size=(6, 6)))
        A[0, 0] += first_entry
        P = bounded.nearest(A)
        values = np.linalg.eigvalsh(P)
        assert values[0] > -1e-12
        assert values[-1] < 1 + 1e-12
        assert np.trace(P) == pytest.approx(2)
        assert bound is None or P[0, 0] <= bound * (1 + 1e-8)
        np.testing.assert_allclose(P, _BoundedFantope(2, bound, 1e-9).nearest(A), atol=1e-7)
        others = []
        for _ in range(200):  # no point of the set makes an acute angle with what was cut off
            Q = some_relaxed_projection(rng, 6, 2)
            if bound is None or Q[0, 0] <= bound:
                assert np.sum((A - P) * (Q - P)) < 1e-6
                others.append(Q)
        assert len(others) > 20
        assert all(
            np.sum((A - Q) * (P - Q)) > 1e-3 for Q in others
        )  # the control: none of them is the nearest


def test_cutting_the_norm_is_the_best_trade():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(9, 5))
    for weight in (0.0, 0.1, 2.0):
        Y = _shrunk_norm(M, weight)

        def price(Z: np.ndarray, weight: float = weight) -> float:
            return np.sum((Z - M) ** 2) / 2 + weight * np.linalg.norm(Z, 2) ** 2

        near = [Y + scale * rng.normal(size=M.shape) for scale in (1e-3, 1e-1) for _ in range(100)]
        assert min(price(Z) for Z in near) > price(Y)
    assert price(M) > price(Y) + 0.1  # the control


def test_groups_alike_give_the_leading_eigenvectors():
    C = np.diag([5.0, 4.0, 3.0, 2.0, 1.0])
    none = np.empty((5, 0))
    found = penalised_projection(C, (none, none), 2, weight=1.0, bound=None, tolerance=1e-8, max_iter=5_000)
    np.testing.assert_allclose(found.P, np.diag([1.0, 1.0, 0, 0, 0]), atol=1e-6)
    assert found.squared_norms.tolist() == [0.0, 0.0]


def test_memory_is_checked_before_it_is_taken(monkeypatch):
    X, groups = some_rows()
    monkeypatch.setattr(memory, "free_bytes", lambda: 20_000)
    with pytest.raises(MemoryError, match=r"a projection of size 6 takes .* KleindessnerFairPCA"):
        OlfatAswaniFairPCA(2).fit(X, sensitive_features=groups)


def test_a_jump_that_leads_astray_is_taken_back(monkeypatch):
    X, groups = some_rows()
    model = OlfatAswaniFairPCA(2, delta=0.1)
    expected = clone(model).fit(X, sensitive_features=groups)
    jumps = []

    def astray(self, z, f):
        jumps.append(1)
        return z + 1e3 * f

    monkeypatch.setattr(fantope._Acceleration, "jump", astray)
    model.fit(X, sensitive_features=groups)
    assert model.n_iter_ > expected.n_iter_  # the control: jumps help
    assert len(jumps) > 5
    np.testing.assert_allclose(model.projection_, expected.projection_, atol=1e-4)
