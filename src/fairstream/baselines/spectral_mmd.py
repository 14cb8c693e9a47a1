"""The MMD of narrow embeddings by Fourier series: the cost is linear in the number of rows.

Symbols: K_ij = exp(-|z_i - z_j|^2 / b), w the group weights, so that MMD^2 = w'Kw. On a box wider than the
data by a margin in which the kernel falls to rounding, the kernel equals its periodic continuation,

    exp(-(s - t)^2 / b) = sum_p c_p (cos(omega_p s) cos(omega_p t) + sin(omega_p s) sin(omega_p t)),

omega_p = 2 pi p / width, and c_p ~ exp(-b omega_p^2 / 4) falls to rounding too. With A and B such waves of
the two columns of Z (n x waves), all that is needed of the rows is F = A' diag(w) B, one matrix product:
w'Kw = sum_pq c_p c_q F_pq^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, pi, prod, sqrt

import numpy as np

from fairstream.baselines.base import Array

_MOST_WAVES = 256  # some kilobytes a row
_REACH = 6.2  # exp(-6.2^2) is 2e-17: the margin, and half the last frequency, in units of sqrt(b)


def is_cheaper(Z: Array, bandwidth: float) -> bool:
    """Whether a row takes fewer products of waves than there are rows, and few waves to hold."""
    if Z.shape[1] > 2:
        return False
    counts = [2 * _n_frequencies(_width(column, bandwidth), bandwidth) + 1 for column in Z.T]
    return prod(counts) <= len(Z) and sum(counts) <= _MOST_WAVES


def spectral_mmd2(Z: Array, weights: Array, bandwidth: float) -> tuple[float, Array]:
    """Return w'Kw and its gradient by Z, for Z of one or two columns.

    Examples
    --------
    >>> value, gradient = spectral_mmd2(np.array([[0.0], [1.0]]), np.array([1.0, -1.0]), 1.0)
    >>> round(value, 6)
    1.264241
    """
    waves = [_waves(column, bandwidth) for column in Z.T]
    if len(waves) == 1:
        waves.append(_Waves(np.ones((1, len(Z))), np.zeros((1, len(Z))), np.ones(1)))
    A, B = waves
    F = (A.values * weights) @ B.values.T
    scaled = np.multiply.outer(A.coefficients, B.coefficients) * F
    by_column = [
        np.einsum("pi,pi->i", A.slopes, scaled @ B.values),
        np.einsum("qi,qi->i", B.slopes, scaled.T @ A.values),
    ]
    gradient = 2 * weights[:, None] * np.stack(by_column[: Z.shape[1]], axis=1)
    return float(np.sum(scaled * F)), gradient


@dataclass(frozen=True, slots=True)
class _Waves:
    """Cosines, then sines, of one column (waves x n), their derivatives and their shares in the kernel."""

    values: Array
    slopes: Array
    coefficients: Array


def _width(x: Array, bandwidth: float) -> float:
    return float(np.ptp(x)) + _REACH * sqrt(bandwidth)


def _n_frequencies(width: float, bandwidth: float) -> int:
    return ceil(2 * _REACH / sqrt(bandwidth) * width / (2 * pi))


def _waves(x: Array, bandwidth: float) -> _Waves:
    width = _width(x, bandwidth)
    count = _n_frequencies(width, bandwidth)
    omega = 2 * pi / width * np.arange(1, count + 1)
    # Powers of the slowest wave: far cheaper than as many exponentials.
    powers = np.empty((count, len(x)), complex)
    powers[0] = np.exp(1j * omega[0] * (x - x.min()))
    for p in range(1, count):
        np.multiply(powers[p - 1], powers[0], out=powers[p])
    cosines, sines = powers.real, powers.imag
    share = 2 * sqrt(pi * bandwidth) / width * np.exp(-bandwidth * omega**2 / 4)
    return _Waves(
        np.concatenate([np.ones((1, len(x))), cosines, sines]),
        np.concatenate([np.zeros((1, len(x))), -omega[:, None] * sines, omega[:, None] * cosines]),
        np.concatenate([[sqrt(pi * bandwidth) / width], share, share]),
    )
