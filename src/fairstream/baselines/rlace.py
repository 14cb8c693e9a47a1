"""Linear adversarial concept erasure of Ravfogel et al. (2022): a projection plays against a classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.special import expit
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.utils import check_random_state

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter
from fairstream.baselines.fantope import symmetric, to_fantope
from fairstream.baselines.probe import warn_if_readable
from fairstream.linalg import SymmetricOperator, fix_signs, leading_outside, top_eigenvectors


@dataclass(eq=False, repr=False)
class RLACE(LinearFairTransformer):
    """Find the projection that makes the best linear classifier of the group worst.

    With a the group as 0/1, P in the Fantope {0 <= P <= I, tr P = r} and the logistic loss:

        maximise over P, minimise over w, b   E log(1 + exp(-(2a - 1)(w'(I - P)x + b))),

    by alternating stochastic gradient steps, with P projected on the Fantope after each. The r leading
    eigenvectors of the best P found are nulled.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    variant : {"pca", "paper"}
        "pca" nulls few directions and runs PCA in their complement. "paper" nulls d - k directions, so
        that the k that are left are the embedding, as in the experiments of the fair streaming PCA paper: it
        explains about k/d of the variance.
    rank : int, optional
        Directions nulled, r. None: 1 for "pca", d - k for "paper" (the only possible value).
    max_iter : int
        Pairs of gradient steps at most.
    evaluate_every : int
        Pairs of steps between evaluations by freshly fitted classifiers.
    tolerance : float
        Stop once their accuracy is within this of the share of the larger group.
    learning_rate, weight_decay : float
        Of both gradient steps.
    n_rows_per_step : int
        Rows drawn for each gradient step.
    random_state : int, RandomState or None
        Seeds start, rows drawn and evaluation.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    nulled_ : ndarray of shape (rank, n_features)
        Orthonormal rows that span what was removed.
    accuracy_ : float
        Accuracy of a linear classifier after the projection, on the training rows.
    n_iter_ : int
        Pairs of gradient steps done.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Warns
    -----
    FairstreamWarning
        If a linear classifier still reads the group from the embedding.

    Notes
    -----
    Cost: one d x d eigendecomposition a step, O(max_iter d^3): minutes at d = 400. Known weaknesses: two
    groups only; accuracy as the stopping rule is blind when one group is rare, and with d - k directions
    removed it stops after the first steps with a nearly random projection; the published code has no seed.

    References
    ----------
    S. Ravfogel, M. Twiton, Y. Goldberg, R. Cotterell. Linear adversarial concept erasure. ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = RLACE(2, max_iter=2000, learning_rate=0.02, random_state=0)
    >>> model = model.fit(X, sensitive_features=X[:, 0] > 0)
    >>> model.transform(X).shape
    (200, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    variant: Literal["pca", "paper"] = "pca"
    rank: int | None = None
    max_iter: int = 10_000
    evaluate_every: int = 1_000
    tolerance: float = 0.0015
    learning_rate: float = 0.005
    weight_decay: float = 1e-4
    n_rows_per_step: int = 128
    random_state: int | np.random.RandomState | None = None
    nulled_: Array = field(init=False)
    accuracy_: float = field(init=False)
    n_iter_: int = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        first, second = rows.two_groups()
        d = rows.X.shape[1]
        k = self._check_n_components(d - 1, "at least one direction is nulled")
        rank = self._rank(d, k)
        mean = rows.X.mean(axis=0)
        members = np.sort(np.concatenate([first, second]))
        target = np.isin(members, second).astype(np.float64)
        game = self._play(rows.X[members] - mean, target, rank)
        nulled = _leading(game.P, rank)
        if self.variant == "paper":  # any directions outside
            V = top_eigenvectors(-nulled @ nulled.T, k)[1]
        else:
            V = leading_outside(SymmetricOperator(scatter(rows.X)), nulled, k)
        warn_if_readable(rows, V.T, "raise max_iter or rank")
        return self._learned(
            fix_signs(V).T, mean, nulled_=nulled.T, accuracy_=game.accuracy, n_iter_=game.n_iter
        )

    def _rank(self, d: int, k: int) -> int:
        if self.variant not in ("pca", "paper"):
            raise ValueError(f'variant is {self.variant!r}: pass "pca" or "paper"')
        if not self.max_iter >= 1:
            raise ValueError(f"max_iter is {self.max_iter!r}: pass a whole number from 1")
        if self.variant == "paper":
            if self.rank not in (None, d - k):
                raise ValueError(
                    f'rank is {self.rank}, variant="paper" nulls n_features - n_components = {d - k} '
                    'directions: leave rank out, or pass variant="pca"'
                )
            return d - k
        rank = 1 if self.rank is None else int(self.rank)
        if not 1 <= rank <= d - k:
            raise ValueError(f"rank is {rank}: pass 1 to n_features - n_components = {d - k}")
        return rank

    def _play(self, X: Array, target: Array, rank: int) -> _Game:
        """Alternate steps of projection and classifier; return the best projection that was evaluated."""
        random = check_random_state(self.random_state)
        d = X.shape[1]
        P = symmetric(0.1 * random.standard_normal((d, d)))
        bound = 1 / np.sqrt(d)
        w, b = random.uniform(-bound, bound, d), float(random.uniform(-bound, bound))
        majority = max(target.mean(), 1 - target.mean())
        best = _Game(P, np.nan, 0)
        best_loss, closest = -np.inf, np.inf
        size = min(self.n_rows_per_step, len(X))
        rate, decay = self.learning_rate, self.weight_decay
        for step in range(self.max_iter):
            drawn = random.choice(len(X), size, replace=False)
            residual = expit(X[drawn] @ (w - P @ w) + b) - target[drawn]
            # Gradient of the loss by P is -X'residual w'; P climbs, its own decay shrinks it.
            climb = -symmetric(np.outer(X[drawn].T @ residual, w)) / size
            P = to_fantope((1 - rate * decay) * P + rate * climb, rank)

            drawn = random.choice(len(X), size, replace=False)
            seen = X[drawn] - X[drawn] @ P
            residual = expit(seen @ w + b) - target[drawn]
            w = (1 - rate * decay) * w - rate * (seen.T @ residual) / size
            b = (1 - rate * decay) * b - rate * float(residual.mean())

            if step % self.evaluate_every == 0 or step == self.max_iter - 1:
                loss, accuracy = _evaluate(X, target, _leading(P, rank), random)
                if loss > best_loss or abs(accuracy - majority) < closest:
                    best = _Game(P, accuracy, step + 1)
                best_loss, closest = max(loss, best_loss), min(abs(accuracy - majority), closest)
            if step > 1 and closest < self.tolerance:
                break
        return replace(best, n_iter=step + 1)


@dataclass(frozen=True, slots=True)
class _Game:
    P: Array
    accuracy: float
    n_iter: int


def _leading(P: Array, rank: int) -> Array:
    vectors: Array = top_eigenvectors(symmetric(P), rank)[1]
    return vectors


def _evaluate(X: Array, target: Array, nulled: Array, random: np.random.RandomState) -> tuple[float, float]:
    """Return the smallest loss and largest accuracy of three fresh classifiers of the projected rows."""
    projected = X - (X @ nulled) @ nulled.T
    losses, accuracies = [], []
    for _ in range(3):
        classifier = SGDClassifier(
            loss="log_loss", alpha=1e-4, tol=1e-4, n_iter_no_change=15, max_iter=25_000, random_state=random
        ).fit(projected, target)
        losses.append(log_loss(target, classifier.predict_proba(projected)))
        accuracies.append(classifier.score(projected, target))
    return min(losses), max(accuracies)
