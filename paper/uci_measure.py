"""The eight numbers of the UCI tables for one embedding, by the paper's protocol and by an honest one."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from uci_classify import Scorer
from uci_methods import Embedded, methods, plain_components

from fairstream.auditing.measure.mmd import mmd2
from fairstream.linalg.kernels import median_squared_distance

CACHE = Path(__file__).parent / "cache"
CELLS, EMBEDDED = CACHE / "uci", CACHE / "uci_embedded"
Cell = dict[str, Any]
Wanted = dict[str, list[str]]  # protocol, the paper's ("") or the honest one ("honest_"), -> classifiers


def embedded_file(name: str, method: str, k: int) -> Path:
    return EMBEDDED / f"{name} {method} k={k}.npz"


def keep_embedded(embedded: Embedded, name: str, method: str, k: int) -> None:
    """Leave the embedded test rows of split 0 for uci_leakage.py."""
    EMBEDDED.mkdir(parents=True, exist_ok=True)
    V = np.zeros((0, 0)) if embedded.V is None else embedded.V
    np.savez(embedded_file(name, method, k), Z=embedded.test, V=V)


def peak_bytes(*, reset: bool = False) -> int:
    """Return the largest resident set so far, since the last reset where Linux can."""
    status = Path("/proc/self/status")
    if not status.exists():
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])


def bandwidth_of(split: Any, k: int) -> float:
    """2 sigma^2: the median squared distance of the train rows in plain PCA's embedding."""
    return median_squared_distance(split.X_train @ plain_components(split, k))


def explained_variance_ratio(X: Any, components: Any) -> float:
    """Return the share of X's variance along orthonormal components (the paper's %Var divided by 100)."""
    centred = X - X.mean(axis=0)
    return float(np.sum((centred @ components.T) ** 2) / np.sum(centred**2))


def measure(
    scorer: Scorer, embedded: Embedded, bandwidth: float | None, wanted: Wanted | None = None
) -> Cell:
    """Return the numbers of one embedding: without a bandwidth no MMD^2, and the wanted classifiers only."""
    result: Cell = {}
    split = scorer.split
    if embedded.V is not None:
        result["var"] = 100 * explained_variance_ratio(split.X_test, embedded.V.T)
    if embedded.V is not None and bandwidth is not None:
        result["mmd2"] = mmd2(embedded.test, split.groups_test == 1, bandwidth)
    fitted_on = {"": (embedded.test, split.y_test), "honest_": (embedded.train, split.y_train)}
    for prefix, classifiers in (wanted or {}).items():
        scores = scorer.scores(*fitted_on[prefix], embedded.test, classifiers)
        result |= {prefix + metric: value for metric, value in scores.items()}
    return result


def run_cell(
    name: str,
    index: int,
    scorer: Scorer,
    method: str,
    k: int,
    bandwidth: float | None,
    wanted: Wanted,
    time_cap: float | None,
) -> Cell:
    """Fit and measure one method on one split; a failure, or no answer within the cap, is a result too.

    With a cap the work is done in a process of its own, which can be ended inside a solver and whose cost is
    that of the fit alone.
    """
    steps = _fit_then_measure(name, index, scorer, method, k, bandwidth, wanted, time_cap is not None)
    if time_cap is None:
        return {key: value for step in steps for key, value in step.items()}
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_all, args=(steps, sender, int(time_cap)))
    process.start()
    sender.close()
    cell: Cell = {}
    try:
        while True:
            cell |= receiver.recv()
    except EOFError:
        process.join()
    if not cell:
        ended_by_cap = process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
        reason = f"not finished in {time_cap:.0f} s" if ended_by_cap else f"ended with {process.exitcode}"
        cell = {"error": reason}
    return cell


def _send_all(steps: Iterator[Cell], sender: Any, time_cap: int) -> None:
    """Work in this process, whose processor time is limited until the fit is done."""
    used = int(time.process_time())
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + time_cap, hard))
    for step in steps:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
        sender.send(step)
    sender.close()


def _fit_then_measure(
    name: str,
    index: int,
    scorer: Scorer,
    method: str,
    k: int,
    bandwidth: float | None,
    wanted: Wanted,
    alone: bool,
) -> Iterator[Cell]:
    before = peak_bytes(reset=True) if alone else 0
    started, cpu_started = time.perf_counter(), time.process_time()
    try:
        embedded = methods(name)[method](scorer.split, k, bandwidth)
    except (Exception, MemoryError) as error:
        yield {"error": f"{type(error).__name__}: {error}"[:300]}
        return
    fitted = {"seconds": time.perf_counter() - started}
    if alone:
        fitted["cpu_seconds"] = time.process_time() - cpu_started
        fitted["peak_mb"] = (peak_bytes() - before) / 1e6
    if index == 0:
        keep_embedded(embedded, name, method, k)
    yield fitted
    yield measure(scorer, embedded, bandwidth, wanted)
