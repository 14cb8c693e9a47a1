"""Exact scatter matrices: one d x d matrix for every group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.files.format import Arrays, Header, checked
from fairstream.linalg import FloatArray, SymmetricOperator
from fairstream.linalg.gathering import SEVERAL_SCATTERS
from fairstream.linalg.gemm import add_gemm
from fairstream.linalg.memory import refuse_beyond_memory
from fairstream.linalg.threads import in_threads, shares
from fairstream.moments.cells import plan_cells
from fairstream.moments.scatter import Increment, chan_weights, check_symmetric, check_variances


class ExactScatter:
    """One d x d matrix per slot. Memory O(G d^2)."""

    def __init__(self, n_features: int) -> None:
        self.cores = np.zeros((1, n_features, n_features))

    lost: float = 0.0
    rows_wait: bool = False
    _owned = False  # whether nobody else holds the cores, so that they may be written to

    @classmethod
    def of(cls, cores: FloatArray) -> ExactScatter:
        """Return a scatter of these matrices, which it does not write to."""
        exact = cls.__new__(cls)
        exact.cores = cores
        return exact

    def draft(self) -> ExactScatter:
        """Return a scatter to work on; what is added to it does not change this one."""
        return self.of(self.cores)

    def _owned_cores(self) -> FloatArray:
        if not self._owned:
            self.cores, self._owned = self.cores.copy(), True
        return self.cores

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.cores.nbytes)

    def slice_rows(self, X: Matrix) -> int:
        """Rows to take in at a time: enough that adding a d x d matrix to another costs little beside.

        They are not copied at once.
        """
        return min(max(16_384, 2**26 // self.cores.shape[1]), 2**18)

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""
        missing = n_slots - len(self.cores)
        if missing > 0:
            d = self.cores.shape[1]
            what = f"the exact moments of {d:,} features and {n_slots - 1} groups so far"
            needed = 8 * d * d * 2 * n_slots  # an update keeps the old ones until the new ones are complete
            refuse_beyond_memory(needed, what, 'use solver="sketch" or "power" (rank= for GroupMoments)')
            grown = np.zeros((n_slots, d, d))  # zeros are not there before they are written to
            grown[: len(self.cores)] = self.cores
            self.cores, self._owned = grown, True

    def settled(self) -> ExactScatter:
        """Return itself: no row waits."""
        return self

    def absorb(self, new: Increment, partition: list[list[int]]) -> FloatArray:
        """Take in new rows; `partition` lists the slots of each attribute. Returns the slots' new means.

        Products run in the increment's precision, sums in float64. Only upper triangles are added up;
        `complete` does the rest.
        """
        cores = self._owned_cores()
        if not sp.issparse(new.X) and self._near_zero(new):
            new = replace(new, about_zero=True)
        # As measured on two cores: the larger the matrices, the less of them stays in the cache.
        plan = plan_cells(new.member, partition, adding=40 + cores.shape[1] // 16)
        products = np.zeros(cores.shape[1:]) if plan.by_subtraction else cores[0]  # of all rows together
        sums = np.zeros((len(cores), cores.shape[1]))
        for some in new.products([cell.rows for cell in plan.cells]):
            terms: list[Term] = []
            for number, product, row_sum in some:
                cell = plan.cells[number]
                slots = [*cell.slots, *([0] if cell.of_all else [])]
                terms += [(products if slot == 0 else cores[slot], product, np.add) for slot in slots]
                sums[slots] += row_sum
                if cell.taken_from:
                    terms.append((cores[cell.taken_from], product, np.subtract))
                    sums[cell.taken_from] -= row_sum
            _add_upper(terms)
            del some, terms, product  # before there are others
        sums[plan.by_subtraction] += sums[0]
        if plan.by_subtraction:
            _add_upper([(cores[slot], products, np.add) for slot in [0, *plan.by_subtraction]])
        self._move_to_means(new, sums)
        return new.means(sums)

    def complete(self) -> None:
        """Copy the upper triangles to the lower ones, once all slices of a block are in."""

        def mirror(some: slice) -> None:
            for core in self.cores[some]:
                _mirror(core)

        in_threads(mirror, shares(len(self.cores), self.cores.size))

    def _near_zero(self, new: Increment) -> bool:
        """Return whether means are so small beside deviations that centring the rows gains no digits."""
        if new.old_weights[0] > 0:
            mean, variances = new.means_before[0], np.diagonal(self.cores[0]) / new.old_weights[0]
        else:
            head = np.asarray(new.X[:64], dtype=np.float64)
            mean, variances = head.mean(axis=0), head.var(axis=0)
        return bool((mean**2 <= variances).all())

    def _move_to_means(self, new: Increment, sums: FloatArray) -> None:
        """Turn sums about the origin into sums about every slot's mean.

        About the block's own mean, then Chan's step from there to the common mean: two rank-one terms.
        """
        block_means, factors = new.block_means(sums), new.chan_weights
        steps = block_means - new.old_means
        moved = np.flatnonzero(new.weights > 0)

        def move(some: slice) -> None:
            for slot in moved[some]:
                pair = np.stack([block_means[slot], steps[slot]])
                add_gemm(self.cores[slot].T, pair.T * [-new.weights[slot], factors[slot]], pair)

        in_threads(move, shares(len(moved), len(moved) * self.cores[0].size))

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
        return self.of(self.cores[:, features[:, None], features])

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator."""
        used = np.flatnonzero(factors)
        some = slice(used[0], used[-1] + 1) if used.size else slice(0)
        d = self.cores.shape[1]
        core = (factors[some] @ self.cores[some].reshape(-1, d * d)).reshape(d, d)  # no second matrix
        add_gemm(core.T, vectors.T * vector_weights, vectors)
        _mirror(core)
        return SymmetricOperator(core)

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
        return cls.of(cores)


Term = tuple[FloatArray, FloatArray, np.ufunc]  # a matrix, a product, and whether it is added or subtracted
_PANEL = 128
_BELOW = np.tri(_PANEL, k=-1, dtype=bool)


def _add_upper(terms: list[Term]) -> None:
    """Add products to matrices, or subtract them: the upper triangles, threads sharing panels of rows."""
    d = len(terms[0][0])

    def add(some: slice) -> None:
        for start in range(0, d, _PANEL)[some]:
            rows = slice(start, start + _PANEL)
            columns = slice(
                start if d > SEVERAL_SCATTERS else 0, d
            )  # of few features all: one stretch of memory
            for core, product, combine in terms:
                combine(core[rows, columns], product[rows, columns], out=core[rows, columns])

    threads = len(shares(-(-d // _PANEL), d * d * len(terms)))
    in_threads(add, [slice(first, None, threads) for first in range(threads)])


def _mirror(core: FloatArray) -> None:
    """Copy the upper triangle to the lower one, block by block."""
    for start in range(0, len(core), _PANEL):
        stop = start + _PANEL
        for above in range(0, start, _PANEL):
            core[start:stop, above : above + _PANEL] = core[above : above + _PANEL, start:stop].T
        block = core[start:stop, start:stop]
        np.copyto(block, block.T.copy(), where=_BELOW[: len(block), : len(block)])
