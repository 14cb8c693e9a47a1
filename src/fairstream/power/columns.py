"""ColumnMoments: counts and means of every group and the variance of every column, which ranks columns.

Memory O(G d). The power method keeps no second moments from which the gaps of columns could be standardised.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.data.groups import GroupIndex, Groups
from fairstream.data.matrices import check_matrix
from fairstream.files.format import Arrays, Header, checked, checked_signs, label_from_json, label_to_json
from fairstream.linalg import FloatArray
from fairstream.linalg.products import check_values, row_slices

_SLICE_NUMBERS = 2**20  # cast at a time
_ARRAYS = ("counts", "means", "scatter")


class ColumnMoments:
    """What is known of every column by itself. Never changed: sums are new ones.

    Examples
    --------
    >>> from fairstream import encode_groups
    >>> X = np.array([[0.0, 1], [0, 2], [1, 1], [1, 2]])
    >>> first, rest = (
    ...     ColumnMoments.of(X[rows], encode_groups({"sex": ["f", "f", "m", "m"][rows]}, 2))
    ...     for rows in (slice(0, 2), slice(2, 4))
    ... )
    >>> both = first + rest
    >>> both.variances, both.mean_gap("sex", "m")
    (array([0.25, 0.25]), array([1., 0.]))
    """

    def __init__(self, n_features: int) -> None:
        self.index = GroupIndex()
        self.counts = np.zeros(1, dtype=np.int64)
        self.means = np.zeros((1, n_features))
        self.scatter = np.zeros(n_features)

    @classmethod
    def of(cls, X: Matrix, columns: Groups) -> ColumnMoments:
        """Return the moments of some rows."""
        check_matrix(X)
        check_values(X.data if sp.issparse(X) else X, np.float64, scale_known=True)
        n, d = X.shape
        found = cls(d)
        found.index = GroupIndex().with_groups(columns)
        member = found.index.members(columns, n)
        found.counts = member.sum(axis=1)
        weights = member / np.maximum(found.counts, 1)[:, None]
        if sp.issparse(X):
            rows = _canonical(X)
            found.means = np.asarray((rows.T @ weights.T).T, dtype=np.float64)
            found.scatter = _sparse_scatter(rows, found.means[0])
            return found
        slices = row_slices(n, max(_SLICE_NUMBERS // d, 1))
        found.means = sum((weights[:, rows] @ X[rows] for rows in slices), start=np.zeros((len(member), d)))
        for rows in slices:
            found.scatter += ((X[rows] - found.means[0]) ** 2).sum(axis=0)
        return found

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        if self.index.slots and other.index.slots:  # rows may come without groups, but not with others
            self.index.check_attributes(other.index.slots)
        both = ColumnMoments(len(self.scatter))
        both.index = self.index.with_labels(other.index.slots)
        n, b = (np.zeros(both.index.n_slots, dtype=np.int64) for _ in range(2))
        old, new = (np.zeros((both.index.n_slots, len(self.scatter))) for _ in range(2))
        for one, counts, means in ((self, n, old), (other, b, new)):
            places = both.index.places_of(one.index)
            counts[places], means[places] = one.counts, one.means
        both.counts = n + b
        gaps, share = new - old, b / np.maximum(n + b, 1)
        both.means = old + share[:, None] * gaps
        both.scatter = self.scatter + other.scatter + n[0] * share[0] * gaps[0] ** 2
        return both

    @property
    def n_rows(self) -> int:
        """Rows counted."""
        return int(self.counts[0])

    @property
    def variances(self) -> FloatArray:
        """Variance (1/n) of every column."""
        return self.scatter / max(self.n_rows, 1)

    @property
    def group_counts(self) -> dict[str, dict[Hashable, int]]:
        """Rows of every group."""
        return {a: {g: int(self.counts[s]) for g, s in of.items()} for a, of in self.index.slots.items()}

    @property
    def group_means(self) -> dict[str, dict[Hashable, FloatArray]]:
        """Mean of every group."""
        return {a: {g: self.means[s] for g, s in of.items()} for a, of in self.index.slots.items()}

    def mean_gap(self, attribute: str, group: Hashable) -> FloatArray:
        """Return the mean inside a group minus the mean of the attribute's other rows."""
        slot = self.index.slot(attribute, group)
        others = self.index.rest(attribute, slot)
        shares = self.counts[others] / max(self.counts[others].sum(), 1)
        gap: FloatArray = self.means[slot] - shares @ self.means[others]
        return gap

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays (not copied)."""
        listed = [[a, label_to_json(a, label)] for a, label in self.index.listed()]
        header = {"attributes": [*self.index.slots], "groups": listed}
        return header, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_state(cls, header: Header | Mapping[str, Any], arrays: Arrays, n_features: int) -> ColumnMoments:
        """Return the moments that `to_state` described, after checking that everything fits."""
        found = cls(n_features)
        listed = [(name, label_from_json(label)) for name, label in header["groups"]]
        found.index = GroupIndex.of(map(str, header["attributes"]), listed)
        found.counts, found.means, found.scatter = (arrays[name] for name in _ARRAYS)
        n = 1 + len(listed)
        shapes = [arrays[name].shape for name in _ARRAYS]
        checked(shapes == [(n,), (n, n_features), (n_features,)], "counts, means and variances of columns")
        checked(found.counts.dtype == np.int64 and found.means.dtype == np.float64, "types of columns")
        for name in ("counts", "scatter"):
            checked_signs(getattr(found, name), f"{name} of columns")
        return found


def _canonical(X: Any) -> Any:
    """Return a CSR matrix in which every entry is stored once; X itself if it is one."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.astype(np.float64)  # a copy, in which sums of small integers do not overflow
        rows.sum_duplicates()
    return rows


def _sparse_scatter(rows: Any, mean: FloatArray) -> FloatArray:
    """Return the sum of squares of every column about its mean, that of entries not stored included.

    About the mean one by one: of a column far from zero, squares less that of the mean leave only rounding.
    """
    n, d = rows.shape
    scatter, filled = np.zeros(d), np.zeros(d, dtype=np.int64)
    for start in range(0, rows.nnz, _SLICE_NUMBERS):
        stored = slice(start, min(start + _SLICE_NUMBERS, rows.nnz))
        of = rows.indices[stored]
        filled += np.bincount(of, minlength=d)
        scatter += np.bincount(of, (rows.data[stored] - mean[of]) ** 2, minlength=d)
    about: FloatArray = scatter + (n - filled) * mean**2
    return about
