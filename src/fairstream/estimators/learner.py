"""Learner: what an estimator learns with. The protocol, its two kinds, and which one parameters ask for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import UNKNOWN, GroupColumn, Groups, compared, encode_groups
from fairstream.data.schema import Schema
from fairstream.data.small_groups import Counts, plain_counts
from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.power.method import PartialSums
from fairstream.subspace.choices import AUTO, Choices, check_choice, is_count
from fairstream.subspace.components import subspace_for
from fairstream.subspace.frontier import Frontier, frontier
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.screen import named_features
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
        self._held = self.power.copy()
        self._held.declare(groups)

    def open_step(self, first_rows: Matrix) -> None:
        self._held = self.power.copy()
        self._held.open_step(first_rows)

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[PartialSums, ...]:
        return (self.power.partial_sums(blocks),)

    def close_step(self, sums: Sequence[PartialSums]) -> None:
        method, size, (all_rows,) = self.power.copy(), self.step_rows, sums
        method.add_partial(all_rows)
        if size is None or all_rows.counts[0] == size:
            method.end_partial_step()
        self._held = method

    def subspace(self, choices: Choices) -> FairSubspace:
        subspace = self.power.subspace()
        warn_of_small_groups(subspace.group_counts, choices, len(subspace.unfair_basis))
        from_small = small_group_directions(subspace.group_counts, choices)
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
    """Learns with the power method from all columns but those that `screen` names; these are counted only.

    Which they are is known once there is a schema. Their means and variances are part of the result, in which
    no component uses them.

    Parameters
    ----------
    n_features : int
        Columns of X, with those that are left out.
    parameters : dict
        Of the estimator.
    dtype : {float64, float32}
    """

    name = "screened power"

    def __init__(self, n_features: int, parameters: Mapping[str, Any], dtype: DTypeLike) -> None:
        super().__init__(None)
        self._n_features, self._parameters, self._dtype = n_features, dict(parameters), np.dtype(dtype)
        self._schema = Schema()
        self._screened: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._outside: GroupMoments | None = None
        self._pass_ended = False

    @property
    def schema(self) -> Schema:
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        self._schema = schema
        if self._held is None and schema.variables():
            self._screened = named_features(schema, self._parameters["screen"])
            kept = self._n_features - len(self._screened)
            self._held = new_power_method(self._parameters, kept, self._dtype)

    @property
    def power(self) -> FairPowerMethod:
        if self._held is None:
            named_features(self._schema, self._parameters["screen"])  # an error: there are no names
        return self._held

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def copy(self) -> Self:
        other = copy.copy(self)
        other._held = copy.copy(self._held)
        return other

    def update(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        method = copy.copy(self.power)  # enough: an update replaces what it changes
        method.update(self._inside(X), groups, sample_weight=sample_weight)
        outside = self._counted(None if self._pass_ended else self._outside, X, groups)
        self.__dict__.update(_held=method, _outside=outside, _pass_ended=False)

    def fit(
        self, X: Matrix, groups: Groups | None = None, sample_weight: Any = None, target: Any = None
    ) -> None:
        if self.power.plan.step_rows is None and sample_weight is None:
            method = self.power.copy().fit_full(self._inside(X), groups)
            self.__dict__.update(_held=method, _outside=self._counted(None, X, groups))
        else:
            self.update(X, groups, sample_weight)

    def end_step(self) -> None:
        super().end_step()
        self._pass_ended = self.power.plan.step_rows is None

    def open_step(self, first_rows: Matrix) -> None:
        super().open_step(self._inside(first_rows))

    def partial_sums(self, blocks: Iterable[Block]) -> tuple[Any, ...]:
        sums, outside = self.power.partial_sums(()), None
        for block in blocks:
            sums += self.power.partial_sums([replace(block, X=self._inside(block.X))])
            outside = self._counted(outside, block.X, block.groups or None)
        return sums, _Merged(outside)

    def close_step(self, sums: Sequence[Any]) -> None:
        whole, (inside, outside) = self.power.plan.step_rows is None, sums
        before = None if whole else self._outside
        super().close_step([inside])
        self._outside = (_Merged(before) + outside).moments

    def subspace(self, choices: Choices) -> FairSubspace:
        """Return the subspace of the other columns, with zeros for those left out and their axes nulled."""
        found, outside, d = super().subspace(choices), self._outside, self._n_features
        assert outside is not None

        def spread(inside: Any, at_screened: Any = 0.0) -> NDArray[Any]:
            rows = np.zeros((*np.shape(inside)[:-1], d), dtype=found.mean.dtype)
            rows[..., self._kept], rows[..., self._screened] = inside, at_screened
            return rows

        axes = np.eye(d, dtype=found.mean.dtype)[self._screened]
        means = {
            a: {g: spread(mean, outside.mean(a, g)) for g, mean in of.items()}
            for a, of in found.group_means.items()
        }
        to_sample = outside.n_rows / max(outside.n_rows - 1, 1)
        facts = {"screen": [*self._parameters["screen"]], "n_screened": len(self._screened)}
        return replace(
            found,
            components=spread(found.components),
            unfair_basis=np.vstack([axes, spread(found.unfair_basis)]),
            mean=spread(found.mean, outside.mean()),
            total_variance=found.total_variance + outside.total_variance * to_sample,
            group_means=means,
            schema=self._schema,
            parameters={**found.parameters, **facts, "n_features": d},
        )

    def to_state(self, *, with_sample: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        state, arrays = self.power.to_state()
        header = {"learner": self.name, "learned": state, "n_features": self._n_features}
        header |= {"schema": self._schema.to_header(), "pass_ended": self._pass_ended, "outside": None}
        header["screen"] = [*self._parameters["screen"]]
        if self._outside is not None:
            header["outside"], counted = self._outside.to_state()
            arrays = {**arrays, **{f"outside.{name}": array for name, array in counted.items()}}
        return header, arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        own = {name: array for name, array in arrays.items() if not name.startswith("outside.")}
        method = PowerLearner.from_state(header, own).power
        learner = cls(header["n_features"], {"screen": header["screen"]}, method.plan.dtype)
        learner._schema = Schema.from_header(header["schema"])
        learner._screened = named_features(learner._schema, header["screen"])
        learner._held, learner._pass_ended = method, bool(header["pass_ended"])
        kept = learner._n_features - len(learner._screened)
        checked(method.plan.n_features == kept, "screened columns and features")
        if header["outside"] is not None:
            counted = {n.removeprefix("outside."): a for n, a in arrays.items() if n.startswith("outside.")}
            learner._outside = GroupMoments.from_state(header["outside"], counted)
            checked(learner._outside.n_features == len(learner._screened), "screened columns and moments")
        return learner

    def _inside(self, X: Matrix) -> Matrix:
        """Return the columns that are learned from."""
        if X.shape[1] != self._n_features:
            raise ValueError(f"X has shape {X.shape}, {self._n_features} columns are expected")
        self.power  # noqa: B018  an error if it is not known which columns are left out
        return X[:, self._kept]

    @property
    def _kept(self) -> NDArray[np.intp]:
        return np.setdiff1d(np.arange(self._n_features), self._screened)

    def _counted(self, so_far: GroupMoments | None, X: Matrix, groups: Groups | None) -> GroupMoments:
        """Return the moments of the columns left out, of the rows so far and of these."""
        counted = GroupMoments(len(self._screened)) if so_far is None else so_far.copy()
        columns = encode_groups(groups, X.shape[0]) if groups else {}
        for name in counted.groups.keys() - columns.keys():  # groups may be left out of the second phase
            columns[name] = GroupColumn(np.full(X.shape[0], UNKNOWN, dtype=np.intp), ())
        return counted.update(X[:, self._screened], columns or None)


class _Merged:
    """Moments that are added like sums; None is nothing."""

    def __init__(self, moments: GroupMoments | None) -> None:
        self.moments = moments

    def __add__(self, other: _Merged) -> _Merged:
        if self.moments is None or other.moments is None:
            return self if other.moments is None else other
        return _Merged(self.moments.copy().merge(other.moments))


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
    needing += [] if isinstance(choices.screen, list | tuple) else ["screen"]  # names need no moments
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
        raise ValueError(f"n_components={k!r}: give a whole number from 1 to n_features={d}, or None")
    dtype = working_dtype(X.dtype)
    if solver == "power":
        if choices.screen:
            return ScreenedPowerLearner(d, parameters, dtype)
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
