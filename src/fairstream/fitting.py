"""Fits on a stream of blocks: fit_source, which can be stopped and resumed, and collect_moments."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from fairstream.blocks import Block, BlockSource
from fairstream.checkpoint import Checkpoint, CheckpointFolder, environment_of, warn_of_differences
from fairstream.estimator import FairStreamingPCA
from fairstream.interrupts import FitInterrupted, PendingSignal, signals_held_back
from fairstream.learners import working_dtype
from fairstream.moments import GroupMoments
from fairstream.persist import PathLike
from fairstream.sources import open_source
from fairstream.sources.rows import cut_block

CHECKPOINT_SECONDS = 60.0

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called after every block with the rows done and, where known, the rows there are."""


def fit_source(
    source: Any,
    estimator: FairStreamingPCA | None = None,
    *,
    checkpoint: PathLike | None = None,
    every: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **parameters: Any,
) -> FairStreamingPCA:
    """Fit on all blocks of a source in one pass, with checkpoints that survive anything.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
    estimator : FairStreamingPCA, optional
        A new estimator to fit; or give its parameters.
    checkpoint : path, optional
        A folder for checkpoints; the two newest are kept. With it, Ctrl-C and SIGTERM write a checkpoint
        after the current block and then raise `FitInterrupted`, a KeyboardInterrupt.
    every : int, optional
        Rows between checkpoints; by default one is written about once a minute.
    resume : bool
        Go on from the newest checkpoint of the folder, or begin where there is none. The rows it holds are
        read past, not learned again. At equal block size, thread count and BLAS the result is bit for bit
        that of an uninterrupted fit; otherwise a FairstreamWarning says what differs.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.
    **parameters
        Of `FairStreamingPCA`, where no estimator is given.

    Returns
    -------
    FairStreamingPCA
        The fitted estimator.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(500, 6)), rng.integers(0, 2, 500)
    >>> source = open_source(X, sensitive={"sex": sex}, block_size=100)
    >>> fit_source(source, n_components=2).components_.shape
    (2, 6)
    """
    if estimator is not None and parameters:
        raise ValueError(f"estimator and {next(iter(parameters))} are both given: set it on the estimator")
    if checkpoint is None and (resume or every is not None):
        raise ValueError(f"{'resume' if resume else 'every'} is given without checkpoint: name a folder")
    if every is not None and every < 1:
        raise ValueError(f"every is {every}: give a positive number of rows between checkpoints")
    source = open_source(source)
    estimator = FairStreamingPCA(**parameters) if estimator is None else estimator
    if estimator.__sklearn_is_fitted__():
        raise ValueError("estimator is already fitted: pass a new one, or use partial_fit")
    if checkpoint is None:
        for block, rows in _counted(source, 0):
            _learn(estimator, block, source)
            _report(progress, rows, source)
    else:
        folder = CheckpointFolder(checkpoint)
        estimator = _fit_with_checkpoints(source, estimator, folder, every, resume, progress)
    if not estimator.__sklearn_is_fitted__():
        raise ValueError("the source has no rows: nothing was learned")
    _name_columns(estimator, source)
    return estimator


def collect_moments(
    source: Any, *, rank: int | None = None, dtype: DTypeLike | None = None, progress: Progress | None = None
) -> GroupMoments:
    """Return the group moments of all blocks of a source, with its feature names and table encoding.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
    rank : int, optional
        As in `GroupMoments`.
    dtype : {float64, float32}, optional
        By default float32 where that holds the rows as they are (images, float32), else float64, as in a fit.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.

    Examples
    --------
    >>> source = open_source(np.eye(4), sensitive={"sex": ["f", "m", "f", "m"]})
    >>> collect_moments(source).groups
    {'sex': ('f', 'm')}
    """
    source = open_source(source)
    moments: GroupMoments | None = None
    for block, rows in _counted(source, 0):
        if moments is None:
            moments = GroupMoments(source.n_features, rank, dtype or working_dtype(block.X.dtype))
        moments.update(block.X, block.groups)
        _report(progress, rows, source)
    if moments is None:
        raise ValueError("the source has no rows: nothing was learned")
    moments.feature_names, moments.encoding = source.feature_names, getattr(source, "encoding", None)
    return moments


def _fit_with_checkpoints(
    source: BlockSource,
    estimator: FairStreamingPCA,
    folder: CheckpointFolder,
    every: int | None,
    resume: bool,
    progress: Progress | None,
) -> FairStreamingPCA:
    environment = environment_of(source)
    rows = saved_rows = skipped = 0
    if folder.files() and not resume:
        raise ValueError(
            f"checkpoint={str(folder.path)!r} already holds a fit: pass resume=True to go on, or name "
            "another folder"
        )
    found = folder.newest()
    if found is not None:
        _check_same_fit(found, estimator, source)
        warn_of_differences(found.environment, environment)
        estimator, skipped = found.estimator, found.rows
        rows = saved_rows = skipped
    saved_at = time.monotonic()
    with signals_held_back() as pending:
        for block, rows in _counted(source, skipped, pending):
            _learn(estimator, block, source)
            _report(progress, rows, source)
            due = (
                time.monotonic() - saved_at > CHECKPOINT_SECONDS
                if every is None
                else rows - saved_rows >= every
            )
            if due or pending.number is not None:
                folder.write(estimator, rows, environment)
                saved_at, saved_rows = time.monotonic(), rows
            if pending.number is not None:
                raise FitInterrupted(
                    f"stopped after {rows:,} rows; checkpoint written to {folder.path}, resume=True goes on",
                    pending.number,
                )
        if rows > saved_rows:
            folder.write(estimator, rows, environment)
    return estimator


def _counted(
    source: BlockSource, done: int, pending: PendingSignal | None = None
) -> Iterator[tuple[Block, int]]:
    """Yield the blocks that hold rows beyond the first `done`, each with the rows read so far.

    A signal that comes while rows are read past stops at once: their checkpoint is already there.
    """
    rows = 0
    for block in source:
        start, rows = rows, rows + block.n_rows
        if rows <= done and pending is not None and pending.number is not None:
            raise FitInterrupted(
                f"stopped while reading past {done:,} rows that are already learned, resume=True goes on",
                pending.number,
            )
        if rows > done:
            # A checkpoint written with other blocks may end within this one.
            yield cut_block(block, max(done - start, 0), block.n_rows), rows
    if rows < done:
        raise ValueError(f"the source has {rows:,} rows, the checkpoint {done:,}: it belongs to other data")


def _learn(estimator: FairStreamingPCA, block: Block, source: BlockSource) -> None:
    estimator.partial_fit(block.X, sensitive_features=block.groups or None)
    if estimator.solver != "power" and estimator.moments_.feature_names is None:
        estimator.moments_.feature_names = source.feature_names
        estimator.moments_.encoding = getattr(source, "encoding", None)


def _name_columns(estimator: FairStreamingPCA, source: BlockSource) -> None:
    """Give the fitted estimator the names of its columns and, in its subspace, how a table made them.

    Not before the end: blocks are bare arrays, and scikit-learn would miss the names with every one.
    """
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.array(source.feature_names, dtype=object)
    encoding = getattr(source, "encoding", None)
    if estimator.solver == "power" and encoding is not None:
        subspace = estimator.subspace_
        parameters = {**subspace.parameters, "encoding": encoding}
        estimator._subspace = dataclasses.replace(subspace, parameters=parameters)


def _report(progress: Progress | None, rows: int, source: BlockSource) -> None:
    if progress is not None:
        progress(rows, source.n_rows)


def _check_same_fit(found: Checkpoint, estimator: FairStreamingPCA, source: BlockSource) -> None:
    """Refuse to go on with another estimator or other columns than the checkpoint's."""
    now: Mapping[str, Any] = estimator.get_params(deep=False)
    for name, then in found.estimator.get_params(deep=False).items():
        if then != now[name]:
            raise ValueError(
                f"{name} is {now[name]!r}, the checkpoint {found.path.name} was written with {then!r}: "
                "resume with that, or begin anew in another folder"
            )
    if estimator.solver != "power" and source.feature_names != found.estimator.moments_.feature_names:
        raise ValueError(
            f"the source has other column names than {found.path.name}: it belongs to other data"
        )
    if source.n_features != found.estimator.n_features_in_:
        raise ValueError(
            f"the source has {source.n_features} features, the checkpoint {found.path.name} has "
            f"{found.estimator.n_features_in_}: it belongs to other data"
        )
