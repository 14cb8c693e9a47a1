"""What a power method knows so far: its basis, its components, counts and means, at any point of a stream."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from fairstream.data.schema import Schema
from fairstream.linalg import FloatArray
from fairstream.power.groups import GroupLedger
from fairstream.power.plan import PowerPlan
from fairstream.subspace.model import FairSubspace


class KnownSoFar:
    """The reading side of `FairPowerMethod`. Arrays are copies; nothing here changes the method."""

    plan: PowerPlan
    schema: Schema
    _ledger: GroupLedger
    _step: int
    _Q: FloatArray | None
    _U: FloatArray | None
    _variances: NDArray[np.float64]

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
        for attribute, known in self._ledger.entries.items() if self.phase == "unfair" else ():
            if len(known) < 2:
                shown = ", ".join(map(repr, known)) or "no known label"
                missing += f"; {attribute!r} has shown only {shown}, a gap needs two groups"
        return missing

    @property
    def unfair_basis(self) -> FloatArray:
        """U, d x m', orthonormal columns."""
        if self._U is None:
            raise NotFittedError(f"the unfair basis is not known yet: {self._what_is_missing}")
        return self._U.copy(order="F")

    @property
    def components(self) -> FloatArray:
        """V, d x k, orthonormal columns orthogonal to U, by falling variance."""
        if self.rows_missing or self._Q is None:
            raise NotFittedError(f"there are no components yet: {self._what_is_missing}")
        return self._Q.copy(order="F")

    @property
    def explained_variance(self) -> NDArray[np.float64]:
        """Variance of the last block along V as it was before that block: fresh rows, so no optimism."""
        return self._variances.copy()

    @property
    def explained_variance_ratio(self) -> NDArray[np.float64]:
        """The same as a part of the total variance."""
        return self._variances / (self.total_variance or 1.0)

    @property
    def total_variance(self) -> float:
        """Exact trace of the covariance (1/n) of all rows so far."""
        return self._ledger.total_variance()

    @property
    def n_rows(self) -> int:
        """Rows so far; of the current pass where steps read the whole data."""
        return self._ledger.count()

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all rows so far."""
        return self._ledger.mean()

    @property
    def comparisons(self) -> list[tuple[str, Hashable]]:
        """(attribute, group inside) of every gap that is followed."""
        return [(attribute, label) for attribute, label, _ in self._ledger.comparisons()]

    @property
    def group_counts(self) -> dict[str, dict[Hashable, int]]:
        """Rows of every group."""
        ledger = self._ledger
        return {
            a: {label: ledger.count(e) for label, e in known.items()} for a, known in ledger.entries.items()
        }

    @property
    def group_means(self) -> dict[str, dict[Hashable, NDArray[np.float64]]]:
        """Mean of every group."""
        ledger = self._ledger
        return {
            a: {label: ledger.mean(e) for label, e in known.items()} for a, known in ledger.entries.items()
        }

    def subspace(self, feature_names: tuple[str, ...] | None = None) -> FairSubspace:
        """Return what is known so far as a frozen `FairSubspace`; raises while there are no components."""
        components = self.components
        schema = self.schema if feature_names is None else replace(self.schema, feature_names=feature_names)
        sample = self.n_rows / max(self.n_rows - 1, 1)  # from divisor n to n - 1, which FairSubspace has
        return FairSubspace(
            components.T,
            self.unfair_basis.T,
            self.mean.astype(self.plan.dtype),
            (self.explained_variance * sample).astype(self.plan.dtype),
            self.total_variance * sample,
            self.n_rows,
            self.group_counts,
            self.group_means,
            schema,
            {**self.plan.to_header(), "directions": "absolute", "solver": "power"},
        )
