"""Time and peak memory of every method on every data set: each fit in a process of its own, on split 0.

    python paper/uci_costs.py                     what is missing, then the table
    python paper/uci_costs.py --datasets german --time-cap 60

Seconds are processor seconds of one thread, so that a busy machine does not count; memory is the largest
resident set during the fit above that of the interpreter with the data loaded. The embedded rows are left in
paper/cache for uci_leakage.py.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from uci_cells import NAMES, gathered
from uci_classify import Scorer
from uci_measure import CELLS, run_cell

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "uci_costs.json"
KS = (2, 10)
Cost = dict[str, Any]  # seconds and megabytes, or error


def run_one(name: str, split: Any, method: str, k: int, time_cap: int) -> Cost:
    """Fit in a process of its own, whose processor time is limited."""
    cell = run_cell(name, 0, Scorer(split), method, k, None, {}, time_cap)
    if "error" in cell:
        return {"error": cell["error"]}
    return {"seconds": cell["cpu_seconds"], "megabytes": cell["peak_mb"]}


def kept() -> dict[str, Cost]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def from_cells() -> dict[str, Cost]:
    """Return the costs that uci.py has measured on split 0: with a time cap its fits are alone as well."""
    costs: dict[str, Cost] = {}
    for (name, split, method, k), values in gathered(CELLS).items():
        key = f"{name} | {method} | {k}"
        if split == 0 and "cpu_seconds" in values:
            costs[key] = {"seconds": values["cpu_seconds"], "megabytes": values["peak_mb"]}
        elif split == 0 and "error" in values:
            costs[key] = {"error": values["error"]}
    return costs


def keep(costs: dict[str, Cost]) -> None:
    draft = RESULTS.with_suffix(".part")
    body = ",\n".join(f"{json.dumps(key)}: {json.dumps(cost)}" for key, cost in sorted(costs.items()))
    draft.write_text("{\n" + body + "\n}\n")
    draft.replace(RESULTS)


def table(costs: dict[str, Cost]) -> list[str]:
    """One row a method, one column a data set and k: seconds, megabytes."""
    from uci_methods import methods

    columns = [(name, k) for name in NAMES for k in KS]
    lines = ["| method | " + " | ".join(f"{NAMES[name]}, k = {k}" for name, k in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for method in dict.fromkeys(_any_m(method) for method in methods("german")):
        texts = []
        for name, k in columns:
            found = [cost for key, cost in costs.items() if _place(key) == (name, method, k)]
            texts.append("; ".join(dict.fromkeys(_cost_text(cost) for cost in found)) or "–")
        lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return lines


def _any_m(method: str) -> str:
    """The printed m differ between data sets: the smaller is one row, the larger another."""
    for small, large in ((15, 50), (2, 5), (10, 25)):
        method = method.replace(f"m={large})", "larger m)").replace(f"m={small})", "smaller m)")
    return method


def _place(key: str) -> tuple[str, str, int]:
    name, method, k = key.split(" | ")
    return name, _any_m(method), int(k)


def _cost_text(cost: Cost) -> str:
    if "error" in cost:
        return str(cost["error"])
    seconds = cost["seconds"]
    return f"{_short(seconds)} s, {cost['megabytes']:.0f} MB"


def _short(seconds: float) -> str:
    if seconds < 0.01:
        return "<0.01"
    return f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(reversed(NAMES)), choices=[*NAMES])
    parser.add_argument("--methods", nargs="+", default=[], help="only these methods (* as in file names)")
    parser.add_argument("--time-cap", type=int, default=900, help="processor seconds a fit may take")
    parser.add_argument("--retry", action="store_true", help="try again what failed or took too long")
    options = parser.parse_args()
    from uci_methods import asked_for, check_patterns, methods

    check_patterns(options.methods)

    keep({**kept(), **from_cells()})
    from threadpoolctl import threadpool_limits

    from fairstream.datasets import paper_split

    threadpool_limits(1)

    warnings.simplefilter("ignore")
    for name in options.datasets:
        split = paper_split(name, 0)
        for method in methods(name):
            for k in KS if asked_for(method, options.methods) else ():
                key = f"{name} | {method} | {k}"
                held = kept().get(key)
                if held is None or (options.retry and "error" in held):
                    cost = run_one(name, split, method, k, options.time_cap)
                    keep({**kept(), key: cost})
                    print(key, cost, flush=True)
    lines = [
        "# Time and peak memory of a fit",
        "",
        "Split 0, one thread, processor seconds; memory above that of the interpreter with the data loaded.",
        "Written by `python paper/uci_costs.py`.",
        "",
        *table(kept()),
    ]
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
