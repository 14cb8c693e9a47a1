"""Strong and weak scaling of a fit on Dask, beside what the machine allows, and the memory of a worker.

Strong: the same rows on more workers; the goal is a speed-up of 1.7 with two. Weak: rows in proportion to the
workers; the goal is that the time stays. Plain: as many processes without Dask, each with its share of the
rows, and no merging: the speed-up of these is all that the processors and their memory allow, since two of
them may share a core, a cache or a bus. Memory: the peak of one worker while the rows double.

All read one .npy file from the page cache, one BLAS thread per process. The lines are measured in turns,
several rounds of all; how much of the machine others used meanwhile is measured with each, and a figure is
the median of the three quietest rounds. Where others were never quiet, the seconds say nothing; the processor
time of a worker, on average, and the client together is then the better figure. It counts all work of the
scheduler and the client as if no worker could work meanwhile, but no waiting. (On average: the worker that
others leave more time to takes more partitions, which is as it should be.)

    python benchmarks/scaling.py [--quick] [--rounds 5] [--workers 1,2] [--json FILE]
                                 [--docs docs/howto/scaling.md]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client
from threadpoolctl import threadpool_limits

from fairstream import FairStreamingPCA, collect_moments, fit_source
from fairstream.data import open_source
from fairstream.streaming.dask.clients import local_cluster

GOAL = 1.7
QUIETEST = 3
QUIET = 0.05
MARKS = ("<!-- measured by benchmarks/scaling.py -->", "<!-- end of what was measured -->")
PROCESSORS = os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class Workload:
    """What is fitted: rows per worker of the weak series, features, and the solver."""

    name: str
    n_rows: int
    n_features: int
    choices: dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """One fit, or the median of several."""

    workload: str
    series: str
    workers: int
    rows: int
    seconds: float
    worker_cpu: float  # processor seconds of a worker, on average
    busiest_cpu: float  # and of the busiest one
    client_cpu: float  # processor seconds of the client and the scheduler
    others: float  # share of all processors that other programs used meanwhile


@dataclass(frozen=True)
class Memory:
    """The memory of one worker during one fit."""

    workload: str
    rows: int
    data_mb: float
    before_mb: float
    peak_mb: float
    summary_mb: float


FULL = [
    Workload("exact, d=512", 480_000, 512, {"solver": "exact"}),
    Workload("sketch, d=4096, rank 64", 48_000, 4_096, {"solver": "sketch", "rank": 64}),
]
QUICK = [
    Workload("exact, d=256", 200_000, 256, {"solver": "exact"}),
    Workload("sketch, d=1024, rank 32", 40_000, 1_024, {"solver": "sketch", "rank": 32}),
]


def write_rows(path: Path, workload: Workload, n_rows: int) -> None:
    """Write float32 rows whose spectrum falls, a block at a time."""
    rng = np.random.default_rng(0)
    scale = (1 / np.sqrt(np.arange(1, workload.n_features + 1))).astype(np.float32)
    shape = (n_rows, workload.n_features)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, n_rows, 4_096):
        stop = min(start + 4_096, n_rows)
        rows[start:stop] = rng.standard_normal((stop - start, workload.n_features), dtype=np.float32) * scale
    rows.flush()


def first_rows(path: Path, n_rows: int) -> Any:
    """Open the first rows of the file, in two groups."""
    whole: Any = open_source(path)
    labelled: Any = open_source(path, sensitive_features={"group": np.arange(whole.n_rows) % 2})
    return labelled.part(0, n_rows)


# How quiet it is ----------------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Measure the time of what runs within, and the share of the machine that others used meanwhile."""
    answer: dict[str, float] = {}
    busy, own, start = _busy_seconds(), _own_seconds(), time.perf_counter()
    yield answer
    answer["seconds"] = seconds = time.perf_counter() - start
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    answer["others"] = max(0.0, others / (seconds * PROCESSORS))


def _busy_seconds() -> float:
    """Return the seconds that all processors together were not idle, time lost to other guests included."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds() -> float:
    """Return the processor seconds of this process and all that it started."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


# What is measured ---------------------------------------------------------------------------------------


def fit(client: Any, workload: Workload, path: Path, series: str, workers: int, rows: int) -> Measured:
    """Fit once on a cluster."""
    source = first_rows(path, rows)
    used, own = client.run(time.process_time), time.process_time()
    with watched() as measured:
        fitted = fit_source(source, FairStreamingPCA(8, **workload.choices), client=client)
        fitted.n_components_  # noqa: B018  solves, as fit does
    own, now = time.process_time() - own, client.run(time.process_time)
    spent = [now[worker] - used[worker] for worker in used]
    return _measured(workload, series, workers, rows, spent, own, measured)


def _measured(
    workload: Workload,
    series: str,
    workers: int,
    rows: int,
    spent: list[float],
    client_cpu: float,
    watched: dict[str, float],
) -> Measured:
    mean, busiest = statistics.mean(spent), max(spent)
    return Measured(
        workload.name, series, workers, rows, watched["seconds"], mean, busiest, client_cpu, watched["others"]
    )


def plain(workload: Workload, path: Path, processes: int, rows: int) -> Measured:
    """Let so many processes summarise their shares of the rows, without Dask and without merging."""
    start_together = multiprocessing.get_context("spawn")
    barrier, done = start_together.Barrier(processes + 1), start_together.Queue()
    ends = [rows * i // processes for i in range(processes + 1)]
    workers = [
        start_together.Process(
            target=_summarise,
            args=(path, ends[i], ends[i + 1], workload.choices.get("rank"), barrier, done),
        )
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    with watched() as measured:
        used = [done.get() for _ in workers]
    for worker in workers:
        worker.join()
    return _measured(workload, "plain", processes, rows, used, 0.0, measured)


def _summarise(path: Path, start: int, stop: int, rank: int | None, barrier: Any, done: Any) -> None:
    source = first_rows(path, stop).part(start, stop)
    collect_moments(source.part(0, 512), rank=rank)  # the first products are slower
    barrier.wait()
    used = time.process_time()
    collect_moments(source, rank=rank)
    done.put(time.process_time() - used)


def memory(client: Any, workload: Workload, path: Path, rows: int) -> Memory:
    """Fit once and return the peak memory of the only worker."""
    source = first_rows(path, rows)
    client.run(_forget_peak)
    (before,) = client.run(_memory_mb, "VmRSS").values()
    pca = fit_source(source, FairStreamingPCA(8, **workload.choices), client=client)
    (peak,) = client.run(_memory_mb, "VmHWM").values()
    data = rows * workload.n_features * 4 / 2**20
    return Memory(workload.name, rows, data, before, peak, pca.moments_.nbytes / 2**20)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _memory_mb(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


# The run ------------------------------------------------------------------------------------------------


@contextmanager
def cluster_of(workers: int) -> Iterator[Any]:
    """Start so many worker processes."""
    with local_cluster(workers) as cluster, Client(cluster) as client:
        yield client


def run(
    workloads: list[Workload], workers: list[int], rounds: int, report: Callable[[Any], None]
) -> tuple[list[Measured], list[Memory]]:
    """Measure everything, round by round."""
    measured, memories, most = [], [], max(workers)
    with tempfile.TemporaryDirectory() as folder:
        paths = {workload: Path(folder) / f"{i}.npy" for i, workload in enumerate(workloads)}
        for workload, path in paths.items():
            write_rows(path, workload, most * workload.n_rows)
        for _ in range(rounds):
            for workload, path in paths.items():
                for number in workers:
                    measured.append(plain(workload, path, number, most * workload.n_rows))
                    report(measured[-1])
            for number in workers:
                with cluster_of(number) as client:
                    for workload, path in paths.items():
                        # The first fit imports and connects; it is not part of the answer.
                        fit(client, workload, path, "warm-up", number, workload.n_rows // 8)
                        for series, factor in (("strong", most), ("weak", number)):
                            if series == "weak" and number == most:
                                continue  # the same fit as the strong series
                            line = fit(client, workload, path, series, number, factor * workload.n_rows)
                            measured.append(line)
                            report(line)
        with cluster_of(1) as client:
            for workload, path in paths.items() if Path("/proc/self/clear_refs").exists() else ():
                fit(client, workload, path, "warm-up", 1, workload.n_rows // 8)
                for eighths in (1, 2, 4, 8, 16):
                    if eighths <= 8 * most:
                        memories.append(memory(client, workload, path, eighths * workload.n_rows // 8))
                        report(memories[-1])
    return measured, memories


def quietest(measured: list[Measured]) -> list[Measured]:
    """Return one line for each thing measured: the median of the rounds in which others used least."""
    lines: dict[tuple[str, str, int], list[Measured]] = {}
    for one in measured:
        lines.setdefault((one.workload, one.series, one.workers), []).append(one)
    answer = []
    for (workload, series, workers), all_of_them in lines.items():
        best = sorted(all_of_them, key=lambda one: one.others)[:QUIETEST]
        answer.append(
            Measured(
                workload,
                series,
                workers,
                best[0].rows,
                statistics.median(one.seconds for one in best),
                statistics.median(one.worker_cpu for one in best),
                statistics.median(one.busiest_cpu for one in best),
                statistics.median(one.client_cpu for one in best),
                max(one.others for one in best),
            )
        )
    most = max(line.workers for line in answer)
    both = [line for line in answer if line.series == "strong" and line.workers == most]
    return answer + [Measured(**{**asdict(line), "series": "weak"}) for line in both]


# The answer ---------------------------------------------------------------------------------------------


def speed_ups(lines: list[Measured], line: Measured) -> tuple[float, float]:
    """Return how many times faster than one worker it was, by the clock and in processor time."""
    one = next(o for o in lines if (o.workload, o.series, o.workers) == (line.workload, line.series, 1))
    work = [o.worker_cpu + o.client_cpu for o in (one, line)]
    return one.seconds / line.seconds, work[0] / work[1]


def scaling_table(lines: list[Measured]) -> str:
    """Return the answer as a Markdown table with speed-ups against one worker."""
    rows = [
        "| workload | series | workers | rows | seconds | speed-up | processor seconds: a worker "
        "| the busiest | the client | speed-up | used by others |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    order = {"plain": 0, "strong": 1, "weak": 2}
    for m in sorted(lines, key=lambda m: (m.workload, order[m.series], m.workers)):
        by_clock, by_work = speed_ups(lines, m)
        rows.append(
            f"| {m.workload} | {m.series} | {m.workers} | {m.rows:,} | {m.seconds:.2f} | {by_clock:.2f} | "
            f"{m.worker_cpu:.2f} | {m.busiest_cpu:.2f} | {m.client_cpu:.2f} | {by_work:.2f} | "
            f"{m.others:.0%} |"
        )
    return "\n".join(rows)


def memory_table(lines: list[Memory]) -> str:
    """Return the memory of a worker as a Markdown table."""
    rows = [
        "| workload | rows | data MB | worker before, MB | worker's peak, MB | one summary, MB |",
        "|---|---|---|---|---|---|",
    ]
    for m in lines:
        rows.append(
            f"| {m.workload} | {m.rows:,} | {m.data_mb:,.0f} | {m.before_mb:.0f} | {m.peak_mb:.0f} | "
            f"{m.summary_mb:.1f} |"
        )
    return "\n".join(rows)


def verdicts(lines: list[Measured]) -> list[str]:
    """Say for each workload what two workers reached of the goal and of what the machine allows."""
    answer = []
    for workload in dict.fromkeys(m.workload for m in lines):
        of = {m.series: m for m in lines if m.workload == workload and m.workers == 2}
        if not {"plain", "strong"} <= of.keys():
            continue
        clock, work = speed_ups(lines, of["strong"])
        clock_plain, work_plain = speed_ups(lines, of["plain"])
        busy = max(m.others for m in lines if m.workload == workload)
        answer.append(
            f"{workload}: with two workers {clock:.2f} times as fast as with one by the clock (two plain "
            f"processes {clock_plain:.2f}), {work:.2f} times in processor time (plain {work_plain:.2f}); the "
            f"goal is {GOAL}. Others used up to {busy:.0%} of the machine"
            + ("." if busy < QUIET else ", so the clock says little.")
        )
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller workloads")
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="page to put the tables in, between its two marks")
    arguments = parser.parse_args()
    for library in ("OPENBLAS", "OMP", "MKL"):  # for every process that is started from here
        os.environ[f"{library}_NUM_THREADS"] = "1"
    workers = [int(number) for number in arguments.workers.split(",")]
    workloads = QUICK if arguments.quick else FULL
    with threadpool_limits(1):  # this process has its libraries already
        measured, memories = run(workloads, workers, arguments.rounds, lambda line: print(line, flush=True))
    lines = quietest(measured)
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}, {PROCESSORS} processors, {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )
    said = "\n".join(f"- {verdict}" for verdict in verdicts(lines))
    text = f"Measured {machine}.\n\n{scaling_table(lines)}\n\n{said}\n\n{memory_table(memories)}\n"
    print(text)
    if arguments.json:
        found = {"machine": machine, "rounds": [asdict(m) for m in measured]}
        arguments.json.write_text(json.dumps(found | {"memory": [asdict(m) for m in memories]}, indent=1))
    if arguments.docs:
        before, after = (arguments.docs.read_text().split(mark) for mark in MARKS)
        arguments.docs.write_text(f"{before[0]}{MARKS[0]}\n\n{text}\n{MARKS[1]}{after[1]}")


if __name__ == "__main__":
    main()
