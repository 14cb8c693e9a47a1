"""One step of the fair noisy power method: what a block sums up, and what is made of the sums when it ends.

Symbols: W holds every comparison's d x m estimate side by side, V is d x k, U the unfair basis; Q is
whichever of W and V the step multiplies with, P the block's products with it. All are Fortran-ordered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.linalg import FloatArray, eigh, orthonormalise_in_place
from fairstream.power.bases import (
    fix_signs_in_place,
    orthonormalise_outside,
    rank_revealing_basis,
    symmetric_product,
)
from fairstream.power.ledger import GroupLedger, open_sums
from fairstream.power.products import (
    Codes,
    add_scaled,
    centre_products,
    remove_span,
)

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


def centre_block(tallies: list[Tally], ledger: GroupLedger, Q: FloatArray, P: FloatArray) -> None:
    """Turn the block's products about the shift into products about the total mean, in place."""
    assert ledger.shift is not None
    delta = ledger.mean() - ledger.shift
    for tally in tallies:
        slots = [tally.slot] if tally.inside else ledger.index.rest(tally.attribute or "", tally.slot)
        centre_products(P[:, tally.place], Q[:, tally.columns], *open_sums(ledger, slots), delta)


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
                add_scaled(W[:, columns], P[:, tally.place], 1 / rows)
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
        remove_span(W, g)
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


def component_step(
    U: FloatArray, V: FloatArray, P: FloatArray, n_rows: int
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Return V <- QR((I - UU')CV), on the memory of the centred products P = n C V, and V'CV's eigenvalues.

    The columns follow the principal axes of C inside V, largest first, which leaves their span as it is.
    """
    values, axes = eigh(symmetric_product(V, P) / n_rows)
    orthonormalise_outside(U, P, axes[:, ::-1])
    fix_signs_in_place(P)
    return P, np.maximum(values[::-1], 0.0)
