"""Learner: what an estimator learns with. The protocol, its two kinds, and which one parameters ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.exceptions import NotFittedError

from fairstream.data.blocks import Block, Matrix, take_rows
from fairstream.data.groups import Groups, compared, encode_groups
from fairstream.data.schema import Schema
from fairstream.data.small_groups import Counts, plain_counts
from fairstream.errors import FairstreamFileError, NoRoomError
from fairstream.files.format import Arrays, Header, checked
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.power.columns import ColumnMoments
from fairstream.power.method import PartialSums
from fairstream.subspace.choices import AUTO, Choices, check_choice, is_count
from fairstream.subspace.components import subspace_for
from fairstream.subspace.frontier import Frontier, frontier
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.screen import chosen_features, largest_gaps, named_features, room_beside
from fairstream.subspace.unfair import small_group_directions, warn_of_small_groups

POWER_ONLY = {"step_rows": None, "power_steps": 10, "on_empty_group": "extend"}  # options, defaults
SOLVERS = ("auto", "exact", "sketch", "power")
EXACT_FEATURES = 2_000  # "auto" keeps d x d matrices up to here
LEAST_RANK = 64  # of a sketch by default: on flat spectra (many rare categories) fewer keep next to nothing
NARROW = 512  # features up to which a sketch by default drops nothing
SAMPLE_ROWS = 4_096  # of every group, for a guard
EXACT_BYTES = 2_000_000_000  # and while those of all groups, twice for an update, take no more than this


class Learner(Protocol):
    """What takes in rows, and what a fair subspace is solved from.

    `update`, `merge` and `end_step` are all or nothing: one that raises or is interrupted leaves the learner
    as it was. They replace what they change, so that a `copy` costs next to nothing and stays as it is.
    """

    schema: Schema

    @property
    def n_features(self) -> int:
        """Number of columns of X."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Computing precision."""

    @property
    def n_rows(self) -> int | float:
        """Rows seen, or the sum of their weights."""

    @property
    def group_counts(self) -> Counts:
        """Rows of every group of every attribute; nothing is solved for it."""

    @property
    def solver(self) -> str:
        """The solver by name: "exact", "sketch" or "power"."""

    @property
    def passes(self) -> int:
        """How often it wants to read the whole data, with an `end_step` after each time."""

    @property
    def needs_groups(self) -> bool:
        """Whether the next rows must come with their groups if groups are compared at all."""

    @property
    def is_settled(self) -> bool:
        """Whether its file, written now, would resume to the bit as it goes on itself."""

    @property
    def phase(self) -> str:
        """Where the power method is: "unfair" or "components"; an AttributeError if there is none."""

    @property
    def moments(self) -> Any:
        """The `GroupMoments` (of several channels a tuple); an AttributeError if there are none."""

    @property
    def power(self) -> Any:
        """The `FairPowerMethod` (of several channels a tuple); an AttributeError if there is none."""

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        """Take in some rows; the target is for a learner that keeps a sample of them."""

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        """Take in all rows there are, in as many passes as it wants. For a learner that is new."""

    def merge(self, other: Any) -> None:
        """Add the rows of another learner of the same kind."""

    def end_step(self) -> None:
        """End a pass over the whole data."""

    def subspace(self, choices: Choices) -> Any:
        """Return the fair subspace for these choices, of several channels a `ChannelSubspaces`."""

    def frontier(self, subspace: Any, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]) -> Any:
        """Return the points of `frontier`, of several channels a tuple of them.

        `subspace` is the present result, for its number of components.
        """

    def copy(self) -> Self:
        """Return a copy; neither changes when the other learns."""

    def describe(self) -> dict[str, Any]:
        """Return the figures that a reader of its file wants first."""

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything needed to resume: a header of JSON values, and arrays (not copied).

        Sampled rows, which are row-level data, only if told to.
        """

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the learner that `to_state` described."""


class StepLearner(Learner, Protocol):
    """A learner that takes steps, each over all rows or the next ones, which others may read in parts.

    For every step `open_step`, then `partial_sums` wherever some of its rows are, then `close_step` with the
    sum of what these returned. All of them replace what they change.
    """

    @property
    def step_rows(self) -> int | None:
        """Rows of the coming step, None if it reads all rows."""

    def declare(self, groups: Mapping[str, Any]) -> None:
        """Name the groups before any row has come."""

    def open_step(self, first_rows: Matrix) -> None:
        """Fix what all parts of the coming step share; `first_rows` are the first rows of the data."""

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        """Return the sums over some rows of the open step, for each channel; nothing changes here."""

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        """Add the sums over all rows of the step and take it; one that lacks rows stays open."""


class _Single:
    """What learners of all columns as one have in common; `_held` is what takes in the rows."""

    name: ClassVar[str]

    def __init__(self, held: Any) -> None:
        self._held = held

    @property
    def schema(self) -> Schema:
        return self._held.schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        self._held.schema = schema

    @property
    def n_rows(self) -> int | float:
        return self._held.n_rows

    @property
    def group_counts(self) -> Counts:
        return self._held.group_counts

    def copy(self) -> Self:
        return type(self)(copy.copy(self._held))

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        state, arrays = self._held.to_state(**({"with_sample": True} if with_sample else {}))
        return {"learner": self.name, "learned": state}, arrays


class MomentsLearner(_Single):
    """Learns group moments, exact or sketched, in one pass.

    Examples
    --------
    >>> learner = MomentsLearner(GroupMoments(3))
    >>> learner.update(np.eye(3))
    >>> learner.solver, learner.n_rows
    ('exact', 3)
    """

    name = "moments"
    passes = 1
    needs_groups = True

    @property
    def is_settled(self) -> bool:
        return not self.moments.rows_wait

    @property
    def moments(self) -> GroupMoments:
        return self._held

    @property
    def power(self) -> Any:
        raise AttributeError(f'solver="{self.solver}" runs no power method: use solver="power"')

    @property
    def phase(self) -> str:
        return self.power.phase

    @property
    def n_features(self) -> int:
        return self.moments.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.moments.dtype

    @property
    def solver(self) -> str:
        return "exact" if self.moments.rank is None else "sketch"

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        self.moments.update(X, groups, sample_weight, target=target)

    fit = update

    def merge(self, other: Learner) -> None:
        self.moments.merge(other.moments)

    def end_step(self) -> None:
        pass

    def subspace(self, choices: Choices) -> FairSubspace:
        return subspace_for(self.moments, choices)

    def frontier(
        self, subspace: FairSubspace, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]
    ) -> Frontier:
        asked: dict[str, Any] = {"n_components": subspace.n_components, **choices}
        return frontier(self.moments, n_unfair=n_unfair, **asked)

    def describe(self) -> dict[str, Any]:
        return self.moments.describe()

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        return cls(GroupMoments.from_state(header["learned"], arrays))


class PowerLearner(_Single):
    """Learns with the power method: in one pass, or in one pass for each of its steps. A `StepLearner`.

    Examples
    --------
    >>> PowerLearner(FairPowerMethod(3, 1, constraint="none", power_steps=7)).passes
    7
    """

    name = "power"
    solver = "power"
    is_settled = True

    @property
    def moments(self) -> Any:
        raise AttributeError('solver="power" keeps no moments: use "exact", "sketch" or "auto"')

    @property
    def power(self) -> FairPowerMethod:
        return self._held

    @property
    def phase(self) -> str:
        return self.power.phase

    @property
    def n_features(self) -> int:
        return self.power.plan.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.power.plan.dtype

    @property
    def passes(self) -> int:
        return 1 if self.power.plan.step_rows is not None else self.power.plan.total_steps

    @property
    def needs_groups(self) -> bool:
        return self.phase == "unfair"

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        self.power.update(X, groups, sample_weight=sample_weight)

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        if self.power.plan.step_rows is None and sample_weight is None:
            self.power.fit_full(X, groups)
        else:
            self.update(X, groups, sample_weight)

    def merge(self, other: Learner) -> NoReturn:
        raise ValueError("the power method does not merge: use solver 'exact' or 'sketch'")

    def end_step(self) -> None:
        if self.power.plan.step_rows is None:
            self.power.end_step()

    @property
    def step_rows(self) -> int | None:
        return self.power.plan.block_rows(sum(self.power.steps_done))

    def declare(self, groups: Mapping[str, Any]) -> None:
        method = self.power.copy()
        method.declare(groups)
        self._held = method

    def open_step(self, first_rows: Matrix) -> None:
        method = self.power.copy()
        method.open_step(first_rows)
        self._held = method

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        return (self.power.partial_sums(blocks),)

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        method, size, (all_rows,) = self.power.copy(), self.step_rows, sums
        method.add_partial(all_rows)
        if size is None or all_rows.counts[0] == size:
            method.end_partial_step()
        self._held = method

    def subspace(self, choices: Choices) -> FairSubspace:
        subspace, counts = self.power.subspace(), self.group_counts
        warn_of_small_groups(counts, choices, len(subspace.unfair_basis))
        from_small = small_group_directions(counts, choices)
        facts: dict[str, Any] = {
            "min_group_size": choices.min_group_size,
            "dither": choices.dither,
            "ids": choices.ids,
        }
        facts |= {"small_group_directions": from_small} if from_small else {}
        facts |= {"whiten": True} if choices.whiten else {}
        return replace(subspace, parameters={**subspace.parameters, **facts})

    def frontier(
        self, subspace: FairSubspace, n_unfair: Iterable[int] | None, choices: Mapping[str, Any]
    ) -> Any:
        return self.moments  # there are none, and the error says so

    def describe(self) -> dict[str, Any]:
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "phase": self.phase,
            "groups": plain_counts(self.group_counts),
        }

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        # Before anything of that size is made.
        n_features = header["learned"]["options"]["n_features"]
        checked(arrays["means"].shape[1:] == (n_features,), "means and features")
        return cls(FairPowerMethod.from_state(header["learned"], arrays))


class ScreenedPowerLearner(PowerLearner):
    """Learns with the power method from all columns but those that `screen` leaves out; these it counts.

    Names say which they are once there is a schema. A number or a limit ranks columns by their standardised
    gap first: it counts the rows of one step, or those of a first pass if every step reads all rows, and
    learns from the rows after them. Means and variances of all columns are part of the result, in which no
    component uses a column that is left out.

    Parameters
    ----------
    n_features : int
        Columns of X, with those that are left out.
    screen : int, float or sequence of str
    method : FairPowerMethod
        For all columns; it has read no row.
    """

    name = "screened power"

    def __init__(self, n_features: int, screen: Any, method: FairPowerMethod) -> None:
        super().__init__(method)
        self._screen = [*screen] if isinstance(screen, list | tuple) else screen
        self._schema = Schema()
        self._screened: NDArray[np.intp] | None = None  # not known yet
        self._columns = ColumnMoments(n_features)
        self._pass_ended = False  # and all rows are counted

    @property
    def _ranks(self) -> bool:
        return not isinstance(self._screen, list)

    @property
    def _is_ranking(self) -> bool:
        return self._ranks and self._screened is None

    @property
    def _is_whole(self) -> bool:
        return self.power.plan.step_rows is None

    @property
    def schema(self) -> Schema:
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        with self._draft() as work:
            work._schema = schema
            if work._screened is None and not work._ranks and schema.variables():
                work._leave_out(named_features(schema, work._screen))

    @property
    def n_features(self) -> int:
        return len(self._columns.scatter)

    @property
    def n_rows(self) -> int:
        return self._columns.n_rows

    @property
    def group_counts(self) -> Counts:
        return self._columns.group_counts

    @property
    def passes(self) -> int:
        return super().passes + (self._ranks and self._is_whole)

    @property
    def phase(self) -> str:
        return "unfair" if self._is_ranking else super().phase

    @property
    def step_rows(self) -> int | None:
        return self.power.plan.block_rows(0) if self._is_ranking else super().step_rows

    def copy(self) -> Self:
        other = copy.copy(self)
        other._held = copy.copy(self._held)
        return other

    @contextmanager
    def _draft(self) -> Iterator[Self]:
        """Yield a copy to change, and take it over at the end: an error leaves everything as it was."""
        work = self.copy()
        try:
            yield work
        except NoRoomError:
            left_out = 0 if work._screened is None else len(work._screened)
            with room_beside(work._screen, left_out, work.n_features, work.power.plan.n_components):
                raise
        self.__dict__.update(work.__dict__)  # one call into C, which no signal can divide

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        if sample_weight is not None:
            self.power.update(X, groups, sample_weight=sample_weight)  # an error
        columns = encode_groups(groups, X.shape[0]) if groups else {}
        with self._draft() as work:
            if work._is_ranking:
                size = work.step_rows
                ranked = slice(0, X.shape[0] if size is None else size - work.n_rows)
                work._rank(ColumnMoments.of(work._checked(X)[ranked], take_rows(columns, ranked)))
                X, columns = X[ranked.stop :], take_rows(columns, slice(ranked.stop, None))
            if X.shape[0]:
                work._held.update(work._inside(X), columns or None)
                if not work._pass_ended:
                    work._columns += ColumnMoments.of(X, columns)

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        if not self._is_whole or sample_weight is not None:
            self.update(X, groups, sample_weight)
            return
        columns = encode_groups(groups, X.shape[0]) if groups else {}
        with self._draft() as work:
            counted = ColumnMoments.of(work._checked(X), columns)
            if work._is_ranking:
                work._rank(counted)
                work.end_step()
            else:
                work._columns = counted
            work._held = work._held.copy().fit_full(work._inside(X), columns or None)

    def end_step(self) -> None:
        with self._draft() as work:
            if work._is_ranking and work._is_whole:
                work._choose()
            else:
                super(ScreenedPowerLearner, work).end_step()
            work._pass_ended = work._is_whole

    def declare(self, groups: Mapping[str, Any]) -> None:
        with self._draft() as work:
            super(ScreenedPowerLearner, work).declare(groups)

    def open_step(self, first_rows: Matrix) -> None:
        if not self._is_ranking:
            super().open_step(self._inside(first_rows))

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[Any, ...]:
        counted = ColumnMoments(self.n_features)
        sums = None if self._is_ranking else self.power.partial_sums(())
        for block in blocks:
            if not self._pass_ended:
                counted += ColumnMoments.of(self._checked(block.X), block.groups)
            if sums is not None:
                sums += self.power.partial_sums([replace(block, X=self._inside(block.X))])
        return (_ScreenedSums(counted, sums),)

    def close_step(self, sums: Sequence[Any]) -> None:
        (found,) = sums
        with self._draft() as work:
            if work._is_ranking:
                work._rank(found.columns)
                if work._is_whole:
                    work._choose()
            else:
                super(ScreenedPowerLearner, work).close_step([found.inside])
                if not work._pass_ended:
                    work._columns += found.columns
            work._pass_ended = work._is_whole

    def subspace(self, choices: Choices) -> FairSubspace:
        """Return the subspace of the other columns, with zeros for those left out and their axes nulled."""
        if self._is_ranking:
            left = (
                ""
                if self._is_whole
                else f": at least {(self.step_rows or 0) - self.n_rows:,} rows are missing"
            )
            raise NotFittedError(f"screen={self._screen} has not ranked the columns yet{left}")
        found, all_columns, d = super().subspace(choices), self._columns, self.n_features
        assert self._screened is not None
        dtype = found.mean.dtype

        def spread(inside: Any) -> NDArray[Any]:
            rows = np.zeros((len(inside), d), dtype=dtype)
            rows[:, self._kept] = inside
            return rows

        axes = np.eye(d, dtype=dtype)[self._screened]
        to_sample = self.n_rows / max(self.n_rows - 1, 1)
        facts = {"screen": self._screen, "n_screened": len(self._screened)}
        return replace(
            found,
            components=spread(found.components),
            unfair_basis=np.vstack([axes, spread(found.unfair_basis)]),
            mean=all_columns.means[0].astype(dtype),
            total_variance=float(all_columns.variances.sum()) * to_sample,
            n_rows=self.n_rows,
            group_counts=all_columns.group_counts,
            group_means={
                a: {g: mean.astype(dtype) for g, mean in of.items()}
                for a, of in all_columns.group_means.items()
            },
            schema=self._schema,
            parameters={**found.parameters, **facts, "n_features": d},
        )

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        state, arrays = self.power.to_state()
        counted, of_columns = self._columns.to_state()
        header = {"learner": self.name, "learned": state, "n_features": self.n_features, "columns": counted}
        header |= {"schema": self._schema.to_header(), "pass_ended": self._pass_ended, "screen": self._screen}
        header["screened"] = None if self._screened is None else self._screened.tolist()
        return header, {**arrays, **{f"columns.{name}": array for name, array in of_columns.items()}}

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        if "columns" not in header:
            raise FairstreamFileError(
                "the file holds a fit of version 0.2.0 with screen and the power method: fit again; models "
                "of it can be used"
            )
        own = {name: array for name, array in arrays.items() if not name.startswith("columns.")}
        counted = {n.removeprefix("columns."): a for n, a in arrays.items() if n.startswith("columns.")}
        d, screened = header["n_features"], header["screened"]
        checked(type(d) is int and counted["scatter"].shape == (d,), "columns and features")
        learner = cls(d, header["screen"], PowerLearner.from_state(header, own).power)
        learner._schema = Schema.from_header(header["schema"])
        learner._pass_ended = bool(header["pass_ended"])
        learner._columns = ColumnMoments.from_state(header["columns"], counted, d)
        if screened is not None:
            within = all(type(j) is int and 0 <= j < d for j in screened)
            checked(within and screened == sorted({*screened}), "screened columns and features")
            learner._screened = np.array(screened, dtype=np.intp)
        kept = d - len(screened or ())
        checked(learner.power.plan.n_features == kept, "screened columns and features")
        return learner

    def _rank(self, counted: ColumnMoments) -> None:
        """Count rows to rank columns by; once they are as many as a step has, choose."""
        if not counted.index.slots:
            raise ValueError(
                f"screen={self._screen} ranks columns by how groups differ in them: pass sensitive_features"
            )
        self._columns += counted
        size = self.step_rows
        if size is not None and self.n_rows >= size:
            self._choose()

    def _choose(self) -> None:
        """Leave out the columns of largest gap, for good."""
        counted = self._columns
        for attribute in counted.index.slots:
            counted.index.check_compared(attribute)
        if self.power.plan.constraint != "none" and not self.power.is_declared:
            self.declare(counted.index.slots)
        gaps = [counted.mean_gap(*pair) for pair in counted.index.comparisons()]
        ranked = largest_gaps(gaps, counted.variances)
        self._leave_out(chosen_features(self._screen, ranked, self._schema))

    def _leave_out(self, features: NDArray[np.intp]) -> None:
        self._screened = features
        self._held = self.power.narrowed(self.n_features - len(features))

    def _checked(self, X: Matrix) -> Matrix:
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has shape {X.shape}, {self.n_features} columns are expected")
        return X

    def _inside(self, X: Matrix) -> Matrix:
        """Return the columns that are learned from."""
        if self._screened is None:
            named_features(self._schema, self._screen)  # an error: there are no names
        return self._checked(X)[:, self._kept]

    @property
    def _kept(self) -> NDArray[np.intp]:
        assert self._screened is not None
        return np.setdiff1d(np.arange(self.n_features), self._screened)


@dataclass(frozen=True)
class _ScreenedSums:
    """What some rows add to a step: to the counts of all columns, and to the sums of the power method.

    Columns of rows that an earlier pass has counted are not counted again.
    """

    columns: ColumnMoments
    inside: PartialSums | None

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of every slot."""
        return self.columns.counts if self.inside is None else self.inside.counts

    def __add__(self, other: _ScreenedSums) -> _ScreenedSums:
        both = None if self.inside is None or other.inside is None else self.inside + other.inside
        return _ScreenedSums(self.columns + other.columns, both)


_KINDS: dict[str, type[Learner]] = {
    kind.name: kind for kind in (MomentsLearner, PowerLearner, ScreenedPowerLearner)
}


def learner_from_state(header: Header, arrays: Arrays) -> Learner:
    """Return the learner, of whichever kind, that `to_state` described."""
    name = header["learner"]
    if name not in _KINDS:
        raise FairstreamFileError(f"learner {name!r} is not known to this version: upgrade")
    return _KINDS[name].from_state(header, arrays)


def check_parameters(parameters: Mapping[str, Any]) -> Choices:
    """Return the choices among an estimator's parameters; refuse options that the solver would ignore."""
    solver = parameters["solver"]
    choices = Choices.of(parameters)
    check_choice("solver", solver, SOLVERS)
    if parameters["rank"] is not None and solver in ("exact", "power"):
        raise ValueError(f'rank={parameters["rank"]} has no meaning for solver="{solver}": leave it out')
    if parameters["rank"] is not None and not is_count(parameters["rank"], least=1):
        raise ValueError(f"rank={parameters['rank']!r}: give a whole number from 1, or None")
    for name, default in POWER_ONLY.items():
        if parameters[name] != default and solver != "power":
            raise ValueError(
                f'{name}={parameters[name]!r} has no meaning for solver="{solver}": leave it out, or use '
                'solver="power"'
            )
    if solver == "power" and choices.directions != "absolute":
        raise ValueError('directions="relative" needs moments: use solver "exact", "sketch" or "auto"')
    needing = ["n_unfair"] if choices.n_unfair == AUTO else []
    for name in (*needing, "guard", "sample"):
        if parameters[name] and solver == "power":
            raise ValueError(
                f'{name}={parameters[name]!r} needs moments: use solver "exact", "sketch" or "auto"'
            )
    if parameters["sample"] is not None and not is_count(parameters["sample"], least=1):
        raise ValueError(f"sample={parameters['sample']!r}: give a number of rows per group from 1, or None")
    if solver == "power" and not is_count(choices.n_components, least=1):
        raise ValueError(
            f'n_components={choices.n_components} is not possible with solver="power": give a whole number, '
            'or use solver "exact", "sketch" or "auto"'
        )
    return choices


def reads_whole_steps(parameters: Mapping[str, Any]) -> bool:
    """Whether the parameters ask for a learner that reads the whole data in every step."""
    return bool(parameters["solver"] == "power" and parameters["step_rows"] is None)


def new_learner(parameters: Mapping[str, Any], X: Matrix, groups: Groups | None) -> Learner:
    """Return an empty learner for data like X with groups like these, after checking the parameters."""
    choices = check_parameters(parameters)
    d, k, solver = int(X.shape[1]), choices.n_components, parameters["solver"]
    if k is not None and k > d:
        raise ValueError(f"n_components={k!r}: give a whole number from 1 to n_features={d}")
    dtype = working_dtype(X.dtype)
    if solver == "power":
        if choices.screen:
            return ScreenedPowerLearner(d, choices.screen, new_power_method(parameters, d, dtype))
        return PowerLearner(new_power_method(parameters, d, dtype))
    exact = solver == "exact" or (
        solver == "auto" and parameters["rank"] is None and _fits_exactly(d, groups)
    )
    rank = None if exact else _sketch_rank(parameters["rank"], choices, d, groups)
    sample = parameters["sample"] or (SAMPLE_ROWS if choices.guard else None)
    return MomentsLearner(GroupMoments(d, rank, dtype, sample=sample))


def new_power_method(
    parameters: Mapping[str, Any], n_features: int, dtype: DTypeLike, groups: Any = None
) -> FairPowerMethod:
    """Return the power method that an estimator's parameters ask for."""
    names = ("n_components", "n_unfair", "constraint", "step_rows", "power_steps", "on_empty_group")
    options = {name: parameters[name] for name in (*names, "random_state")}
    return FairPowerMethod(n_features, dtype=dtype, groups=groups, **options)


def _fits_exactly(d: int, groups: Groups | None) -> bool:
    matrices = 1 + sum(len(column.labels) for column in (groups or {}).values())
    return d <= EXACT_FEATURES and matrices * d * d * 16 <= EXACT_BYTES


def working_dtype(dtype: DTypeLike) -> type[np.floating[Any]]:
    """Return float32 for input that float32 holds (images, half precision), else float64.

    Examples
    --------
    >>> working_dtype("uint8").__name__, working_dtype("int64").__name__
    ('float32', 'float64')
    """
    dtype = np.dtype(dtype)
    small = dtype.kind in "iub" and dtype.itemsize <= 2
    return np.float32 if small or dtype in (np.float16, np.float32) else np.float64


def _sketch_rank(rank: int | None, choices: Choices, d: int, groups: Groups | None) -> int:
    """Return the rank given, else d up to 512 features, else 4 times the directions needed, at least 64."""
    if rank is not None:
        return min(int(rank), d)
    if d <= NARROW:
        return d
    if not is_count(choices.n_components, least=1):
        raise ValueError(
            f"n_components={choices.n_components} may keep all of n_features={d}: give n_components as a "
            'whole number, or rank, or solver="exact"'
        )
    unfair = 0
    for name, column in (groups or {}).items():
        comparisons = max(len(compared(column.labels)), 1)
        unfair += comparisons * (choices.unfair_directions(name) + 1)
    return min(max(4 * (int(choices.n_components or 0) + unfair), LEAST_RANK), d)
