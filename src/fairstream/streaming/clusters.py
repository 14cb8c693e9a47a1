"""fit_dask: another name for `open_source` and `fit_source` with a client, for code that has it."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from fairstream.data.progress import Progress
from fairstream.estimators.base import FairEstimator
from fairstream.files.format import PathLike
from fairstream.streaming.checkpoint import refuse_occupied
from fairstream.streaming.dask.clients import check_installed, connected
from fairstream.streaming.dask.partitioning import opened
from fairstream.streaming.fit import fit_source


def fit_dask(
    estimator: FairEstimator,
    X: Any,
    sensitive_features: Any = None,
    *,
    sample_weight: Any = None,
    client: Any = None,
    partition_rows: int | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> FairEstimator:
    """Open X and fit an estimator on a Dask cluster: another name for `fit_source` with a client.

    Parameters
    ----------
    estimator : FairStreamingPCA or FairImagePCA
        What it learned before is forgotten.
    X, sensitive_features, **options
        What `open_source` takes, or a list of paths or of sources, as in `fit_source`.
    sample_weight : optional
        The `weights` of `open_source`; not with solver "power".
    client, partition_rows, checkpoint, resume, progress
        As in `fit_source`. Without a client, the current one or a local cluster for the time of the fit.

    Returns
    -------
    FairStreamingPCA
        The estimator, fitted. A failed fit leaves it as it was.

    Examples
    --------
    >>> from fairstream import FairStreamingPCA
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
    refuse_occupied(checkpoint, resume)
    weights = {} if sample_weight is None else {"weights": sample_weight}
    sources = opened(X, sensitive_features, {**options, **weights})
    with connected(client) as running:
        fitted = fit_source(
            sources,
            clone(estimator),
            client=running,
            partition_rows=partition_rows,
            checkpoint=checkpoint,
            resume=resume,
            progress=progress,
        )
    return estimator.adopt(fitted.learner_, solve=True)
