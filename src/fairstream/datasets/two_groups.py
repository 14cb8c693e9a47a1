"""Distributions of two groups whose moments, unfair directions and fair components are known exactly.

Symbols: f mean gap, S second-moment gap, Sigma total covariance, U unfair basis, V fair components (the
paper's section 2), a = 0, 1 the group, p the probability of group 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.optimize

from fairstream.linalg import (
    FloatArray,
    SymmetricOperator,
    lapack,
    leading_outside,
    orthonormalise,
    spectrum_outside,
    top_eigenvectors,
)

Distribution = Literal["gaussian", "uniform", "rademacher"]

# Fourth moment and largest square of one standardised coordinate.
_KURTOSIS = {"gaussian": 3.0, "uniform": 1.8, "rademacher": 1.0}
_LARGEST_SQUARE = {"gaussian": math.inf, "uniform": 3.0, "rademacher": 1.0}


@dataclass(frozen=True, eq=False)
class Population:
    """The exact answer to one fair PCA problem, columns as in the paper.

    Attributes
    ----------
    U : ndarray of shape (d, m')
        Orthonormal basis of the unfair subspace.
    V : ndarray of shape (d, k)
        The k fair components of largest variance.
    unfair_singular_values : ndarray of shape (d,)
        nu_1 >= ... >= nu_d, of the second-moment gap S (Assumption 2).
    fair_singular_values : ndarray of shape (d,)
        kappa_1 >= ... >= kappa_d, of the covariance outside U (Assumption 2).
    covariance : ndarray of shape (d, d)
        Sigma, about the total mean.
    """

    U: FloatArray
    V: FloatArray
    unfair_singular_values: FloatArray
    fair_singular_values: FloatArray
    covariance: FloatArray

    @property
    def explained_variance(self) -> float:
        """The variance that the best fair components keep, tr(V' Sigma V)."""
        return float(np.sum(self.V * (self.covariance @ self.V)))


@dataclass(frozen=True, eq=False)
class TwoGroups:
    """Two groups of rows, x = offset + mu_a + Q_a diag(spectrum_a)^(1/2) z, with z standardised noise.

    `SyntheticStream`, which draws the rows, explains the parameters.
    """

    bases: FloatArray
    spectra: FloatArray
    mean_gap: FloatArray
    p: float = 0.5
    offset: float | FloatArray = 0.0
    distribution: Distribution = "gaussian"

    def __post_init__(self) -> None:
        """Turn the arguments into arrays and refuse what cannot be drawn."""
        bases, spectra = np.asarray(self.bases, dtype=float), np.asarray(self.spectra, dtype=float)
        gap = np.asarray(self.mean_gap, dtype=float)
        if bases.ndim != 3 or bases.shape[0] != 2 or bases.shape[2] > bases.shape[1]:
            raise ValueError(
                f"bases has shape {bases.shape}: give (2, d, r) with r <= d, one basis per group"
            )
        if spectra.shape != (2, bases.shape[2]) or not np.all(spectra >= 0):
            raise ValueError(
                f"spectra has shape {spectra.shape}, minimum {spectra.min()}: give {(2, bases.shape[2])} "
                "eigenvalues >= 0"
            )
        gram = np.swapaxes(bases, 1, 2) @ bases
        if not np.allclose(gram, np.eye(bases.shape[2]), atol=1e-8):
            raise ValueError("bases has columns that are not orthonormal: take the Q of a QR factorisation")
        if gap.shape != (bases.shape[1],):
            raise ValueError(
                f"mean_gap has shape {gap.shape}: give ({bases.shape[1]},), one entry per feature"
            )
        if not 0 < self.p < 1:
            raise ValueError(f"p is {self.p}: both groups need a probability between 0 and 1")
        if self.distribution not in _KURTOSIS:
            raise ValueError(f"distribution is {self.distribution!r}: choose one of {sorted(_KURTOSIS)}")
        for name, value in (("bases", bases), ("spectra", spectra), ("mean_gap", gap)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "offset", np.broadcast_to(np.asarray(self.offset, float), gap.shape).copy())

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return int(np.shape(self.bases)[1])

    @property
    def mean(self) -> FloatArray:
        """Total mean, the offset."""
        return np.array(self.offset)

    @property
    def probabilities(self) -> tuple[float, float]:
        """Probability of group 0 and of group 1."""
        return 1.0 - self.p, self.p

    @property
    def group_means(self) -> FloatArray:
        """mu_0 and mu_1 less the total mean, as rows."""
        return np.stack([-self.p * self.mean_gap, (1.0 - self.p) * self.mean_gap])

    @cached_property
    def group_covariances(self) -> FloatArray:
        """Sigma_0 and Sigma_1, shape (2, d, d)."""
        return np.asarray((self.bases * self.spectra[:, None, :]) @ np.swapaxes(self.bases, 1, 2))

    @cached_property
    def group_second_moments(self) -> FloatArray:
        """E[xx'|a] about the total mean, shape (2, d, d)."""
        means = self.group_means
        return np.asarray(self.group_covariances + means[:, :, None] * means[:, None, :])

    @cached_property
    def covariance(self) -> FloatArray:
        """Sigma: the covariance of all rows together."""
        return np.tensordot(np.array(self.probabilities), self.group_second_moments, axes=1)

    @cached_property
    def second_moment_gap(self) -> FloatArray:
        """S = E[xx'|1] - E[xx'|0], about the total mean."""
        moments = self.group_second_moments
        return np.asarray(moments[1] - moments[0])

    @property
    def radius(self) -> float:
        """Largest distance of a row from its group's mean; infinite for Gaussian rows."""
        return math.sqrt(_LARGEST_SQUARE[self.distribution] * float(np.sum(self.spectra, axis=1).max()))

    @cached_property
    def norm_sub_gaussian(self) -> float:
        """A sigma for which both groups are norm-sub-Gaussian (Assumption 1).

        E exp(|y|^2 / (2 sigma^2)) <= 2 suffices, by Markov's inequality. For Gaussian rows the expectation
        is prod_j (1 - lambda_j / sigma^2)^(-1/2), solved for sigma; the bounded laws have smaller even
        moments than the Gaussian, so the same sigma is valid, or radius / sqrt(2 log 2) if that is less.
        """
        gaussian = max(_gaussian_sigma(spectrum) for spectrum in self.spectra)
        return min(gaussian, self.radius / math.sqrt(2 * math.log(2)))

    @cached_property
    def matrix_variance(self) -> float:
        """Largest |E[(xx')^2 | a] - E[xx'|a]^2| of the two groups, the V of Assumption 1, in closed form."""
        excess = _KURTOSIS[self.distribution] - 1.0
        variances = []
        for mu, C, M in zip(self.group_means, self.group_covariances, self.group_second_moments, strict=True):
            outer, trace, length = np.outer(mu, mu), np.trace(C), mu @ mu
            fourth = length * M + trace * M + 2 * (outer @ C + C @ outer) + excess * C @ C
            variances.append(float(lapack(np.linalg.norm, fourth - M @ M, 2)))
        return max(variances)

    def population(self, n_components: int, n_unfair: int = 1, constraint: str = "all") -> Population:
        """Solve the fair PCA problem of this distribution exactly (paper, Eqns. 2 and 4).

        Parameters
        ----------
        n_components : int
            k, the number of fair components.
        n_unfair : int
            m, the number of eigenvectors of S to null.
        constraint : {"none", "mean", "covariance", "all"}
            What U spans: nothing, f, the eigenvectors of S, or both.

        Returns
        -------
        Population
            U, V, Sigma and the singular values whose gaps make the problem easy or hard.
        """
        if constraint not in ("none", "mean", "covariance", "all"):
            raise ValueError(f"constraint is {constraint!r}: choose 'none', 'mean', 'covariance' or 'all'")
        d = self.n_features
        values, P = top_eigenvectors(self.second_moment_gap, d, by="absolute")
        columns: list[FloatArray] = [np.zeros((d, 0))]
        if constraint in ("covariance", "all"):
            columns.append(P[:, :n_unfair])
        if constraint in ("mean", "all"):
            columns.append(self.mean_gap[:, None])
        U = orthonormalise(np.hstack(columns))
        if n_components + U.shape[1] > d:
            raise ValueError(
                f"n_components is {n_components} and {U.shape[1]} directions are nulled, the stream has {d} "
                "features: lower n_components or n_unfair"
            )
        V = leading_outside(SymmetricOperator(self.covariance), U, n_components)
        return Population(U, V, np.abs(values), spectrum_outside(self.covariance, U), self.covariance)


def _gaussian_sigma(spectrum: FloatArray) -> float:
    """Solve prod_j (1 - lambda_j / sigma^2)^(-1/2) = 2 for sigma."""
    total, largest = float(spectrum.sum()), float(spectrum.max())
    if largest == 0:
        return 0.0

    def excess(variance: float) -> float:
        return float(-0.5 * np.sum(np.log1p(-spectrum / variance))) - math.log(2)

    # At 4/3 of the largest eigenvalue one factor alone is 2; at twice the trace the product is below 2.
    low, high = largest * (4 / 3) * (1 - 1e-12), 2 * total
    return math.sqrt(scipy.optimize.brentq(excess, low, high))
