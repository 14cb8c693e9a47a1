import numpy as np
import pytest
import scipy.sparse as sp

from fairstream.linalg import (
    eigh,
    fix_signs,
    gemm,
    orthonormalise,
    orthonormalise_in_place,
    orthonormalise_outside,
    principal_angles,
    top_eigenpairs,
    top_eigenvectors,
)
from fairstream.linalg.bases import orthonormalise_settled
from fairstream.linalg.products import centred_rows
from fairstream.linalg.symmetric import SymmetricOperator, plus_rank_one
from fairstream.linalg.threads import row_squares, sum_of_squares


def test_orthonormalise_drops_what_earlier_columns_span(rng):
    A = rng.normal(size=(9, 3))
    dependent = np.hstack([A, -1e-6 * A[:, :1], A @ [[1.0], [2.0], [3.0]], np.zeros((9, 1))])
    Q = orthonormalise(dependent)
    assert Q.shape == (9, 3)
    assert np.allclose(Q.T @ Q, np.eye(3))
    assert principal_angles(Q, A).max() < 1e-10


def test_plain_qr_would_have_added_an_arbitrary_direction(rng):
    """The control: without rank detection the printed QR returns more columns than the span has."""
    A = rng.normal(size=(9, 1))
    assert np.linalg.qr(np.hstack([A, -A]))[0].shape[1] == 2
    assert orthonormalise(np.hstack([A, -A])).shape[1] == 1


def test_orthonormalise_keeps_the_order(rng):
    A = rng.normal(size=(9, 3))
    assert np.allclose(orthonormalise(A)[:, 0], A[:, 0] / np.linalg.norm(A[:, 0]))


def test_top_eigenvectors_by_absolute_value_sees_negative_ones():
    S = np.diag([-2.0, 1.0, 4.0])
    assert np.allclose(top_eigenvectors(S, 2, by="absolute")[0], [4, -2])
    assert np.allclose(top_eigenvectors(S, 2)[0], [4, 1])


@pytest.mark.parametrize("size", [5, 600])
def test_eigh_small_and_large(rng, size):
    A = rng.normal(size=(size, size))
    values, vectors = eigh(A + A.T)
    assert np.allclose((vectors * values) @ vectors.T, A + A.T)


def test_complement_part_is_orthogonal_to_rounding(rng):
    U = np.linalg.qr(rng.normal(size=(30, 4)))[0]
    A = U @ rng.normal(size=(4, 3)) + 1e-4 * rng.normal(size=(30, 3))
    V = np.asfortranarray(A)
    orthonormalise_outside(U, V)
    assert np.abs(U.T @ V).max() < 1e-14
    assert np.allclose(V.T @ V, np.eye(3))


def test_signs_do_not_depend_on_the_sign_that_came_in(rng):
    V = rng.normal(size=(6, 3))
    assert np.array_equal(fix_signs(V), fix_signs(-V))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_operator_with_rank_one_terms_equals_the_dense_matrix(rng, dtype):
    B = np.linalg.qr(rng.normal(size=(12, 4)))[0].T.astype(dtype)
    K = rng.normal(size=(4, 4))
    K = K + K.T
    vectors, weights = rng.normal(size=(2, 12)), np.array([2.0, -3.0])
    dense = B.T @ K @ B + (vectors.T * weights) @ vectors
    operator = plus_rank_one(K, B, vectors, weights)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert np.abs(operator.to_dense() - dense).max() < tolerance * 10
    block = rng.normal(size=(12, 3))
    assert np.abs(operator @ block - dense @ block).max() < tolerance * 50
    assert np.abs(operator.compress(block) - block.T @ dense @ block).max() < tolerance * 200
    assert operator.trace() == pytest.approx(np.trace(dense), abs=tolerance * 100)
    values, _ = top_eigenpairs(operator, 2, by="absolute")
    expected = np.linalg.eigvalsh(dense)
    assert np.allclose(np.sort(np.abs(values)), np.sort(np.abs(expected))[-2:], atol=tolerance * 100)


def test_dense_operator_is_the_matrix():
    S = SymmetricOperator(np.diag([1.0, 2.0]))
    assert np.array_equal(S.to_dense(), np.diag([1.0, 2.0]))
    assert S.shape == (2, 2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("least", [1.0, 1e-2, 1e-9])
def test_the_qr_factorisation_in_place_is_the_same_whichever_way_it_is_computed(rng, dtype, least):
    """Gram factors, two of them, or reflections: R has a positive diagonal, so there is only one answer."""
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A = np.asfortranarray((rng.normal(size=(40, 5)) * np.geomspace(1, least, 5)) @ turn, dtype=dtype)
    before, eps = A.astype(float), np.finfo(dtype).eps
    R = orthonormalise_in_place(A)
    expected, expected_R = np.linalg.qr(before)
    signs = np.sign(np.diag(expected_R))
    assert np.all(np.diag(R) > 0)
    assert np.abs(A.T @ A - np.eye(5)).max() < 30 * eps
    assert np.abs(A @ R - before).max() < 30 * eps
    assert np.abs(A - expected * signs).max() < 100 * eps / least


@pytest.mark.parametrize(("columns", "dtype"), [(1, "f8"), (7, "f8"), (8, "f8"), (4, "f4"), (8, "f4")])
def test_signs_are_fixed_whatever_lies_between_the_entries_of_a_column(rng, columns, dtype):
    """NumPy 2.4 negates a column in place wrongly if its entries are 64 bytes apart (float32: 16)."""
    V = rng.normal(size=(9, columns)).astype(dtype)
    for V in (V, np.asfortranarray(V)):
        fixed = fix_signs(V)
        assert np.array_equal(np.abs(fixed), np.abs(V))
        assert np.all(fixed.max(axis=0) == np.abs(V).max(axis=0))
        assert np.all(np.abs((fixed * V).sum(axis=0)) == pytest.approx((V * V).sum(axis=0)))


@pytest.mark.parametrize("with_axes", [False, True])
def test_what_an_orthonormalisation_did_is_told_by_a_small_matrix(rng, with_axes):
    U = np.linalg.qr(rng.normal(size=(60, 3)))[0]
    A = np.asfortranarray(rng.normal(size=(60, 5)))
    before = A.copy()
    T = orthonormalise_outside(U, A, np.linalg.qr(rng.normal(size=(5, 5)))[0] if with_axes else None)
    assert T is not None
    np.testing.assert_allclose(A, (before - U @ (U.T @ before)) @ T, atol=1e-12)


def test_of_nearly_dependent_columns_no_small_matrix_tells(rng):
    A = np.asfortranarray(rng.normal(size=(60, 5)))
    A[:, 1] = A[:, 0] + 1e-9 * A[:, 1]
    assert orthonormalise_outside(np.zeros((60, 0)), A) is None
    np.testing.assert_allclose(A.T @ A, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_settled_columns_are_orthonormalised_by_one_triangle(rng, dtype):
    U = np.asfortranarray(np.linalg.qr(rng.normal(size=(80, 3)))[0], dtype=dtype)
    A = np.asfortranarray(np.linalg.qr(rng.normal(size=(80, 6)))[0] * np.logspace(3, 0, 6), dtype=dtype)
    expected, before = A.copy(order="F"), A.copy()
    orthonormalise_outside(U, expected)
    T = orthonormalise_settled(U, A)
    assert T is not None
    assert not np.tril(T, -1).any()
    rounding = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(A, expected, atol=rounding)
    np.testing.assert_allclose(A.T @ A, np.eye(6), atol=rounding)
    assert np.abs(U.T @ A).max() < rounding
    np.testing.assert_allclose(A, (before - U @ (U.T @ before)) @ T, atol=rounding)


def test_columns_that_are_not_settled_are_only_projected(rng):
    U, A = np.zeros((60, 0)), np.asfortranarray(rng.normal(size=(60, 5)))
    A[:, 1] = A[:, 0] + 1e-3 * A[:, 1]
    before = A.copy()
    assert orthonormalise_settled(U, A) is None
    np.testing.assert_array_equal(A, before)


def test_columns_that_lie_in_the_unfair_basis_are_never_settled(rng):
    """What rounding leaves of them is orthogonal by chance, and would leave columns that lean on U."""
    U = np.asfortranarray(np.linalg.qr(rng.normal(size=(60, 3)))[0], dtype=np.float32)
    A = np.asfortranarray(U @ np.linalg.qr(rng.normal(size=(3, 2)))[0], dtype=np.float32)
    assert orthonormalise_settled(U, A) is None
    orthonormalise_outside(U, A)
    assert np.abs(U.T @ A).max() < 1e-6


@pytest.mark.parametrize("constant", [False, True])
def test_columns_without_entries_give_the_same_products_whether_or_not_they_are_left_out(
    rng, monkeypatch, constant
):
    X = rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.1)
    X[:, 3] = 0
    if constant:
        X[:, 5] = 2.0  # a well filled column, which is centred as a dense one
    origin, T, A = rng.normal(size=30), rng.normal(size=(4, 40)), rng.normal(size=(3, 30))
    dense = X - origin
    for most_used in (0.0, 2.0):
        monkeypatch.setattr("fairstream.linalg.products.MOST_USED", most_used)
        rows = centred_rows(sp.csr_array(X), origin, None, np.float64)
        assert (3 in rows.columns) == (most_used == 0)
        np.testing.assert_allclose(rows.dot(A), dense @ A.T, atol=1e-12)
        np.testing.assert_allclose(rows.combine(T), T @ dense, atol=1e-12)
        np.testing.assert_allclose(rows.row_squares(), (dense**2).sum(axis=1), atol=1e-12)
        np.testing.assert_allclose(rows.scatter(np.arange(40)), dense.T @ dense, atol=1e-11)


@pytest.mark.parametrize("shape", [(0, 3), (7, 5), (700, 300), (3, 200_000)])
@pytest.mark.parametrize("order", "CF")
def test_squares_are_summed_however_the_rows_lie(rng, shape, order):
    R = np.asarray(rng.normal(size=shape), order=order)
    assert sum_of_squares(R) == pytest.approx((R**2).sum(), rel=1e-12)
    np.testing.assert_allclose(row_squares(R), (R**2).sum(axis=1), rtol=1e-12)
    assert row_squares(R.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", "CF")
def test_thin_products_in_strips_are_the_products(rng, monkeypatch, dtype, order):
    A, B = (np.asarray(rng.normal(size=(1000, w)), dtype=dtype, order=order)[:-3] for w in (7, 5))
    T, out = rng.normal(size=(4, 7)).astype(dtype), np.full((4, 1000), np.nan, dtype=dtype)[:, :-3]
    monkeypatch.setattr(gemm, "_SHORTEST_STRIP", 2)
    found = []
    for multiplications in (35, 35 * 1000, 35 * 60):  # none, and one that leaves a shorter strip at the end
        monkeypatch.setattr(gemm, "_SMALL", multiplications)
        gemm.flat_product(T, A.T, out)
        found.append((gemm.tall_product(A, B), out.copy()))
    close = {"rtol": 1e-4 if dtype == np.float32 else 1e-12, "atol": 1e-4 if dtype == np.float32 else 1e-12}
    for plain, whole, strips in zip(*found, strict=True):
        np.testing.assert_array_equal(plain, whole)
        np.testing.assert_allclose(plain, strips, **close)
    assert (found[0][0] != found[2][0]).any()  # summed in another order: there were strips
    np.testing.assert_allclose(found[0][0], A.T @ B, **close)
    np.testing.assert_allclose(found[0][1], T @ A.T, **close)
