"""Centred scatter matrices of many groups at once, exact (d x d each) or sketched (in one shared basis).

A slot is one group of one attribute; slot 0 is all rows together. Both classes keep, for every slot g,
S_g = sum over its rows of (x - mean_g)(x - mean_g)', and know nothing of labels or attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.linalg import FloatArray, beside
from fairstream.linalg.memory import refuse_beyond_memory
from fairstream.linalg.symmetric import SymmetricOperator, plus_rank_one
from fairstream.moments.rows import CentredRows
from fairstream.moments.sketch import (
    REORTHONORMALISE_EVERY,
    Extension,
    best_directions,
    extend,
    is_orthonormal,
    leading_directions,
    reorthonormalise,
    rotate,
)

MANY_SLOTS = 16
ROWS_FOR_A_VOTE = 1  # times the rank: with as many rows a group's say in the cut is half of its full vote


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
        """The factor n b / (n + b) of Chan's correction per slot, 0 where a slot is empty on one side."""
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


class ExactScatter:
    """One d x d matrix per slot. Memory O(G d^2)."""

    def __init__(self, n_features: int) -> None:
        self.cores = np.zeros((1, n_features, n_features))

    basis: FloatArray | None = None
    lost: float = 0.0
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

    def absorb(
        self, new: Increment, partition: list[list[int]], meanwhile: Callable[[], CentredRows] | None = None
    ) -> None:
        """Take in new rows; `partition` lists the slots of each attribute."""
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

    @staticmethod
    def _product(new: Increment, member: NDArray[np.bool_]) -> FloatArray:
        index = np.flatnonzero(member)
        return new.rows.scatter(slice(None) if index.size == member.size else index).astype(
            np.float64, copy=False
        )

    def merge(
        self, other: ExactScatter, n: FloatArray, b: FloatArray, mean_gaps: FloatArray, slot_of: list[int]
    ) -> None:
        """Add the other's scatter; its slot j is `slot_of[j]` here; gaps are their means less ours."""
        cores, factors = self._owned_cores(), chan_weights(n, b)
        for theirs, slot in zip(other.cores, slot_of, strict=True):
            if factors[slot]:
                theirs = factors[slot] * np.outer(mean_gaps[slot], mean_gaps[slot]) + theirs
            cores[slot] += theirs

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator."""
        core = np.tensordot(factors, self.cores, axes=1)
        return plus_rank_one((core + core.T) / 2, None, vectors, vector_weights)

    def traces(self) -> FloatArray:
        """Return the exact trace of every S_g."""
        return np.einsum("gii->g", self.cores)


class SketchedScatter:
    """Cores in a shared basis B: S_g ~ B' C_g B + tail_g (I - B'B). Memory O(d L + G L^2).

    The tail spreads the energy that was cut away evenly over the directions outside B, so that a direction
    which enters the basis late does not look as if earlier rows had had no energy in it. Without it a stream
    sorted by group shows gaps that are only an effect of the order.
    """

    def __init__(self, n_features: int, rank: int, dtype: Any) -> None:
        self.rank = min(rank, n_features)
        # A rank of d promises that nothing is dropped: all directions are there from the start, and none has
        # to stand out from the rounding of its first rows to be taken in.
        width = n_features if rank >= n_features else 0
        what = f"a sketch of {n_features:,} features with rank={rank}"
        refuse_beyond_memory(3 * 8 * width**2, what, "take a smaller rank")
        self.basis: FloatArray = np.eye(width, n_features, dtype=dtype)
        self.cores = np.zeros((1, width, width))
        self.offsets = np.zeros((1, width))  # coordinates of mean_g - mean, as far as the basis holds them
        self.energy = np.zeros(1)  # exact trace of every S_g
        self.cuts = 0

    def draft(self) -> SketchedScatter:
        """Return a scatter to work on; what is added to it does not change this one: arrays are replaced."""
        return copy.copy(self)

    @property
    def kept(self) -> int:
        """Width a cut leaves: a quarter more than the rank, which halves the loss on sorted streams."""
        return min(self.rank + self.rank // 4, self.basis.shape[1])

    @property
    def capacity(self) -> int:
        """Width at which the basis is cut: some slack makes many small blocks cheap."""
        return min(self.kept + max(16, self.rank // 4), self.basis.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.basis.nbytes + self.cores.nbytes + self.offsets.nbytes + self.energy.nbytes)

    @property
    def lost(self) -> float:
        """Share of all rows' energy that lies outside the basis."""
        if self.energy[0] <= 0:
            return 0.0
        return float(np.clip(1.0 - np.trace(self.cores[0]) / self.energy[0], 0.0, 1.0))

    def slice_rows(self) -> int:
        """Rows to take in at a time: fewer would cut too often, more would pay too much for R R' and the cut.

        With many groups the cores' own rotation at every cut counts too, and longer slices are cheaper.
        """
        many = len(self.cores) > MANY_SLOTS
        return max(min(4 * self.rank, 2 * self.rank + 128 if many else 248), self.kept, 128)

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""
        missing = n_slots - len(self.cores)
        if missing > 0:
            width = len(self.basis)
            self.cores = np.concatenate([self.cores, np.zeros((missing, width, width))])
            self.offsets = np.concatenate([self.offsets, np.zeros((missing, width))])
            self.energy = np.concatenate([self.energy, np.zeros(missing)])

    def tails(self) -> FloatArray:
        """Energy per direction outside the basis, for every slot."""
        outside = self.basis.shape[1] - len(self.basis)
        if outside == 0:
            return np.zeros(len(self.cores))
        inside = np.trace(self.cores, axis1=1, axis2=2)
        return np.maximum(self.energy - inside, 0.0) / outside

    def embedded(self, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return cores and offsets in a basis where this one's directions have the coordinates `own`."""
        outside = np.eye(own.shape[1]) - own.T @ own
        cores = own.T @ self.cores @ own + self.tails()[:, None, None] * outside
        return cores, self.offsets @ own

    def votes(self, weights: FloatArray) -> FloatArray:
        """Weight of one row of each group in the pool: about 1 / n, so that every group has the same say.

        A group with few rows yet has less: the leading directions of a handful of rows are mostly noise.
        """
        votes: FloatArray = np.where(weights > 0, 1.0 / (weights + ROWS_FOR_A_VOTE * self.rank), 0.0)
        votes[0] = 0.0
        return votes

    def pool(self, weights: FloatArray, new_weights: FloatArray) -> tuple[FloatArray, float]:
        """Balanced pool of the old rows, every slot with the same vote, and its tail."""
        votes = self.votes(new_weights)
        spread = (self.offsets.T * (votes * weights)) @ self.offsets
        return np.tensordot(votes, self.cores, axes=1) + spread, float(votes @ self.tails())

    def absorb(
        self, new: Increment, partition: list[list[int]], meanwhile: Callable[[], CentredRows] | None = None
    ) -> CentredRows | None:
        """Take in new rows. d-sized work: 2bdw + b^2 d + 2dL(w + b) flops, whatever the number of slots.

        Between the products with the old basis and those that make the new one there is only small work for
        one thread: another may do `meanwhile`, whose answer is returned.
        """
        B = self.basis
        step = extend(B, new.rows)
        if B.dtype == np.float32 and new.is_far(step.squared_norms):
            B, new = self._double(), new.in_double()
            step = extend(B, new.rows)
        with beside(meanwhile) as ahead:
            E, cores, offsets, energy = self._absorbed(new, step)
        basis = rotate(B, new.rows, step, E)
        if B.dtype == np.float32 and not is_orthonormal(basis):
            B, new = self._double(), new.in_double()
            step = extend(B, new.rows)
            E, cores, offsets, energy = self._absorbed(new, step)
            basis = rotate(B, new.rows, step, E)
        basis = basis.astype(self.basis.dtype, copy=False)
        self._publish(basis, cores, offsets, energy, E is not None)
        return ahead[0] if ahead else None

    def _double(self) -> FloatArray:
        """Return the basis in float64, orthonormal to that precision."""
        B = self.basis.astype(np.float64)
        return reorthonormalise(B)[0] if len(B) else B

    def _absorbed(
        self, new: Increment, step: Extension
    ) -> tuple[FloatArray | None, FloatArray, FloatArray, FloatArray]:
        """Return the directions to keep (None: all), and cores, offsets and energy with the new rows."""
        width, found = len(self.basis), step.outside.shape[1]
        coordinates, E = step.coordinates, None
        if width + found > self.capacity:
            row_votes = new.member.T @ self.votes(new.old_weights + new.weights)
            voting = coordinates * np.sqrt(row_votes)[:, None]
            balanced, total = voting.T @ voting, coordinates.T @ coordinates
            E = self._cut(balanced, total, new.old_weights, new.weights)
            coordinates = coordinates @ E
        own = np.eye(width, width + found) if E is None else E[:width]
        cores, offsets = self.embedded(own)
        block_sums = (new.member * new.scale) @ coordinates
        block_means = block_sums / np.where(new.weights > 0, new.weights, 1.0)[:, None]
        factors = new.chan_weights
        for slot in np.flatnonzero(new.weights > 0):
            index = np.flatnonzero(new.member[slot])
            deviations = coordinates[index] - np.outer(new.scale[index], block_means[slot])
            cores[slot] += deviations.T @ deviations
            step_to_mean = block_means[slot] - offsets[slot]
            cores[slot] += factors[slot] * np.outer(step_to_mean, step_to_mean)
        energy = self.energy + new.member @ step.squared_norms
        energy -= new.weights * np.sum(new.block_means**2, axis=1)
        energy += factors * np.sum((new.block_means - new.old_means) ** 2, axis=1)
        total_weights = np.where(new.old_weights + new.weights > 0, new.old_weights + new.weights, 1.0)
        offsets = (new.old_weights[:, None] * offsets + block_sums) / total_weights[:, None]
        return E, cores, offsets, energy

    def merge(
        self,
        other: SketchedScatter,
        rows: CentredRows,
        n: FloatArray,
        b: FloatArray,
        mean_gaps: FloatArray,
        slot_of: list[int],
    ) -> None:
        """Add the other's scatter; `rows` holds its basis and, last, its total mean less ours."""
        step = extend(self.basis, rows)
        width, found = len(self.basis), step.outside.shape[1]
        coordinates, E = step.coordinates, None
        if width + found > self.capacity:
            J = coordinates[:-1]
            balanced, tail = other.pool(b[slot_of], (n + b)[slot_of])
            outside = np.eye(width + found) - J.T @ J
            balanced = J.T @ balanced @ J + tail * outside
            total = J.T @ other.cores[0] @ J + other.tails()[0] * outside
            E = self._cut(balanced, total, n, b)
            coordinates = coordinates @ E
        own = np.eye(width, width + found) if E is None else E[:width]
        cores, offsets = self.embedded(own)
        their_cores, their_offsets = other.embedded(coordinates[:-1])
        their_offsets += coordinates[-1]
        factors = chan_weights(n, b)[slot_of]
        steps = their_offsets - offsets[slot_of]
        cores[slot_of] += their_cores + factors[:, None, None] * (steps[:, :, None] * steps[:, None, :])
        energy = self.energy.copy()
        energy[slot_of] += other.energy + factors * np.sum(mean_gaps[slot_of] ** 2, axis=1)
        total = np.where(n + b > 0, n + b, 1.0)[:, None]
        offsets = n[:, None] * offsets
        offsets[slot_of] += b[slot_of][:, None] * their_offsets
        self._publish(rotate(self.basis, rows, step, E), cores, offsets / total, energy, E is not None)

    def _cut(self, balanced: FloatArray, total: FloatArray, n: FloatArray, b: FloatArray) -> FloatArray:
        """Choose the directions to keep, given what the new rows add to the balanced pool and to the total.

        A quarter is reserved for the leading directions of all rows together, which the components are made
        of; the rest goes by the balanced pool, which the gaps are made of. Either alone fails one of them:
        the total forgets a minority, the pool lets a group that comes late push out everything else.
        """
        width = len(self.basis)
        pool, tail = self.pool(n, n + b)
        new = np.arange(width, len(total))
        balanced[:width, :width] += pool
        balanced[new, new] += tail
        total[:width, :width] += self.cores[0]
        total[new, new] += self.tails()[0]
        if len(n) == 1:
            return best_directions(total, self.kept)
        return best_directions(balanced, self.kept, outside=leading_directions(total, self.kept // 4))

    def _publish(
        self, basis: FloatArray, cores: FloatArray, offsets: FloatArray, energy: FloatArray, was_cut: bool
    ) -> None:
        """Set the new state; now and then undo the basis's drift from orthonormality."""
        cuts = self.cuts + was_cut
        if was_cut and cuts % REORTHONORMALISE_EVERY == 0:
            basis, lower = reorthonormalise(basis)
            cores, offsets = lower.T @ cores @ lower, offsets @ lower
        offsets = offsets - offsets[0]
        self.basis, self.cores, self.offsets, self.energy, self.cuts = basis, cores, offsets, energy, cuts

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator, without the tails."""
        core = np.tensordot(factors, self.cores, axes=1)
        return plus_rank_one((core + core.T) / 2, self.basis, vectors, vector_weights)

    def traces(self) -> FloatArray:
        """Return the exact trace of every S_g, what was cut included."""
        return self.energy.copy()
