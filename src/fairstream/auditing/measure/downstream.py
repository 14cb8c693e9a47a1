"""The downstream task: the paper's classifiers on an embedding, by its protocol and by an honest one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from fairstream.auditing.measure.metrics import (
    accuracy_by_group,
    demographic_parity_difference,
    equalized_odds_difference,
)
from fairstream.auditing.measure.probes import one_thread
from fairstream.auditing.report import DownstreamResult, GroupFairness

FloatArray = NDArray[np.floating[Any]]

MAX_LABELS = 20
MAX_ITERATIONS = 200_000  # on unscaled features a linear SVM may never converge
PAPER_NOTE = "fitted and scored on the same audited rows, as in the paper: a training accuracy"
TRAIN_NOTE = "fitted on the training rows, scored on the audited rows"
FOLDS_NOTE = "cross-validated: every audited row is scored by a classifier that has not seen it"


@dataclass(frozen=True)
class GroupCodes:
    """One attribute of the rows that are classified: a code per row (-1: left out) and the groups' names."""

    codes: NDArray[np.intp]
    names: tuple[str, ...]


def classifiers() -> dict[str, Any]:
    """Return the paper's three classifiers with its settings.

    Examples
    --------
    >>> [*classifiers()]
    ['kernel SVM', 'linear SVM', 'MLP']
    """
    return {
        "kernel SVM": SVC(kernel="rbf", gamma=1, C=1, max_iter=MAX_ITERATIONS),
        "linear SVM": SVC(kernel="linear", C=1, max_iter=MAX_ITERATIONS),
        "MLP": MLPClassifier(hidden_layer_sizes=(10, 5), random_state=2023, max_iter=10_000),
    }


def classify(
    Z: FloatArray,
    y: ArrayLike,
    groups: Mapping[str, GroupCodes],
    train: tuple[FloatArray, ArrayLike] | None = None,
    *,
    seed: int = 0,
) -> tuple[DownstreamResult, ...]:
    """Fit and score each classifier by both protocols.

    Parameters
    ----------
    Z : array of shape (n, k)
        Embedded audited rows.
    y : array of shape (n,)
        Their target labels.
    groups : dict of str to GroupCodes
        The attributes whose groups are compared.
    train : (array, array), optional
        Embedded training rows and their targets. Without them the honest protocol is cross-validation.
    seed : int
        Seed of the folds.
    """
    labels = np.asarray(y)
    check_target(labels)
    results = []
    for name, classifier in classifiers().items():
        with warnings.catch_warnings(), one_thread():
            warnings.simplefilter("ignore", ConvergenceWarning)
            same_rows = clone(classifier).fit(Z, labels).predict(Z)
            if train is not None:
                unseen, note = clone(classifier).fit(train[0], np.asarray(train[1])).predict(Z), TRAIN_NOTE
            else:
                folds = StratifiedKFold(5, shuffle=True, random_state=seed)
                unseen, note = cross_val_predict(classifier, Z, labels, cv=folds), FOLDS_NOTE
        results.append(_result(name, "paper", PAPER_NOTE, labels, same_rows, groups))
        results.append(_result(name, "honest", note, labels, unseen, groups))
    return tuple(results)


def check_target(labels: NDArray[Any]) -> None:
    """Refuse a target that is not a class label."""
    n_missing = sum(value is None or value != value for value in labels.tolist())
    if n_missing:
        raise ValueError(
            f"y is missing in {n_missing:,} of the {len(labels):,} sampled rows: drop such rows, or leave y "
            "out to skip the downstream task"
        )
    values, counts = np.unique(labels, return_counts=True)
    if len(values) > MAX_LABELS:
        raise ValueError(
            f"y has {len(values):,} different values, at most {MAX_LABELS} are classes: bin it first"
        )
    if len(values) < 2 or counts.min() < 5:
        raise ValueError(
            f"y has {len(values)} different values, the rarest in {counts.min()} rows: a classifier needs "
            "two classes with five rows each; raise downstream_rows, or leave y out to skip the downstream "
            "task"
        )


def _result(
    name: str,
    protocol: str,
    note: str,
    y: NDArray[Any],
    predicted: NDArray[Any],
    groups: Mapping[str, GroupCodes],
) -> DownstreamResult:
    fairness = []
    for attribute, group in groups.items():
        known = group.codes >= 0
        codes, truth, guess = group.codes[known], y[known], predicted[known]
        by_group = accuracy_by_group(truth, guess, codes)
        fairness.append(
            GroupFairness(
                attribute=attribute,
                demographic_parity_difference=demographic_parity_difference(guess, codes),
                equalized_odds_difference=equalized_odds_difference(truth, guess, codes),
                accuracy_by_group={group.names[code]: value for code, value in by_group.items()},
            )
        )
    return DownstreamResult(
        classifier=name,
        protocol=protocol,
        protocol_note=note,
        n_rows=len(y),
        accuracy=float(np.mean(predicted == y)),
        majority_rate=float(np.unique(y, return_counts=True)[1].max() / len(y)),
        fairness=tuple(fairness),
    )
