"""ScreenedPowerLearner: the power method on the columns that screening leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from fairstream.data.blocks import Block, Matrix, take_rows
from fairstream.data.groups import Groups, encode_groups
from fairstream.data.schema import Schema
from fairstream.data.small_groups import Counts
from fairstream.errors import FairstreamFileError, NoRoomError
from fairstream.estimators.power_learner import PowerLearner
from fairstream.files.format import Arrays, Header, checked
from fairstream.power import FairPowerMethod
from fairstream.power.columns import ColumnMoments
from fairstream.power.method import PartialSums
from fairstream.subspace.choices import Choices
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.screen import chosen_features, largest_gaps, named_features, room_beside


class ScreenedPowerLearner(PowerLearner):
    """Learns with the power method from all columns but those that `screen` leaves out.

    If `screen` lists names, the columns are known as soon as there is a schema. If it is a number or a limit,
    columns are ranked by their standardised gap first, from the rows of one step or, if every step reads all
    rows, of a first pass; the power method learns from the rows after them. Means and variances of all
    columns are part of the result, in which no component uses a column that is left out.

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
        """Add rows to the ranking; once there are as many as in a step, choose the columns."""
        if not counted.index.slots:
            raise ValueError(
                f"screen={self._screen} ranks columns by how groups differ in them: pass sensitive_features"
            )
        self._columns += counted
        size = self.step_rows
        if size is not None and self.n_rows >= size:
            self._choose()

    def _choose(self) -> None:
        """Choose the columns to leave out, for good."""
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
    """What some rows add to a step: to the moments of all columns, and to the sums of the power method.

    Rows that an earlier pass has counted do not count again.
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
