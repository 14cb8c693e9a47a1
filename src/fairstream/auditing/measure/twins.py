"""Twins: audited rows that equal rows of the fit by chance, told from rows of the fit that are audited again.

In a table of few columns different people have equal rows. How many of them unseen rows would share with the
fit can be estimated from the audited rows alone: those that were copied from the fit are no more alike among
themselves than others. That is not so if rows were repeated, as by oversampling before a split. Rows that are
equal by chance come with far more rows that are equal in half of the columns; repeated rows do not.

symbol   meaning
------   ------------------------------------------------------------------------------------------------
t        rows of the fit for each audited row
c        how often a value of a whole row occurs among the audited rows
f_c      how many values occur c times
r_c      how often one of these would occur in as many other rows
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
        The second may be below 0 if fewer rows equal some of the fit than unseen rows would. None if no two
        rows of X are equal by chance, so that nothing hints at twins, or if there are too few rows of which
        the marks can tell.

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
    found = np.array([marks.recognised(X[often == c]) for c in occurring], dtype=float)
    times, n_rows = occurring / repeats, len(X) / repeats
    if (told := found[:, 1].sum()) < LEAST_TOLD * repeats:
        return None
    hits = found[:, 0] / repeats / times
    misses = found[:, 1] / repeats / times - hits
    # Marks tell of the rows of a few corners of the table, with more or fewer twins than others. Little is
    # known of them, so the whole table counts as much, as another corner of their size would.
    everywhere = np.bincount(np.searchsorted(occurring, counts), minlength=len(occurring))
    values = np.stack([hits, misses, everywhere * told / len(X)])
    # Values are drawn, not rows: equal rows are recognised together or not at all.
    draws = np.random.default_rng(seed).poisson(values, size=(N_DRAWS, *values.shape)).astype(float)
    draws = draws[draws[:, :2].sum(axis=(1, 2)) > 0]
    twins, reused = _shares(np.concatenate([values[None], draws]), times, fitted_rows / n_rows)
    return _estimate(twins, level), _estimate(reused, level)


def _are_copies(X: FloatArray, n_different: int) -> bool:
    """Return whether rows that are equal in half of the columns are equal in all: no work of chance."""
    if X.shape[1] == 1:
        return False
    halves = (X[:, ::2], X[:, 1::2])
    return any(len(np.unique(row_fingerprints(half))) >= COPIES * n_different for half in halves)


def twinned(f: FloatArray, times: FloatArray, t: float) -> FloatArray:
    """Return the share of values with a twin among the rows of the fit, by how often they occur.

    A row of `f` says how many values occur `times` times; a row of the result has a share for each of these.
    Good and Turing: r_c = (c + 1) f_(c + 1) / f_c. If the frequencies of values are gamma distributed, r_c
    rises by the same s from each c to the next, 0 < s < 1, and a value that occurs c times has no twin with
    probability (1 + s t)^(-r_c / s). At s = 1 that is the process of Pitman and Yor, whose tail is heavy.

    Examples
    --------
    >>> f, times = np.array([[60.0, 15.0, 5.0]]), np.array([1.0, 2.0, 3.0])
    >>> [twinned(f, times, t).round(2).tolist()[0] for t in (0.5, 1.0, 3.0)]
    [[0.2, 0.36, 0.49], [0.33, 0.56, 0.7], [0.6, 0.84, 0.94]]
    """
    once, twice, thrice = (f[:, times == c].sum(axis=1) for c in (1, 2, 3))
    first = 2 * twice / np.maximum(once, 1e-9)
    rise = np.clip(3 * thrice / np.maximum(twice, 1e-9) - first, 1e-6, 1.0)
    rates = first[:, None] + rise[:, None] * (times - 1)
    shares: FloatArray = -np.expm1(-rates * (np.log1p(rise * t) / rise)[:, None])
    return shares


def _shares(values: FloatArray, times: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
    """Return the shares of twins and of reused rows.

    `values` has those that were recognised, the others that marks tell of, and those of the whole table.
    """
    rows = values[:, :2].sum(axis=1) * times
    told = rows.sum(axis=1)
    twins = np.sum(rows * twinned(values.sum(axis=1), times, t), axis=1) / told
    seen = (values[:, 0] @ times) / told
    return twins, (seen - twins) / np.maximum(1 - twins, 1e-9)


def _estimate(found: FloatArray, level: float) -> Estimate:
    """Return the first number, with the interval of the others; below 0 it tells how little a share is."""
    low, high = np.quantile(found[1:], [(1 - level) / 2, (1 + level) / 2])
    value, high = min(float(found[0]), 1.0), float(np.clip(high, 0.0, 1.0))
    return Estimate(value, min(float(low), value), max(high, value))
