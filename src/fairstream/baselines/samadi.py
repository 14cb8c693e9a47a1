"""Fair PCA of Samadi et al. (2018): no group's reconstruction suffers more than the other's."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import numpy as np

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter, spread
from fairstream.linalg import eigh, fix_signs, top_eigenvectors


@dataclass(eq=False, repr=False)
class SamadiFairPCA(LinearFairTransformer):
    """Balance the excess reconstruction loss of two groups by multiplicative weights.

    With A_a the n_a rows of group a, centred by the group's own mean, and best_a the largest value that
    <A_a'A_a, P> takes over rank-k projections P:

        minimise  max_a (1/n_a) (best_a - <A_a'A_a, P>)  subject to  0 <= P <= I,  tr P <= k.

    Each of `n_rounds` rounds solves a PCA of the weighted groups and raises the weight of the group that
    lost more; the answer is the average of the rounds or the last one, whichever has the smaller maximum.

    Parameters
    ----------
    n_components : int
        The trace bound k; also the width of the embedding for ``embedding="components"``.
    embedding : {"components", "published"}
        "components" embeds with the k leading eigenvectors of P. "published" is the map
        x (I - (I - P)^(1/2)) of the authors, which has as many columns as x: k does not bound its width.
    n_rounds : int
        Rounds of multiplicative weights.
    step_size : float, optional
        Growth rate of the weights. None takes 20 / n_components, the value of the paper's experiments.
    standardize : bool
        Bring features to unit sample variance first, as in the paper's experiments; the learned P
        is then applied to rows as they are.

    Attributes
    ----------
    components_ : ndarray of shape (n_features_out, n_features)
        The linear map, in the form ``embedding`` asks for.
    projection_ : ndarray of shape (n_features, n_features)
        P.
    group_losses_ : ndarray of shape (2,)
        Excess loss of each group, in the order of the labels.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Notes
    -----
    Cost: n_rounds + 2 eigendecompositions, O(n d^2 + d^3). Known weaknesses: it equalises reconstruction
    errors, not distributions, so the embedding still tells the group; P has rank up to k * n_rounds, and
    rounding it to k columns loses the guarantee; two groups only; five rounds are far from converged.

    References
    ----------
    S. Samadi, U. Tantipongpipat, J. Morgenstern, M. Singh, S. Vempala. The price of fair PCA: one extra
    dimension. NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> model = SamadiFairPCA(2).fit(X, sensitive_features=X[:, 0] > 0)
    >>> model.transform(X).shape
    (100, 2)
    >>> SamadiFairPCA(2, embedding="published").fit_transform(X, sensitive_features=X[:, 0] > 0).shape
    (100, 5)
    """

    n_components: int = 2
    _: KW_ONLY
    embedding: Literal["components", "published"] = "components"
    n_rounds: int = 5
    step_size: float | None = None
    standardize: bool = True
    projection_: Array = field(init=False)
    group_losses_: Array = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        if self.embedding not in ("components", "published"):
            raise ValueError(f'embedding is {self.embedding!r}: pass "components" or "published"')
        if self.n_rounds < 1:
            raise ValueError(f"n_rounds is {self.n_rounds!r}: at least one round is needed")
        k = self._check_n_components(rows.X.shape[1], "there are no more directions")
        scaled = rows.X / spread(rows.X, ddof=1) if self.standardize else rows.X
        covariances = [scatter(scaled[members]) for members in rows.two_groups()]
        step_size = 20.0 / k if self.step_size is None else float(self.step_size)
        P, losses = _balance(covariances, k, self.n_rounds, step_size)
        if self.embedding == "published":
            components = _published_map(P)
        else:
            components = fix_signs(top_eigenvectors(P, k)[1]).T
        return self._learned(components, rows.X.mean(axis=0), projection_=P, group_losses_=losses)


def _balance(covariances: list[Array], k: int, n_rounds: int, step_size: float) -> tuple[Array, Array]:
    """Return the better of the average and the last projection, and its losses."""
    best = np.array([top_eigenvectors(C, k)[0].sum() for C in covariances])

    def losses(P: Array) -> Array:
        lost: Array = best - np.array([np.sum(C * P) for C in covariances])
        return lost

    log_weights = np.zeros(2)
    average = np.zeros_like(covariances[0])
    for _ in range(n_rounds):
        # Logarithms of weights: exp(step_size * loss) overflows on features of large scale.
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        _, V = top_eigenvectors(weights[0] * covariances[0] + weights[1] * covariances[1], k)
        last = V @ V.T
        average += last / n_rounds
        log_weights += step_size * losses(last)
    P = average if losses(average).max() <= losses(last).max() else last
    return P, losses(P)


def _published_map(P: Array) -> Array:
    values, vectors = eigh(P)
    shrunk: Array = (vectors * (1 - np.sqrt(np.clip(1 - values, 0, None)))) @ vectors.T
    return shrunk
