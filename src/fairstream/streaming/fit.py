"""Fits on a stream of blocks: fit_source, which can be stopped and resumed, and collect_moments."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike

from fairstream.data import open_source
from fairstream.data.blocks import Block, BlockSource, Matrix
from fairstream.data.cutting import cut_block
from fairstream.data.row_digest import RowDigest
from fairstream.estimators.images import FairImagePCA, channel_columns, check_source_channels
from fairstream.estimators.learner import check_parameters, new_learner, working_dtype
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import PathLike
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.streaming.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    environment_of,
    refuse_occupied,
    warn_of_differences,
    warn_of_no_digest,
)
from fairstream.streaming.signals import FitInterrupted, PendingSignal, signals_held_back

CHECKPOINT_SECONDS = 60.0

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called after every block with the rows done and, where known, the rows there are."""

Estimator: TypeAlias = FairStreamingPCA | FairImagePCA
E = TypeVar("E", FairStreamingPCA, FairImagePCA)


@overload
def fit_source(source: Any, estimator: E, **options: Any) -> E: ...
@overload
def fit_source(source: Any, estimator: None = None, **options: Any) -> FairStreamingPCA: ...
def fit_source(
    source: Any,
    estimator: Estimator | None = None,
    *,
    checkpoint: PathLike | None = None,
    every: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **parameters: Any,
) -> Estimator:
    """Fit on all blocks of a source in one pass, with checkpoints that survive anything.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
    estimator : FairStreamingPCA or FairImagePCA, optional
        A new estimator to fit; or give the parameters of a `FairStreamingPCA`. All channels of a
        `FairImagePCA` learn in the same pass. With solver "power" and block_size None every step reads the
        whole source; such a fit takes no checkpoint.
    checkpoint : path, optional
        A folder for checkpoints, of one fit at a time; the two newest are kept. With it, Ctrl-C and SIGTERM
        write a checkpoint after the current block and then raise `FitInterrupted`, a KeyboardInterrupt.
    every : int, optional
        Rows between checkpoints; by default one is written about once a minute.
    resume : bool
        Resume from the newest checkpoint of the folder, or begin if there is none. The rows it holds are
        read past, not learned again; if they are not those that were learned, that is a ValueError. At equal
        block size, thread count and BLAS the result is bit for bit that of an uninterrupted fit; otherwise a
        FairstreamWarning says what differs.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.
    **parameters
        Of `FairStreamingPCA`, where no estimator is given.

    Returns
    -------
    FairStreamingPCA or FairImagePCA
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
    estimator = FairStreamingPCA(**parameters) if estimator is None else estimator
    if estimator.__sklearn_is_fitted__():
        raise ValueError("estimator is already fitted: pass a new one, or use partial_fit")
    whole_steps = estimator.solver == "power" and estimator.block_size is None
    if whole_steps and checkpoint is not None:
        raise ValueError("checkpoint holds a place in a single pass: give block_size=(b, B), or leave it out")
    folder = None if checkpoint is None else CheckpointFolder(checkpoint)
    with nullcontext() if folder is None else folder.locked():
        refuse_occupied(checkpoint, resume)
        source = open_source(source)  # a table may be read once here: not before the folder is ours
        if isinstance(estimator, FairImagePCA):
            check_source_channels(estimator, source)
        if whole_steps:
            _fit_whole_steps(source, estimator, progress)
        elif folder is None:
            for block, rows in _counted(source):
                _learn(estimator, block, source)
                _report(progress, rows, source)
        else:
            estimator = _fit_with_checkpoints(source, estimator, folder, every, progress)
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
    for block, rows in _counted(source):
        if moments is None:
            moments = GroupMoments(source.n_features, rank, dtype or working_dtype(block.X.dtype))
        moments.update(block.X, block.groups)
        _report(progress, rows, source)
    if moments is None:
        raise ValueError("the source has no rows: nothing was learned")
    moments.feature_names, moments.encoding = source.feature_names, getattr(source, "encoding", None)
    return moments


def _fit_whole_steps(source: BlockSource, estimator: Estimator, progress: Progress | None) -> None:
    """Run the power method with one pass over the source per step, which all channels share."""
    check_parameters(estimator.get_params(deep=False))
    if isinstance(estimator, FairImagePCA):
        parts = estimator.new_parts(source.n_features)
    else:
        parts = [(estimator, slice(0, source.n_features))]
    methods: list[FairPowerMethod] = []
    done = step = 0
    while not methods or step < methods[0].plan.total_steps:
        for block, rows in _counted(source):
            views = [channel_columns(block.X, columns) for _, columns in parts]
            groups = block.groups or None
            methods = methods or [_power_method(part, X) for (part, _), X in zip(parts, views, strict=True)]
            for method, X in zip(methods, views, strict=True):
                method.update(X, groups)
            if progress is not None:
                total = source.n_rows and source.n_rows * methods[0].plan.total_steps
                progress(done + rows, total)
        if not methods:
            return
        for method in methods:
            method.end_step()
        done, step = done + rows, step + 1
    for (part, columns), method in zip(parts, methods, strict=True):
        part._learner, part._subspace, part.n_features_in_ = method, None, columns.stop - columns.start
    if isinstance(estimator, FairImagePCA):
        estimator.estimators_ = tuple(part for part, _ in parts)
        estimator._subspace, estimator.n_features_in_ = None, source.n_features


def _power_method(estimator: FairStreamingPCA, X: Matrix) -> FairPowerMethod:
    learner = new_learner(estimator.get_params(deep=False), X, None)
    assert isinstance(learner, FairPowerMethod)
    return learner


def _fit_with_checkpoints(
    source: BlockSource,
    estimator: Estimator,
    folder: CheckpointFolder,
    every: int | None,
    progress: Progress | None,
) -> Estimator:
    environment, digest = environment_of(source), RowDigest()
    rows = saved_rows = 0
    found = folder.newest()
    if found is not None:
        _check_same_fit(found, estimator, source)
        warn_of_differences(found.environment, environment)
        warn_of_no_digest(found)
        estimator = found.estimator
        rows = saved_rows = found.rows
    saved_at = time.monotonic()
    with signals_held_back() as pending:
        blocks = _counted(source) if found is None else _read_past(source, found, digest, pending)
        for block, rows in blocks:
            digest.update(block)
            _learn(estimator, block, source)
            _report(progress, rows, source)
            due = (
                time.monotonic() - saved_at > CHECKPOINT_SECONDS
                if every is None
                else rows - saved_rows >= every
            )
            if due or pending.number is not None:
                folder.write(estimator, rows, environment, digest.to_json())
                saved_at, saved_rows = time.monotonic(), rows
            if pending.number is not None:
                break
        if rows > saved_rows:
            folder.write(estimator, rows, environment, digest.to_json())
    # After signals are let through again: one that came during the last write must not be lost.
    if pending.number is not None:
        raise FitInterrupted(
            f"stopped after {rows:,} rows; checkpoint written to {folder.path}, resume=True goes on",
            pending.number,
        )
    return estimator


def _counted(source: BlockSource) -> Iterator[tuple[Block, int]]:
    """Yield the blocks that hold rows, each with the rows read so far."""
    rows = 0
    for block in source:
        rows += block.n_rows
        if block.n_rows:
            yield block, rows


def _read_past(
    source: BlockSource, found: Checkpoint, digest: RowDigest, pending: PendingSignal
) -> Iterator[tuple[Block, int]]:
    """Yield the blocks that hold rows beyond those of a checkpoint, each with the rows read so far.

    The rows before them are digested, and must be those that were learned. A signal that comes meanwhile
    stops at once: the checkpoint is already there.
    """
    rows, done = 0, found.rows
    for block in source:
        start, rows = rows, rows + block.n_rows
        if start < done:
            # A checkpoint written with other blocks may end within this one.
            digest.update(cut_block(block, 0, min(done - start, block.n_rows)))
            if rows >= done:
                _check_same_rows(found, digest)
        if rows <= done and pending.number is not None:
            raise FitInterrupted(
                f"stopped while reading past {done:,} rows that are already learned, resume=True goes on",
                pending.number,
            )
        if rows > max(done, start):
            yield cut_block(block, max(done - start, 0), block.n_rows), rows
    if rows < done:
        raise ValueError(f"the source has {rows:,} rows, the checkpoint {done:,}: it belongs to other data")


def _check_same_rows(found: Checkpoint, digest: RowDigest) -> None:
    difference = None if found.digest is None else digest.difference(found.digest)
    if difference is not None:
        raise ValueError(
            f"the first {found.rows:,} rows of the source are not those that {found.path.name} was learned "
            f"from, the {difference} differ: resume with the same data in the same order, or begin anew in "
            "another folder"
        )


def _learn(estimator: Estimator, block: Block, source: BlockSource) -> None:
    estimator.partial_fit(block.X, sensitive_features=block.groups or None)
    if isinstance(estimator, FairImagePCA):
        return
    if estimator.solver != "power" and estimator.moments_.feature_names is None:
        estimator.moments_.feature_names = source.feature_names
        estimator.moments_.encoding = getattr(source, "encoding", None)


def _name_columns(estimator: Estimator, source: BlockSource) -> None:
    """Give the fitted estimator the names of its columns and, in its subspace, how a table made them.

    Not before the end: blocks are bare arrays, and scikit-learn would miss the names with every one.
    """
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.array(source.feature_names, dtype=object)
    encoding = getattr(source, "encoding", None)
    if isinstance(estimator, FairStreamingPCA) and estimator.solver == "power" and encoding is not None:
        subspace = estimator.subspace_
        parameters = {**subspace.parameters, "encoding": encoding}
        estimator._subspace = dataclasses.replace(subspace, parameters=parameters)


def _report(progress: Progress | None, rows: int, source: BlockSource) -> None:
    if progress is not None:
        progress(rows, source.n_rows)


def _check_same_fit(found: Checkpoint, estimator: Estimator, source: BlockSource) -> None:
    """Refuse to go on with another estimator or other columns than the checkpoint's."""
    if type(found.estimator) is not type(estimator):
        raise ValueError(
            f"the checkpoint {found.path.name} is of a {type(found.estimator).__name__}, the estimator a "
            f"{type(estimator).__name__}: resume with the former, or begin anew in another folder"
        )
    now: Mapping[str, Any] = estimator.get_params(deep=False)
    for name, then in found.estimator.get_params(deep=False).items():
        if then != now[name]:
            raise ValueError(
                f"{name} is {now[name]!r}, the checkpoint {found.path.name} was written with {then!r}: "
                "resume with that, or begin anew in another folder"
            )
    moments = getattr(found.estimator, "moments_", None)
    if isinstance(moments, GroupMoments) and source.feature_names != moments.feature_names:
        raise ValueError(
            f"the source has other column names than {found.path.name}: it belongs to other data"
        )
    if source.n_features != found.estimator.n_features_in_:
        raise ValueError(
            f"the source has {source.n_features} features, the checkpoint {found.path.name} has "
            f"{found.estimator.n_features_in_}: it belongs to other data"
        )
