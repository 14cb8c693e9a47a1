"""Sketched scatter matrices: small cores of all groups in one shared basis that follows the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked
from fairstream.linalg import (
    FloatArray,
    SymmetricOperator,
    inner_product,
    lapack,
    plus_rank_one,
    wide_product,
)
from fairstream.linalg.bases import is_orthonormal
from fairstream.moments.scatter import Increment, chan_weights, check_symmetric, check_variances
from fairstream.moments.sketch_step import (
    History,
    Passes,
    Say,
    Slots,
    Tally,
    leading_axes,
    orthonormal_rows,
    tallied,
    turned,
)

STEP_ROWS, STEP_BYTES = 2_048, 2**27  # at a time, whichever is more rows, or eight times the width
MOST_STEP_ROWS = 8_192
STEPS_FOR_MORE = 4  # after so many steps one may take STEP_ROWS rows more
WAITING_BYTES = 2**25  # of rows that wait, or as many as the basis takes
SPARSE_SHARE = 0.3  # entries of a step with sparse rows, over the numbers of the basis
MOST_SPARSE_ROWS = 32_768
ROWS_FOR_A_VOTE = 4  # times the width: with as many rows a group's say is half of its full vote
MOST_SPARE = 32  # directions beyond the rank, unless a quarter of the rank is more
TOTAL_SHARE = 4  # one in so many directions follows the total
UNLABELLED_SAY = 1e-3  # of a row of no group in the balance, beside the say of all groups
_ARRAYS = ("basis", "cores", "energy")


class SketchedScatter:
    """Cores in a shared basis B: S_g ~ B' C_g B + tail_g (I - B'B). Memory O(d L + G L^2).

    The tail spreads the energy outside B evenly, so that a direction which enters the basis late does not
    look as if earlier rows had had no energy in it. Without it a stream sorted by group shows gaps that are
    only an effect of the order.

    Few rows wait, in their own type, until a step with them pays. Counts, means and traces include them at
    once; what else is read is read of `settled`, a copy that has taken them in.
    """

    def __init__(self, n_features: int, rank: int, dtype: Any) -> None:
        self.rank = rank
        self.basis: FloatArray = np.zeros((0, n_features), dtype=dtype)
        self.cores = np.zeros((1, 0, 0))
        self.energy = np.zeros(1)  # exact trace of every S_g, but for waiting rows
        self.steps = 0
        self._waiting: tuple[Increment, ...] = ()
        self._waiting_energy = np.zeros(1)
        self._settled: SketchedScatter | None = None

    def draft(self) -> SketchedScatter:
        """Return a scatter to work on; what is added to it does not change this one: arrays are replaced."""
        draft = object.__new__(SketchedScatter)
        draft.__dict__.update(self.__dict__)
        return draft

    def __deepcopy__(self, memo: dict[int, Any]) -> SketchedScatter:
        return self.draft()

    def __getstate__(self) -> dict[str, Any]:
        return self.settled().__dict__  # no pickle holds rows

    @property
    def width(self) -> int:
        """Most directions: half as many more as the rank, of many a quarter, halve the loss on sorted rows.

        Until the next step there may be a quarter more, if rows are new.
        """
        spare = max(self.rank // 4, min(self.rank // 2, MOST_SPARE))
        return min(self.rank + spare, self.basis.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        waiting = sum(_bytes_of(new.X) + new.member.nbytes for new in self._waiting)
        return int(self.basis.nbytes + self.cores.nbytes + self.energy.nbytes + waiting)

    @property
    def lost(self) -> float:
        """Share of all rows' energy that lies outside the basis."""
        settled = self.settled()
        if settled.energy[0] <= 0:
            return 0.0
        return float(np.clip(1.0 - np.trace(settled.cores[0]) / settled.energy[0], 0.0, 1.0))

    def slice_rows(self, X: Matrix) -> int:
        """Rows to take in at a time: so many that making the basis and turning the cores cost little.

        More of narrow rows, but few at first: a basis made in two or three steps has not settled.
        """
        cores = 4 * len(self.cores) * self.width**2 // self.basis.shape[1]
        narrow = STEP_BYTES // (self.basis.shape[1] * self.basis.dtype.itemsize)
        narrow = min(narrow, self.steps // STEPS_FOR_MORE * STEP_ROWS)
        rows = min(max(8 * self.width, STEP_ROWS, narrow, cores), MOST_STEP_ROWS)
        return max(rows, self._sparse_rows(X))

    def _sparse_rows(self, X: Matrix) -> int:
        """Rows of a sparse matrix whose entries cost much more than making the basis; 0 if X is dense."""
        if not sp.issparse(X):
            return 0
        entries = SPARSE_SHARE * self.width * self.basis.shape[1]
        return min(int(entries * X.shape[0] / max(X.nnz, 1)), MOST_SPARSE_ROWS)

    def grow(self, n_slots: int) -> None:
        """Make room for slots up to `n_slots`."""
        for name in ("cores", "energy", "_waiting_energy"):
            setattr(self, name, _padded(getattr(self, name), n_slots))

    def tails(self) -> FloatArray:
        """Energy per direction outside the basis, for every slot."""
        outside = self.basis.shape[1] - len(self.basis)
        if outside == 0:
            return np.zeros(len(self.cores))
        inside = np.trace(self.cores, axis1=1, axis2=2)
        return np.maximum(self.energy - inside, 0.0) / outside

    def cores_within(self, coordinates: FloatArray) -> FloatArray:
        """Return the cores in another basis, in which this one's directions are the columns given."""
        outside = np.eye(len(coordinates)) - coordinates @ coordinates.T
        cores: FloatArray = coordinates @ self.cores @ coordinates.T
        return cores + self.tails()[:, None, None] * outside

    def votes(self, weights: FloatArray) -> FloatArray:
        """Weight of one row of each slot in the balance: about 1 / n, so that every group has the same say.

        A group with few rows yet has less: the leading directions of a handful of rows are mostly noise. All
        rows have a little, so that the balance leaves no direction without rank.
        """
        votes: FloatArray = np.where(weights > 0, 1.0 / (weights + ROWS_FOR_A_VOTE * self.width), 0.0)
        votes[0] *= UNLABELLED_SAY
        return votes

    # Taking in rows ---------------------------------------------------------------------------------

    def absorb(self, new: Increment, partition: list[list[int]]) -> FloatArray:
        """Take in new rows, or let them wait for more. Returns the slots' new means."""
        self._settled = None
        if self._is_few([new]):
            rows = Passes(new.X, new.row_scale, new.dtype, 1)
            means, energy = _counted(new, rows.origin, tallied(rows, new.weighted_member))
            self._waiting, self._waiting_energy = (*self._waiting, _kept(new)), self._waiting_energy + energy
            if not self._is_few(self._waiting):
                self._take_waiting()
            return means
        self._take_waiting()
        means, energy = self._step(new)
        self.energy = self.energy + energy
        return means

    def complete(self) -> None:
        """Nothing is put off until the end of a block."""

    def _is_few(self, rows: Sequence[Increment]) -> bool:
        """Whether rows are so few that a step would spend more on the basis than on them.

        They never take more memory than the basis, or WAITING_BYTES if that is less.
        """
        most = max(self.width * self.basis.shape[1] * self.basis.dtype.itemsize, WAITING_BYTES)
        n_rows = sum(new.X.shape[0] for new in rows)
        enough = max(8 * self.width, self._sparse_rows(rows[0].X))
        return n_rows < enough and sum(_bytes_of(new.X) for new in rows) < most

    def _take_waiting(self) -> None:
        if self._waiting:
            self._step(_stacked(self._waiting, len(self.cores)))
            self.energy = self.energy + self._waiting_energy
            self._waiting, self._waiting_energy = (), np.zeros_like(self.energy)

    @property
    def rows_wait(self) -> bool:
        """Whether rows wait to be taken in."""
        return bool(self._waiting)

    def settled(self) -> SketchedScatter:
        """Return the same with no row waiting."""
        if not self._waiting:
            return self
        if self._settled is None:
            settled = self.draft()
            settled._take_waiting()
            self._settled = settled
        return self._settled

    def _step(self, new: Increment) -> tuple[FloatArray, FloatArray]:
        """Turn the basis towards new rows and add them to the cores; return the new means and energy."""
        dtype, n, b = self.basis.dtype, new.old_weights, new.weights
        rows = Passes(new.X, new.row_scale, dtype, self.width)
        unit = 1.0 / _typical_square(rows, self.energy[0], n[0])
        in_total = np.eye(1, len(n)).ravel() * unit / (n[0] + b[0])
        in_balance = unit * self.votes(n + b)
        tails, before = self.tails(), np.where(n[:, None] > 0, new.means_before - rows.origin, 0.0)
        after = turned(
            rows,
            new.weighted_member,
            Say((in_total @ new.member).astype(dtype), (in_balance @ new.member).astype(dtype)),
            Slots(n, b, before, Say(in_total, in_balance)),
            History(
                self.basis,
                np.tensordot(in_total, self.cores, axes=1),
                np.tensordot(in_balance, self.cores, axes=1),
                (float(in_total @ tails), float(in_balance @ tails)),
            ),
            self.width,
            self._n_total(len(n)),
            seed=self.steps,
        )
        means, energy = _counted(new, rows.origin, after.tally)
        cores = self.cores_within(after.inside.T)
        Y = after.coordinates
        block_means = (new.weighted_member @ Y) / np.where(b > 0, b, 1.0)[:, None]
        before = inner_product(before.T.astype(dtype), after.basis.T).astype(np.float64)
        factors = chan_weights(n, b)
        for slot in np.flatnonzero(b > 0):
            index = np.flatnonzero(new.member[slot])
            deviations = Y[index] - np.outer(new.scale[index], block_means[slot]).astype(dtype)
            cores[slot] += inner_product(deviations, deviations)
            step = block_means[slot] - before[slot]
            cores[slot] += factors[slot] * np.outer(step, step)
        self.basis, self.cores, self.steps = after.basis, cores, self.steps + 1
        return means, energy

    def _n_total(self, n_slots: int) -> int:
        """Return how many directions follow the total, which the components are made of.

        The others follow the balance, which the gaps are made of. Either alone fails one of them: the total
        forgets a minority, the balance lets a group that comes late push out everything else.
        """
        return self.width if n_slots == 1 else self.width // TOTAL_SHARE

    def merge(
        self,
        other: SketchedScatter,
        n: FloatArray,
        b: FloatArray,
        mean_gaps: FloatArray,
        means: FloatArray,
        slot_of: list[int],
    ) -> None:
        """Add the other's scatter: the best of both bases and of the step between the total means."""
        self._settled = None
        self._take_waiting()
        other = other.settled()
        dtype = self.basis.dtype
        stacked = np.concatenate([self.basis, other.basis, mean_gaps[:1].astype(dtype)])
        both = orthonormal_rows(
            np.ascontiguousarray(stacked)
        )  # bases of selected features have another order
        cores = self._completed(other, n, b, both, slot_of)
        gaps, factors = (
            inner_product(mean_gaps.T.astype(dtype), both.T).astype(np.float64),
            chan_weights(n, b),
        )
        cores += factors[:, None, None] * (gaps[:, :, None] * gaps[:, None, :])
        energy = self.energy + factors * np.sum(mean_gaps**2, axis=1)
        energy[slot_of] += other.energy
        if len(both) > self.width:
            votes = self.votes(n + b)
            spread = inner_product((means - means[0]).T.astype(dtype), both.T).astype(np.float64)
            balance = np.tensordot(votes, cores, axes=1) + (spread.T * (votes * (n + b))) @ spread
            best = leading_axes(cores[0], balance, self.width, self._n_total(len(n)))
            both = orthonormal_rows(wide_product(best.T.astype(dtype), both))
            cores = best.T @ cores @ best
        self.basis, self.cores, self.energy, self.steps = both, cores, energy, self.steps + other.steps

    def _completed(
        self, other: SketchedScatter, n: FloatArray, b: FloatArray, both: FloatArray, slot_of: list[int]
    ) -> FloatArray:
        """Return the sum of both cores in a basis of both; what one does not hold is filled in by the other.

        As in the EM algorithm for missing values: the rows of one along directions that it does not hold are
        expected to vary as the rows of both together do, given what it holds. An even tail instead would blur
        every direction that the two bases hold in part.
        """
        held = [inner_product(both.T, one.basis.T).astype(np.float64) for one in (self, other)]
        missing = [lapack(scipy.linalg.qr, inside)[0][:, inside.shape[1] :] for inside in held]
        cores, theirs = self.cores_within(held[0]), other.cores_within(held[1])
        for j, slot in enumerate(slot_of):
            mean, weights = cores[slot] + theirs[j], (n[slot], b[slot])
            mean /= max(sum(weights), 1.0)
            if min(weights) == 0:  # nobody knows more
                cores[slot] += theirs[j]
                continue
            known = (self.cores[slot], other.cores[j])
            cores[slot] = sum(map(_filled, known, held, missing, weights, [mean, mean]))
        return cores

    # Reading ----------------------------------------------------------------------------------------

    def selected(self, features: NDArray[np.intp]) -> SketchedScatter:
        """Return the scatter of some features alone; what lies outside the basis keeps its even spread."""
        settled = self.settled()
        other = settled.draft()
        inside = settled.basis[:, features].astype(np.float64)
        Q, R = lapack(np.linalg.qr, inside.T)
        other.basis, other.rank = Q.T.astype(settled.basis.dtype), min(settled.rank, len(features))
        other.cores = R @ settled.cores @ R.T
        outside = max(len(features) - float((inside**2).sum()), 0.0)
        other.energy = np.trace(other.cores, axis1=1, axis2=2) + settled.tails() * outside
        return other

    def combine(
        self, factors: FloatArray, vectors: FloatArray, vector_weights: FloatArray
    ) -> SymmetricOperator:
        """Return sum_g factors_g S_g + sum_j w_j v_j v_j' as an operator, without the tails."""
        settled = self.settled()
        core = np.tensordot(factors, settled.cores, axes=1)
        return plus_rank_one((core + core.T) / 2, settled.basis, vectors, vector_weights)

    def traces(self) -> FloatArray:
        """Return the exact trace of every S_g, what lies outside the basis included."""
        return self.energy + self._waiting_energy

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header values and arrays (not copied)."""
        settled = self.settled()
        return {"steps": settled.steps}, {name: getattr(settled, name) for name in _ARRAYS}

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> SketchedScatter:
        """Return the scatter that `to_state` described, after checking that everything fits.

        A file of the first sketch has cuts instead of steps; its basis may be wider, until the next step.
        """
        (n_slots, d), rank = arrays["means"].shape, header["rank"]
        steps = header["steps"] if "steps" in header else header["cuts"]
        basis, cores, width = arrays["basis"], arrays["cores"], len(arrays["basis"])
        checked(cores.dtype == np.float64, "cores and header")
        shapes = [arrays[name].shape for name in _ARRAYS]
        checked(shapes == [(width, d), (n_slots, width, width), (n_slots,)], "the sketch's arrays")
        checked(type(rank) is int and rank >= 1 and type(steps) is int and steps >= 0, "rank and sketch")
        sketch = cls(d, rank, header["dtype"])
        checked(basis.dtype == sketch.basis.dtype and width <= d, "basis and header")
        if not is_orthonormal(basis):
            raise FairstreamFileError(
                "the rows of the sketch's basis are not orthonormal: write the file again"
            )
        check_symmetric(cores)
        check_variances(arrays["energy"], arrays, header)
        check_variances(np.diagonal(cores, axis1=1, axis2=2), arrays, header)
        sketch.steps, sketch._waiting_energy = steps, np.zeros(n_slots)
        for name in _ARRAYS:
            setattr(sketch, name, arrays[name])
        return sketch


def _filled(core: FloatArray, T: FloatArray, N: FloatArray, weight: float, mean: FloatArray) -> FloatArray:
    """Return a core that is known along the columns of T as it is expected along T and N, given the mean."""
    known, across = T.T @ mean @ T, T.T @ mean @ N
    known[np.diag_indices_from(known)] += 1e-9 * np.trace(known) / len(known)
    regression = lapack(scipy.linalg.solve, known, across, assume_a="pos", check_finite=False)
    expected = T + N @ regression.T
    rest = N.T @ mean @ N - across.T @ regression
    return expected @ core @ expected.T + weight * (N @ rest @ N.T)


def _counted(new: Increment, origin: FloatArray, tally: Tally) -> tuple[FloatArray, FloatArray]:
    """Return every slot's mean with the new rows, and the energy that they add."""
    n, b = new.old_weights, new.weights
    before = np.where(n[:, None] > 0, new.means_before - origin, 0.0)
    block_means = tally.sums / np.where(b > 0, b, 1.0)[:, None]
    energy = new.member @ tally.squares - b * np.sum(block_means**2, axis=1)
    energy = np.maximum(energy, 0.0) + chan_weights(n, b) * np.sum((block_means - before) ** 2, axis=1)
    means = (n[:, None] * before + tally.sums) / np.where(n + b > 0, n + b, 1.0)[:, None]
    return origin + means, energy


def _typical_square(rows: Passes, energy: float, n: float) -> float:
    """Return a positive number of the size of a row's square, which keeps products in float32's range."""
    known = energy / n if n > 0 else 0.0
    return known if known > 0 else max(rows.sample_square, float(np.finfo(np.float32).tiny))


def _kept(new: Increment) -> Increment:
    """Return new rows that nobody else can change."""
    return replace(new, X=new.X.copy())


def _stacked(waiting: Sequence[Increment], n_slots: int) -> Increment:
    """Return the rows of several increments as one."""
    first = waiting[0]
    blocks = [new.X for new in waiting]
    X: Matrix = sp.vstack(blocks, format="csr") if any(map(sp.issparse, blocks)) else np.concatenate(blocks)
    weighted = any(new.row_weights is not None for new in waiting)
    return Increment(
        X,
        np.concatenate([new.scale**2 for new in waiting]) if weighted else None,
        np.concatenate([_padded(new.member, n_slots) for new in waiting], axis=1),
        first.dtype,
        _padded(first.old_weights, n_slots),
        _padded(first.means_before, n_slots),
    )


def _padded(array: NDArray[Any], n_slots: int) -> NDArray[Any]:
    """Return an array with zeros for slots that it does not have yet."""
    missing = n_slots - len(array)
    return (
        array
        if missing <= 0
        else np.concatenate([array, np.zeros_like(array, shape=(missing, *array.shape[1:]))])
    )


def _bytes_of(X: Matrix) -> int:
    if sp.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(X.nbytes)
