"""The noise floor of a second-moment gap: how large its eigenvalues are if groups differ by chance alone.

If both groups come from one normal distribution of covariance Sigma, then S is about Sigma^(1/2) G
Sigma^(1/2), with G a random symmetric matrix of independent entries of variance t^2 = 1/n_in + 1/n_out (twice
that on the diagonal). With s_j the eigenvalues of Sigma, the spectrum of such a matrix ends at

    min over y > s_1 of   t y sqrt(sum_j s_j / (y - s_j)),

which is 2 t sqrt(d) if all s_j are 1. Few rows add up to t^2 sum_j s_j.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from fairstream.linalg import FloatArray

MARGIN = 2.0  # deviations t s_1 above the end of the spectrum: its largest eigenvalue varies about it


def noise_floor(variances: FloatArray, n_inside: float, n_outside: float) -> float:
    """Return the absolute eigenvalue of a gap from which it is more than noise.

    Parameters
    ----------
    variances : array (d,)
        Eigenvalues of the covariance of all rows.
    n_inside, n_outside : float
        Rows of the two sides.

    Examples
    --------
    >>> round(noise_floor(np.ones(100), 1000, 1000), 3)
    1.184
    """
    s = np.maximum(np.asarray(variances, dtype=np.float64), 0.0)
    top = float(s.max(initial=0.0))
    if top == 0:
        return 0.0
    s, t = s / top, float(np.sqrt(1 / n_inside + 1 / n_outside))

    def end(log_distance: float) -> float:
        y = 1.0 + np.exp(log_distance)
        return float(y * np.sqrt((s / (y - s)).sum()))

    # y - s_1 is s_1 if all variances are equal, and at most d s_1.
    found = minimize_scalar(end, bounds=(-8.0, np.log(len(s)) + 1.0), method="bounded")
    return top * (t * (float(found.fun) + MARGIN) + t**2 * float(s.sum()))
