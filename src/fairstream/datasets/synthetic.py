"""Endless synthetic streams of two groups, whose population is known exactly (the paper's appendix F.1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairstream.data.blocks import Block
from fairstream.data.cutting import join_blocks, reslice, rows_between
from fairstream.data.groups import GroupColumn
from fairstream.datasets.two_groups import Population, TwoGroups
from fairstream.linalg import FloatArray, lapack

__all__ = ["Population", "SyntheticStream", "TwoGroups", "benchmark_stream", "synthetic_stream"]

Order = Literal["random", "sorted", "group_late"]

ATTRIBUTE = "group"


@dataclass(frozen=True, eq=False)
class SyntheticStream(TwoGroups):
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
        First row of group 1 in order "group_late".
    n_rows : int or None
        Length of the stream; None: endless.
    block_size : int
        Rows per block when iterated.
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

    feature_names = None

    order: Order = "random"
    late_row: int = 0
    n_rows: int | None = None
    block_size: int = 1024
    seed: int = 0
    dtype: DTypeLike = np.float64

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        super().__post_init__()
        if self.order not in ("random", "sorted", "group_late"):
            raise ValueError(f"order is {self.order!r}: choose 'random', 'sorted' or 'group_late'")
        if self.order == "sorted" and self.n_rows is None:
            raise ValueError("order is 'sorted' and n_rows is None: an endless stream has no end to sort to")
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def fresh(self, seed: int) -> SyntheticStream:
        """Return another draw of the same distribution, with another `seed`."""
        return replace(self, seed=seed)

    def sample(self, n: int, *, start: int = 0) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return rows start ... start + n - 1 of the stream and their groups (0 or 1)."""
        tiles = self._tiles(start // self._tile_rows)
        skipped = start % self._tile_rows
        rows = [*rows_between(tiles, skipped, skipped + n)] if n else []
        if not rows:
            return np.empty((0, self.n_features), self.dtype), np.empty(0, np.intp)
        block = join_blocks(rows)
        return block.X, block.groups[ATTRIBUTE].codes

    def blocks(self, block_size: int | None = None, n_rows: int | None = None) -> Iterator[Block]:
        """Yield blocks of `block_size` rows from the first row on, `n_rows` in all (None: without end)."""
        size, total = block_size or self.block_size, self.n_rows if n_rows is None else n_rows
        tiles = self._tiles(0)
        return reslice(tiles if total is None else rows_between(tiles, 0, total), size)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        return self.blocks()

    @property
    def _tile_rows(self) -> int:
        """Rows drawn at once: a function of d alone, so that no row depends on how the stream is cut."""
        return max(64, min(65_536, 2**20 // self.n_features))

    def _tiles(self, first: int) -> Iterator[Block]:
        # The noise is standardised, so each group is one product with its scaled basis.
        factors = [
            np.asarray((Q * np.sqrt(values)).T, dtype=self.dtype)
            for Q, values in zip(self.bases, self.spectra, strict=True)
        ]
        centres = (self.group_means + self.mean).astype(self.dtype)
        rank = factors[0].shape[0]
        table = None
        if self.distribution == "rademacher" and rank <= 8:
            # There are so few sign patterns that a table of all possible rows is ten times faster.
            patterns = _signs(np.arange(2**rank, dtype=np.uint8)[:, None])[:, :rank].astype(self.dtype)
            table = np.concatenate([patterns @ F + c for F, c in zip(factors, centres, strict=True)])
        for tile in itertools.count(first):
            rng = np.random.default_rng([self.seed, tile])
            codes = self._groups(rng, tile * self._tile_rows)
            groups = {ATTRIBUTE: GroupColumn(codes, (0, 1))}
            if table is not None:
                pattern = np.frombuffer(rng.bytes(len(codes)), np.uint8) & (2**rank - 1)
                yield Block(table.take((codes << rank) | pattern, axis=0), groups)
                continue
            noise = self._noise(rng, rank)
            X = noise @ factors[0] + centres[0]
            ones = np.flatnonzero(codes)
            X[ones] = noise[ones] @ factors[1] + centres[1]
            yield Block(X, groups)

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
        Whether both covariances have the same eigenvectors; otherwise each group has its own random ones.
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

    Parameters
    ----------
    decay : float
        How fast the eigenvalues fall.
    random_state : int
        Which problem is drawn.
    **stream
        Other options of `synthetic_stream`.

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
    Q, R = lapack(np.linalg.qr, rng.standard_normal((d, d)))
    return np.asarray(Q * np.sign(np.diag(R)))
