"""Exact scatter matrices: one d x d matrix for every group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.files.format import Arrays, Header, checked
from fairstream.linalg import FloatArray, SymmetricOperator, plus_rank_one
from fairstream.linalg.memory import refuse_beyond_memory
from fairstream.moments.scatter import Increment, chan_weights, check_symmetric, check_variances


class ExactScatter:
    """One d x d matrix per slot. Memory O(G d^2)."""

    def __init__(self, n_features: int) -> None:
        self.cores = np.zeros((1, n_features, n_features))

    lost: float = 0.0
    rows_wait: bool = False
    _owned = False  # whether nobody else holds the cores, so that they may be written to

    def draft(self) -> ExactScatter:
        """Return a scatter to work on; what is added to it does not change this one."""
        draft = ExactScatter.__new__(ExactScatter)
        draft.cores = self.cores
        return draft

    def _owned_cores(self) -> FloatArray:
        if not self._owned:
            self.cores, self._owned = self.cores.copy(), True
        return self.cores

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.cores.nbytes)

    def slice_rows(self) -> int:
        """Rows to take in at a time: enough that adding a d x d matrix to another costs little beside."""
        return max(self.cores.shape[1], 4_000_000 // self.cores.shape[1])

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""
        missing = n_slots - len(self.cores)
        if missing > 0:
            d = self.cores.shape[1]
            what = f"the exact moments of {d:,} features and {n_slots - 1} groups"
            needed = 8 * d * d * 2 * n_slots  # an update keeps the old ones until the new ones are complete
            refuse_beyond_memory(needed, what, 'use solver="sketch" or "power" (rank= for GroupMoments)')
            self.cores = np.concatenate([self.cores, np.zeros((missing, d, d))])
            self._owned = True

    def settled(self) -> ExactScatter:
        """Return itself: no row waits."""
        return self

    def absorb(self, new: Increment, partition: list[list[int]]) -> FloatArray:
        """Take in new rows; `partition` lists the slots of each attribute. Returns the slots' new means."""
        before, after = self.cores, self.cores if self._owned else np.empty_like(self.cores)
        block_means, factors = new.block_means, new.chan_weights
        steps = block_means - new.old_means

        def add(slot: int, product: FloatArray) -> None:
            # About the block's own mean, then Chan's step from there to the common mean: two rank-one terms.
            pair = np.stack([block_means[slot], steps[slot]])
            weighted = pair.T * [-new.weights[slot], factors[slot]]
            if self._owned:
                product += weighted @ pair
            else:  # the same sum on memory that is there anyway
                product = np.add(np.matmul(weighted, pair, out=after[slot]), product, out=after[slot])
            np.add(before[slot], product, out=after[slot])

        first, *others = partition or [[]]
        total: FloatArray | None = None
        for slot in (slot for slot in first if new.weights[slot] > 0):
            product = self._product(new, new.member[slot])
            total = product.copy() if total is None else np.add(total, product, out=total)
            add(slot, product)
        rest: NDArray[np.bool_] = ~np.any(new.member[first], axis=0) if first else new.member[0]
        if rest.any():
            product = self._product(new, rest)
            total = product if total is None else np.add(total, product, out=total)
        assert total is not None  # every row is in a group of the first attribute, or in none
        add(0, total)
        for slot in (slot for slots in others for slot in slots if new.weights[slot] > 0):
            add(slot, self._product(new, new.member[slot]))
        if not self._owned:
            same = np.flatnonzero(new.weights == 0)
            after[same] = before[same]
        self.cores, self._owned = after, True
        return new.means

    @staticmethod
    def _product(new: Increment, member: NDArray[np.bool_]) -> FloatArray:
        index = np.flatnonzero(member)
        return new.rows.scatter(slice(None) if index.size == member.size else index).astype(
            np.float64, copy=False
        )

    def merge(
        self,
        other: ExactScatter,
        n: FloatArray,
        b: FloatArray,
        mean_gaps: FloatArray,
        means: FloatArray,
        slot_of: list[int],
    ) -> None:
        """Add the other's scatter; its slot j is `slot_of[j]` here; gaps are their means less ours."""
        cores, factors = self._owned_cores(), chan_weights(n, b)
        for theirs, slot in zip(other.cores, slot_of, strict=True):
            if factors[slot]:
                theirs = factors[slot] * np.outer(mean_gaps[slot], mean_gaps[slot]) + theirs
            cores[slot] += theirs

    def selected(self, features: NDArray[np.intp]) -> ExactScatter:
        """Return the scatter of some features alone."""
        exact = ExactScatter.__new__(ExactScatter)
        exact.cores = self.cores[:, features[:, None], features]
        return exact

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator."""
        core = np.tensordot(factors, self.cores, axes=1)
        return plus_rank_one((core + core.T) / 2, None, vectors, vector_weights)

    def traces(self) -> FloatArray:
        """Return the exact trace of every S_g."""
        return np.einsum("gii->g", self.cores)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header values and arrays (not copied)."""
        return {"cuts": None}, {"cores": self.cores}

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> ExactScatter:
        """Return the scatter that `to_state` described, after checking that everything fits."""
        cores, (n_slots, d) = arrays["cores"], arrays["means"].shape
        checked(cores.dtype == np.float64, "cores and header")
        checked(cores.shape == (n_slots, d, d), "cores and features")
        check_symmetric(cores)
        check_variances(np.diagonal(cores, axis1=1, axis2=2), arrays, header)
        exact = cls.__new__(cls)
        exact.cores = cores
        return exact
