"""Damages 10,000 model files in fifteen ways and checks that every one is refused, cheaply.

    python benchmarks/corrupt_files.py [--files 10000]

Exits with 1 if a single file loads, raises anything but FairstreamFileError, or costs more than twice its
size in memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np

from fairstream import FairstreamFileError, FairStreamingPCA, GroupMoments, load, solve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.file_damage import DAMAGES, Bomb

SMALL_CHANGE = 32_768  # the interpreter's own: file buffer, messages


def originals(folder: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(500, 64)), rng.choice(["f", "m"], 500)
    exact = GroupMoments(64).update(X, {"sex": sex})
    exact.save(folder / "exact")
    GroupMoments(64, 8, np.float32).update(X, {"sex": sex}).save(folder / "sketch")
    solve(exact, 10, 3).save(folder / "subspace")
    FairStreamingPCA(5).fit(-X, sensitive_features={"sex": sex}).save(folder / "estimator")
    return [(folder / name).read_bytes() for name in ("exact", "sketch", "subspace", "estimator")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    n_files = parser.parse_args().files
    rng = np.random.default_rng(1)
    refused: Counter[str] = Counter()
    failures, most, slowest = [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "damaged"
        whole = originals(Path(name))
        tracemalloc.start()
        for turn in range(n_files):
            damage, which = DAMAGES[turn % len(DAMAGES)], turn // len(DAMAGES) % len(whole)
            data = bytes(damage(whole[which], whole[:which] + whole[which + 1 :], rng))
            path.write_bytes(data)
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
            try:
                load(path)
                failures.append(f"{damage.__name__}: loaded")
            except FairstreamFileError:
                refused[damage.__name__] += 1
            except BaseException as error:
                failures.append(f"{damage.__name__}: {type(error).__name__}: {error}")
            slowest = max(slowest, time.perf_counter() - started)
            spent = tracemalloc.get_traced_memory()[1] - before
            if spent > 2 * len(data) + SMALL_CHANGE:
                failures.append(f"{damage.__name__}: {spent:,} bytes for a file of {len(data):,}")
            if len(data) > SMALL_CHANGE:
                most = max(most, spent / len(data))
    print(f"{sum(refused.values()):,} of {n_files:,} damaged files refused with FairstreamFileError")
    for damage, count in refused.items():
        print(f"  {damage:22}{count:6,}")
    print(f"memory at most {most:.2f} times the file (files above 32 KB)")
    print(f"slowest refusal {slowest * 1e3:.1f} ms")
    print(f"code run from renamed pickles: {'yes' if Bomb.exploded else 'none'}")
    for failure in failures[:20]:
        print("FAILED", failure)
    return 1 if failures or Bomb.exploded else 0


if __name__ == "__main__":
    sys.exit(main())
