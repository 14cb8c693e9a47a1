"""The price of fairness: what nulling more directions costs in variance, and what gaps it leaves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fairstream.errors import FairstreamWarning, NoRoomError, missing_extra
from fairstream.linalg import FloatArray, lapack
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Choices, Screen, is_count
from fairstream.subspace.components import solution_for
from fairstream.subspace.screen import screened_features
from fairstream.subspace.unfair import GapEigenpairs, gap_eigenpairs

NOTABLE_RISE = 0.05  # of the gap at the smallest m: smaller rises are an effect of the sample


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """What nulling m directions keeps and leaves.

    Parameters
    ----------
    n_unfair : int
        m, directions of each second-moment gap that are nulled.
    n_screened : int
        Features that no component may use.
    n_removed : int
        Directions that are gone in all.
    explained_variance_ratio : float
        Share of the variance that the components keep.
    mean_gap : dict of str to float
        By attribute, what is left of the gap f between group means: the norm of V'f, the largest of its
        comparisons.
    covariance_gap : dict of str to float
        The same of the covariances: the spectral norm of V'(Sigma_in - Sigma_out)V.

    Examples
    --------
    >>> FrontierPoint(1, 0, 2, 0.75, {"sex": 0.0}, {"sex": 0.5}).to_dict()["n_removed"]
    2
    """

    n_unfair: int
    n_screened: int
    n_removed: int
    explained_variance_ratio: float
    mean_gap: Mapping[str, float]
    covariance_gap: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class Frontier(list[FrontierPoint]):
    """The points of a frontier, in order: a list that turns into a table or a figure.

    Parameters
    ----------
    iterable : iterable of FrontierPoint
        The points.

    Examples
    --------
    >>> point = FrontierPoint(1, 0, 2, 0.75, {"sex": 0.0}, {"sex": 0.5})
    >>> Frontier([point]).to_frame()[["n_unfair", "explained_variance_ratio", "covariance_gap[sex]"]]
       n_unfair  explained_variance_ratio  covariance_gap[sex]
    0         1                      0.75                  0.5
    """

    def to_frame(self) -> Any:
        """Return a pandas frame: a row for each point, a column for each attribute's gaps.

        Needs the extra `tables`.
        """
        try:
            import pandas as pd
        except ImportError:
            raise missing_extra("pandas", "tables", "a frontier as a frame") from None
        return pd.DataFrame([_flat(point) for point in self])

    def plot(self) -> Any:
        """Return a matplotlib figure: variance kept against the gap left, each point with its m.

        A curve for each attribute and number of screened columns. Needs the extra `plots`.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise missing_extra("matplotlib", "plots", "a figure of a frontier") from None
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        screens = [*dict.fromkeys(point.n_screened for point in self)]
        for n_screened in screens:
            points = [point for point in self if point.n_screened == n_screened]
            for attribute in points[0].covariance_gap:
                gaps = [point.covariance_gap[attribute] for point in points]
                kept = [point.explained_variance_ratio for point in points]
                screened = f", {n_screened} columns screened" if len(screens) > 1 else ""
                axes.plot(gaps, kept, marker="o", markersize=4, label=f"{attribute}{screened}")
                for point, gap, share in zip(points, gaps, kept, strict=True):
                    axes.annotate(
                        str(point.n_unfair),
                        (gap, share),
                        xytext=(4, 4),
                        textcoords="offset points",
                        fontsize=8,
                    )
        axes.set_xlabel("largest gap between second moments in the embedding")
        axes.set_ylabel("share of the variance kept")
        if self and self[0].covariance_gap:
            axes.legend(title="attribute (numbers: m)")
        return figure


def _flat(point: FrontierPoint) -> dict[str, Any]:
    """Return a point as one row of a table."""
    plain = point.to_dict()
    gaps = {name: plain.pop(name) for name in ("mean_gap", "covariance_gap")}
    return plain | {f"{name}[{of}]": gap for name, each in gaps.items() for of, gap in each.items()}


def frontier(
    moments: GroupMoments,
    n_components: int | float,
    n_unfair: Iterable[int] | None = None,
    *,
    constraint: str = "all",
    directions: str = "absolute",
    screen: Screen | Iterable[int] = None,
    **others: Any,
) -> Frontier:
    """Solve one summary for every m and report variance kept and gaps left.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    n_components : int or float
        k, the same for every point; or a share of the variance, for which every point has a k of its own.
    n_unfair : iterable of int, optional
        The values of m, applied to every attribute. None: 0 to 10, as far as they leave room for k.
    constraint, directions, **others
        As in `solve`.
    screen : int, float, list of str, or list or range of int, optional
        As in `solve`; several numbers of columns give a curve each.

    Returns
    -------
    Frontier
        A list of points, one per m, in the order given. Warns if an attribute's covariance gap is larger at
        some m than at a smaller one, by more than 5 % of that at the smallest: the components that take the
        place of nulled ones may show a gap of their own.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 6)) * np.where(sex[:, None], [3, 1, 1, 1, 1, 1], 1)
    >>> points = frontier(GroupMoments(6).update(X, sex), n_components=2, n_unfair=[0, 1])
    >>> points[1].covariance_gap["sensitive_feature_0"] < points[0].covariance_gap["sensitive_feature_0"]
    True
    """
    several = isinstance(screen, range | list | tuple) and all(map(is_count, screen))
    screens: Any = screen if several else [screen]
    points = Frontier()
    for number in screens:
        choices = Choices(n_components, 1, constraint, directions, screen=number, **others)
        curve = _curve(moments, choices, n_unfair)
        _warn_of_rises(curve, directions)
        points += curve
    return points


def _curve(moments: GroupMoments, choices: Choices, n_unfair: Iterable[int] | None) -> list[FrontierPoint]:
    """Return the points of all m for one screen."""
    assert choices.n_components is not None
    first, stop = int(choices.constraint == "covariance"), min(11, moments.n_features)
    steps = [*range(first, stop)] if n_unfair is None else [int(m) for m in n_unfair]
    screened = screened_features(moments, choices.screen)
    points: list[FrontierPoint] = []
    eigenpairs: GapEigenpairs | None = None
    if choices.directions == "absolute" and choices.nulls_second_moments:
        kept = np.setdiff1d(np.arange(moments.n_features), screened)
        within = moments.selected(kept) if screened.size else moments
        eigenpairs = gap_eigenpairs(within, dict.fromkeys(moments.groups, max(steps, default=0)))
    for m in steps:
        try:
            found = solution_for(moments, replace(choices, n_unfair=m), eigenpairs)
        except NoRoomError:
            if n_unfair is None and points:
                break
            raise
        total = moments.total_variance
        ratio = min(float(found.variances.sum()) / total, 1.0) if total > 0 else 0.0
        mean_gap, covariance_gap = residual_gaps(moments, found.V)
        points.append(FrontierPoint(m, found.n_screened, found.U.shape[1], ratio, mean_gap, covariance_gap))
    return points


def _warn_of_rises(points: list[FrontierPoint], directions: str) -> None:
    """Warn if nulling more directions leaves a larger gap: a frontier is expected to fall."""
    ordered = sorted(points, key=lambda point: point.n_unfair)
    for attribute in ordered[0].covariance_gap if ordered else ():
        gaps = [point.covariance_gap[attribute] for point in ordered]
        lows = np.minimum.accumulate(gaps)
        rises = gaps - lows
        worst = int(np.argmax(rises))
        if rises[worst] <= NOTABLE_RISE * gaps[0]:
            continue
        best = gaps.index(lows[worst])
        way_out = 'or take directions="absolute"' if directions == "relative" else "or another n_components"
        warnings.warn(
            f"the covariance gap of {attribute!r} rises again: {gaps[best]:.3g} at n_unfair="
            f"{ordered[best].n_unfair}, {gaps[worst]:.3g} at n_unfair={ordered[worst].n_unfair}; more "
            f"nulled directions are not fairer here: prefer n_unfair={ordered[best].n_unfair}, {way_out}",
            FairstreamWarning,
            stacklevel=3,
        )


def residual_gaps(moments: GroupMoments, V: FloatArray) -> tuple[dict[str, float], dict[str, float]]:
    """Return, per attribute, the largest mean and covariance gap that the embedding V (d x k) shows.

    Examples
    --------
    >>> moments = GroupMoments(2).update(np.array([[0.0, 0], [0, 1], [3, 0], [3, 1]]), [0, 0, 1, 1])
    >>> residual_gaps(moments, np.eye(2)[:, :1])[0]
    {'sensitive_feature_0': 3.0}
    """
    mean_gap = dict.fromkeys(moments.groups, 0.0)
    covariance_gap = dict.fromkeys(moments.groups, 0.0)
    for attribute, group in moments.comparisons():
        f = moments.mean_gap(attribute, group)
        mean_gap[attribute] = max(mean_gap[attribute], float(np.linalg.norm(f @ V)))
        inner = moments.covariance_gap(attribute, group).compress(V)
        covariance_gap[attribute] = max(covariance_gap[attribute], float(lapack(np.linalg.norm, inner, 2)))
    return mean_gap, covariance_gap
