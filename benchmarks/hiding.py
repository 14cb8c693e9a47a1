"""What embeddings hide from a strong attacker and what they keep: tuned models, the paper's, and its rivals.

    python benchmarks/hiding.py adult compas german          every cell that is not in results/hiding.json
    python benchmarks/hiding.py adult --splits 0 1 2 --methods tuned
    python benchmarks/hiding.py --table                      the tables of docs/understand/hiding.md

Every setting is chosen on the training rows of a split. The strong attack of an audit is fitted on the
embedded training rows and scored on the test rows, and so is a classifier of the target. "Variance" is the
share of X's variance that a linear map, fitted on the training rows, recovers of the test rows from the
embedding: noise counts as loss. Models with dither embed every row with a number of its own, so that equal
rows get different noise. Rivals have the settings of the paper's tables. Cells are stored one by one, so a
run can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from fairstream import FairStreamingPCA, baselines, solve
from fairstream.auditing.measure.attack import attack
from fairstream.auditing.tuning import tune
from fairstream.auditing.tuning.division import divided
from fairstream.auditing.tuning.judge import Judge
from fairstream.datasets import paper_split
from fairstream.files.atomic import atomic_file

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
            ids=True,
            seed=seed,
        )
        facts = {
            "holds": found.holds,
            "chosen": found.chosen.in_words(),
            "confirmed": list(found.summary()[1:]),
        }
        return noisy(found.estimator.subspace_, split), facts

    return fit


def guarded(strength: float, dither: float) -> Callable[[Any, int], tuple[Embed, dict[str, Any]]]:
    """Return a guard of one strength with one dither."""

    def fit(split: Any, seed: int) -> tuple[Embed, dict[str, Any]]:
        model = FairStreamingPCA(
            K, constraint="none", guard=strength, dither=dither, guard_seed=seed, sample=30_000
        )
        model.fit(split.X_train, sensitive_features=split.groups_train)
        return noisy(model.subspace_, split), {}

    return fit


def noisy(subspace: Any, split: Any) -> Embed:
    """Return the map that embeds training and test rows with noise of their own."""
    first = {len(split.X_train): 0, len(split.X_test): len(split.X_train)}
    return lambda X: subspace.embed(X, key=KEY, ids=first[len(X)] + np.arange(len(X)))


def kept_by_means(split: Any) -> float:
    """Return mean-only's variance as a share of plain PCA's on the training rows, measured as `tune` does."""
    division = divided(split.X_train, split.groups_train, None, 30_000)
    judge = Judge(division, confidence=0.95, seed=0)
    mean, plain = (
        judge.recovered_variance(solve(division.moments, K, constraint=constraint), 0.0)
        for constraint in ("mean", "none")
    )
    return mean / plain


def rival(name: str, **options: Any) -> Callable[[Any, int], tuple[Embed, dict[str, Any]]]:
    """Return a method of `fairstream.baselines`."""

    def fit(split: Any, seed: int) -> tuple[Embed, dict[str, Any]]:
        kind = getattr(baselines, name)
        if "random_state" in kind(K).get_params():
            options["random_state"] = seed
        model = kind(K, **options).fit(split.X_train, sensitive_features=split.groups_train)
        return model.transform, {}

    return fit


FRONTIER = (  # strength of the guard, dither
    *((strength, 0.0) for strength in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)),
    *((strength, dither) for strength in (0.5, 1.0, 2.0) for dither in (0.2, 0.4)),
    (4.0, 0.8),
)
METHODS: dict[str, Callable[[Any, int], tuple[Embed, dict[str, Any]]]] = {
    "PCA": ours(constraint="none"),
    "mean only": ours(constraint="mean"),
    "absolute m = 5": ours(n_unfair=5),
    "relative m = 15": ours(n_unfair=15, directions="relative"),
    "tuned, limit .70": tuned(0.70),
    "tuned, limit .66": tuned(0.66),
    "tuned, limit .66, for the target": tuned(0.66, "target"),
    "tuned, 91 % of mean-only's variance": tuned(share=0.91),
    "tuned, 98 % of mean-only's variance": tuned(share=0.98),
    "tuned, 100 % of mean-only's variance": tuned(share=1.0),
    **{f"guard {g:g}" + (f", dither {t:g}" if t else ""): guarded(g, t) for g, t in FRONTIER},
}
RIVALS: dict[str, Callable[[Any, int], tuple[Embed, dict[str, Any]]]] = {
    "LEACE + PCA": rival("LeacePCA"),
    "Olfat and Aswani (0.1)": rival("OlfatAswaniFairPCA", delta=0.1, as_published=True),
    "Olfat and Aswani (0.0)": rival("OlfatAswaniFairPCA", delta=0.0, as_published=True),
    "Kleindessner (mean)": rival("KleindessnerFairPCA"),
    "Kleindessner (0.85)": rival("KleindessnerFairPCA", fraction=0.85),
    "Kleindessner (0.5)": rival("KleindessnerFairPCA", fraction=0.5),
    "INLP": rival("INLP", variant="paper"),
    "INLP then PCA": rival("INLP", variant="pca"),
    "RLACE": rival("RLACE", variant="paper"),
    "RLACE then PCA": rival("RLACE", variant="pca"),
    "MbF-PCA (1e-3)": rival("MbFPCA", tau=1e-3),
    "MbF-PCA (1e-6)": rival("MbFPCA", tau=1e-6),
}
METHODS |= RIVALS


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


def stored() -> dict[str, Any]:
    """Return the cells measured so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def store(cells: dict[str, Any]) -> None:
    """Write the cells and the tables made of them, so that no table is older than its cells."""
    texts = {
        RESULTS: json.dumps(cells, indent=1, sort_keys=True),
        RESULTS.with_name("hiding.md"): table(cells) + "\n",
        RESULTS.with_name("equal_leak.md"): equal_leak(cells) + "\n",
    }
    for path, text in texts.items():
        with atomic_file(path) as stream:
            stream.write(text.encode())


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


def equal_leak(cells: dict[str, Any]) -> str:
    """Return Markdown: of our settings that leak no more than a rival the one that keeps most.

    Means over the splits on which the rival was measured. An AUC below 0.5 tells no more than one of 0.5.
    """
    lines = [
        "| data | rival | splits | its AUC | its variance | ours | AUC | variance | more |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for key, cell in cells.items():
        data, method, split = key.split("|")
        found.setdefault((data, method), {})[split] = cell
    for (data, name), theirs in sorted(found.items()):
        if name not in RIVALS:
            continue
        auc, variance = means(theirs, theirs)
        ours = {
            method: means(own, theirs)
            for (d, method), own in found.items()
            if d == data
            and method in METHODS
            and method not in {*RIVALS, "PCA"}
            and own.keys() >= theirs.keys()
        }
        within = [method for method, (leaks, _) in ours.items() if leaks <= max(auc, 0.5)]
        best = max(within, key=lambda method: ours[method][1], default=None)
        beside = ["none", "", "", "**no**"]
        if best is not None:
            more = "the same" if abs(ours[best][1] - variance) < 5e-5 else "**no**"
            more = "yes" if ours[best][1] >= variance + 5e-5 else more
            beside = [best, f"{ours[best][0]:.3f}", f"{ours[best][1]:.4f}", more]
        lines.append(
            f"| {data} | {name} | {len(theirs)} | {auc:.3f} | {variance:.4f} | {' | '.join(beside)} |"
        )
    return "\n".join(lines)


def means(cells: dict[str, Any], splits: Iterable[str]) -> tuple[float, float]:
    """Return the mean AUC and variance over some splits."""
    some = [cells[split] for split in splits]
    return float(np.mean([cell["auc"] for cell in some])), float(np.mean([cell["variance"] for cell in some]))


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
    for data in asked.data:
        for number in asked.splits:
            split = paper_split(data, number)
            for method, fit in METHODS.items():
                key = f"{data}|{method}|{number}"
                wanted = not asked.methods or any(method.startswith(name) for name in asked.methods)
                if key in stored() or not wanted:
                    continue
                cell = measured(split, fit, seed=number)
                store({**stored(), key: cell})  # read again: other runs may have added theirs
                print(
                    f"{key}: AUC {cell['auc']:.3f} ({cell['attacker']}, {cell['trend']}), variance "
                    f"{cell['variance']:.4f}, target {cell['target']:.3f}, {cell['seconds']:.0f} s "
                    f"{cell.get('chosen', '')} {cell.get('holds', '')}",
                    flush=True,
                )
    if asked.table or not asked.data:
        store(stored())
        print(table(stored()), equal_leak(stored()), sep="\n\n")


if __name__ == "__main__":
    main()
