"""gemm on parts of arrays: every layout gives NumPy's product, and what does not fit is refused."""

import numpy as np
import pytest

from fairstream.linalg import gemm as blas
from fairstream.linalg.gemm import add_gemm, add_syrk, turn_upper

RNG = np.random.default_rng(0)


def laid_out(A, order):
    """Return A inside a larger array, by rows or by columns."""
    room = np.zeros((A.shape[0] + 3, A.shape[1] + 2), dtype=A.dtype, order=order)
    part = room[1 : 1 + A.shape[0], 2:]
    part[:] = A
    return part


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(5, 4, 3), (1, 4, 3), (5, 1, 3), (5, 4, 1), (1, 1, 1), (7, 1, 1), (0, 2, 3)]
)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_every_layout_adds_the_product_and_touches_nothing_else(dtype, shape, orders):
    rows, inner, columns = shape
    A, B = (RNG.normal(size=size).astype(dtype) for size in ((rows, inner), (inner, columns)))
    before = RNG.normal(size=(rows, columns)).astype(dtype)
    C = laid_out(before, "F")
    add_gemm(C, laid_out(A, orders[0]), laid_out(B, orders[1]), alpha=-2.0)
    np.testing.assert_allclose(C, before - 2 * A @ B, rtol=1e-5, atol=1e-5)
    around = C.base
    assert around.sum() == pytest.approx(C.sum(), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("C", "A", "B", "message"),
    [
        (np.zeros((2, 2), order="F"), np.zeros((2, 3)), np.zeros((2, 2)), "do not fit"),
        (np.zeros((2, 2), order="F"), np.zeros((2, 2), np.float32), np.zeros((2, 2)), "one kind of float"),
        (np.zeros((2, 2), int), np.zeros((2, 2), int), np.zeros((2, 2), int), "one kind of float"),
        (np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 3)), "one after the other"),
        (np.zeros((2, 2), order="F"), np.zeros((4, 4))[::2, ::2], np.zeros((2, 2)), "contiguous"),
        (np.zeros((3, 3), order="F"), np.zeros((3, 3))[::-1], np.zeros((3, 3)), "contiguous"),
        (np.zeros((3, 3), order="F"), np.broadcast_to(np.zeros(3), (3, 3)), np.zeros((3, 3)), "contiguous"),
    ],
)
def test_what_blas_would_misread_is_refused(C, A, B, message):
    with pytest.raises(ValueError, match=message):
        add_gemm(C, A, B)


def test_a_read_only_sum_is_refused():
    C = np.zeros((2, 2), order="F")
    C.flags.writeable = False
    with pytest.raises(ValueError, match="C to write on"):
        add_gemm(C, np.ones((2, 2)), np.ones((2, 2)))


def test_a_declaration_we_do_not_know_is_not_called(monkeypatch):
    monkeypatch.setattr(blas, "_routines", {})
    monkeypatch.setattr(blas, "_capsule_name", lambda capsule: b"void (char *, long *)")
    monkeypatch.setattr(blas, "_capsule_pointer", lambda *arguments: pytest.fail("taken all the same"))
    C = np.ones((3, 2), order="F")
    add_gemm(C, np.ones((3, 4)), np.ones((4, 2)), alpha=0.5)
    np.testing.assert_array_equal(C, np.full((3, 2), 3.0))


def test_the_integers_are_those_of_the_declaration():
    import ctypes

    routine = blas._routine("dgemm")
    assert routine is not None
    name = blas._capsule_name(blas.cython_blas.__pyx_capi__["dgemm"])
    assert (routine[1] is ctypes.c_int) == (b" int *" in name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (5, 1), (1, 1), (0, 2), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_with_its_own_transpose_is_added_below_the_diagonal(dtype, shape, order):
    A = RNG.normal(size=shape).astype(dtype)
    before = RNG.normal(size=(shape[0], shape[0])).astype(dtype)
    C = laid_out(before, "F")
    add_syrk(C, laid_out(A, order))
    np.testing.assert_allclose(np.tril(C), np.tril(before + A @ A.T), rtol=1e-5, atol=1e-5)
    around = C.base.copy()
    around[1 : 1 + len(C), 2:] = 0
    assert not around.any()


@pytest.mark.parametrize(
    ("C", "A", "message"),
    [
        (np.zeros((3, 3), order="F"), np.zeros((2, 3)), "do not fit"),
        (np.zeros((2, 2), order="F"), np.zeros((2, 2), np.float32), "one kind of float"),
        (np.zeros((4, 2))[::2], np.zeros((2, 2)), "one after the other"),
    ],
)
def test_what_syrk_would_misread_is_refused(C, A, message):
    with pytest.raises(ValueError, match=message):
        add_syrk(C, A)


def test_without_a_known_declaration_syrk_is_numpys_product(monkeypatch):
    monkeypatch.setattr(blas, "_routines", {})
    monkeypatch.setattr(blas, "_capsule_name", lambda capsule: b"void (char *, long *)")
    C = np.ones((3, 3), order="F")
    add_syrk(C, np.ones((3, 4)))
    np.testing.assert_array_equal(np.tril(C), np.tril(np.full((3, 3), 5.0)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (5, 1), (1, 1), (0, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_triangle_turns_columns_on_their_own_memory(dtype, shape, order):
    T, before = RNG.normal(size=2 * shape[1:]).astype(dtype), RNG.normal(size=shape).astype(dtype)
    A = laid_out(before, "F")
    turn_upper(A, laid_out(T, order))  # what is below the diagonal of T must not count
    np.testing.assert_allclose(A, before @ np.triu(T), rtol=1e-5, atol=1e-5)
    around = A.base.copy()
    around[1 : 1 + len(A), 2:] = 0
    assert not around.any()


@pytest.mark.parametrize(
    ("A", "T", "message"),
    [
        (np.zeros((3, 3), order="F"), np.zeros((2, 2)), "do not fit"),
        (np.zeros((2, 2), order="F"), np.zeros((2, 2), np.float32), "one kind of float"),
        (np.zeros((4, 2))[::2], np.zeros((2, 2)), "one after the other"),
    ],
)
def test_what_trmm_would_misread_is_refused(A, T, message):
    with pytest.raises(ValueError, match=message):
        turn_upper(A, T)


def test_without_a_known_declaration_trmm_is_numpys_product(monkeypatch):
    monkeypatch.setattr(blas, "_routines", {})
    monkeypatch.setattr(blas, "_capsule_name", lambda capsule: b"void (char *, long *)")
    A = np.ones((3, 2), order="F")
    turn_upper(A, np.full((2, 2), 2.0))
    np.testing.assert_array_equal(A, [[2.0, 4.0]] * 3)
