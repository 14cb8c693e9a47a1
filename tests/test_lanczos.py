"""Leading eigenpairs by Lanczos: those of the dense decomposition, or none at all."""

import numpy as np
import pytest

from fairstream import GroupMoments, frontier
from fairstream.linalg import SymmetricOperator, eigen, leading_outside, principal_angles, top_eigenvectors

D = 480


def rotated(spectrum: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a symmetric matrix with these eigenvalues along random directions."""
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum), len(spectrum))))[0]
    S = (Q * spectrum) @ Q.T
    return (S + S.T) / 2


def dense_pairs(S: np.ndarray, m: int, by: str) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(S)
    order = np.argsort(-(np.abs(values) if by == "absolute" else values), kind="stable")[:m]
    return values[order], vectors[:, order]


SPECTRA = {
    "falling": 1 / np.arange(1, D + 1),
    "steep": np.logspace(0, -14, D),
    "both signs": np.concatenate([[-3.0, 2.5, -2.0, 1.5, 1.2], np.linspace(1, -1, D - 5)]),
    "low rank": np.concatenate([[5.0, 4, 3, 2, 1], np.zeros(D - 5)]),
}


@pytest.mark.parametrize("by", ["value", "absolute"])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_eigenvectors_are_those_of_the_dense_decomposition(name, by):
    S = rotated(SPECTRA[name])
    values, vectors = top_eigenvectors(S, 3, by=by)
    expected, directions = dense_pairs(S, 3, by)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert principal_angles(vectors, directions).max() < 1e-8


def test_lanczos_is_what_solved_them(monkeypatch):
    monkeypatch.setattr(eigen, "eigh", lambda S: pytest.fail("solved by a dense decomposition"))
    top_eigenvectors(rotated(SPECTRA["falling"]), 3)
    leading_outside(SymmetricOperator(rotated(SPECTRA["falling"])), np.eye(D)[:, :2], 3)


EQUAL = {
    "all but one equal": np.array([5.0, *np.ones(D - 1)]),
    "equal in the middle": np.array([9.0, 5, 5, 5, 5, *np.linspace(1, 0, D - 5)]),
    "nearly equal": np.array([9.0, 5, 5 - 1e-13, *np.linspace(1, 0, D - 3)]),
    "opposite": np.array([5.0, -5, 4, -4, *np.linspace(1, -1, D - 4)]),
    "zero": np.zeros(D),
    "identity": np.ones(D),
}


@pytest.mark.parametrize("by", ["value", "absolute"])
@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("turned", [True, False])
def test_equal_eigenvalues_are_all_found(name, by, turned):
    S = rotated(EQUAL[name]) if turned else np.diag(EQUAL[name])
    values, vectors = top_eigenvectors(S, 5, by=by)
    expected, _ = dense_pairs(S, 5, by)
    key = np.abs if by == "absolute" else np.asarray
    np.testing.assert_allclose(key(values), key(expected), rtol=0, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(S @ vectors, vectors * values, atol=1e-8)


def test_an_eigenvector_that_was_missed_is_noticed(monkeypatch):
    """The control: an iteration that never sees the second of two equal eigenvalues."""
    S, keep = np.diag([5.0, 5, *np.linspace(1, 0, D - 2)]), eigen._eigsh

    def blind(operator, m, by, width, tolerance):
        if m == 1:
            return keep(operator, m, by, width, tolerance)
        return np.array([5.0, 1.0]), np.eye(D)[:, [0, 2]]

    monkeypatch.setattr(eigen, "_eigsh", blind)
    assert eigen.by_lanczos(lambda x: S @ x, D, 2) is None
    np.testing.assert_allclose(top_eigenvectors(S, 2)[0], [5, 5])


def test_a_residual_is_noticed(monkeypatch):
    S = rotated(SPECTRA["falling"])
    monkeypatch.setattr(eigen, "_eigsh", lambda *args, **options: (np.array([1.0]), np.eye(D)[:, :1]))
    assert eigen.by_lanczos(lambda x: S @ x, D, 1) is None


def test_what_does_not_converge_soon_is_solved_densely():
    S = rotated(np.linspace(1, 1 - 1e-9, D))
    assert eigen.by_lanczos(lambda x: S @ x, D, 5) is None
    np.testing.assert_allclose(top_eigenvectors(S, 5)[0], np.ones(5), atol=1e-8)


@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_small_matrices_are_solved_densely(d):
    S = rotated(np.arange(d, dtype=float))
    assert eigen.by_lanczos(lambda x: S @ x, d, 1) is None
    assert top_eigenvectors(S, 1)[0] == pytest.approx([d - 1], abs=1e-9)


def test_the_answer_is_the_same_to_the_bit_every_time():
    S = rotated(SPECTRA["falling"])
    np.random.default_rng().normal(size=7)  # whatever else was drawn
    first, second = (top_eigenvectors(S, 4, by="absolute")[1] for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("rank", [2, 30, D])
def test_components_outside_a_subspace_are_those_of_the_dense_solution(monkeypatch, rank):
    S = rotated(np.concatenate([1 / np.arange(1, rank + 1), np.zeros(D - rank)]))
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(D, 4)) + 3 * dense_pairs(S, 4, "value")[1])[0]
    V = leading_outside(SymmetricOperator(S), U, 6)
    monkeypatch.setattr(eigen, "_LANCZOS_FROM", 10**6)
    dense = leading_outside(SymmetricOperator(S), U, 6)
    real = min(6, rank)
    assert principal_angles(V[:, :real], dense[:, :real]).max() < 1e-7
    assert np.abs(U.T @ V).max() < 1e-12
    np.testing.assert_allclose(V.T @ V, np.eye(6), atol=1e-12)


def test_a_frontier_decomposes_every_gap_once(monkeypatch):
    rng = np.random.default_rng(0)
    moments = GroupMoments(30).update(rng.normal(size=(500, 30)), rng.integers(0, 3, 500))
    seen = []
    keep = eigen.top_eigenvectors
    monkeypatch.setattr(eigen, "top_eigenvectors", lambda *a, **o: seen.append(a[1]) or keep(*a, **o))
    frontier(moments, 2, range(6))
    assert seen == [5, 5, 5]  # one per comparison, for the largest m
