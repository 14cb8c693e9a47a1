"""The Dask client of a fit: which cluster it runs on, and what its failures mean."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairstream.errors import missing_extra

KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": 2**25, "MALLOC_TRIM_THRESHOLD_": 2**27}


def check_installed() -> None:
    """Raise an error that names the extra if Dask is not installed."""
    try:
        import dask.delayed  # noqa: F401
        import distributed  # noqa: F401
    except ImportError:
        raise missing_extra("distributed", "dask", "a fit on Dask") from None


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Yield a client: the one given, one for an address, or one for a number of local worker processes.

    None is the current client or, if there is none, a local cluster. What is opened here is closed here.
    """
    import distributed

    if isinstance(client, distributed.Client):
        if client.asynchronous:
            raise ValueError("client is asynchronous: pass Client(..., asynchronous=False)")
        yield client
        return
    if client is None:
        try:
            current = distributed.default_client()
        except ValueError:
            current = None
        if current is not None:
            yield current
            return
    if isinstance(client, str):
        try:
            opened = distributed.Client(client, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(
                f"no Dask scheduler answers at {client} ({error}): check the address"
            ) from None
        with opened:
            yield opened
        return
    if client is not None and (isinstance(client, bool) or not isinstance(client, int) or client < 1):
        raise ValueError(
            f"client is {client!r}: pass a distributed.Client, an address, or a number of local workers"
        )
    with local_cluster(client) as cluster, distributed.Client(cluster, set_as_default=False) as opened:
        opened.register_worker_callbacks(setup=_leave_interrupts_to_the_client)
        yield opened


def local_cluster(n_workers: int | None = None) -> Any:
    """Return a cluster of worker processes on this machine, one thread each, without profiler or dashboard.

    Dask tells its workers to return every freed array to the system immediately. A fit frees and allocates
    blocks of some megabytes all the time; asking the system for them again would cost more than merging.
    """
    import dask
    import distributed

    environ = "distributed.nanny.pre-spawn-environ"
    settings = {
        environ: {**dask.config.get(environ, {}), **KEEP_FREED_MEMORY},
        "distributed.worker.profile.enabled": False,
    }
    with dask.config.set(settings):
        return distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
        )


def _leave_interrupts_to_the_client() -> None:
    """Ignore Ctrl-C, which a terminal sends to workers on this machine too: the client ends them in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def explained_failures(client: Any, after: str) -> Iterator[None]:
    """Turn what Dask raises if parts of the cluster are lost into one line with a way out."""
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    cancelled = (asyncio.CancelledError, concurrent.futures.CancelledError)
    try:
        yield
    except KilledWorker as error:
        raise RuntimeError(
            f"the worker of one task died again and again {after} ({error.task}): it probably ran out of "
            "memory; give workers more, or cut the data smaller (partition_rows, or more partitions)"
        ) from error
    except (*cancelled, OSError, RuntimeError) as error:
        # Only the scheduler talks to the client; workers' failures arrive as results of their tasks.
        lost = isinstance(error, CommClosedError) or "scheduler" in str(getattr(error, "reason", ""))
        if lost or client.status != "running":
            raise ConnectionError(f"the Dask scheduler was lost {after}: start one and fit again") from error
        if not isinstance(error, cancelled):
            raise
        raise RuntimeError(
            f"blocks of X were lost with the worker that held them {after} ({error}): pass delayed objects "
            "or a path, which can be read again, instead of scattered data"
        ) from error
