"""A PAFO plan straight from a source: its moments and a sample of its rows in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fairstream.data import open_source
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.cutting import cut_block, join_blocks
from fairstream.data.progress import Progress
from fairstream.moments import GroupMoments
from fairstream.theory.assumptions import pafo_constants
from fairstream.theory.plan import PafoPlan, pafo_plan


def plan_source(
    source: Any,
    n_components: int,
    n_unfair: int,
    eps_optimality: float,
    eps_fairness: float,
    delta: float,
    *,
    sample_rows: int = 10_000,
    progress: Progress | None = None,
) -> PafoPlan:
    """Return block sizes and steps of the power method for data like this source's.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
        The plan is for its first sensitive attribute.
    n_components, n_unfair : int
        k and m.
    eps_optimality, eps_fairness, delta : float
        The promise, see `pafo_plan`.
    sample_rows : int
        Bounds that moments do not give are estimated from this many rows, the first ones: the plan is an
        estimate.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 2_000)
    >>> X = rng.uniform(-1, 1, size=(2_000, 4)) * np.where(sex[:, None], [3, 1, 1, 1], [1, 1, 2, 1])
    >>> plan_source(open_source(X, sensitive_features={"sex": sex}), 1, 1, 0.5, 0.1, 0.1).n_rows > 2_000
    True
    """
    source = open_source(source)
    moments, kept = _moments_and_sample(source, sample_rows, progress)
    sample = join_blocks(kept)
    X = sample.X.toarray() if sp.issparse(sample.X) else np.asarray(sample.X)
    constants = pafo_constants(moments, n_components, n_unfair, sample=(X, sample.groups))
    return pafo_plan(constants, eps_optimality, eps_fairness, delta)


def _moments_and_sample(
    source: BlockSource, sample_rows: int, progress: Progress | None
) -> tuple[GroupMoments, list[Block]]:
    moments, kept, rows = GroupMoments(source.n_features), [], 0
    for block in source:
        if not block.n_rows:
            continue
        moments.update(block.X, block.groups)
        if rows < sample_rows:
            kept.append(cut_block(block, 0, min(block.n_rows, sample_rows - rows)))
        rows += block.n_rows
        if progress is not None:
            progress(rows, source.n_rows)
    if not kept:
        raise ValueError("the source has no rows: there is nothing to plan for")
    return moments, kept
