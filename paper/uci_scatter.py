"""How far cells move by what the paper leaves open: signs of V for the MLP, random starts of FNPM, seeds.

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
from uci_measure import bandwidth_of, measure
from uci_methods import PRINTED_M, Embedded, methods, ours, rival
from uci_verdicts import N_SPLITS, SCATTER, Key

from fairstream.baselines import INLP, RLACE

REPETITIONS = range(1, 6)


def varied(key: Key) -> str:
    """Say what is left open in this cell."""
    _, _, method, metric = key
    if "FNPM" in method:
        return "random starts"
    if method in ("INLP", "RLACE"):
        return "seeds"
    return "signs of V" if metric.endswith("mlp") else ""


def repetition(name: str, key: Key, split: Any, seed: int) -> Embedded:
    """Embed the split once more with another choice of what is left open."""
    _, k, method, _ = key
    if method in ("INLP", "RLACE"):
        system = {"INLP": INLP, "RLACE": RLACE}[method]
        return rival(system(k, variant="paper", random_state=seed), split)
    if "FNPM" in method:
        m = next((m for m in PRINTED_M[name] if f"m={m})" in method), 0)
        return ours(split, k, m, solver="power", power_steps=(100, 100), random_state=seed)
    first = methods(name)[method](split, k, None)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], first.test.shape[1])
    return Embedded(first.train * signs, first.test * signs, None if first.V is None else first.V * signs)


def cell(name: str, key: Key, splits: list[Any], seed: int) -> float:
    values = []
    for split in splits:
        bandwidth = bandwidth_of(split, key[1]) if key[3] == "mmd2" else None
        embedded = repetition(name, key, split, seed)
        measured = measure(split, embedded, bandwidth, {"": key[3] not in ("var", "mmd2"), "honest_": False})
        values.append(measured[key[3]])
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["german", "compas"], choices=[*NAMES])
    options = parser.parse_args()
    from fairstream.datasets import paper_split

    warnings.simplefilter("ignore")
    for name in options.datasets:
        splits = [paper_split(name, index) for index in range(N_SPLITS)]
        for key, compared in compare(gathered()).items():
            held = json.loads(SCATTER.read_text()) if SCATTER.exists() else {}
            title = " | ".join(map(str, key))
            wanted = compared.judgement.verdict == "differs" and varied(key) and title not in held
            if key[0] != NAMES[name] or not wanted or len(compared.ours) < N_SPLITS:
                continue
            cells = [round(cell(name, key, splits, seed), 4) for seed in REPETITIONS]
            print(title, varied(key), compared.printed.mean, cells, flush=True)
            SCATTER.write_text(
                json.dumps({**held, title: {"varied": varied(key), "cells": cells}}, indent=1) + "\n"
            )


if __name__ == "__main__":
    main()
