"""BLAS's gemm, syrk and trmm on any part of an array's memory, without the interpreter's lock; thin products.

SciPy's wrappers hold the lock and take whole Fortran-ordered arrays, and NumPy's product cannot add to what
is there: threads that each own some of the rows of a sum could use neither. This calls the same routines by
the addresses that SciPy publishes for compiled code (`scipy.linalg.cython_blas`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

Matrix = NDArray[Any]
_NUMBERS = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}
_ARGUMENTS = {"gemm": 13, "syrk": 10, "trmm": 11}
_routines: dict[str, tuple[Callable[..., None], type] | None] = {}
_LARGEST = 2**31 - 1  # number that fits an integer of most builds
_HELD = 500  # numbers in a product up to which matmul keeps the interpreter's lock
_SMALL = 2**19  # multiplications of a product that OpenBLAS takes as small: fewer than a million
NARROW, _SHORTEST_STRIP = 16, 128  # columns up to which, and rows from which on, strips are quicker


def add_gemm(C: Matrix, A: Matrix, B: Matrix, alpha: float = 1.0) -> None:
    """Add alpha A B to C on C's own memory.

    All three float32, or all float64. The columns of C lie one after the other, with any distance between
    them; of A and B either the rows or the columns do.

    Examples
    --------
    >>> C = np.ones((3, 2), order="F")
    >>> add_gemm(C[1:], np.array([[1.0], [2.0]]), np.array([[10.0, 0.0]]))
    >>> C
    array([[ 1.,  1.],
           [11.,  1.],
           [21.,  1.]])
    """
    rows, inner = A.shape
    columns = B.shape[1]
    if B.shape[0] != inner or C.shape != (rows, columns):
        raise ValueError(f"A is {A.shape}, B {B.shape}, C {C.shape}: they do not fit together")
    _check_kind("C", C, A, B)
    if C.size == 0 or inner == 0:
        return
    letters = _layout(A)[0], _layout(B)[0]
    if not _call("gemm", letters, (rows, columns, inner), alpha, (A, B), C):
        C += C.dtype.type(alpha) * (A @ B)


def tall_product(A: Matrix, B: Matrix) -> Matrix:
    """Return A'B for two tall matrices; if one is narrow, in strips of rows.

    Small products BLAS takes from where the factors stand; before larger ones it copies them, which takes
    several times as long as a product with few columns.

    Examples
    --------
    >>> tall_product(np.ones((3, 1)), np.arange(6.0).reshape(3, 2))
    array([[6., 9.]])
    """
    (rows, p), q = A.shape, B.shape[1]
    strip = _SMALL // max(p * q, 1)
    product: Matrix
    if min(p, q) > NARROW or not _SHORTEST_STRIP <= strip < rows:
        # NumPy's matmul would keep the interpreter's lock if the product is small.
        product = np.dot(A.T, B) if p * q <= _HELD else A.T @ B
        return product
    whole = rows - rows % strip
    strips = A[:whole].reshape(-1, strip, p).transpose(0, 2, 1) @ B[:whole].reshape(-1, strip, q)
    product = strips.sum(axis=0) + A[whole:].T @ B[whole:]
    return product


def flat_product(T: Matrix, R: Matrix, out: Matrix) -> None:
    """Write T R to `out` for a small T and a wide R, in strips of columns as in `tall_product`.

    Examples
    --------
    >>> out = np.zeros((1, 3))
    >>> flat_product(np.array([[1.0, 2.0]]), np.arange(6.0).reshape(2, 3), out)
    >>> out
    array([[ 6.,  9., 12.]])
    """
    (t, b), columns = T.shape, R.shape[1]
    strip = _SMALL // max(t * b, 1)
    whole = columns - columns % strip if _SHORTEST_STRIP <= strip < columns else 0
    if whole:
        strips, written = (M[:, :whole].reshape(len(M), -1, strip).transpose(1, 0, 2) for M in (R, out))
        np.matmul(T, strips, out=written)
    np.matmul(T, R[:, whole:], out=out[:, whole:])


def add_syrk(C: Matrix, A: Matrix) -> None:
    """Add A A' to the lower triangle of C on C's own memory; what is above the diagonal means nothing then.

    Half the work of `add_gemm`, with the same demands on the arrays.

    Examples
    --------
    >>> C = np.ones((2, 2), order="F")
    >>> add_syrk(C, np.array([[1.0], [2.0]]))
    >>> np.tril(C)
    array([[2., 0.],
           [3., 5.]])
    """
    rows, inner = A.shape
    if C.shape != (rows, rows):
        raise ValueError(f"A is {A.shape}, C {C.shape}: they do not fit together")
    _check_kind("C", C, A)
    if A.size and not _call("syrk", (b"L", _layout(A)[0]), (rows, inner), 1.0, (A,), C):
        C += A @ A.T


def turn_upper(A: Matrix, T: Matrix) -> None:
    """Replace A by A T on A's own memory for an upper triangle T; what T holds below it is not looked at.

    Half the work of a product, and no second array. Both float32, or both float64; the columns of A lie one
    after the other, with any distance between them.

    Examples
    --------
    >>> A = np.asfortranarray([[1.0, 1.0], [2.0, 0.0]])
    >>> turn_upper(A, np.array([[2.0, 10.0], [0.0, 1.0]]))
    >>> A
    array([[ 2., 11.],
           [ 4., 20.]])
    """
    rows, columns = A.shape
    if T.shape != (columns, columns):
        raise ValueError(f"A is {A.shape}, T {T.shape}: they do not fit together")
    _check_kind("A", A, T)
    if A.size == 0:
        return
    turned = _layout(T)[0]
    half = b"U" if turned == b"N" else b"L"  # which half it is to BLAS, that sees T transposed
    if not _call("trmm", (b"R", half, turned, b"N"), (rows, columns), 1.0, (T,), A, adds=False):
        A[...] = A @ np.triu(T)


def _check_kind(name: str, target: Matrix, *others: Matrix) -> None:
    """Refuse several kinds of numbers, and a target whose columns do not lie one after the other."""
    kinds = {target.dtype, *(array.dtype for array in others)}
    if not (len(kinds) == 1 and target.dtype in _NUMBERS and target.flags.writeable):
        found = ", ".join(sorted(map(str, kinds)))
        raise ValueError(f"the arrays are {found}: pass one kind of float, {name} to write on")
    if target.size and _layout(target)[0] == b"T":
        raise ValueError(f"{name} has strides {target.strides}: its columns must lie one after the other")


def _call(
    name: str,
    letters: Sequence[bytes],
    sizes: Sequence[int],
    alpha: float,
    inputs: Sequence[Matrix],
    target: Matrix,
    *,
    adds: bool = True,
) -> bool:
    """Call a routine, which `adds` to its target or not; return False if it cannot be called."""
    prefix, number = _NUMBERS[target.dtype]
    found = _routine(prefix + name)
    steps = [_layout(array)[1] for array in (*inputs, target)]
    if found is None or max(*sizes, *steps) > _LARGEST:
        return False
    routine, integer = found
    matrices = [
        (ctypes.c_void_p(array.ctypes.data), ctypes.byref(integer(step)))
        for array, step in zip((*inputs, target), steps, strict=True)
    ]
    beta = [ctypes.byref(number(1))] if adds else []
    routine(
        *letters,
        *(ctypes.byref(integer(size)) for size in sizes),
        ctypes.byref(number(alpha)),
        *chain(*matrices[:-1]),
        *beta,
        *matrices[-1],
    )
    return True


def _layout(A: Matrix) -> tuple[bytes, int]:
    """Return whether BLAS, which thinks in columns, sees A transposed, and how far its lines are apart."""
    rows, columns = A.shape
    size = A.itemsize
    across, along = A.strides
    if (across == size or rows == 1) and (columns == 1 or (along % size == 0 and along >= rows * size)):
        return b"N", max(along // size if columns > 1 else rows, 1)
    if (along == size or columns == 1) and (rows == 1 or (across % size == 0 and across >= columns * size)):
        return b"T", max(across // size if rows > 1 else columns, 1)
    raise ValueError(f"an array of shape {A.shape} has strides {A.strides}: make it contiguous first")


def _routine(name: str) -> tuple[Callable[..., None], type] | None:
    """Return a routine and what it takes for an integer; None if SciPy's declaration is one we do not know.

    The capsule's name is the declaration, such as "void (char *, char *, int *, int *, ...)".
    """
    if name not in _routines:
        capsule = cython_blas.__pyx_capi__[name]
        declared = _capsule_name(capsule)
        integers = {b"int *": ctypes.c_int, b"int64_t *": ctypes.c_int64}
        kinds = [kind.strip() for kind in declared.partition(b"(")[2].rstrip(b")").split(b",")]
        letters = kinds.count(b"char *")
        integer = integers.get(kinds[letters]) if len(kinds) == _ARGUMENTS[name[1:]] else None
        if integer is None:
            _routines[name] = None
        else:
            address = _capsule_pointer(capsule, declared)
            arguments = [ctypes.c_char_p] * letters + [ctypes.c_void_p] * (len(kinds) - letters)
            _routines[name] = ctypes.CFUNCTYPE(None, *arguments)(address), integer  # gives up the lock
    return _routines[name]


_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
