"""What embeddings hide from a strong attacker and what they keep: tuned models, the paper's, and its rivals.

    python benchmarks/hiding.py adult compas german          every cell that is not in results/hiding.json
    python benchmarks/hiding.py adult --splits 0 1 2 --methods tuned
    python benchmarks/hiding.py --table                      the table of docs/understand/hiding.md

Every setting is chosen on the training rows of a split. The strong attack of an audit is fitted on the
embedded training rows and scored on the test rows, and so is a classifier of the target. "Variance" is the
share of X's variance that a linear map, fitted on the training rows, recovers of the test rows from the
embedding: noise counts as loss. Tuned models embed every row with a number of its own, so that equal rows get
different noise. Cells are stored one by one, so a run can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import FairStreamingPCA, baselines
from fairstream.auditing.measure.attack import attack
from fairstream.auditing.tuning import tune
from fairstream.datasets import paper_split
from fairstream.files.format import atomic_file

RESULTS = Path(__file__).with_name("results") / "hiding.json"
K = 10
KEY = secrets.token_bytes(32)
Embed = Callable[[Any], Any]


def ours(**choices: Any) -> Callable[[Any, int], tuple[Embed, dict[str, Any]]]:
    """Return a method of one setting."""

    def fit(split: Any, seed: int) -> tuple[Embed, dict[str, Any]]:
        model = FairStreamingPCA(K, **choices).fit(
            split.X_train, split.y_train, sensitive_features=split.groups_train
        )
        return model.transform, {}

    return fit


def tuned(
    limit: float | None = None, maximise: str = "variance", share: float | None = None
) -> Callable[[Any, int], tuple[Embed, dict[str, Any]]]:
    """Return what `tune` chooses on the training rows, for a limit or a share of mean-only's variance."""

    def fit(split: Any, seed: int) -> tuple[Embed, dict[str, Any]]:
        found = tune(
            split.X_train,
            split.groups_train,
            split.y_train,
            limit=limit,
            keep=None if share is None else share * kept_by_means(split),
            maximise=maximise,
            n_components=K,
            attack="standard",
            ids=True,
            seed=seed,
        )
        subspace = found.estimator.subspace_
        facts = {
            "holds": found.holds,
            "chosen": found.chosen.in_words(),
            "confirmed": list(found.summary()[1:]),
        }
        first = {len(split.X_train): 0, len(split.X_test): len(split.X_train)}
        return lambda X: subspace.embed(X, key=KEY, ids=first[len(X)] + np.arange(len(X))), facts

    return fit


def kept_by_means(split: Any) -> float:
    """Return mean-only's variance as a share of plain PCA's, on the training rows."""
    mean, plain = (
        FairStreamingPCA(K, constraint=constraint).fit(split.X_train, sensitive_features=split.groups_train)
        for constraint in ("mean", "none")
    )
    return float(mean.explained_variance_ratio_.sum() / plain.explained_variance_ratio_.sum())


def rival(name: str, **options: Any) -> Callable[[Any, int], tuple[Embed, dict[str, Any]]]:
    """Return a method of `fairstream.baselines`."""

    def fit(split: Any, seed: int) -> tuple[Embed, dict[str, Any]]:
        kind = getattr(baselines, name)
        if "random_state" in kind(K).get_params():
            options["random_state"] = seed
        model = kind(K, **options).fit(split.X_train, sensitive_features=split.groups_train)
        return model.transform, {}

    return fit


METHODS: dict[str, Callable[[Any, int], tuple[Embed, dict[str, Any]]]] = {
    "PCA": ours(constraint="none"),
    "mean only": ours(constraint="mean"),
    "absolute m = 5": ours(n_unfair=5),
    "relative m = 15": ours(n_unfair=15, directions="relative"),
    "tuned, limit .70": tuned(0.70),
    "tuned, limit .66": tuned(0.66),
    "tuned, limit .66, for the target": tuned(0.66, "target"),
    "tuned, 93 % of mean-only's variance": tuned(share=0.93),
    "tuned, 97 % of mean-only's variance": tuned(share=0.97),
    "LEACE + PCA": rival("LeacePCA"),
    "Olfat and Aswani": rival("OlfatAswaniFairPCA"),
    "Kleindessner": rival("KleindessnerFairPCA"),
    "INLP": rival("INLP", variant="pca"),
    "RLACE": rival("RLACE", variant="pca"),
    "MbF-PCA": rival("MbFPCA"),
}


def measured(
    split: Any, fit: Callable[[Any, int], tuple[Embed, dict[str, Any]]], seed: int
) -> dict[str, Any]:
    """Return what one method keeps and gives away on the test rows of one split."""
    began = time.process_time()
    embed, facts = fit(split, seed)
    fitted = time.process_time() - began
    Z, Z_test = (np.asarray(embed(X), dtype=float) for X in (split.X_train, split.X_test))
    found = attack(Z_test, split.groups_test, fit=(Z, split.groups_train), strength="strong", seed=seed)
    best = found.strongest
    task = HistGradientBoostingClassifier(random_state=seed).fit(Z, split.y_train)
    return {
        "auc": best.auc.value,
        "low": best.auc.low,
        "high": best.auc.high,
        "attacker": best.name,
        "trend": found.curve.trend,
        "variance": recovered(Z, split.X_train, Z_test, split.X_test),
        "target": float(roc_auc_score(split.y_test, task.predict_proba(Z_test)[:, 1])),
        "fit_seconds": fitted,
        "seconds": time.process_time() - began,
        **facts,
    }


def recovered(Z: Any, X: Any, Z_test: Any, X_test: Any) -> float:
    """Return the share of the test rows' variance that a linear map of the training rows recovers."""
    design, design_test = (np.column_stack([np.ones(len(A)), A]) for A in (Z, Z_test))
    solution, *_ = np.linalg.lstsq(design, X, rcond=None)
    left = ((X_test - design_test @ solution) ** 2).sum()
    return float(1 - left / ((X_test - X_test.mean(axis=0)) ** 2).sum())


def table(cells: dict[str, Any]) -> str:
    """Return Markdown: a row for each data set and method, means over its splits."""
    lines = [
        "| data | method | splits | strongest attacker's AUC | variance | of mean-only's | target AUC |",
        "|---|---|---|---|---|---|---|",
    ]
    names = sorted({key.split("|")[0] for key in cells})
    for data in names:
        groups = {
            method: {k.split("|")[2]: cell for k, cell in cells.items() if k.startswith(f"{data}|{method}|")}
            for method in METHODS
        }
        base = groups["mean only"]
        for method, found in groups.items():
            if not found:
                continue
            auc, variance, target = (
                [cell[name] for cell in found.values()] for name in ("auc", "variance", "target")
            )
            share = [cell["variance"] / base[s]["variance"] for s, cell in found.items() if s in base]
            kept = f"{100 * np.mean(share):.1f} %" if share else ""
            worst = f" (worst {max(auc):.3f})" if len(auc) > 1 else ""
            lines.append(
                f"| {data} | {method} | {len(found)} | {np.mean(auc):.3f}{worst} | {np.mean(variance):.4f} | "
                f"{kept} | {np.mean(target):.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", choices=["adult", "compas", "german", []], default=[])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", help="Methods whose names begin so; all by default.")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.nice(5)
    cells: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for data in asked.data:
        for number in asked.splits:
            split = paper_split(data, number)
            for method, fit in METHODS.items():
                key = f"{data}|{method}|{number}"
                wanted = not asked.methods or any(method.startswith(name) for name in asked.methods)
                if key in cells or not wanted:
                    continue
                cells[key] = measured(split, fit, seed=number)
                with atomic_file(RESULTS) as stream:
                    stream.write(json.dumps(cells, indent=1, sort_keys=True).encode())
                cell = cells[key]
                print(
                    f"{key}: AUC {cell['auc']:.3f} ({cell['attacker']}, {cell['trend']}), variance "
                    f"{cell['variance']:.4f}, target {cell['target']:.3f}, {cell['seconds']:.0f} s "
                    f"{cell.get('chosen', '')} {cell.get('holds', '')}",
                    flush=True,
                )
    if asked.table or not asked.data:
        print(table(cells))


if __name__ == "__main__":
    main()
