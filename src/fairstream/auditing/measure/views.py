"""Views of a model for the page: the map of two coordinates, the removed directions, the frontier."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure.words import direction_in_words
from fairstream.auditing.report import Direction, EmbeddingMap, FrontierChoice, GroupCloud
from fairstream.auditing.subjects import Subject
from fairstream.data.groups import GroupIndex
from fairstream.errors import FairstreamWarning
from fairstream.linalg import eigh, lapack
from fairstream.moments import GroupMoments
from fairstream.subspace.components import fair_components
from fairstream.subspace.unfair import unfair_basis

FloatArray = NDArray[np.floating[Any]]
Comparisons = list[tuple[str, Hashable]]

N_BINS = 24
SMALLEST_CELL = 5
N_DIRECTIONS = 6
N_WEIGHTS = 8
GRID = (1, 2, 3, 5, 8, 12, 15, 20, 30, 50)


def embedding_map(
    Z: FloatArray, attribute: str, codes: NDArray[np.intp], names: tuple[str, ...]
) -> EmbeddingMap | None:
    """Count each group's rows in a grid over the first two coordinates; rare cells are left out."""
    if Z.shape[1] < 2:
        return None
    plane = Z[codes >= 0, :2]
    codes = codes[codes >= 0]
    sides = [plane[codes == code] for code in range(len(names)) if (codes == code).any()]
    x_range, y_range = (_rounded_range([side[:, axis] for side in sides]) for axis in (0, 1))
    clouds = tuple(
        _cloud(plane[codes == code], name, x_range, y_range)
        for code, name in enumerate(names)
        if (codes == code).sum() > SMALLEST_CELL
    )
    return EmbeddingMap(attribute, N_BINS, x_range, y_range, SMALLEST_CELL, clouds)


def removed_directions(
    subject: Subject, moments: GroupMoments, comparisons: Comparisons, names: tuple[str, ...] | None
) -> tuple[Direction, ...]:
    """Describe the removed subspace by its strongest directions and their heaviest features.

    A basis of a subspace is arbitrary. This one is not: it diagonalises the second-moment gap of the audited
    data within the subspace (of the first comparison), strongest first. Screened features are not among them.
    """
    U = None if subject.unfair_basis is None else subject.unfair_basis[subject.n_screened :]
    if U is None or len(U) == 0 or not comparisons:
        return ()
    gap, mean_gap = moments.second_moment_gap(*comparisons[0]), moments.mean_gap(*comparisons[0])
    values, rotation = eigh(gap.compress(U.T.copy()))
    order = np.argsort(-np.abs(values))[:N_DIRECTIONS]
    directions = []
    for j in order:
        u = rotation[:, j] @ U
        heaviest = np.argsort(-np.abs(u))[:N_WEIGHTS]
        sign = 1.0 if u[heaviest[0]] >= 0 else -1.0
        weights = {feature_name(i, names): float(sign * u[i]) for i in heaviest if abs(u[i]) > 1e-6}
        words = direction_in_words(weights)
        directions.append(Direction(float(sign * (u @ mean_gap)), float(values[j]), weights, words))
    return tuple(directions)


def frontier(
    fitted: GroupMoments, audited: GroupMoments, n_components: int, comparisons: Comparisons
) -> tuple[FrontierChoice, ...]:
    """Solve for every number of removed directions on `fitted`, measure on `audited`: no pass over rows."""
    control = _gaps(
        fair_components(fitted, np.zeros((fitted.n_features, 0)), n_components)[0], audited, comparisons
    )
    choices = [("none", "absolute", 0), ("mean", "absolute", 0)]
    choices += [("all", directions, m) for directions in ("absolute", "relative") for m in GRID]
    points = []
    for constraint, directions, m in choices:
        with warnings.catch_warnings():
            # A grid asks for more directions than some data has; the point says how many it got.
            warnings.simplefilter("ignore", FairstreamWarning)
            try:
                U = unfair_basis(fitted, max(m, 1), constraint, directions, n_components)
                V, _ = fair_components(fitted, U, n_components)
            except ValueError:
                continue  # this many directions do not fit beside the components
        mean_gap, second_moment_gap = _gaps(V, audited, comparisons)
        kept = float(np.trace(audited.covariance().compress(V)) / audited.total_variance)
        points.append(
            FrontierChoice(
                constraint=constraint,
                directions=directions,
                n_unfair=m,
                n_removed=U.shape[1],
                explained_variance=kept,
                mean_gap=mean_gap,
                mean_gap_relative=relative_gap(mean_gap, control[0]),
                second_moment_gap=second_moment_gap,
                second_moment_gap_relative=relative_gap(second_moment_gap, control[1]),
            )
        )
    return tuple(points)


def largest_gaps(moments: GroupMoments, comparisons: Comparisons) -> tuple[float, float]:
    """Return the largest mean gap and second-moment gap of an embedding's own moments."""
    return _gaps(np.eye(moments.n_features), moments, comparisons)


def _gaps(V: FloatArray, moments: GroupMoments, comparisons: Comparisons) -> tuple[float, float]:
    mean_gaps, second_moment_gaps = [0.0], [0.0]
    for attribute, group in comparisons:
        mean_gaps.append(float(np.linalg.norm(V.T @ moments.mean_gap(attribute, group))))
        inside = moments.second_moment_gap(attribute, group).compress(V)
        second_moment_gaps.append(float(np.abs(lapack(np.linalg.eigvalsh, inside)).max()))
    return max(mean_gaps), max(second_moment_gaps)


def relative_gap(gap: float, control: float) -> float | None:
    """Return a gap as a share of the same gap under plain PCA, None if plain PCA has none."""
    return gap / control if control > 0 else None


def _cloud(
    plane: FloatArray, name: str, x_range: tuple[float, float], y_range: tuple[float, float]
) -> GroupCloud:
    counts, _, _ = np.histogram2d(plane[:, 0], plane[:, 1], bins=N_BINS, range=[x_range, y_range])
    shown = np.argwhere(counts >= SMALLEST_CELL)
    cells = tuple((int(i), int(j), int(counts[i, j])) for i, j in shown)
    covariance = np.cov(plane.T, ddof=0)
    return GroupCloud(
        group=name,
        n_rows=len(plane),
        mean=(float(plane[:, 0].mean()), float(plane[:, 1].mean())),
        covariance=(
            (float(covariance[0, 0]), float(covariance[0, 1])),
            (float(covariance[1, 0]), float(covariance[1, 1])),
        ),
        cells=cells,
        n_hidden_rows=len(plane) - sum(cell[2] for cell in cells),
    )


def _rounded_range(sides: list[FloatArray]) -> tuple[float, float]:
    """Return a range for nearly all values and the groups' ellipses; rounded: its ends are nobody's value."""
    ends = [np.quantile(side, [0.01, 0.99]) for side in sides]
    ends += [side.mean() + 2.1 * side.std() * np.array([-1.0, 1.0]) for side in sides]
    low, high = float(np.min(np.array(ends))), float(np.max(np.array(ends)))
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-12) / 5))
    return float(np.floor(low / step) * step), float((np.floor(high / step) + 1) * step)


def feature_name(index: int, names: tuple[str, ...] | None) -> str:
    """Return the name of a feature, or its number."""
    return f"feature {index}" if names is None else str(names[index])


def comparisons_of(kept: Mapping[str, tuple[Hashable, ...]]) -> Comparisons:
    """List the comparisons among the reported groups: one for two groups, each against the rest for more."""
    return GroupIndex().with_labels(kept).comparisons()
