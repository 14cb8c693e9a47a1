"""The eight numbers of the UCI tables for one embedding, by the paper's protocol and by an honest one."""

from __future__ import annotations

import resource
import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from uci_methods import Embedded, methods, plain_components

from fairstream.audit.downstream import classifiers
from fairstream.audit.metrics import demographic_parity_difference, explained_variance_ratio
from fairstream.audit.mmd import median_squared_distance, mmd2

SHORT = {"kernel SVM": "ksvm", "linear SVM": "lsvm", "MLP": "mlp"}


def bandwidth_of(split: Any, k: int) -> float:
    """2 sigma^2: the median squared distance of the train rows in plain PCA's embedding."""
    return median_squared_distance(split.X_train @ plain_components(split, k))


def measure(
    split: Any, embedded: Embedded, bandwidth: float | None, *, classify: bool, honest: bool
) -> dict[str, float]:
    result: dict[str, float] = {}
    if embedded.V is not None:
        result["var"] = 100 * explained_variance_ratio(split.X_test, embedded.V.T)
    if embedded.V is not None and bandwidth is not None:
        result["mmd2"] = mmd2(embedded.test, split.groups_test == 1, bandwidth)
    for name, classifier in classifiers().items() if classify else ():
        protocols = {"": (embedded.test, split.y_test)}
        if honest:
            protocols["honest_"] = (embedded.train, split.y_train)
        for prefix, (rows, labels) in protocols.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                predicted = classifier.fit(rows, labels).predict(embedded.test)
            short = SHORT[name]
            result[f"{prefix}acc_{short}"] = 100 * float(np.mean(predicted == split.y_test))
            result[f"{prefix}dp_{short}"] = demographic_parity_difference(predicted, split.groups_test)
    return result


def run_cell(
    name: str, split: Any, method: str, k: int, bandwidth: float | None, **protocol: bool
) -> dict[str, Any]:
    """Fit and measure one method on one split; a failure is a result too."""
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        embedded = methods(name)[method](split, k, bandwidth)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "peak_growth_mb": (peak - before) / 1024,
        **measure(split, embedded, bandwidth, **protocol),
    }
