"""The fair noisy power method (FNPM): the paper's Algorithms 1, 2 and 3 on a stream, in two phases.

Symbols: d features, k components, m unfair directions per comparison, M their sum over all comparisons,
U the unfair basis (d x m', m' <= M + mean gaps), W the running estimate of the leading eigenvectors of a
second-moment gap, V the components, b and B the block sizes, T and TT the steps of the two phases.

Phase "unfair" takes T blocks of b rows. In each, every comparison's W is multiplied with the block's gap of
second moments, W <- QR(C_in W - C_out W), while group means run over all rows; at the end U = [W | g/|g|],
g = f - WW'f. Phase "components" takes blocks of B rows: V <- QR((I - UU') C (I - UU') V).

Second moments are taken about the running total mean without a second pass: a block is summed about a fixed
shift (the total mean before the block) and the sum is corrected by a rank-two term when the block ends, which
equals, to rounding, centring every row by the mean after the block.

Memory, with p = max(k, 2M) columns of products, s = `slice_rows(d, dtype, p)` rows multiplied at a
time, G groups, T threads, w bytes a number, whatever b and B:

    w d (max(6M, 4k) + m' + S)  +  8 d (5G + 7 + (T + 1)(G + 1))  +  64 k^2   bytes

W and its in- and out-products, or V and its products, as they were before the update and as they become (an
update that fails leaves the old ones); U; float64 means and sums; a few k x k matrices. `fit_full` has no old
ones to keep: max(4M, 2k). S = s if there are many columns: one slice. S = T (s + 2p + 2G + 2) if
p + G + 1 <= 128: a slice, products, and what a slice adds to them, for every thread. Rows in the computing
precision that are not far from zero are multiplied where they stand: no slice.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.exceptions import NotFittedError

from fairstream.data.alignment import paired
from fairstream.data.blocks import Block, BlockSource, Matrix
from fairstream.data.groups import GroupIndex, encode_groups
from fairstream.data.matrices import check_matrix
from fairstream.data.schema import Schema
from fairstream.errors import FairstreamFileError, FairstreamWarning, NotEnoughGroupsError
from fairstream.files.format import checked_orthonormal, checked_signs
from fairstream.linalg import (
    FloatArray,
    in_threads,
    inner_product,
    lapack,
    lapack_threads,
    shares,
    wide_product,
)
from fairstream.linalg.bases import fix_signs_in_place, project_out_in_place, random_basis
from fairstream.linalg.products import MAX_SLICE_ROWS, check_values, provisional_origin
from fairstream.power.ledger import GroupLedger
from fairstream.power.plan import PowerPlan
from fairstream.power.step import (
    Codes,
    ComponentStep,
    Reading,
    Tally,
    centre_products,
    component_step,
    component_tallies,
    gap_columns,
    gap_products,
    gap_step,
    gap_tallies,
    group_tallies,
    read_rows,
    side_tallies,
    unfair_basis_of,
)
from fairstream.subspace.model import FairSubspace

STATE_FORMAT = 2
_READABLE = (1, 2)  # files of format 1 hold components that are turned to their axes already
STILL = 0.01  # how far the last step over the whole data may move a subspace that counts as converged
STILL_IN_BLOCKS = 0.3  # the same for blocks: fresh rows move even the best subspace, by their sampling error


@dataclass(frozen=True, slots=True)
class PartialSums:
    """What some rows add to the open block, about the shift that all parts of the step share."""

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: float
    products: FloatArray
    inside: NDArray[np.float64]  # of the products with the columns of V, or 0 x 0

    def __add__(self, other: PartialSums) -> PartialSums:
        return PartialSums(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.products + other.products,
            self.inside + other.inside,
        )


class FairPowerMethod:
    """Fair noisy power method on a stream: O(d max(m', k)) memory, every row read once.

    Parameters
    ----------
    n_features, n_components : int
        d and k.
    n_unfair : int or dict of str to int, default 1
        m, for all attributes or for each. Unused with constraint "none" and "mean".
    constraint : {"all", "mean", "covariance", "none"}
        What U holds: W and the mean gaps, the mean gaps, W, nothing (the plain noisy power method). "mean"
        uses the T b rows of the first phase as one block, for the means only.
    step_rows : int or (int, int), optional
        (b, B) rows a step in the two phases. None: every step reads the whole data, see `fit_full`.
    power_steps : int or (int, int), default 10
        (T, TT) steps. Rows beyond them keep improving V, in blocks that double after every TT steps.
    groups : dict of str to labels, or labels, optional
        The groups of every attribute. Without it they are those of the first block.
    on_empty_group : {"extend", "zero"}
        When a block of the first phase ends and a compared group has no row in it: read on until it has one,
        or take its sums as zero, as the paper prints.
    random_state : int, Generator, RandomState, optional
        For the random starts.
    dtype : {float64, float32}
        Computing precision. Means are always kept in float64.

    Attributes
    ----------
    schema : Schema
        Names of the features, and how table columns became them; for the result.

    Notes
    -----
    In the first block all comparisons start from one random W (the paper draws one each): so groups can be
    found while the block is being read. A group first seen after the first block raises, since no gap of its
    own is being followed: declare it in `groups`, take a larger b, or pass its rows with the label None.
    A row whose group is unknown counts for the total mean and covariance only.

    g = f - WW'f counts as zero if its length is at most 1e-8 (float32: 1e-4) of f's, and f if its
    length is at most 1e-12 (1e-6) of the root of the total variance. With several comparisons U is an
    orthonormal basis of all W and f together, singular values up to 1e-8 (1e-4) of the largest dropped.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> method = FairPowerMethod(5, 2, step_rows=(100, 200), power_steps=(3, 4), random_state=0)
    >>> method.rows_missing
    500
    >>> for _ in range(11):
    ...     sex = rng.choice(["f", "m"], 100)
    ...     rows = method.update(rng.normal(size=(100, 5)) + (sex == "m")[:, None], {"sex": sex})
    >>> method.phase, method.steps_done, method.components.shape
    ('components', (3, 4), (2, 5))
    >>> bool(abs(method.unfair_basis @ method.components.T).max() < 1e-12)
    True
    """

    def __init__(
        self,
        n_features: int,
        n_components: int,
        *,
        n_unfair: int | Mapping[str, int] = 1,
        constraint: str = "all",
        step_rows: int | tuple[int, int] | None = None,
        power_steps: int | tuple[int, int] = 10,
        groups: Mapping[str, Iterable[Hashable]] | Iterable[Hashable] | None = None,
        on_empty_group: str = "extend",
        random_state: Any = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.plan = PowerPlan.of(
            n_features, n_components, n_unfair, constraint, step_rows, power_steps, on_empty_group, dtype
        )
        self.schema = Schema()
        self._generator = _own_generator(random_state)
        self._ledger = GroupLedger(self.plan.n_features)
        self._declared = False
        if groups is not None:
            self.declare(groups)
        self._step = 0
        self._Q: FloatArray | None = None  # W of all comparisons side by side, later V
        self._P: FloatArray | None = None  # the open block's products with Q, one place per tally
        self._U: FloatArray | None = None if self.plan.unfair_steps else self._zeros(0)
        self._inside = np.zeros((0, 0))  # the open block's Y'Y with Y = ZV, if it is followed
        self._variances = np.zeros(self.plan.n_components)
        self._turn: FloatArray | None = None  # from V as it is kept to V by falling variance
        self._pending: ComponentStep | None = None  # tells variances, turn and movement of the last step
        self._moved: dict[str, float] = {}

    # What is known so far, at any point of a stream; arrays are copies -----------------------------------

    @property
    def phase(self) -> str:
        """Where the stream is: "unfair" until U is known, then "components"."""
        return "unfair" if self._U is None else "components"

    @property
    def steps_done(self) -> tuple[int, int]:
        """Steps taken in the two phases."""
        unfair = min(self._step, self.plan.unfair_steps)
        return unfair, self._step - unfair

    @property
    def rows_missing(self) -> int:
        """At least how many rows are needed until a first V exists; 0 once it does."""
        return self.plan.rows_missing(self._step, int(self._ledger.open_counts[0]))

    @property
    def _what_is_missing(self) -> str:
        missing = f"at least {self.rows_missing} rows are missing"
        for attribute, known in self._ledger.index.slots.items() if self.phase == "unfair" else ():
            if len(known) < 2:
                shown = ", ".join(map(repr, known)) or "no known label"
                missing += f"; {attribute!r} has shown only {shown}, a gap needs two groups"
        return missing

    @property
    def unfair_basis(self) -> FloatArray:
        """U', m' x d, orthonormal rows."""
        if self._U is None:
            raise NotFittedError(f"the unfair basis is not known yet: {self._what_is_missing}")
        return self._U.T.copy()

    @property
    def components(self) -> FloatArray:
        """V', k x d, orthonormal rows orthogonal to the unfair basis, by falling variance."""
        if self.rows_missing or self._Q is None:
            raise NotFittedError(f"there are no components yet: {self._what_is_missing}")
        self._work_out()
        Q = self._Q.T
        components = Q.copy() if self._turn is None else wide_product(self._turn.T.astype(Q.dtype), Q)
        fix_signs_in_place(components.T)
        return components

    @property
    def explained_variance(self) -> NDArray[np.float64]:
        """Variance of the last block along V as it was before that block: fresh rows, so no optimism."""
        self._work_out()
        return self._variances.copy()

    @property
    def explained_variance_ratio(self) -> NDArray[np.float64]:
        """The same as a part of the total variance."""
        return self.explained_variance / (self.total_variance or 1.0)

    @property
    def total_variance(self) -> float:
        """Exact trace of the covariance (1/n) of all rows so far."""
        return self._ledger.total_variance()

    @property
    def n_rows(self) -> int:
        """Rows so far; if steps read the whole data, those of the current pass."""
        return self._ledger.count()

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all rows so far."""
        return self._ledger.mean()

    @property
    def comparisons(self) -> list[tuple[str, Hashable]]:
        """(attribute, group inside) of every gap that is followed."""
        return self._ledger.index.comparisons()

    @property
    def is_declared(self) -> bool:
        """Whether the groups were named before the first row."""
        return self._declared

    @property
    def group_counts(self) -> dict[str, dict[Hashable, int]]:
        """Rows of every group."""
        ledger = self._ledger
        return {
            a: {label: ledger.count(e) for label, e in known.items()}
            for a, known in ledger.index.slots.items()
        }

    @property
    def group_means(self) -> dict[str, dict[Hashable, NDArray[np.float64]]]:
        """Mean of every group."""
        ledger = self._ledger
        return {
            a: {label: ledger.mean(e) for label, e in known.items()}
            for a, known in ledger.index.slots.items()
        }

    @property
    def convergence(self) -> dict[str, float]:
        """How far the last step of each phase moved its subspace, from 0 (not at all) to 1 (a right angle).

        The largest sine of the principal angles between the subspace before and after the step, of all
        comparisons in phase "unfair": turns inside the subspace do not count. A phase that is not over is
        missing ("components" of a stream is there after its first block), and so is "unfair" if it followed
        means only. A large number says that the phase has not converged. A small one does not prove that
        it has: neighbouring eigenvalues that are nearly equal are told apart in very small steps.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(500, 3)) * [9, 3, 1]
        >>> method = FairPowerMethod(3, 1, constraint="none", power_steps=20, random_state=0).fit_full(X)
        >>> bool(method.convergence["components"] < 1e-6)
        True
        """
        self._work_out()
        return dict(self._moved)

    def subspace(self, feature_names: tuple[str, ...] | None = None) -> FairSubspace:
        """Return a frozen `FairSubspace`, with `feature_names` if given; raises before there is one."""
        components = self.components
        schema = self.schema if feature_names is None else replace(self.schema, feature_names=feature_names)
        sample = self.n_rows / max(self.n_rows - 1, 1)  # from divisor n to n - 1, which FairSubspace has
        return FairSubspace(
            components,
            self.unfair_basis,
            self.mean.astype(self.plan.dtype),
            (self.explained_variance * sample).astype(self.plan.dtype),
            self.total_variance * sample,
            self.n_rows,
            self.group_counts,
            self.group_means,
            schema,
            {**self.plan.to_header(), "directions": "absolute", "solver": "power"},
        )

    # Reading rows -----------------------------------------------------------------------------------

    def update(self, X: Matrix, groups: object = None, *, sample_weight: object = None) -> FairPowerMethod:
        """Take in the next rows of the stream, any number of them; return self.

        X is n x d, dense or sparse, of any real type; `groups` is anything `encode_groups` takes, and
        `sample_weight` is refused. Groups may be left out in the second phase (and with constraint "none").
        Rejected rows leave the state as it was, and so does an update that Ctrl-C or a lack of memory breaks
        off.
        """
        if sample_weight is not None:
            raise ValueError("sample_weight is not part of the power method: use solver 'exact' or 'sketch'")
        draft = self._draft()
        draft._take_in(X, paired(groups, X, "groups"))
        self.__dict__.update(draft.__dict__)  # one call into C, which no signal can divide
        return self

    def _draft(self) -> FairPowerMethod:
        """Return a method to work on: it shares what is only replaced, and copies what is written to."""
        draft = copy.copy(self)
        draft._ledger, draft._moved = self._ledger.copy(), dict(self._moved)
        draft._P = None if self._P is None else self._P.copy(order="F")
        return draft

    def _take_in(self, X: Matrix, groups: object) -> None:
        """Take in rows; a failure leaves half of them in the sums, so this is for drafts."""
        # Dense values are checked while they are read, but for their scale, which the first rows show.
        started, sparse = self._ledger.count() > 0, sp.issparse(X)
        rows = _checked_rows(X, self.plan.n_features, self.plan.dtype, values=sparse, scale_known=started)
        if not started and not sparse:
            check_values(rows[:MAX_SLICE_ROWS], self.plan.dtype)
        codes, index = self._encode(groups, rows.shape[0])
        ledger, finding = self._ledger, self._finding_groups
        slots = {attribute: {*known.values()} for attribute, known in ledger.index.slots.items()}
        stretches = self.plan.stretches(
            rows.shape[0],
            codes,
            step=self._step,
            open_rows=int(ledger.open_counts[0]),
            present={a: {s for s in known if ledger.open_counts[s]} for a, known in slots.items()},
            compared=None if finding else slots,
        )
        if finding and stretches and stretches[0].ends_block:
            self._check_first_block(codes, index, stretches[0].rows.stop)
        ledger.enlist(index)
        with lapack_threads(self.plan.n_components):  # once: to set a limit takes as long as a small product
            for stretch in stretches:
                part = {a: column[stretch.rows] for a, column in codes.items()}
                whole = stretch.ends_block and not ledger.open_counts[0] and self.phase == "unfair"
                gaps = self._gaps(ledger.counted(part)) if whole else None
                self._read(rows[stretch.rows], part, gaps)
                if stretch.ends_block:
                    self._end_block(gaps)

    def end_step(self) -> FairPowerMethod:
        """End the step once the whole data has been read (`step_rows=None` only); return self."""
        if self.plan.step_rows is not None:
            raise ValueError(f"step_rows is {self.plan.step_rows}: steps end by themselves, by row count")
        draft = self._draft()
        draft._end_full_step()
        self.__dict__.update(draft.__dict__)
        return self

    def _end_full_step(self) -> None:
        """End the step over the whole data, on this method's own memory: for drafts."""
        ledger = self._ledger
        if not ledger.open_counts[0]:
            raise ValueError("there were no rows since the last step: update with the whole data first")
        if self._finding_groups:
            self._check_first_block({}, ledger.index, 0)
        if self.phase == "unfair" and self.plan.on_empty_group == "extend":
            for attribute, empty in ledger.open_lacks().items():
                raise NotEnoughGroupsError(
                    f"groups {empty} of {attribute!r} have no row in the whole data: leave them out of "
                    "groups=, or pass on_empty_group='zero'"
                )
        self._end_block()

    def fit_full(self, X: Any, groups: object = None) -> FairPowerMethod:
        """Run all planned steps, each over the whole of an array or a re-readable source; return self.

        `groups` as in `update`; a source brings its own.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 4))
        >>> FairPowerMethod(4, 2, power_steps=20, random_state=0).fit_full(X, X[:, 0] > 0).unfair_basis.shape
        (2, 4)
        """
        if isinstance(X, BlockSource):
            if groups is not None:
                raise ValueError(
                    "groups is given beside a source: the source's blocks bring their own groups"
                )
            source: Iterable[Block] = X
        elif isinstance(X, Iterator):
            raise ValueError("X can be read only once: pass an array or a source, or stream it with update")
        else:
            groups = paired(groups, X, "groups")
            rows = _checked_rows(X, self.plan.n_features, self.plan.dtype)
            source = [Block(rows, {} if groups is None else encode_groups(groups, rows.shape[0]))]
        work = self.copy()
        for _ in range(work._step, work.plan.total_steps):
            for block in source:
                work._take_in(block.X, block.groups or None)
            work._end_full_step()
        self.__dict__.update(work.__dict__)
        return self

    def _encode(self, groups: object, n_rows: int) -> tuple[Codes, GroupIndex]:
        """Return every row's slot per attribute and an index with all their groups, if new ones may come."""
        known = self._ledger.index
        if groups is None:
            if self.phase == "unfair":
                raise ValueError("groups is None: the first phase needs a label per row (None where unknown)")
            return {}, known
        codes, index = self._ledger.encode(groups, n_rows)
        self.plan.check_attributes(codes)
        new = index.listed()[known.n_slots - 1 :]
        if new and not self._finding_groups and self.plan.unfair_steps:
            raise ValueError(_late_group(*new[0]))
        return codes, index

    @property
    def _finding_groups(self) -> bool:
        """Whether the first block is still finding out which groups there are."""
        return self._step == 0 and not self._declared and self.phase == "unfair"

    def _check_first_block(self, codes: Codes, index: GroupIndex, stop: int) -> None:
        """Refuse a first block that shows less than two groups, too many, or not all that follow."""
        for attribute, label in index.listed()[self._ledger.index.n_slots - 1 :]:
            if not (codes[attribute][:stop] == index.slot(attribute, label)).any():
                raise ValueError(_late_group(attribute, label))
        found = {attribute: len(known) for attribute, known in index.slots.items()}
        for attribute, number in found.items():
            if number < 2:
                raise NotEnoughGroupsError(
                    f"the first block has {number} group of {attribute!r}, two are needed: take a "
                    "larger step_rows, shuffle the rows, or drop the attribute"
                )
        self.plan.check_room(found)

    def _read(self, X: Any, codes: Codes, gaps: list[Tally] | None = None) -> None:
        """Add rows of one block to its sums, slice by slice; those of `gaps` if they are the whole block."""
        ledger = self._ledger
        if ledger.shift is None:
            ledger.shift = provisional_origin(X).astype(self.plan.dtype)
        if self.plan.step_rows is None and not ledger.open_counts[0]:
            ledger.forget_closed()
        tallies = gaps or self._tallies()
        Q, P = self._open_products(tallies)
        fresh = not ledger.open_counts[0]
        reading = Reading(ledger.shift, Q, tallies, len(ledger.counts), len(self._inside), fresh)
        found = read_rows(X, codes, reading, P)
        ledger.add(found.counts, found.sums, found.squares)
        self._inside = self._inside + found.inside

    # Steps ------------------------------------------------------------------------------------------

    @property
    def _widths(self) -> dict[str, int]:
        return {attribute: self.plan.width(attribute) for attribute in self._ledger.index.slots}

    def _zeros(self, columns: int) -> FloatArray:
        return np.zeros((self.plan.n_features, columns), dtype=self.plan.dtype, order="F")

    def _tallies(self) -> list[Tally]:
        """Return what the open block sums up."""
        if self.phase == "components":
            return component_tallies(self.plan.n_components)
        return (side_tallies if self._step else group_tallies)(self._ledger, self._widths)

    def _gaps(self, counts: NDArray[np.int64]) -> list[Tally]:
        """Return what phase "unfair" makes of a block with so many rows of every slot."""
        return gap_tallies(self._ledger, self._widths, counts, first=self._step == 0)

    def _open_products(self, tallies: list[Tally]) -> tuple[FloatArray, FloatArray]:
        """Return Q and the open block's products P, with a place for every tally."""
        if self._Q is None:
            width = self.plan.n_components if self._U is not None else max(self._widths.values())
            self._generator = copy.deepcopy(self._generator)  # a draft must not move the original's
            self._Q = random_basis(self.plan.n_features, width, self._generator, self.plan.dtype)
            if self._U is not None:
                project_out_in_place(self._U, self._Q)
        width = tallies[-1].place.stop if tallies else 0
        if self._P is None or self._P.shape[1] < width:
            wider = self._zeros(width)
            if self._P is not None:
                wider[:, : self._P.shape[1]] = self._P
            else:
                followed = width if self._follows_inside else 0
                self._inside = np.zeros((followed, followed))
            self._P = wider
        return self._Q, self._P

    @property
    def _follows_inside(self) -> bool:
        """Whether V'CV is summed up with the rows: it costs b k^2 so, and d k^2 from the products later."""
        size = self.plan.block_rows(self._step)
        return self.phase == "components" and size is not None and size < self.plan.n_features

    def _end_block(self, gaps: list[Tally] | None = None) -> None:
        """Take the power step with the block's products, which are those of `gaps` if these are given."""
        ledger, tallies = self._ledger, gaps or self._tallies()
        Q, P = self._open_products(tallies)
        self._P = None
        if self._U is None:
            if gaps is None:
                gaps = self._gaps(ledger.open_counts)
                P = gap_products(gaps, tallies, P)
            self._Q = gap_step(gaps, ledger, Q, P)
            if self._step + 1 == self.plan.unfair_steps and Q.shape[1]:
                self._moved["unfair"] = self._gap_movement(Q, self._Q)
        else:
            inside = self._inside.copy()
            centre_products(tallies[0], ledger, Q, P, inside)
            self._Q, told = component_step(self._U, Q, P, int(ledger.open_counts[0]), inside)
            self._inside = np.zeros((0, 0))
            if isinstance(told, ComponentStep):
                self._pending = told
            else:
                self._know(*told, step=self._step + 1)
        del P, Q
        ledger.close()
        self._step += 1
        if self._step in (self.plan.unfair_steps, self.plan.total_steps):
            self._warn_of_movement()
        if self._U is None and self._step == self.plan.unfair_steps:
            self._U = unfair_basis_of(self._Q, ledger, with_means=self.plan.constraint != "covariance")
            self._Q = None
            self._warn_of_groups_without_rows()

    def _work_out(self) -> None:
        """Find what the last component step has put off; V as it is kept stays what it is."""
        if self._pending is not None:
            self._know(*self._pending.worked_out(), step=self._step)

    def _know(
        self, variances: NDArray[np.float64], turn: FloatArray | None, cosines: FloatArray, step: int
    ) -> None:
        """Keep what the component step that ended step number `step` tells."""
        self._variances, self._turn, self._pending = variances, turn, None
        if self.plan.step_rows is not None or step == self.plan.total_steps:
            self._moved["components"] = self._component_movement(cosines)

    def _gap_movement(self, before: FloatArray, after: FloatArray) -> float:
        """Return how far the comparison that moved most did; the first step starts all from one basis."""
        shared = self._step == 0
        moved = [0.0]
        for attribute, _, columns in gap_columns(self._ledger, self._widths):
            old = slice(0, self._widths[attribute]) if shared else columns
            moved.append(_largest_sine(inner_product(before[:, old], after[:, columns])))
        return max(moved)

    def _component_movement(self, cosines: FloatArray) -> float:
        """Return how far V moved, without the columns that no variance determines."""
        known = int(np.count_nonzero(self._variances > np.finfo(self.plan.dtype).eps * self._variances[0]))
        return _largest_sine(cosines[:, :known])

    def _warn_of_movement(self) -> None:
        """Warn if the phase that ends with this step was still moving."""
        phase = "components" if self._step == self.plan.total_steps else "unfair"
        moved, whole = self.convergence.get(phase, 0.0), self.plan.step_rows is None
        if moved <= (STILL if whole else STILL_IN_BLOCKS):
            return
        what = "unfair directions" if phase == "unfair" else "components"
        warnings.warn(
            f"the power method has not converged: the {what} still moved by {moved:.2g} (sine of an angle) "
            f"in the last of {self.plan.power_steps[phase == 'components']} steps; raise power_steps"
            f"{'' if whole else ' or step_rows'}, or use solver='exact' or 'sketch'",
            FairstreamWarning,
            stacklevel=5,
        )

    def _warn_of_groups_without_rows(self) -> None:
        for attribute, empty in self._ledger.lacks().items():
            warnings.warn(
                f"groups {empty} of {attribute!r} had no row in the first phase: their gaps are unknown "
                "and not nulled",
                FairstreamWarning,
                stacklevel=5,
            )

    def copy(self) -> FairPowerMethod:
        """Return an independent copy, random generator included."""
        return copy.deepcopy(self)

    def narrowed(self, n_features: int) -> FairPowerMethod:
        """Return the same method for fewer features; for one that has read no row.

        Parameters
        ----------
        n_features : int
            Number of features, d.
        """
        other = self.copy()
        other.plan = PowerPlan.of(**{**self.plan.to_header(), "n_features": n_features})
        other._ledger = GroupLedger(n_features)
        other._U = None if other.plan.unfair_steps else other._zeros(0)
        if self._declared:
            other.declare(self._ledger.index.slots)
        return other

    # Part of a step done elsewhere: the sums over some rows of a block, and their way back in -------------

    def declare(self, groups: object) -> None:
        """Name the groups before any row has come, as `groups` of the constructor does."""
        ledger = self._ledger.copy()
        ledger.declare(groups)
        self.plan.check_attributes(ledger.index.slots)
        self.plan.check_room({a: len(known) for a, known in ledger.index.slots.items()})
        self._ledger, self._declared = ledger, True

    def open_step(self, first_rows: FloatArray) -> None:
        """Fix what all parts of the coming step must share: the basis it multiplies with, and the shift.

        `first_rows` are the first rows of the data, at least 64 if there are as many; their mean is the shift
        of the first step. The groups must have been declared.
        """
        ledger = self._ledger
        if ledger.shift is None:
            head = _checked_rows(first_rows[:64], self.plan.n_features, self.plan.dtype)
            ledger.shift = provisional_origin(head).astype(self.plan.dtype)
        if self.plan.step_rows is None and not ledger.open_counts[0]:
            ledger.forget_closed()
        self._open_products(self._tallies())
        if not ledger.open_counts[0]:
            self._P = None  # zeros need not travel

    def partial_sums(self, blocks: Iterable[Block]) -> PartialSums:
        """Return the sums over some `blocks` of the open step; nothing changes here."""
        work = self.copy()
        ledger, tallies = work._ledger, work._tallies()
        ledger.open_counts[:], ledger.open_sums[:], ledger.open_squares = 0, 0.0, 0.0
        work._P = None
        for block in blocks:
            rows = _checked_rows(block.X, work.plan.n_features, work.plan.dtype, scale_known=True)
            codes, _ = work._encode(block.groups if ledger.index.slots else None, rows.shape[0])
            work._read(rows, codes)
        _, products = work._open_products(tallies)
        return PartialSums(ledger.open_counts, ledger.open_sums, ledger.open_squares, products, work._inside)

    def add_partial(self, part: PartialSums) -> None:
        """Add a `part` of the open step that `partial_sums` returned."""
        ledger = self._ledger
        _, products = self._open_products(self._tallies())
        products += part.products
        self._inside = self._inside + part.inside
        ledger.open_counts += part.counts
        ledger.open_sums += part.sums
        ledger.open_squares += part.squares

    def end_partial_step(self) -> None:
        """Take the power step once all its parts have been added.

        If a compared group has no row in them a stream would read on; parts have a fixed end, so it raises.
        """
        ledger = self._ledger
        if self.phase == "unfair" and self.plan.on_empty_group == "extend":
            for attribute, empty in ledger.open_lacks().items():
                raise NotEnoughGroupsError(
                    f"groups {empty} of {attribute!r} have no row in step {self.steps_done[0] + 1}: take a "
                    'larger step_rows, shuffle the rows, or pass on_empty_group="zero"'
                )
        self._end_block()

    # Resuming ---------------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything needed to resume later: a header of JSON values, and arrays (not copied)."""
        self._work_out()
        ledger_header, ledger_arrays = self._ledger.to_state()
        header = {
            "format": STATE_FORMAT,
            "options": self.plan.to_header(),
            "declared": self._declared,
            "step": self._step,
            "generator": self._generator.bit_generator.state,
            "convergence": dict(self._moved),
            **self.schema.to_header(),
        }
        arrays = {"variances": self._variances, "Q": self._Q, "P": self._P, "U": self._U, "turn": self._turn}
        known = {name: array for name, array in arrays.items() if array is not None}
        known |= {"inside": self._inside} if self._inside.size else {}
        return header | ledger_header, ledger_arrays | known

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FairPowerMethod:
        """Return the method that `to_state` described; it resumes exactly as the original would."""
        if header.get("format") not in _READABLE:
            raise FairstreamFileError(
                f"power state has format {header.get('format')!r}, this version reads up to {STATE_FORMAT}"
            )
        try:
            method = cls(**header["options"])
            method.schema = Schema.from_header(header)
            method._declared, method._step = bool(header["declared"]), operator.index(header["step"])
            method._generator.bit_generator.state = header["generator"]
            moved = header.get("convergence", {})  # files from before it was measured have none
            method._moved = {str(phase): float(sine) for phase, sine in moved.items()}
            method._ledger = GroupLedger.from_state(header, arrays)
            method._variances = np.array(arrays["variances"])
            method._Q, method._P, method._U = (
                np.array(arrays[name], order="F") if name in arrays else None for name in ("Q", "P", "U")
            )
            method._turn = np.array(arrays["turn"]) if "turn" in arrays else None
            method._inside = np.array(arrays.get("inside", method._inside))
            fits = method._fits()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise FairstreamFileError(f"power state cannot be read: {error!r}") from error
        if not fits:
            raise FairstreamFileError(
                "power state has arrays that do not fit its header: the file is damaged"
            )
        method._check_ranges()
        return method

    def _check_ranges(self) -> None:
        """Refuse counts and variances below zero, and bases that are not orthonormal."""
        self._ledger.check_ranges()
        checked_signs(self._variances, "variances")
        if self._U is not None:
            checked_orthonormal(self._U.T, "the columns of the unfair basis")
            if self._Q is not None and self._step > self.plan.unfair_steps:
                checked_orthonormal(self._Q.T, "components", self._U.T)
        if self._turn is not None:
            checked_orthonormal(self._turn, "the turn of the components")

    def _fits(self) -> bool:
        """Whether the arrays have the shapes and types that the header asks for."""
        plan, ledger = self.plan, self._ledger
        d = plan.n_features
        fits = ledger.fits(d, plan.dtype) and (self._U is None) == (self._step < plan.unfair_steps)
        fits &= self._variances.shape == (plan.n_components,) and self._variances.dtype == np.float64
        for array in (self._Q, self._P, self._U):
            fits &= array is None or (array.ndim == 2 and array.shape[0] == d and array.dtype == plan.dtype)
        if fits and self._Q is not None and self._U is not None:
            fits &= self._Q.shape[1] == plan.n_components
        square = 2 * (plan.n_components,)
        fits &= self._turn is None or (self._turn.shape == square and self._turn.dtype == np.float64)
        fits &= self._inside.shape in ((0, 0), square) and self._inside.dtype == np.float64
        if fits and self._P is not None:
            tallies = self._tallies()
            fits &= self._P.shape[1] == (tallies[-1].place.stop if tallies else 0) and self._Q is not None
        return bool(fits)


def _checked_rows(
    X: Any, n_features: int, dtype: Any, *, values: bool = True, scale_known: bool = False
) -> Any:
    """Return X as a real n x d array or CSR matrix of its own type.

    With `values`, also refuse what is not finite, or too large or small for sums of squares in `dtype`.
    """
    check_matrix(X)
    sparse: bool = sp.issparse(X)
    rows: Any = sp.csr_array(X) if sparse else np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise ValueError(
            f"X has shape {rows.shape}, expected (rows, {n_features}): pass the same columns always"
        )
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {rows.dtype}: pass real numbers")
    if values:
        numbers = rows.data if sparse else rows
        if not scale_known:  # one thread's share may be tiny although the whole is not
            check_values(numbers, dtype)
        else:
            parts = shares(len(numbers), numbers.size)
            in_threads(lambda part: check_values(numbers[part], dtype, scale_known=True), parts)
    return rows


def _own_generator(random_state: Any) -> np.random.Generator:
    """Return a generator of our own, so that its state can be stored and nobody else moves it."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    elif isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63))
    return np.random.default_rng(random_state)


def _largest_sine(inner: FloatArray) -> float:
    """Return the largest sine of the angles from span B to span A, orthonormal columns both, inner = A'B."""
    if not inner.shape[1]:
        return 0.0
    inner = inner.astype(np.float64, copy=False)
    smallest = lapack(scipy.linalg.eigvalsh, inner.T @ inner, subset_by_index=[0, 0], check_finite=False)[0]
    return float(np.sqrt(min(max(1.0 - smallest, 0.0), 1.0)))


def _late_group(attribute: str, label: Hashable) -> str:
    return (
        f"group {label!r} of {attribute!r} first appears after the first block, no gap of it is followed: "
        f"take a larger step_rows, shuffle the rows, or label it None; FairPowerMethod can be told of all "
        f"groups beforehand, groups={{{attribute!r}: [...]}}"
    )
