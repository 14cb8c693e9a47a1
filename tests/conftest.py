"""Fixtures that any test file may ask for."""

import signal

import numpy as np
import pytest

from fairstream.subspace import guard

# A job in the background of a shell ignores Ctrl-C, and what it starts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("support.bits", "support.command")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# Guards search with fewer and smaller steps: at full size one takes many seconds. Tests marked `full_guard`
# search as users do; so do processes that a test starts.
QUICK_GUARD = {"STEPS": 160, "ROWS": 1_500}
FULL_GUARD = {name: getattr(guard, name) for name in QUICK_GUARD}


@pytest.fixture(autouse=True, scope="session")
def _quick_guards():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK_GUARD.items():
            patch.setattr(guard, name, value)
        yield


@pytest.fixture(autouse=True)
def _full_guards(request, monkeypatch):
    if "full_guard" in request.keywords:
        for name, value in FULL_GUARD.items():
            monkeypatch.setattr(guard, name, value)


@pytest.fixture
def few_families(monkeypatch):
    """Audits and tuning with two families of attackers: for tests of all but the attackers' strength."""
    from fairstream.auditing.measure import attack

    def quick(*rows, families=attack.FAMILIES, **options):
        few = [family for family in families if family in ("linear", "forest")]
        return strong(*rows, families=few or families, **options)

    strong = attack.attack
    for module in ("measure.leaks", "tuning.judge"):
        monkeypatch.setattr(f"fairstream.auditing.{module}.attack", quick)
