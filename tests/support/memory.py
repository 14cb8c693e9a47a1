"""How much memory Python and NumPy allocate, and how much Arrow."""

import tracemalloc
from contextlib import contextmanager

# Pools that Arrow allocated from. Its threads free buffers a moment late, into a pool that must still exist.
_used_pools = []


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


def arrow_peak_of(action):
    """Return the peak in bytes that Arrow allocates during a call; what it held before does not count."""
    import pyarrow as pa

    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    _used_pools.append(counted)
    pa.set_memory_pool(counted)
    try:
        action()
    finally:
        pa.set_memory_pool(before)
    return counted.max_memory()
