"""Run the fast methods on three splits again and say which cells of the UCI tables have moved.

    python paper/uci_check.py                  about three minutes on two processors; exit 1 where one moved
    python paper/uci_check.py --datasets german

%Var and MMD^2 are compared with the kept cells (paper/results/uci.json), and uci.py compares those with the
paper.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

TOLERANCES = {"var": 1e-4, "mmd2": 1e-5}
LINEAR = ("PCA", "Kleindessner (mean)", "Kleindessner (0.85)", "Kleindessner (0.5)", "Ours")
SPLITS = range(3)


class Compared(NamedTuple):
    """One number of one split, as kept and as it is now."""

    name: str
    split: int
    method: str
    k: int
    metric: str
    kept: float
    now: float

    @property
    def moved(self) -> bool:
        return not abs(self.now - self.kept) <= TOLERANCES[self.metric]


def compare_split(name: str, index: int, ks: tuple[int, ...] = (2, 10)) -> list[Compared]:
    """Fit every fast linear method on one split and compare its %Var and MMD^2 with the kept ones."""
    from uci_cells import gathered
    from uci_classify import Scorer
    from uci_measure import bandwidth_of, measure
    from uci_methods import methods

    from fairstream.datasets import paper_split

    kept, split = gathered(), paper_split(name, index)
    found = []
    for k in ks:
        bandwidth = bandwidth_of(split, k)
        for method, run in methods(name).items():
            if method.startswith(LINEAR):
                embedded = run(split, k, bandwidth)
                now = measure(Scorer(split), embedded, bandwidth)
                held = kept[name, index, method, k]
                found += [Compared(name, index, method, k, m, held[m], now[m]) for m in TOLERANCES]
    return found


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: a process is one thread
    from uci_cells import NAMES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=[*NAMES], choices=[*NAMES])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started, found = time.perf_counter(), []
    with ProcessPoolExecutor(options.workers) as pool:
        running = {
            pool.submit(compare_split, name, index, (k,)): f"{NAMES[name]}, split {index}, k = {k}"
            for name in options.datasets
            for k in (10, 2)
            for index in SPLITS
        }
        for count, done in enumerate(as_completed(running), 1):
            found += done.result()
            print(f"[{count}/{len(running)}] {running[done]}", flush=True)
    moved = [cell for cell in found if cell.moved]
    for cell in sorted(moved):
        print(
            f"moved: {cell.name} split {cell.split}, {cell.method}, k = {cell.k}, {cell.metric}: "
            f"{cell.kept} is now {cell.now}"
        )
    print(f"{len(found)} numbers in {time.perf_counter() - started:.0f} s, {len(moved)} moved")
    sys.exit(bool(moved))


if __name__ == "__main__":
    main()
