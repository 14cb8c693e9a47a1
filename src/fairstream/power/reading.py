"""Reads rows of a block into its sums, with all the threads that BLAS has.

Few columns (p products and e group sums): products are as cheap as reading the rows, so every thread takes
rows of its own through all of them while they are in its cache, and adds to sums of its own. Many columns:
the sums are too large to have twice, and every thread takes features of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.linalg import FloatArray, in_threads, shares, small_lapack
from fairstream.linalg.products import check_values
from fairstream.power.products import MAX_SLICE_ROWS, Codes, SparseSlice, add_product, slice_rows
from fairstream.power.steps import Tally

FEW_COLUMNS = 128


@dataclass(frozen=True, slots=True)
class Reading:
    """What rows are multiplied with and where they are counted: all that stays the same through a block."""

    shift: FloatArray
    Q: FloatArray
    tallies: Sequence[Tally]
    n_slots: int

    def weighed(self, Y: FloatArray, codes: Codes) -> FloatArray:
        """Return Y = ZQ with one place per tally, rows that a tally does not mean set to zero."""
        if len(self.tallies) == 1 and self.tallies[0].attribute is None:
            return Y
        out = np.empty((len(Y), self.tallies[-1].place.stop if self.tallies else 0), dtype=Y.dtype)
        for tally in self.tallies:
            tally.weigh(Y, codes, out=out)
        return out

    def members(self, codes: Codes, n_rows: int) -> FloatArray:
        """Return which row counts for which slot of the ledger, as ones and zeros."""
        members = np.zeros((n_rows, self.n_slots), dtype=self.shift.dtype)
        for column in codes.values():
            members[np.arange(n_rows), column] = 1
        members[:, 0] = 1  # every row, and what an unknown group's code 0 has written is right too
        return members


@dataclass(slots=True)
class RowSums:
    """Counts, sums about the shift and sum of squares of some rows."""

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: float = 0.0

    @classmethod
    def none(cls, n_slots: int, n_features: int) -> RowSums:
        return cls(np.zeros(n_slots, dtype=np.int64), np.zeros((n_slots, n_features)))

    def add(self, members: FloatArray, sums: FloatArray, squares: float) -> None:
        self.counts += np.count_nonzero(members, axis=0)
        self.sums += sums
        self.squares += squares


def read_rows(X: Matrix, codes: Codes, reading: Reading, P: FloatArray) -> RowSums:
    """Add the products of the rows about the shift to P on its own memory, return the rest of the sums."""
    n_rows, n_features = X.shape
    found = RowSums.none(reading.n_slots, n_features)
    if sp.issparse(X):
        _read_sparse(X, codes, reading, P, found)
    elif P.shape[1] + reading.n_slots <= FEW_COLUMNS:
        cuts = shares(n_rows, X.size)
        with small_lapack():
            parts = in_threads(lambda rows: _read_few(X, codes, reading, P.shape[1], rows), cuts)
        for products, part in parts:
            P += products.T
            found.counts += part.counts
            found.sums += part.sums
            found.squares += part.squares
    else:
        _read_many(X, codes, reading, P, found)
    return found


def _read_few(
    X: NDArray[np.generic], codes: Codes, reading: Reading, p: int, share: slice
) -> tuple[FloatArray, RowSums]:
    """Return (weighed ZQ)'Z and the other sums of one thread's rows, both by one product per slice."""
    n_features, dtype = X.shape[1], reading.shift.dtype
    found = RowSums.none(reading.n_slots, n_features)
    products = np.zeros((p, n_features), dtype=dtype)
    both = np.empty((p + reading.n_slots, n_features), dtype=dtype)
    size = slice_rows(n_features, dtype, p)
    buffer = np.empty((min(size, share.stop - share.start), n_features), dtype=dtype)
    for start in range(share.start, share.stop, size):
        rows = slice(start, min(start + size, share.stop))
        local = {attribute: column[rows] for attribute, column in codes.items()}
        Z = buffer[: rows.stop - start]
        squares = _centre(X[rows], reading.shift, Z)
        members = reading.members(local, len(Z))
        right = members if p == 0 else np.hstack([reading.weighed(Z @ reading.Q, local), members])
        np.matmul(right.T, Z, out=both)
        products += both[:p]
        found.add(members, both[p:], squares)
    return products, found


def _read_many(X: NDArray[np.generic], codes: Codes, reading: Reading, P: FloatArray, found: RowSums) -> None:
    """Add the products slice by slice, every thread with features of its own.

    Not the threads of BLAS: after a product they wait at full speed for the next one, in the way of others.
    """
    n_rows, n_features = X.shape
    size = slice_rows(n_features, P.dtype, P.shape[1])
    buffer = np.empty((min(size, n_rows), n_features), dtype=P.dtype)
    columns = shares(n_features, buffer.size)
    for start in range(0, n_rows, size):
        rows = slice(start, min(start + size, n_rows))
        local = {attribute: column[rows] for attribute, column in codes.items()}
        Z, slab = buffer[: rows.stop - start], X[rows]
        members = reading.members(local, len(Z))

        def centre_and_project(
            part: slice, Z: FloatArray = Z, slab: NDArray[np.generic] = slab, members: FloatArray = members
        ) -> tuple[FloatArray, FloatArray, float]:
            own = Z[:, part]
            squares = _centre(slab[:, part], reading.shift[part], own)
            return own @ reading.Q[part], members.T @ own, squares

        with small_lapack():
            products, sums, squares = zip(*in_threads(centre_and_project, columns), strict=True)
        found.add(members, np.hstack(sums), sum(squares))
        add_product(P, Z.T, reading.weighed(sum(products[1:], start=products[0]), local))


def _read_sparse(X: Matrix, codes: Codes, reading: Reading, P: FloatArray, found: RowSums) -> None:
    for start in range(0, X.shape[0], MAX_SLICE_ROWS):
        rows = slice(start, min(start + MAX_SLICE_ROWS, X.shape[0]))
        local = {attribute: column[rows] for attribute, column in codes.items()}
        piece = SparseSlice(X[rows], reading.shift)
        members = reading.members(local, rows.stop - start)
        found.add(members, piece.sums(members), piece.squares())
        if P.shape[1]:
            piece.add_outer(reading.weighed(piece.dot(reading.Q), local), P)


def _centre(X: NDArray[np.generic], shift: FloatArray, Z: FloatArray) -> float:
    """Write X - 1 shift' to Z and return its sum of squares; refuse what check_values refuses."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_values says what is wrong
        np.subtract(X, shift, out=Z, casting="same_kind")  # in X's precision where that is the higher
        squares = float(np.einsum("ij,ij->i", Z, Z).sum(dtype=np.float64))
    if not squares <= 1e-12 * float(np.finfo(Z.dtype).max):  # NaN, infinity, or a number too large
        check_values(X, Z.dtype)
    return squares
