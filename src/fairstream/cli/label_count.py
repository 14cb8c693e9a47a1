"""Counts the rows without a label on their way from a source to a fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairstream.data.blocks import Block, BlockSource


class LabelCount:
    """A source as it is, which knows after each pass how many rows had no label.

    Parameters
    ----------
    source : BlockSource

    Attributes
    ----------
    unlabelled : dict of str to int
        Rows without a label in the last whole pass, per attribute.

    Examples
    --------
    >>> import numpy as np
    >>> from fairstream.data import open_source
    >>> source = LabelCount(open_source(np.eye(3), sensitive_features={"sex": ["f", None, "m"]}))
    >>> _ = list(source)
    >>> source.unlabelled
    {'sex': 1}
    """

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self.unlabelled: dict[str, int] = {}

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
        unlabelled: dict[str, int] = {}
        for block in self._source:
            for attribute, column in block.groups.items():
                missing = int((column.codes < 0).sum())
                unlabelled[attribute] = unlabelled.get(attribute, 0) + missing
            yield block
        self.unlabelled = unlabelled
