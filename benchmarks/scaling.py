"""Strong and weak scaling of fit_dask: one and two worker processes, one BLAS thread each.

Strong: the same rows on more workers; the goal is a speed-up of 1.7 with two. Weak: rows in proportion to the
workers; the goal is that the time stays. Every figure is the median of several fits on a warm cluster that
reads a .npy file from the page cache. The load of the machine while it was measured is printed with it: a
second worker needs a second processor that nobody else uses. Where others do use it, the processor time of
the busiest worker still tells how evenly the work was shared, but not what waiting cost.

    python benchmarks/scaling.py [--quick] [--workers 1,2] [--json FILE] [--docs docs/scaling.md]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from fairstream import FairStreamingPCA
from fairstream.distributed import fit_dask

GOAL = 1.7
MARKS = ("<!-- measured by benchmarks/scaling.py -->", "<!-- end of what was measured -->")


@dataclass(frozen=True)
class Workload:
    """What is fitted: rows per worker of the weak series, features, and the solver."""

    name: str
    n_rows: int
    n_features: int
    choices: dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """One line of the answer."""

    workload: str
    series: str
    workers: int
    rows: int
    seconds: float
    slowest: float
    busiest_cpu: float
    worker_peak_mb: float
    summary_mb: float
    load_before: float
    load_after: float


FULL = [
    Workload("exact, d=512", 120_000, 512, {"solver": "exact"}),
    Workload("sketch, d=4096, rank 64", 24_000, 4_096, {"solver": "sketch", "rank": 64}),
]
QUICK = [
    Workload("exact, d=256", 40_000, 256, {"solver": "exact"}),
    Workload("sketch, d=1024, rank 32", 20_000, 1_024, {"solver": "sketch", "rank": 32}),
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


def measure(
    client: Any, workload: Workload, path: Path, n_rows: int, workers: int, series: str, repeats: int
) -> Measured:
    """Fit several times and return the median."""
    groups = {"group": np.arange(n_rows) % 2}
    partition_rows = max(workload.n_rows // 16, 256)  # the same partitions whatever the number of workers
    before, seconds, busiest = os.getloadavg()[0], [], []
    for _ in range(repeats):
        used = client.run(time.process_time)
        start = time.perf_counter()
        pca = FairStreamingPCA(8, constraint="all", **workload.choices)
        fit_dask(pca, path, groups, client=client, partition_rows=partition_rows)
        seconds.append(time.perf_counter() - start)
        now = client.run(time.process_time)
        busiest.append(max(now[worker] - used[worker] for worker in used))
    peaks = client.run(_peak_mb).values()
    return Measured(
        workload.name,
        series,
        workers,
        n_rows,
        round(statistics.median(seconds), 3),
        round(max(seconds), 3),
        round(statistics.median(busiest), 3),
        round(max(peaks), 1),
        round(pca.moments_.nbytes / 2**20, 2),
        round(before, 2),
        round(os.getloadavg()[0], 2),
    )


def _peak_mb() -> float:
    """Return the peak memory of this process, from the kernel's own account of it since it was started."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def run(workloads: list[Workload], workers: list[int], repeats: int) -> list[Measured]:
    """Measure every workload on every number of workers, both series."""
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for workload in workloads:
            for factor in sorted({1, *workers}):
                path = Path(folder) / f"{len(files)}.npy"
                write_rows(path, workload, factor * workload.n_rows)
                files[workload.name, factor] = path
        for number in workers:
            with (
                LocalCluster(
                    n_workers=number, threads_per_worker=1, processes=True, dashboard_address=":0"
                ) as cluster,
                Client(cluster) as client,
            ):
                for workload in workloads:
                    # The first fit imports, maps and connects; it is not part of the answer.
                    measure(client, workload, files[workload.name, 1], workload.n_rows, number, "warm-up", 1)
                    most = max(workers)
                    for series, factor in (("strong", most), ("weak", number)):
                        rows = factor * workload.n_rows
                        path = files[workload.name, factor]
                        line = measure(client, workload, path, rows, number, series, repeats)
                        measured.append(line)
                        print(line, flush=True)
    return measured


def table(measured: list[Measured]) -> str:
    """Return the answer as a Markdown table with speed-ups against one worker."""
    first = {(m.workload, m.series): m for m in measured if m.workers == 1}
    lines = [
        "| workload | series | workers | rows | seconds | against one worker | busiest worker's processor "
        "seconds | against one worker | worker peak MB | summary MB | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for m in sorted(measured, key=lambda m: (m.workload, m.series, m.workers)):
        one = first.get((m.workload, m.series))
        ratio = "" if one is None else f"{one.seconds / m.seconds:.2f}"
        cpu_ratio = "" if one is None else f"{one.busiest_cpu / m.busiest_cpu:.2f}"
        lines.append(
            f"| {m.workload} | {m.series} | {m.workers} | {m.rows:,} | {m.seconds:.2f} | {ratio} | "
            f"{m.busiest_cpu:.2f} | {cpu_ratio} | "
            f"{m.worker_peak_mb:.0f} | {m.summary_mb:.2f} | {m.load_before:.1f} to {m.load_after:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller workloads, fewer repeats")
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes, with commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="page to put the table in, between its two marks")
    arguments = parser.parse_args()
    workers = [int(number) for number in arguments.workers.split(",")]
    measured = run(QUICK if arguments.quick else FULL, workers, 2 if arguments.quick else 3)
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} processors, {platform.machine()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )
    text = f"Measured {machine}.\n\n{table(measured)}\n"
    print(text)
    busiest = max(m.load_before for m in measured if m.workers == 1)
    if busiest > 0.75 * (os.cpu_count() or 1):
        print(f"The load was up to {busiest:.1f} before a fit: these figures are of a busy machine.")
    for m in measured:
        one = next(o for o in measured if (o.workload, o.series, o.workers) == (m.workload, m.series, 1))
        if m.series == "strong" and m.workers == 2 and one.seconds / m.seconds < GOAL:
            print(f"{m.workload}: {one.seconds / m.seconds:.2f} times quicker, the goal is {GOAL}.")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "lines": [asdict(m) for m in measured]}))
    if arguments.docs:
        before, after = (arguments.docs.read_text().split(mark) for mark in MARKS)
        arguments.docs.write_text(f"{before[0]}{MARKS[0]}\n\n{text}\n{MARKS[1]}{after[1]}")


if __name__ == "__main__":
    main()
