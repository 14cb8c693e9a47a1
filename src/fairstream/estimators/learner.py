"""Which learner an estimator's parameters ask for: exact moments, a sketch, or the power method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from fairstream.data.blocks import Matrix
from fairstream.data.groups import Groups, compared
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.choices import Choices, check_choice, is_count

Learner: TypeAlias = GroupMoments | FairPowerMethod

POWER_ONLY = {"block_size": None, "power_steps": 10, "on_empty_group": "extend"}  # options, defaults
SOLVERS = ("auto", "exact", "sketch", "power")
EXACT_FEATURES = 2_000  # "auto" keeps d x d matrices up to here
LEAST_RANK = 64  # of a sketch by default: on flat spectra (many rare categories) fewer keep next to nothing
NARROW = 512  # up to so many features a sketch by default drops nothing
EXACT_BYTES = 2_000_000_000  # and while those of all groups, twice for an update, take no more than this


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise for choices that do not exist and for options that the solver would ignore."""
    solver = parameters["solver"]
    Choices.of(parameters)
    check_choice("solver", solver, SOLVERS)
    if parameters["rank"] is not None and solver in ("exact", "power"):
        raise ValueError(f'rank={parameters["rank"]} has no meaning for solver="{solver}": leave it out')
    if parameters["rank"] is not None and not is_count(parameters["rank"], least=1):
        raise ValueError(f"rank={parameters['rank']!r}: give a whole number from 1, or None")
    for name, default in POWER_ONLY.items():
        if parameters[name] != default and solver != "power":
            raise ValueError(
                f'{name}={parameters[name]!r} has no meaning for solver="{solver}": leave it out, or use '
                'solver="power"'
            )
    if solver == "power" and parameters["directions"] != "absolute":
        raise ValueError('directions="relative" needs moments: use solver "exact", "sketch" or "auto"')
    if solver == "power" and parameters["n_components"] is None:
        raise ValueError('n_components=None is not possible with solver="power": give a number')


def new_learner(parameters: Mapping[str, Any], X: Matrix, groups: Groups | None) -> Learner:
    """Return an empty learner for data like X with groups like these."""
    d, solver = int(X.shape[1]), parameters["solver"]
    k: Any = parameters["n_components"]
    if k is not None and k > d:
        raise ValueError(f"n_components={k!r}: give a whole number from 1 to n_features={d}, or None")
    dtype = working_dtype(X.dtype)
    if solver == "power":
        names = ("n_unfair", "constraint", "block_size", "power_steps", "on_empty_group", "random_state")
        return FairPowerMethod(d, k, dtype=dtype, **{name: parameters[name] for name in names})
    exact = solver == "exact" or (
        solver == "auto" and parameters["rank"] is None and _fits_exactly(d, groups)
    )
    return GroupMoments(d, None if exact else _sketch_rank(parameters, d, groups), dtype)


def _fits_exactly(d: int, groups: Groups | None) -> bool:
    matrices = 1 + sum(len(column.labels) for column in (groups or {}).values())
    return d <= EXACT_FEATURES and matrices * d * d * 16 <= EXACT_BYTES


def working_dtype(dtype: DTypeLike) -> type[np.floating[Any]]:
    """Return float32 for input that float32 holds (images, half precision), else float64.

    Examples
    --------
    >>> working_dtype("uint8").__name__, working_dtype("int64").__name__
    ('float32', 'float64')
    """
    dtype = np.dtype(dtype)
    small = dtype.kind in "iub" and dtype.itemsize <= 2
    return np.float32 if small or dtype in (np.float16, np.float32) else np.float64


def _sketch_rank(parameters: Mapping[str, Any], d: int, groups: Groups | None) -> int:
    """Return the rank given, else d up to 512 features, else 4 times the directions needed, at least 64."""
    rank, k, n_unfair = parameters["rank"], parameters["n_components"], parameters["n_unfair"]
    if rank is not None:
        return min(int(rank), d)
    if k is None:
        raise ValueError(
            f"n_components=None would keep all of n_features={d}: give n_components, or rank, or "
            'solver="exact"'
        )
    unfair = 0
    for name, column in (groups or {}).items():
        m = n_unfair.get(name, 0) if isinstance(n_unfair, Mapping) else n_unfair
        comparisons = max(len(compared(column.labels)), 1)
        unfair += comparisons * (m * (parameters["constraint"] in ("all", "covariance")) + 1)
    return d if d <= NARROW else min(max(4 * (k + unfair), LEAST_RANK), d)
