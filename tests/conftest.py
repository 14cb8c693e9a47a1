"""Fixtures that any test file may ask for."""

import numpy as np
import pytest

pytest.register_assert_rewrite("support.bits", "support.command")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
