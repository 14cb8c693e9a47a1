"""The relaxed projections under the semidefinite programme: nearest points, and both solvers agree."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from fairstream import memory
from fairstream.baselines import OlfatAswaniFairPCA, fantope
from fairstream.baselines.fantope import _BoundedFantope, _shrunk_norm, penalised_projection, symmetric


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


@pytest.mark.parametrize("bound", [None, 0.3, 0.9])
def test_projection_on_the_bounded_fantope_is_the_nearest(bound):
    rng = np.random.default_rng(0)
    bounded = _BoundedFantope(2, bound, 1e-9)
    for first_entry in (3.0, 3.5, -3.0, 3.0, 100.0):  # each starts from the shift of the one before
        A = symmetric(rng.normal(size=(6, 6)))
        A[0, 0] += first_entry
        P = bounded.nearest(A)
        values = np.linalg.eigvalsh(P)
        assert values[0] > -1e-12
        assert values[-1] < 1 + 1e-12
        assert np.trace(P) == pytest.approx(2)
        assert bound is None or P[0, 0] <= bound * (1 + 1e-8)
        n_tried = 0
        for _ in range(200):  # no point of the set makes an acute angle with what was cut off
            Q = some_relaxed_projection(rng, 6, 2)
            if bound is None or Q[0, 0] <= bound:
                assert np.sum((A - P) * (Q - P)) < 1e-6
                n_tried += 1
        assert n_tried > 20
        assert np.sum((A - Q) * (P - Q)) > 1e-3  # the control: another point is not the nearest


def test_cutting_the_norm_is_the_best_trade():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(9, 5))
    for weight in (0.0, 0.1, 2.0):
        Y, norm = _shrunk_norm(M, weight)
        assert norm == pytest.approx(np.linalg.norm(Y, 2))

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
