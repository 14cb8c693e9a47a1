"""How well an attribute is recovered from embedded faces: probes fitted on some images, scored on others.

No model has seen either. Every probe sees standardised coordinates. C of the logistic regression is the one
of a few that does best on a fifth of the probe's own fitting rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import scipy.linalg
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fairstream.auditing.measure.auc import auc_with_variance
from fairstream.auditing.measure.fitting import one_thread

KERNEL_RIDGE = 0.3

Scores = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # fit rows, their labels, rows to score


def linear(strength: float) -> Scores:
    """Logistic regression."""

    def scores(Z: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(C=strength, max_iter=100).fit(Z, labels)
        return model.decision_function(others)

    return scores


def kernel(Z: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Ridge regression with a Gaussian kernel whose width is the median distance."""
    width = np.median(_squared_distances(Z[:500], Z[-500:]))
    K = np.exp(-_squared_distances(Z, Z) / width)
    K[np.diag_indices_from(K)] += KERNEL_RIDGE
    target = (labels - labels.mean()).astype(K.dtype)
    weights = scipy.linalg.solve(K, target, assume_a="pos", overwrite_a=True, check_finite=False)
    return np.exp(-_squared_distances(others, Z) / width) @ weights


def quadratic(Z: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Quadratic discriminant, each group's covariance shrunk (Ledoit-Wolf) towards the covariance of all."""
    centre, (values, vectors) = Z.mean(axis=0), np.linalg.eigh(np.cov(Z.T))
    whiten = vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1]))
    logs = []
    for group in (False, True):
        rows = (Z[labels == group] - centre) @ whiten
        own = LedoitWolf().fit(rows)
        distances = own.mahalanobis((others - centre) @ whiten)
        logs.append(-0.5 * (distances + np.linalg.slogdet(own.covariance_)[1]))
    return logs[1] - logs[0]


def trees(Z: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Gradient-boosted trees, stopped early."""
    model = HistGradientBoostingClassifier(early_stopping=True, max_features=0.3, random_state=0)
    with one_thread():
        return model.fit(Z, labels).decision_function(others)


PROBES: dict[str, tuple[Scores, ...]] = {
    "linear": tuple(linear(strength) for strength in (1e-4, 1e-3, 1e-2, 1e-1)),
    "kernel": (kernel,),
    "quadratic": (quadratic,),
    "trees": (trees,),
}


def probe_auc(
    kind: str, Z_fit: np.ndarray, labels: np.ndarray, Z_score: np.ndarray, true: np.ndarray
) -> tuple[float, float]:
    """Return the AUC on the scored rows and its standard error (DeLong)."""
    centre, scale = Z_fit.mean(axis=0), np.maximum(Z_fit.std(axis=0), 1e-6)
    Z_fit, Z_score = (((Z - centre) / scale).astype(np.float32) for Z in (Z_fit, Z_score))
    candidates = PROBES[kind]
    best = candidates[0]
    if len(candidates) > 1:
        tuning = np.zeros(len(Z_fit), dtype=bool)
        for group in (False, True):
            tuning[np.flatnonzero(labels == group)[::5]] = True
        reached = [
            roc_auc_score(labels[tuning], scores(Z_fit[~tuning], labels[~tuning], Z_fit[tuning]))
            for scores in candidates
        ]
        best = candidates[int(np.argmax(reached))]
    auc, variance = auc_with_variance(best(Z_fit, labels, Z_score), true.astype(np.intp))
    return auc, float(np.sqrt(variance))


def _squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    squares = np.einsum("ij,ij->i", A, A)[:, None] + np.einsum("ij,ij->i", B, B)
    return np.maximum(squares - 2 * A @ B.T, 0)
