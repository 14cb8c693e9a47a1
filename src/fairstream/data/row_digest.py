"""RowDigest: a running checksum of the rows of a stream, independent of how they are cut into blocks.

CRC-32 detects accidents (other rows, another order, other labels) at several gigabytes a second. It is no
protection against rows crafted to collide.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Block, Matrix
from fairstream.data.groups import GroupColumn

_PIECE_BYTES = 2**20


class RowDigest:
    """Checksums of all rows so far: how they are stored, their values, labels, weights and target.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> whole, cut = RowDigest(), RowDigest()
    >>> whole.update(Block(X))
    >>> for rows in (X[:1], X[1:]):
    ...     cut.update(Block(rows))
    >>> whole.to_json() == cut.to_json()
    True
    """

    def __init__(self) -> None:
        self._n_rows = 0
        self._storage = ""
        self._sums = {"types": 0, "values": 0}
        self._labels: dict[str, int] = {}
        self._codes: dict[tuple[type, Hashable], int] = {}

    def update(self, block: Block, target: NDArray[np.float64] | None = None) -> None:
        """Take in the rows of a block, with the target that is learned from, if one is."""
        self._note_storage(block.X)
        if sp.issparse(block.X):
            self._add_sparse(block.X)
        else:
            self._add_dense(block.X)
        for attribute, column in block.groups.items():
            self._add_labels(attribute, column)
        if block.weights is not None:
            self._add("weights", np.ascontiguousarray(block.weights, dtype=np.float64))
        if target is not None:
            self._add("target", target)
        self._n_rows += block.n_rows

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {**self._sums, "labels": dict(self._labels)}

    def difference(self, then: Mapping[str, Any]) -> str | None:
        """Return what differs from the rows that `to_json` described, None if nothing does.

        Examples
        --------
        >>> one, two = RowDigest(), RowDigest()
        >>> one.update(Block(np.eye(2, dtype=np.float32)))
        >>> two.update(Block(np.eye(2)))
        >>> one.difference(two.to_json())
        'types'
        """
        now = self.to_json()
        if then["labels"].keys() != now["labels"].keys():
            return "sensitive attributes"
        if then["types"] != now["types"]:
            return "types"
        if then.get("weights") != now.get("weights"):
            return "weights"
        if then.get("target", now.get("target")) != now.get("target"):  # early versions kept no sum of it
            return "targets"
        if any(then.get(name) != now.get(name) for name in {*then, *now} - {"labels", "target"}):
            return "values"
        differing = [repr(name) for name, labels in now["labels"].items() if then["labels"][name] != labels]
        return f"labels of {', '.join(differing)}" if differing else None

    def _note_storage(self, X: Matrix) -> None:
        """Add the type of the rows whenever it changes, so that the cuts between blocks do not matter."""
        storage = f"{'sparse' if sp.issparse(X) else 'dense'} {X.dtype.str} {X.shape[1]}"
        if storage != self._storage:
            self._add("types", f"{storage} from {self._n_rows}".encode())
            self._storage = storage

    def _add_dense(self, X: Matrix) -> None:
        """Add the values row by row; an array that is not in C order is copied in pieces."""
        X = np.asarray(X)
        step = len(X) if X.flags.c_contiguous else max(1, _PIECE_BYTES // max(1, X[:1].nbytes))
        for start in range(0, len(X), max(step, 1)):
            self._add("values", np.ascontiguousarray(X[start : start + step]))

    def _add_sparse(self, X: Matrix) -> None:
        """Add stored values, their columns and their number per row as three streams."""
        rows = X if X.format == "csr" else X.tocsr()
        held = slice(int(rows.indptr[0]), int(rows.indptr[-1]))
        index_type = np.int32 if rows.shape[1] < 2**31 else np.int64
        self._add("values", np.ascontiguousarray(rows.data[held]))
        self._add("columns", np.ascontiguousarray(rows.indices[held], dtype=index_type))
        self._add("lengths", np.diff(rows.indptr).astype(np.int64))

    def _add_labels(self, attribute: str, column: GroupColumn) -> None:
        """Add one number per row that depends on the label alone, not on the block's table of labels."""
        # The extra last entry serves the code -1, an unknown label.
        table = np.array([*map(self._code, column.labels), 0], dtype=np.uint32)
        before = self._labels.get(attribute, self._n_rows)
        self._labels[attribute] = zlib.crc32(table[column.codes].data, before)

    def _code(self, label: Hashable) -> int:
        key = (type(label), label)  # 1, 1.0 and True are equal
        if key not in self._codes:
            self._codes[key] = zlib.crc32(f"{type(label).__name__} {label!r}".encode())
        return self._codes[key]

    def _add(self, name: str, data: Any) -> None:
        self._sums[name] = zlib.crc32(data, self._sums.get(name, 0))
