"""How far cells move by what the paper leaves open: signs of V for the MLP, seeds.

    python paper/uci_scatter.py --datasets german

For every printed cell that ours differs from, the whole cell (mean over ten splits) is measured again with
five other choices; uci.md then says whether the paper's number lies among them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
from uci_cells import NAMES, compare, gathered
from uci_classify import Scorer
from uci_measure import bandwidth_of, measure
from uci_methods import Embedded, asked_for, check_patterns, methods, rival
from uci_verdicts import N_SPLITS, SCATTER, Key

from fairstream.baselines import INLP, RLACE

REPETITIONS = range(1, 6)


def varied(key: Key) -> str:
    """Say what is left open in this cell."""
    _, _, method, metric = key
    if method in ("INLP", "RLACE"):
        return "seeds"
    return "signs of V" if metric.endswith("mlp") else ""


def repetition(name: str, key: Key, split: Any, seed: int) -> Embedded:
    """Embed the split once more with another choice of what is left open."""
    _, k, method, _ = key
    if method in ("INLP", "RLACE"):
        system = {"INLP": INLP, "RLACE": RLACE}[method]
        return rival(system(k, variant="paper", random_state=seed), split)
    first = methods(name)[method](split, k, None)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], first.test.shape[1])
    return Embedded(first.train * signs, first.test * signs, None if first.V is None else first.V * signs)


def cells(name: str, keys: list[Key], splits: list[Any], seed: int) -> dict[Key, float]:
    """Return one repetition of the cells of one method: each the mean over the splits."""
    metrics = {metric for *_, metric in keys}
    classifiers = sorted({metric.split("_")[1] for metric in metrics - {"var", "mmd2"}})
    measured = []
    for split in splits:
        bandwidth = bandwidth_of(split, keys[0][1]) if "mmd2" in metrics else None
        embedded = repetition(name, keys[0], split, seed)
        measured.append(measure(Scorer(split), embedded, bandwidth, {"": classifiers}))
    return {key: round(float(np.mean([values[key[3]] for values in measured])), 4) for key in keys}


def title(key: Key) -> str:
    return " | ".join(map(str, key))


def wanted(name: str, patterns: list[str]) -> list[list[Key]]:
    """Return the cells that differ and have not been repeated, those of one method and k together."""
    held = json.loads(SCATTER.read_text()) if SCATTER.exists() else {}
    found: dict[tuple[int, str, str], list[Key]] = {}
    for key, compared in compare(gathered()).items():
        open_ = compared.judgement.verdict == "differs" and varied(key) and title(key) not in held
        named = key[0] == NAMES[name] and asked_for(key[2], patterns)
        if open_ and named and len(compared.ours) == N_SPLITS:
            found.setdefault((key[1], key[2], varied(key)), []).append(key)
    return [*found.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["german", "compas"], choices=[*NAMES])
    parser.add_argument("--methods", nargs="+", default=[], help="only these methods (* as in file names)")
    options = parser.parse_args()
    check_patterns(options.methods)
    from fairstream.datasets import paper_split

    warnings.simplefilter("ignore")
    for name in options.datasets:
        splits = [paper_split(name, index) for index in range(N_SPLITS)]
        for keys in wanted(name, options.methods):
            repeated = [cells(name, keys, splits, seed) for seed in REPETITIONS]
            held = json.loads(SCATTER.read_text()) if SCATTER.exists() else {}
            for key in keys:
                held[title(key)] = {"varied": varied(key), "cells": [found[key] for found in repeated]}
                print(title(key), held[title(key)], flush=True)
            SCATTER.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
