"""How often a tuned limit holds on new rows when `tune` said that it holds.

    python benchmarks/tuned_limits.py                 30 synthetic problems and ten splits of Adult (hours)
    python benchmarks/tuned_limits.py --synthetic 30 --adult 0

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
from fairstream.files.format import atomic_file

RESULTS = Path(__file__).with_name("results") / "tuned_limits.json"
LIMITS = (0.6, 0.65, 0.7, 0.75)
ROWS, TEST_ROWS = 8_000, 20_000


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
    """Return training and test rows of one split."""
    split = paper_split("adult", number)
    return split.X_train, split.groups_train, split.X_test, split.groups_test


def repetition(X: Any, groups: Any, X_test: Any, groups_test: Any, number: int) -> dict[str, Any]:
    """Tune once, and attack new rows."""
    limit = LIMITS[number % len(LIMITS)]
    k = min(10, X.shape[1] // 3)
    found = tune(X, groups, limit=limit, n_components=k, attack="standard", ids=True, seed=number)
    subspace, key = found.estimator.subspace_, secrets.token_bytes(32)
    Z = subspace.embed(X, key=key, ids=np.arange(len(X)))
    Z_test = subspace.embed(X_test, key=key, ids=len(X) + np.arange(len(X_test)))
    best = attack(Z_test, groups_test, fit=(Z, groups), strength="strong", seed=number).strongest
    return {
        "limit": limit,
        "said": {name: verdict.answer for name, verdict in found.verdicts.items()},
        "holds": found.holds,
        "auc": best.auc.value,
        "low": best.auc.low,
        "variance": found.chosen.variance / found.plain_variance,
        "chosen": found.chosen.in_words(),
    }


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
    parser.add_argument("--synthetic", type=int, default=30)
    parser.add_argument("--adult", type=int, default=10)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.nice(5)
    cells: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = [("synthetic", synthetic, j) for j in range(asked.synthetic)]
    wanted += [("adult", adult, j) for j in range(asked.adult)]
    for kind, made, number in wanted:
        name = f"{kind} {number}"
        if name in cells:
            continue
        cells[name] = repetition(*made(number), number)
        with atomic_file(RESULTS) as stream:
            stream.write(json.dumps(cells, indent=1, sort_keys=True).encode())
        print(name, cells[name], flush=True)
    print(summary(cells))


if __name__ == "__main__":
    main()
