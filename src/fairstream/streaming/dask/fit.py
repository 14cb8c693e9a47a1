"""fit_dask: the fit of an estimator on a Dask cluster."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from fairstream.estimators.images import FairImagePCA
from fairstream.estimators.learner import Learner, check_parameters
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import PathLike
from fairstream.moments import GroupMoments
from fairstream.streaming.checkpoint import refuse_occupied
from fairstream.streaming.dask.categories import with_all_categories
from fairstream.streaming.dask.clients import check_installed, connected, explained_failures
from fairstream.streaming.dask.facts import Facts, look_at_first_rows
from fairstream.streaming.dask.keeping import Keeper, Standing, kept
from fairstream.streaming.dask.partitioning import Partitioned, partition
from fairstream.streaming.dask.parts import Part, named_errors
from fairstream.streaming.dask.power_rounds import power_rounds
from fairstream.streaming.dask.reducing import reduce_parts
from fairstream.streaming.fit import Progress


def fit_dask(
    estimator: FairStreamingPCA,
    X: Any,
    sensitive_features: Any = None,
    *,
    client: Any = None,
    partition_rows: int | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> FairStreamingPCA:
    """Fit an estimator on a Dask cluster: workers read and summarise, summaries merge in a fixed order.

    Parameters
    ----------
    estimator : FairStreamingPCA
        With any solver. What it learned before is forgotten.
    X : dask array, dask DataFrame, list of delayed objects or futures, path, list of paths, or source
        Delayed objects and futures yield rows (array, sparse matrix, frame), (rows, labels), or a `Block`.
        Paths (Parquet by row groups, Zarr and HDF5 by stored chunks, .npy by rows, images by name; other
        files whole) are opened by the workers, who must see them under the same name. A source that is open
        already, or a list of them, is cut like a path where it is a `DivisibleSource`, else read by one
        worker; it must be picklable.
    sensitive_features : optional
        For paths as `sensitive` of `open_source`. For a dask DataFrame column names, for collections dask or
        in-memory labels; for a list of blocks a list of their labels, unless they bring their own.
    client : distributed.Client, str or int, optional
        A client, the address of a scheduler, or a number of local worker processes. None takes the current
        client or, where there is none, a local cluster for the time of the fit.
    partition_rows : int, optional
        For paths and sources, rows that one task reads; by default between 64 MB and 512 MB of them.
    checkpoint : path, optional
        A folder that what has been learned is written to: about once a minute (with solver "power" and steps
        over all rows, after every step), when the fit fails, and at the end. The two newest files are kept.
        With it, Ctrl-C and SIGTERM write a checkpoint and then raise `FitInterrupted`.
    resume : bool
        Go on from the newest checkpoint of the folder.
    progress : callable, optional
        Called with (rows done, rows in all or None).
    **options
        Of `open_source`: features, categories, block_size, key, resize, ...

    Returns
    -------
    FairStreamingPCA
        The estimator, fitted. A failed fit leaves it as it was.

    Notes
    -----
    Exact moments equal those of a single-process fit to rounding. A sketch depends on how the data is cut,
    but, as everything here, not on the number of workers. A worker that dies is replaced or its work done by
    others, with the same result. A worker holds one block and a few summaries, O(block + d rank).
    With solver "power" every step sends the basis out and sums products, see docs/scaling.md.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> rng = np.random.default_rng(0)
    >>> X, sex = da.from_array(rng.normal(size=(500, 6)), chunks=(100, 6)), rng.integers(0, 2, 500)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     pca = fit_dask(FairStreamingPCA(n_components=2), X, sex, client=client)
    >>> pca.components_.shape
    (2, 6)
    """
    check_installed()
    if isinstance(estimator, FairImagePCA) or not isinstance(estimator, FairStreamingPCA):
        raise ValueError(
            f"estimator is a {type(estimator).__name__}: fit_dask takes a FairStreamingPCA; fit channels "
            "with fit_source"
        )
    check_parameters(estimator.get_params(deep=False))
    if checkpoint is None and resume:
        raise ValueError("resume is given without checkpoint: name a folder")
    refuse_occupied(checkpoint, resume)
    data = partition(X, sensitive_features, partition_rows, options)
    keeper = None if checkpoint is None else Keeper(checkpoint, estimator, data)
    with nullcontext() if keeper is None else keeper.locked(), connected(client) as running:
        refuse_occupied(checkpoint, resume)  # once more: another fit may have begun and ended meanwhile
        with explained_failures(running, "before the first partition was read"):
            data, facts = with_all_categories(running, *look_at_first_rows(running, data))
        if keeper is not None:
            keeper.note_first_rows(facts)
        if not facts.labels and estimator.constraint != "none":
            raise ValueError(
                "sensitive_features is missing: pass one label per row and attribute, or "
                'constraint="none" for ordinary streaming PCA'
            )
        if estimator.solver == "power":
            learner = power_rounds(running, estimator, data, facts, keeper, progress)
        else:
            learner = _merged_moments(running, estimator, data, facts, keeper, progress)
    learner.schema = facts.schema
    return estimator.adopt(learner, solve=True)


def _merged_moments(
    client: Any,
    estimator: FairStreamingPCA,
    data: Partitioned,
    facts: Facts,
    keeper: Keeper | None,
    progress: Progress | None,
) -> Learner:
    """Return the moments of all parts, merged window by window, and kept on disk as they grow."""
    standing = Standing(estimator.new_learner(facts.head.X, facts.head.groups or None))
    standing = standing if keeper is None else keeper.taken_up(standing)
    standing.learner.schema = facts.schema
    moments: GroupMoments = standing.learner.moments
    n_parts, shared = len(data.parts), (facts, moments.rank)
    with kept(keeper, standing) as pending:
        windows = reduce_parts(client, data.parts, _summarise, _merge, shared, standing.done, pending)
        while standing.done < n_parts:
            way_on = "" if keeper is None or not standing.rows else keeper.way_on
            with explained_failures(client, f"after {standing.done:,} of {n_parts:,} partitions{way_on}"):
                done, window = next(windows)
            moments.merge(window)
            standing.rows, standing.done = int(moments.n_rows), done
            if keeper is not None:
                keeper.write_now_and_then(standing)
            if progress is not None:
                progress(standing.rows, data.n_rows)
    return standing.learner


def _summarise(part: Part, index: int, facts: Facts, rank: int | None, inputs: Any) -> GroupMoments:
    """Return the moments of one part (on a worker)."""
    moments = GroupMoments(facts.n_features, rank, facts.dtype)
    with named_errors(part, index):
        for block in part.open(tuple(inputs), facts.encoding) or ():
            if block.n_rows:
                facts.check(block)
                moments.update(block.X, block.groups)
    return moments


def _merge(summaries: list[GroupMoments]) -> GroupMoments:
    """Return the merged summaries; Dask keeps the originals, which must not change."""
    merged = summaries[0].copy()
    for other in summaries[1:]:
        merged.merge(other)
    return merged
