"""Screening: which columns tell groups apart by themselves, so that no component may use them.

A column's standardised gap is the largest difference of group means over its comparisons, in units of the
column's deviation. One-hot columns of one table column stand or fall together: a variable's gap is that of
its strongest column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairstream.data.schema import Schema
from fairstream.errors import NoRoomError
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.subspace.choices import Screen


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
    gaps = np.abs([moments.mean_gap(*pair) for pair in moments.comparisons()]).max(axis=0)
    constant = variances <= 1e-12 * max(moments.total_variance / moments.n_features, np.finfo(float).tiny)
    standardised: FloatArray = np.where(constant, 0.0, gaps / np.sqrt(np.where(constant, 1.0, variances)))
    return standardised


def ranked_variables(moments: GroupMoments) -> list[tuple[str, slice, float]]:
    """Return every variable, its features and its standardised gap, the largest gap first.

    A variable is a column of the table that the rows came from; without one it is a feature.
    """
    gaps = standardised_gaps(moments)
    variables = moments.schema.variables() or {
        f"feature {j}": slice(j, j + 1) for j in range(moments.n_features)
    }
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
    ranked = ranked_variables(moments)
    if isinstance(screen, int | np.integer):
        chosen = [columns for _, columns, _ in ranked[: int(screen)]]
    elif isinstance(screen, float):
        chosen = [columns for _, columns, gap in ranked if gap > screen]
    else:
        chosen = _named(moments, {name: columns for name, columns, _ in ranked}, screen)
    every = np.arange(moments.n_features)
    features: NDArray[np.intp] = np.unique(
        np.concatenate([every[:0], *(every[columns] for columns in chosen)])
    )
    if len(features) == moments.n_features:
        raise NoRoomError(f"screen={screen!r} leaves out all {moments.n_features} features: ask for less")
    return features


def _named(moments: GroupMoments, variables: dict[str, slice], names: Sequence[str]) -> list[slice]:
    return _slices_of(moments.feature_names, variables, names)


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
    every = np.arange(max(of.stop for of in variables.values()))
    chosen = _slices_of(schema.feature_names, variables, names)
    features: NDArray[np.intp] = np.unique(np.concatenate([every[of] for of in chosen]))
    if len(features) == len(every):
        raise ValueError(f"screen={[*names]} leaves out all {len(every)} features: name fewer")
    return features


def _slices_of(
    feature_names: Sequence[str] | None, variables: dict[str, slice], names: Sequence[str]
) -> list[slice]:
    known = {name: slice(j, j + 1) for j, name in enumerate(feature_names or ())} | variables
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"screen names {unknown[0]!r}, which is no column: these are: {', '.join([*variables][:10])}"
            f"{', ...' if len(variables) > 10 else ''}"
        )
    return [known[name] for name in names]
