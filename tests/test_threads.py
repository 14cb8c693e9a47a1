"""Work shared out to threads: the same results as on one, and limits that end where they began."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from support.brute_force import largest_sine
from threadpoolctl import threadpool_info, threadpool_limits

import fairstream
from fairstream import FairPowerMethod, FairStreamingPCA, GroupMoments
from fairstream.linalg import threads as linalg
from fairstream.power import step


@pytest.fixture
def two_threads(monkeypatch):
    """Share out everything, however small, whatever the machine and its environment say."""
    monkeypatch.setattr(linalg, "blas_threads", lambda: 2)
    monkeypatch.setattr(linalg, "_WORTH_A_THREAD", 1)


def two_levels(n: int, d: int, first: int, jump: float) -> np.ndarray:
    """Return float32 rows of which the first few lie at one level, and all others far from them."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 20)) * np.linspace(10, 1, 20)) @ rng.normal(size=(20, d)) / np.sqrt(d)
    X += 0.3 * rng.normal(size=(n, d))
    X[first:] += jump
    return X.astype(np.float32)


def basis_error(moments: GroupMoments) -> float:
    B = moments._scatter.basis.astype(np.float64)
    return float(np.abs(B @ B.T - np.eye(len(B))).max())


@pytest.mark.parametrize("jump", [20, 100, 1_000, 10_000])
@pytest.mark.parametrize("first", [1, 64])
def test_a_jump_of_the_level_leaves_the_sketch_whole(two_threads, jump, first):
    X = two_levels(1_500, 600, first, jump)
    pca = FairStreamingPCA(5, constraint="none", solver="sketch", rank=48).fit(X)
    assert basis_error(pca.moments_) < 1e-3
    centred = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    kept = np.square(centred @ pca.components_.T.astype(np.float64)).sum() / np.square(centred).sum()
    assert pca.explained_variance_ratio_.sum() == pytest.approx(kept, rel=1e-3)


@pytest.mark.parametrize(("k", "shared_in"), [(3, step), (150, linalg)], ids=["rows", "products"])
def test_a_power_step_is_the_same_on_two_threads(monkeypatch, k, shared_in):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(900, 300)) * np.linspace(3, 1, 300), rng.integers(0, 2, 900)

    def fitted():
        method = FairPowerMethod(300, k, n_unfair=2, power_steps=(4, 6), random_state=0)
        return method.fit_full(X, sex)

    alone = fitted()
    used = []
    keep = shared_in.in_threads
    monkeypatch.setattr(linalg, "blas_threads", lambda: 2)
    monkeypatch.setattr(linalg, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(
        shared_in, "in_threads", lambda work, parts: used.append(len(parts)) or keep(work, parts)
    )
    shared = fitted()
    assert max(used) == 2
    assert largest_sine(alone.unfair_basis.T, shared.unfair_basis.T) < 1e-9
    assert largest_sine(alone.components.T, shared.components.T) < 1e-9


def test_limits_of_two_threads_end_where_they_began():
    before = linalg.blas_threads()
    inside, leave = threading.Event(), threading.Event()

    def second():
        with linalg.small_lapack():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=second)
    with linalg.small_lapack():
        other.start()
        assert inside.wait(10)
        assert linalg.blas_threads() == before  # what there is, not what is held back just now
    leave.set()
    other.join()
    assert linalg._pool_threads() == before
    assert linalg._one_thread.active == 0


def test_an_error_in_a_thread_is_raised(two_threads):
    def fail(part: slice) -> None:
        if part.start:
            raise ValueError("in the second share")

    with pytest.raises(ValueError, match="in the second share"):
        linalg.in_threads(fail, linalg.shares(10, work=10))
    assert linalg._one_thread.active == 0


def test_a_fit_in_one_thread_leaves_limits_to_the_others():
    def blas_threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    stay = threading.Event()

    def fit_and_stay():
        with linalg.small_lapack():
            pass
        fitted.set()
        stay.wait(10)

    fitted = threading.Event()
    other = threading.Thread(target=fit_and_stay)
    other.start()
    assert fitted.wait(10)
    with threadpool_limits(1, user_api="blas"):
        assert blas_threads() == {1}
    stay.set()
    other.join()


def test_a_helper_leaves_the_limit_of_the_thread_it_helps(two_threads):
    """As threadpoolctl before 3.7 would let it: there the last to set the number of threads wins."""
    left = threading.Event()

    def work(part: slice) -> int | None:
        if part.start:
            with linalg.small_lapack():
                pass
            left.set()
            return None
        assert left.wait(10)
        return linalg._pool_threads()

    with linalg.small_lapack():
        seen = linalg.in_threads(work, [slice(0, 1), slice(1, 2)])
    assert seen == [1, None]


def test_the_error_state_of_numpy_goes_with_the_work(two_threads):
    A = np.full((10, 2), 1e30, dtype=np.float32)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        linalg.inner_product(A, A)
    with np.errstate(over="ignore"):
        assert np.isinf(linalg.inner_product(A, A)).all()


def test_parts_of_a_product_take_no_more_than_its_factors(monkeypatch):
    monkeypatch.setattr(linalg, "blas_threads", lambda: 64)
    monkeypatch.setattr(linalg, "_WORTH_A_THREAD", 1)
    used = []
    keep = linalg.in_threads
    monkeypatch.setattr(
        linalg, "in_threads", lambda work, parts: used.append(len(parts)) or keep(work, parts)
    )
    A = np.ones((90, 30))
    np.testing.assert_array_equal(linalg.inner_product(A, A), A.T @ A)
    assert used == [3]


ENDING = """
import threading, time
import numpy as np
from fairstream.linalg import threads as linalg
linalg.blas_threads, linalg._WORTH_A_THREAD = lambda: 2, 1

def late():
    threading.main_thread().join()
    time.sleep(0.2)
    A = np.ones((10, 2))
    assert linalg.inner_product(A, A)[0, 0] == 10
    print("done")

threading.Thread(target=late).start()
"""

FORKING = """
import os, threading
import numpy as np
from fairstream.linalg import threads as linalg
linalg.blas_threads, linalg._WORTH_A_THREAD = lambda: 2, 1
A = np.ones((10, 2))
linalg.inner_product(A, A)  # helpers are there
held, leave = threading.Event(), threading.Event()

def hold():
    with linalg.small_lapack():
        held.set()
        leave.wait(10)

other = threading.Thread(target=hold)
other.start()
held.wait(10)
child = os.fork()
if child == 0:
    ok = linalg._one_thread.active == 0 and linalg.inner_product(A, A)[0, 0] == 10
    os._exit(0 if ok else 1)
leave.set()
other.join()
print("done" if os.waitpid(child, 0)[1] == 0 else "failed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [ENDING, FORKING], ids=["at the end", "after a fork"])
def test_work_is_done_where_there_are_no_helpers(script):
    if script is FORKING and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert answer.stdout.strip() == "done", answer.stderr


DECOMPOSITIONS = {
    np.linalg: ("qr", "svd", "eigh", "eigvalsh", "solve", "cholesky", "lstsq"),
    scipy.linalg: (
        "qr",
        "svd",
        "eigh",
        "cholesky",
        "solve",
        "null_space",
        "subspace_angles",
        "solve_triangular",
    ),
}


@pytest.fixture
def seen_threads(monkeypatch):
    """Collect, for every decomposition of a matrix, its routine and how many threads BLAS had."""
    seen: list[tuple[str, int]] = []

    def watched(name, routine):
        def call(A, *others, **options):
            size = np.size(A)
            if size < linalg.LARGE**2:
                seen.append((name, linalg._pool_threads()))
            return routine(A, *others, **options)

        return call

    for module, names in DECOMPOSITIONS.items():
        for name in names:
            monkeypatch.setattr(module, name, watched(name, getattr(module, name)))
    with threadpool_limits(2, user_api="blas"):
        if linalg._pool_threads() < 2:
            pytest.skip("this BLAS has one thread")
        yield seen


FITS = {
    "exact": {"solver": "exact"},
    "relative": {"solver": "exact", "directions": "relative"},
    "guarded": {"solver": "exact", "guard": 1.0},
    "sketch": {"solver": "sketch", "rank": 24},
    "power": {"solver": "power", "power_steps": 3, "step_rows": 150},
}


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize("fit", FITS)
def test_no_small_decomposition_of_a_fit_runs_on_more_than_one_thread(seen_threads, fit):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(900, 60)) * np.linspace(3, 1, 60), rng.integers(0, 2, 900)
    FairStreamingPCA(5, n_unfair=2, random_state=0, **FITS[fit]).fit(X, sensitive_features=sex)
    assert seen_threads
    assert {name for name, threads in seen_threads if threads > 1} == set()


def test_a_decomposition_without_the_entry_point_is_seen(seen_threads):
    """The control."""
    np.linalg.qr(np.eye(3))
    assert seen_threads == [("qr", 2)]


def test_a_large_decomposition_keeps_the_threads_of_blas(monkeypatch):
    monkeypatch.setattr(linalg, "LARGE", 4)
    with threadpool_limits(2, user_api="blas"):
        before = linalg._pool_threads()
        assert linalg.lapack(lambda A: linalg._pool_threads(), np.eye(4)) == before
        assert linalg.lapack(lambda A: linalg._pool_threads(), np.eye(3)) == 1


def test_every_decomposition_goes_through_the_one_entry_point():
    call = re.compile(
        r"linalg\.(qr|svd|svdvals|eigh|eigvalsh|solve|cholesky|lstsq|pinv|inv|null_space|subspace_angles)\("
    )
    assert call.search("np.linalg.qr(A)")  # the control
    source = Path(fairstream.__file__).parent
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if path.name != "sketch.py"  # holds the limit around several of them at once
        for line in path.read_text().splitlines()
        if call.search(line)
    ]
    assert found == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells where threads may work")
def test_helpers_work_elsewhere_than_the_caller_who_may_then_work_anywhere(two_threads):
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")

    def places(part):
        return os.sched_getaffinity(0)

    with linalg.small_lapack():
        for _ in range(2):  # the first starts the helpers
            caller, helper = linalg.in_threads(places, linalg.shares(2, work=2))
    assert caller
    assert helper
    assert not caller & helper
    assert os.sched_getaffinity(0) == allowed
    with pytest.raises(ZeroDivisionError), linalg.small_lapack():
        linalg.in_threads(lambda part: 1 // (part.stop - 1), linalg.shares(2, work=2))
    assert os.sched_getaffinity(0) == allowed
