"""One step of the fair noisy power method: how a block is summed up, and what is made of the sums.

Symbols: W holds every comparison's d x m estimate side by side, V is d x k, U the unfair basis; Q is
whichever of W and V the step multiplies with, P the block's products with it. All are Fortran-ordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    is_cast_exactly,
    is_near_zero,
    row_slices,
    slice_rows,
    stands_near,
    stands_ready,
)
from fairstream.power.ledger import GroupLedger

FEW_COLUMNS = 128  # of products and sums together: up to here every thread may have sums of its own
ROWS_IN_ONE_SUM = 1_024  # that are added up in the computing precision, before float64 takes over
ROWS_AS_THEY_STAND = 2_048  # multiplied at a time if they need no copy
WIDENED_COLUMNS = 16  # of Q that may be copied: with more it takes memory, and is not worth it
WHOLE_COLUMNS = 4  # BLAS takes columns in fours or eights, and any that are left over are slow

Codes = Mapping[str, NDArray[np.intp]]
Widths = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """Sum over rows, times some columns of Q: all rows, or each as often as its group's factor says."""

    columns: slice
    place: slice
    attribute: str | None = None
    factors: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))  # one per slot


def component_tallies(n_components: int) -> list[Tally]:
    """Sum over all rows, times V."""
    return [Tally(slice(0, n_components), slice(0, n_components))]


def group_tallies(ledger: GroupLedger, widths: Widths) -> list[Tally]:
    """Sum over each group, times the one W of the first block: a group found later only adds a tally."""
    tallies, start = [], 0
    for attribute, label in ledger.index.listed():
        width = widths[attribute]
        factors = _factors(ledger, {ledger.index.slot(attribute, label): 1.0})
        tallies.append(Tally(slice(0, width), slice(start, start + width), attribute, factors))
        start += width
    return tallies


def side_tallies(ledger: GroupLedger, widths: Widths) -> list[Tally]:
    """Sum inside and outside of each comparison, times its own W: how many rows there will be is unknown."""
    tallies, start = [], 0
    for attribute, slot, columns in gap_columns(ledger, widths):
        for slots in ([slot], ledger.index.rest(attribute, slot)):
            place = slice(start, start + widths[attribute])
            tallies.append(Tally(columns, place, attribute, _factors(ledger, dict.fromkeys(slots, 1.0))))
            start = place.stop
    return tallies


def gap_tallies(
    ledger: GroupLedger, widths: Widths, counts: NDArray[np.int64], *, first: bool
) -> list[Tally]:
    """Sum inside minus sum outside of each comparison, over the rows of each that `counts` has.

    Times its own W, or the one W of the first block. Half the sums of `side_tallies`. The sums are as large
    as the two together are: n/n_in inside, and -n/n_out outside. A side without a row counts for nothing, as
    the paper prints.
    """
    tallies = []
    for attribute, slot, place in gap_columns(ledger, widths):
        rest = ledger.index.rest(attribute, slot)
        inside, outside = int(counts[slot]), int(counts[rest].sum())
        known = inside + outside
        factors = dict.fromkeys(rest, -known / outside) if outside else {}
        factors |= {slot: known / inside} if inside else {}
        columns = slice(0, widths[attribute]) if first else place
        tallies.append(Tally(columns, place, attribute, _factors(ledger, factors)))
    return tallies


def _factors(ledger: GroupLedger, factors: Mapping[int, float]) -> NDArray[np.float64]:
    found = np.zeros(ledger.index.n_slots)
    found[[*factors]] = [*factors.values()]
    return found


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
    fresh: bool = False  # whether these are the first rows of their block, and all sums are zero
    standing: bool = False  # whether Z' is multiplied as X', and what that makes too much is taken off later
    widened: FloatArray | None = None  # Q with columns of zeros after it, if that is quicker to multiply with

    def factors(self, codes: Codes, n_rows: int) -> FloatArray | None:
        """Return how often every row counts in every place of a tally; None if Y = ZQ is taken as it is."""
        if [tally.attribute for tally in self.tallies] == [None]:
            return None
        factors = np.zeros((n_rows, len(self.picked())), dtype=self.Q.dtype)
        for tally in self.tallies:
            factors[:, tally.place] = tally.factors[codes[tally.attribute or ""]][:, None]
        return factors

    def picked(self) -> NDArray[np.intp]:
        """Return the column of Q that every place of a tally is summed with."""
        columns = [np.arange(tally.columns.start, tally.columns.stop) for tally in self.tallies]
        return np.concatenate([np.arange(0), *columns])

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
    of them while they are in its cache, and adds to sums of its own. It first copies them to memory that it
    has just used: several passes over rows that come from afar take longer. Many columns: the sums are too
    large to have twice, and the threads share every product. Not the threads of BLAS: after a product they
    wait at full speed for the next one, in the way of others.
    """
    (n_rows, n_features), p = X.shape, P.shape[1]
    few = not sp.issparse(X) and p + reading.n_slots <= FEW_COLUMNS
    in_cache = few and torch_device() is None
    if in_cache:  # rows are copied anyway, and small whole numbers are sooner cast than centred
        standing = is_cast_exactly(X, P.dtype) and is_near_zero(X, reading.shift, P.dtype)
        widened = _widened(reading.Q) if reading.Q.shape[1] <= WIDENED_COLUMNS else None
        reading = replace(reading, standing=standing, widened=widened)
    else:
        reading = replace(reading, standing=stands_near(X, reading.shift, P.dtype))

    def read_share(rows: slice) -> tuple[FloatArray, RowSums]:
        with small_lapack():  # once, not for every product
            lines = p + reading.n_slots
            products = np.zeros((_whole(lines) if in_cache else lines, n_features), dtype=P.dtype)
            return products, _read_few(X[rows], _taken(codes, rows), reading, products)

    if not few:
        found = _read(X, codes, reading, P.T)
    else:
        with small_lapack():
            parts = in_threads(read_share, shares(n_rows, X.size) if in_cache else [slice(n_rows)])
        found = RowSums.empty(reading, p)
        for products, part in parts:
            P += products[:p].T
            found.add(part)
    if reading.standing:
        found.move_to_shift(reading.shift, P)
    return found


def _whole(columns: int) -> int:
    return -(-columns // WHOLE_COLUMNS) * WHOLE_COLUMNS


def _widened(Q: FloatArray) -> FloatArray:
    """Return Q with columns of zeros after it, up to a number that BLAS is quick with, in C order."""
    wide = np.zeros((len(Q), _whole(Q.shape[1])), dtype=Q.dtype)
    wide[:, : Q.shape[1]] = Q
    return wide


def _read(X: Matrix, codes: Codes, reading: Reading, products: FloatArray) -> RowSums:
    """Add (weighed ZQ)'Z of the centred rows Z to `products` (p x d), return their other sums."""
    found = RowSums.empty(reading, len(products))
    fresh = reading.fresh and not sp.issparse(X)
    for rows, weighed, members in _weighed_slices(X, codes, reading, found):
        if fresh:
            rows.combine(weighed.T, products)
        else:
            rows.add_combined(weighed.T, products)
        found.sums += rows.combine(members.T)
        fresh = False
    return found


def _read_few(X: Matrix, codes: Codes, reading: Reading, both: FloatArray) -> RowSums:
    """Add (weighed ZQ)'Z to the first rows of `both`; those after them are room for the sums of the slots.

    One product for both, while the rows are in the cache. Any more rows of `both` stay zero.
    """
    columns = len(reading.picked())
    end = columns + reading.n_slots
    sums, added = both[columns:end], 0
    found = RowSums.empty(reading, columns)
    room = np.empty_like(both)  # BLAS is quicker on few columns if it need not add
    for rows, weighed, members in _weighed_slices(X, codes, reading, found):
        T = np.zeros((len(both), len(weighed)), dtype=both.dtype)
        T[:columns], T[columns:end] = weighed.T, members.T
        np.add(both, rows.combine(T, room), out=both)
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
    sparse, columns, picked = sp.issparse(X), len(found.weighed), reading.picked()
    few = not sparse and columns + reading.n_slots <= FEW_COLUMNS
    size = MAX_SLICE_ROWS if sparse else slice_rows(n_features, dtype, columns)
    origin, along, buffer = reading.shift, None, None
    Q = reading.Q if reading.widened is None else reading.widened
    if reading.standing:
        origin, along = np.zeros_like(origin), inner_product(origin[:, None], reading.Q)
    if reading.standing and stands_ready(X, dtype):
        if not few or torch_device() is not None:
            size = max(size, ROWS_AS_THEY_STAND)
    elif not sparse:
        buffer = np.empty((min(size, n_rows), n_features), dtype=dtype)
    for stretch in row_slices(n_rows, size * -(-ROWS_IN_ONE_SUM // size)):  # what is quick for many rows
        local, n_local = _taken(codes, stretch), stretch.stop - stretch.start
        factors, members = reading.factors(local, n_local), reading.members(local, n_local)
        found.counts += np.count_nonzero(members, axis=0)
        for cut in row_slices(n_local, size):
            slab = X[stretch.start + cut.start : stretch.start + cut.stop]
            rows = centred_rows(slab, origin, None, dtype, buffer)
            squares = rows.squares()
            if not squares <= 1e-12 * float(np.finfo(dtype).max):  # NaN, infinity, or a number too large
                check_values(slab.data if sparse else slab, dtype)
            Y = rows.dot(Q.T)[:, : reading.Q.shape[1]]
            if along is not None:
                Y -= along
            found.squares += squares
            if reading.n_inside:
                found.inside += inner_product(Y, Y)
            weighed = Y if factors is None else Y[:, picked] * factors[cut]
            found.weighed += weighed.sum(axis=0, dtype=np.float64)
            yield rows, weighed, members[cut]


def _taken(codes: Codes, rows: slice) -> Codes:
    return {attribute: column[rows] for attribute, column in codes.items()}


def gap_products(gaps: Sequence[Tally], tallies: Sequence[Tally], P: FloatArray) -> FloatArray:
    """Return the products of gaps from those of `side_tallies` or `group_tallies`, which they are sums of."""
    W = np.zeros((P.shape[0], gaps[-1].place.stop), dtype=P.dtype, order="F")
    for gap in gaps:
        for tally in tallies:
            if (tally.attribute, tally.columns) == (gap.attribute, gap.columns):
                _add_scaled(W[:, gap.place], P[:, tally.place], gap.factors[np.argmax(tally.factors)])
    return W


def gap_step(gaps: Sequence[Tally], ledger: GroupLedger, Q: FloatArray, P: FloatArray) -> FloatArray:
    """Return W <- QR(C_in W - C_out W) of every comparison, on the memory of its products about the shift.

    Where nobody's group is known W stays.
    """
    for gap in gaps:
        W = P[:, gap.place]
        if gap.factors.any():
            centre_products(gap, ledger, Q, W)
            orthonormalise_in_place(W)
        else:
            W[...] = Q[:, gap.columns]
    return P


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
        V'P with P = n C V.
    triangle : array (k, k)
        T with V' = (I - UU') P T.
    n_rows : int
        n.
    """

    inside: NDArray[np.float64]
    triangle: FloatArray
    n_rows: int

    def worked_out(self) -> tuple[NDArray[np.float64], FloatArray, FloatArray]:
        """Return the variances along V, the turn of V' to its axes, and the cosines between V and both.

        The axes are those of C inside V, largest first: the turned V' is the QR factor of (I - UU') C V axes.
        """
        values, axes = eigh(self.inside)
        back = lapack(
            scipy.linalg.solve_triangular, self.triangle, axes[:, ::-1], overwrite_b=True, check_finite=False
        )
        turn = lapack(scipy.linalg.qr, back, mode="economic", overwrite_a=True, check_finite=False)[0]
        # V is orthogonal to U, so V'(I - UU')PT = V'PT: small matrices tell what a product with V would.
        return np.maximum(values[::-1], 0.0) / self.n_rows, turn, self.inside @ (self.triangle @ turn)


def component_step(
    U: FloatArray, V: FloatArray, P: FloatArray, n_rows: int, inside: NDArray[np.float64]
) -> tuple[FloatArray, ComponentStep | tuple[NDArray[np.float64], None, FloatArray]]:
    """Return V <- QR((I - UU')CV), on the memory of the centred products P = n C V, and what tells of it.

    `inside` is V'P if it is known, else 0 x 0. Columns that are far from orthogonal are turned to the
    principal axes at once, which leaves their span as it is: the next step finds them nearer to orthogonal.
    """
    inside = inside if inside.size else symmetric_product(V, P)
    T = orthonormalise_settled(U, P)
    if T is not None:
        return P, ComponentStep(inside, T, n_rows)
    values, axes = eigh(inside)
    T = orthonormalise_outside(U, P, axes[:, ::-1])
    cosines = inner_product(V, P).astype(np.float64) if T is None else inside @ T
    return P, (np.maximum(values[::-1], 0.0) / n_rows, None, cosines)


# Products on existing memory ------------------------------------------------------------------------


def centre_products(
    tally: Tally, ledger: GroupLedger, Q: FloatArray, P: FloatArray, inside: NDArray[np.float64] | None = None
) -> None:
    """Turn a tally's P = sum z z'Q about the shift into one about the total mean: a rank-two correction.

    `inside` is Q'P, and is corrected with it, unless it is None or 0 x 0.
    """
    assert ledger.shift is not None
    slots = len(tally.factors)
    n_rows = float(tally.factors @ ledger.open_counts[:slots])
    row_sum = tally.factors @ ledger.open_sums[:slots]
    towards = np.asfortranarray(np.stack([ledger.mean() - ledger.shift, row_sum]).T, dtype=P.dtype)
    along = inner_product(towards, Q[:, tally.columns]).astype(np.float64)
    correction = np.stack([along[1] - n_rows * along[0], along[0]])
    add_product(P, towards, correction, alpha=-1.0)
    if inside is not None and inside.size:
        inside -= along.T @ correction


def _add_scaled(A: FloatArray, P: FloatArray, alpha: float) -> None:
    """Add alpha P to A on its own memory, both Fortran-ordered."""
    if A.size == 0:
        return
    axpy = scipy.linalg.get_blas_funcs("axpy", (A,))
    flat = A.ravel(order="F")
    result = axpy(P.ravel(order="F"), flat, a=alpha)
    if not np.shares_memory(result, A):
        A[...] = result.reshape(A.shape, order="F")
