"""The step of a sketch: turn its basis towards a block of rows, without forgetting the rows before.

Symbols: B is w x d with orthonormal rows, Z holds the b new rows about an origin, Y = ZB'. What history and
block say together is A = B' P B + tail (I - B'B) + Z' D Z: once with equal weight for all rows (the total),
once with equal say for every group (the balance). A step is W = A B', with some of the directions multiplied
by the total and the others by the balance, and a basis of W.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.linalg import FloatArray, check_finite_matrix, inner_product, lapack, wide_product
from fairstream.linalg.bases import rotate_upper
from fairstream.linalg.products import (
    MAX_SLICE_ROWS,
    CentredRows,
    centred_rows,
    provisional_origin,
    row_slices,
    slice_rows,
    stands_near,
    stands_ready,
)
from fairstream.moments.scatter import chan_weights

SLICE_ROWS, SLICE_BYTES = 512, 2**25  # rows cast at a time, more if the basis is wide: up to either
MOST_STEPS = 3  # on one block
NEW_ENERGY = 0.003  # share by which a step must raise the block's energy inside the basis to be repeated
FRESH = 64  # one in so many directions is given up for one of the block that the basis does not hold
FRESH_IF_NEW = 4  # the same for rows that are new, but beside all others: a quarter more until the next step
NEW_SHARE = 0.1  # more of rows' energy than of earlier rows' outside the basis, from which on rows are new
SAMPLE_ROWS = 64  # of a block, to get an idea of it
WELL_CONDITIONED = 0.25  # least pivot of a Gram matrix of unit rows after which they need no second factor


class Passes:
    """Rows in their own type, to be read several times: each time slices of them are centred and cast.

    Parameters
    ----------
    X : array or sparse matrix (b, d)
    scale : array (b,), optional
        Square root of the row weights.
    dtype : {float64, float32}
    columns : int
        With how many columns they are multiplied at most.
    """

    def __init__(self, X: Matrix, scale: FloatArray | None, dtype: Any, columns: int) -> None:
        self.n_rows, self.n_features = X.shape
        self._sample = slice(0, None, max(X.shape[0] // SAMPLE_ROWS, 1))
        some = X[self._sample][:SAMPLE_ROWS].astype(np.float64)
        # As rows of `dtype` will subtract it: else rounding shifts float32 means by 1e-4 at an offset of 1e4.
        self.origin = provisional_origin(some).astype(dtype).astype(np.float64)
        self.sample_square = float(centred_rows(some, self.origin, None, np.float64).row_squares().mean())
        if stands_near(X, self.origin, dtype):  # little would cancel, and rows need not be copied
            self.origin = np.zeros_like(self.origin)
        self._X, self._scale, self._dtype = X, scale, dtype
        self._size = self.n_rows if sp.issparse(X) else slice_rows(X.shape[1], dtype, columns)
        self._size = max(self._size, min(SLICE_BYTES // (X.shape[1] * np.dtype(dtype).itemsize), SLICE_ROWS))
        if scale is None and not self.origin.any() and stands_ready(X, dtype):
            self._size = MAX_SLICE_ROWS  # no copy is made
        self._sparse: CentredRows | None = None

    def __iter__(self) -> Iterator[tuple[slice, CentredRows]]:
        if sp.issparse(self._X):  # as large as its entries: made once
            self._sparse = self._sparse or centred_rows(self._X, self.origin, self._scale, self._dtype)
            yield slice(0, self.n_rows), self._sparse
            return
        buffer = np.empty((min(self._size, self.n_rows), self.n_features), dtype=self._dtype)
        for cut in row_slices(self.n_rows, self._size):
            scale = None if self._scale is None else self._scale[cut]
            yield cut, centred_rows(self._X[cut], self.origin, scale, self._dtype, buffer)

    def share_outside(self, B: FloatArray, weights: FloatArray) -> float:
        """Return the share of the energy of some rows, about their mean, that lies outside a basis."""
        some, weights = self._X[self._sample][:SAMPLE_ROWS], weights[self._sample][:SAMPLE_ROWS]
        if self._scale is not None:
            weights = weights * self._scale[self._sample][:SAMPLE_ROWS] ** 2
        if not (total := float(weights.sum())) > 0:
            return 0.0
        rows = centred_rows(some, self.origin, None, self._dtype)
        mean = rows.combine((weights / total)[None].astype(self._dtype))[0]
        held = weights @ (rows.dot(B) ** 2).sum(axis=1) - total * ((B @ mean) ** 2).sum()
        energy = weights @ rows.row_squares() - total * (mean @ mean)
        return float(1 - held / energy) if energy > 0 else 0.0

    def dot(self, B: FloatArray) -> FloatArray:
        """Return Z B' (b x w)."""
        Y = np.empty((self.n_rows, len(B)), dtype=B.dtype)
        for cut, rows in self:
            Y[cut] = rows.dot(B)
        return Y


@dataclass(slots=True)
class Tally:
    """Weighted sums of the rows of every slot about the origin (slots x d), and the squares of every row."""

    sums: FloatArray
    squares: FloatArray

    @classmethod
    def empty(cls, rows: Passes, n_slots: int) -> Tally:
        return cls(np.zeros((n_slots, rows.n_features)), np.zeros(rows.n_rows))

    def add(self, cut: slice, rows: CentredRows, sums: FloatArray) -> None:
        """Count some of the rows, given their sums."""
        self.sums += sums
        self.squares[cut] = rows.row_squares()


def tallied(rows: Passes, weighted_member: FloatArray) -> Tally:
    """Count all rows, in a pass of its own."""
    tally = Tally.empty(rows, len(weighted_member))
    for cut, part in rows:
        tally.add(cut, part, part.combine(weighted_member[:, cut]))
    return tally


@dataclass(frozen=True, slots=True)
class Say:
    """What weight rows have in the total and in the balance."""

    total: FloatArray
    balance: FloatArray

    def __getitem__(self, rows: slice) -> Say:
        return Say(self.total[rows], self.balance[rows])

    def mixed(self, generator: np.random.Generator, combinations: int, dtype: Any) -> FloatArray:
        """Return random combinations of the rows, each as strong as its say."""
        strength = np.sqrt(np.maximum(self.total + self.balance, 0))
        return generator.standard_normal((combinations, len(strength)), dtype=dtype.type) * strength

    def times(self, coordinates: FloatArray, n_total: int) -> FloatArray:
        """Return D Y' for coordinates (w x b), of which the first `n_total` follow the total."""
        weighed = coordinates * self.balance
        np.multiply(coordinates[:n_total], self.total, out=weighed[:n_total])
        return weighed


@dataclass(frozen=True, slots=True)
class History:
    """What is known of earlier rows: P and tail, in the total and in the balance."""

    basis: FloatArray  # w x d
    total: FloatArray  # w x w
    balance: FloatArray
    tails: tuple[float, float]

    def times(self, directions: FloatArray, n_total: int) -> FloatArray:
        """Return (P - tail) times directions in the basis (w x j), the first `n_total` by the total."""
        first, others = directions[:, :n_total], directions[:, n_total:]
        tails = self.tails_of(directions.T, n_total)
        return np.hstack([self.total @ first, self.balance @ others]) - tails * directions

    def energy(self, directions: FloatArray, n_total: int) -> float:
        """Return the energy along directions of unit length, of which these are the parts in the basis."""
        tails = self.tails_of(directions.T, n_total)
        return float(np.vdot(directions, self.times(directions, n_total)) + tails.sum())

    def share_outside(self) -> float:
        """Return the share of the energy that lies outside the basis."""
        outside = sum(self.tails) * (self.basis.shape[1] - len(self.basis))
        inside = float(np.trace(self.total) + np.trace(self.balance))
        return outside / (inside + outside) if inside > 0 else 0.0

    def tails_of(self, directions: FloatArray, n_total: int) -> FloatArray:
        """Return the tail that each direction follows."""
        first = min(n_total, len(directions))
        return np.repeat(self.tails, [first, len(directions) - first])


@dataclass(frozen=True, slots=True)
class Slots:
    """What every slot has: its weight before and in the block, its old mean about the origin, and its say."""

    before: FloatArray
    new: FloatArray
    old_means: FloatArray
    say: Say

    def corrections(self, tally: Tally, dtype: Any) -> tuple[FloatArray, Say]:
        """Return rows, and their say, that make of Z'DZ what it is about the mean of all rows.

        Less the block's mean, more Chan's step from there to the slot's mean, and from there to the total's.
        """
        block_means = tally.sums / np.where(self.new > 0, self.new, 1.0)[:, None]
        steps, weights = block_means - self.old_means, self.before + self.new
        means = self.old_means + (self.new / np.where(weights > 0, weights, 1.0))[:, None] * steps
        roots = np.sqrt([self.new, chan_weights(self.before, self.new), weights])
        rows = np.concatenate(roots[:, :, None] * [block_means, steps, means - means[0]])
        signs = np.repeat([-1.0, 1.0, 1.0], len(weights))
        total, balance = (signs * np.tile(say, 3) for say in (self.say.total, self.say.balance))
        return rows.astype(dtype), Say(total.astype(dtype), balance.astype(dtype))


@dataclass(slots=True)
class Turned:
    """A basis that has followed a block."""

    basis: FloatArray
    inside: FloatArray  # its directions in the old basis, a column each
    coordinates: FloatArray  # of the block's rows
    tally: Tally


def turned(
    rows: Passes,
    member: FloatArray,
    say: Say,
    slots: Slots,
    history: History,
    width: int,
    n_total: int,
    seed: int,
) -> Turned:
    """Return a basis of at most `width` directions that follows the history and the new rows.

    Parameters
    ----------
    rows : Passes
    member : array (slots, b)
        Weight, square-rooted, with which a row counts in the sums of a slot.
    say : Say
        Of the rows.
    slots : Slots
    history : History
    width, n_total : int
        Number of directions, and how many of them follow the total.
    seed : int
        Of the random combinations of rows.
    """
    B, dtype = history.basis, history.basis.dtype
    turn = leading_axes(history.total, history.balance, len(B), n_total)
    kept = min(width - width // FRESH, len(B))
    if kept and rows.share_outside(B, say.total + say.balance) > history.share_outside() + NEW_SHARE:
        width = min(width + width // FRESH_IF_NEW, rows.n_features)
    generator = np.random.default_rng(seed)
    fresh = say.mixed(generator, width - kept, dtype)
    products = np.zeros((width + len(member), rows.n_features), dtype=dtype)  # one product gives both
    W, sums = products[:width], products[width:]
    own = history.times(turn, n_total) + history.tails_of(turn.T, n_total) * turn
    wide_product(own[:, :kept].T.astype(dtype), B, out=W[:kept])
    held = history.energy(turn, n_total)
    turn = turn.astype(dtype)
    tally = Tally.empty(rows, len(member))
    fresh_inside = np.zeros((len(fresh), len(B)), dtype=dtype)
    for cut, part in rows:
        Y = part.dot(B).astype(dtype, copy=False)
        along = wide_product(turn.T, Y.T)
        weighed = say[cut].times(along, n_total)
        held += float(np.vdot(weighed, along))
        part.add_combined(np.concatenate([weighed[:kept], fresh[:, cut], member[:, cut]]), products)
        fresh_inside += fresh[:, cut] @ Y
        tally.add(cut, part, sums)
        sums[:] = 0  # they go on in float64
    corrections, their_say = slots.corrections(tally, dtype)

    def correct(W: FloatArray, along: FloatArray) -> float:
        """Add the corrections' part of W, given their coordinates; return their energy."""
        weighed = their_say.times(along, n_total)
        W += wide_product(weighed[: len(W)], corrections)
        return float(np.vdot(weighed, along))

    corrections_inside = inner_product(B.T, corrections.T)
    held += correct(W[:kept], turn.T @ corrections_inside)
    fresh = their_say.mixed(generator, width - kept, dtype)
    W[kept:] += wide_product(fresh, corrections)
    _keep_outside(W[kept:], fresh_inside + fresh @ corrections_inside.T, B)
    for step in range(MOST_STEPS):
        basis = orthonormal_rows(W)
        Y, inside = rows.dot(basis), inner_product(B.T, basis.T).astype(np.float64)
        weighed, along = say.times(Y.T, n_total), inner_product(basis.T, corrections.T)
        now = float(np.vdot(weighed, Y.T)) + float(np.vdot(their_say.times(along, n_total), along))
        now += history.energy(inside, n_total)
        if step == MOST_STEPS - 1 or now <= (1 + NEW_ENERGY) * held:
            break
        held = now
        W = wide_product(history.times(inside, n_total).T.astype(dtype), B)
        W += history.tails_of(basis, n_total)[:, None].astype(dtype) * basis
        correct(W, along)
        for cut, part in rows:
            part.add_combined(weighed[:, cut], W)
    return Turned(basis, inside, Y, tally)


def _keep_outside(fresh: FloatArray, inside: FloatArray, B: FloatArray) -> None:
    """Take what B holds off combinations of rows; one of which only rounding is left becomes zero."""
    before = np.einsum("ij,ij->i", fresh, fresh)
    fresh -= wide_product(inside, B)
    left = np.einsum("ij,ij->i", fresh, fresh)
    noise = 1e-4 if B.dtype == np.float32 else 1e-9
    fresh[left <= noise**2 * before] = 0


def leading_axes(total: FloatArray, balance: FloatArray, columns: int, n_total: int) -> FloatArray:
    """Return orthonormal columns: `n_total` leading axes of the total, then those of the balance beside."""
    for pool in (total, balance):
        check_finite_matrix(pool)
    axes = _axes(total)
    rest = axes[:, n_total:]
    if n_total < columns:
        rest = rest @ _axes(rest.T @ balance @ rest)
    return np.hstack([axes[:, :n_total], rest])[:, :columns]


def _axes(S: FloatArray) -> FloatArray:
    vectors: FloatArray = lapack(scipy.linalg.eigh, S, check_finite=False, driver="evd")[1][:, ::-1]
    return vectors


def orthonormal_rows(W: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the rows of W, as many as their numerical rank, on W's own memory.

    By Cholesky factors of Gram matrices of the rows at unit length. Rows that the others span to rounding are
    left out; a second factor makes good what the first has lost.
    """
    for _ in range(3):
        factor, lengths, chosen = _gram_factor(W)
        if len(chosen) < len(W):
            W = W[chosen]
        if len(W) == 0:
            break
        inverse = lapack(scipy.linalg.lapack.dtrtri, factor, lower=1)[0]
        rotate_upper(W.T, (inverse / lengths).T)
        if factor.diagonal().min() > WELL_CONDITIONED:
            break
    return W


def _gram_factor(W: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Return the lower factor of the Gram matrix of some rows at unit length, their lengths, and which."""
    gram = inner_product(W.T, W.T).astype(np.float64)
    lengths = np.sqrt(np.maximum(gram.diagonal(), 0.0))
    chosen = np.flatnonzero(lengths > np.finfo(W.dtype).tiny ** 0.5)
    noise = 1e-5 if W.dtype == np.float32 else 1e-12
    unit = gram[np.ix_(chosen, chosen)] / np.outer(lengths[chosen], lengths[chosen])
    check_finite_matrix(unit)
    factor, info = lapack(scipy.linalg.lapack.dpotrf, unit, lower=1)
    if info or (len(unit) and factor.diagonal().min() ** 2 < noise):
        _, pivots, rank, _ = lapack(scipy.linalg.lapack.dpstrf, unit, tol=noise, lower=1)
        among = np.sort(pivots[:rank] - 1)
        unit, chosen = unit[np.ix_(among, among)], chosen[among]
        factor = lapack(scipy.linalg.lapack.dpotrf, unit, lower=1)[0]
    return np.tril(factor), lengths[chosen], chosen
