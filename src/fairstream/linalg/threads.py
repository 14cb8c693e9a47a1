"""How many threads work: BLAS's own for large products, one for small LAPACK, ours to share rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import threadpoolctl

from fairstream.linalg.arrays import FloatArray
from fairstream.linalg.gemm import add_gemm, flat_product, tall_product
from fairstream.linalg.processors import Helpers

Answer = TypeVar("Answer")

LARGE = 1_500  # rows and columns from which on the threads of BLAS help LAPACK, on a busy machine too
_WORTH_A_THREAD = 2**19  # numbers to read and write: about half a millisecond
_SQUARED_AT_ONCE = 2**17
_HELD_RESULTS = 500  # up to so many NumPy's matmul keeps the interpreter's lock, however long it takes
_controller: threadpoolctl.ThreadpoolController | None = None
_pool: ThreadPoolExecutor | None = None
_helpers = Helpers()


class _OneThread(threading.local):
    """The limit of BLAS to one thread, which several threads may ask for at once.

    Some builds of BLAS keep the number for the process, some for each thread. So every thread sets it, and
    sets it back to what there was before the first of them: if one ends early, the others lose the limit.
    A helper never sets it back: it has no other use, and works only while the thread it helps has the limit.
    """

    lock = threading.Lock()
    active = 0  # in all threads together
    threads = 1  # that BLAS had before
    before: tuple[tuple[Any, int], ...] = ()  # libraries and their threads

    def __init__(self) -> None:
        self.depth = 0  # in this thread
        self.limit: Any = None
        self.accompanied = False  # by another thread that has work of its own
        self.helps = False

    def enter(self) -> None:
        with self.lock:
            if self.active == 0:
                libraries = [lib for lib in _pools().lib_controllers if lib.user_api == "blas"]
                type(self).before = tuple((lib, lib.num_threads) for lib in libraries)
                type(self).threads = max((number for _, number in self.before), default=1)
            type(self).active += 1
            if self.depth == 0:
                self.limit = _pools().limit(limits=1, user_api="blas")
                if not self.helps:
                    self.limit.__enter__()
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        with self.lock:
            type(self).active -= 1
            if self.depth == 0 and not self.helps:
                self.limit.__exit__(None, None, None)
                for library, number in self.before:
                    library.set_num_threads(number)
                _give_up_control()

    def forget(self) -> None:
        """Start anew in a forked process, whose other threads are gone with what they held."""
        type(self).lock, type(self).active = threading.Lock(), 0
        self.__init__()  # type: ignore[misc]


def _give_up_control() -> None:
    """Let other threads set limits: for threadpoolctl from 3.7 on, who sets one keeps the others from it."""
    give_up = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if give_up is not None:
        give_up()


_one_thread = _OneThread()


@contextmanager
def small_lapack() -> Iterator[None]:
    """Keep LAPACK on one thread: on small matrices more threads only wait for each other."""
    _one_thread.enter()
    try:
        yield
    finally:
        _one_thread.leave()


def lapack(routine: Callable[..., Any], A: FloatArray, *others: Any, **options: Any) -> Any:
    """Call a LAPACK routine of NumPy or SciPy, on one thread unless A is large.

    The only way to LAPACK: beside other work on the machine two threads take up to a hundred times as long on
    a small matrix as one, because each waits at full speed for the other.

    Examples
    --------
    >>> lapack(np.linalg.eigvalsh, np.diag([2.0, 1.0]))
    array([1., 2.])
    """
    with lapack_threads(int(np.sqrt(A.size))):
        return routine(A, *others, **options)


@contextmanager
def lapack_threads(size: int) -> Iterator[None]:
    """Give LAPACK the threads for square matrices of this size; around many calls, to limit BLAS once."""
    if size >= LARGE:
        yield
        return
    with small_lapack():
        yield


def blas_threads() -> int:
    """Return the number of BLAS threads outside `small_lapack`."""
    with _one_thread.lock:
        return _one_thread.threads if _one_thread.active else _pool_threads()


def _pool_threads() -> int:
    return max((pool["num_threads"] for pool in _pools().info() if pool["user_api"] == "blas"), default=1)


def shares(total: int, work: int, most: int | None = None) -> list[slice]:
    """Cut `total` rows or columns into a share per BLAS thread, no more than `most`; one if work is little.

    Examples
    --------
    >>> shares(10, work=100)
    [slice(0, 10, None)]
    """
    threads = max(min(blas_threads(), work // _WORTH_A_THREAD, total, most or total), 1)
    if _one_thread.accompanied:
        threads = 1
    bounds = [total * j // threads for j in range(threads + 1)]
    return [slice(*ends) for ends in pairwise(bounds)]


def in_threads(work: Callable[[slice], Answer], parts: list[slice]) -> list[Answer]:
    """Return work(part) for every part, the first in this thread and each other in one of its own.

    Examples
    --------
    >>> in_threads(lambda part: part.stop, [slice(0, 2), slice(2, 5)])
    [2, 5]
    """
    if len(parts) == 1:
        return [work(parts[0])]
    # Only while BLAS starts no threads, which would be kept where the caller is.
    apart = _helpers.apart(len(parts)) if _one_thread.depth and _pool is not None else nullcontext()
    with apart:
        others = [_submitted(partial(work, part)) for part in parts[1:]]
        with _finished(others), _accompanied():
            first = work(parts[0])
    return [first, *(other.result() for other in others)]


def _submitted(work: Callable[[], Answer]) -> Future[Answer]:
    """Give work to a helper, with NumPy's error state; do it here once the helpers are gone."""
    global _pool
    if _pool is None:  # started once: to start a thread can take as long as its share
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, "fairstream", initializer=_become_helper)
    try:
        return _pool.submit(copy_context().run, work)
    except RuntimeError:  # the interpreter is about to end
        done: Future[Answer] = Future()
        with _accompanied():
            done.set_result(work())
        return done


def _become_helper() -> None:
    _one_thread.accompanied = _one_thread.helps = True  # helpers must not wait for helpers
    _helpers.join()


@contextmanager
def _finished(others: list[Future[Answer]]) -> Iterator[None]:
    """Wait for others in the end, whatever happens: they work on the caller's arrays."""
    try:
        yield
    finally:
        try:
            wait(others)
        except BaseException:  # Ctrl-C
            wait(others)
            raise


def _start_anew() -> None:
    global _pool, _helpers
    _pool, _helpers = None, Helpers()
    _one_thread.forget()


if hasattr(os, "register_at_fork"):  # a forked process has no threads but its first
    os.register_at_fork(after_in_child=_start_anew)


def inner_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return A'B for two tall matrices, every thread with some of the rows.

    Examples
    --------
    >>> inner_product(np.ones((3, 1)), np.arange(6.0).reshape(3, 2))
    array([[6., 9.]])
    """
    with small_lapack():  # threads of our own: those of BLAS wait for each other at every product
        most = len(A) // max(A.shape[1], B.shape[1], 1)  # no more than A or B take, all parts together
        parts = in_threads(
            lambda rows: tall_product(A[rows], B[rows]), shares(len(A), A.size + B.size, max(most, 1))
        )
    return sum(parts[1:], start=parts[0])


def wide_product(T: FloatArray, R: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Return TR for a small T and a wide R, every thread with some of the columns; in `out` if it is given.

    Examples
    --------
    >>> wide_product(np.array([[1.0, 2.0]]), np.arange(6.0).reshape(2, 3))
    array([[ 6.,  9., 12.]])
    """
    answer = np.empty((len(T), R.shape[1]), dtype=np.result_type(T, R)) if out is None else out
    parts = shares(R.shape[1], R.size + answer.size)
    with small_lapack():
        in_threads(lambda columns: flat_product(T, R[:, columns], answer[:, columns]), parts)
    return answer


def row_squares(R: FloatArray) -> FloatArray:
    """Return the sum of squares of every row, threads sharing the rows.

    Examples
    --------
    >>> row_squares(np.array([[3.0, 4.0], [1.0, 1.0]]))
    array([25.,  2.])
    """

    def squares(rows: slice) -> FloatArray:
        part = R[rows]
        if len(part) <= _HELD_RESULTS:
            return np.array([np.dot(row, row) for row in part], dtype=R.dtype)
        return np.matmul(part[:, None, :], part[:, :, None]).ravel()  # a dot product for every row

    return np.concatenate(in_threads(squares, shares(len(R), R.size)))


def sum_of_squares(R: FloatArray) -> float:
    """Return the sum of all squares: those of some numbers at a time in their own precision.

    Examples
    --------
    >>> sum_of_squares(np.array([[3.0, 4.0], [1.0, 1.0]]))
    27.0
    """
    at_once = _SQUARED_AT_ONCE // max(R.shape[1], 1)
    if at_once < 2 or not R.flags.c_contiguous:
        return float(row_squares(R).sum(dtype=np.float64))

    def squares(rows: slice) -> float:
        starts = range(rows.start, rows.stop, at_once)
        pieces = [R[start : min(start + at_once, rows.stop)].ravel() for start in starts]
        return sum(float(np.dot(piece, piece)) for piece in pieces)

    return sum(in_threads(squares, shares(len(R), R.size)))


def add_product(P: FloatArray, A: FloatArray, B: FloatArray, alpha: float = 1.0) -> None:
    """Add alpha A B to P on its own memory, threads sharing its rows. P is Fortran-ordered, B is small.

    Examples
    --------
    >>> P = np.ones((2, 1), order="F")
    >>> add_product(P, np.eye(2, order="F"), np.array([[1.0], [2.0]]))
    >>> P.ravel()
    array([2., 3.])
    """
    right = np.ascontiguousarray(B, dtype=P.dtype)
    with small_lapack():
        in_threads(lambda rows: add_gemm(P[rows], A[rows], right, alpha), shares(len(P), P.size))


@contextmanager
def _accompanied() -> Iterator[None]:
    """Share no work out: the other processors are taken."""
    before, _one_thread.accompanied = _one_thread.accompanied, True
    try:
        yield
    finally:
        _one_thread.accompanied = before


def _pools() -> threadpoolctl.ThreadpoolController:
    """Return the thread pools of this process, found once: looking for them takes milliseconds."""
    global _controller
    if _controller is None:
        _controller = threadpoolctl.ThreadpoolController()
    return _controller
