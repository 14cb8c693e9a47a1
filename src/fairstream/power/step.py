"""One step of the fair noisy power method: how a block is summed up, and what is made of the sums.

Symbols: W holds every comparison's d x m estimate side by side, V is d x k, U the unfair basis; Q is
whichever of W and V the step multiplies with, P the block's products with it. All are Fortran-ordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.linalg import (
    FloatArray,
    add_product,
    eigh,
    in_threads,
    inner_product,
    lapack,
    orthonormalise_in_place,
    orthonormalise_outside,
    shares,
    small_lapack,
)
from fairstream.linalg.bases import (
    orthonormalise_settled,
    project_out_in_place,
    rank_revealing_basis,
    symmetric_product,
)
from fairstream.linalg.engine import torch_device
from fairstream.linalg.products import (
    MAX_SLICE_ROWS,
    CentredRows,
    centred_rows,
    check_values,
    row_slices,
    slice_rows,
    stands_near,
)
from fairstream.power.ledger import GroupLedger, open_sums

FEW_COLUMNS = 128  # of products and sums together: up to here every thread may have sums of its own
ROWS_IN_ONE_SUM = 1_024  # that are added up in the computing precision, before float64 takes over
ROWS_AS_THEY_STAND = 2_048  # multiplied at a time if they need no copy

Codes = Mapping[str, NDArray[np.intp]]
Widths = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """Sum over some rows, times some columns of Q: the rows inside a group, outside it, or all of them."""

    columns: slice
    place: slice
    attribute: str | None = None
    slot: int = 0  # of the group
    inside: bool = True

    def weigh(self, Y: FloatArray, codes: Codes, out: FloatArray) -> None:
        """Write the tally's columns of Y = ZQ to `out`, every row that is not meant set to zero."""
        if self.attribute is None:
            out[:, self.place] = Y[:, self.columns]
            return
        column = codes[self.attribute]
        meant = column == self.slot if self.inside else (column > 0) & (column != self.slot)
        np.multiply(Y[:, self.columns], meant[:, None], out=out[:, self.place])


def component_tallies(n_components: int) -> list[Tally]:
    """Sum over all rows, times V."""
    return [Tally(slice(0, n_components), slice(0, n_components))]


def group_tallies(ledger: GroupLedger, widths: Widths) -> list[Tally]:
    """Sum over each group, times the one W of the first block: a group found later only adds a tally."""
    tallies, start = [], 0
    for attribute, label in ledger.index.listed():
        width = widths[attribute]
        slot = ledger.index.slot(attribute, label)
        tallies.append(Tally(slice(0, width), slice(start, start + width), attribute, slot))
        start += width
    return tallies


def gap_tallies(ledger: GroupLedger, widths: Widths) -> list[Tally]:
    """Sum inside and outside of each comparison, times its own W."""
    tallies, start = [], 0
    for attribute, slot, columns in gap_columns(ledger, widths):
        for inside in (True, False):
            place = slice(start, start + widths[attribute])
            tallies.append(Tally(columns, place, attribute, slot, inside))
            start = place.stop
    return tallies


def gap_columns(ledger: GroupLedger, widths: Widths) -> list[tuple[str, int, slice]]:
    """Return every comparison's attribute, slot and columns of W."""
    columns, start = [], 0
    for attribute, group in ledger.index.comparisons():
        columns.append(
            (attribute, ledger.index.slot(attribute, group), slice(start, start + widths[attribute]))
        )
        start += widths[attribute]
    return columns


@dataclass(frozen=True, slots=True)
class Reading:
    """What rows are multiplied with and where they are counted: all that stays the same through a block."""

    shift: FloatArray
    Q: FloatArray
    tallies: Sequence[Tally]
    n_slots: int
    n_inside: int = 0  # columns of Y = ZQ whose inner products are wanted: all or none
    standing: bool = False  # whether Z' is multiplied as X', and what that makes too much is taken off later

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
    """Counts, sums about the shift, sum of squares and Y'Y (or 0 x 0) of some rows, and sums of weighed Y."""

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    inside: NDArray[np.float64]
    weighed: NDArray[np.float64]
    squares: float = 0.0

    @classmethod
    def empty(cls, reading: Reading, columns: int) -> RowSums:
        """Return the sums of no row, for so many columns of weighed Y."""
        return cls(
            np.zeros(reading.n_slots, dtype=np.int64),
            np.zeros((reading.n_slots, len(reading.shift))),
            np.zeros((reading.n_inside, reading.n_inside)),
            np.zeros(columns),
        )

    def add(self, other: RowSums) -> None:
        """Add the sums of other rows."""
        self.counts += other.counts
        self.sums += other.sums
        self.inside += other.inside
        self.weighed += other.weighed
        self.squares += other.squares

    def move_to_shift(self, shift: FloatArray, P: FloatArray) -> None:
        """Make of sums and products X'Y about zero those about the shift, P on its own memory."""
        origin = shift.astype(np.float64)
        add_product(P, shift[:, None], self.weighed[None], alpha=-1.0)
        n_rows = float(self.counts[0])
        self.squares += n_rows * float(origin @ origin) - 2 * float(origin @ self.sums[0])
        self.squares = max(self.squares, 0.0)
        self.sums -= np.outer(self.counts, origin)


def read_rows(X: Matrix, codes: Codes, reading: Reading, P: FloatArray) -> RowSums:
    """Add the products of the rows about the shift to P on its own memory, return the rest of the sums.

    Few columns: products are as cheap as reading the rows, so every thread takes rows of its own through all
    of them while they are in its cache, and adds to sums of its own. Many columns: the sums are too large to
    have twice, and the threads share every product. Not the threads of BLAS: after a product they wait at
    full speed for the next one, in the way of others.
    """
    (n_rows, n_features), p = X.shape, P.shape[1]
    reading = replace(reading, standing=stands_near(X, reading.shift, P.dtype))

    def read_share(rows: slice) -> tuple[FloatArray, RowSums]:
        products = np.zeros((p + reading.n_slots, n_features), dtype=P.dtype)
        return products, _read_few(X[rows], _taken(codes, rows), reading, products)

    if sp.issparse(X) or p + reading.n_slots > FEW_COLUMNS:
        found = _read(X, codes, reading, P.T)
    else:
        with small_lapack():
            parts = in_threads(
                read_share, shares(n_rows, X.size) if torch_device() is None else [slice(n_rows)]
            )
        found = RowSums.empty(reading, p)
        for products, part in parts:
            P += products[:p].T
            found.add(part)
    if reading.standing:
        found.move_to_shift(reading.shift, P)
    return found


def _read(X: Matrix, codes: Codes, reading: Reading, products: FloatArray) -> RowSums:
    """Add (weighed ZQ)'Z of the centred rows Z to `products` (p x d), return their other sums."""
    found = RowSums.empty(reading, len(products))
    for rows, weighed, members in _weighed_slices(X, codes, reading, found):
        rows.add_combined(weighed.T, products)
        found.sums += rows.combine(members.T)
    return found


def _read_few(X: Matrix, codes: Codes, reading: Reading, both: FloatArray) -> RowSums:
    """Add (weighed ZQ)'Z to the first rows of `both`; the others are room for the sums of the slots.

    One product for both, while the rows are in the cache.
    """
    found = RowSums.empty(reading, len(both) - reading.n_slots)
    sums, added = both[len(both) - reading.n_slots :], 0
    room = np.empty_like(both)  # BLAS is quicker on few columns if it need not add
    for rows, weighed, members in _weighed_slices(X, codes, reading, found):
        np.add(both, rows.combine(np.hstack([weighed, members]).T, room), out=both)
        added += len(members)
        if added >= ROWS_IN_ONE_SUM:
            found.sums += sums
            sums[:], added = 0, 0
    found.sums += sums
    return found


def _weighed_slices(
    X: Matrix, codes: Codes, reading: Reading, found: RowSums
) -> Iterator[tuple[CentredRows, FloatArray, FloatArray]]:
    """Yield Z (or X), weighed ZQ and members a slice at a time; add what they alone tell to `found`."""
    (n_rows, n_features), dtype = X.shape, reading.shift.dtype
    sparse, columns = sp.issparse(X), len(found.weighed)
    size = MAX_SLICE_ROWS if sparse else slice_rows(n_features, dtype, columns)
    origin, along, buffer = reading.shift, None, None
    if reading.standing:
        origin, along = np.zeros_like(origin), inner_product(origin[:, None], reading.Q)
        if columns + reading.n_slots > FEW_COLUMNS or torch_device() is not None:
            size = max(size, ROWS_AS_THEY_STAND)
    elif not sparse:
        buffer = np.empty((min(size, n_rows), n_features), dtype=dtype)
    for cut in row_slices(n_rows, size):
        local, slab = _taken(codes, cut), X[cut]
        rows = centred_rows(slab, origin, None, dtype, buffer)
        squares = rows.squares()
        if not squares <= 1e-12 * float(np.finfo(dtype).max):  # NaN, infinity, or a number too large
            check_values(slab.data if sparse else slab, dtype)
        Y, members = rows.dot(reading.Q.T), reading.members(local, slab.shape[0])
        if along is not None:
            Y -= along
        found.squares += squares
        found.counts += np.count_nonzero(members, axis=0)
        if reading.n_inside:
            found.inside += inner_product(Y, Y)
        weighed = reading.weighed(Y, local)
        found.weighed += weighed.sum(axis=0, dtype=np.float64)
        yield rows, weighed, members


def _taken(codes: Codes, rows: slice) -> Codes:
    return {attribute: column[rows] for attribute, column in codes.items()}


def centre_block(tallies: list[Tally], ledger: GroupLedger, Q: FloatArray, P: FloatArray) -> None:
    """Turn the block's products about the shift into products about the total mean, in place."""
    assert ledger.shift is not None
    delta = ledger.mean() - ledger.shift
    for tally in tallies:
        slots = [tally.slot] if tally.inside else ledger.index.rest(tally.attribute or "", tally.slot)
        _centre_products(P[:, tally.place], Q[:, tally.columns], *open_sums(ledger, slots), delta)


def gap_step(
    tallies: list[Tally], ledger: GroupLedger, widths: Widths, Q: FloatArray, P: FloatArray
) -> FloatArray:
    """Return W <- QR(C_in W - C_out W) of every comparison, from centred products.

    A group without a row contributes zero, as the paper prints. Where nobody's group is known W stays.
    """
    first = all(
        tally.inside for tally in tallies
    )  # one tally a group: the out-sum is that of the other groups
    comparisons = gap_columns(ledger, widths)
    total = comparisons[-1][2].stop
    W = np.zeros((Q.shape[0], total), dtype=Q.dtype, order="F")
    for attribute, slot, columns in comparisons:
        inside = int(ledger.open_counts[slot])
        outside, _ = open_sums(ledger, ledger.index.rest(attribute, slot))
        if not inside + outside:
            W[:, columns] = Q[:, : widths[attribute]] if first else Q[:, columns]
            continue
        for tally in tallies:
            if tally.attribute != attribute or not (first or tally.slot == slot):
                continue
            rows = inside if tally.inside and tally.slot == slot else -outside
            if rows:
                _add_scaled(W[:, columns], P[:, tally.place], 1 / rows)
        orthonormalise_in_place(W[:, columns])
    return W


def unfair_basis_of(W: FloatArray, ledger: GroupLedger, *, with_means: bool) -> FloatArray:
    """Return U = [W | g/|g|] or, for several comparisons, a basis of all W and all mean gaps f together."""
    rtol = 1e-8 if W.dtype == np.float64 else 1e-4
    gaps = _unit_mean_gaps(ledger, W.dtype) if with_means else []
    U = np.zeros((W.shape[0], W.shape[1] + len(gaps)), dtype=W.dtype, order="F")
    U[:, : W.shape[1]] = W
    for column, gap in enumerate(gaps, start=W.shape[1]):
        U[:, column] = gap
    if len(ledger.index.comparisons()) > 1:
        return rank_revealing_basis(U, rtol)
    if not gaps:
        return U
    g = U[:, -1:]
    for _ in range(2):  # twice: what rounding leaves after the first projection
        project_out_in_place(W, g)
    length = float(np.linalg.norm(g))
    if length <= rtol:
        return U[:, :-1]
    g /= length
    return U


def _unit_mean_gaps(ledger: GroupLedger, dtype: np.dtype[Any]) -> list[NDArray[np.float64]]:
    """Return f/|f| of every comparison, without those unknown or zero to rounding."""
    gaps = []
    noise = (1e-12 if dtype == np.float64 else 1e-6) * np.sqrt(ledger.total_variance())
    for attribute, group in ledger.index.comparisons():
        gap = ledger.mean_gap(attribute, group)
        if gap is None:
            continue
        length = float(np.linalg.norm(gap))
        if length > noise:
            gaps.append(gap / length)
    return gaps


@dataclass(frozen=True, slots=True)
class ComponentStep:
    """What small matrices tell of a step V -> V', worked out only when somebody asks.

    inside : array (k, k)
        V'CV.
    triangle : array (k, k)
        T with V' = (I - UU') C V T.
    """

    inside: NDArray[np.float64]
    triangle: FloatArray

    def worked_out(self) -> tuple[NDArray[np.float64], FloatArray, FloatArray]:
        """Return the variances along V, the turn of V' to its axes, and the cosines between V and both.

        The axes are those of C inside V, largest first: the turned V' is the QR factor of (I - UU') C V axes.
        """
        values, axes = eigh(self.inside)
        back = lapack(
            scipy.linalg.solve_triangular, self.triangle, axes[:, ::-1], overwrite_b=True, check_finite=False
        )
        turn = lapack(scipy.linalg.qr, back, mode="economic", overwrite_a=True, check_finite=False)[0]
        # V is orthogonal to U, so V'(I - UU')CVT = V'CVT: small matrices tell what a product with V would.
        return np.maximum(values[::-1], 0.0), turn, self.inside @ (self.triangle @ turn)


def component_step(
    U: FloatArray, V: FloatArray, P: FloatArray, n_rows: int, inside: NDArray[np.float64]
) -> tuple[FloatArray, ComponentStep | tuple[NDArray[np.float64], None, FloatArray]]:
    """Return V <- QR((I - UU')CV), on the memory of the centred products P = n C V, and what tells of it.

    `inside` is V'P if it is known, else 0 x 0. Columns that are far from orthogonal are turned to the
    principal axes at once, which leaves their span as it is: the next step finds them nearer to orthogonal.
    """
    inside = (inside if inside.size else symmetric_product(V, P)) / n_rows
    T = orthonormalise_settled(U, P)
    if T is not None:
        return P, ComponentStep(inside, T * n_rows)
    values, axes = eigh(inside)
    T = orthonormalise_outside(U, P, axes[:, ::-1])
    cosines = inner_product(V, P).astype(np.float64) if T is None else n_rows * inside @ T
    return P, (np.maximum(values[::-1], 0.0), None, cosines)


def centred_inside(inside: NDArray[np.float64], ledger: GroupLedger, V: FloatArray) -> NDArray[np.float64]:
    """Return V'P of the block's centred products, from Y'Y about the shift."""
    assert ledger.shift is not None
    if not inside.size:
        return inside
    n_rows, row_sum = open_sums(ledger, [0])
    delta, total = inner_product(np.stack([ledger.mean() - ledger.shift, row_sum]).T.astype(V.dtype), V)
    apart = np.outer(delta.astype(np.float64), total)
    centred: NDArray[np.float64] = inside - apart - apart.T + n_rows * np.outer(delta, delta)
    return centred


# Products on existing memory ------------------------------------------------------------------------


def _centre_products(
    P: FloatArray, Q: FloatArray, n_rows: int, row_sum: NDArray[np.float64], delta: NDArray[np.float64]
) -> None:
    """Turn P = sum z z'Q into sum (z - delta)(z - delta)'Q on its own memory: a rank-two correction."""
    towards = np.asfortranarray(np.stack([delta, row_sum]).T, dtype=P.dtype)
    along_delta, along_sum = inner_product(towards, Q)
    add_product(P, towards, np.stack([along_sum - n_rows * along_delta, along_delta]), alpha=-1.0)


def _add_scaled(A: FloatArray, P: FloatArray, alpha: float) -> None:
    """Add alpha P to A on its own memory, both Fortran-ordered."""
    if A.size == 0:
        return
    axpy = scipy.linalg.get_blas_funcs("axpy", (A,))
    flat = A.ravel(order="F")
    result = axpy(P.ravel(order="F"), flat, a=alpha)
    if not np.shares_memory(result, A):
        A[...] = result.reshape(A.shape, order="F")
