"""Fits on a file that is much larger than the memory it may use.

    python benchmarks/out_of_core.py [--gigabytes 10] [--folder DIR] [--rank 64] [--csv]

Generates a float32 .npy of 4,096 columns, fits on it in one pass in a process of its own, and reports rows
per second, the share of the time spent reading, and the peak memory above what the interpreter and its
imports take. With `--csv` it is a CSV file of 60 columns, and the moments are exact. The file is deleted
afterwards. Exits with 1 if the peak is not below one gigabyte, of CSV not below 96 megabytes. Set
OPENBLAS_NUM_THREADS=1 where other programs keep the processors busy: threads that wait for each other cost
more than they bring.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES, RANK_OF_SIGNAL, BUDGET = 4_096, 40, 10**9
CSV_FEATURES, CSV_BUDGET = 60, 96 * 10**6


def generate(path: Path, n_rows: int) -> None:
    """Write rows with forty strong directions, one of which gives the group away, block by block."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(FEATURES, RANK_OF_SIGNAL)))[0].T.astype(np.float32)
    directions *= np.linspace(30, 3, RANK_OF_SIGNAL, dtype=np.float32)[:, None]
    # A pool of noise rows is enough: drawing ten gigabytes of normal numbers would take longer than the fit.
    noise = rng.standard_normal((8_192, FEATURES), dtype=np.float32)
    groups = np.lib.format.open_memmap(path.with_name("sex.npy"), "w+", np.int8, (n_rows,))
    with open(path, "wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, FEATURES)}
        np.lib.format.write_array_header_1_0(file, about)
        for start in range(0, n_rows, 4_096):
            n = min(4_096, n_rows - start)
            sex = rng.integers(0, 2, n).astype(np.int8)
            scores = rng.standard_normal((n, RANK_OF_SIGNAL), dtype=np.float32)
            scores[:, 1] += sex
            scores[:, 2] *= 1 + sex
            first = rng.integers(0, len(noise) - n + 1)
            file.write((scores @ directions + noise[first : first + n]).data)
            groups[start : start + n] = sex
        os.fsync(file.fileno())
        # Out of the page cache, so that reading means reading.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    groups.flush()


def generate_csv(path: Path, gigabytes: float) -> int:
    """Write rows of 60 numbers and a group, from a pool of lines; return how many."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(20_000, CSV_FEATURES))
    lines = [
        ",".join([*(f"{value:.6f}" for value in row), "fm"[i % 2]]) + "\n" for i, row in enumerate(numbers)
    ]
    pool = "".join(lines).encode()
    repeats = max(1, int(gigabytes * 1e9 / len(pool)))
    with open(path, "wb") as file:
        file.write((",".join([*(f"x{j}" for j in range(CSV_FEATURES)), "sex"]) + "\n").encode())
        for _ in range(repeats):
            file.write(pool)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return repeats * len(lines)


FIT = r"""
import json, re, sys, time
from pathlib import Path
import numpy as np
import fairstream
from fairstream.streaming.fit import fit_source
from fairstream.data import open_source


class Timed:
    '''A source that knows how long its rows took to arrive.'''

    def __init__(self, source):
        self.source, self.seconds = source, 0.0
        self.n_features, self.feature_names, self.n_rows = source.n_features, None, source.n_rows
        self.block_size = source.block_size

    def __iter__(self):
        blocks = iter(self.source)
        while True:
            started = time.perf_counter()
            block = next(blocks, None)
            self.seconds += time.perf_counter() - started
            if block is None:
                return
            yield block


def memory(field):
    return 1024 * int(re.search(field + r":\s+(\d+)", Path("/proc/self/status").read_text())[1])


data, labels, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
# A first small fit loads and warms up everything that is not the data's: that is the interpreter's share.
rng = np.random.default_rng(0)
warm = open_source(
    rng.normal(size=(64, 32)).astype(np.float32), sensitive_features={"sex": rng.integers(0, 2, 64)}
)
fit_source(warm, n_components=2, solver="sketch", rank=8).components_
if labels == "-":
    small = Path(data).with_name("small.csv")
    with open(data, "rb") as whole:
        small.write_bytes(b"".join(next(whole) for _ in range(400)))
    fit_source(open_source(small, sensitive_features=["sex"]), n_components=2).components_
    small.unlink()
Path("/proc/self/clear_refs").write_text("5")  # the peak so far, of importing, is forgotten
before = memory("VmRSS")
if labels == "-":
    source, choices = Timed(open_source(data, sensitive_features=["sex"])), {"solver": "exact"}
else:
    source = Timed(open_source(data, sensitive_features={"sex": np.load(labels, mmap_mode="r")}))
    choices = {"solver": "sketch", "rank": rank}
started, cpu = time.perf_counter(), time.process_time()
fitted = fit_source(source, n_components=10, n_unfair=2, **choices)
pass_seconds = time.perf_counter() - started
fitted.components_
seconds = time.perf_counter() - started
peak = memory("VmHWM")
print(json.dumps({
    "seconds": seconds,
    "cpu": time.process_time() - cpu,
    "solving": seconds - pass_seconds,
    "reading": source.seconds,
    "rows": fitted.n_samples_seen_,
    "peak": peak - before,
    "interpreter": before,
    "variance": float(fitted.explained_variance_ratio_.sum()),
    "overlap": float(np.abs(fitted.components_ @ fitted.unfair_basis_.T).max()),
}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--csv", action="store_true", help="a CSV file of 60 columns")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the file goes (default: a temporary folder)"
    )
    arguments = parser.parse_args()
    n_rows = int(arguments.gigabytes * 1e9 / (4 * FEATURES)) + 1
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        path = Path(name) / ("X.csv" if arguments.csv else "X.npy")
        started = time.perf_counter()
        if arguments.csv:
            n_rows = generate_csv(path, arguments.gigabytes)
        else:
            generate(path, n_rows)
        size = path.stat().st_size
        took = time.perf_counter() - started
        print(f"generated {size / 1e9:.2f} GB: {n_rows:,} rows in {took:.0f} s")
        labels = "-" if arguments.csv else str(path.with_name("sex.npy"))
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(path), labels, str(arguments.rank)],
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(done.stderr)
        return 1
    figures = json.loads(done.stdout)
    print(
        f"fitted in {figures['seconds']:.1f} s: {figures['rows'] / figures['seconds']:,.0f} rows/s, "
        f"{size / figures['seconds'] / 1e6:,.0f} MB/s, "
        f"{figures['cpu']:.1f} s of processor time, rank {arguments.rank}"
    )
    reading = figures["reading"] / figures["seconds"]
    print(f"  reading {reading:.0%} of the time, solving {figures['solving']:.2f} s")
    print(
        f"  peak memory {figures['peak'] / 1e6:,.0f} MB above the interpreter's "
        f"{figures['interpreter'] / 1e6:,.0f} MB, {figures['peak'] / size:.1%} of the file"
    )
    print(f"  explained variance {figures['variance']:.3f}, largest |V'U| {figures['overlap']:.1e}")
    return 0 if figures["peak"] < (CSV_BUDGET if arguments.csv else BUDGET) else 1


if __name__ == "__main__":
    sys.exit(main())
