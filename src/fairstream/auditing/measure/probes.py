"""Probes: how well classifiers recover an attribute from an embedding, cross-validated, with intervals.

Each row is scored by a probe that has not seen it. The interval around a cross-validated AUC must allow for
folds that share training rows: the folds' errors are correlated, and the textbook interval raises false
alarms far too often. Here the variance is DeLong's within each fold (from the rows' influence on the AUC),
times 1 + K n_test / n_train for K folds (Nadeau and Bengio's correction). On data without information the
true factor is 2 for a probe that follows the difference of the group means, against 2.25 used at K = 5, so
the interval errs on the wide side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

from fairstream.auditing.measure.auc import auc_with_variance, interval
from fairstream.auditing.measure.fitting import one_thread
from fairstream.auditing.report import Estimate

FloatArray = NDArray[np.floating[Any]]

EXACT_KERNEL_ROWS = 2_000
QUADRATIC_FEATURES = 24
CHANCE_AUC = 0.5


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How well one kind of probe recovers an attribute.

    Parameters
    ----------
    probe : str
        Which kind.
    auc : Estimate
        One-versus-rest, averaged over the groups if there are more than two.
    balanced_accuracy : Estimate
        Mean over the groups of the share that is recognised.
    chance : float
        The balanced accuracy of guessing: one over the number of groups.
    base_rate : float
        The share of the largest group.
    p_value : float
        One-sided, for "the AUC is no better than chance".
    n_rows, n_folds : int
        Rows that were scored, and parts of the cross-validation.
    """

    probe: str
    auc: Estimate
    balanced_accuracy: Estimate
    chance: float
    base_rate: float
    p_value: float
    n_rows: int
    n_folds: int


def probe(
    Z: ArrayLike,
    groups: ArrayLike,
    kind: str = "linear",
    *,
    n_folds: int = 5,
    level: float = 0.95,
    seed: int = 0,
) -> ProbeResult:
    """Fit and score one probe by stratified cross-validation.

    Parameters
    ----------
    Z : array of shape (n, k)
        The embedding, of rows the embedding was not fitted on: on its own training rows a linear probe is
        at chance by construction.
    groups : array of shape (n,)
        The group of each row, as codes 0, 1, ...; rows below 0 (not known) are left out.
    kind : {"linear", "quadratic", "kernel", "trees", "mlp"}
        Logistic regression; logistic regression on squares and products (all squares and
        some products above 24 columns); RBF support vectors (Nystroem features above 2,000 rows);
        gradient-boosted trees; a small neural network.
    n_folds : int
        Number of folds.
    level : float
        Confidence level of the intervals.
    seed : int
        Seed of the folds and of the probe.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.integers(0, 2, size=200)
    >>> probe(groups[:, None] + 0.1 * rng.normal(size=(200, 1)), groups).auc.value
    1.0
    """
    Z, codes = _known_rows(Z, groups)
    n_groups = int(codes.max()) + 1
    smallest = int(np.bincount(codes).min())
    if n_groups < 2 or smallest < n_folds:
        raise ValueError(
            f"the smallest of {n_groups} groups has {smallest} rows: a probe in {n_folds} folds needs two "
            f"groups with at least {n_folds} rows each"
        )
    build = _builder(kind)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    aucs, variances = [], []
    predicted = np.empty_like(codes)
    for fit_rows, score_rows in folds.split(Z, codes):
        model = build(len(fit_rows), Z.shape[1], n_groups, seed)
        with one_thread():
            scores, guess = _fit_and_score(model, Z, codes, fit_rows, score_rows)
        auc, variance = auc_with_variance(scores, codes[score_rows])
        aucs.append(auc)
        variances.append(variance)
        predicted[score_rows] = guess
    inflation = 1 + n_folds / (n_folds - 1)
    auc_sd = float(np.sqrt(inflation * np.mean(variances) / n_folds))
    auc_mean = float(np.mean(aucs))
    accuracy, accuracy_sd = _balanced_accuracy(codes, predicted, n_groups, inflation)
    return ProbeResult(
        probe=kind,
        auc=interval(auc_mean, auc_sd, level),
        balanced_accuracy=interval(accuracy, accuracy_sd, level),
        chance=1 / n_groups,
        base_rate=float(np.bincount(codes).max() / codes.size),
        p_value=float(ndtr((CHANCE_AUC - auc_mean) / auc_sd)),
        n_rows=int(codes.size),
        n_folds=n_folds,
    )


def run_probes(
    Z: ArrayLike, groups: ArrayLike, kinds: Iterable[str] | None = None, **options: Any
) -> tuple[ProbeResult, ...]:
    """Run several kinds of probe on one embedding.

    Parameters
    ----------
    Z, groups, **options
        As in `probe`.
    kinds : iterable of str, optional
        The kinds of probe; None: all of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [r.probe for r in run_probes(rng.normal(size=(60, 2)), np.arange(60) % 2, ["linear", "quadratic"])]
    ['linear', 'quadratic']
    """
    return tuple(probe(Z, groups, kind, **options) for kind in (PROBES if kinds is None else kinds))


def _fit_and_score(
    model: Any, Z: FloatArray, codes: NDArray[np.intp], fit_rows: Any, score_rows: Any
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the scores of the held-out rows, and the guesses that treat all groups as equally likely."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="Variables are collinear")
        warnings.filterwarnings("ignore", message="The covariance matrix")
        model.fit(Z[fit_rows], codes[fit_rows])
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(Z[score_rows])
        guess = np.argmax(shares / np.bincount(codes[fit_rows]), axis=1)
        return (shares[:, 1] if shares.shape[1] == 2 else shares), guess
    margins = model.decision_function(Z[score_rows])
    guess = (margins > 0).astype(np.intp) if margins.ndim == 1 else np.argmax(margins, axis=1)
    return margins, guess


def _balanced_accuracy(
    codes: NDArray[np.intp], predicted: NDArray[np.intp], n_groups: int, inflation: float
) -> tuple[float, float]:
    """Return the mean recall over groups and its standard deviation, add-one smoothed against zero width."""
    counts = np.bincount(codes, minlength=n_groups)
    right = np.bincount(codes[codes == predicted], minlength=n_groups)
    smoothed = (right + 1) / (counts + 2)
    variance = np.sum(smoothed * (1 - smoothed) / counts) / n_groups**2
    return float(np.mean(right / counts)), float(np.sqrt(inflation * variance))


def _known_rows(Z: ArrayLike, groups: ArrayLike) -> tuple[FloatArray, NDArray[np.intp]]:
    Z, codes = np.asarray(Z, dtype=float), np.asarray(groups)
    if Z.ndim != 2 or len(Z) != len(codes):
        raise ValueError(f"groups has {len(codes)} rows, Z has shape {Z.shape}: pass one group per row")
    known = codes >= 0
    present, codes = np.unique(codes[known], return_inverse=True)
    if present.size == 0:
        raise ValueError(f"groups has {len(known)} rows and none is known: nothing to probe")
    return Z[known], codes.astype(np.intp)


def _can_stop_early(n_rows: int, n_groups: int) -> bool:
    """Whether a tenth of the rows, held out for early stopping, can contain every group."""
    return n_rows >= 10 * n_groups


def _linear(n_rows: int, n_columns: int, n_groups: int, seed: int) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def _quadratic(n_rows: int, n_columns: int, n_groups: int, seed: int) -> Pipeline:
    if n_columns > QUADRATIC_FEATURES:
        # Too wide for all products. Not Gaussian discriminants: a rare group has fewer rows than columns.
        kernel = {"kernel": "polynomial", "degree": 2, "gamma": 1 / n_columns, "coef0": 1}
        products = Nystroem(n_components=min(256, n_rows // 2), random_state=seed, **kernel)
        features = make_union(FunctionTransformer(_with_squares), products)
        single = FunctionTransformer(np.float32)  # half the memory of many columns
        last = LogisticRegression(max_iter=300)
        return make_pipeline(StandardScaler(), single, features, StandardScaler(), last)
    squares = PolynomialFeatures(2, include_bias=False)
    return make_pipeline(StandardScaler(), squares, StandardScaler(), LogisticRegression(max_iter=300))


def _with_squares(Z: FloatArray) -> FloatArray:
    return np.hstack([Z, Z**2])


def _kernel(n_rows: int, n_columns: int, n_groups: int, seed: int) -> Pipeline:
    if n_rows <= EXACT_KERNEL_ROWS:
        return make_pipeline(StandardScaler(), SVC(class_weight="balanced", random_state=seed))
    features = Nystroem(gamma=1 / n_columns, n_components=min(256, n_rows // 2), random_state=seed)
    return make_pipeline(StandardScaler(), features, LogisticRegression(C=10.0, max_iter=300))


def _trees(n_rows: int, n_columns: int, n_groups: int, seed: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(early_stopping=_can_stop_early(n_rows, n_groups), random_state=seed)


class _BalancedNetwork(MLPClassifier):  # type: ignore[misc]
    """A network that sees all groups equally often and stops at the best AUC on rows set aside.

    Stopped by accuracy, a network on unbalanced groups learns nothing: naming the larger group is hard to
    beat in accuracy, so training ends before the smaller one has been seen.
    """

    coefs_: list[FloatArray]
    intercepts_: list[FloatArray]

    def fit(self, Z: FloatArray, codes: NDArray[np.intp]) -> _BalancedNetwork:
        """Train for at most `max_iter` epochs; each draws equally many rows of every group."""
        counts = np.bincount(codes)
        self._shares = counts / counts.sum()
        rng = np.random.default_rng(self.random_state)
        rows, held = np.arange(len(codes)), None
        if _can_stop_early(len(codes), len(counts)):
            rows, held = train_test_split(
                rows, test_size=self.validation_fraction, stratify=codes, random_state=self.random_state
            )
        members = [rows[codes[rows] == code] for code in range(len(counts))]
        best, waited, kept = -np.inf, 0, None
        for _ in range(self.max_iter):
            drawn = np.concatenate([_drawn(group, len(rows) // len(counts), rng) for group in members])
            self.partial_fit(Z[drawn], codes[drawn], classes=np.arange(len(counts)))
            if held is None:
                continue
            shares = self.predict_proba(Z[held])
            auc, _ = auc_with_variance(shares[:, 1] if len(counts) == 2 else shares, codes[held])
            if auc > best + self.tol:
                best, waited = auc, 0
                kept = [layer.copy() for layer in self.coefs_], [layer.copy() for layer in self.intercepts_]
            else:
                waited += 1
                if waited >= self.n_iter_no_change:
                    break
        if kept is not None:
            self.coefs_, self.intercepts_ = kept
        return self

    def predict_proba(self, Z: FloatArray) -> FloatArray:
        """Return the groups' probabilities at their true shares, as a network without balancing would."""
        weighted: FloatArray = super().predict_proba(Z) * self._shares
        return weighted / weighted.sum(axis=1, keepdims=True)


def _drawn(rows: NDArray[np.intp], n_rows: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw rows of one group, each as often as the others or once more."""
    whole, rest = divmod(max(n_rows, 1), len(rows))
    return np.concatenate([np.tile(rows, whole), rng.choice(rows, rest, replace=False)])


def equal_batches(n_rows: int, largest: int, validation_share: float = 0.1) -> int:
    """Return a batch size that divides the rows of an epoch evenly, at least four batches of them.

    The penalty is divided by a batch's rows: a last batch of a few rows would undo what the others taught.

    Examples
    --------
    >>> equal_batches(4_000, 512)
    451
    """
    n_drawn = int(n_rows * (1 - validation_share)) + 1
    return max(1, -(-n_drawn // max(4, -(-n_drawn // largest))))


def _mlp(n_rows: int, n_columns: int, n_groups: int, seed: int) -> Pipeline:
    network = _BalancedNetwork(
        (64, 32),
        alpha=3.0,  # scikit-learn divides it by the batch's size
        batch_size=equal_batches(n_rows, 512),
        learning_rate_init=4e-3,
        n_iter_no_change=6,
        max_iter=60,
        random_state=seed,
    )
    return make_pipeline(StandardScaler(), network)


PROBES: dict[str, Callable[[int, int, int, int], Any]] = {
    "linear": _linear,
    "quadratic": _quadratic,
    "kernel": _kernel,
    "trees": _trees,
    "mlp": _mlp,
}


def _builder(kind: str) -> Callable[[int, int, int, int], Any]:
    if kind not in PROBES:
        raise ValueError(f"kind is {kind!r}: choose one of {', '.join(PROBES)}")
    return PROBES[kind]
