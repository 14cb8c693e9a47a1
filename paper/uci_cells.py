"""The measured cells of the UCI tables: gathered from a run's cache, kept in results/uci.json, compared."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from uci_verdicts import Judgement, Key, Printed, judge

HERE = Path(__file__).parent
REFERENCE = HERE / "reference" / "tables.csv"
RESULTS = HERE / "results" / "uci.json"
NAMES = {"adult": "Adult", "compas": "COMPAS", "german": "German"}
Values = dict[str, Any]  # metric -> number, or "error" -> text
Cells = dict[tuple[str, int, str, int], Values]  # (data set, split, method, k)
Runs = dict[tuple[str, int, str], list[Values]]  # (data set as printed, k, method) -> one entry a split


@dataclass(frozen=True)
class Cell:
    """One printed number beside ours."""

    printed: Printed
    ours: tuple[float, ...]
    judgement: Judgement

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.ours)) if self.ours else None

    @property
    def std(self) -> float | None:
        return float(np.std(self.ours)) if self.ours else None


def gathered(folder: Path | None = None) -> Cells:
    """Return all cells: those in results/uci.json and, newer, those of a run's cache folder."""
    cells: Cells = {}
    if RESULTS.exists():
        for name, splits in json.loads(RESULTS.read_text()).items():
            for split, held in splits.items():
                for key, values in held.items():
                    method, k = key.rsplit(" k=", 1)
                    cells[name, int(split), method, int(k)] = values
    for path in sorted(folder.glob("*/*/*.json")) if folder else ():
        method, k = path.stem.rsplit(" k=", 1)
        cells[path.parent.parent.name, int(path.parent.name), method, int(k)] = json.loads(path.read_text())
    return cells


def keep(cells: Cells) -> None:
    """Write results/uci.json, one line a cell."""
    nested: dict[str, dict[str, dict[str, str]]] = {}
    for (name, split, method, k), values in sorted(cells.items()):
        rounded = {m: float(f"{v:.10g}") if isinstance(v, float) else v for m, v in values.items()}
        nested.setdefault(name, {}).setdefault(str(split), {})[f"{method} k={k}"] = json.dumps(rounded)
    lines = ["{"]
    for i, (name, splits) in enumerate(nested.items()):
        lines.append(f"{json.dumps(name)}: {{")
        for j, (split, held) in enumerate(splits.items()):
            body = ",\n".join(f"  {json.dumps(key)}: {text}" for key, text in held.items())
            lines.append(f' "{split}": {{\n{body}\n }}' + "," * (j < len(splits) - 1))
        lines.append("}" + "," * (i < len(nested) - 1))
    draft = RESULTS.with_suffix(".part")
    draft.write_text("\n".join([*lines, "}"]) + "\n")
    draft.replace(RESULTS)


def runs_of(cells: Cells) -> Runs:
    runs: Runs = {}
    for (name, _, method, k), values in sorted(cells.items()):
        runs.setdefault((NAMES[name], k, method), []).append(values)
    return runs


def values_of(runs: list[Values], metric: str) -> tuple[float, ...]:
    return tuple(run[metric] for run in runs if metric in run)


def failures_of(runs: list[Values]) -> list[str]:
    return [run["error"] for run in runs if "error" in run]


def compare(cells: Cells) -> dict[Key, Cell]:
    """Return every printed cell beside ours."""
    runs, compared = runs_of(cells), {}
    with REFERENCE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"].startswith("paper")]
    for row in rows:
        key = (row["dataset"], int(row["k"]), row["method"], row["metric"])
        printed = Printed(
            float(row["mean"]) if row["mean"] else None,
            float(row["std"]) if row["std"] else None,
            row["note"],
        )
        found = runs.get(key[:3], [])
        ours = values_of(found, row["metric"])
        failure = next(iter(failures_of(found)), "")
        compared[key] = Cell(printed, ours, judge(key, printed, ours, failure))
    return compared
