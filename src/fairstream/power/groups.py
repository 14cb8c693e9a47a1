"""Who is in which group, how many and with what mean: the running ledger of the power method."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairstream.data.blocks import encode_groups, label_order
from fairstream.linalg import FloatArray

NewGroups = Mapping[int, tuple[str, Hashable]]


class GroupLedger:
    """Counts and means of all rows (entry 0) and of every group, the open block apart from the closed ones.

    Sums of the open block are taken about `shift`, so a large offset cancels before it is added up; means are
    kept in float64 whatever the computing precision.

    Examples
    --------
    >>> ledger = GroupLedger(2)
    >>> codes, new = ledger.encode(["f", "m", None], 3)
    >>> ledger.enlist(new)
    >>> ledger.entries, codes["sensitive_feature_0"].tolist()
    ({'sensitive_feature_0': {'f': 1, 'm': 2}}, [1, 2, 0])
    """

    def __init__(self, n_features: int) -> None:
        self.entries: dict[str, dict[Hashable, int]] = {}
        self.counts = np.zeros(1, dtype=np.int64)
        self.means = np.zeros((1, n_features))
        self.scatter = 0.0
        self.open_counts = np.zeros(1, dtype=np.int64)
        self.open_sums = np.zeros((1, n_features))
        self.open_squares = 0.0
        self.shift: FloatArray | None = None

    def copy(self) -> GroupLedger:
        """Return an independent copy; the shift is shared, for it is replaced and never written to."""
        other = copy.copy(self)
        other.entries = {attribute: dict(known) for attribute, known in self.entries.items()}
        for name in ("counts", "means", "open_counts", "open_sums"):
            setattr(other, name, getattr(self, name).copy())
        return other

    # Labels -----------------------------------------------------------------------------------------

    def encode(self, groups: object, n_rows: int) -> tuple[dict[str, NDArray[np.intp]], NewGroups]:
        """Return every row's entry per attribute (0 where unknown), and the groups that have none yet.

        New groups are numbered as `enlist` will number them; the ledger itself is left as it is.
        """
        columns = encode_groups(groups, n_rows)
        if self.entries and set(columns) != set(self.entries):
            raise ValueError(
                f"groups has the attributes {sorted(columns)}, before it had {sorted(self.entries)}: "
                "pass the same attributes every time"
            )
        codes: dict[str, NDArray[np.intp]] = {}
        new: dict[int, tuple[str, Hashable]] = {}
        for attribute, column in columns.items():
            table = dict(self.entries.get(attribute, {}))
            present = np.bincount(column.codes + 1, minlength=len(column.labels) + 1)[1:] > 0
            for label, here in zip(column.labels, present, strict=True):
                if here and label not in table:
                    table[label] = len(self.counts) + len(new)
                    new[table[label]] = (attribute, label)
            lookup = np.array([*(table.get(label, 0) for label in column.labels), 0], dtype=np.intp)
            codes[attribute] = lookup[column.codes]  # an unknown group's -1 finds the 0 at the end
        return codes, new

    def declare(self, groups: object) -> None:
        """Enlist groups named before any row has come."""
        declared = groups if isinstance(groups, Mapping) else {"sensitive_feature_0": groups}
        new: dict[int, tuple[str, Hashable]] = {}
        for attribute, labels in declared.items():
            if isinstance(labels, str) or not isinstance(labels, Iterable) or len(set(labels)) < 2:
                raise ValueError(f"groups[{attribute!r}] is {labels!r}: name at least two different labels")
            for label in sorted(set(labels), key=label_order):
                new[len(self.counts) + len(new)] = (str(attribute), label)
        self.enlist(new)

    def enlist(self, new: NewGroups, attributes: Iterable[str] = ()) -> None:
        """Give new groups their entries; remember attributes even where no label is known yet."""
        for attribute in attributes:
            self.entries.setdefault(attribute, {})
        if not new:
            return
        for entry, (attribute, label) in new.items():
            self.entries.setdefault(attribute, {})[label] = entry
        self.counts = np.append(self.counts, np.zeros(len(new), dtype=np.int64))
        self.open_counts = np.append(self.open_counts, np.zeros(len(new), dtype=np.int64))
        nothing = np.zeros((len(new), self.means.shape[1]))
        self.means = np.concatenate([self.means, nothing])
        self.open_sums = np.concatenate([self.open_sums, nothing])

    def comparisons(self) -> list[tuple[str, Hashable, int]]:
        """Return (attribute, group inside, its entry): one for two groups, else one versus rest for each."""
        compared = []
        for attribute, known in self.entries.items():
            labels = sorted(known, key=label_order)
            for label in labels[1:] if len(labels) == 2 else labels:
                compared.append((attribute, label, known[label]))
        return compared

    # Sums -------------------------------------------------------------------------------------------

    def add(self, counts: NDArray[np.int64], sums: NDArray[np.float64], squares: float) -> None:
        """Count rows of the open block: how many per entry, their sums about the shift, their squares."""
        self.open_counts += counts
        self.open_sums += sums
        self.open_squares += squares

    def close(self) -> None:
        """Fold the open block into the closed ones and take the new total mean as the next shift."""
        self.scatter = self._scatter()
        for entry in range(len(self.counts)):
            self.means[entry] = self.mean(entry)
            self.counts[entry] += self.open_counts[entry]
            self.open_counts[entry] = 0  # at once: mean() must not count the block twice
        self.open_sums[:] = 0
        self.open_squares = 0.0
        assert self.shift is not None
        self.shift = self.means[0].astype(self.shift.dtype)

    def forget_closed(self) -> None:
        """Start counting anew: the next block reads the same rows again."""
        self.counts[:] = 0
        self.scatter = 0.0

    # What is known so far, the open block's rows included -------------------------------------------

    def count(self, entry: int = 0) -> int:
        """Return the rows of an entry."""
        return int(self.counts[entry] + self.open_counts[entry])

    def mean(self, entry: int = 0) -> NDArray[np.float64]:
        """Return the mean of an entry."""
        mean: NDArray[np.float64] = self.means[entry].copy()
        if self.open_counts[entry]:
            block_mean = self.open_sums[entry] / self.open_counts[entry] + self.shift
            mean += (self.open_counts[entry] / self.count(entry)) * (block_mean - mean)
        return mean

    def rest(self, attribute: str, entry: int) -> list[int]:
        """Return the entries of an attribute's other groups."""
        return [other for other in self.entries[attribute].values() if other != entry]

    def mean_gap(self, attribute: str, entry: int) -> NDArray[np.float64] | None:
        """Return the mean inside a group minus the mean outside it, None where one of them has no row."""
        others = self.rest(attribute, entry)
        outside = sum(self.count(other) for other in others)
        if not outside or not self.count(entry):
            return None
        gap = self.mean(entry)
        for other in others:
            gap -= (self.count(other) / outside) * self.mean(other)
        return gap

    def total_variance(self) -> float:
        """Return the exact trace of the covariance (1/n) of all rows."""
        return self._scatter() / max(self.count(), 1)

    def _scatter(self) -> float:
        """Chan's formula: scatter of the closed rows, of the open ones, and of the two means."""
        old, new = int(self.counts[0]), int(self.open_counts[0])
        if new == 0:
            return self.scatter
        sums = self.open_sums[0]
        apart = sums / new + self.shift - self.means[0]
        within = max(self.open_squares - float(sums @ sums) / new, 0.0)
        return self.scatter + within + old * new / (old + new) * float(apart @ apart)


def open_sums(ledger: GroupLedger, entries: Sequence[int]) -> tuple[int, NDArray[np.float64]]:
    """Return the open block's rows and their sum about the shift, over some entries together."""
    return int(ledger.open_counts[[*entries]].sum()), ledger.open_sums[[*entries]].sum(axis=0)
