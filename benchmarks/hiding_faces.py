"""How much more variance a guard keeps on faces at the leak of the paper's method.

    python benchmarks/hiding_faces.py                CelebA, Male and Eyeglasses, grey 54 x 44, k = 50

CelebA is found through FAIRSTREAM_DATA. The strength of the guard is chosen on the training images alone: the
weakest of a few that leaks no more than absolute directions, m = 20, to a standard attack on a quarter of
them. Both are then fitted on all training images, and a strong attack reads the validation images. A leak is
the larger AUC of the two attributes.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fairstream import GroupMoments, open_source, solve
from fairstream.auditing.measure.attack import attack
from fairstream.datasets.celeba import CelebA
from fairstream.files.format import atomic_file

RESULTS = Path(__file__).with_name("results") / "hiding_faces.json"
DATA = Path(os.environ.get("FAIRSTREAM_DATA", "../shared/data"))
ATTRIBUTES, SIZE, K, M = ("Male", "Eyeglasses"), (54, 44), 50, 20
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)


def faces(partition: str) -> tuple[Any, dict[str, Any]]:
    """Return the images of one part as rows of float32, and their groups."""
    chosen = CelebA(DATA / "celeba").select(partition=partition, attributes=list(ATTRIBUTES))
    groups = {name: chosen.groups[name].codes.astype(int) for name in ATTRIBUTES}
    source = open_source(
        chosen.images, names=list(chosen.members), mode="grey", resize=SIZE, sensitive_features=groups
    )
    return np.vstack([np.asarray(block.X, dtype=np.float32) for block in source]), groups


def leak(subspace: Any, fit: tuple[Any, Any], scored: tuple[Any, Any], strength: str) -> dict[str, float]:
    """Return the strongest attacker's AUC for each attribute."""
    Z_fit, Z = (np.asarray(subspace.embed(X), dtype=float) for X, _ in (fit, scored))
    return {
        name: attack(Z, scored[1][name], fit=(Z_fit, fit[1][name]), strength=strength).strongest.auc.value
        for name in ATTRIBUTES
    }


def recovered(subspace: Any, fit: Any, scored: Any) -> float:
    """Return the share of the scored rows' variance that a linear map of the fitted rows recovers."""
    design, design_scored = (np.column_stack([np.ones(len(X)), subspace.embed(X)]) for X in (fit, scored))
    solution, *_ = np.linalg.lstsq(design, fit, rcond=None)
    left = ((scored - design_scored @ solution) ** 2).sum()
    return float(1 - left / ((scored - scored.mean(axis=0)) ** 2).sum())


def part(X: Any, groups: dict[str, Any], rows: Any) -> tuple[Any, dict[str, Any]]:
    return X[rows], {name: codes[rows] for name, codes in groups.items()}


def moments_of(X: Any, groups: dict[str, Any]) -> GroupMoments:
    return GroupMoments(X.shape[1], sample=30_000).update(X, groups)


def main() -> None:
    warnings.simplefilter("ignore")
    X, groups = faces("train")
    place = np.random.default_rng(0).random(len(X)) < 0.75
    fit, judge = part(X, groups, place), part(X, groups, ~place)
    moments = moments_of(*fit)
    paper = leak(solve(moments, K, n_unfair=M), fit, judge, "standard")
    print(f"absolute m = {M} on the judging images: {paper}", flush=True)
    strength = 0.0
    for strength in STRENGTHS:
        began = time.process_time()
        found = solve(moments, K, constraint="none", guard=strength)
        seconds = time.process_time() - began
        seen = leak(found, fit, judge, "standard")
        share = found.explained_variance_ratio.sum()
        print(f"guard {strength:g} ({seconds:.0f} s): {share:.3f} of the variance, {seen}", flush=True)
        if max(seen.values()) <= max(paper.values()):
            break
    moments, scored = moments_of(X, groups), faces("valid")
    cells: dict[str, Any] = {"strength": strength, "rows": [len(X), len(scored[0])]}
    for name, choices in {
        f"absolute m = {M}": {"n_unfair": M},
        f"guard {strength:g}": {"constraint": "none", "guard": strength},
    }.items():
        subspace = solve(moments, K, **choices)
        cells[name] = {
            "leak": leak(subspace, (X, groups), scored, "strong"),
            "variance": recovered(subspace, X, scored[0]),
        }
        print(name, cells[name], flush=True)
        with atomic_file(RESULTS) as stream:
            stream.write(json.dumps(cells, indent=1).encode())


if __name__ == "__main__":
    main()
