"""Fingerprints: a 64-bit hash of the values of each row, independent of blocks, order and storage."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix

Words = NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SLICE_NUMBERS = 2**20  # hashed at a time: temporaries stay in the cache


def row_fingerprints(X: Matrix, key: int = 0) -> Words:
    """Return a 64-bit hash of every row of X; zeros do not count, stored or not.

    Parameters
    ----------
    X : array or sparse matrix (n, d)
        Values are compared as float64, so float32 rows and the same numbers in float64 agree.
    key : int
        Another key gives other hashes.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> h = row_fingerprints(X)
    >>> bool(h[0] == h[2] != h[1]), bool((h == row_fingerprints(sp.csr_array(X))).all())
    (True, True)
    """
    factors = _factors(X.shape[1], key)
    if sp.issparse(X):
        X = sp.csr_array(X)
        X.sum_duplicates()
        terms = _bits(X.data) * factors[X.indices]
        ends = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return ends[X.indptr[1:]] - ends[X.indptr[:-1]]  # sums wrap around, and so do their differences
    hashes = np.zeros(X.shape[0], dtype=np.uint64)
    step = max(1, _SLICE_NUMBERS // max(X.shape[1], 1))
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        hashes[rows] = _bits(np.asarray(X[rows])) @ factors
    return hashes


def scrambled(words: Words) -> Words:
    """Spread the bits of 64-bit words, one to one, 0 to 0 (the finaliser of SplitMix64)."""
    words = words ^ (words >> np.uint64(30))
    words *= _MULTIPLIERS[0]
    words ^= words >> np.uint64(27)
    words *= _MULTIPLIERS[1]
    words ^= words >> np.uint64(31)
    return words


@lru_cache(4)
def _factors(n_columns: int, key: int) -> Words:
    rng = np.random.default_rng([key, 0x5EED])
    factors: Words = rng.integers(0, 2**64, n_columns, dtype=np.uint64) | np.uint64(1)
    factors.setflags(write=False)
    return factors


def _bits(values: NDArray[Any]) -> Words:
    """Return the scrambled bits of every number as float64; 0 for 0 and for -0."""
    return scrambled((values.astype(np.float64) + 0.0).view(np.uint64))
