"""The choices side by side, at settings that nobody tuned: for the decision chart and the README's picture.

    python benchmarks/choosing.py             cells that are not in results/choosing.json, then the picture
    python benchmarks/choosing.py --picture   the picture alone, from the stored cells

The paper's split 0 of Adult, COMPAS and German credit, k = 10. The attack is an audit's standard one: fitted
on at most 8,000 embedded training rows, scored on the test rows. "Variance" is the share of X's variance that
a linear map recovers of the test rows, so that noise counts as loss. Dither takes a number of its own for
every row.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hiding import recovered
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import FairStreamingPCA
from fairstream.auditing.measure.attack import attack
from fairstream.datasets import paper_split
from fairstream.files.atomic import atomic_file

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "choosing.json"
TABLE = HERE / "results" / "choosing.md"
PICTURE = HERE.parent / "docs" / "_static" / "fair-against-plain.svg"
K = 10
KEY = secrets.token_bytes(32)
GUARD: dict[str, Any] = {"constraint": "none", "guard": 1.0}
CHOICES: dict[str, tuple[dict[str, Any], float]] = {
    "plain PCA": ({"constraint": "none"}, 0.0),
    "means": ({"constraint": "mean"}, 0.0),
    "means, m = 5": ({"n_unfair": 5}, 0.0),
    "means, m = 15, relative": ({"n_unfair": 15, "directions": "relative"}, 0.0),
    "means, 10 columns screened": ({"constraint": "mean", "screen": 10}, 0.0),
    "guard": (GUARD, 0.0),
    "guard, dither 0.3": (GUARD, 0.3),
}
TITLES = {"adult": "Adult: sex", "compas": "COMPAS: race", "german": "German credit: age"}


def measured(split: Any, options: dict[str, Any], dither: float) -> dict[str, float | str]:
    """Return what one choice keeps and gives away on the test rows of a split."""
    model = FairStreamingPCA(K, **options).fit(split.X_train, sensitive_features=split.groups_train)
    numbers = np.arange(len(split.X_train) + len(split.X_test))
    of_train, of_test = numbers[: len(split.X_train)], numbers[len(split.X_train) :]

    def embedded(X: Any, ids: Any) -> Any:
        noise = {"dither": dither, "key": KEY, "ids": ids} if dither else {}
        return np.asarray(model.subspace_.embed(X, **noise), dtype=float)

    Z, Z_test = embedded(split.X_train, of_train), embedded(split.X_test, of_test)
    found = attack(Z_test, split.groups_test, fit=(Z, split.groups_train), strength="standard", seed=0)
    task = HistGradientBoostingClassifier(random_state=0).fit(Z, split.y_train)
    return {
        "auc": round(found.strongest.auc.value, 4),
        "low": round(found.strongest.auc.low, 4),
        "high": round(found.strongest.auc.high, 4),
        "attacker": found.strongest.name,
        "variance": round(recovered(Z, split.X_train, Z_test, split.X_test), 4),
        "target": round(float(roc_auc_score(split.y_test, task.predict_proba(Z_test)[:, 1])), 4),
    }


def table(cells: dict[str, Any]) -> str:
    """Return Markdown: a row for each data set and choice."""
    lines = [
        "| data | choice | attacker's AUC | variance kept, of plain PCA's | AUC of the target |",
        "|---|---|---|---|---|",
    ]
    for data, choice in ((data, choice) for data in TITLES for choice in CHOICES):
        cell = cells[f"{data}|{choice}"]
        share = cell["variance"] / cells[f"{data}|plain PCA"]["variance"]
        lines.append(
            f"| {TITLES[data]} | {choice} | {cell['auc']:.2f} | {share:.0%} | {cell['target']:.2f} |"
        )
    return "\n".join(lines)


def draw(cells: dict[str, Any]) -> None:
    """Draw what leaks and what it costs on Adult; readable on light and on dark ground."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "fairstream", "svg.fonttype": "path", "font.size": 10})
    import matplotlib.pyplot as plt

    shown = {choice: cells[f"adult|{choice}"] for choice in CHOICES}
    plain = shown["plain PCA"]
    figure, (leak, keep) = plt.subplots(1, 2, figsize=(8.6, 3.3), sharey=True)
    ground = "white"
    figure.set_facecolor(ground)
    names = list(shown)[::-1]
    colours = ["#8c8c8c" if name == "plain PCA" else "#1f6fb4" for name in names]
    aucs = [shown[name]["auc"] for name in names]
    kept = [shown[name]["variance"] / plain["variance"] for name in names]
    leak.barh(names, np.array(aucs) - 0.5, left=0.5, color=colours)
    leak.set(xlim=(0.5, 1.08), xlabel="0.5 is guessing, 1 is certainty", title="What leaks: AUC for sex")
    keep.barh(names, kept, color=colours)
    keep.set(xlim=(0, 1.15), xlabel="of what plain PCA keeps", title="What is left: variance")
    for axis, values, form in [(leak, aucs, "{:.2f}"), (keep, kept, "{:.0%}")]:
        for place, value in enumerate(values):
            axis.text(value + 0.01, place, form.format(value), va="center", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", action="store_true")
    asked = parser.parse_args()
    cells: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not asked.picture:
        warnings.simplefilter("ignore")
        os.nice(5)
        for data in TITLES:
            split = paper_split(data, 0)
            for choice, (options, dither) in CHOICES.items():
                key = f"{data}|{choice}"
                if key in cells:
                    continue
                cells[key] = measured(split, options, dither)
                with atomic_file(RESULTS) as stream:
                    stream.write(json.dumps(cells, indent=1).encode() + b"\n")
                print(key, cells[key], flush=True)
    draw(cells)
    TABLE.write_text(table(cells) + "\n", encoding="utf-8")
    print(table(cells))


if __name__ == "__main__":
    main()
