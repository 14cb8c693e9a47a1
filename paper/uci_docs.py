"""Write the numbers of docs/evidence/paper-tables.md, from the results files, between its markers.

python paper/uci_docs.py            after uci.py, uci_costs.py and uci_leakage.py
python paper/uci_docs.py --data     measure the data sets again first (sizes, majority rates)
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uci_costs
import uci_leakage
from scipy.stats import spearmanr
from uci_cells import NAMES, Cell, Runs, compare, gathered, runs_of, values_of
from uci_tables import KS, TITLES, header, shown, verdict_table
from uci_verdicts import DIGITS, METRICS, N_SPLITS, Key

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "evidence" / "paper-tables.md"
DATA = HERE / "results" / "uci_data.json"
DETERMINISTIC = ("PCA", "Kleindessner (mean)", "Kleindessner (0.85)", "Kleindessner (0.5)", "Ours (offline")
CLASSIFIERS = {"ksvm": "kernel SVM", "lsvm": "linear SVM", "mlp": "MLP"}


def measure_data() -> dict[str, dict[str, Any]]:
    """Measure the ten splits of each data set: size, and the accuracy of always saying the majority label."""
    from fairstream.datasets import paper_split

    found = {}
    for name in NAMES:
        rates = []
        for index in range(N_SPLITS):
            split = paper_split(name, index)
            rates.append(100 * max(np.mean(split.y_test == 1), np.mean(split.y_test == 0)))
        found[name] = {
            "n_features": split.X_train.shape[1],
            "n_train": len(split.X_train),
            "n_test": len(split.X_test),
            "majority": [round(float(np.mean(rates)), 4), round(float(np.std(rates)), 4)],
        }
    return found


class Page:
    """The results, and one method for every marked section of the page."""

    def __init__(self) -> None:
        cells = gathered()
        self.compared: dict[Key, Cell] = compare(cells)
        self.runs: Runs = runs_of(cells)
        self.data: dict[str, dict[str, Any]] = json.loads(DATA.read_text())
        self.costs = uci_costs.kept()
        self.leaks = uci_leakage.kept()

    def sections(self) -> dict[str, Callable[[], list[str]]]:
        return {
            "data": self.data_table,
            "verdicts": lambda: verdict_table(self.compared)[2:],
            "equal": self.equal_cells,
            "differs": self.differing_cells,
            "invalid": self.invalid_cells,
            "tables": self.corrected_tables,
            "honest": self.honest_tables,
            "ranking": self.ranking,
            "leakage": self.leakage_tables,
            "costs": lambda: uci_costs.table(self.costs),
        }

    def data_table(self) -> list[str]:
        lines = header(("d", "train rows", "test rows", "majority label on test, %"), "data set")
        for name, title in NAMES.items():
            held = self.data[name]
            majority = "{:.2f}({:.2f})".format(*held["majority"])
            lines.append(
                f"| {title} | {held['n_features']} | {held['n_train']:,} | {held['n_test']:,} | {majority} |"
            )
        return lines

    def equal_cells(self) -> list[str]:
        lines = []
        for metric, title in zip(METRICS, TITLES, strict=True):
            for group, prefixes in (("deterministic", DETERMINISTIC), ("FNPM", ("Ours (FNPM",))):
                found = [
                    cell.judgement.verdict
                    for key, cell in self.compared.items()
                    if key[3] == metric and key[2].startswith(prefixes) and cell.ours
                ]
                equal = found.count("equal")
                close = found.count("within tolerance") + found.count("agrees on fewer splits")
                invalid = found.count("paper cell invalid")
                lines.append(
                    f"| {title} | {group} | {len(found)} | {equal} | {close} | {found.count('differs')} "
                    f"| {invalid} |"
                )
        titles = ("methods", "cells run", "equal", "within tolerance or sampling", "differ", "paper invalid")
        return [*header(titles, "metric"), *lines]

    def differing_cells(self) -> list[str]:
        return self._listed("differs") or ["None."]

    def invalid_cells(self) -> list[str]:
        return self._listed("paper cell invalid")

    def _listed(self, verdict: str) -> list[str]:
        lines = []
        for key, cell in self.compared.items():
            if cell.judgement.verdict == verdict:
                dataset, k, method, metric = key
                title = TITLES[METRICS.index(metric)]
                mean, std, digits = cell.printed.mean, cell.printed.std, DIGITS[metric]
                printed = "–" if mean is None else f"{mean:.{digits}f}({std:.{digits}f})"
                lines.append(
                    f"| {dataset} | {k} | {method} | {title} | {printed} | {shown(cell.ours, metric)} "
                    f"| {cell.judgement.reason} |"
                )
        return lines and [*header(("k", "method", "metric", "printed", "here", "reason"), "data set"), *lines]

    def corrected_tables(self) -> list[str]:
        lines: list[str] = []
        for dataset in NAMES.values():
            for k in KS:
                lines += [f"### {dataset}, k = {k}", "", *header((*TITLES, "splits"))]
                for method in dict.fromkeys(key[2] for key in self.compared if key[:2] == (dataset, k)):
                    found = self.runs.get((dataset, k, method), [])
                    if not found:
                        continue
                    texts = [shown(values_of(found, metric), metric) for metric in METRICS]
                    counts = {len(values_of(found, metric)) for metric in METRICS} - {0}
                    splits = (
                        " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else "0"
                    )
                    lines.append(f"| {method} | " + " | ".join(texts) + f" | {splits} |")
                lines.append("")
        return lines[:-1]

    def _both_protocols(self, dataset: str, k: int, short: str) -> dict[str, tuple[float, float]]:
        """Return accuracy by the paper's and by the honest protocol, on the splits that have both."""
        found = {}
        for (name, width, method), runs in self.runs.items():
            both = [run for run in runs if f"acc_{short}" in run and f"honest_acc_{short}" in run]
            if (name, width) == (dataset, k) and both:
                paper = float(np.mean([run[f"acc_{short}"] for run in both]))
                honest = float(np.mean([run[f"honest_acc_{short}"] for run in both]))
                found[method] = (paper, honest)
        return found

    def honest_tables(self) -> list[str]:
        lines: list[str] = []
        for name, dataset in NAMES.items():
            for k in KS:
                methods = self._both_protocols(dataset, k, "ksvm")
                if not methods:
                    continue
                majority = "{:.2f}({:.2f})".format(*self.data[name]["majority"])
                lines += [f"### {dataset}, k = {k} (majority label: {majority} %)", ""]
                titles = [f"{title}: {part}" for title in CLASSIFIERS.values() for part in ("acc", "Δ_DP")]
                lines += header((*titles, "splits"))
                for method in methods:
                    lines.append(self._honest_row(dataset, k, method))
                lines.append("")
        return lines[:-1]

    def _honest_row(self, dataset: str, k: int, method: str) -> str:
        runs = [run for run in self.runs[dataset, k, method] if "honest_acc_mlp" in run and "acc_mlp" in run]
        texts = []
        for short in CLASSIFIERS:
            for metric in (f"acc_{short}", f"dp_{short}"):
                paper, honest = (np.mean(values_of(runs, prefix + metric)) for prefix in ("", "honest_"))
                texts.append(f"{paper:.{DIGITS[metric]}f} → {honest:.{DIGITS[metric]}f}")
        return f"| {method} | " + " | ".join(texts) + f" | {len(runs)} |"

    def ranking(self) -> list[str]:
        """How the order of the methods by accuracy changes between the protocols."""
        titles = (
            "k",
            "classifier",
            "methods",
            "paper: lowest to highest",
            "honest: lowest to highest",
            "honest within 1 point of the majority",
            "rank correlation",
        )
        lines = header(titles, "data set")
        for name, dataset in NAMES.items():
            for k in KS:
                for short, classifier in CLASSIFIERS.items():
                    both = self._both_protocols(dataset, k, short)
                    if len(both) < 3:
                        continue
                    paper, honest = np.array([*both.values()]).T
                    spread = [f"{values.min():.1f} to {values.max():.1f}" for values in (paper, honest)]
                    close = int(np.sum(np.abs(honest - self.data[name]["majority"][0]) <= 1))
                    constant = np.ptp(paper) == 0 or np.ptp(honest) == 0
                    correlation = "–" if constant else f"{spearmanr(paper, honest).statistic:.2f}"
                    lines.append(
                        f"| {dataset} | {k} | {classifier} | {len(both)} | {spread[0]} | {spread[1]} "
                        f"| {close} | {correlation} |"
                    )
        return lines

    def leakage_tables(self) -> list[str]:
        lines: list[str] = []
        for name, dataset in NAMES.items():
            lines += [f"### {dataset}", ""]
            for k in KS:
                lines += [f"k = {k}:", "", *uci_leakage.table(name, k, self.leaks), ""]
            figure = f"../../paper/results/uci_leakage_{name}.png"
            lines += [f"![{dataset}: recovered variance against the strongest probe]({figure})", ""]
        return lines[:-1]


def filled(text: str, page: Page) -> str:
    """Return the page's text with every marked section written anew."""
    for name, section in page.sections().items():
        start, end = f"<!-- {name}: written by paper/uci_docs.py -->", f"<!-- end of {name} -->"
        if start not in text or end not in text:
            raise ValueError(f"docs/evidence/paper-tables.md has no section {name!r}: add its two markers")
        body = start + "\n\n" + "\n".join(section()) + "\n\n" + end
        text = re.sub(re.escape(start) + ".*?" + re.escape(end), lambda _, body=body: body, text, flags=re.S)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="store_true", help="measure the data sets again")
    if parser.parse_args().data or not DATA.exists():
        DATA.write_text(json.dumps(measure_data(), indent=1) + "\n")
    PAGE.write_text(filled(PAGE.read_text(), Page()))


if __name__ == "__main__":
    main()
