"""Kernel fair PCA of Kleindessner et al. (2023): group means agree in the kernel's feature space."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import rbf_kernel

from fairstream.baselines.base import Array, FairTransformer, GroupedRows, Learned
from fairstream.linalg import fix_signs, orthonormalise


class KleindessnerKernelFairPCA(FairTransformer):
    """Kernel PCA whose components do not see the gap between group means.

    With K the RBF kernel matrix of the training rows and Z the centred group indicators (n x groups):

        maximise tr(A' K K A)  subject to  A' K A = I,  Z' K A = 0,

    solved as a generalised eigenproblem on the complement of K Z. Where K is singular to rounding, `ridge`
    times the identity is added to the right-hand matrix, as published. A row x is embedded as k(x, X) A.

    Parameters
    ----------
    n_components : int
        Width k of the embedding.
    gamma : float, optional
        exp(-gamma |x - y|^2). None takes 1 / (n_features * variance of all entries of X).
    ridge : float
        Added to the diagonal only when the eigenproblem fails without it.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples, n_components)
        The matrix A.
    X_fit_ : ndarray of shape (n_samples, n_features)
        The training rows, needed to embed.
    gamma_, ridge_ : float
        The values used.

    Notes
    -----
    Cost: O(n^3) time and three n x n matrices: 8 GB each for the 31,655 rows of Adult. Known weaknesses:
    the fitted object holds every training row, sensitive data included; the kernel is not centred, as
    published, so the first component is close to the mean; on data with many equal rows the result is set
    by the ridge.

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

    dual_coef_: Array
    X_fit_: Array
    gamma_: float
    ridge_: float

    def __init__(self, n_components: int = 2, *, gamma: float | None = None, ridge: float = 1e-5) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.ridge = ridge

    def _solve(self, rows: GroupedRows) -> Learned:
        X = rows.X
        gamma = self._gamma(X)
        kernel = rbf_kernel(X, gamma=gamma)
        reflect = _Reflections(orthonormalise(kernel @ _contrasts(rows)))
        largest = len(X) - reflect.count
        k = self._check_n_components(largest, f"n_samples = {len(X)} leave {largest} directions")
        objective, metric = reflect.compress(kernel @ kernel), reflect.compress(kernel)
        vectors, ridge = self._generalised_eigenvectors(objective, metric, k)
        # Largest eigenvalue first.
        dual = fix_signs(reflect.expand(vectors[:, ::-1]))
        return {
            "dual_coef_": dual,
            "X_fit_": X.copy(),
            "mean_": X.mean(axis=0),
            "gamma_": gamma,
            "ridge_": ridge,
            "_n_features_out": k,
        }

    def _embed(self, X: Array) -> Array:
        embedded: Array = rbf_kernel(X, self.X_fit_, gamma=self.gamma_) @ self.dual_coef_
        return embedded

    def _gamma(self, X: Array) -> float:
        if self.gamma is None:
            variance = float(X.var())
            return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        if not self.gamma > 0:
            raise ValueError(f"gamma is {self.gamma!r}: pass a number above 0, or None for the usual scale")
        return float(self.gamma)

    def _generalised_eigenvectors(self, objective: Array, metric: Array, k: int) -> tuple[Array, float]:
        last = len(metric) - 1
        for ridge in (0.0, self.ridge):
            metric[np.diag_indices_from(metric)] += ridge
            try:
                _, vectors = scipy.linalg.eigh(
                    objective, metric, subset_by_index=(last - k + 1, last), check_finite=False
                )
            except np.linalg.LinAlgError:
                continue
            return vectors, ridge
        raise ValueError(
            f"ridge is {self.ridge!r}: too small to make the kernel matrix definite, pass a larger one"
        )


def _contrasts(rows: GroupedRows) -> Array:
    """Return one column per group whose product with any n-vector is that group's mean minus the others'."""
    columns = []
    for column in rows.groups.values():
        known = column.codes >= 0
        for code in range(len(column.labels)):
            inside = column.codes == code
            others = known & ~inside
            columns.append(inside / inside.sum() - others / others.sum())
    return np.stack(columns, axis=1)


class _Reflections:
    """Householder reflections that turn given orthonormal columns into the first unit vectors.

    What is left after dropping those coordinates is the complement, reached in O(n^2) for each column and
    without an n x n basis.
    """

    def __init__(self, directions: Array) -> None:
        self.count = directions.shape[1]
        self.normals: list[Array] = []
        for j in range(self.count):
            column = self._apply(directions[:, j].copy())
            column[:j] = 0.0
            norm = np.linalg.norm(column)
            column[j] += norm if column[j] >= 0 else -norm
            self.normals.append(column / np.linalg.norm(column))

    def _apply(self, A: Array) -> Array:
        for normal in self.normals:
            A -= np.multiply.outer(2 * normal, normal @ A)
        return A

    def compress(self, M: Array) -> Array:
        """Return N' M N for symmetric M, N a basis of the complement."""
        reflected = self._apply(self._apply(M.copy()).T)
        return np.asfortranarray(reflected[self.count :, self.count :])

    def expand(self, A: Array) -> Array:
        """Return N A."""
        full = np.zeros((len(A) + self.count, A.shape[1]))
        full[self.count :] = A
        for normal in reversed(self.normals):
            full -= np.multiply.outer(2 * normal, normal @ full)
        return full
