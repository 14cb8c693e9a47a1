"""The shared basis of a sketched summary: how it takes in new rows and how it is cut back.

Symbols: B is w x d with orthonormal rows, R holds b new rows, Y = R B', K = R R'. The residual of R outside B
is never formed; its Gram matrix is K - YY', and T with T (K - YY') T' = I orthonormalises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fairstream.linalg import FloatArray, inner_product, small_lapack, wide_product
from fairstream.moments.rows import CentredRows

REORTHONORMALISE_EVERY = 32


@dataclass(frozen=True, slots=True)
class Extension:
    """Coordinates of new rows in the basis [B; Q], where Q spans what B misses of them."""

    inside: FloatArray  # Y, b x w
    outside: FloatArray  # R Q', b x r
    mixing: FloatArray  # T, r x b: Q = T (R - Y B)
    squared_norms: FloatArray  # of the new rows, length b

    @property
    def coordinates(self) -> FloatArray:
        """The new rows in [B; Q], b x (w + r)."""
        return np.hstack([self.inside, self.outside])


def extend(B: FloatArray, rows: CentredRows) -> Extension:
    """Find the directions of `rows` that B (w x d) does not have yet. Cost 2bdw + b^2 d flops."""
    inside = rows.dot(B).astype(np.float64)
    gram = rows.gram().astype(np.float64)
    squared_norms = np.maximum(np.diag(gram), 0.0)
    largest = float(squared_norms.max(initial=0.0))
    # Below this share of the longest row the residual's Gram matrix is rounding noise of the products.
    noise = 1e-5 if B.dtype == np.float32 else 1e-12
    outside, mixing = _whitened(gram - inside @ inside.T, noise * largest, B.shape[1] - B.shape[0])
    return Extension(inside, outside, mixing, squared_norms)


def _whitened(gram: FloatArray, noise: float, room: int) -> tuple[FloatArray, FloatArray]:
    """Return C (b x r) and T (r x b) with gram = C C' and T gram T' = I, as far as it is above the noise.

    Cholesky with pivoting: the rows with the most left over come first, and it stops when none has enough.
    """
    with small_lapack():
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=max(noise, 1e-300), lower=1)
        # LAPACK never compares the first pivot, the largest diagonal entry, with the tolerance.
        r = min(int(rank), room) if np.diag(gram).max(initial=0.0) > noise else 0
        lower = np.tril(factor[:, :r])
        inverse = _inverse_of(lower[:r])
    order = pivots - 1
    outside = np.empty_like(lower)
    outside[order] = lower
    mixing = np.zeros((r, len(gram)))
    mixing[:, order[:r]] = inverse
    return outside, mixing


def _inverse_of(lower: FloatArray) -> FloatArray:
    """Return the inverse of a lower triangle, which may have no rows: SciPy before 1.14 refuses that."""
    if len(lower) == 0:
        return np.zeros((0, 0))
    inverse: FloatArray = scipy.linalg.solve_triangular(
        lower, np.eye(len(lower)), lower=True, check_finite=False
    )
    return inverse


def rotate(B: FloatArray, rows: CentredRows, step: Extension, E: FloatArray | None) -> FloatArray:
    """Return the new basis: [B; Q], or E'[B; Q] where E ((w + r) x L) cuts it. Cost 2dL(w + b) flops."""
    width = B.shape[0]
    if E is None:
        if step.mixing.shape[0] == 0:
            return B
        Q = rows.combine(step.mixing)
        Q -= wide_product((step.mixing @ step.inside).astype(B.dtype), B)
        return _tidy_new_rows(B, Q)
    new_rows = E[width:].T @ step.mixing
    return rows.combine_with(B, E[:width].T - new_rows @ step.inside, new_rows)


def is_orthonormal(B: FloatArray) -> bool:
    """Return whether B's rows look orthonormal: two random combinations keep their length. Cost 4dL flops."""
    if len(B) == 0:
        return True
    probes = np.random.default_rng(0).standard_normal((2, len(B)), dtype=B.dtype.type)
    lengths = np.linalg.norm(wide_product(probes, B), axis=1) / np.linalg.norm(probes, axis=1)
    return bool(np.abs(lengths - 1).max() < 1e-3)


def _tidy_new_rows(B: FloatArray, Q: FloatArray) -> FloatArray:
    """Append Q to B after one more projection: Q was computed by differences of nearly equal numbers."""
    if len(B):
        Q -= wide_product(inner_product(Q.T, B.T), B)
    width, basis = len(B), np.concatenate([B, Q])
    # A direction of pure rounding can pass for one of the data: rows about their own mean are dependent, and
    # where all of them share in that, the last pivot is the noise times their number.
    off = np.tril(np.abs(inner_product(Q.T, Q.T) - np.eye(len(Q)))).max(axis=1) > 0.1
    sound = int(np.argmax(off)) if off.any() else len(Q)
    basis[width : width + sound] = reorthonormalise(Q[:sound])[0]
    generator = np.random.default_rng(0)
    for row in range(width + sound, len(basis)):
        if not basis[row].any():  # where nothing is left of a direction any other does
            basis[row] = generator.standard_normal(basis.shape[1], dtype=basis.dtype.type)
        for _ in range(3):
            basis[row] -= (basis[:row] @ basis[row]) @ basis[:row]
            basis[row] /= np.linalg.norm(basis[row])
    return basis


def best_directions(pool: FloatArray, rank: int, *, outside: FloatArray | None = None) -> FloatArray:
    """Return orthonormal columns that span `outside` and, beside it, the leading eigenvectors of the pool.

    `rank` columns in all. Which directions lead is a matter of choice, not of precision: the eigenproblem is
    solved in float32 where that can tell them apart, in half the time, and the columns are orthonormalised
    in float64 afterwards. It has to be solved, though: a few power steps hold as much of this pool, but where
    the spectrum is flat they do not favour, cut after cut, what stays in the data.
    """
    if rank == 0:
        return np.zeros((len(pool), 0))
    S = _scaled(pool)
    if outside is None or outside.shape[1] == 0:
        return _orthonormal(_leading_eigenvectors(S, rank))
    # Reflections take `outside` to the first coordinates; the others hold the pool without it.
    taken = outside.shape[1]
    geqrf, ormqr = scipy.linalg.get_lapack_funcs(("geqrf", "ormqr"), (S,))
    workspace = 64 * len(S)
    with small_lapack():
        reflectors, tau, _, _ = geqrf(outside.astype(S.dtype), lwork=64 * taken)
        S = ormqr("L", "T", reflectors, tau, S, workspace)[0]
        S = ormqr("R", "N", reflectors, tau, S, workspace)[0]
        columns = np.zeros((len(S), rank - taken), dtype=S.dtype, order="F")
        columns[taken:] = _leading_eigenvectors(S[taken:, taken:], rank - taken)
        columns = ormqr("L", "N", reflectors, tau, columns, workspace, overwrite_c=True)[0]
    return _orthonormal(np.hstack([outside, columns]))


def _leading_eigenvectors(S: FloatArray, columns: int) -> FloatArray:
    """Divide and conquer finds all eigenvectors, and still in less time than others take for a third."""
    with small_lapack():
        _, vectors = scipy.linalg.eigh(S, check_finite=False, driver="evd")
    return vectors[:, ::-1][:, :columns]


def leading_directions(total: FloatArray, rank: int) -> FloatArray:
    """Return orthonormal columns that hold as good as all that the `rank` leading eigenvectors hold.

    A few steps of block power iteration with half as many columns more: a third of an eigensolver's time
    where `rank` is a small part of the size.
    """
    size, wide = len(total), rank + max(rank // 2, 16)
    if size < 4 * wide:
        return best_directions(total, rank)
    S = _scaled(total)
    Q = np.random.default_rng(0).standard_normal((size, wide), dtype=S.dtype.type)
    Q[:, :rank] = np.eye(size, rank)  # the last cut's choice comes first in the basis
    with small_lapack():
        for _ in range(4):  # each with its QR: what leads by far would drown the others in float32
            Q = scipy.linalg.qr(S @ Q, mode="economic", check_finite=False, overwrite_a=True)[0]
        _, axes = scipy.linalg.eigh(Q.T @ S @ Q, check_finite=False, driver="evd")
    return _orthonormal(Q @ axes[:, ::-1][:, :rank])


def _orthonormal(columns: FloatArray) -> FloatArray:
    """Return the columns orthonormal to float64's rounding: corrections where they nearly are, else QR."""
    columns = columns.astype(np.float64, copy=False)
    with small_lapack():
        for _ in range(2):
            excess = columns.T @ columns
            excess[np.diag_indices_from(excess)] -= 1
            largest = np.abs(excess).max(initial=0.0)
            if largest > 1e-4:
                answer: FloatArray = scipy.linalg.qr(columns, mode="economic", check_finite=False)[0]
                return answer
            columns = columns - columns @ (excess / 2)  # leaves less than the excess's square
            if largest < 1e-8:
                break
    return columns


def _scaled(pool: FloatArray) -> FloatArray:
    """Return the pool over its largest entry, in float32 unless half of it would be rounding there."""
    largest = float(np.abs(pool).max())
    if not np.isfinite(largest):  # LAPACK would search for its eigenvalues without end
        raise ValueError("the moments have NaN or infinite entries: they were damaged, collect them anew")
    scaled = pool / max(largest, np.finfo(float).tiny)
    return scaled if np.median(np.diag(scaled)) < 1e-5 else scaled.astype(np.float32)


def reorthonormalise(B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (C, L) with B = L C and C orthonormal, to undo the slow drift of many rotations."""
    gram = inner_product(B.T, B.T).astype(np.float64)
    try:
        with small_lapack():
            lower = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
            inverse = _inverse_of(lower)
    except scipy.linalg.LinAlgError:
        # A row of rounding noise: the first rows are centred by their own mean, so one is not free, and in
        # float32 with many features it can pass for a direction. Householder needs no independent rows.
        Q, R = np.linalg.qr(B.T.astype(np.float64))
        signs = np.where(np.diag(R) < 0, -1.0, 1.0)  # as Cholesky has them: coordinates go with the rows
        return (Q * signs).T.astype(B.dtype), (R.T * signs)
    return wide_product(inverse.astype(B.dtype), B), lower
