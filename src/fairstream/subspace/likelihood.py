"""The Gaussian that components stand for: their variances along them, the same noise everywhere else.

Symbols: V (k x d) the components, lambda their variances, s the noise variance, r a centred row. The model is
that of probabilistic PCA, of covariance V' (lambda - s) V + s I. Nulled directions count as noise, which may
therefore be larger than some lambda.
"""

from __future__ import annotations

import numpy as np

from fairstream.linalg import FloatArray
from fairstream.linalg.eigen import NO_VARIANCE


def noise_variance(variances: FloatArray, total: float, n_rows: float, n_features: int) -> float:
    """Return the mean variance of the directions that the components leave, the nulled ones among them.

    There are min(n_features, n_rows) directions in all; without any left it is 0.

    Examples
    --------
    >>> noise_variance(np.array([4.0, 2.0]), 9.0, 100, 5)
    1.0
    """
    left = min(n_features, n_rows) - len(variances)
    return max(total - float(variances.sum()), 0.0) / left if left > 0 else 0.0


def covariance(V: FloatArray, variances: FloatArray, noise: float) -> FloatArray:
    """Return the covariance of the model, d x d.

    Examples
    --------
    >>> covariance(np.eye(2)[:1], np.array([3.0]), 1.0)
    array([[3., 0.],
           [0., 1.]])
    """
    return _spread(V, variances - noise, noise)


def precision(V: FloatArray, variances: FloatArray, noise: float) -> FloatArray:
    """Return the inverse of the covariance, d x d, without inverting a matrix.

    Examples
    --------
    >>> precision(np.eye(2)[:1], np.array([4.0]), 2.0)
    array([[0.25, 0.  ],
           [0.  , 0.5 ]])
    """
    along, elsewhere = _inverse_variances(V, variances, noise)
    return _spread(V, along - elsewhere, elsewhere)


def log_likelihoods(r: FloatArray, V: FloatArray, variances: FloatArray, noise: float) -> FloatArray:
    """Return the log-density of centred rows (n x d) in O(n d k).

    Examples
    --------
    >>> standard = log_likelihoods(np.zeros((1, 2)), np.eye(2)[:1], np.ones(1), 1.0)
    >>> bool(np.allclose(standard, -np.log(2 * np.pi)))
    True
    """
    along, elsewhere = _inverse_variances(V, variances, noise)
    Z = r @ V.T
    rest = r - Z @ V
    squares = np.square(Z) @ along + elsewhere * np.einsum("ij,ij->i", rest, rest)
    n_features, left = V.shape[1], V.shape[1] - len(V)
    log_determinant = -float(np.log(along).sum()) - (left * np.log(elsewhere) if left else 0.0)
    found: FloatArray = -0.5 * (squares + n_features * np.log(2 * np.pi) + log_determinant)
    return found


def _spread(V: FloatArray, along: FloatArray, everywhere: float) -> FloatArray:
    matrix: FloatArray = (V.T * along) @ V
    matrix[np.diag_indices_from(matrix)] += everywhere
    return matrix


def _inverse_variances(V: FloatArray, variances: FloatArray, noise: float) -> tuple[FloatArray, float]:
    """Return the inverse variances along the components and elsewhere (0 if there is no elsewhere)."""
    left = V.shape[1] - len(V)
    least = NO_VARIANCE * max(float(variances.max(initial=0.0)), noise)
    if variances.min(initial=np.inf) <= least or (left and noise <= least):
        raise ValueError(
            "the model has directions without variance, where its density is infinite: ask for fewer "
            "components, leave constant columns out, or fit more rows"
        )
    return 1.0 / variances, (1.0 / noise if left else 0.0)
