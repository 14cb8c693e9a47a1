"""Who is in which group, how many and with what mean: the running ledger of the power method."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupIndex, encode_groups, label_order
from fairstream.files.format import checked_number, checked_signs
from fairstream.linalg import FloatArray

_NUMBERS = ("scatter", "open_squares")
_ARRAYS = ("counts", "means", "open_counts", "open_sums", "shift")


class GroupLedger:
    """Counts and means of all rows (slot 0) and of every group, the open block apart from the closed ones.

    Sums of the open block are taken about `shift`, so a large offset cancels before it is added up; means are
    kept in float64 whatever the computing precision.

    Examples
    --------
    >>> ledger = GroupLedger(2)
    >>> codes, index = ledger.encode(["f", "m", None], 3)
    >>> ledger.enlist(index)
    >>> ledger.index.slots, codes["sensitive_feature_0"].tolist()
    ({'sensitive_feature_0': {'f': 1, 'm': 2}}, [1, 2, 0])
    """

    def __init__(self, n_features: int) -> None:
        self.index = GroupIndex()
        self.counts = np.zeros(1, dtype=np.int64)
        self.means = np.zeros((1, n_features))
        self.scatter = 0.0
        self.open_counts = np.zeros(1, dtype=np.int64)
        self.open_sums = np.zeros((1, n_features))
        self.open_squares = 0.0
        self.shift: FloatArray | None = None

    def copy(self) -> GroupLedger:
        """Return an independent copy; index and shift are shared, for they are only ever replaced."""
        other = copy.copy(self)
        for name in ("counts", "means", "open_counts", "open_sums"):
            setattr(other, name, getattr(self, name).copy())
        return other

    # Labels -----------------------------------------------------------------------------------------

    def encode(self, groups: object, n_rows: int) -> tuple[dict[str, NDArray[np.intp]], GroupIndex]:
        """Return every row's slot per attribute (0 if unknown), and an index that has all their groups.

        The ledger itself is left as it is: `enlist` takes the index over.
        """
        columns = encode_groups(groups, n_rows)
        self.index.check_attributes(columns)
        index = self.index.with_groups(columns)
        return index.codes(columns), index

    def declare(self, groups: object) -> None:
        """Enlist groups named before any row has come."""
        declared = groups if isinstance(groups, Mapping) else {"sensitive_feature_0": groups}
        found: dict[str, list[Hashable]] = {}
        for attribute, labels in declared.items():
            if isinstance(labels, str) or not isinstance(labels, Iterable) or len(set(labels)) < 2:
                raise ValueError(f"groups[{attribute!r}] is {labels!r}: name at least two different labels")
            found[str(attribute)] = sorted(set(labels), key=label_order)
        self.enlist(self.index.with_labels(found))

    def enlist(self, index: GroupIndex) -> None:
        """Take over an index with more groups, with room for their counts and means."""
        new = index.n_slots - self.index.n_slots
        self.index = index
        if not new:
            return
        self.counts = np.append(self.counts, np.zeros(new, dtype=np.int64))
        self.open_counts = np.append(self.open_counts, np.zeros(new, dtype=np.int64))
        nothing = np.zeros((new, self.means.shape[1]))
        self.means = np.concatenate([self.means, nothing])
        self.open_sums = np.concatenate([self.open_sums, nothing])

    def counted(self, codes: Mapping[str, NDArray[np.intp]]) -> NDArray[np.int64]:
        """Return how many rows of some that `encode` has seen every slot has, all of them together first."""
        counts = np.zeros_like(self.counts)
        for column in codes.values():
            counts += np.bincount(column, minlength=len(counts))
            counts[0] = len(column)
        return counts

    def open_lacks(self) -> dict[str, list[Hashable]]:
        """Return the groups of every attribute that have no row in the open block."""
        return self._without(lambda slot: int(self.open_counts[slot]))

    def lacks(self) -> dict[str, list[Hashable]]:
        """Return the groups of every attribute that have no row at all."""
        return self._without(self.count)

    def _without(self, count: Callable[[int], int]) -> dict[str, list[Hashable]]:
        found = {
            attribute: [label for label, slot in known.items() if not count(slot)]
            for attribute, known in self.index.slots.items()
        }
        return {attribute: labels for attribute, labels in found.items() if labels}

    # Sums -------------------------------------------------------------------------------------------

    def add(self, counts: NDArray[np.int64], sums: NDArray[np.float64], squares: float) -> None:
        """Count rows of the open block: how many per slot, their sums about the shift, their squares."""
        self.open_counts += counts
        self.open_sums += sums
        self.open_squares += squares

    def close(self) -> None:
        """Fold the open block into the closed ones and take the new total mean as the next shift."""
        self.scatter = self._scatter()
        for slot in range(len(self.counts)):
            self.means[slot] = self.mean(slot)
            self.counts[slot] += self.open_counts[slot]
            self.open_counts[slot] = 0  # at once: mean() must not count the block twice
        self.open_sums[:] = 0
        self.open_squares = 0.0
        assert self.shift is not None
        self.shift = self.means[0].astype(self.shift.dtype)

    def forget_closed(self) -> None:
        """Start counting anew: the next block reads the same rows again."""
        self.counts[:] = 0
        self.scatter = 0.0

    # What is known so far, the open block's rows included -------------------------------------------

    def count(self, slot: int = 0) -> int:
        """Return the rows of an slot."""
        return int(self.counts[slot] + self.open_counts[slot])

    def mean(self, slot: int = 0) -> NDArray[np.float64]:
        """Return the mean of an slot."""
        mean: NDArray[np.float64] = self.means[slot].copy()
        if self.open_counts[slot]:
            block_mean = self.open_sums[slot] / self.open_counts[slot] + self.shift
            mean += (self.open_counts[slot] / self.count(slot)) * (block_mean - mean)
        return mean

    def mean_gap(self, attribute: str, group: Hashable) -> NDArray[np.float64] | None:
        """Return the mean inside a group minus the mean outside it, None if one of them has no row."""
        slot = self.index.slot(attribute, group)
        others = self.index.rest(attribute, slot)
        outside = sum(self.count(other) for other in others)
        if not outside or not self.count(slot):
            return None
        gap = self.mean(slot)
        for other in others:
            gap -= (self.count(other) / outside) * self.mean(other)
        return gap

    def total_variance(self) -> float:
        """Return the exact trace of the covariance (1/n) of all rows."""
        return self._scatter() / max(self.count(), 1)

    # Resuming ---------------------------------------------------------------------------------------

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header values and arrays (not copied)."""
        slots = self.index.slots
        groups = [[a, label, slot] for a, known in slots.items() for label, slot in known.items()]
        for attribute, label, _ in groups:
            if not isinstance(label, str | int | float):
                raise ValueError(
                    f"the label {label!r} of {attribute!r} cannot be stored: label groups by text or numbers"
                )
        header = {name: getattr(self, name) for name in _NUMBERS}
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        return header | {"attributes": list(slots), "groups": groups}, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> GroupLedger:
        """Return the ledger that `to_state` described; `fits` and `check_ranges` say whether it is sound."""
        ledger = cls(0)
        slots: dict[str, dict[Hashable, int]] = {attribute: {} for attribute in header["attributes"]}
        for attribute, label, slot in header["groups"]:
            slots[str(attribute)][label] = int(slot)
        ledger.index = GroupIndex(slots, 1 + len(header["groups"]))
        for name in _NUMBERS:
            setattr(ledger, name, float(header[name]))
        for name in _ARRAYS:
            if name in arrays or name != "shift":
                setattr(ledger, name, np.array(arrays[name]))
        return ledger

    def fits(self, n_features: int, dtype: np.dtype[Any]) -> bool:
        """Whether the slots are complete and the arrays have their shapes and types."""
        n, d = self.index.n_slots, n_features
        slots = sorted(slot for known in self.index.slots.values() for slot in known.values())
        expected = {"counts": ((n,), np.int64), "means": ((n, d), np.float64)}
        expected |= {"open_counts": expected["counts"], "open_sums": expected["means"]}
        fits = slots == list(range(1, n))
        for name, (shape, kind) in expected.items():
            fits &= getattr(self, name).shape == shape and getattr(self, name).dtype == kind
        return fits and (self.shift is None or (self.shift.shape == (d,) and self.shift.dtype == dtype))

    def check_ranges(self) -> None:
        """Refuse counts and sums of squares below zero."""
        for name in ("counts", "open_counts"):
            checked_signs(getattr(self, name), name)
        for name in _NUMBERS:
            checked_number(getattr(self, name), name)

    def _scatter(self) -> float:
        """Chan's formula: scatter of the closed rows, of the open ones, and of the two means."""
        old, new = int(self.counts[0]), int(self.open_counts[0])
        if new == 0:
            return self.scatter
        sums = self.open_sums[0]
        apart = sums / new + self.shift - self.means[0]
        within = max(self.open_squares - float(sums @ sums) / new, 0.0)
        return self.scatter + within + old * new / (old + new) * float(apart @ apart)
