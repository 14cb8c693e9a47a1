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
from fairstream.power.groups import GroupLedger, open_sums
from fairstream.power.products import (
    Codes,
    add_scaled,
    centre_products,
    remove_span,
)

Widths = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """Sum over some rows, times some columns of Q: the rows inside a group, outside it, or all of them."""

    columns: slice
    place: slice
    attribute: str | None = None
    group: int = 0
    inside: bool = True

    def weigh(self, Y: FloatArray, codes: Codes, out: FloatArray) -> None:
        """Write the slot's columns of Y = ZQ to `out`, every row that is not meant set to zero."""
        if self.attribute is None:
            out[:, self.place] = Y[:, self.columns]
            return
        column = codes[self.attribute]
        meant = column == self.group if self.inside else (column > 0) & (column != self.group)
        np.multiply(Y[:, self.columns], meant[:, None], out=out[:, self.place])


def component_slots(n_components: int) -> list[Slot]:
    """Sum over all rows, times V."""
    return [Slot(slice(0, n_components), slice(0, n_components))]


def group_slots(ledger: GroupLedger, widths: Widths) -> list[Slot]:
    """Sum over each group, times the one W of the first block: a group found later only adds a slot."""
    slots, start = [], 0
    for entry, attribute in sorted((e, a) for a, known in ledger.entries.items() for e in known.values()):
        width = widths[attribute]
        slots.append(Slot(slice(0, width), slice(start, start + width), attribute, entry))
        start += width
    return slots


def gap_slots(ledger: GroupLedger, widths: Widths) -> list[Slot]:
    """Sum inside and outside of each comparison, times its own W."""
    slots, start = [], 0
    for attribute, entry, columns in gap_columns(ledger, widths):
        for inside in (True, False):
            place = slice(start, start + widths[attribute])
            slots.append(Slot(columns, place, attribute, entry, inside))
            start = place.stop
    return slots


def gap_columns(ledger: GroupLedger, widths: Widths) -> list[tuple[str, int, slice]]:
    """Return every comparison's attribute, entry and columns of W."""
    columns, start = [], 0
    for attribute, _, entry in ledger.comparisons():
        columns.append((attribute, entry, slice(start, start + widths[attribute])))
        start += widths[attribute]
    return columns


def centre_block(slots: list[Slot], ledger: GroupLedger, Q: FloatArray, P: FloatArray) -> None:
    """Turn the block's products about the shift into products about the total mean, in place."""
    assert ledger.shift is not None
    delta = ledger.mean() - ledger.shift
    for slot in slots:
        entries = [slot.group] if slot.inside else ledger.rest(slot.attribute or "", slot.group)
        centre_products(P[:, slot.place], Q[:, slot.columns], *open_sums(ledger, entries), delta)


def gap_step(
    slots: list[Slot], ledger: GroupLedger, widths: Widths, Q: FloatArray, P: FloatArray
) -> FloatArray:
    """Return W <- QR(C_in W - C_out W) of every comparison, from centred products.

    A group without a row contributes zero, as the paper prints. Where nobody's group is known W stays.
    """
    first = all(slot.inside for slot in slots)  # one slot a group: the out-sum is that of the other groups
    comparisons = gap_columns(ledger, widths)
    total = comparisons[-1][2].stop
    W = np.zeros((Q.shape[0], total), dtype=Q.dtype, order="F")
    for attribute, entry, columns in comparisons:
        inside = int(ledger.open_counts[entry])
        outside, _ = open_sums(ledger, ledger.rest(attribute, entry))
        if not inside + outside:
            W[:, columns] = Q[:, : widths[attribute]] if first else Q[:, columns]
            continue
        for slot in slots:
            if slot.attribute != attribute or not (first or slot.group == entry):
                continue
            rows = inside if slot.inside and slot.group == entry else -outside
            if rows:
                add_scaled(W[:, columns], P[:, slot.place], 1 / rows)
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
    if len(ledger.comparisons()) > 1:
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
    for attribute, _, entry in ledger.comparisons():
        gap = ledger.mean_gap(attribute, entry)
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
