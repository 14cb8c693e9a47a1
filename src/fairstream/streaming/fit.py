"""Fits on a stream of blocks: fit_source, which can be stopped and resumed, and collect_moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar, overload

from numpy.typing import DTypeLike

from fairstream.data import open_source
from fairstream.data.blocks import Block, BlockSource, Matrix, is_source
from fairstream.data.cutting import cut_block
from fairstream.data.groups import Groups
from fairstream.data.namesakes import warn_of_namesakes
from fairstream.data.other_libraries import comes_from_dask
from fairstream.data.progress import Progress
from fairstream.data.row_digest import RowDigest
from fairstream.data.schema import Schema
from fairstream.data.targets import TargetNumbers
from fairstream.estimators.base import FairEstimator
from fairstream.estimators.learner import Learner
from fairstream.estimators.moments_learner import MomentsLearner
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.estimators.solvers import check_parameters, reads_whole_steps, working_dtype
from fairstream.files.atomic import PathLike
from fairstream.moments import GroupMoments
from fairstream.streaming.checkpoint import Keeper, environment_of
from fairstream.streaming.checkpoint_folder import Checkpoint, FitState, refuse_occupied
from fairstream.streaming.signals import FitInterrupted, PendingSignal, Stopped

NO_ROWS = "the source has no rows: nothing was learned"

NewLearner: TypeAlias = Callable[[Matrix, Groups | None], Learner]
E = TypeVar("E", bound=FairEstimator)


@overload
def fit_source(source: Any, estimator: E, **options: Any) -> E: ...
@overload
def fit_source(source: Any, estimator: None = None, **options: Any) -> FairStreamingPCA: ...
def fit_source(
    source: Any,
    estimator: FairEstimator | None = None,
    *,
    client: Any = None,
    partition_rows: int | None = None,
    checkpoint: PathLike | None = None,
    every: int | None = None,
    resume: bool = False,
    with_sample: bool = False,
    progress: Progress | None = None,
    **parameters: Any,
) -> FairEstimator:
    """Fit on all rows of a source, here or on a Dask cluster, with checkpoints that survive anything.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
        On a cluster also a list of paths or of sources. Workers open paths themselves, and must see them
        under the same name; a source is cut among them if it is a `DivisibleSource`, else one worker reads
        it.
    estimator : FairStreamingPCA, FairImagePCA or FairEraser, optional
        A new estimator to fit; or give the parameters of a `FairStreamingPCA`. All channels of a
        `FairImagePCA` learn in the same pass. With solver "power" and step_rows None every step reads the
        whole source.
    client : distributed.Client, str or int, optional
        Fit on a Dask cluster: that of a client, of the scheduler at an address, or of this many worker
        processes on this machine. A Dask collection is always fitted on a cluster: without `client` on that
        of the current client or, if there is none, on one of this machine.
    partition_rows : int, optional
        On a cluster, rows of a path or source that one task reads; by default 64 MB to 512 MB of them.
    checkpoint : path, optional
        A folder for checkpoints, of one fit at a time; the two newest are kept. With it, Ctrl-C and SIGTERM
        write a checkpoint after the current block and then raise `FitInterrupted`, a KeyboardInterrupt. A fit
        that fails writes one too. If every power step reads the whole source, one is written after every
        step, and an unfinished step is taken again.
    every : int, optional
        Rows between checkpoints; by default one is written about once a minute, or after every power step
        that reads the whole source. Not on a cluster.
    resume : bool
        Resume from the newest checkpoint of the folder, or begin if there is none. Rows that were learned are
        skipped, after a check that they are still the same. With the same block size, thread count and BLAS
        the result is bit for bit that of an uninterrupted fit; otherwise a FairstreamWarning says what
        differs. On a cluster the first rows and the lengths of the partitions are compared, and nothing is
        read again.
    with_sample : bool
        Let checkpoints hold the rows that `sample` and `guard` keep, without which such a fit cannot be
        resumed. The folder then holds row-level data, also after the fit.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block or, on a cluster, after every window of
        16 partitions or every power step.
    **parameters
        Of `FairStreamingPCA`, if no estimator is given.

    Returns
    -------
    FairStreamingPCA, or as the estimator is
        The estimator, fitted. A failed fit leaves it as it was.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(500, 6)), rng.integers(0, 2, 500)
    >>> source = open_source(X, sensitive_features={"sex": sex}, block_size=100)
    >>> fit_source(source, n_components=2).components_.shape
    (2, 6)
    """
    if estimator is not None and parameters:
        raise ValueError(f"estimator and {next(iter(parameters))} are both given: set it on the estimator")
    if checkpoint is None and (resume or with_sample or every is not None):
        given = "resume" if resume else "with_sample" if with_sample else "every"
        raise ValueError(f"{given} is given without checkpoint: name a folder")
    if every is not None and every < 1:
        raise ValueError(f"every is {every}: give a positive number of rows between checkpoints")
    estimator = FairStreamingPCA(**parameters) if estimator is None else estimator
    if not isinstance(estimator, FairEstimator):
        raise ValueError(
            f"estimator is of type {type(estimator).__name__}: pass the source first, then an estimator such "
            "as FairStreamingPCA"
        )
    if estimator.__sklearn_is_fitted__():
        raise ValueError("estimator is already fitted: pass a new one, or use partial_fit")
    settings = estimator.settings()
    check_parameters(settings)
    on_cluster = client is not None or comes_from_dask(source)
    if on_cluster and every is not None:
        raise ValueError(
            f"every={every} does not apply on a cluster, which writes once a minute: leave it out"
        )
    if partition_rows is not None and not on_cluster:
        raise ValueError(
            f"partition_rows={partition_rows} is for a cluster: pass client too, or leave it out"
        )
    if checkpoint is not None and not with_sample and (settings["guard"] or settings["sample"]):
        raise ValueError(
            "a checkpoint would hold the rows that guard and sample keep: pass with_sample=True to let it "
            "hold this row-level data, or leave checkpoint out"
        )
    keeper = None if checkpoint is None else Keeper(checkpoint, estimator, every, with_sample=with_sample)
    with nullcontext() if keeper is None else keeper.locked():
        refuse_occupied(checkpoint, resume)
        if on_cluster:
            from fairstream.streaming.dask.fit import learned_on_cluster  # here, because Dask is an extra

            learner = learned_on_cluster(source, estimator, client, partition_rows, keeper, progress)
        else:
            # A table may be read once here: not before the folder is ours.
            source = source if is_source(source) else open_source(source, **estimator.roles())
            estimator.check_source(source)
            source = estimator.with_intersections(source)
            if keeper is None:
                learner = _learned(source, estimator.new_learner, progress, estimator.kept_target)
            elif reads_whole_steps(settings):
                learner = _steps_with_checkpoints(source, estimator, keeper, progress)
            else:
                learner = _learned_with_checkpoints(source, estimator, keeper, progress)
    warn_of_namesakes(learner.schema, learner.group_counts)
    return estimator.adopt(learner)


def collect_moments(
    source: Any,
    *,
    rank: int | None = None,
    dtype: DTypeLike | None = None,
    sample: int | None = None,
    progress: Progress | None = None,
) -> GroupMoments:
    """Return the group moments of all blocks of a source, with its feature names and table encoding.

    Parameters
    ----------
    source : BlockSource, or anything that `open_source` opens without options
        The rows.
    rank : int, optional
        As in `GroupMoments`.
    dtype : {float64, float32}, optional
        By default float32 if that holds the rows as they are (images, float32), else float64, as in a fit.
    sample : int, optional
        Rows of each group to keep, as in `GroupMoments`, with their target if the source has one: numbers or
        two classes.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.

    Examples
    --------
    >>> import numpy as np
    >>> source = open_source(np.eye(4), sensitive_features={"sex": ["f", "m", "f", "m"]})
    >>> collect_moments(source).groups
    {'sex': ('f', 'm')}
    """
    source = open_source(source)

    def new_learner(X: Matrix, groups: Groups | None) -> Learner:
        return MomentsLearner(GroupMoments(X.shape[1], rank, dtype or working_dtype(X.dtype), sample=sample))

    numbers = TargetNumbers() if sample is not None else None
    learner = _learned(source, new_learner, progress, numbers)
    warn_of_namesakes(learner.schema, learner.group_counts)
    return learner.moments


def _learned(
    source: BlockSource,
    new_learner: NewLearner,
    progress: Progress | None,
    kept_target: Callable[[Any], Any] | None = None,
) -> Learner:
    """Return a learner that has made all its passes over the source."""
    learner: Learner | None = None
    done = passes = 0
    while learner is None or passes < learner.passes:
        rows = 0
        for block, rows in _counted(source):
            learner = learner or _started(source, new_learner, block)
            target = None if kept_target is None else kept_target(block.target)
            learner.update(block.X, block.groups or None, block.weights, target)
            if progress is not None:
                progress(done + rows, source.n_rows and source.n_rows * learner.passes)
        if learner is None:
            raise ValueError(NO_ROWS)
        learner.end_step()
        done, passes = done + rows, passes + 1
    return learner


def _started(source: BlockSource, new_learner: NewLearner, block: Block) -> Learner:
    """Return an empty learner for the blocks of a source, of which this is the first."""
    learner = new_learner(block.X, block.groups or None)
    learner.schema = Schema.of(source)
    return learner


def _learned_with_checkpoints(
    source: BlockSource, estimator: FairEstimator, keeper: Keeper, progress: Progress | None
) -> Learner:
    """Return what is learned in one pass, or in the rest of one, writing checkpoints on the way."""
    digest = RowDigest()
    found, state = _begun(source, keeper)
    with keeper.keeping(state) as pending:
        kept_target = estimator.kept_target
        rest = None if found is None else _beyond(source, found, digest, kept_target, pending)
        blocks = rest or _counted(source)
        learner: Learner | None = state.learner
        rows = state.rows
        for block, rows in blocks:
            learner = learner or _started(source, estimator.new_learner, block)
            target = kept_target(block.target)
            learner.update(block.X, block.groups or None, block.weights, target)
            digest.update(block, target)
            if learner.is_settled:  # else a file would change the result; its rows are then read again
                state.reach(learner.copy(), rows, digest.to_json())
                keeper.write_if_due(state)
            if progress is not None:
                progress(rows, source.n_rows)
            if pending.number is not None:
                raise Stopped
        if learner is not None:
            state.reach(learner, rows, digest.to_json())
    if learner is None:
        raise ValueError(NO_ROWS)
    return learner


def _steps_with_checkpoints(
    source: BlockSource, estimator: FairEstimator, keeper: Keeper, progress: Progress | None
) -> Learner:
    """Return what is learned in one pass for each step, with a checkpoint after every step.

    A step works on a copy of the learner: if it fails or is stopped, the learner is that of the last
    checkpoint.
    """
    found, state = _begun(source, keeper)
    state.digest = None if found is None else found.digest
    with keeper.keeping(state) as pending:
        while state.learner is None or state.done < state.learner.passes:
            learner = state.learner and state.learner.copy()
            digest, rows = RowDigest(), 0
            for block, rows in _counted(source):
                learner = learner or _started(source, estimator.new_learner, block)
                learner.update(block.X, block.groups or None, block.weights)
                digest.update(block)
                if progress is not None:
                    progress(state.rows + rows, source.n_rows and source.n_rows * learner.passes)
                if pending.number is not None:
                    raise Stopped
            if learner is None:
                raise ValueError(NO_ROWS)
            seen = state.digest
            if seen is not None and (difference := digest.difference(seen)) is not None:
                raise ValueError(
                    f"the rows of the source are not those of the steps before, the {difference} differ: "
                    "use the same data in the same order, or begin anew in another folder"
                )
            learner.end_step()
            state.reach(learner, state.rows + rows, digest.to_json(), state.done + 1)
            keeper.write_if_due(state, seconds=0.0)
    learned: Learner = state.learner
    return learned


def _begun(source: BlockSource, keeper: Keeper) -> tuple[Checkpoint | None, FitState]:
    """Return the checkpoint to resume from, if there is one, and the state to start with."""
    found = keeper.begin(source, environment_of(source))
    if found is None:
        return None, FitState()
    state = found.state
    state.learner.schema = state.learner.schema.filled(Schema.of(source))
    return found, state


def _counted(source: BlockSource) -> Iterator[tuple[Block, int]]:
    """Yield the blocks that hold rows, each with the rows read so far."""
    rows = 0
    for block in source:
        rows += block.n_rows
        if block.n_rows:
            yield block, rows


def _beyond(
    source: BlockSource,
    found: Checkpoint,
    digest: RowDigest,
    kept_target: Callable[[Any], Any],
    pending: PendingSignal,
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
            learned = cut_block(block, 0, min(done - start, block.n_rows))
            digest.update(learned, kept_target(learned.target))
            if rows >= done:
                _check_same_rows(found, digest)
        if rows <= done and pending.number is not None:
            raise FitInterrupted(
                f"stopped while reading past {done:,} rows already learned: pass resume=True to continue",
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
