"""Squared distances between all pairs of rows, one tile at a time, and their median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairstream.linalg.arrays import FloatArray

Tile = tuple[slice, slice]  # rows and columns of the n x n matrix

TILE = 256  # half a megabyte: stays in cache between its product and what is done with it
KEPT_DISTANCES = 2**22
_BINS = 4096
_TIE = 1e-11


def upper_tiles(n_rows: int, tile: int = TILE) -> list[Tile]:
    """Return the tiles on and above the diagonal of an n x n matrix.

    Examples
    --------
    >>> len(upper_tiles(1000, tile=500))
    3
    """
    cuts = [slice(start, min(start + tile, n_rows)) for start in range(0, n_rows, tile)]
    return [(rows, columns) for i, rows in enumerate(cuts) for columns in cuts[i:]]


def negative_distances(
    Z: FloatArray, tiles: Sequence[Tile], scale: float = 1.0
) -> Iterator[tuple[slice, slice, FloatArray]]:
    """Yield (rows, columns, -scale |z_i - z_j|^2) for every tile, each by one matrix product.

    Never above 0, and 0 on the diagonal. All tiles share one buffer: use a tile before asking for the next.
    Rows far from zero lose digits: centre Z first (`centred`).

    Examples
    --------
    >>> Z = np.array([[0.0], [3.0]])
    >>> [values.tolist() for _, _, values in negative_distances(Z, upper_tiles(2))]
    [[[0.0, -9.0], [-9.0, 0.0]]]
    """
    squares = scale * np.einsum("ij,ij->i", Z, Z)
    ones = np.ones(len(Z))
    left = np.column_stack([2 * scale * Z, -squares, ones])
    right = np.vstack([Z.T, ones, -squares])
    largest = max((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in tiles)
    buffer = np.empty(largest)
    for rows, columns in tiles:
        shape = rows.stop - rows.start, columns.stop - columns.start
        values = buffer[: shape[0] * shape[1]].reshape(shape)
        np.matmul(left[rows], right[:, columns], out=values)
        np.minimum(values, 0.0, out=values)
        if rows == columns:
            np.fill_diagonal(values, 0.0)
        yield rows, columns, values


def centred(Z: ArrayLike) -> FloatArray:
    """Return Z as float64 about its mean: distances keep, cancellation in |x|^2 + |y|^2 - 2xy goes."""
    Z = np.asarray(Z, dtype=float)
    if Z.ndim != 2:
        raise ValueError(f"Z has shape {Z.shape}: pass one row per sample, one column per component")
    about_mean: FloatArray = Z - Z.mean(axis=0)
    return about_mean


def median_squared_distance(Z: ArrayLike, *, tile: int = TILE, keep: int = KEPT_DISTANCES) -> float:
    """Return the exact median of |z_i - z_j|^2 over all pairs i < j: the paper's bandwidth, 2 sigma^2.

    Memory is O(tile^2 + keep). A bracket around the median is drawn from a sample of pairs, then narrowed by
    passes over the tiles until at most `keep` distances lie inside it; those are sorted. What is no more than
    the rounding of |z_i|^2 counts as 0.

    Examples
    --------
    >>> median_squared_distance([[0.0], [1.0], [3.0]])
    4.0
    """
    Z = centred(Z)
    n_pairs = len(Z) * (len(Z) - 1) // 2
    if n_pairs == 0:
        raise ValueError(f"Z has {len(Z)} rows: a distance needs at least two")
    ranks = ((n_pairs - 1) // 2, n_pairs // 2)
    noise = _rounding(Z)
    low, high = _first_bracket(Z, n_pairs, keep)
    while True:
        high = max(high, noise)
        below, counts, inside = _scan(Z, low, high, tile, keep)
        if not below <= ranks[0] <= ranks[1] < below + counts.sum():
            low, high = 0.0, _distance_bound(Z)
            continue
        if inside is not None:
            median = float(np.sort(inside)[[rank - below for rank in ranks]].mean())
            return median if median > noise else 0.0
        edges = np.linspace(low, high, _BINS + 1)
        first, last = (int(np.searchsorted(np.cumsum(counts), rank - below, "right")) for rank in ranks)
        narrowed = edges[max(first - 1, 0)], edges[min(last + 2, _BINS)]
        if narrowed[1] <= noise:
            return 0.0
        if narrowed == (low, high) or narrowed[1] - narrowed[0] < _TIE * narrowed[1]:
            return float(sum(narrowed) / 2)  # the middle distances are equal to rounding
        low, high = narrowed


def _scan(
    Z: FloatArray, low: float, high: float, tile: int, keep: int
) -> tuple[int, NDArray[np.int64], FloatArray | None]:
    """Count the distances below `low`, bin those in [low, high], and return these if at most `keep`."""
    below, counts, found = 0, np.zeros(_BINS, dtype=np.int64), 0
    kept: list[FloatArray] = []
    for rows, columns, negative in negative_distances(Z, upper_tiles(len(Z), tile)):
        distances = np.negative(negative, out=negative)
        values = distances[np.triu_indices_from(distances, 1)] if rows == columns else distances.ravel()
        below += int(np.count_nonzero(values < low))
        inside = values[(values >= low) & (values <= high)]
        found += inside.size
        if found <= keep:
            kept.append(inside)
        else:
            kept.clear()
        counts += np.histogram(inside, bins=_BINS, range=(low, high))[0]
    return below, counts, np.concatenate(kept) if found <= keep else None


def _first_bracket(Z: FloatArray, n_pairs: int, keep: int) -> tuple[float, float]:
    """Return an interval that almost surely holds the median, from a seeded sample of pairs."""
    if n_pairs <= keep:
        return 0.0, _distance_bound(Z)
    n_sampled = 200_000
    rng = np.random.default_rng(0)
    i = rng.integers(len(Z), size=n_sampled)
    j = (i + rng.integers(1, len(Z), size=n_sampled)) % len(Z)
    sampled = np.einsum("ij,ij->i", Z[i] - Z[j], Z[i] - Z[j])
    margin = 4 * 0.5 / np.sqrt(n_sampled)
    low, high = np.quantile(sampled, [0.5 - margin, 0.5 + margin])
    return float(low) * (1 - 1e-9), float(high) * (1 + 1e-9) or 1.0  # wider than a tie's rounding


def _rounding(Z: FloatArray) -> float:
    """Return up to which size the squared distance of equal rows may be: rounding of a usual row's square."""
    usual = max(float(np.median(np.einsum("ij,ij->i", Z, Z))), 1e-8 * _distance_bound(Z))
    return float(8 * np.finfo(float).eps * usual)


def _distance_bound(Z: FloatArray) -> float:
    return float(4 * np.einsum("ij,ij->i", Z, Z).max() * (1 + 1e-9)) or 1.0
