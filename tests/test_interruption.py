"""An update that is broken off at any line leaves the old state or the new one, and can be repeated."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import fairstream
from fairstream import FairImagePCA, FairPowerMethod, FairStreamingPCA, GroupMoments, encode_groups
from fairstream.moments.exact import ExactScatter

D = 12
PACKAGE = Path(fairstream.__file__).parent
BUSY = tuple(str(PACKAGE / name) for name in ("moments", "power", "estimators"))


class BrokenOff:
    """Counts the lines that run in the learners' modules, and raises at one of them."""

    def __init__(self, stop=None, error=KeyboardInterrupt):
        self.lines, self.stop, self.error = 0, stop, error

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(BUSY):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.stop:
                raise self.error
        return self

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)


def rows(n, labels, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(labels, n)
    return rng.normal(size=(n, D)) + 3.0 + (sex == "m")[:, None], {"sex": sex}


def state(learner):
    header, arrays = learner.to_state()
    return repr(header), {name: array.tobytes() for name, array in sorted(arrays.items())}


FIRST, MORE = rows(150, ["f", "m"], 0), rows(600, ["f", "m", "x"], 1)
SAME_GROUPS = rows(600, ["f", "m"], 1)


def updated(block, *, sparse=False):
    X = sp.csr_array(block[0]) if sparse else block[0]
    return lambda learner: learner.update(X, block[1])


def fitted_on(block):
    return lambda learner: learner.partial_fit(block[0], sensitive_features=block[1])


def merged_with(rank=None):
    other = GroupMoments(D, rank).update(*MORE)
    return lambda learner: learner.merge(other)


def power(**options):
    sizes = {"step_rows": (100, 120), "power_steps": (4, 3), "random_state": 0}
    return FairPowerMethod(D, 2, **(sizes | options)).update(*FIRST)


def full_pass():
    return FairPowerMethod(D, 2, power_steps=2, random_state=0).update(*FIRST)


def screened_pass():
    pca = FairStreamingPCA(2, solver="power", screen=2, random_state=0)
    groups = encode_groups(FIRST[1], len(FIRST[0]))
    learner = pca.new_learner(FIRST[0], groups)
    learner.update(FIRST[0], groups)
    return learner


def ended(learner):
    learner.end_step()
    return learner


def estimator(kind=FairStreamingPCA, **options):
    return kind(2, **options).partial_fit(FIRST[0], sensitive_features=FIRST[1])


POWER = {"solver": "power", "step_rows": (100, 120), "power_steps": (2, 3), "random_state": 0}
CASES = {
    "exact": (lambda: GroupMoments(D).update(*FIRST), updated(MORE)),
    "exact, sparse": (lambda: GroupMoments(D).update(*FIRST), updated(MORE, sparse=True)),
    "exact, first rows": (lambda: GroupMoments(D), updated(MORE)),
    "sketch": (lambda: GroupMoments(D, 4).update(*FIRST), updated(MORE)),
    "sketch, sparse": (lambda: GroupMoments(D, 4).update(*FIRST), updated(MORE, sparse=True)),
    "sketch, float32": (lambda: GroupMoments(D, 4, np.float32).update(*FIRST), updated(MORE)),
    "exact, merge": (lambda: GroupMoments(D).update(*FIRST), merged_with()),
    "exact, merge into nothing": (lambda: GroupMoments(D), merged_with()),
    "sketch, merge": (lambda: GroupMoments(D, 4).update(*FIRST), merged_with(4)),
    "power": (power, updated(SAME_GROUPS)),
    "power, first rows": (
        lambda: FairPowerMethod(D, 2, step_rows=100, random_state=0),
        updated(SAME_GROUPS),
    ),
    "power, second phase": (lambda: power(power_steps=(1, 3)), updated(SAME_GROUPS)),
    "power, sparse": (power, updated(SAME_GROUPS, sparse=True)),
    "power, whole data": (full_pass, updated(FIRST)),
    "power, end of a step": (full_pass, lambda method: method.end_step()),
    "estimator": (estimator, fitted_on(MORE)),
    "estimator, sketch": (lambda: estimator(solver="sketch", rank=4), fitted_on(MORE)),
    "estimator, power": (lambda: estimator(**POWER), fitted_on(SAME_GROUPS)),
    "screened power, end of a step": (screened_pass, ended),
    "images": (lambda: estimator(FairImagePCA), fitted_on(MORE)),
    "images, power": (lambda: estimator(FairImagePCA, **POWER), fitted_on(SAME_GROUPS)),
}


@pytest.mark.parametrize("case", CASES)
def test_an_update_that_is_broken_off_leaves_the_old_state_or_the_new(monkeypatch, case):
    monkeypatch.setattr(ExactScatter, "slice_rows", lambda self, *_: 150)
    make, change = CASES[case]
    start = make()
    old, new = state(start), copy.deepcopy(start)
    with BrokenOff() as counted:
        change(new)
    expected = state(new)
    stops = {*np.linspace(1, counted.lines, 24).astype(int).tolist()}
    stops |= {*range(max(counted.lines - 12, 1), counted.lines + 1)}  # where the new state is taken over
    kept = 0
    for stop in sorted(stops):
        learner, error = copy.deepcopy(start), (KeyboardInterrupt, MemoryError)[stop % 2]
        with BrokenOff(stop, error), pytest.raises(error):
            change(learner)
        found = state(learner)
        if found != expected:
            assert found == old, f"line {stop} of {counted.lines}"
            kept += 1
            assert state(change(learner)) == expected, f"retry after line {stop} of {counted.lines}"
    assert kept > 10


def test_channels_never_see_different_numbers_of_rows():
    pca = estimator(FairImagePCA)
    bad = MORE[0].copy()
    bad[-1, -1] = np.nan  # in the last channel
    before = state(pca)
    for estimators in (pca.estimators_, pca.estimators_[::-1]):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            pca.partial_fit(bad, sensitive_features=MORE[1])
        assert {one.n_samples_seen_ for one in estimators} == {150}
    assert state(pca) == before


def test_a_cached_result_is_not_older_than_the_rows_after_an_interruption():
    start = estimator()
    start.components_  # solved and kept
    with BrokenOff() as counted:
        copy.deepcopy(start).partial_fit(MORE[0], sensitive_features=MORE[1])
    for stop in range(counted.lines - 12, counted.lines + 1):
        pca = copy.deepcopy(start)
        with BrokenOff(stop), pytest.raises(KeyboardInterrupt):
            pca.partial_fit(MORE[0], sensitive_features=MORE[1])
        assert pca.subspace_.n_rows == pca.n_samples_seen_
