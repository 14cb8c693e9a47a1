"""From the moments to the result: fair components, the frozen subspace, and the price of fairness.

Symbols: Sigma is the total covariance, U (d x m') the unfair basis, V (d x k) the fair components, the k
leading eigenvectors of (I - UU') Sigma (I - UU').
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fairstream.data.small_groups import MIN_GROUP_SIZE
from fairstream.errors import FairstreamWarning
from fairstream.linalg import FloatArray
from fairstream.linalg.eigen import leading_outside
from fairstream.moments import GroupMoments
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.unfair import (
    GapEigenpairs,
    NUnfair,
    directions_taken,
    gap_eigenpairs,
    small_group_directions,
    unfair_basis,
    warn_of_small_groups,
)

DOUBTFUL_SHARE = 0.3  # of the last component's variance, in every direction that a sketch dropped
LITTLE_VARIANCE = 1e-4
NOTABLE_RISE = 0.05  # of the gap at the smallest m: smaller rises are an effect of the sample


def fair_components(
    moments: GroupMoments, U: FloatArray, n_components: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the k directions outside U that keep most variance, and the variance (1/n) along each.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    U : array (d, m')
        Unfair basis with orthonormal columns; m' may be 0 (plain PCA).
    n_components : int, optional
        k. None keeps all that U leaves (of a sketch: all that its basis holds).

    Returns
    -------
    V : array (d, k)
        Orthonormal, orthogonal to U, strongest first, signs fixed.
    variances : array (k,)

    Notes
    -----
    Eqn. (5) of the paper. Exact moments: O(d^3) time. Sketched: O(d L (k + m')) time, O(d k) memory.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> moments = GroupMoments(4).update(rng.normal(size=(200, 4)) * [4, 3, 2, 1])
    >>> V, variances = fair_components(moments, np.eye(4)[:, :1], 2)
    >>> bool(abs(V[0]).max() < 1e-12)
    True
    """
    return _components(moments, U, n_components, "", "null fewer directions or add features")


def _components(
    moments: GroupMoments, U: FloatArray, n_components: int | None, shares: str, ways_out: str
) -> tuple[FloatArray, FloatArray]:
    """Do the work of `fair_components`; the last two arguments are for the error if there is no room."""
    moments.check_sound()
    covariance = moments.covariance()
    d, removed = moments.n_features, U.shape[1]
    if n_components is None:
        width = d if covariance.basis is None else min(len(covariance.core), d)
        n_components = width - removed
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        raise ValueError(f"n_components={n_components!r}: give a whole number")
    _check_room(n_components, removed, d, shares, ways_out)
    if n_components + removed > len(covariance.core) and moments.lost_energy > 1e-6:
        warnings.warn(
            f"the sketch holds {len(covariance.core)} directions, fewer than n_components={n_components} and "
            f"{removed} unfair ones: the last components are arbitrary; take a larger rank",
            FairstreamWarning,
            stacklevel=3,
        )
    V = leading_outside(covariance, U, n_components)
    return V, np.maximum(np.diag(covariance.compress(V)), 0.0)


def _check_room(n_components: int, removed: int, n_features: int, shares: str, ways_out: str) -> None:
    """Refuse more components than the unfair directions leave room for, and say what makes room."""
    room = n_features - removed
    if 1 <= n_components <= room:
        return
    if removed == 0 or n_components < 1 <= room:
        raise ValueError(
            f"n_components={n_components} with n_features={n_features}: give a whole number from 1 to {room}"
        )
    if room < 1:
        raise ValueError(
            f"the {removed} unfair directions fill all of n_features={n_features}{shares} and leave no room "
            f"for any component: {ways_out}"
        )
    raise ValueError(
        f"n_components={n_components} and {removed} unfair directions do not fit into "
        f"n_features={n_features}{shares}: lower n_components to {room}, or {ways_out}"
    )


def _shares_and_ways_out(
    moments: GroupMoments, n_components: int | None, n_unfair: NUnfair, constraint: str
) -> tuple[str, str]:
    """Say how many directions each attribute takes, and what would leave more of them."""
    if constraint == "none":  # nothing is compared, so that a single group is no error
        return "", "add features"
    taken = directions_taken(moments, n_unfair, constraint)
    least = 0 if constraint == "covariance" else sum(directions_taken(moments, 0, "mean").values())
    lower = constraint in ("all", "covariance") and sum(taken.values()) > least
    ways_out = ["lower n_unfair"] if lower and least + (n_components or 1) <= moments.n_features else []
    ways_out += ["leave a sensitive attribute out"] if len(moments.groups) > 1 else []
    ways_out += ["join groups"] if any(len(labels) > 2 for labels in moments.groups.values()) else []
    listed = ", ".join(f"{name!r} takes up to {number}" for name, number in taken.items())
    return f" ({listed})" if listed else "", ", or ".join(
        [", ".join(ways_out), "add features"] if ways_out else ["add features"]
    )


def solve(
    moments: GroupMoments,
    n_components: int | None = None,
    n_unfair: NUnfair = 1,
    constraint: str = "all",
    directions: str = "absolute",
    feature_names: tuple[str, ...] | None = None,
    *,
    min_group_size: int = MIN_GROUP_SIZE,
) -> FairSubspace:
    """Return the fair subspace that one summary holds for these choices; no pass over data.

    Parameters are those of `unfair_basis` and `fair_components`. Groups of fewer rows than `min_group_size`
    are compared, with a `FairstreamWarning`, and a file of the result leaves their means out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 300)
    >>> moments = GroupMoments(6).update(rng.normal(size=(300, 6)) + sex[:, None], sex)
    >>> solve(moments, n_components=2).components.shape
    (2, 6)
    """
    n = moments.n_rows
    if n < 2:
        raise ValueError(
            f"n_samples={n}: at least two rows are needed to see any variance; a sample_weight counts as "
            "repetition, so weights should sum to about the number of rows"
        )
    U = unfair_basis(moments, n_unfair, constraint, directions, n_components)
    counts = moments.group_counts
    # Before the components: if no room is left for them, small groups may be why.
    warn_of_small_groups(counts, n_unfair, constraint, U.shape[1], min_group_size)
    V, variances = _components(
        moments, U, n_components, *_shares_and_ways_out(moments, n_components, n_unfair, constraint)
    )
    _warn_of_scales(moments, U, variances)
    _warn_of_losses(moments, variances)
    from_small = small_group_directions(counts, n_unfair, constraint, min_group_size)
    to_sample = n / max(n - 1.0, np.finfo(float).eps)
    labels = moments.groups.items()
    return FairSubspace(
        components=V.T.astype(moments.dtype),
        unfair_basis=U.T.astype(moments.dtype),
        mean=moments.mean().astype(moments.dtype),
        explained_variance=(variances * to_sample).astype(moments.dtype),
        total_variance=moments.total_variance * to_sample,
        n_rows=n,
        group_counts=counts,
        group_means={
            a: {label: moments.mean(a, label).astype(moments.dtype) for label in values}
            for a, values in labels
        },
        feature_names=moments.feature_names if feature_names is None else feature_names,
        parameters={
            "n_components": V.shape[1],
            "n_unfair": dict(n_unfair) if isinstance(n_unfair, Mapping) else n_unfair,
            "constraint": constraint,
            "directions": directions,
            "solver": "exact" if moments.rank is None else "sketch",
            "rank": moments.rank,
            "min_group_size": min_group_size,
            **({"small_group_directions": from_small} if from_small else {}),
            **({} if moments.encoding is None else {"encoding": moments.encoding}),
        },
    )


def _warn_of_losses(moments: GroupMoments, variances: FloatArray) -> None:
    """Say so where a sketch cannot have told the last component from what it dropped.

    Measured on one-hot tables: at a ratio of 0.4 components were wrong and leaked, at 0.25 they were right.
    """
    if moments.rank is None or moments.lost_energy < 1e-6 or not variances.size:
        return
    n_dropped = moments.n_features - len(moments.covariance().core)
    dropped = moments.lost_energy * moments.total_variance / max(n_dropped, 1)
    if dropped > DOUBTFUL_SHARE * variances[-1]:
        warnings.warn(
            f"the sketch dropped {n_dropped:,} directions with a variance of {dropped:.3g} each, component "
            f"{variances.size} has {variances[-1]:.3g}: such a flat spectrum needs a larger rank (it is "
            f'{moments.rank}) or solver="exact", else components are arbitrary and groups may be told apart',
            FairstreamWarning,
            stacklevel=4,
        )


def _warn_of_scales(moments: GroupMoments, U: FloatArray, variances: FloatArray) -> None:
    total = moments.total_variance
    if U.shape[1] and total > 0 and variances.sum() < LITTLE_VARIANCE * total:
        warnings.warn(
            f"the components keep {variances.sum() / total:.1e} of the variance, the unfair directions hold "
            "nearly all the rest: if columns have very different scales, standardise them first",
            FairstreamWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """What nulling m directions keeps and leaves.

    Gaps are spectral norms in the embedding, the largest over an attribute's comparisons: |V'f| and
    |V'(Sigma_in - Sigma_out)V|.
    """

    n_unfair: int
    n_removed: int
    explained_variance_ratio: float
    mean_gap: Mapping[str, float]
    covariance_gap: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def frontier(
    moments: GroupMoments,
    n_components: int,
    n_unfair: Iterable[int] | None = None,
    *,
    constraint: str = "all",
    directions: str = "absolute",
) -> list[FrontierPoint]:
    """Solve one summary for every m and report variance kept and gaps left.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    n_components : int
        k, the same for every point.
    n_unfair : iterable of int, optional
        The values of m, applied to every attribute. None: 0 to 10, as far as they leave room for k.
    constraint, directions
        As in `unfair_basis`.

    Returns
    -------
    list of FrontierPoint
        One per m, in the order given. Warns if an attribute's covariance gap is larger at some m than at a
        smaller one, by more than 5 % of that at the smallest: "relative" directions of several attributes
        are not nested, so more of them can leave more.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 6)) * np.where(sex[:, None], [3, 1, 1, 1, 1, 1], 1)
    >>> points = frontier(GroupMoments(6).update(X, sex), n_components=2, n_unfair=[0, 1])
    >>> points[1].covariance_gap["sensitive_feature_0"] < points[0].covariance_gap["sensitive_feature_0"]
    True
    """
    first, stop = int(constraint == "covariance"), min(11, moments.n_features)
    steps = [*range(first, stop)] if n_unfair is None else [int(m) for m in n_unfair]
    points: list[FrontierPoint] = []
    eigenpairs: GapEigenpairs | None = None
    if directions == "absolute" and constraint in ("covariance", "all"):
        eigenpairs = gap_eigenpairs(moments, dict.fromkeys(moments.groups, max(steps, default=0)))
    for m in steps:
        U = unfair_basis(moments, m, constraint, directions, n_components, eigenpairs=eigenpairs)
        if n_unfair is None and points and n_components + U.shape[1] > moments.n_features:
            break
        V, variances = _components(
            moments, U, n_components, *_shares_and_ways_out(moments, n_components, m, constraint)
        )
        total = moments.total_variance
        ratio = min(float(variances.sum()) / total, 1.0) if total > 0 else 0.0
        mean_gap, covariance_gap = residual_gaps(moments, V)
        points.append(FrontierPoint(m, U.shape[1], ratio, mean_gap, covariance_gap))
    _warn_of_rises(points, directions)
    return points


def _warn_of_rises(points: list[FrontierPoint], directions: str) -> None:
    """Warn if more nulled directions leave a larger gap than fewer did: a frontier is read as if it fell."""
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
        covariance_gap[attribute] = max(covariance_gap[attribute], float(np.linalg.norm(inner, 2)))
    return mean_gap, covariance_gap
