"""From the moments to the result: fair components and the frozen subspace.

Symbols: Sigma is the total covariance, U (d x m') the unfair basis, V (d x k) the fair components, the k
leading eigenvectors of (I - UU') Sigma (I - UU').
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.schema import Schema
from fairstream.errors import FairstreamWarning, NoRoomError
from fairstream.linalg import FloatArray, lapack_threads
from fairstream.linalg.eigen import leading_outside
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Choices, NUnfair, is_count, is_share
from fairstream.subspace.guard import Adversary, GuardResult, guarded_from
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.screen import room_beside, screened_features, telling_variables
from fairstream.subspace.unfair import (
    GapEigenpairs,
    auto_resolved,
    basis_for,
    directions_taken,
    small_group_directions,
    warn_of_small_groups,
)

DOUBTFUL_SHARE = 0.3  # of the last component's variance, in every direction that a sketch dropped
LITTLE_VARIANCE = 1e-4
_LISTED = 5  # columns in a message


def fair_components(
    moments: GroupMoments, U: FloatArray, n_components: int | float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the k directions outside U that keep most variance, and the variance (1/n) along each.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    U : array (d, m')
        Unfair basis with orthonormal columns; m' may be 0 (plain PCA).
    n_components : int or float, optional
        k. A share, above 0 and below 1: as few as hold more than this share of the variance outside U.
        None keeps all that U leaves (of a sketch: all that its basis holds).

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
    moments: GroupMoments, U: FloatArray, n_components: int | float | None, shares: str, ways_out: str
) -> tuple[FloatArray, FloatArray]:
    """Return what `fair_components` returns; the last two arguments go into the error if there is no room."""
    moments.check_sound()
    covariance = moments.covariance()
    d, removed = moments.n_features, U.shape[1]
    share = n_components if is_share(n_components) else None
    if n_components is None or share is not None:
        width = d if covariance.basis is None else min(len(covariance.core), d)
        n_components = width - removed
    if isinstance(n_components, bool) or not isinstance(n_components, int | np.integer):
        raise ValueError(f"n_components={n_components!r}: give a whole number, or a share below 1")
    _check_room(n_components, removed, d, shares, ways_out)
    if n_components + removed > len(covariance.core) and moments.lost_energy > 1e-6:
        warnings.warn(
            f"the sketch holds {len(covariance.core)} directions, fewer than n_components={n_components} and "
            f"{removed} unfair ones: the last components are arbitrary; take a larger rank",
            FairstreamWarning,
            stacklevel=3,
        )
    V = leading_outside(covariance, U, int(n_components))
    variances = np.maximum(np.diag(covariance.compress(V)), 0.0)
    if share is not None:
        available = moments.total_variance - float(np.trace(covariance.compress(U)))
        enough = _enough(variances, share, available, moments.rank)
        V, variances = V[:, :enough], variances[:enough]
    return V, variances


def _enough(variances: FloatArray, share: float, available: float, rank: int | None) -> int:
    """Return how many components hold more than a share of the variance that is available."""
    if available <= 0:
        return 1
    kept = np.cumsum(variances) / available
    if rank is not None and kept[-1] <= share:
        raise ValueError(
            f"n_components={share}: the sketch holds only {kept[-1]:.3f} of the variance outside the unfair "
            f'directions; give a number, a larger rank (it is {rank}), or solver="exact"'
        )
    return min(int(np.searchsorted(kept, share, side="right")) + 1, len(kept))


def _check_room(n_components: int, removed: int, n_features: int, shares: str, ways_out: str) -> None:
    """Refuse more components than the unfair directions leave room for, and say what makes room."""
    room = n_features - removed
    if 1 <= n_components <= room:
        return
    if removed == 0 or n_components < 1 <= room:
        raise NoRoomError(
            f"n_components={n_components} with n_features={n_features}: give a whole number from 1 to {room}"
        )
    if room < 1:
        raise NoRoomError(
            f"the {removed} unfair directions fill all of n_features={n_features}{shares} and leave no room "
            f"for any component: {ways_out}"
        )
    raise NoRoomError(
        f"n_components={n_components} and {removed} unfair directions do not fit into "
        f"n_features={n_features}{shares}: lower n_components to {room}, or {ways_out}"
    )


def components_for(moments: GroupMoments, U: FloatArray, choices: Choices) -> tuple[FloatArray, FloatArray]:
    """Return what `fair_components` returns; if there is no room, say which of the choices take it."""
    if choices.constraint == "none":  # nothing is compared, so that a single group is no error
        return _components(moments, U, choices.n_components, "", "add features")
    d, k = moments.n_features, choices.n_components
    taken = directions_taken(moments, choices)
    means_only = directions_taken(moments, replace(choices, constraint="mean"))
    least = sum(means_only.values()) if choices.nulls_means else 0
    ways_out = (
        ["lower n_unfair"]
        if sum(taken.values()) > least and least + (k if is_count(k, least=1) else 1) <= d
        else []
    )
    ways_out += ["leave a sensitive attribute out"] if len(moments.groups) > 1 else []
    ways_out += ["join groups"] if any(len(labels) > 2 for labels in moments.groups.values()) else []
    ways_out = [", ".join(ways_out)] if ways_out else []
    listed = ", ".join(f"{name!r} takes up to {number}" for name, number in taken.items())
    return _components(moments, U, k, f" ({listed})", ", or ".join([*ways_out, "add features"]))


def solve(
    moments: GroupMoments,
    n_components: int | float | None = None,
    n_unfair: NUnfair = 1,
    constraint: str = "all",
    directions: str = "absolute",
    feature_names: tuple[str, ...] | None = None,
    *,
    adversary: Adversary | None = None,
    **others: Any,
) -> FairSubspace:
    """Return the fair subspace for these choices from one summary, without a pass over the data.

    Groups of fewer rows than `min_group_size` are compared, with a `FairstreamWarning`, but left out of a
    file of the result.

    Parameters
    ----------
    moments : GroupMoments
        What one pass left.
    n_components, n_unfair, constraint, directions
        As in `FairStreamingPCA`. What n_unfair="auto" came to is in the `parameters` of the result.
    feature_names : tuple of str, optional
        Names of the features, if the moments have none.
    adversary : Adversary, optional
        What a guard hides groups from; by default a `RandomFeatureAdversary`.
    **others
        `screen`, `guard`, `keep_target`, `guard_seed`, `whiten`, `dither`, `ids`, `min_group_size`, as in
        `FairStreamingPCA`. A guard needs moments with a sample.

    Returns
    -------
    FairSubspace
        Frozen: it does not move when the moments learn more.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 300)
    >>> moments = GroupMoments(6).update(rng.normal(size=(300, 6)) + sex[:, None], sex)
    >>> solve(moments, n_components=2).components.shape
    (2, 6)
    """
    choices = Choices(n_components, n_unfair, constraint, directions, **others)
    if adversary is not None and not choices.guard:
        raise ValueError("adversary needs a guard to hide groups from it: pass guard=1.0 too")
    return subspace_for(moments, choices, feature_names, adversary)


@dataclass(frozen=True)
class Solution:
    """The nulled directions and the components for some choices, and how they were found."""

    U: FloatArray
    V: FloatArray
    variances: FloatArray
    choices: Choices
    n_screened: int = 0
    guarded: GuardResult | None = None

    def facts(self) -> dict[str, Any]:
        """Return the parameters of a model beyond its choices."""
        facts: dict[str, Any] = {"n_screened": self.n_screened} if self.n_screened else {}
        if self.guarded is not None:
            facts |= {"guard_converged": self.guarded.converged}
        return facts


def solution_for(
    moments: GroupMoments,
    choices: Choices,
    eigenpairs: GapEigenpairs | None = None,
    adversary: Adversary | None = None,
) -> Solution:
    """Return U and V for checked choices.

    Screened columns are taken out first, so that no nulled direction is spent on them: the components are
    exactly zero there.
    """
    screened = screened_features(moments, choices.screen)
    kept = np.setdiff1d(np.arange(moments.n_features), screened)
    within = moments.selected(kept) if screened.size else moments
    room = room_beside(choices.screen, screened.size, moments.n_features, choices.n_components)
    with lapack_threads(len(kept)), room:
        choices = auto_resolved(within, choices)
        U = basis_for(within, choices, eigenpairs)
        # Before the components: if no room is left for them, small groups may be why.
        warn_of_small_groups(moments.group_counts, choices, U.shape[1])
        V, variances = components_for(within, U, choices)
    guarded = None
    if choices.guard:
        guarded = guarded_from(
            within,
            U,
            V,
            strength=choices.guard,
            keep=choices.keep_target,
            dither=choices.dither,
            seed=choices.guard_seed,
            adversary=adversary,
        )
        V = guarded.components
        variances = np.maximum(np.diag(within.covariance().compress(V)), 0.0)
        _warn_unless_converged(guarded)
    if screened.size:
        U, V = (_spread(A, kept, moments.n_features) for A in (U, V))
        axes = np.zeros((moments.n_features, screened.size), dtype=U.dtype)
        axes[screened, np.arange(screened.size)] = 1
        U = np.hstack([axes, U])
    return Solution(U, V, variances, choices, int(screened.size), guarded)


def _spread(A: FloatArray, kept: NDArray[np.intp], n_features: int) -> FloatArray:
    """Return A with rows of zeros for the features that are not kept."""
    spread = np.zeros((n_features, A.shape[1]), dtype=A.dtype)
    spread[kept] = A
    return spread


def _warn_unless_converged(guarded: GuardResult) -> None:
    if not guarded.converged:
        warnings.warn(
            f"the guard has not converged: its objective grew by {guarded.last_gain:.3f} of the best "
            "variance in its last steps; ask for a weaker guard, or keep a larger sample",
            FairstreamWarning,
            stacklevel=5,
        )


def subspace_for(
    moments: GroupMoments,
    choices: Choices,
    feature_names: tuple[str, ...] | None = None,
    adversary: Adversary | None = None,
) -> FairSubspace:
    """Return the fair subspace of `solve` for checked choices."""
    n = moments.n_rows
    if n < 2:
        raise ValueError(
            f"n_samples={n}: at least two rows are needed to see any variance; a sample_weight counts as "
            "repetition, so weights should sum to about the number of rows"
        )
    found = solution_for(moments, choices, adversary=adversary)
    U, V, variances, choices = found.U, found.V, found.variances, found.choices
    counts = moments.group_counts
    _warn_of_scales(moments, U, variances)
    _warn_of_losses(moments, variances)
    schema = Schema(feature_names).filled(moments.schema)
    _warn_of_telling(moments, schema, V, choices.min_group_size)
    from_small = small_group_directions(counts, choices)
    to_sample = n / max(n - 1.0, np.finfo(float).eps)
    return FairSubspace(
        components=V.T.astype(moments.dtype),
        unfair_basis=U.T.astype(moments.dtype),
        mean=moments.mean().astype(moments.dtype),
        explained_variance=(variances * to_sample).astype(moments.dtype),
        total_variance=moments.total_variance * to_sample,
        n_rows=n,
        group_counts=counts,
        group_means={
            a: {label: moments.mean(a, label).astype(moments.dtype) for label in labels}
            for a, labels in moments.groups.items()
        },
        schema=schema,
        parameters={
            **choices.to_parameters(),
            "n_components": V.shape[1],
            "solver": "exact" if moments.rank is None else "sketch",
            "rank": moments.rank,
            **({"small_group_directions": from_small} if from_small else {}),
            **found.facts(),
        },
        row_marks=moments.row_marks,
    )


def _warn_of_losses(moments: GroupMoments, variances: FloatArray) -> None:
    """Warn if a sketch cannot have distinguished the last component from what it dropped.

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


def _warn_of_telling(moments: GroupMoments, schema: Schema, V: FloatArray, least_rows: int) -> None:
    """Warn of columns in use that are a sensitive attribute under another name."""
    used = np.flatnonzero(np.abs(V).sum(axis=1))
    for attribute, telling in telling_variables(moments, schema, least_rows).items():
        places = {name: range(moments.n_features)[schema.variables()[name]] for name in telling}
        named = [name for name, place in places.items() if np.isin(place, used).any()]
        if not named:
            continue
        listed = ", ".join(map(repr, named[:_LISTED]))
        listed += f" and {len(named) - _LISTED:,} more" if len(named) > _LISTED else ""
        tells, it, its = ("tells", "it", "its") if len(named) == 1 else ("tell", "them", "their")
        way_out = "" if schema.encoding is None else f" with exclude={named!r}"
        warnings.warn(
            f"{listed} among the features {tells} groups of {attribute!r} apart outright, some or all of "
            f"{its} values go with the group: leave {it} out{way_out}, or keep components off {it} with "
            f"screen={named!r}",
            FairstreamWarning,
            stacklevel=4,
        )
