"""Classifiers fitted side by side, each on one thread: as quick as can be on a busy machine too."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep small fits on one thread: on a busy machine more threads would mostly wait for each other."""
    with _controller().limit(limits=1):
        yield


def side_by_side(
    jobs: Sequence[tuple[Callable[..., Any], *tuple[Any, ...]]], done: Callable[[], object] | None = None
) -> list[Any]:
    """Call functions with their arguments, one on each processor; return what they return, in order.

    The results do not depend on the number of threads. `done` is called after each of them.

    Examples
    --------
    >>> side_by_side([(max, 1, 2), (min, 1, 2)])
    [2, 1]
    """
    # Warning filters and BLAS limits belong to the whole process: they are set here, outside the threads.
    # scikit-learn's forests reset the filters while they work, so what still comes is recorded and dropped.
    with warnings.catch_warnings(record=True), one_thread():
        warnings.simplefilter("ignore")
        pool = ThreadPoolExecutor(_processors(), initializer=_stay_on_one_thread)
        try:
            futures = [pool.submit(function, *arguments) for function, *arguments in jobs]
            for future in as_completed(futures):
                future.result()
                if done is not None:
                    done()
        finally:
            pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def _stay_on_one_thread() -> None:
    """Limit a thread of the pool for good: OpenMP, unlike BLAS, has a limit for each thread."""
    _controller().limit(limits=1, user_api="openmp")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
