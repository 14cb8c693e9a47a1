"""Work shared out to threads: the same results as on one, and limits that end where they began."""

import threading

import numpy as np
import pytest
from brute_force import largest_sine

from fairstream import FairPowerMethod, FairStreamingPCA, GroupMoments, linalg
from fairstream.moments import rows
from fairstream.power import reading


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


def test_a_gram_matrix_moved_far_is_made_anew(two_threads, monkeypatch):
    """The control: what the test above would see, were the Gram matrix of rows prepared ahead only moved."""
    X = two_levels(1_500, 1_500, 1, 150)

    def moved_however_far(self, origin):
        delta = origin.astype(self.R.dtype) - self.origin
        ones = np.ones(len(self.R), dtype=self.R.dtype)
        cross = np.outer(self.R @ delta, ones)
        self._gram += np.float32(delta @ delta) - cross - cross.T
        self.R -= delta
        self.origin = self.origin + delta

    monkeypatch.setattr(rows.DenseRows, "recentre", moved_however_far)
    monkeypatch.setattr("fairstream.moments.scatter.is_orthonormal", lambda basis: True)
    monkeypatch.setattr("fairstream.moments.scatter.Increment.is_far", lambda self, norms: False)
    moments = GroupMoments(1_500, 48, np.float32).update(X[:1])
    assert basis_error(moments.update(X[1:])) > 1e-2


@pytest.mark.parametrize("k", [3, 150])
def test_a_power_step_is_the_same_on_two_threads(monkeypatch, k):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(900, 300)) * np.linspace(3, 1, 300), rng.integers(0, 2, 900)

    def fitted():
        method = FairPowerMethod(300, k, n_unfair=2, power_steps=(4, 6), random_state=0)
        return method.fit_full(X, sex)

    alone = fitted()
    used = []
    keep = reading.in_threads
    monkeypatch.setattr(linalg, "blas_threads", lambda: 2)
    monkeypatch.setattr(linalg, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(
        reading, "in_threads", lambda work, parts: used.append(len(parts)) or keep(work, parts)
    )
    shared = fitted()
    assert {*used} == {2}
    assert largest_sine(alone.unfair_basis, shared.unfair_basis) < 1e-9
    assert largest_sine(alone.components, shared.components) < 1e-9


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
    with pytest.raises(ZeroDivisionError), linalg.beside(lambda: 1 // 0):
        pass
    assert linalg._one_thread.active == 0
