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
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

from uci_cells import NAMES, gathered
from uci_measure import CELLS, keep_embedded, peak_bytes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "uci_costs.json"
KS = (2, 10)


def fit_one(name: str, method: str, k: int) -> dict[str, float]:
    """Fit one method in this process, keep its embedded test rows, return what it cost."""
    from uci_methods import methods

    from fairstream.datasets import paper_split

    warnings.simplefilter("ignore")
    split = paper_split(name, 0)
    fit = methods(name)[method]
    before = peak_bytes(reset=True)
    started = time.process_time()
    embedded = fit(split, k, None)
    cost = {"seconds": time.process_time() - started, "megabytes": (peak_bytes() - before) / 1e6}
    keep_embedded(embedded, name, method, k)
    return cost


def run_one(name: str, method: str, k: int, time_cap: int) -> dict[str, object]:
    """Fit in a fresh process whose processor time is limited."""
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, method, str(k)],
        env={**os.environ, **threads},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (time_cap, time_cap + 5)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return {"error": f"more than {time_cap} s"}
    return {"error": done.stderr.strip().splitlines()[-1][:200]}


def kept() -> dict[str, dict[str, object]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def from_cells() -> dict[str, dict[str, object]]:
    """Return the costs that uci.py has measured on split 0: with a time cap its fits are alone as well."""
    costs: dict[str, dict[str, object]] = {}
    for (name, split, method, k), values in gathered(CELLS).items():
        key = f"{name} | {method} | {k}"
        if split == 0 and "cpu_seconds" in values:
            costs[key] = {"seconds": values["cpu_seconds"], "megabytes": values["peak_mb"]}
        elif split == 0 and "error" in values:
            costs[key] = {"error": values["error"]}
    return costs


def keep(costs: dict[str, dict[str, object]]) -> None:
    draft = RESULTS.with_suffix(".part")
    body = ",\n".join(f"{json.dumps(key)}: {json.dumps(cost)}" for key, cost in sorted(costs.items()))
    draft.write_text("{\n" + body + "\n}\n")
    draft.replace(RESULTS)


def table(costs: dict[str, dict[str, object]]) -> list[str]:
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


def _cost_text(cost: dict[str, object]) -> str:
    if "error" in cost:
        return str(cost["error"])
    seconds = float(str(cost["seconds"]))
    return f"{_short(seconds)} s, {float(str(cost['megabytes'])):.0f} MB"


def _short(seconds: float) -> str:
    if seconds < 0.01:
        return "<0.01"
    return f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(reversed(NAMES)), choices=[*NAMES])
    parser.add_argument("--methods", nargs="+", default=[], help="only methods whose names begin so")
    parser.add_argument("--time-cap", type=int, default=900, help="processor seconds a fit may take")
    parser.add_argument("--retry", action="store_true", help="try again what failed or took too long")
    parser.add_argument("--one", nargs=3, metavar=("DATASET", "METHOD", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, method, k = options.one
        print(json.dumps(fit_one(name, method, int(k))))
        return
    from uci_methods import methods

    keep({**kept(), **from_cells()})
    for name in options.datasets:
        for method in methods(name):
            for k in KS if not options.methods or method.startswith(tuple(options.methods)) else ():
                key = f"{name} | {method} | {k}"
                held = kept().get(key)
                if held is None or (options.retry and "error" in held):
                    cost = run_one(name, method, k, options.time_cap)
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
