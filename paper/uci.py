"""The paper's UCI tables, cell by cell: paper value, our value, difference, verdict.

    python paper/uci.py                              everything that is missing, then the tables
    python paper/uci.py --datasets german --splits 3 --fast --no-classifiers
    python paper/uci.py --tables                     only write the tables from what is there

Every (data set, split, method, k) is kept as one small JSON file under paper/cache/uci, so that a run which
was stopped goes on where it was; paper/results/uci.json gathers them all.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

NOT_MEASURED = {name: {"mmd2"} for name in ("Samadi", "Kleindessner (kernel)", "LEACE then PCA")}
SLOW = ("Olfat", "MbF", "RLACE", "Kleindessner (kernel)", "INLP")
CELLS = Path(__file__).parent / "cache" / "uci"
SAME_FIT = 1e-6  # %Var
OF_ONE_FIT = ("seconds", "cpu_seconds", "peak_mb")
Cell = dict[str, Any]
Wanted = dict[str, list[str]]
DATASETS = ("german", "compas", "adult")


def cell_file(name: str, split: int, method: str, k: int) -> Path:
    return CELLS / name / f"{split}" / f"{method} k={k}.json"


def missing(held: dict | None, needed: set[str], retry: bool) -> bool:
    if held is None or "error" in held:
        return held is None or retry
    return not needed <= held.keys()


def run_split(name: str, index: int, wanted: list[tuple[str, int]], options: argparse.Namespace) -> str:
    """Fill in one split's cells, one method after the other."""
    from uci_cells import gathered
    from uci_classify import Scorer
    from uci_measure import bandwidth_of, run_cell

    from fairstream.datasets import paper_split

    split = paper_split(name, index)
    scorer = Scorer(split)
    bandwidths: dict[int, float] = {}
    known = gathered(CELLS)
    for method, k in wanted:
        path = cell_file(name, index, method, k)
        held = known.get((name, index, method, k), {})
        held.pop("error", None)
        if k not in bandwidths and ((options.mmd and "mmd2" not in held) or method.startswith("MbF")):
            bandwidths[k] = bandwidth_of(split, k)
        fit = partial(run_cell, name, index, scorer, method, k, bandwidths.get(k), time_cap=options.time_cap)
        cell = completed(held, fit, protocols(options))
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(cell, indent=1) + "\n")
        draft.replace(path)
    return f"{name} split {index}: {len(wanted)} cells"


def completed(held: Cell, fit: Callable[[Wanted], Cell], prefixes: list[str]) -> Cell:
    """Return a cell with what it lacked; begun anew where its fit is not the one that it was.

    A fit that fails leaves what was held, to be tried again.
    """
    from uci_classify import SHORT

    every = [*SHORT.values()]
    found = fit({p: [short for short in every if f"{p}acc_{short}" not in held] for p in prefixes})
    if not held or ("error" in found and "seconds" not in found):
        return held or found
    if abs(held.get("var", found.get("var", 0.0)) - found.get("var", 0.0)) > SAME_FIT:
        return fit(dict.fromkeys(prefixes, every))
    return {metric: value for metric, value in held.items() if metric not in OF_ONE_FIT} | found


def protocols(options: argparse.Namespace) -> list[str]:
    """Return how to classify: as the paper (""), honestly ("honest_"), both or not at all."""
    return [""] * options.classifiers + ["honest_"] * (options.classifiers and options.honest)


def jobs(options: argparse.Namespace) -> list[tuple[str, int, list[tuple[str, int]]]]:
    from uci_cells import gathered
    from uci_classify import SHORT
    from uci_methods import asked_for, methods

    known = gathered(CELLS)
    needed = {"seconds"} | ({"mmd2"} if options.mmd else set())
    needed |= {f"{prefix}acc_{short}" for prefix in protocols(options) for short in SHORT.values()}
    found = []
    for name in options.datasets:
        for split in range(options.first_split, options.splits):
            wanted = [
                (method, k)
                for method in methods(name)
                for k in options.k
                if not (options.fast and method.startswith(SLOW))
                and asked_for(method, options.methods)
                and missing(
                    known.get((name, split, method, k)),
                    needed - NOT_MEASURED.get(method, set()),
                    options.retry,
                )
            ]
            if wanted:
                found.append((name, split, wanted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--k", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--methods", nargs="+", default=[], help="only these methods (* as in file names)")
    parser.add_argument("--fast", action="store_true", help="leave out the slow rivals")
    parser.add_argument("--classifiers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--mmd", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--honest", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--time-cap", type=float, help="seconds a fit may take; more is recorded as an error")
    parser.add_argument("--retry", action="store_true", help="try again what failed or took too long")
    parser.add_argument("--tables", action="store_true", help="run nothing, only write the tables")
    parser.add_argument("--no-tables", action="store_true", help="only run: leave the results files alone")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: a process is one thread
    from uci_methods import check_patterns

    check_patterns(options.methods)
    if not options.tables:
        todo = jobs(options)
        print(f"{sum(len(wanted) for *_, wanted in todo)} cells to do in {len(todo)} splits", flush=True)
        with ProcessPoolExecutor(options.workers) as pool:
            running = [pool.submit(run_split, *job, options) for job in todo]
            for count, done in enumerate(as_completed(running), 1):
                print(f"[{count}/{len(todo)}] {done.result()}", flush=True)
    if options.no_tables:
        return
    from uci_tables import write_tables

    print(write_tables(CELLS))


if __name__ == "__main__":
    main()
