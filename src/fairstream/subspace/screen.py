"""Screening: which columns tell groups apart by themselves, so that no component may use them.

A column's standardised gap is the largest difference of group means over its comparisons, in units of the
column's deviation. One-hot columns of one table column are kept or left out together: a variable's gap is
that of its strongest column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from fairstream.data.namesakes import namesakes
from fairstream.data.schema import Schema
from fairstream.data.small_groups import MIN_GROUP_SIZE
from fairstream.errors import NoRoomError
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Screen, is_count

# Of a feature's variance, between groups. A copy has 1, a strong proxy much less: relationship=Husband has
# 0.34 for sex on Adult, age 0.81 for its own bands on COMPAS.
TELLING_SHARE = 0.95


def standardised_gaps(moments: GroupMoments) -> FloatArray:
    """Return the standardised mean gap of every feature, the largest over all comparisons; 0 for a constant.

    Examples
    --------
    >>> X = np.array([[0.0, 1, 5], [0, 2, 5], [1, 1, 5], [1, 2, 5]])
    >>> standardised_gaps(GroupMoments(3).update(X, [0, 0, 1, 1]))
    array([2., 0., 0.])
    """
    covariance = moments.covariance()
    held = covariance.diagonal()
    # What a sketch dropped has no place of its own: it is spread over all features.
    variances = held + max(moments.total_variance - float(held.sum()), 0.0) / moments.n_features
    return largest_gaps([moments.mean_gap(*pair) for pair in moments.comparisons()], variances)


def largest_gaps(gaps: Sequence[FloatArray], variances: FloatArray) -> FloatArray:
    """Return the largest of the mean gaps of every feature in units of its deviation; 0 for a constant."""
    constant = variances <= 1e-12 * max(float(variances.mean()), np.finfo(float).tiny)
    largest = np.abs(gaps).max(axis=0)
    standardised: FloatArray = np.where(constant, 0.0, largest / np.sqrt(np.where(constant, 1.0, variances)))
    return standardised


def shares_between(moments: GroupMoments, attribute: str, least_rows: float = MIN_GROUP_SIZE) -> FloatArray:
    """Return the share of every feature's variance that lies between the groups of an attribute.

    It is 1 if a feature is constant within each group, 0 if its means agree or it is constant. Groups of
    fewer rows than `least_rows` do not count as groups: a value of three people may by chance be that of a
    group of three. What a sketch dropped is taken for variance within groups.

    Examples
    --------
    >>> X = np.array([[0.0, 1, 5], [0, 2, 5], [1, 1, 5], [1, 2, 5]])
    >>> shares_between(GroupMoments(3).update(X, {"sex": ["f", "f", "m", "m"]}), "sex", 2)
    array([1., 0., 0.])
    """
    counts = {label: n for label, n in moments.group_counts[attribute].items() if n > 0}
    if not counts:
        return np.zeros(moments.n_features)
    labels, weights = [*counts], np.array([*counts.values()], dtype=float)
    means = np.stack([moments.mean(attribute, label) for label in labels])
    shares = weights / weights.sum()
    centre = shares @ means
    parts = shares[:, None] * (means - centre) ** 2
    told = parts[weights >= least_rows].sum(axis=0)
    within = np.maximum(moments.labelled_covariance(attribute).diagonal() - parts.sum(axis=0), 0.0)
    dropped = max(moments.lost_energy * moments.total_variance * moments.n_rows / weights.sum(), 0.0)
    within = (np.sqrt(within) + np.sqrt(dropped)) ** 2
    total = parts.sum(axis=0) + within
    # Means and variances of a constant far from zero are rounding, in a sketch also that of other features.
    eps = np.finfo(moments.dtype).eps
    rounding = (256 * eps * np.abs(means).max(axis=0)) ** 2
    if moments.rank is not None:
        rounding = rounding + eps * total.sum()
    constant = total <= np.maximum(rounding, np.finfo(float).tiny)
    between: FloatArray = np.where(constant, 0.0, told / np.where(constant, 1.0, total))
    return between


def telling_variables(
    moments: GroupMoments, schema: Schema, least_rows: float = MIN_GROUP_SIZE
) -> dict[str, list[str]]:
    """Return, per attribute, the named variables with a feature that the groups determine, or nearly.

    Those named like the attribute are left out: they are found by name.

    Examples
    --------
    >>> X = np.array([[0.0, 1, 5], [0, 2, 5], [1, 1, 5], [1, 2, 5]])
    >>> moments = GroupMoments(3).update(X, {"sex": ["f", "f", "m", "m"]})
    >>> telling_variables(moments, Schema(("gender", "age", "year")), 2)
    {'sex': ['gender']}
    """
    variables, found = schema.variables(), {}
    for attribute, labels in moments.groups.items() if variables else ():
        shares = shares_between(moments, attribute, least_rows)
        telling = [name for name, of in variables.items() if shares[of].max(initial=0.0) >= TELLING_SHARE]
        named = {attribute, *namesakes(telling, attribute, labels)}
        if others := [name for name in telling if name not in named]:
            found[attribute] = others
    return found


def ranked_variables(gaps: FloatArray, schema: Schema) -> list[tuple[str, slice, float]]:
    """Return every variable, its features and its standardised gap, the largest gap first.

    A variable is a column of the table that the rows came from; without one it is a feature.
    """
    variables = schema.variables() or {f"feature {j}": slice(j, j + 1) for j in range(len(gaps))}
    ranked = [(name, columns, float(gaps[columns].max(initial=0.0))) for name, columns in variables.items()]
    return sorted(ranked, key=lambda variable: -variable[2])


def screened_features(moments: GroupMoments, screen: Screen) -> NDArray[np.intp]:
    """Return the features that `screen` leaves out, in ascending order.

    Parameters
    ----------
    moments : GroupMoments
        With the groups to tell apart.
    screen : int, float, list of str, optional
        So many variables, those of largest standardised gap; all variables whose gap exceeds a limit (a
        float); or names of variables or of features. None and 0 leave none out.

    Examples
    --------
    >>> X = np.array([[0.0, 1, 5], [0, 2, 5], [1, 1, 5], [1, 2, 5]])
    >>> screened_features(GroupMoments(3).update(X, [0, 0, 1, 1]), 1)
    array([0])
    """
    if screen is None or screen == 0:
        return np.zeros(0, dtype=np.intp)
    return chosen_features(screen, standardised_gaps(moments), moments.schema)


def chosen_features(screen: Screen, gaps: FloatArray, schema: Schema) -> NDArray[np.intp]:
    """Return the features that `screen` leaves out, in ascending order, given the gap of every feature.

    Examples
    --------
    >>> chosen_features(1, np.array([0.5, 2.0, 1.0]), Schema())
    array([1])
    """
    if isinstance(screen, Sequence):
        return named_features(schema, screen)
    ranked = ranked_variables(gaps, schema)
    if isinstance(screen, float):
        chosen = [columns for _, columns, gap in ranked if gap > screen]
    else:
        chosen = [columns for _, columns, _ in ranked[: int(screen or 0)]]
    return _joined(chosen, screen, len(gaps))


@contextmanager
def room_beside(
    screen: Screen, n_screened: int, n_features: int, n_components: int | float | None
) -> Iterator[None]:
    """Let a `NoRoomError` raised within name `screen`, if that leaves out some of the features.

    Examples
    --------
    >>> with room_beside(5, 5, 8, 3):  # doctest: +ELLIPSIS
    ...     raise NoRoomError("n_components is 3, n_features is 3")
    Traceback (most recent call last):
    fairstream.errors.NoRoomError: screen=5 leaves 3 of 8 columns, too few for n_components=3 and the ...
    """
    try:
        yield
    except NoRoomError as error:
        if not n_screened:
            raise
        counted = is_count(n_components, least=1)
        wanted = f"n_components={n_components}" if counted else "any component"
        raise NoRoomError(
            f"screen={screen!r} leaves {n_features - n_screened:,} of {n_features:,} columns, too few for "
            f"{wanted} and the unfair directions: screen fewer, or lower "
            f"{'n_components or n_unfair' if counted else 'n_unfair'}"
        ) from error


def named_features(schema: Schema, names: Sequence[str]) -> NDArray[np.intp]:
    """Return the features that names of variables or of features stand for, in ascending order; no moments.

    Examples
    --------
    >>> named_features(Schema(("age", "sex", "hours")), ["hours", "sex"])
    array([1, 2])
    """
    variables = schema.variables()
    if not variables:
        raise ValueError(f"screen={[*names]} names columns, the rows have no names: pass a frame or a table")
    features = {name: slice(j, j + 1) for j, name in enumerate(schema.feature_names or ())}
    known = features | variables
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"screen names {unknown[0]!r}, which is no column: these are: {', '.join([*variables][:10])}"
            f"{', ...' if len(variables) > 10 else ''}"
        )
    n_features = max(of.stop for of in variables.values())
    return _joined([known[name] for name in names], [*names], n_features)


def _joined(chosen: Sequence[slice], screen: object, n_features: int) -> NDArray[np.intp]:
    """Return the features in some slices, in ascending order; refuse to leave out all there are."""
    every = np.arange(n_features)
    features: NDArray[np.intp] = np.unique(np.concatenate([every[:0], *(every[of] for of in chosen)]))
    if len(features) == n_features:
        raise NoRoomError(f"screen={screen!r} leaves out all {n_features} features: ask for less")
    return features
