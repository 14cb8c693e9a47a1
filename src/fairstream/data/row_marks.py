"""RowMarks: a few hundred hashes of rows, by which rows that a model was fitted on are recognised later.

A mark is 64 bits: 16 of a hash of a few columns of the row, 16 of a hash of some more, and 32 of a hash of
all columns. The smallest marks are kept, so which ones depends on the rows alone, however they were cut,
ordered or merged. A row is hashed further only if its first bits are among the smallest, which is cheap. No
row can be computed from its mark; whoever has a whole row can tell whether it is one of the marked ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.data.fingerprints import Words, row_fingerprints, scrambled
from fairstream.files.format import checked

MOST_MARKS = 256
COLUMNS = (4, 16)  # that the first bits depend on, and the first and second
_KEY = 0x4D41524B
_AT_FIRST = 2  # times as many rows as marks
_WORTH_COUNTING = 2**13  # rows, so that they outweigh the counts of all 16 bits
_LARGEST = np.uint64(np.iinfo(np.uint64).max)
_Rows = NDArray[np.intp]


class RowMarks:
    """The smallest marks of all rows so far; it never changes, `updated` and `merged` return others.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1_000, 4))
    >>> whole = RowMarks().updated(X)
    >>> parts = RowMarks().updated(X[600:]).merged(RowMarks().updated(X[:600]))
    >>> bool((whole.values == parts.values).all()), len(whole.values)
    (True, 256)
    >>> whole.recognised(X), whole.recognised(X + 1.0)[0]
    ((256, 256), 0)
    """

    def __init__(self, values: Words | None = None) -> None:
        self.values: Words = np.zeros(0, dtype=np.uint64) if values is None else values

    def updated(self, X: Matrix) -> RowMarks:
        """Return the marks with those of more rows."""
        marks = _marks(X, self._bound, MOST_MARKS)
        return RowMarks(_smallest(self.values, marks)) if len(marks) else self

    def merged(self, other: RowMarks) -> RowMarks:
        """Return the marks of the rows of both."""
        return RowMarks(_smallest(self.values, other.values))

    def recognised(self, X: Matrix) -> tuple[int, int]:
        """Return how many rows of X are among the marked ones, and of how many that can be told."""
        marks = _marks(X, self._bound, X.shape[0])
        marks = marks[marks <= self._bound]
        return int(np.isin(marks, self.values).sum()), len(marks)

    @property
    def _bound(self) -> np.uint64:
        """The largest mark that would be kept."""
        return np.uint64(self.values[-1]) if len(self.values) == MOST_MARKS else _LARGEST


def checked_marks(values: NDArray[Any]) -> Words:
    """Return marks that a file holds, after checking that they can be some."""
    checked(values.dtype == np.uint64 and values.ndim == 1 and len(values) <= MOST_MARKS, "row marks")
    checked(bool((values[1:] > values[:-1]).all()), "row marks and their order")
    return values


def _smallest(*marks: Words) -> Words:
    return np.unique(np.concatenate(marks))[:MOST_MARKS]


def _marks(X: Matrix, bound: np.uint64, most: int) -> Words:
    """Return the marks of all rows that may be up to the bound and among the `most` smallest."""
    bits = _first_bits(X, None, 0)
    if len(bits) < _WORTH_COUNTING:
        rows = np.flatnonzero(bits <= bound >> np.uint64(48))
        return _deeper(X, rows, bits[rows].astype(np.uint64), bound, most)
    counts = np.bincount(bits, minlength=1)[: int(bound >> np.uint64(48)) + 1]
    # Rows with other bits have other marks; equal rows have one between them. So the fewest rows with the
    # smallest bits are tried, and more of them as long as they have too few marks.
    up_to, distinct = np.cumsum(counts), np.cumsum(counts > 0)
    n_rows, enough = up_to[-1], np.searchsorted(distinct, most)
    wanted = n_rows if n_rows <= most else _AT_FIRST * most
    while True:
        largest = min(np.searchsorted(up_to, min(wanted, n_rows)), enough)
        rows = np.flatnonzero(bits <= largest)
        marks = _deeper(X, rows, bits[rows].astype(np.uint64), bound, most)
        if largest == enough or len(rows) == n_rows or len(np.unique(marks)) >= most:
            return marks
        wanted = 4 * len(rows)


def _deeper(X: Matrix, rows: _Rows, bits: Words, bound: np.uint64, most: int) -> Words:
    """Return the marks of those of some rows that may be up to the bound and among the `most` smallest."""
    if not len(rows):
        return bits
    bits = (bits << np.uint64(16)) | _first_bits(X, rows, 1)
    largest = bound >> np.uint64(32)
    if len(rows) > most:
        distinct = np.unique(bits)
        largest = min(largest, distinct[:most][-1])
    stays = np.flatnonzero(bits <= largest)
    whole = scrambled(row_fingerprints(X[rows[stays]], _KEY)) >> np.uint64(32)
    return (bits[stays] << np.uint64(32)) | whole


def _first_bits(X: Matrix, rows: _Rows | None, level: int) -> NDArray[np.uint16]:
    """Return 16 bits for every row, or for some, from a few columns.

    Complemented, so that rows of zeros, which a sparse table has many of, come last and are rarely hashed
    as a whole.
    """
    columns, factors = _hashed(X.shape[1], level)
    if sp.issparse(X):
        values = (X if rows is None else X[rows])[:, columns].toarray().astype(np.float64)
    elif rows is None:
        values = np.empty((X.shape[0], len(columns)))
        for place, column in enumerate(columns.tolist()):  # quicker than to choose all of them at once
            values[:, place] = np.asarray(X)[:, column]
    else:
        values = np.asarray(X)[rows[:, None], columns].astype(np.float64)
    values += 0.0  # -0 is 0
    # Unlike `row_fingerprints`, one product a number: these bits only choose rows.
    hashes = values.view(np.uint64) @ factors
    hashes ^= hashes >> np.uint64(32)
    hashes *= factors[0]
    return (~hashes >> np.uint64(48)).astype(np.uint16)


@cache
def _hashed(n_features: int, level: int) -> tuple[NDArray[np.intp], Words]:
    """Return the columns of a level and their factors: the same for every block of that width."""
    rng = np.random.default_rng([_KEY, level])
    columns = np.sort(rng.permutation(n_features)[: COLUMNS[level]]).astype(np.intp)
    return columns, rng.integers(0, 2**64, len(columns), dtype=np.uint64) | np.uint64(1)
