"""How often a tuned limit holds on new rows when `tune` said that it holds.

    python benchmarks/tuned_limits.py                 32 synthetic problems and eight splits of Adult (hours)
    python benchmarks/tuned_limits.py --synthetic 16 32 --adult 0 0          some of them

Every repetition tunes on the training rows, then lets a strong attacker learn from the embedded training rows
and read rows that took no part. The limit held if that attacker's AUC is not above it. Repetitions of which
`tune` says that it cannot tell are counted apart. Each is stored, so a run can be stopped and resumed.
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

from fairstream.auditing.measure.attack import attack
from fairstream.auditing.tuning import tune
from fairstream.datasets import paper_split
from fairstream.files.atomic import atomic_file

RESULTS = Path(__file__).with_name("results") / "tuned_limits.json"
LIMITS = (0.6, 0.65, 0.7, 0.75)
ROWS, TEST_ROWS, ADULT_ROWS = 4_000, 10_000, 10_000
SEARCHED = (  # some, to save time
    {"constraint": "none", "guard": 1.0},
    {"constraint": "none", "guard": 8.0},
    {"constraint": "mean"},
)


def synthetic(seed: int) -> tuple[Any, ...]:
    """Return training and test rows of groups that differ in mean, covariance and shape."""
    rng = np.random.default_rng(1_000 + seed)
    d, n = int(rng.integers(8, 25)), ROWS + TEST_ROWS
    share = rng.uniform(0.25, 0.5)
    group = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, d)) * np.linspace(3, 1, d)
    telling = rng.choice(d, 4, replace=False)
    X[:, telling[0]] += rng.uniform(0.5, 3) * group
    X[:, telling[1]] *= np.where(group == 1, rng.uniform(1.3, 2.5), 1)
    X[:, telling[2]] += 2 * group * np.sign(X[:, telling[3]])
    X[:, telling[3]] = np.where(group == 1, np.abs(X[:, telling[3]]) - 1, X[:, telling[3]])
    X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return X[:ROWS], group[:ROWS], X[ROWS:], group[ROWS:]


def adult(number: int) -> tuple[Any, ...]:
    """Return some training rows of one split, which tuning and attackers have, and its test rows."""
    split = paper_split("adult", number)
    rows = np.random.default_rng(number).permutation(len(split.X_train))[:ADULT_ROWS]
    return split.X_train[rows], split.groups_train[rows], split.X_test, split.groups_test


def repetition(X: Any, groups: Any, X_test: Any, groups_test: Any, number: int) -> dict[str, Any]:
    """Tune once, and attack new rows."""
    limit = LIMITS[number % len(LIMITS)]
    k = min(10, X.shape[1] // 3)
    found = tune(
        X,
        groups,
        limit=limit,
        n_components=k,
        searched=SEARCHED,
        attack="standard",
        ids=True,
        seed=number,
    )
    subspace, key = found.estimator.subspace_, secrets.token_bytes(32)
    Z = subspace.embed(X, key=key, ids=np.arange(len(X)))
    Z_test = subspace.embed(X_test, key=key, ids=len(X) + np.arange(len(X_test)))
    best = attack(Z_test, groups_test, fit=(Z, groups), strength="strong", seed=number).strongest
    return {
        "limit": limit,
        "said": {name: verdict.answer for name, verdict in found.verdicts.items()},
        "holds": found.holds,
        "bound": max(verdict.upper for verdict in found.verdicts.values()),
        "trend": [result.curve.trend for result in found.attacks.values()],
        "judged": [found.chosen.leak, found.chosen.leak_bound],
        "auc": best.auc.value,
        "low": best.auc.low,
        "variance": found.chosen.variance / found.plain_variance,
        "chosen": found.chosen.in_words(),
    }


def stored() -> dict[str, Any]:
    """Return the repetitions done so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def summary(cells: dict[str, Any]) -> str:
    """Return the count in a sentence for each kind of data, and together."""
    lines = []
    for kind in ("synthetic", "adult", ""):
        of_kind = [cell for name, cell in cells.items() if name.startswith(kind)]
        said = [cell for cell in of_kind if cell["holds"]]
        kept = sum(cell["auc"] <= cell["limit"] for cell in said)
        others = [cell for cell in of_kind if not cell["holds"]]
        kept_too = sum(cell["auc"] <= cell["limit"] for cell in others)
        lines.append(
            f"{kind or 'all'}: of {len(of_kind)} repetitions {len(said)} said that the limit holds, and it "
            f"held on new rows in {kept}; of the other {len(others)} in {kept_too}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--synthetic", type=int, nargs=2, default=(0, 32), metavar=("FIRST", "END"))
    parser.add_argument("--adult", type=int, nargs=2, default=(0, 8), metavar=("FIRST", "END"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.nice(5)
    wanted = [("synthetic", synthetic, j) for j in range(*asked.synthetic)]
    wanted += [("adult", adult, j) for j in range(*asked.adult)]
    for kind, made, number in wanted:
        name = f"{kind} {number}"
        if name in stored():
            continue
        cell = repetition(*made(number), number)
        cells = {**stored(), name: cell}  # read again: other runs may have added theirs
        with atomic_file(RESULTS) as stream:
            stream.write(json.dumps(cells, indent=1, sort_keys=True).encode())
        print(name, cell, flush=True)
    print(summary(stored()))


if __name__ == "__main__":
    main()
