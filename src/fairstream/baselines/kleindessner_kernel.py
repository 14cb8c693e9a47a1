"""Kernel fair PCA of Kleindessner et al. (2023): group means agree in the kernel's feature space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.metrics.pairwise import rbf_kernel

from fairstream.baselines.base import Array, FairTransformer, GroupedRows, Learned
from fairstream.linalg import fix_signs, lapack, top_eigenvectors
from fairstream.linalg.memory import refuse_beyond_memory

_TILE_ENTRIES = 4_000_000
_DOUBLE_ROWS = 11_000  # a kernel matrix of up to a gigabyte is kept in double precision
_DENSE_ROWS = 400  # below, Lanczos iteration gains nothing


@dataclass(eq=False, repr=False)
class KleindessnerKernelFairPCA(FairTransformer):
    """Kernel PCA whose components do not see the gap between group means.

    With K the RBF kernel matrix of the training rows and Z the centred group indicators (n x groups):

        maximise tr(A' K K A)  subject to  A' K A = I,  Z' K A = 0.

    The authors solve a generalised eigenproblem of n x n matrices. In feature space it is an ordinary PCA
    outside the directions Z: with v and lambda the k leading eigenpairs of

        K - K Z (Z'KZ)^+ Z'K,     A = (v - Z (Z'KZ)^+ Z'K v) / lambda^(1/2),

    which takes k eigenvectors of one matrix and is also defined if K is singular (repeated rows; the
    authors then add 1e-5 to the diagonal). A row x is embedded as k(x, X) A.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    gamma : float, optional
        ``exp(-gamma |x - y|^2)``. None takes 1 / (n_features * variance of all entries of X).

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples, n_components)
        The matrix A.
    X_fit_ : ndarray of shape (n_samples, n_features)
        The training rows, needed to embed.
    gamma_ : float
        The value used.

    Raises
    ------
    MemoryError
        Before anything is computed, if the kernel matrix is larger than the free memory.

    Notes
    -----
    Cost: one n x n matrix (single precision above 11,000 rows: 4 GB for the 31,655 rows of Adult) and some
    tens of products with it. Known weaknesses: the fitted object holds every training row, sensitive data
    included; the kernel is not centred, as published, so the first component is close to the mean.

    References
    ----------
    M. Kleindessner, M. Donini, C. Russell, M. B. Zafar. Efficient fair PCA for fair representation learning.
    AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> group = X[:, 0] > 0
    >>> Z = KleindessnerKernelFairPCA(2).fit_transform(X, sensitive_features=group)
    >>> bool(np.allclose(Z[group].mean(axis=0), Z[~group].mean(axis=0)))
    True
    """

    n_components: int = 2
    _: KW_ONLY
    gamma: float | None = None
    dual_coef_: Array = field(init=False)
    X_fit_: Array = field(init=False)
    gamma_: float = field(init=False)

    def _solve(self, rows: GroupedRows) -> Learned:
        X = rows.X
        gamma = self._gamma(X)
        contrasts = _contrasts(rows)
        k = self._check_n_components(len(X) - 1, f"n_samples = {len(X)} leave {len(X) - 1} directions")
        kernel, seen = _kernel_matrix(X, gamma, contrasts)
        # Contrasts add up to zero, so their Gram matrix is singular.
        weights = lapack(np.linalg.pinv, contrasts.T @ seen, rcond=1e-10, hermitian=True)
        values, vectors = _leading(kernel, seen, weights, k)
        alive = values > _noise(len(X), kernel.dtype) * max(values[0], 0.0)
        if not alive.all():
            self._check_n_components(int(alive.sum()), "the kernel matrix has no more directions")
        dual = (vectors - contrasts @ (weights @ (seen.T @ vectors))) / np.sqrt(values)
        return {
            "dual_coef_": fix_signs(dual),
            "X_fit_": X.copy(),
            "mean_": X.mean(axis=0),
            "gamma_": gamma,
            "_n_features_out": k,
        }

    def _embed(self, X: Array) -> Array:
        embedded = np.empty((len(X), self._n_features_out))
        for part in _tiles(len(X), len(self.X_fit_)):
            embedded[part] = rbf_kernel(X[part], self.X_fit_, gamma=self.gamma_) @ self.dual_coef_
        return embedded

    def _gamma(self, X: Array) -> float:
        if self.gamma is None:
            variance = float(X.var())
            return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        if not self.gamma > 0:
            raise ValueError(f"gamma is {self.gamma!r}: pass a number above 0, or None for the usual scale")
        return float(self.gamma)


def _noise(n_rows: int, dtype: Any) -> float:
    """Return the relative tolerance below which an eigenvalue of an n x n kernel matrix counts as zero.

    Each entry has an independent relative error of eps, so the matrix has one of about eps sqrt(n).
    """
    return float(100 * np.sqrt(n_rows) * np.finfo(dtype).eps)


def _contrasts(rows: GroupedRows) -> Array:
    """Return a column per group; its product with an n-vector is the group's mean minus the others'."""
    columns = [
        inside / inside.sum() - outside / outside.sum()
        for column in rows.groups.values()
        for inside, outside in column.one_versus_rest()
    ]
    return np.stack(columns, axis=1)


def _kernel_matrix(X: Array, gamma: float, contrasts: Array) -> tuple[Array, Array]:
    """Return K, and K times the contrasts, always in double precision."""
    n = len(X)
    dtype = np.dtype(np.float64 if n <= _DOUBLE_ROWS else np.float32)
    what = f"the kernel matrix of {n:,} rows"
    refuse_beyond_memory(dtype.itemsize * n * n, what, "fit on fewer rows, or use KleindessnerFairPCA")
    kernel: Array = np.empty((n, n), dtype)
    seen = np.empty((n, contrasts.shape[1]))
    for part in _tiles(n, n):
        tile = rbf_kernel(X[part], X, gamma=gamma)
        seen[part] = tile @ contrasts
        kernel[part] = tile
    return kernel, seen


def _tiles(n_rows: int, n_columns: int) -> Iterator[slice]:
    step = max(1, _TILE_ENTRIES // n_columns)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _leading(kernel: Array, seen: Array, weights: Array, k: int) -> tuple[Array, Array]:
    """Return the k leading eigenpairs of K - (K Z) weights (K Z)', largest first."""
    n = len(kernel)
    if n <= _DENSE_ROWS or 4 * k > n:
        return top_eigenvectors(kernel - seen @ weights @ seen.T, k)

    def product(x: Array) -> Array:
        x = x.ravel()
        return (kernel @ x.astype(kernel.dtype)).astype(np.float64) - seen @ (weights @ (seen.T @ x))

    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    # The iteration cannot be more accurate than the products.
    tolerance = 1e-10 if kernel.dtype == np.float64 else 1e-6
    values, vectors = eigsh(operator, k, which="LA", v0=np.ones(n), ncv=4 * k + 20, tol=tolerance)
    return values[::-1], vectors[:, ::-1]
