"""Ratios as the benchmarks report them: medians and spread beside a target, with the machine they are of."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info


@dataclass(frozen=True)
class Ratio:
    """One line of the answer: a ratio seen several times, and what it should be."""

    name: str
    seen: list[float]
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seen)

    @property
    def target(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}"
        return (
            ""
            if self.least is self.most is None
            else f"{'at least ' if self.most is None else 'at most '}"
            + (f"{self.least if self.most is None else self.most:g}")
        )

    @property
    def verdict(self) -> str:
        if self.least is self.most is None:
            return "for information"
        met = (self.least or -np.inf) <= self.median <= (self.most or np.inf)
        return "met" if met else "not met"


Ratios = list[Ratio]


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if (info.exists())
        else []
    )
    blas = sorted(
        {
            f"{pool['internal_api']} {pool['version']}"
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        }
    )
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "BLAS": ", ".join(blas),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def table(ratios: Ratios) -> str:
    return "\n".join(
        ["| ratio | median | spread | target | | |", "|---|---|---|---|---|---|", *rows_of_table(ratios)]
    )


def rows_of_table(ratios: Ratios) -> list[str]:
    lines = []
    for r in ratios:
        spread = f"{min(r.seen):.2f} to {max(r.seen):.2f}" if len(r.seen) > 1 else "one run"
        lines.append(f"| {r.name} | {r.median:.2f} | {spread} | {r.target} | {r.verdict} | {r.note} |")
    return lines


def save(path: Path, facts: dict[str, Any], ratios: Ratios, *, keep_others: bool) -> None:
    """Write the ratios as JSON; with `keep_others`, beside those of other names that the file already has."""
    kept = json.loads(path.read_text())["ratios"] if keep_others and path.exists() else []
    kept = [old for old in kept if old["name"] not in {r.name for r in ratios}]
    new = [asdict(r) | {"median": r.median, "verdict": r.verdict} | facts for r in ratios]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"ratios": kept + new}, indent=1) + "\n")


def with_load(line: dict[str, Any]) -> dict[str, Any]:
    """Return a stored line, with the load in its note if other work kept the machine busy."""
    load = line["load after"]
    told = "load of the machine"
    if line["clock"] != "wall" or load <= 2 * line["processors"] or told in line["note"]:
        return line
    return line | {"note": f"{line['note']}; {told} {load:.0f}".removeprefix("; ")}


def write_page(page: Path, results: Path, counted: str) -> None:
    """Write the stored ratios as a page of the documentation, with what is counted and on which machine."""
    stored = json.loads(results.read_text())["ratios"]
    fields = ("name", "seen", "least", "most", "note")
    ratios = [Ratio(**{field: line[field] for field in fields}) for line in map(with_load, stored)]
    machines: dict[str, list[str]] = {}
    for line in stored:
        where = "{processor}, {processors} processors; {BLAS}; Python {python}, numpy {numpy}".format(**line)
        machines.setdefault(where, []).append(line["date"])
    lines = [
        "# How near the machine's limit",
        "",
        "<!-- written by benchmarks/limit.py from benchmarks/results/limit.json: do not edit -->",
        "",
        "Every figure is a ratio of two rates of one run; `python benchmarks/limit.py` measures them anew,",
        "and writes this page. Median, spread over repeats, and our target, met or not. Where processor time",
        "or a load is named, other work kept the machine busy. Lines of other dates may differ in version.",
        "",
        table(ratios),
        "",
        *(f"Measured {_span(dates)} on {where}." for where, dates in machines.items()),
        "",
        "## What is counted",
        "",
        counted.strip(),
    ]
    page.write_text("\n".join(lines) + "\n")


def _span(dates: list[str]) -> str:
    first, last = min(dates), max(dates)
    return first if first == last else f"{first} to {last}"
