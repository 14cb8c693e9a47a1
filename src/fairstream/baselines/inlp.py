"""Iterative null-space projection of Ravfogel et al. (2020): remove what linear classifiers read, in turn."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import numpy as np
from scipy.sparse.linalg import ArpackError, eigsh
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from fairstream.baselines.base import Array, GroupedRows, Learned, LinearFairTransformer, scatter
from fairstream.baselines.probe import warn_if_readable
from fairstream.linalg import (
    SymmetricOperator,
    fix_signs,
    lapack,
    leading_outside,
    orthonormalise,
    project_out,
    top_eigenvectors,
)


@dataclass(eq=False, repr=False)
class INLP(LinearFairTransformer):
    """Null the weights of linear classifiers of the group, one after another.

    Round t fits a linear support vector machine to the projected rows::

        minimise over w  |w|^2 / 2 + C sum_i max(0, 1 - a_i w'P_{t-1} x_i)^2,

    and P_t projects out w as well. It stops after `max_rounds` rounds, or when the weights vanish because no
    linear information is left.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    variant : {"pca", "paper"}
        "pca" runs PCA inside the range of P. "paper" takes k eigenvectors of P itself, as in
        the experiments of the fair streaming PCA paper: all those eigenvalues are 1, so the result is an
        arbitrary k-dimensional subspace of the range (set by `random_state`) and explains about k/d of
        the variance.
    max_rounds : int, optional
        None allows d - n_components rounds.
    C : float
        Inverse regularisation of the classifiers.
    random_state : int, RandomState or None
        Seeds the classifiers and, for "paper", the eigenvector iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    nulled_ : ndarray of shape (n_nulled, n_features)
        Orthonormal basis of what was removed.
    n_rounds_ : int
        Rounds that found something to remove.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.

    Warns
    -----
    FairstreamWarning
        If a linear classifier still reads the group from the embedding.

    Notes
    -----
    Cost: one linear SVM on n x d rows a round, usually tens of rounds. Takes one attribute with any number
    of groups (one-versus-rest weights). Known weaknesses: it removes far more directions than the one that
    equal means need, though no guarantee follows for any single probe; it sees nothing but linear
    differences.

    References
    ----------
    S. Ravfogel, Y. Elazar, H. Gonen, M. Twiton, Y. Goldberg. Null it out: guarding protected attributes by
    iterative nullspace projection. ACL 2020.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> INLP(2, random_state=0).fit_transform(X, sensitive_features=X[:, 0] > 0).shape
    (100, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    variant: Literal["pca", "paper"] = "pca"
    max_rounds: int | None = None
    C: float = 1.0
    random_state: int | np.random.RandomState | None = None
    nulled_: Array = field(init=False)
    n_rounds_: int = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        if self.variant not in ("pca", "paper"):
            raise ValueError(f'variant is {self.variant!r}: pass "pca" or "paper"')
        random = check_random_state(self.random_state)
        d = rows.X.shape[1]
        k = self._check_n_components(d - 1, "at least one direction is nulled")
        rounds = d - k if self.max_rounds is None else min(int(self.max_rounds), d - k)
        mean = rows.X.mean(axis=0)
        codes = rows.attribute().codes
        nulled, n_rounds = self._null(rows.X[codes >= 0] - mean, codes[codes >= 0], rounds, d - k, random)
        if self.variant == "paper":
            V = _any_eigenvectors(nulled, k, random)
        else:
            V = leading_outside(SymmetricOperator(scatter(rows.X)), nulled, k)
        warn_if_readable(rows, V.T, "raise max_rounds or lower n_components")
        return self._learned(fix_signs(V).T, mean, nulled_=nulled.T, n_rounds_=n_rounds)

    def _null(
        self, X: Array, codes: np.ndarray, rounds: int, most: int, random: np.random.RandomState
    ) -> tuple[Array, int]:
        """Return an orthonormal basis (d x j, j <= most) of the classifiers' weights, and the rounds used."""
        nulled: Array = np.zeros((X.shape[1], 0))
        for used in range(rounds):
            classifier = LinearSVC(C=self.C, fit_intercept=False, dual=False, random_state=random)
            weights = classifier.fit(X, codes).coef_.T
            if np.allclose(weights, 0):
                return nulled, used
            found = orthonormalise(project_out(nulled, weights))[:, : most - nulled.shape[1]]
            nulled = np.hstack([nulled, found])
            X = project_out(nulled, X.T).T
            if nulled.shape[1] == most:
                return nulled, used + 1
        return nulled, rounds


def _any_eigenvectors(nulled: Array, k: int, random: np.random.RandomState) -> Array:
    """Return k eigenvectors of P = I - NN' by Lanczos iteration from a random start."""
    d = len(nulled)
    start = random.standard_normal(d)
    if k >= d - 1:  # too large a share for Lanczos iteration; d is small enough to decompose
        vectors: Array = top_eigenvectors(np.eye(d) - nulled @ nulled.T, k)[1]
        return vectors
    P = np.eye(d) - nulled @ nulled.T
    try:
        _, vectors = eigsh(P, k, which="LM", v0=start)
    except ArpackError:  # no convergence; any directions of the range will do
        vectors = lapack(np.linalg.qr, P @ random.standard_normal((d, k)))[0]
    return vectors
