"""How much memory Python and NumPy allocate."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def allocations():
    """Trace allocations; call the yielded function for the peak so far, in bytes."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of(action):
    """Return the peak in bytes during a call, and what the call returned."""
    with allocations() as peak:
        result = action()
        return peak(), result
