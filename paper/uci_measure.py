"""The eight numbers of the UCI tables for one embedding, by the paper's protocol and by an honest one."""

from __future__ import annotations

import multiprocessing
import resource
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from uci_methods import Embedded, methods, plain_components

from fairstream.audit.downstream import classifiers
from fairstream.audit.metrics import demographic_parity_difference, explained_variance_ratio
from fairstream.audit.mmd import median_squared_distance, mmd2

SHORT = {"kernel SVM": "ksvm", "linear SVM": "lsvm", "MLP": "mlp"}
# Matlab's fitcsvm stops after this many iterations; unscaled rows of Adult need more than the audit allows.
SVM_ITERATIONS = 1_000_000
Cell = dict[str, Any]


def bandwidth_of(split: Any, k: int) -> float:
    """2 sigma^2: the median squared distance of the train rows in plain PCA's embedding."""
    return median_squared_distance(split.X_train @ plain_components(split, k))


def paper_classifiers() -> dict[str, Any]:
    """Return the audit's classifiers under the tables' short names, with the paper's limit of iterations."""
    found = {SHORT[name]: classifier for name, classifier in classifiers().items()}
    for svm in ("ksvm", "lsvm"):
        found[svm].set_params(max_iter=SVM_ITERATIONS)
    return found


def measure(split: Any, embedded: Embedded, bandwidth: float | None, protocols: dict[str, bool]) -> Cell:
    """Return the numbers of one embedding; `protocols`: classify as the paper (""), honestly ("honest_")?"""
    result: Cell = {}
    if embedded.V is not None:
        result["var"] = 100 * explained_variance_ratio(split.X_test, embedded.V.T)
    if embedded.V is not None and bandwidth is not None:
        result["mmd2"] = mmd2(embedded.test, split.groups_test == 1, bandwidth)
    fitted_on = {"": (embedded.test, split.y_test), "honest_": (embedded.train, split.y_train)}
    for prefix, (rows, labels) in fitted_on.items():
        for short, classifier in paper_classifiers().items() if protocols[prefix] else ():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                predicted = classifier.fit(rows, labels).predict(embedded.test)
            result[f"{prefix}acc_{short}"] = 100 * float(np.mean(predicted == split.y_test))
            result[f"{prefix}dp_{short}"] = demographic_parity_difference(predicted, split.groups_test)
    return result


def run_cell(
    name: str,
    split: Any,
    method: str,
    k: int,
    bandwidth: float | None,
    protocols: dict[str, bool],
    time_cap: float | None,
) -> Cell:
    """Fit and measure one method on one split; a failure, or no answer within the cap, is a result too.

    With a cap the work is done in a process of its own, which can be ended inside a solver.
    """
    steps = _fit_then_measure(name, split, method, k, bandwidth, protocols)
    if time_cap is None:
        return {key: value for step in steps for key, value in step.items()}
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_all, args=(steps, sender))
    process.start()
    sender.close()
    cell: Cell = {"error": f"not finished in {time_cap:.0f} s"}
    if receiver.poll(time_cap):  # the cap is for the fit, which is the first message
        cell = {}
        try:
            while True:
                cell |= receiver.recv()
        except EOFError:
            cell = cell or {"error": "the process was ended: not enough memory"}
    process.kill()
    process.join()
    return cell


def _send_all(steps: Iterator[Cell], sender: Any) -> None:
    for step in steps:
        sender.send(step)
    sender.close()


def _fit_then_measure(
    name: str, split: Any, method: str, k: int, bandwidth: float | None, protocols: dict[str, bool]
) -> Iterator[Cell]:
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        embedded = methods(name)[method](split, k, bandwidth)
    except (Exception, MemoryError) as error:
        yield {"error": f"{type(error).__name__}: {error}"[:300]}
        return
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield {"seconds": time.perf_counter() - started, "peak_growth_mb": (peak - before) / 1024}
    yield measure(split, embedded, bandwidth, protocols)
