"""Endless synthetic streams of two groups whose unfair directions and fair components are known exactly.

Symbols: f mean gap, S second-moment gap, Sigma total covariance, U unfair basis, V fair components (the
paper's section 2), a = 0, 1 the group, p the probability of group 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.optimize
from numpy.typing import DTypeLike, NDArray

from fairstream.blocks import Block, FloatArray, GroupColumn
from fairstream.linalg import eigh, fix_signs, orthonormalise, project_out, top_eigenvectors

Distribution = Literal["gaussian", "uniform", "rademacher"]
Order = Literal["random", "sorted", "group_late"]

ATTRIBUTE = "group"
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
class SyntheticStream:
    """Rows of two groups, x = offset + mu_a + Q_a diag(spectrum_a)^(1/2) z, with z standardised noise.

    The stream is a `BlockSource`: re-iterable, and endless unless `n_rows` is given. Row i is the same
    whatever the block size, because rows are drawn in tiles that depend on the seed and on d alone.

    Parameters
    ----------
    bases : array-like of shape (2, d, r)
        Q_0 and Q_1, orthonormal columns.
    spectra : array-like of shape (2, r)
        Eigenvalues of the two group covariances.
    mean_gap : array-like of shape (d,)
        f = mu_1 - mu_0. The group means are placed so that the total mean is zero before the offset.
    p : float
        Probability of group 1.
    offset : float or array-like of shape (d,)
        Constant added to every row.
    distribution : {"gaussian", "uniform", "rademacher"}
        Law of the coordinates of z: independent, mean 0, variance 1. The last two are bounded, as the
        paper's Assumption 1 wants; with "rademacher" (random signs) every row of a group is equally far
        from the group's mean, which gives the smallest bound there is.
    order : {"random", "sorted", "group_late"}
        Independent groups; all of group 0 first (needs `n_rows`); or none of group 1 before row
        `late_row`, independent groups from there on.
    late_row : int
        Where group 1 begins in order "group_late".
    n_rows, block_size : int
        Length of the stream (None: endless) and rows per block when iterated.
    seed : int
        Which rows are drawn. Two streams that differ in the seed alone are fresh draws of one distribution.
    dtype : numpy dtype
        Of the rows.

    Examples
    --------
    >>> stream = synthetic_stream(n_features=10, p=0.2, random_state=0)
    >>> X, groups = stream.sample(1000)
    >>> X.shape, sorted(set(groups.tolist()))
    ((1000, 10), [0, 1])
    >>> truth = stream.population(n_components=2, n_unfair=3)
    >>> truth.U.shape, truth.V.shape
    ((10, 4), (10, 2))
    """

    bases: FloatArray
    spectra: FloatArray
    mean_gap: FloatArray
    p: float = 0.5
    offset: float | FloatArray = 0.0
    distribution: Distribution = "gaussian"
    order: Order = "random"
    late_row: int = 0
    n_rows: int | None = None
    block_size: int = 1024
    seed: int = 0
    dtype: DTypeLike = np.float64

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
        if self.order not in ("random", "sorted", "group_late"):
            raise ValueError(f"order is {self.order!r}: choose 'random', 'sorted' or 'group_late'")
        if self.order == "sorted" and self.n_rows is None:
            raise ValueError("order is 'sorted' and n_rows is None: an endless stream has no end to sort to")
        for name, value in (("bases", bases), ("spectra", spectra), ("mean_gap", gap)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "offset", np.broadcast_to(np.asarray(self.offset, float), gap.shape).copy())
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    # -- the population ----------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return int(np.shape(self.bases)[1])

    @property
    def feature_names(self) -> None:
        """No names: columns are numbered."""
        return

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
        moments than the Gaussian, so the same sigma serves, or radius / sqrt(2 log 2) where that is less.
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
            variances.append(float(np.linalg.norm(fourth - M @ M, 2)))
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
        fair = project_out(U, project_out(U, self.covariance).T)
        kappa, Q = eigh((fair + fair.T) / 2)
        V = fix_signs(project_out(U, Q[:, ::-1][:, :n_components]))
        return Population(U, V, np.abs(values), np.maximum(kappa[::-1], 0.0), self.covariance)

    # -- the rows ----------------------------------------------------------------------------------

    def fresh(self, seed: int) -> SyntheticStream:
        """Return another draw of the same distribution."""
        return replace(self, seed=seed)

    def sample(self, n: int, *, start: int = 0) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return rows start ... start + n - 1 of the stream and their groups (0 or 1)."""
        tiles = self._tiles(start // self._tile_rows)
        skipped = start % self._tile_rows
        block = next(_recut(tiles, skipped + n, skipped + n), None) if n else None
        if block is None:
            return np.empty((0, self.n_features), self.dtype), np.empty(0, np.intp)
        X, codes = block
        return X[skipped:], codes[skipped:]

    def blocks(self, block_size: int | None = None, n_rows: int | None = None) -> Iterator[Block]:
        """Yield blocks of `block_size` rows from the first row on, `n_rows` in all (None: without end)."""
        size, total = block_size or self.block_size, self.n_rows if n_rows is None else n_rows
        for X, codes in _recut(self._tiles(0), size, total):
            yield Block(X, {ATTRIBUTE: GroupColumn(codes, (0, 1))})

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        return self.blocks()

    @property
    def _tile_rows(self) -> int:
        """Rows drawn at once: a function of d alone, so that no row depends on how the stream is cut."""
        return max(64, min(65_536, 2**20 // self.n_features))

    def _tiles(self, first: int) -> Iterator[tuple[FloatArray, NDArray[np.intp]]]:
        # The noise is standardised, so each group is one product with its scaled basis.
        factors = [
            np.asarray((Q * np.sqrt(values)).T, dtype=self.dtype)
            for Q, values in zip(self.bases, self.spectra, strict=True)
        ]
        centres = (self.group_means + self.mean).astype(self.dtype)
        rank = factors[0].shape[0]
        table = None
        if self.distribution == "rademacher" and rank <= 8:
            # So few sign patterns that every possible row is listed once and looked up: ten times faster.
            patterns = _signs(np.arange(2**rank, dtype=np.uint8)[:, None])[:, :rank].astype(self.dtype)
            table = np.concatenate([patterns @ F + c for F, c in zip(factors, centres, strict=True)])
        for tile in itertools.count(first):
            rng = np.random.default_rng([self.seed, tile])
            codes = self._groups(rng, tile * self._tile_rows)
            if table is not None:
                pattern = np.frombuffer(rng.bytes(len(codes)), np.uint8) & (2**rank - 1)
                yield table.take((codes << rank) | pattern, axis=0), codes
                continue
            noise = self._noise(rng, rank)
            X = noise @ factors[0] + centres[0]
            ones = np.flatnonzero(codes)
            X[ones] = noise[ones] @ factors[1] + centres[1]
            yield X, codes

    def _groups(self, rng: np.random.Generator, start: int) -> NDArray[np.intp]:
        independent = rng.random(self._tile_rows) < self.p
        rows = np.arange(start, start + self._tile_rows)
        if self.order == "sorted" and self.n_rows is not None:
            independent = rows >= self.n_rows - round(self.p * self.n_rows)
        elif self.order == "group_late":
            independent &= rows >= self.late_row
        return independent.astype(np.intp)

    def _noise(self, rng: np.random.Generator, rank: int) -> NDArray[Any]:
        shape = (self._tile_rows, rank)
        if self.distribution == "gaussian":
            noise: FloatArray = rng.standard_normal(shape)
        elif self.distribution == "uniform":
            noise = (rng.random(shape) - 0.5) * math.sqrt(12.0)
        else:
            count = self._tile_rows * rank
            bytes_ = np.frombuffer(rng.bytes((count + 7) // 8), np.uint8)
            noise = _signs(bytes_)[:count].reshape(shape)
        return noise.astype(self.dtype, copy=False)


def synthetic_stream(
    n_features: int = 10,
    *,
    p: float = 0.2,
    decay: float | tuple[float, float] = 1.0,
    scale: float | tuple[float, float] = 1.0,
    mean_scale: float = 1.0,
    shared_subspace: bool = False,
    random_state: int = 0,
    **stream: Any,
) -> SyntheticStream:
    """Draw one problem of the paper's synthetic family (appendix F.1) at random.

    Parameters
    ----------
    n_features : int
        d.
    p : float
        Probability of group 1.
    decay, scale : float or pair of float
        Eigenvalue j of group a's covariance is scale_a * j ** -decay_a; one number serves both groups.
    mean_scale : float
        Length of the mean gap f; its direction is random, the total mean zero.
    shared_subspace : bool
        Whether both covariances have the same eigenvectors; otherwise each group has its own random ones,
        hence different leading subspaces.
    random_state : int
        Seeds the problem, and the rows too unless `seed` is given.
    **stream
        Further arguments of `SyntheticStream`: offset, distribution, order, n_rows, seed, ...

    Returns
    -------
    SyntheticStream

    Examples
    --------
    >>> stream = synthetic_stream(4, decay=(1.0, 2.0), shared_subspace=True, random_state=1)
    >>> stream.covariance.shape
    (4, 4)
    """
    rng = np.random.default_rng(random_state)
    ranks = np.arange(1, n_features + 1, dtype=float)
    spectra = [c * ranks**-a for c, a in zip(_pair(scale), _pair(decay), strict=True)]
    Q0 = _random_basis(rng, n_features)
    Q1 = Q0 if shared_subspace else _random_basis(rng, n_features)
    direction = rng.standard_normal(n_features)
    gap = mean_scale * direction / np.linalg.norm(direction)
    stream.setdefault("seed", random_state)
    return SyntheticStream(np.stack([Q0, Q1]), np.stack(spectra), gap, p=p, **stream)


def benchmark_stream(decay: float = 0.5, *, random_state: int = 0, **stream: Any) -> SyntheticStream:
    """Return the problem on which the solvers are compared: d = 200, p = 0.2, eigenvalues j ** -decay.

    Examples
    --------
    >>> benchmark_stream().n_features
    200
    """
    return synthetic_stream(200, p=0.2, decay=decay, random_state=random_state, **stream)


def _pair(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def _signs(codes: NDArray[np.uint8]) -> FloatArray:
    """Turn every bit, lowest first, into a sign."""
    return np.unpackbits(codes, axis=-1, bitorder="little") * 2.0 - 1.0


def _random_basis(rng: np.random.Generator, d: int) -> FloatArray:
    # The signs of R's diagonal make Q uniform (Haar) over the orthogonal group.
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(Q * np.sign(np.diag(R)))


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


def _recut(
    tiles: Iterator[tuple[FloatArray, NDArray[np.intp]]], block_size: int, n_rows: int | None
) -> Iterator[tuple[FloatArray, NDArray[np.intp]]]:
    """Cut a stream of tiles into blocks of `block_size` rows, `n_rows` in all."""
    X, codes = next(tiles)
    used, given = 0, 0
    while n_rows is None or given < n_rows:
        wanted = block_size if n_rows is None else min(block_size, n_rows - given)
        pieces, have = [], 0
        while have < wanted:
            if used == len(codes):
                (X, codes), used = next(tiles), 0
            take = min(wanted - have, len(codes) - used)
            pieces.append((X[used : used + take], codes[used : used + take]))
            used, have = used + take, have + take
        given += wanted
        if len(pieces) == 1:
            yield pieces[0]
        else:
            yield np.concatenate([x for x, _ in pieces]), np.concatenate([c for _, c in pieces])
