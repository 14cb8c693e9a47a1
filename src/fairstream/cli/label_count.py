"""Counts the rows without a label on their way from a source to a fit."""

from __future__ import annotations

from collections.abc import Iterator

from fairstream.data.blocks import Block, BlockSource, SourceAround


class LabelCount(SourceAround):
    """A source as it is, which knows after each pass how many rows had no label.

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
        super().__init__(source)
        self.unlabelled: dict[str, int] = {}

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        unlabelled: dict[str, int] = {}
        for block in self._source:
            for attribute, column in block.groups.items():
                missing = int((column.codes < 0).sum())
                unlabelled[attribute] = unlabelled.get(attribute, 0) + missing
            yield block
        self.unlabelled = unlabelled
