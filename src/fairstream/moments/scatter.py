"""Centred scatter matrices of many groups at once: what the exact and the sketched ones have in common.

A slot is one group of one attribute; slot 0 is all rows together. For every slot g a scatter keeps
S_g = sum over its rows of (x - mean_g)(x - mean_g)', and knows nothing of labels or attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked_signs
from fairstream.linalg import FloatArray, SymmetricOperator
from fairstream.linalg.gathering import CellProduct, GatheredRows, gathered_rows
from fairstream.linalg.products import SparseRows, provisional_origin


class Scatter(Protocol):
    """What a summary asks of its scatter matrices."""

    def draft(self) -> Self:
        """Return a scatter to work on; what is added to it does not change this one."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    @property
    def lost(self) -> float:
        """Share of all rows' energy that is no longer held."""

    def slice_rows(self, X: Matrix) -> int:
        """Rows like these to take in at a time."""

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""

    def absorb(self, new: Increment, partition: list[list[int]]) -> FloatArray:
        """Take in new rows; `partition` lists the slots of each attribute. Returns the slots' new means."""

    @property
    def rows_wait(self) -> bool:
        """Whether rows wait to be taken in."""

    def settled(self) -> Self:
        """Return the same with no row waiting to be taken in; what is read of a scatter is read of this."""

    def complete(self) -> None:
        """Do what `absorb` has put off; called once the last slice of a block is in."""

    def merge(
        self,
        other: Self,
        n: FloatArray,
        b: FloatArray,
        mean_gaps: FloatArray,
        means: FloatArray,
        slot_of: list[int],
    ) -> None:
        """Add the other's scatter; its slot j is `slot_of[j]` here.

        Per slot: n and b are the weights here and there, gaps their means less ours, means those of both.
        """

    def selected(self, features: NDArray[np.intp]) -> Self:
        """Return the scatter of some features alone."""

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator."""

    def traces(self) -> FloatArray:
        """Return the exact trace of every S_g."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header values and arrays (not copied)."""


@dataclass(frozen=True)
class Increment:
    """New rows, which of them count for which slot, and what there was before."""

    X: Matrix  # in their own type
    row_weights: FloatArray | None
    member: NDArray[np.bool_]  # slots x b
    dtype: np.dtype[Any]  # of the products
    old_weights: FloatArray  # weight per slot before
    means_before: FloatArray  # slots x d: mean per slot before
    about_zero: bool = False  # take the rows as they stand

    @cached_property
    def scale(self) -> FloatArray:
        """Square root of the row weights."""
        return np.ones(self.X.shape[0]) if self.row_weights is None else np.sqrt(self.row_weights)

    @property
    def row_scale(self) -> FloatArray | None:
        """The scale, None if all rows count the same."""
        return None if self.row_weights is None else self.scale

    @cached_property
    def weighted_member(self) -> FloatArray:
        """What a scaled row counts in the sum of a slot, slots x b."""
        return (self.member * self.scale).astype(self.dtype)

    @cached_property
    def weights(self) -> FloatArray:
        """New weight per slot."""
        if self.row_weights is None:
            return np.count_nonzero(self.member, axis=1).astype(np.float64)
        weights: FloatArray = self.member @ self.row_weights
        return weights

    @cached_property
    def origin(self) -> FloatArray:
        """What the rows are taken about: the running mean, or nearly that of the first rows."""
        if self.about_zero:
            return np.zeros(self.X.shape[1])
        origin = self.means_before[0] if self.old_weights[0] > 0 else provisional_origin(self.X)
        # As the rows will subtract it: else rounding shifts float32 means by 1e-4 at an offset of 1e4.
        return origin.astype(self.dtype).astype(np.float64)

    def products(self, cells: Sequence[NDArray[np.intp]]) -> Iterator[list[CellProduct]]:
        """Yield products of the cells' rows about the origin, some at a time.

        The upper triangle of a product counts, and the next one overwrites it.
        """
        about = self.origin, self.row_scale, self.dtype
        rows = (
            SparseRows(self.X, *about) if sp.issparse(self.X) else gathered_rows(np.asarray(self.X), *about)
        )
        if isinstance(rows, GatheredRows):
            return rows.products(cells)
        return ([CellProduct(number, *one)] for number, one in enumerate(rows.products(cells)))

    @property
    def old_means(self) -> FloatArray:
        """Mean per slot before, about the origin, slots x d."""
        return np.where(self.old_weights[:, None] > 0, self.means_before - self.origin, 0.0)

    def means(self, sums: FloatArray) -> FloatArray:
        """Return the mean per slot with the new rows, given their weighted sums about the origin."""
        total = self.old_weights + self.weights
        total = np.where(total > 0, total, 1.0)[:, None]
        means: FloatArray = self.origin + (self.old_weights[:, None] * self.old_means + sums) / total
        return means

    @property
    def chan_weights(self) -> FloatArray:
        """The factor n b / (n + b) of Chan's correction per slot, 0 if a slot is empty on one side."""
        return chan_weights(self.old_weights, self.weights)

    def block_means(self, sums: FloatArray) -> FloatArray:
        """Return the mean of the new rows per slot about the origin, 0 for a slot without new rows."""
        return sums / np.where(self.weights > 0, self.weights, 1.0)[:, None]


def chan_weights(n: FloatArray, b: FloatArray) -> FloatArray:
    """Return n b / (n + b), with 0 for 0 / 0."""
    total = n + b
    return n * b / np.where(total > 0, total, 1.0)


def check_symmetric(cores: FloatArray) -> None:
    """Refuse cores that are not symmetric, one matrix at a time."""
    for core in cores:
        if np.abs(core - core.T).max(initial=0.0) > 1e-6 * np.abs(core).max(initial=0.0):
            raise FairstreamFileError("a second-moment matrix is not symmetric: write the file again")


def check_variances(variances: NDArray[Any], arrays: Arrays, header: Header) -> None:
    """Refuse negative variances. Rounding may leave some, small beside the squares they came from."""
    weights, means = arrays["weights"], arrays["means"]
    with np.errstate(over="ignore"):
        squares = float(weights[0]) * float(np.abs(means).max(initial=0.0)) ** 2 * means.shape[1]
        scale = squares + float(np.abs(variances).max(initial=0.0))
    checked_signs(variances, "variances", (1e-3 if header["dtype"] == "float32" else 1e-6) * scale)
