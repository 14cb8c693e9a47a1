"""The source over any Python iterable of (X, labels): lists, generators, torch data loaders, callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairstream.data.alignment import paired
from fairstream.data.blocks import Block
from fairstream.data.cutting import check_block_size, closing_early, reslice
from fairstream.data.groups import encode_groups
from fairstream.data.ids import checked_ids
from fairstream.data.matrices import check_matrix, check_shape_and_type
from fairstream.data.roles import listed_names
from fairstream.data.tensors import fetched, is_tensor

_WANTED = "yield (X, labels), (X, labels, target), a Block, or X alone"


class IterableSource:
    """Blocks made from what an iterable yields, in its own sizes or re-cut to `block_size` rows.

    Parameters
    ----------
    items : iterable, or callable that returns one
        Yields (X, labels), (X, labels, target), Block, or X alone. Labels take any form that `encode_groups`
        takes. A list, a data loader or a callable can be read again, a generator only once.
    sensitive_features : list of str, optional
        Names for the label columns in order. If labels have names of their own, the ones to keep.
    block_size : int, optional
        Rows of every block; by default the blocks stay as they come.
    """

    feature_names = None

    def __init__(
        self,
        items: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        sensitive_features: object = None,
        block_size: int | None = None,
    ) -> None:
        if sensitive_features is not None and listed_names(sensitive_features) is None:
            raise ValueError(
                "sensitive_features holds labels, but the labels of an iterable come with its blocks: "
                f"pass their names, and {_WANTED}"
            )
        self._items = items
        self._names = listed_names(sensitive_features)
        self.block_size = check_block_size(block_size)
        self._one_shot = hasattr(items, "__next__")
        self._started = False
        self._peeked: Block | None = None
        self._shape: tuple[int | None, int] | None = None

    @property
    def n_features(self) -> int:
        """Number of columns, from a look at the first block."""
        if self._shape is None:
            blocks = self._blocks()
            first = next(blocks, None)
            if first is None:
                raise ValueError("the iterable is empty: yield at least one block")
            if self._one_shot:
                # A generator cannot be started again: keep the first block and resume after it.
                self._peeked, self._rest = first, blocks
            else:
                blocks.close()
        assert self._shape is not None
        return self._shape[1]

    @property
    def n_rows(self) -> int | None:
        """Number of rows, known after the first full pass."""
        return None if self._shape is None else self._shape[0]

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        blocks: Iterator[Block]
        if self._peeked is not None:
            blocks = self._resumed()
        else:
            blocks = self._blocks()
        return blocks if self.block_size is None else reslice(blocks, self.block_size)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to pickle what cannot be read again elsewhere."""
        if self._one_shot:
            raise TypeError(
                "a generator cannot be pickled: pass a list, or a function that returns the generator"
            )
        return self.__dict__

    def _resumed(self) -> Iterator[Block]:
        first, self._peeked = self._peeked, None
        if first is not None:
            yield first
        yield from self._rest

    def _blocks(self) -> Any:
        if self._one_shot:
            if self._started:
                raise ValueError(
                    "the generator can be read once only, and has been: pass a list, or a function that "
                    "returns the generator"
                )
            self._started = True
        items = self._items() if callable(self._items) else self._items
        n_rows = 0
        for index, item in enumerate(closing_early(items)):
            block = self._as_block(item, index)
            n_rows += block.n_rows
            yield block
        if self._shape is not None:
            self._shape = (n_rows, self._shape[1])

    def _as_block(self, item: Any, index: int) -> Block:
        place = f"block {index} of the iterable"
        if isinstance(item, Block):
            X, labels, target, weights = item.X, item.groups or None, item.target, item.weights
            ids = item.ids
        elif isinstance(item, tuple | list) and len(item) in (2, 3):
            X, labels, target = (*item, None)[:3]
            weights = ids = None
        elif hasattr(item, "shape"):
            X, labels, target, weights, ids = item, None, None, None, None
        else:
            raise ValueError(f"{place} is a {type(item).__name__}: {_WANTED}")
        check_matrix(X, place)
        labels, target = paired(labels, X, f"labels of {place}"), paired(target, X, f"target of {place}")
        if not sp.issparse(X):
            is_frame, X = hasattr(X, "columns"), fetched(X)
            if is_frame and X.dtype == object:
                raise ValueError(
                    f"{place} is a frame with columns that are no numbers: yield (numbers, labels), or open "
                    "the file that it comes from, or one frame of all"
                )
            check_shape_and_type(place, X.shape, X.dtype)
            X = X.reshape(X.shape[0], int(np.prod(X.shape[1:])))
        if self._shape is not None and X.shape[1] != self._shape[1]:
            raise ValueError(
                f"{place} has {X.shape[1]} columns, the first has {self._shape[1]}: yield equal widths"
            )
        if self._shape is None:
            self._shape = (None, X.shape[1])
        target = None if target is None else fetched(target)
        weights = None if weights is None else fetched(weights)
        for name, values in (("a target", target), ("weights", weights)):
            if values is not None and values.shape[:1] != X.shape[:1]:
                raise ValueError(
                    f"{place} has {X.shape[0]} rows and {name} of shape {values.shape}: yield one each"
                )
        ids = None if ids is None else checked_ids(ids, X.shape[0], f"ids of {place}")
        return Block(X, self._groups(labels, X.shape[0], place), target, weights, ids)

    def _groups(self, labels: Any, n_rows: int, place: str) -> Mapping[str, Any]:
        if labels is None:
            if self._names is not None:
                raise ValueError(
                    f"{place} has no labels, sensitive_features names {self._names}: yield (X, labels)"
                )
            return {}
        encoded = encode_groups(fetched(labels) if is_tensor(labels) else labels, n_rows)
        if self._names is None:
            return encoded
        if set(self._names) <= set(encoded):
            return {name: encoded[name] for name in self._names}
        unnamed = all(name.startswith("sensitive_feature_") for name in encoded)
        if unnamed and len(encoded) == len(self._names):
            return dict(zip(self._names, encoded.values(), strict=True))
        raise ValueError(
            f"{place} has the attributes {', '.join(encoded)}, sensitive_features names "
            f"{', '.join(self._names)}: "
            "name each label column"
        )


def open_iterable(data: Any, **options: Any) -> IterableSource:
    """Open an iterable of blocks, or a callable that returns one."""
    return IterableSource(data, **options)
