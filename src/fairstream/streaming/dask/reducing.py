"""Map over parts and merge the results in a fixed tree, window by window.

The shape of the tree depends on the number of parts only: windows of WINDOW consecutive parts, within each a
tree of fan-in FAN_IN by part index. Which worker computes what, and when, has no influence on the result.
Windows keep the scheduler's graph small, show progress, and give the caller results to put on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from fairstream.data.dask_collections import with_results
from fairstream.streaming.dask.parts import Part, without_inputs
from fairstream.streaming.signals import PendingSignal, Stopped

WINDOW = 16
FAN_IN = 4
_SECONDS_BETWEEN_LOOKS = 0.5

Work = Callable[..., Any]
"""Called on a worker with (part, index, *shared, *inputs)."""
Merge = Callable[[list[Any]], Any]


def reduce_parts(
    client: Any,
    parts: Sequence[Part],
    work: Work,
    merge: Merge,
    shared: tuple[Any, ...] = (),
    first: int = 0,
    pending: PendingSignal | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield (parts done, the merged result of one window) in order, from part `first` on.

    `shared` are arguments that all calls of `work` get, futures or small values. A pending signal ends the
    waiting with `Stopped`.
    """
    token = uuid4().hex[:12]
    waiting: deque[tuple[int, Any]] = deque()
    next_part = first
    while next_part < len(parts) or waiting:
        # Enough windows ahead that no worker waits for the client; their number changes nothing else.
        while next_part < len(parts) and len(waiting) * WINDOW < 2 * _threads(client) + WINDOW:
            stop = min(next_part + WINDOW, len(parts))
            waiting.append((stop, _submit_window(client, parts, next_part, stop, work, merge, shared, token)))
            next_part = stop
        done, root = waiting.popleft()
        result = finished(client, root, pending)
        root.release()
        yield done, result


def finished(client: Any, future: Any, pending: PendingSignal | None = None) -> Any:
    """Wait for a result; raise if the scheduler is lost."""
    while True:
        if pending is not None and pending.number is not None:
            raise Stopped
        if future.done():
            break
        with suppress(TimeoutError):
            future.exception(timeout=_SECONDS_BETWEEN_LOOKS)  # waits as result() does, but fetches nothing
        if client.status != "running":
            raise ConnectionError("the connection to the scheduler is gone")
    return future.result()


def _submit_window(
    client: Any,
    parts: Sequence[Part],
    start: int,
    stop: int,
    work: Work,
    merge: Merge,
    shared: tuple[Any, ...],
    token: str,
) -> Any:
    """Submit leaves and merges in post-order: Dask runs earlier submissions first, so merges do not wait.

    Only the root is kept: everything below it is freed as soon as it has been merged.
    """

    def subtree(low: int, high: int) -> Any:
        if high - low == 1:
            inputs = futures_of(client, parts[low].inputs)
            key = f"fairstream-part-{token}-{low}"
            return client.submit(work, without_inputs(parts[low]), low, *shared, inputs, key=key, pure=False)
        width = _subtree_width(high - low)
        below = [subtree(at, min(at + width, high)) for at in range(low, high, width)]
        return client.submit(merge, below, key=f"fairstream-merge-{token}-{low}-{high}", pure=False)

    return subtree(start, stop)


def _subtree_width(n_parts: int) -> int:
    """Return the largest power of the fan-in below `n_parts`: whole subtrees first, the rest last.

    Examples
    --------
    >>> [_subtree_width(n) for n in (2, 4, 5, 16)]
    [1, 1, 4, 4]
    """
    width = 1
    while width * FAN_IN < n_parts:
        width *= FAN_IN
    return width


def futures_of(client: Any, inputs: Any) -> Any:
    """Return the same with every delayed object in it turned into a future; futures stay."""
    return with_results(inputs, lambda task: client.compute(task) if hasattr(type(task), "compute") else task)


def _threads(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))
