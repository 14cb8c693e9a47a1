"""Centred scatter matrices of many groups at once: what the exact and the sketched ones have in common.

A slot is one group of one attribute; slot 0 is all rows together. For every slot g a scatter keeps
S_g = sum over its rows of (x - mean_g)(x - mean_g)', and knows nothing of labels or attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked_signs
from fairstream.linalg import FloatArray, SymmetricOperator
from fairstream.linalg.products import CentredRows, DenseRows


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

    def slice_rows(self) -> int:
        """Rows to take in at a time."""

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""

    def absorb(
        self, new: Increment, partition: list[list[int]], meanwhile: Callable[[], DenseRows] | None = None
    ) -> DenseRows | None:
        """Take in new rows; `partition` lists the slots of each attribute.

        A scatter that has work for one thread only may call `meanwhile` in another and return its answer.
        """

    def merge(
        self, other: Self, n: FloatArray, b: FloatArray, mean_gaps: FloatArray, slot_of: list[int]
    ) -> None:
        """Add the other's scatter; its slot j is `slot_of[j]` here; gaps are their means less ours.

        n and b are the weights per slot, here and there.
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


@dataclass(frozen=True, slots=True)
class Increment:
    """New rows about the running mean, and which of them count for which slot."""

    rows: CentredRows
    member: NDArray[np.bool_]  # slots x b
    scale: FloatArray  # square root of the row weights, b
    weights: FloatArray  # new weight per slot
    sums: FloatArray  # slots x d: weighted sum of the new rows about the origin
    old_weights: FloatArray  # weight per slot before
    old_means: FloatArray  # slots x d: mean per slot before, about the origin

    @property
    def chan_weights(self) -> FloatArray:
        """The factor n b / (n + b) of Chan's correction per slot, 0 if a slot is empty on one side."""
        return chan_weights(self.old_weights, self.weights)

    def is_far(self, squared_norms: FloatArray) -> bool:
        """Return whether the rows lie so far from the origin that in float32 their spread is rounding."""
        distance = float(self.weights[0] * np.sum(self.block_means[0] ** 2))
        total = float(squared_norms.sum())
        return len(squared_norms) > 1 and total > 0 and distance > 999 * max(total - distance, 0.0)

    def in_double(self) -> Increment:
        """Return the same rows for work in float64."""
        rows = self.rows.in_double()
        return replace(self, rows=rows, sums=rows.combine(self.member * self.scale))

    @property
    def block_means(self) -> FloatArray:
        """Mean of the new rows per slot about the origin, 0 for a slot without new rows."""
        return self.sums / np.where(self.weights > 0, self.weights, 1.0)[:, None]


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
