"""The contenders: peers from PyPI, the rivals of fairstream.baselines, and fairstream's three solvers.

Each is a function that takes a workload's data, k and m, and returns a function (X, groups) -> embedding.
Whoever learns from a stream reads blocks; whoever needs all rows loads them; both are part of the time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Embed = Callable[[Any, np.ndarray], np.ndarray]
Fit = Callable[[Any, int, int], Embed]


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    name: str
    family: str  # "ours", "plain" (not told the groups), "fair" (a peer) or "rival" (of fairstream.baselines)
    fit: Fit
    imports: tuple[str, ...]
    streams: bool
    package: str | None = None  # on PyPI, where it is not among what fairstream's extras bring anyway

    def load_modules(self) -> None:
        for module in self.imports:
            importlib.import_module(module)


def linear(components: Any, mean: Any) -> Embed:
    """Return x -> (x - mean) components', centring after the product, which keeps sparse rows sparse."""
    A, centre = np.asarray(components), np.asarray(mean)
    return lambda X, groups: np.asarray(X @ A.T.astype(X.dtype)) - (centre @ A.T)


def block_rows(k: int) -> int:
    """Rows at a time for incremental peers: their cost a row grows with it, their overhead a block falls."""
    return max(5 * k, 200)


# Not told the groups ---------------------------------------------------------------------------------


def pca(data: Any, k: int, m: int) -> Embed:
    from sklearn.decomposition import PCA

    fitted = PCA(k, random_state=0).fit(data.load()[0])
    return linear(fitted.components_, fitted.mean_)


def incremental_pca(data: Any, k: int, m: int) -> Embed:
    return _incremental(data, k, block_rows(k))


def incremental_pca_default(data: Any, k: int, m: int) -> Embed:
    return _incremental(data, k, None)


def _incremental(data: Any, k: int, rows: int | None) -> Embed:
    from sklearn.decomposition import IncrementalPCA

    fitted = IncrementalPCA(k, batch_size=rows)
    if data.sparse:  # its partial_fit refuses sparse rows, its fit makes them dense block by block
        fitted.fit(data.load()[0])
    else:
        rows = min(rows or 5 * data.source().n_features, data.n_rows)
        for X, _ in _at_least(data.blocks(rows), k):
            fitted.partial_fit(X)
    return linear(fitted.components_, fitted.mean_)


def _at_least(blocks: Any, k: int) -> Any:
    """Leave out a last block of fewer than k rows, which incremental PCA refuses."""
    return ((X, groups) for X, groups in blocks if X.shape[0] >= k)


def dask_incremental_pca(data: Any, k: int, m: int) -> Embed:
    import dask.array as da
    from dask import delayed
    from dask_ml.decomposition import IncrementalPCA

    source = data.source()
    rows = max(block_rows(k), 1_000)
    if not data.is_array_file:  # images, sparse rows: no array on disk to point to
        X = da.from_array(data.load()[0], chunks=(rows, source.n_features))
    else:
        dtype = data.read(0, 1).dtype
        X = da.concatenate(
            [
                da.from_delayed(
                    delayed(data.read, pure=True)(start, stop), (stop - start, source.n_features), dtype
                )
                for start, stop in _ranges(data.n_rows, rows)
            ]
        )
    fitted = IncrementalPCA(k, batch_size=rows).fit(X)
    return linear(fitted.components_, fitted.mean_)


def _ranges(n: int, rows: int) -> list[tuple[int, int]]:
    return [(start, min(start + rows, n)) for start in range(0, n, rows)]


def torch_incremental_pca(data: Any, k: int, m: int) -> Embed:
    from torch_incremental_pca import IncrementalPCA

    fitted = IncrementalPCA(k, gram=True)
    for X, _ in _at_least(data.blocks(block_rows(k)), k):
        fitted.partial_fit(_tensor(X))
    return linear(fitted.components_.numpy(), fitted.mean_.numpy())


def _tensor(X: Any) -> Any:
    import torch

    if sp.issparse(X):
        return torch.sparse_csr_tensor(X.indptr, X.indices, X.data, X.shape)
    return torch.from_numpy(np.ascontiguousarray(X))


# Fair peers ------------------------------------------------------------------------------------------


def correlation_remover(data: Any, k: int, m: int) -> Embed:
    from fairlearn.preprocessing import CorrelationRemover
    from sklearn.decomposition import PCA

    def with_groups(X: Any, groups: np.ndarray) -> Any:
        column = groups.astype(X.dtype)[:, None]
        return sp.hstack([X, column], format="csr") if sp.issparse(X) else np.hstack([X, column])

    X, groups = data.load()
    remover = CorrelationRemover(sensitive_feature_ids=[X.shape[1]])
    fitted = PCA(k, random_state=0).fit(remover.fit_transform(with_groups(X, groups)))
    return lambda X, groups: fitted.transform(remover.transform(with_groups(X, groups)))


def concept_erasure(data: Any, k: int, m: int) -> Embed:
    import torch
    from concept_erasure import LeaceFitter
    from sklearn.decomposition import PCA

    X, groups = data.load()
    rows = _tensor(X)
    eraser = LeaceFitter.fit(rows, torch.from_numpy(groups.astype(X.dtype))[:, None]).eraser
    fitted = PCA(k, random_state=0).fit(eraser(rows).numpy())
    return lambda X, groups: fitted.transform(eraser(_tensor(X)).numpy())


# Rivals ----------------------------------------------------------------------------------------------


def rival(name: str, **parameters: Any) -> Fit:
    def fit(data: Any, k: int, m: int) -> Embed:
        import fairstream.baselines

        X, groups = data.load()
        system = getattr(fairstream.baselines, name)(k, **parameters)
        system.fit(X, sensitive_features=groups)
        return lambda X, groups: system.transform(X)

    return fit


# Ours ------------------------------------------------------------------------------------------------


def ours(solver: str) -> Fit:
    def fit(data: Any, k: int, m: int) -> Embed:
        from fairstream.streaming.fit import fit_source

        parameters: dict[str, Any] = {"n_components": k, "n_unfair": m, "solver": solver}
        if solver == "power":  # one pass: ten steps for each of the two phases
            parameters |= {"step_rows": data.n_rows // 20, "random_state": 0}
        fitted = fit_source(data.source(), **parameters)
        return linear(fitted.components_, fitted.mean_)

    return fit


OURS = ("fairstream.streaming.fit", "fairstream.data")
RIVALS = ("fairstream.baselines",)
SKLEARN = ("sklearn.decomposition",)

CONTENDERS = (
    Contender("fairstream exact", "ours", ours("exact"), OURS, True),
    Contender("fairstream sketch", "ours", ours("sketch"), OURS, True),
    Contender("fairstream power", "ours", ours("power"), OURS, True),
    Contender("scikit-learn PCA", "plain", pca, SKLEARN, False),
    Contender("scikit-learn IncrementalPCA", "plain", incremental_pca, SKLEARN, True),
    Contender("scikit-learn IncrementalPCA, default block", "plain", incremental_pca_default, SKLEARN, True),
    Contender(
        "dask-ml IncrementalPCA",
        "plain",
        dask_incremental_pca,
        ("dask_ml.decomposition", "dask.array"),
        True,
        "dask-ml",
    ),
    Contender(
        "torch-incremental-pca",
        "plain",
        torch_incremental_pca,
        ("torch", "torch_incremental_pca"),
        True,
        "torch-incremental-pca",
    ),
    Contender(
        "fairlearn CorrelationRemover + PCA",
        "fair",
        correlation_remover,
        ("fairlearn.preprocessing", *SKLEARN),
        False,
        "fairlearn",
    ),
    Contender(
        "concept-erasure LeaceFitter + PCA",
        "fair",
        concept_erasure,
        ("torch", "concept_erasure", *SKLEARN),
        False,
        "concept-erasure",
    ),
    Contender("KleindessnerFairPCA", "rival", rival("KleindessnerFairPCA"), RIVALS, False),
    Contender("LeacePCA", "rival", rival("LeacePCA"), RIVALS, False),
    Contender("SamadiFairPCA", "rival", rival("SamadiFairPCA"), RIVALS, False),
    Contender("INLP", "rival", rival("INLP", random_state=0), RIVALS, False),
    Contender("RLACE", "rival", rival("RLACE", random_state=0), RIVALS, False),
    Contender("MbFPCA", "rival", rival("MbFPCA"), RIVALS, False),
    Contender("OlfatAswaniFairPCA", "rival", rival("OlfatAswaniFairPCA"), RIVALS, False),
    Contender("KleindessnerKernelFairPCA", "rival", rival("KleindessnerKernelFairPCA"), RIVALS, False),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}
