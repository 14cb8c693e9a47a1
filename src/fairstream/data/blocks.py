"""What flows through the library: blocks of rows with their encoded group labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn, Groups

Matrix: TypeAlias = Any  # a 2-D numpy array or a scipy CSR or CSC matrix; the latter has no usable type


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that arrive together: features, encoded groups and, if there are any, target, weights and ids.

    Parameters
    ----------
    X : array or sparse matrix (n, d)
        The features.
    groups : dict of str to GroupColumn
        The encoded labels of every attribute, see `encode_groups`.
    target : array (n,), optional
        What is to be predicted.
    weights : array (n,), optional
        A weight for every row.
    ids : array (n,), optional
        Whose rows these are, see `ids` of `FairSubspace.embed`.
    kept : Arrow table, optional
        Columns that are carried along to an output, see `keep` of `open_source`.

    Examples
    --------
    >>> from fairstream import encode_groups
    >>> Block(np.eye(3), encode_groups({"sex": ["f", "m", "f"]}, 3)).n_rows
    3
    """

    X: Matrix
    groups: Groups = field(default_factory=dict)
    target: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    kept: Any = None

    @property
    def n_rows(self) -> int:
        """How many rows the block holds."""
        return int(self.X.shape[0])

    def take(self, rows: slice | NDArray[np.intp]) -> Block:
        """Return some of the rows with everything that belongs to them.

        Examples
        --------
        >>> Block(np.eye(3), ids=np.array([7, 8, 9])).take(slice(1, 3)).ids.tolist()
        [8, 9]
        """
        target, weights, ids = (
            None if values is None else np.asarray(values)[rows]
            for values in (self.target, self.weights, self.ids)
        )
        kept = None if self.kept is None else self.kept.take(np.arange(self.n_rows)[rows])
        return Block(self.X[rows], take_rows(self.groups, rows), target, weights, ids, kept)


@runtime_checkable
class BlockSource(Protocol):
    """A re-iterable origin of blocks. Every iteration starts again at the first row.

    Examples
    --------
    >>> from fairstream import open_source
    >>> source = open_source(np.ones((5, 3)), block_size=2)
    >>> isinstance(source, BlockSource), [block.n_rows for block in source]
    (True, [2, 2, 1])
    """

    @property
    def n_features(self) -> int:
        """Number of columns of every block."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, None if the origin has none."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only reading would tell."""

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""


class SourceAround:
    """A source as it is; a subclass changes or watches its blocks.

    Parameters
    ----------
    source : BlockSource
    """

    def __init__(self, source: BlockSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name == "_source":  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self._source, name)

    @property
    def n_features(self) -> int:
        """Number of columns of every block."""
        return self._source.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, None if the source has none."""
        return self._source.feature_names

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only reading would tell."""
        return self._source.n_rows

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        return iter(self._source)


def is_source(value: object) -> bool:
    """Whether a value is a `BlockSource`; its properties, which may read data, are not evaluated.

    Examples
    --------
    >>> is_source([Block(np.eye(2))])
    False
    """
    absent = object()
    wanted = ("n_features", "feature_names", "n_rows", "__iter__")
    return all(getattr_static(value, name, absent) is not absent for name in wanted)


def take_rows(groups: Groups, rows: slice | NDArray[np.intp]) -> dict[str, GroupColumn]:
    """Return every column of `groups` for some of the rows."""
    return {attribute: column.take(rows) for attribute, column in groups.items()}
