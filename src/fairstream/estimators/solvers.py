"""From an estimator's parameters to a learner; options that the solver would ignore are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fairstream.data.blocks import Matrix
from fairstream.data.groups import Groups, compared
from fairstream.errors import FairstreamFileError
from fairstream.estimators.learner import Learner
from fairstream.estimators.moments_learner import MomentsLearner
from fairstream.estimators.power_learner import PowerLearner
from fairstream.estimators.screened_power import ScreenedPowerLearner
from fairstream.files.format import Arrays, Header
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.choices import AUTO, Choices, check_choice, is_count

POWER_ONLY = {"step_rows": None, "power_steps": 10, "on_empty_group": "extend"}  # options, defaults
_POWER_OPTIONS = ("n_components", "n_unfair", "constraint", "random_state", *POWER_ONLY)
SOLVERS = ("auto", "exact", "sketch", "power")
EXACT_FEATURES = 2_000  # "auto" keeps d x d matrices up to here
LEAST_RANK = 64  # of a sketch by default: on flat spectra (many rare categories) less keeps next to nothing
NARROW = 512  # features up to which a sketch by default drops nothing
SAMPLE_ROWS = 4_096  # of every group, for a guard
EXACT_BYTES = 2_000_000_000  # and while those of all groups, twice for an update, take no more than this

_KINDS: dict[str, type[Learner]] = {
    kind.name: kind for kind in (MomentsLearner, PowerLearner, ScreenedPowerLearner)
}


def learner_from_state(header: Header, arrays: Arrays) -> Learner:
    """Return the learner, of whichever kind, that `to_state` described."""
    name = header["learner"]
    if name not in _KINDS:
        raise FairstreamFileError(f"learner {name!r} is not known to this version: upgrade")
    return _KINDS[name].from_state(header, arrays)


def check_parameters(parameters: Mapping[str, Any]) -> Choices:
    """Return the choices among an estimator's parameters; refuse options that the solver would ignore."""
    solver = parameters["solver"]
    choices = Choices.of(parameters)
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
    if solver == "power" and choices.directions != "absolute":
        raise ValueError('directions="relative" needs moments: use solver "exact", "sketch" or "auto"')
    needing = ["n_unfair"] if choices.n_unfair == AUTO else []
    for name in (*needing, "guard", "sample"):
        if parameters[name] and solver == "power":
            raise ValueError(
                f'{name}={parameters[name]!r} needs moments: use solver "exact", "sketch" or "auto"'
            )
    if parameters["sample"] is not None and not is_count(parameters["sample"], least=1):
        raise ValueError(f"sample={parameters['sample']!r}: give a number of rows per group from 1, or None")
    if solver == "power" and not is_count(choices.n_components, least=1):
        raise ValueError(
            f'n_components={choices.n_components} is not possible with solver="power": give a whole number, '
            'or use solver "exact", "sketch" or "auto"'
        )
    return choices


def reads_whole_steps(parameters: Mapping[str, Any]) -> bool:
    """Whether the parameters ask for a learner that reads the whole data in every step."""
    return bool(parameters["solver"] == "power" and parameters["step_rows"] is None)


def new_learner(parameters: Mapping[str, Any], X: Matrix, groups: Groups | None) -> Learner:
    """Return an empty learner for data like X with groups like these, after checking the parameters."""
    choices = check_parameters(parameters)
    d, k, solver = int(X.shape[1]), choices.n_components, parameters["solver"]
    if k is not None and k > d:
        raise ValueError(f"n_components={k!r}: give a whole number from 1 to n_features={d}")
    dtype = working_dtype(X.dtype)
    if solver == "power":
        method = FairPowerMethod(d, dtype=dtype, **{name: parameters[name] for name in _POWER_OPTIONS})
        return ScreenedPowerLearner(d, choices.screen, method) if choices.screen else PowerLearner(method)
    exact = solver == "exact" or (
        solver == "auto" and parameters["rank"] is None and _fits_exactly(d, groups)
    )
    rank = None if exact else _sketch_rank(parameters["rank"], choices, d, groups)
    sample = parameters["sample"] or (SAMPLE_ROWS if choices.guard else None)
    return MomentsLearner(GroupMoments(d, rank, dtype, sample=sample))


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


def _sketch_rank(rank: int | None, choices: Choices, d: int, groups: Groups | None) -> int:
    """Return the rank given, else d up to 512 features, else 4 times the directions needed.

    But at least 64, and of many directions only 2 times as many and 64 more: what the leading directions lose
    depends on how many directions there are beyond them, less on their share.
    """
    if rank is not None:
        return min(int(rank), d)
    if d <= NARROW:
        return d
    if not is_count(choices.n_components, least=1):
        raise ValueError(
            f"n_components={choices.n_components} may keep all of n_features={d}: give n_components as a "
            'whole number, or rank, or solver="exact"'
        )
    unfair = 0
    for name, column in (groups or {}).items():
        comparisons = max(len(compared(column.labels)), 1)
        unfair += comparisons * (choices.unfair_directions(name) + 1)
    needed = int(choices.n_components or 0) + unfair
    return min(max(min(4 * needed, 2 * needed + LEAST_RANK), LEAST_RANK), d)
