"""How long an audit of Adult takes: 16,000 rows, three models beside plain PCA, sex and the income.

    python benchmarks/audit_time.py                        # standard, fitted on the other 29,222 rows
    python benchmarks/audit_time.py --attack strong
    python benchmarks/audit_time.py --folds                # without them: the audited rows in folds

Prints one JSON line: seconds, processor seconds and peak memory of the audit, and what the attackers read. At
most 90 s (standard) and 360 s (strong) are allowed on two idle processors.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np

from fairstream import FairStreamingPCA
from fairstream.auditing import audit
from fairstream.datasets import paper_split

AUDITED_ROWS = 16_000
MODELS = {
    "mean only": {"constraint": "mean"},
    "absolute": {"n_unfair": 5},
    "relative": {"n_unfair": 15, "directions": "relative"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attack", default="standard")
    parser.add_argument("--folds", action="store_true", help="attack the audited rows in folds")
    options = parser.parse_args()
    split = paper_split("adult", 0)
    order = np.random.default_rng(0).permutation(len(split.X_train) + len(split.X_test))
    X, sex, income = (
        np.concatenate(parts)[order]
        for parts in (
            (split.X_train, split.X_test),
            (split.groups_train, split.groups_test),
            (split.y_train, split.y_test),
        )
    )
    audited, others = slice(AUDITED_ROWS), slice(AUDITED_ROWS, None)
    models = {
        name: FairStreamingPCA(10, **setting).fit(X[others], sensitive_features=sex[others])
        for name, setting in MODELS.items()
    }
    train = None if options.folds else (X[others], {"sex": sex[others]}, income[others])
    started = time.perf_counter(), time.process_time()
    report = audit(
        models,
        X[audited],
        {"sex": sex[audited]},
        income[audited],
        train=train,
        attack=options.attack,
        announce=lambda line: print(f"{time.perf_counter() - started[0]:6.1f} s: {line}", file=sys.stderr),
    )
    result = {
        "attack": options.attack,
        "folds": options.folds,
        "seconds": round(time.perf_counter() - started[0], 1),
        "processor_seconds": round(time.process_time() - started[1], 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
        "auc": {model.name: round(model.leaks[0].attack.strongest.auc.value, 3) for model in report.models},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
