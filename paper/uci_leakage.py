"""How much variance each method gives up for how much leakage: probes on rows that no fit has seen.

    python paper/uci_leakage.py                   what is missing, then table and figures
    python paper/uci_leakage.py --datasets german --tables

Split 0. Every method is fitted on the train rows; the test rows are embedded, and the audit's probes try, by
cross-validation on the test rows, to tell the sensitive group. "recovered" is the share of the test rows'
variance that a linear reconstruction from the embedding gets back: it is defined for every embedding, and a
little above %Var where the embedding is a projection. Embeddings that uci_costs.py has left are reused.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from uci_cells import NAMES, Cells, gathered
from uci_costs import KS, run_one
from uci_measure import CELLS, embedded_file, explained_variance_ratio

from fairstream.auditing import run_probes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "uci_leakage.json"
PROBES = ("linear", "quadratic", "kernel", "trees")
SLOW = ("Olfat", "MbF", "RLACE", "INLP", "Kleindessner (kernel)")  # only where uci_costs.py has fitted them
SAME_VAR = 0.005  # what the tables print
TIME_CAP = 900  # processor seconds of a fit
Leak = dict[str, Any]


def leak_of(name: str, method: str, k: int, split: Any) -> Leak | None:
    """Measure one embedding; None where it would take a long fit first."""
    path = embedded_file(name, method, k)
    if not path.exists():
        if method.startswith(SLOW):
            return None
        run_one(name, split, method, k, TIME_CAP)
    with np.load(path) as held:
        Z, V = held["Z"], held["V"]
    found: Leak = {"columns": Z.shape[1], "recovered": recovered(split.X_test, Z)}
    if V.size:
        found["var"] = 100 * explained_variance_ratio(split.X_test, V.T)
    groups = (split.groups_test == 1).astype(int)
    for result in run_probes(Z, groups, PROBES):
        found[result.probe] = [result.auc.value, result.auc.low, result.auc.high]
    return found


def recovered(X: np.ndarray, Z: np.ndarray) -> float:
    """Return the percentage of the variance of X that least squares recovers from Z."""
    X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
    left = X - Z @ np.linalg.lstsq(Z, X, rcond=1e-10)[0]
    return 100 * (1 - float(np.sum(left**2) / np.sum(X**2)))


def kept() -> dict[str, Leak]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(leaks: dict[str, Leak]) -> None:
    def rounded(leak: Leak) -> Leak:
        return json.loads(json.dumps(leak), parse_float=lambda text: round(float(text), 6))

    lines = (f"{json.dumps(key)}: {json.dumps(rounded(leak))}" for key, leak in sorted(leaks.items()))
    draft = RESULTS.with_suffix(".part")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    draft.replace(RESULTS)


def is_current(key: str, leak: Leak | None, cells: Cells) -> bool:
    """Whether a kept leak is that of the fit in the tables, as far as %Var tells."""
    name, method, k = key.split(" | ")
    cell = cells.get((name, 0, method, int(k)), {})
    if leak is None or "var" not in leak or "var" not in cell:
        return leak is not None
    return abs(leak["var"] - cell["var"]) < SAME_VAR


def strongest(leak: Leak) -> tuple[str, float]:
    """Return the probe that reads most, and its AUC."""
    best = max(PROBES, key=lambda probe: leak[probe][0])
    return best, leak[best][0]


def table(name: str, k: int, leaks: dict[str, Leak]) -> list[str]:
    """One row a method, most variance first."""
    found = [(key.split(" | ")[1], leak) for key, leak in leaks.items() if _place(key) == (name, k)]
    found.sort(key=lambda pair: -pair[1]["recovered"])
    lines = ["| method | columns | %Var | recovered | " + " | ".join(PROBES) + " | strongest |"]
    lines.append("|---" * (5 + len(PROBES)) + "|")
    for method, leak in found:
        variance = f"{leak['var']:.2f}" if "var" in leak else "–"
        aucs = " | ".join("{:.3f} ({:.3f}–{:.3f})".format(*leak[probe]) for probe in PROBES)
        lines.append(
            f"| {method} | {leak['columns']} | {variance} | {leak['recovered']:.2f} | {aucs} "
            f"| {strongest(leak)[0]} |"
        )
    return lines


def _place(key: str) -> tuple[str, int]:
    name, _, k = key.split(" | ")
    return name, int(k)


def draw(name: str, leaks: dict[str, Leak]) -> None:
    """Draw recovered variance against the strongest probe, one panel per k."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fairstream"
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained", sharey=True)
    for axis, k in zip(axes, KS, strict=True):
        found = {key.split(" | ")[1]: leak for key, leak in leaks.items() if _place(key) == (name, k)}
        for place, (method, leak) in enumerate(
            sorted(found.items(), key=lambda item: -strongest(item[1])[1])
        ):
            auc = strongest(leak)[1]
            colour = "C0" if method.startswith("Ours") else "black" if method == "PCA" else "C1"
            axis.plot(leak["recovered"], auc, "o", color=colour, markersize=5)
            # The names stand in a column on the right, in the order of the points.
            height = 1.0 - (place + 0.5) / len(found)
            axis.annotate(
                method,
                (leak["recovered"], auc),
                (1.03, height),
                textcoords="axes fraction",
                fontsize=7,
                color=colour,
                va="center",
                arrowprops={"arrowstyle": "-", "lw": 0.3, "color": "0.6"},
            )
        axis.axhline(0.5, color="0.7", lw=0.8)
        axis.set(xlabel="recovered variance, %", title=f"{NAMES[name]}, k = {k}", ylim=(0.45, 1.02))
    axes[0].set_ylabel("AUC of the strongest probe (0.5: nothing is read)")
    target = RESULTS.with_name(f"uci_leakage_{name}")
    canvas.savefig(target.with_suffix(".png"), dpi=100, metadata={"Software": None})
    canvas.savefig(target.with_suffix(".svg"), metadata={"Date": None})
    plt.close(canvas)


def write(leaks: dict[str, Leak]) -> None:
    lines = [
        "# Variance kept against probe leakage",
        "",
        "Split 0; probes cross-validated on test rows, AUC with its 95 % interval (0.5: nothing is read).",
        "Written by `python paper/uci_leakage.py`.",
        "",
    ]
    for name, title in NAMES.items():
        for k in KS:
            lines += [f"## {title}, k = {k}", "", *table(name, k, leaks), ""]
        lines += [f"![{title}: recovered variance against the strongest probe](uci_leakage_{name}.png)", ""]
        draw(name, leaks)
    RESULTS.with_suffix(".md").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(reversed(NAMES)), choices=[*NAMES])
    parser.add_argument("--k", type=int, nargs="+", default=KS)
    parser.add_argument("--methods", nargs="+", default=[], help="only these methods (* as in file names)")
    parser.add_argument("--tables", action="store_true", help="run nothing, only write table and figures")
    options = parser.parse_args()
    from uci_methods import asked_for, check_patterns, methods

    from fairstream.datasets import paper_split

    check_patterns(options.methods)
    cells = gathered(CELLS)
    warnings.simplefilter("ignore")
    for name in options.datasets if not options.tables else ():
        split = paper_split(name, 0)
        for method in methods(name):
            for k in options.k if asked_for(method, options.methods) else ():
                key = f"{name} | {method} | {k}"
                current = is_current(key, kept().get(key), cells)
                leak = None if current else leak_of(name, method, k, split)
                if leak is not None:
                    keep({**kept(), key: leak})
                    print(key, round(leak["recovered"], 2), strongest(leak), flush=True)
    write(kept())


if __name__ == "__main__":
    main()
