"""Runs a checkpointed fit in a process of its own, slowly enough to be killed on the way."""

import os
import signal
import time

import numpy as np
from threadpoolctl import threadpool_limits

from fairstream.data import open_source
from fairstream.streaming.fit import fit_source
from fairstream.streaming.signals import FitInterrupted

ROWS, FEATURES, BLOCK = 3_000, 24, 50
PAUSE = 0.003


def labelled_source(block_size=BLOCK):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(ROWS, FEATURES)) * np.arange(1, FEATURES + 1)
    sex, race = rng.choice(["f", "m"], ROWS), rng.choice(["a", "b", "c"], ROWS)
    X[:, 0] += 3 * (sex == "m")
    return open_source(X, sensitive_features={"sex": sex, "race": race}, block_size=block_size)


class Slow:
    """A source that pauses before every block."""

    def __init__(self, source, pause):
        self._source, self._pause = source, pause
        self.n_features, self.feature_names = source.n_features, source.feature_names
        self.n_rows, self.block_size = source.n_rows, source.block_size

    def __iter__(self):
        for block in self._source:
            time.sleep(self._pause)
            yield block


def parameters(solver):
    power = {"step_rows": (320, 410), "power_steps": (3, 4), "random_state": 0}
    more = {
        "sketch": {"rank": 8},
        "power": power,
        "power in passes": power | {"solver": "power", "step_rows": None},
    }
    return {"n_components": 3, "solver": solver} | more.get(solver, {})


def fit_to_file(folder, output, solver, started, pause=PAUSE, every=100):
    """Fit with checkpoints in `folder`, resuming if an earlier process was killed; save to `output`."""
    with threadpool_limits(1):
        # A pass for each step must have a chance to end before the process is killed.
        source = Slow(labelled_source(), pause / 20 if solver == "power in passes" else pause)
        started.set()
        try:
            estimator = fit_source(source, checkpoint=folder, every=every, resume=True, **parameters(solver))
        except FitInterrupted as stopped:
            os._exit(100 + stopped.signal_number)
        estimator.save(output)


def die_at(folder, output, solver, started, function, call):
    """The same, but kill this very process at the `call`-th call of a function of os."""
    calls, original = 0, getattr(os, function)

    def deadly(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(os, function, deadly)
    fit_to_file(folder, output, solver, started, pause=0)
