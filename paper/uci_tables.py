"""Render the UCI cells: Markdown with a verdict for every printed cell and its reason, and LaTeX."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from uci_cells import (
    NAMES,
    RESULTS,
    Cell,
    Runs,
    compare,
    failures_of,
    gathered,
    keep,
    runs_of,
    values_of,
)
from uci_verdicts import DIGITS, MARKS, METRICS, Key

TITLES = ("%Var", "MMD²", "kSVM %Acc", "kSVM Δ_DP", "lSVM %Acc", "lSVM Δ_DP", "MLP %Acc", "MLP Δ_DP")
KS = (2, 10)
PREAMBLE = """# The UCI tables, cell by cell

Each cell: paper value → our value, mean(population std) over the splits run, and the difference of the means.
`=` equal to the last printed digit over ten splits, `≈` within tolerance, `~` agrees on fewer than ten
splits, `≠` differs, `!` the paper's cell is invalid, `·` not run, `–` no number; [n] is the reason, below the
table. Classifiers are fitted and scored on the test rows, as in the paper; the honest tables further down fit
on train rows.
"""

LATEX_PREAMBLE = """The UCI tables, cell by cell, written by paper/uci.py; needs booktabs.
Raised in the row "here": = equal to the last printed digit, \\approx within tolerance, \\sim agrees on fewer
than ten splits, \\neq differs, ! the paper's cell is invalid, \\cdot not run; the number is the reason."""
LATEX_MARKS = {
    "equal": "=",
    "within tolerance": r"\approx",
    "agrees on fewer splits": r"\sim",
    "differs": r"\neq",
    "paper cell invalid": "!",
    "no number in the paper": "",
    "not run": r"\cdot",
}


def shown(values: tuple[float, ...], metric: str) -> str:
    return _number(float(np.mean(values)), float(np.std(values)), metric) if values else "–"


def _number(mean: float, std: float, metric: str) -> str:
    digits = DIGITS[metric]
    return f"{mean:.{digits}f}({std:.{digits}f})"


def header(titles: tuple[str, ...], first: str = "method") -> list[str]:
    return [f"| {first} | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]


def printed_table(dataset: str, k: int, compared: dict[Key, Cell]) -> list[str]:
    """The paper's table with our values, and the reasons of all cells that are not equal below it."""
    methods = list(dict.fromkeys(key[2] for key in compared if key[:2] == (dataset, k)))
    reasons: dict[str, int] = {}
    lines = header(TITLES)
    for method in methods:
        texts = [_cell_text(compared[dataset, k, method, metric], metric, reasons) for metric in METRICS]
        lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return [*lines, "", *(f"- [{number}] {reason}." for reason, number in reasons.items())]


def _cell_text(cell: Cell, metric: str, reasons: dict[str, int]) -> str:
    mark = MARKS[cell.judgement.verdict]
    if cell.judgement.reason:
        mark += f" [{_footnote(cell, reasons)}]"
    both = f"{_printed_text(cell, metric)} → {shown(cell.ours, metric)} {_difference(cell, metric)}"
    return f"{both.strip()} {mark.strip()}".strip()


def _printed_text(cell: Cell, metric: str) -> str:
    if cell.printed.mean is None:
        return cell.printed.note or "–"
    return _number(cell.printed.mean, cell.printed.std or 0.0, metric)


def _difference(cell: Cell, metric: str) -> str:
    """Our mean, rounded as the paper's, minus the paper's."""
    if cell.printed.mean is None or cell.mean is None:
        return ""
    digits = DIGITS[metric]
    return f"{round(cell.mean, digits) - cell.printed.mean + 0.0:+.{digits}f}".replace("-", "−")


def _footnote(cell: Cell, reasons: dict[str, int]) -> int:
    """Return the number of the cell's reason, a new one where it is the first to have it."""
    return reasons.setdefault(cell.judgement.reason, len(reasons) + 1)


def measured_table(
    dataset: str, k: int, methods: list[str], runs: Runs, metrics: tuple[str, ...], prefix: str = ""
) -> list[str]:
    """Our values alone, for methods or protocols that the paper does not have."""
    titles = tuple(TITLES[METRICS.index(metric)] for metric in metrics)
    lines = header((*titles, "splits"))
    for method in methods:
        found = runs[dataset, k, method]
        texts = [shown(values_of(found, prefix + metric), metric) for metric in metrics]
        n_splits = max(len(values_of(found, prefix + metric)) for metric in metrics)
        lines.append(f"| {method} | " + " | ".join(texts) + f" | {n_splits} |")
    return lines


def measured_methods(dataset: str, k: int, runs: Runs, metric: str) -> list[str]:
    return [key[2] for key in runs if key[:2] == (dataset, k) and values_of(runs[key], metric)]


def markdown(compared: dict[Key, Cell], runs: Runs) -> str:
    lines = [PREAMBLE]
    for dataset in NAMES.values():
        for k in KS:
            lines += [f"## {dataset}, k = {k}", "", *printed_table(dataset, k, compared), ""]
            printed = {key[2] for key in compared}
            extra = [m for m in measured_methods(dataset, k, runs, "seconds") if m not in printed]
            if extra:
                lines += ["Not in the paper:", "", *measured_table(dataset, k, extra, runs, METRICS), ""]
    lines += ["# The honest evaluation: fitted on train rows, scored on test rows", ""]
    for dataset in NAMES.values():
        for k in KS:
            methods = measured_methods(dataset, k, runs, "honest_acc_mlp")
            if methods:
                table = measured_table(dataset, k, methods, runs, METRICS[2:], "honest_")
                lines += [f"## {dataset}, k = {k}", "", *table, ""]
    lines += [*verdict_table(compared), "", *_failures(runs)]
    return "\n".join(lines) + "\n"


def verdict_table(compared: dict[Key, Cell]) -> list[str]:
    """How many cells of each data set and metric have which verdict."""
    lines = ["# Verdicts", "", *header((*(name for name in MARKS), "cells"), "data set and metric")]
    for dataset in NAMES.values():
        for metric, title in zip(METRICS, TITLES, strict=True):
            kept = [cell for key, cell in compared.items() if (key[0], key[3]) == (dataset, metric)]
            found = [cell.judgement.verdict for cell in kept]
            count = Counter(found)
            cells = " | ".join(str(count[kind]) for kind in MARKS)
            lines.append(f"| {dataset} {title} | {cells} | {len(found)} |")
    total = Counter(cell.judgement.verdict for cell in compared.values())
    lines.append("| all | " + " | ".join(str(total[kind]) for kind in MARKS) + f" | {len(compared)} |")
    return lines


def _failures(runs: Runs) -> list[str]:
    """What was tried and gave no answer."""
    lines = []
    for (dataset, k, method), found in runs.items():
        errors = failures_of(found)
        if errors:
            lines.append(f"- {dataset}, k = {k}, {method}, {len(errors)} split(s): {errors[0]}")
    return ["# Tried without an answer", "", *lines, ""] if lines else []


def latex(compared: dict[Key, Cell]) -> str:
    """One table per data set and k in the paper's layout, every method with three rows."""
    lines = [f"% {line}".rstrip() for line in LATEX_PREAMBLE.splitlines()]
    for dataset in NAMES.values():
        for k in KS:
            reasons: dict[str, int] = {}
            lines += [r"\begin{tabular}{ll" + "r" * len(METRICS) + "}", r"\toprule"]
            lines.append(f"{dataset}, $k={k}$ & & " + " & ".join(map(_escaped, TITLES)) + r" \\ \midrule")
            for method in dict.fromkeys(key[2] for key in compared if key[:2] == (dataset, k)):
                cells = [compared[dataset, k, method, metric] for metric in METRICS]
                lines += _latex_rows(method, cells, reasons)
            lines += [r"\bottomrule", r"\end{tabular}", "", r"\begin{enumerate}"]
            lines += [rf"\item[{number}] {_escaped(reason)}." for reason, number in reasons.items()]
            lines += [r"\end{enumerate}", ""]
    return "\n".join(lines)


def _latex_rows(method: str, cells: list[Cell], reasons: dict[str, int]) -> list[str]:
    by_metric = list(zip(cells, METRICS, strict=True))
    rows = {
        "paper": [_printed_text(cell, metric) for cell, metric in by_metric],
        "here": [shown(cell.ours, metric) for cell, metric in by_metric],
        "difference": [_difference(cell, metric) for cell, metric in by_metric],
    }
    marked = []
    for text, cell in zip(rows["here"], cells, strict=True):
        number = _footnote(cell, reasons) if cell.judgement.reason else ""
        mark = f"{LATEX_MARKS[cell.judgement.verdict]}{number}"
        marked.append(_escaped(text) + (f"$^{{{mark}}}$" if mark else ""))
    lines = []
    for name, texts in rows.items():
        texts = marked if name == "here" else [*map(_escaped, texts)]
        lines.append(f"{method if name == 'paper' else ''} & {name} & " + " & ".join(texts) + r" \\")
    return lines


def _escaped(text: str) -> str:
    """Return text for LaTeX."""
    symbols = {"%": r"\%", "Δ_DP": r"$\Delta_{DP}$", "–": "--", "²": "$^2$", "−": "$-$"}
    for symbol, command in symbols.items():
        text = text.replace(symbol, command)
    return text


def write_tables(folder: Path | None) -> str:
    """Gather the cells, write the tables and return the verdicts as text."""
    cells = gathered(folder)
    keep(cells)
    compared = compare(cells)
    RESULTS.with_suffix(".md").write_text(markdown(compared, runs_of(cells)))
    RESULTS.with_suffix(".tex").write_text(latex(compared))
    return "\n".join(verdict_table(compared))
