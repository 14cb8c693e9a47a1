"""From the moments to the unfair subspace: the directions that give a sensitive attribute away.

Symbols: f is a mean gap, S a second-moment gap about the total mean, P_m the m eigenvectors of S of largest
absolute eigenvalue, U an orthonormal basis of all [P_m | f].
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping

import numpy as np
import scipy.linalg

from fairstream.data.small_groups import MIN_GROUP_SIZE, Counts, listed_groups, small_groups
from fairstream.errors import FairstreamWarning
from fairstream.linalg import FloatArray, fix_signs, orthonormalise, top_eigenpairs
from fairstream.linalg.eigen import leading_outside
from fairstream.moments import GroupMoments

NUnfair = int | Mapping[str, int]
GapEigenpairs = Mapping[tuple[str, Hashable], tuple[FloatArray, FloatArray]]

CONSTRAINTS = ("none", "mean", "covariance", "all")
DIRECTIONS = ("absolute", "relative")
RIDGE = 1e-3  # share of the window's mean variance added to both sides of a ratio


def unfair_basis(
    moments: GroupMoments,
    n_unfair: NUnfair = 1,
    constraint: str = "all",
    directions: str = "absolute",
    n_components: int | None = None,
    *,
    eigenpairs: GapEigenpairs | None = None,
) -> FloatArray:
    """Return an orthonormal basis U of the unfair subspace.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    n_unfair : int or dict of str to int
        m: how many directions of each second-moment gap to null, for all attributes or per attribute.
    constraint : {"all", "mean", "covariance", "none"}
        Null the mean gaps, the leading directions of the second-moment gaps, both, or nothing.
    directions : {"absolute", "relative"}
        "absolute": the top eigenvectors of S by absolute eigenvalue, as in the paper. "relative": within
        the leading k + m directions of the covariance without the mean gaps, those in which the two
        groups' second moments differ most in ratio.
    n_components : int, optional
        k; "relative" needs it.
    eigenpairs : optional
        What `gap_eigenpairs` returned for at least as many directions, to solve for many m at once.

    Returns
    -------
    array (d, m')
        Column order: mean gaps, then second-moment directions by comparison. Directions that earlier ones
        span are left out, so m' is the true dimension; with the means first, nothing of them is left.

    Notes
    -----
    Eqn. (2) of the paper; several attributes and groups by section 5.3, one group against the rest.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 6))
    >>> X[:, 0] += sex
    >>> unfair_basis(GroupMoments(6).update(X, sex), n_unfair=2).shape
    (6, 3)
    """
    check_choice("constraint", constraint, CONSTRAINTS)
    check_choice("directions", directions, DIRECTIONS)
    d = moments.n_features
    if constraint == "none":
        return np.zeros((d, 0), dtype=moments.dtype)
    if not moments.groups:
        raise ValueError('no sensitive attribute was seen: pass sensitive_features, or constraint="none"')
    moments.check_sound()
    _check_total_variance(moments)
    mean_columns = _mean_columns(moments) if constraint in ("mean", "all") else np.zeros((d, 0))
    if constraint == "mean":
        return fix_signs(orthonormalise(mean_columns))
    wanted = directions_per_attribute(moments, n_unfair)
    if constraint == "covariance" and not any(wanted.values()):
        raise ValueError('n_unfair=0 with constraint="covariance" nulls nothing: use constraint="none"')
    if directions == "absolute":
        pairs = gap_eigenpairs(moments, wanted) if eigenpairs is None else eigenpairs
        columns = _absolute_columns(moments, wanted, pairs)
    else:
        columns = _relative_columns(moments, wanted, mean_columns, n_components)
    return fix_signs(orthonormalise(np.hstack([mean_columns, *columns])))


def _check_total_variance(moments: GroupMoments) -> None:
    """Raise if the total variance is none: every gap would pass for rounding, and nothing would be nulled."""
    total = moments.total_variance
    # Rows that are all alike leave squares of their rounding, of either sign.
    rounding = 256 * np.finfo(moments.dtype).eps * float(np.abs(moments.mean()).max())
    if total < -moments.n_features * rounding**2:
        raise ValueError(
            f"the total variance has come to {total:.3g}, below zero: rounding has used up all digits and no "
            "gap can be told; subtract from each column a number near its mean, or rescale X"
        )


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")


def directions_per_attribute(moments: GroupMoments, n_unfair: NUnfair) -> dict[str, int]:
    """Return m for every attribute, checked."""
    if isinstance(n_unfair, Mapping):
        unknown = [name for name in n_unfair if name not in moments.groups]
        missing = [name for name in moments.groups if name not in n_unfair]
        if unknown or missing:
            raise ValueError(
                f"n_unfair names {[*n_unfair]}, the sensitive attributes are {[*moments.groups]}: "
                "give one number for each"
            )
        wanted = dict(n_unfair)
    else:
        wanted = dict.fromkeys(moments.groups, n_unfair)
    for name, m in wanted.items():
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or not 0 <= m < moments.n_features:
            raise ValueError(
                f"n_unfair={m!r} for {name!r} with n_features={moments.n_features}: give a whole number "
                f"from 0 to {moments.n_features - 1}"
            )
    return {name: int(m) for name, m in wanted.items()}


def directions_taken(moments: GroupMoments, n_unfair: NUnfair, constraint: str) -> dict[str, int]:
    """Return how many directions each attribute asks for; overlaps make U smaller than their sum.

    Examples
    --------
    >>> moments = GroupMoments(3).update(np.eye(3), {"sex": ["f", "m", "m"], "race": ["a", "b", "c"]})
    >>> directions_taken(moments, 2, "all")
    {'sex': 3, 'race': 8}
    """
    wanted = dict.fromkeys(moments.groups, 0)
    if constraint in ("covariance", "all"):
        wanted = directions_per_attribute(moments, n_unfair)
    return {name: _most_directions(len(moments.groups[name]), m, constraint) for name, m in wanted.items()}


def small_group_directions(
    counts: Counts, n_unfair: NUnfair, constraint: str, min_group_size: int = MIN_GROUP_SIZE
) -> dict[str, int]:
    """Return, per attribute with small groups, how many nulled directions they add at most.

    G groups have G - 1 independent mean gaps and, one group against the rest, G second-moment gaps (1 if G is
    2): compared with the same rows labelled unknown.

    Examples
    --------
    >>> small_group_directions({"sex": {"f": 300, "m": 280, "x": 2}}, 1, "all")
    {'sex': 3}
    """
    added = {}
    for attribute, small in small_groups(counts, min_group_size).items():
        m = n_unfair.get(attribute, 0) if isinstance(n_unfair, Mapping) else n_unfair
        seen = sum(n > 0 for n in counts[attribute].values())
        with_them, without = (_most_directions(n, m, constraint) for n in (seen, seen - len(small)))
        if with_them > without:
            added[attribute] = with_them - without
    return added


def warn_of_small_groups(
    counts: Counts,
    n_unfair: NUnfair,
    constraint: str,
    n_removed: int,
    min_group_size: int = MIN_GROUP_SIZE,
) -> None:
    """Say which small groups a fit compares and how many of its nulled directions they cost."""
    small = small_groups(counts, min_group_size)
    for attribute, added in small_group_directions(counts, n_unfair, constraint, min_group_size).items():
        named = listed_groups({attribute: small[attribute]})
        warnings.warn(
            f"fewer than min_group_size={min_group_size} rows in {named}: they add up to "
            f"{min(added, n_removed)} of {n_removed} nulled directions, which point at these rows; merge "
            "rare groups, or label them None (unknown)",
            FairstreamWarning,
            stacklevel=4,
        )


def _most_directions(n_groups: int, m: int, constraint: str) -> int:
    if n_groups < 2:
        return 0
    means = n_groups - 1 if constraint in ("mean", "all") else 0
    comparisons = n_groups if n_groups > 2 else 1
    return means + (m * comparisons if constraint in ("covariance", "all") else 0)


def _mean_columns(moments: GroupMoments) -> FloatArray:
    """Return one mean gap per comparison; a gap at rounding level is no gap and becomes zero."""
    gaps = [moments.mean_gap(*pair) for pair in moments.comparisons()]
    spread = np.sqrt(max(moments.total_variance, 0.0))
    noise = (1e-6 if moments.dtype == np.float32 else 1e-12) * spread
    return np.stack([gap if _length(gap) > noise else np.zeros_like(gap) for gap in gaps], axis=1)


def _length(vector: FloatArray) -> float:
    """Euclidean length, without squares that underflow."""
    largest = float(np.abs(vector).max(initial=0.0))
    return largest * float(np.linalg.norm(vector / largest)) if largest > 0 else 0.0


def gap_eigenpairs(moments: GroupMoments, wanted: Mapping[str, int]) -> GapEigenpairs:
    """Return the leading eigenpairs of every second-moment gap, `wanted` per attribute, by absolute value."""
    moments.check_sound()
    return {
        pair: top_eigenpairs(moments.second_moment_gap(*pair), wanted[pair[0]], by="absolute")
        for pair in moments.comparisons()
        if wanted[pair[0]] > 0
    }


def _absolute_columns(
    moments: GroupMoments, wanted: Mapping[str, int], eigenpairs: GapEigenpairs
) -> list[FloatArray]:
    columns = []
    noise = (1e-6 if moments.dtype == np.float32 else 1e-13) * moments.total_variance
    for (attribute, group), (values, vectors) in eigenpairs.items():
        m = wanted[attribute]
        real = int((np.abs(values[:m]) > noise).sum())
        if real < m:
            warnings.warn(
                f"the second-moment gap of {attribute!r} ({group!r} against the rest) has only {real} "
                f"directions above rounding, n_unfair={m} were asked for: {real} are nulled",
                FairstreamWarning,
                stacklevel=3,
            )
        columns.append(vectors[:, :real].astype(np.float64))
    return columns


def _relative_columns(
    moments: GroupMoments, wanted: Mapping[str, int], mean_columns: FloatArray, n_components: int | None
) -> list[FloatArray]:
    if n_components is None:
        raise ValueError('directions="relative" looks inside the leading components: give n_components')
    pairs = [pair for pair in moments.comparisons() if wanted[pair[0]] > 0]
    mean_basis = orthonormalise(mean_columns)
    room = moments.n_features - mean_basis.shape[1]
    width = min(n_components + sum(wanted[attribute] for attribute, _ in pairs), room)
    if not pairs or width == 0:
        return []
    covariance = moments.covariance()
    window = leading_outside(covariance, mean_basis, width)
    variance = float(np.trace(covariance.compress(window)))
    if variance <= (1e-6 if moments.dtype == np.float32 else 1e-12) * moments.total_variance:
        return []  # the mean gaps hold all variance there is
    ridge = RIDGE * variance / width * np.eye(width)
    columns = []
    for attribute, group in pairs:
        inside, outside = (moment.compress(window) for moment in moments.second_moments(attribute, group))
        ratios, vectors = scipy.linalg.eigh(inside + ridge, outside + ridge)
        strongest = np.argsort(-np.abs(np.log(ratios)), kind="stable")[: wanted[attribute]]
        columns.append((window @ vectors[:, strongest].astype(window.dtype)).astype(np.float64))
    return columns
