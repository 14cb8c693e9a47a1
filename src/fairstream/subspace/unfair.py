"""From the moments to the unfair subspace: the directions that give a sensitive attribute away.

Symbols: f is a mean gap, S a second-moment gap about the total mean, P_m the m eigenvectors of S of largest
absolute eigenvalue, U an orthonormal basis of all [P_m | f].
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np
import scipy.linalg

from fairstream.data.small_groups import Counts, listed_groups, small_groups
from fairstream.errors import FairstreamWarning, NoRoomError
from fairstream.linalg import FloatArray, fix_signs, lapack, orthonormalise, top_eigenpairs
from fairstream.linalg.eigen import leading_outside
from fairstream.linalg.symmetric import SymmetricOperator
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import AUTO, MOST_AUTO, Choices, NUnfair, is_count
from fairstream.subspace.noise_floor import noise_floor

GapEigenpairs = Mapping[tuple[str, Hashable], tuple[FloatArray, FloatArray]]

SPECTRUM = 256  # leading variances that enter a noise floor one by one
RIDGE = 1e-3  # share of the window's mean variance added to both sides of a ratio


def unfair_basis(
    moments: GroupMoments,
    n_unfair: NUnfair = 1,
    constraint: str = "all",
    directions: str = "absolute",
    n_components: int | float | None = None,
) -> FloatArray:
    """Return an orthonormal basis U of the unfair subspace.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    n_unfair : int, dict of str to int, or "auto"
        m: how many directions of each second-moment gap to null, for all attributes or per attribute;
        "auto" as in `Choices`.
    constraint : {"all", "mean", "covariance", "none"}
        Null the mean gaps, the leading directions of the second-moment gaps, both, or nothing.
    directions : {"absolute", "relative"}
        "absolute": the top eigenvectors of S by absolute eigenvalue, as in the paper. "relative": one at a
        time, the direction of the current embedding in which the two groups' second moments differ most in
        ratio. Both are nested: the directions for m are among those for m + 1.
    n_components : int, optional
        k; "relative" needs it.

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
    return basis_for(moments, Choices(n_components, n_unfair, constraint, directions))


def basis_for(moments: GroupMoments, choices: Choices, eigenpairs: GapEigenpairs | None = None) -> FloatArray:
    """Return the basis of `unfair_basis` for checked choices.

    `eigenpairs` are those of `gap_eigenpairs`, for as many directions or more: it then serves many m.
    """
    d = moments.n_features
    if choices.constraint == "none":
        return np.zeros((d, 0), dtype=moments.dtype)
    _check_comparable(moments)
    choices = auto_resolved(moments, choices)
    mean_columns = _mean_columns(moments) if choices.nulls_means else np.zeros((d, 0))
    if not choices.nulls_second_moments:
        return fix_signs(orthonormalise(mean_columns))
    wanted = _directions_per_attribute(moments, choices)
    if choices.directions == "absolute":
        pairs = _eigenpairs(moments, wanted) if eigenpairs is None else eigenpairs
        columns = _absolute_columns(moments, wanted, pairs)
    else:
        columns = _relative_columns(moments, wanted, mean_columns, choices.n_components)
    return fix_signs(orthonormalise(np.hstack([mean_columns, *columns])))


def auto_resolved(moments: GroupMoments, choices: Choices) -> Choices:
    """Return the choices with n_unfair="auto" replaced by a number for every attribute.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = np.arange(4000) % 2
    >>> X = rng.normal(size=(4000, 8))
    >>> X[sex == 1, :3] *= 2
    >>> auto_resolved(GroupMoments(8).update(X, {"sex": sex}), Choices(2, "auto")).n_unfair
    {'sex': 3}
    """
    if choices.n_unfair != AUTO or not choices.nulls_second_moments:
        return choices
    _check_comparable(moments)
    pairs, k = moments.comparisons(), choices.n_components
    means = replace(choices, constraint="mean", n_unfair=0)
    taken = sum(directions_taken(moments, means).values()) if choices.nulls_means else 0
    room = moments.n_features - taken - (k if is_count(k, least=1) else 1)
    most = max(min(MOST_AUTO, room // len(pairs)), 0)
    variances, counts = _spectrum(moments), moments.group_counts
    found = dict.fromkeys(moments.groups, int(choices.constraint == "covariance"))
    for (name, group), (values, _) in _eigenpairs(moments, dict.fromkeys(found, most)).items():
        inside = counts[name][group]
        floor = noise_floor(variances, inside, sum(counts[name].values()) - inside)
        found[name] = max(found[name], int((np.abs(values) > floor).sum()))
    return replace(choices, n_unfair=found)


def _spectrum(moments: GroupMoments) -> FloatArray:
    """Return the variances along all principal axes; the weakest are all set to their mean."""
    covariance, d = moments.covariance(), moments.n_features
    leading, _ = top_eigenpairs(covariance, min(d, len(covariance.core), SPECTRUM))
    rest = max(moments.total_variance - float(leading.sum()), 0.0) / max(d - len(leading), 1)
    return np.concatenate([leading, np.full(d - len(leading), rest)])


def _check_comparable(moments: GroupMoments) -> None:
    if not moments.groups:
        raise ValueError('no sensitive attribute was seen: pass sensitive_features, or constraint="none"')
    moments.check_sound()
    _check_total_variance(moments)


def _check_total_variance(moments: GroupMoments) -> None:
    """Refuse a negative total variance: every gap would count as rounding, and nothing would be nulled."""
    total = moments.total_variance
    # Equal rows leave the squares of their rounding, of either sign.
    rounding = 256 * np.finfo(moments.dtype).eps * float(np.abs(moments.mean()).max())
    if total < -moments.n_features * rounding**2:
        raise ValueError(
            f"the total variance has come to {total:.3g}, below zero: rounding has used up all digits, so "
            "that gaps cannot be computed; subtract from each column a number near its mean, or rescale X"
        )


def _directions_per_attribute(moments: GroupMoments, choices: Choices) -> dict[str, int]:
    """Return m for every attribute of the moments; refuse names and numbers that do not fit them."""
    d, n_unfair = moments.n_features, choices.n_unfair
    if isinstance(n_unfair, Mapping) and n_unfair.keys() != moments.groups.keys():
        raise ValueError(
            f"n_unfair names {[*n_unfair]}, the sensitive attributes are {[*moments.groups]}: "
            "give one number for each"
        )
    wanted = {attribute: choices.unfair_directions(attribute) for attribute in moments.groups}
    for name, m in wanted.items():
        if m >= d:
            raise NoRoomError(
                f"n_unfair={m!r} for {name!r} with n_features={d}: give a whole number from 0 to {d - 1}"
            )
    return wanted


def directions_taken(moments: GroupMoments, choices: Choices) -> dict[str, int]:
    """Return how many directions each attribute asks for; overlaps make U smaller than their sum.

    Examples
    --------
    >>> moments = GroupMoments(3).update(np.eye(3), {"sex": ["f", "m", "m"], "race": ["a", "b", "c"]})
    >>> directions_taken(moments, Choices(n_unfair=2))
    {'sex': 3, 'race': 8}
    """
    return {name: choices.most_directions(name, len(labels)) for name, labels in moments.groups.items()}


def small_group_directions(counts: Counts, choices: Choices) -> dict[str, int]:
    """Return, per attribute with small groups, how many nulled directions they add at most.

    Compared with the same rows labelled unknown.

    Examples
    --------
    >>> small_group_directions({"sex": {"f": 300, "m": 280, "x": 2}}, Choices())
    {'sex': 3}
    """
    added = {}
    for attribute, small in small_groups(counts, choices.min_group_size).items():
        seen = sum(n > 0 for n in counts[attribute].values())
        with_them, without = (choices.most_directions(attribute, n) for n in (seen, seen - len(small)))
        if with_them > without:
            added[attribute] = with_them - without
    return added


def warn_of_small_groups(counts: Counts, choices: Choices, n_removed: int) -> None:
    """Warn of small groups that a fit compares, with the number of nulled directions that they cost."""
    small = small_groups(counts, choices.min_group_size)
    for attribute, added in small_group_directions(counts, choices).items():
        named = listed_groups({attribute: small[attribute]})
        warnings.warn(
            f"fewer than min_group_size={choices.min_group_size} rows in {named}: they add up to "
            f"{min(added, n_removed)} of {n_removed} nulled directions, which point at these rows; merge "
            "rare groups, or label them None (unknown)",
            FairstreamWarning,
            stacklevel=4,
        )


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
    return _eigenpairs(moments, wanted)


def _eigenpairs(moments: GroupMoments, wanted: Mapping[str, int]) -> GapEigenpairs:
    """Return what `gap_eigenpairs` returns, for moments that are known to be sound."""
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
    moments: GroupMoments,
    wanted: Mapping[str, int],
    mean_columns: FloatArray,
    n_components: int | float | None,
) -> list[FloatArray]:
    """Return the directions of largest ratio, one at a time within the embedding that the earlier ones leave.

    Every comparison gets one direction in each round, so the directions for m are the first ones for m + 1:
    nulling more never brings one back. All of them lie in one window, the leading directions outside the mean
    gaps: a direction nulled within the window leaves the next embedding within it.
    """
    if not is_count(n_components, least=1):
        raise ValueError(
            f'directions="relative" looks inside the leading components, n_components={n_components}: '
            "give n_components as a whole number"
        )
    pairs = [pair for pair in moments.comparisons() if wanted[pair[0]] > 0]
    asked = sum(wanted[attribute] for attribute, _ in pairs)
    mean_basis = orthonormalise(mean_columns)
    room = moments.n_features - mean_basis.shape[1]
    width = min(n_components + asked, room)
    if not pairs or width == 0:
        _warn_of_fewer(0, asked)
        return []
    covariance = moments.covariance()
    window = leading_outside(covariance, mean_basis, width)
    Sigma = covariance.compress(window)
    noise = (1e-6 if moments.dtype == np.float32 else 1e-12) * moments.total_variance
    if np.trace(Sigma) <= noise:  # the mean gaps hold all variance there is
        _warn_of_fewer(0, asked)
        return []
    sides = {pair: [side.compress(window) for side in moments.second_moments(*pair)] for pair in pairs}
    nulled = np.zeros((width, 0))
    for number in range(max(wanted.values())):
        for pair in (pair for pair in pairs if wanted[pair[0]] > number):
            k = min(n_components, width - nulled.shape[1])
            if k == 0:
                break
            V = leading_outside(SymmetricOperator(Sigma), nulled, k)
            V = V[:, np.einsum("ij,ij->j", V, Sigma @ V) > noise]  # there is no ratio of nothing to nothing
            if V.shape[1] == 0:
                break
            direction = V @ _strongest_ratio(*(V.T @ side @ V for side in sides[pair]))
            nulled = np.hstack([nulled, direction[:, None]])
    _warn_of_fewer(nulled.shape[1], asked)
    return [(window @ nulled.astype(window.dtype)).astype(np.float64)]


def _warn_of_fewer(nulled: int, asked: int) -> None:
    if nulled < asked:
        warnings.warn(
            f'directions="relative" finds only {nulled} directions with variance, n_unfair asks for {asked} '
            f"over all comparisons: {nulled} are nulled",
            FairstreamWarning,
            stacklevel=3,
        )


def _strongest_ratio(inside: FloatArray, outside: FloatArray) -> FloatArray:
    """Return the unit vector along which two second moments differ most in ratio, either way."""
    k = len(inside)
    ridge = RIDGE * float(np.trace(inside) + np.trace(outside)) / (2 * k) * np.eye(k)
    ratios, vectors = lapack(scipy.linalg.eigh, inside + ridge, outside + ridge)
    vector: FloatArray = vectors[:, np.argmax(np.abs(np.log(ratios)))]
    return vector / np.linalg.norm(vector)
