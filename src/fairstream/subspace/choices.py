"""Choices: what a fair subspace is asked for. The vocabulary and its one validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from fairstream.data.small_groups import MIN_GROUP_SIZE
from fairstream.subspace.dither import check_dither

NUnfair: TypeAlias = int | str | Mapping[str, int]
Screen: TypeAlias = int | float | Sequence[str] | None

AUTO = "auto"
MOST_AUTO = 10  # directions of each gap that "auto" nulls at most
CONSTRAINTS = ("none", "mean", "covariance", "all")
DIRECTIONS = ("absolute", "relative")


@dataclass(frozen=True)
class Choices:
    """What a solution is asked for, checked as far as that is possible without data.

    Parameters
    ----------
    n_components, constraint, directions, min_group_size, screen, guard, keep_target, guard_seed, \
    dither, ids, whiten
        As in `FairStreamingPCA`.
    n_unfair : int, dict of str to int, or "auto"
        As in `FairStreamingPCA`. "auto" nulls the directions whose eigenvalue exceeds what chance shows
        between two groups of normal rows (`fairstream.subspace.noise_floor`): for each attribute as many as
        its gap with the most such directions has, at most 10, and no more than leave room for the components
        (at least 1 if the constraint is "covariance"). If columns have heavier tails, it finds more than
        there are.

    Examples
    --------
    >>> Choices(n_components=2, constraint="mean").most_directions("sex", n_groups=2)
    1
    >>> Choices(constraint="both")
    Traceback (most recent call last):
    ValueError: constraint='both' is not one of 'none', 'mean', 'covariance', 'all'
    """

    n_components: int | float | None = None
    n_unfair: NUnfair = 1
    constraint: str = "all"
    directions: str = "absolute"
    min_group_size: int = MIN_GROUP_SIZE
    screen: Screen = None
    guard: float = 0.0
    keep_target: float = 0.0
    guard_seed: int = 0
    dither: float = 0.0
    ids: bool | str = False
    whiten: bool = False

    def __post_init__(self) -> None:
        check_choice("constraint", self.constraint, CONSTRAINTS)
        check_choice("directions", self.directions, DIRECTIONS)
        k, m, size = self.n_components, self.n_unfair, self.min_group_size
        if k is not None and not is_count(k, least=1) and not is_share(k):
            raise ValueError(
                f"n_components={k!r}: give a whole number from 1, a share of the variance between 0 and 1, "
                "or None"
            )
        numbers = [*m.values()] if isinstance(m, Mapping) else [MOST_AUTO if m == AUTO else m]
        if not numbers or not all(map(is_count, numbers)):
            raise ValueError(f'n_unfair={m!r}: give a whole number from 0, one per attribute, or "auto"')
        if self.constraint == "covariance" and not any(numbers):
            raise ValueError(
                f'n_unfair={m} with constraint="covariance" nulls nothing: use constraint="none"'
            )
        if not is_count(size, least=1):
            raise ValueError(
                f"min_group_size={size!r}: give a whole number of rows from 1 (no group is too small)"
            )
        _check_screen(self.screen)
        for name in ("guard", "keep_target"):
            price = getattr(self, name)
            number = isinstance(price, int | float | np.number) and not isinstance(price, bool)
            if not number or not 0 <= price < np.inf:
                raise ValueError(f"{name}={price!r}: give a price from 0, such as 1.0")
        if self.keep_target and not self.guard:
            raise ValueError(f"keep_target={self.keep_target!r} has no meaning without guard: set guard too")
        check_dither(self.dither)
        if not is_count(self.guard_seed):
            raise ValueError(f"guard_seed={self.guard_seed!r}: give a whole number from 0")
        if not isinstance(self.ids, bool | str) or self.ids == "":
            raise ValueError(f"ids={self.ids!r}: give True, False or the name of a column")
        if not isinstance(self.whiten, bool | np.bool_):
            raise ValueError(f"whiten={self.whiten!r}: give True or False")
        # Plain numbers, as files hold them.
        plain: Any = m if m == AUTO else int(numbers[0])
        if isinstance(m, Mapping):
            plain = {str(name): int(number) for name, number in m.items()}
        object.__setattr__(self, "n_unfair", plain)
        object.__setattr__(self, "min_group_size", int(size))
        object.__setattr__(self, "whiten", bool(self.whiten))

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Choices:
        """Return the choices among the parameters of an estimator."""
        return cls(**{name: parameters[name] for name in choice_names()})

    def to_parameters(self) -> dict[str, Any]:
        """Return the choices as the plain values that `FairSubspace.parameters` holds."""
        return asdict(self)

    @property
    def nulls_means(self) -> bool:
        """Whether mean gaps are nulled."""
        return self.constraint in ("mean", "all")

    @property
    def nulls_second_moments(self) -> bool:
        """Whether directions of second-moment gaps are nulled."""
        return self.constraint in ("covariance", "all")

    def unfair_directions(self, attribute: str) -> int:
        """Return m of an attribute: the directions to null of each of its second-moment gaps, at most."""
        if not self.nulls_second_moments:
            return 0
        if isinstance(self.n_unfair, Mapping):
            return self.n_unfair.get(attribute, 0)
        return MOST_AUTO if isinstance(self.n_unfair, str) else self.n_unfair

    def most_directions(self, attribute: str, n_groups: int) -> int:
        """Return how many directions an attribute with this number of groups takes at most.

        G groups have G - 1 independent mean gaps and, one group against the rest, G second-moment gaps (1 if
        G is 2).
        """
        if n_groups < 2:
            return 0
        comparisons = n_groups if n_groups > 2 else 1
        return (n_groups - 1) * self.nulls_means + self.unfair_directions(attribute) * comparisons


def choice_names() -> tuple[str, ...]:
    """Return the names of all choices."""
    return tuple(field.name for field in fields(Choices))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")


def _check_screen(screen: object) -> None:
    """Refuse anything but a number of columns, a limit or a list of names."""
    limit = isinstance(screen, float) and 0 < screen < np.inf
    names = isinstance(screen, list | tuple) and len(screen) > 0
    names = names and all(isinstance(name, str) for name in screen)  # type: ignore[attr-defined]
    if not (screen is None or is_count(screen) or limit or names):
        raise ValueError(
            f"screen={screen!r}: give a number of columns from 0, a limit above 0 such as 0.5, or a list of "
            "column names"
        )


def is_share(value: object) -> TypeGuard[float]:
    """Whether a value is a float above 0 and below 1."""
    return isinstance(value, float | np.floating) and 0 < float(value) < 1


def is_count(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether a value is a whole number, not a bool, of at least so much."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least
