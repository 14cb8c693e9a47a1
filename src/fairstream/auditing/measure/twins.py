"""Twins: audited rows that equal rows of the fit by chance, told from rows of the fit that are audited again.

In a table of few columns different people have equal rows. How many of them unseen rows would share with the
fit can be estimated from the audited rows alone: those that were copied from the fit are no more alike among
themselves than others. That is not so if rows were repeated, as by oversampling before a split. Rows that are
equal by chance come with far more rows that are equal in half of the columns; repeated rows do not.

symbol   meaning
------   ------------------------------------------------------------------------------------------------
t        rows of the fit for each row that is looked at
c        how often a value of a whole row occurs among the rows that are looked at
f_c      how many values occur c times
N        the rows that are looked at: the sum of c f_c
U(t)     the share of unseen rows without a twin among t N others
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.report import Estimate
from fairstream.data.fingerprints import row_fingerprints
from fairstream.data.row_marks import RowMarks

FloatArray = NDArray[np.floating[Any]]

LEAST_TOLD = 30  # rows that marks can tell of; with fewer, no share is estimated
N_DRAWS = 400
COPIES = 0.98  # rows that differ in half of the columns, of those that differ at all: from here on, copies


def twins_and_reused(
    X: FloatArray, marks: RowMarks, fitted_rows: int, *, level: float = 0.95, seed: int = 0
) -> tuple[Estimate, Estimate] | None:
    """Return the share of unseen rows that would equal rows of the fit, and the share that is reused.

    Parameters
    ----------
    X : array of shape (n, d)
        Audited rows, drawn at random.
    marks : RowMarks
        Those of the fit.
    fitted_rows : int
        The number of rows of the fit.
    level : float
        Confidence level of the intervals.
    seed : int
        Seed of the draws behind the intervals.

    Returns
    -------
    (Estimate, Estimate) or None
        None if no two rows of X are equal by chance, so that nothing hints at twins, or if there are too few
        rows of which the marks can tell.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fitted, unseen = rng.integers(0, 4, size=(2, 250, 5)).astype(float)
    >>> marks = RowMarks().updated(fitted)
    >>> twins, reused = twins_and_reused(unseen, marks, 250)
    >>> 0.1 < twins.value < 0.4, reused.low < 0.05
    (True, True)
    >>> mixed = np.concatenate([fitted[:125], unseen[:125]])
    >>> twins_and_reused(mixed, marks, 250)[1].low > 0.2
    True
    """
    _, inverse, counts = np.unique(row_fingerprints(X), return_inverse=True, return_counts=True)
    # A file in which every row is repeated has no more people for that.
    repeats = int(np.gcd.reduce(counts))
    often = counts[inverse]
    occurring = np.unique(often)
    if occurring[-1] == repeats or _are_copies(X, len(counts)):
        return None
    # Marks tell of all rows with certain values, so for these values all rows of both sides are known: shares
    # among them can be compared, however unlike the other rows they are.
    found = np.array([marks.recognised(X[often == c]) for c in occurring], dtype=float)
    times, n_rows = occurring / repeats, len(X) / repeats
    if found[:, 1].sum() < LEAST_TOLD * repeats:
        return None
    hits = found[:, 0] / repeats / times
    values = np.stack([hits, found[:, 1] / repeats / times - hits])
    # Values are drawn, not rows: equal rows are recognised together or not at all.
    draws = np.random.default_rng(seed).poisson(values, size=(N_DRAWS, *values.shape)).astype(float)
    draws = draws[draws.sum(axis=(1, 2)) > 0]
    twins, reused = _shares(np.concatenate([values[None], draws]), times, fitted_rows / n_rows)
    return _estimate(twins, level), _estimate(reused, level)


def _are_copies(X: FloatArray, n_different: int) -> bool:
    """Return whether rows that are equal in half of the columns are equal in all: no work of chance."""
    if X.shape[1] == 1:
        return False
    halves = (X[:, ::2], X[:, 1::2])
    return any(len(np.unique(row_fingerprints(half))) >= COPIES * n_different for half in halves)


def without_twin(f: FloatArray, times: FloatArray, t: float) -> FloatArray:
    """Return U(t) for every row of `f`, whose columns say how many values occur `times` times.

    Up to t = 1 a row misses its twins if none of the c - 1 others is among a share t of the rows:
    U(t) = sum of c f_c (1 - t)^(c - 1) / N. At t = 1 this is f_1 / N, the estimate of Good and Turing. A fit
    with more rows has more twins than the rows show: there the rows that occur once get gamma distributed
    frequencies that agree with U, U' = -2 f_2 / N and U'' = 6 f_3 / N at t = 1 (Efron and Thisted 1976).
    The series of Good and Toulmin, which needs no such model, is of no use beyond t = 2.

    Examples
    --------
    >>> f, times = np.array([[60.0, 20.0]]), np.array([1.0, 2.0])
    >>> [round(float(without_twin(f, times, t)[0]), 2) for t in (0.0, 0.5, 1.0, 2.0)]
    [1.0, 0.8, 0.6, 0.31]
    """
    n_rows = f @ times
    if t <= 1:
        return np.asarray((f @ (times * (1 - t) ** (times - 1))) / n_rows)
    once, twice, thrice = (f[:, times == c].sum(axis=1) for c in (1, 2, 3))
    fall, bend = (np.maximum(parts / np.maximum(once, 1e-9), 1e-9) for parts in (2 * twice, 6 * thrice))
    spread = np.maximum(bend / fall**2 - 1, 1e-6)  # 1 / shape of the gamma distribution
    remaining: FloatArray = once / n_rows * np.exp(-np.log1p(spread * fall * (t - 1)) / spread)
    return remaining


def _shares(values: FloatArray, times: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
    """Return the shares of twins and of reused rows, from the values that were recognised and the others."""
    f = values.sum(axis=1)
    twins = 1 - without_twin(f, times, t)
    seen = (values[:, 0] @ times) / (f @ times)
    return twins, (seen - twins) / np.maximum(1 - twins, 1e-9)


def _estimate(found: FloatArray, level: float) -> Estimate:
    """Return the first number, with the interval of the others."""
    low, high = np.clip(np.quantile(found[1:], [(1 - level) / 2, (1 + level) / 2]), 0.0, 1.0)
    value = float(np.clip(found[0], 0.0, 1.0))
    return Estimate(value, min(float(low), value), max(float(high), value))
