"""Fixtures that any test file may ask for."""

import signal

import numpy as np
import pytest

# A job in the background of a shell ignores Ctrl-C, and what it starts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("support.bits", "support.command")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
