"""Peak memory of the fair noisy power method, as a ratio to the formula in `fairstream.power.method`.

    python benchmarks/power_memory.py                      d=40,000, k=64, m=5, blocks of 50,000 rows
    python benchmarks/power_memory.py --block-rows 5000    the same memory, ten times quicker

The documented formula is taken for one binary attribute (M = m, m' = m + 1, G = 2).

The fit runs in a process of its own, in which freed arrays go back to the system at once. Rows are drawn into
one buffer that exists before the measurement starts, so what is measured is what the method itself holds. The
ratio must stay below 1.5 whatever the block size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from fairstream.linalg import blas_threads
from fairstream.linalg.products import slice_rows
from fairstream.power import FairPowerMethod
from fairstream.power.step import FEW_COLUMNS

LIMIT = 1.5
STEPS = (2, 2)


def formula_bytes(d: int, k: int, m: int, dtype: str) -> int:
    unfair, groups, width, threads = m + 1, 2, np.dtype(dtype).itemsize, blas_threads()
    p = max(k, 2 * m)
    rows = slice_rows(d, dtype, p)
    few = p + groups + 1 <= FEW_COLUMNS
    columns = max(6 * m, m + unfair, 2 * k + unfair)
    columns += threads * (rows + 2 * (p + groups + 1)) if few else rows
    return d * (width * columns + 8 * (3 * groups + 5 + (threads + 1) * (groups + 1))) + 64 * k**2


def resident_bytes(field: str) -> int:
    """Read VmRSS or VmHWM (the peak) of this process; getrusage where there is no /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Let the peak start again from what is resident now (Linux)."""
    with suppress(OSError):  # without it the peak includes start-up, which only makes the ratio larger
        Path("/proc/self/clear_refs").write_text("5")


def fit(d: int, k: int, m: int, block_rows: int, dtype: str) -> dict[str, float]:
    """Run STEPS steps of `block_rows` rows each, return the peak above what was there before."""
    rng = np.random.default_rng(0)
    rows = np.empty((512, d), dtype=np.float32)
    scale = (0.05 + 1 / np.sqrt(1 + np.arange(d))).astype(np.float32)

    def stream(method: FairPowerMethod, total: int) -> None:
        for start in range(0, total, len(rows)):
            block = rows[: min(len(rows), total - start)]
            rng.random(out=block, dtype=np.float32)
            sex = rng.integers(2, size=len(block))
            block *= scale
            block[:, :m] *= 1 + sex[:, None]
            method.update(block, {"sex": sex})

    # A small fit first: libraries, BLAS buffers and the row buffer are there before the measurement.
    stream(FairPowerMethod(d, 1, n_unfair=1, step_rows=8, power_steps=1, dtype=dtype), 512)
    forget_peak()
    before = resident_bytes("VmRSS")
    started = time.perf_counter()
    method = FairPowerMethod(
        d, k, n_unfair=m, step_rows=block_rows, power_steps=STEPS, random_state=0, dtype=dtype
    )
    stream(method, block_rows * sum(STEPS))
    assert method.steps_done == STEPS
    return {
        "peak": resident_bytes("VmHWM") - before,
        "seconds": time.perf_counter() - started,
        "leak": float(np.abs(method.unfair_basis @ method.components.T).max()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=40_000)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--unfair", type=int, default=5)
    parser.add_argument("--block-rows", type=int, default=50_000)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(fit(args.features, args.components, args.unfair, args.block_rows, args.dtype)))
        return 0
    finished = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--inside"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"},  # glibc: no freed megabytes kept on the heap
    )
    measured = json.loads(finished.stdout)
    expected = formula_bytes(args.features, args.components, args.unfair, args.dtype)
    ratio = measured["peak"] / expected
    print(f"d={args.features:,} k={args.components} m={args.unfair} {args.dtype}")
    print(f"{STEPS} steps of {args.block_rows:,} rows")
    print(f"formula        {expected / 1e6:8.1f} MB")
    print(f"measured peak  {measured['peak'] / 1e6:8.1f} MB   ratio {ratio:.2f} (limit {LIMIT})")
    print(f"a stored block {args.block_rows * args.features * np.dtype(args.dtype).itemsize / 1e6:8.1f} MB")
    print(f"max |U'V| {measured['leak']:.1e}, {measured['seconds']:.0f} s, rows drawn included")
    return int(ratio >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
