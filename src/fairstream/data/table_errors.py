"""What is wrong with a table, with the way out: missing values, strange categories, useless columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_NAMED = 8  # columns in a message


class UnseenCategoryError(ValueError):
    """A category that has no feature.

    Parameters
    ----------
    told : str
        Which column holds which.
    way_out : str
        For whoever opens the table.
    """

    def __init__(self, told: str, way_out: str) -> None:
        super().__init__(f"{told}: {way_out}")
        self.told, self._way_out = told, way_out

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what it was built from, as errors of workers are."""
        return type(self), (self.told, self._way_out)


class MissingValuesError(ValueError):
    """Missing values that nothing fills.

    Parameters
    ----------
    counts : mapping
        Rows with a missing value, by column.
    where : str
        The rows that were looked at.
    n_rows : int, optional
        Their number: columns that most of them lack are better left out. None if no column can be.
    excluded : sequence of str, optional
        Columns that are left out already; None if the features were listed.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        where: str,
        n_rows: int | None = None,
        excluded: Sequence[str] | None = None,
    ) -> None:
        self.counts, self._where, self._n_rows, self._excluded = dict(counts), where, n_rows, excluded
        if len(counts) == 1:
            ((name, count),) = counts.items()
            values = "1 missing value" if count == 1 else f"{count:,} missing values"
            told, them = f"column {name!r} has {values} in {where}", "it"
        else:
            most_first = sorted(counts.items(), key=lambda item: -item[1])
            listed = _some([f"{name!r} ({count:,} row{'s' * (count > 1)})" for name, count in most_first])
            told, them = f"{len(counts)} columns have missing values in {where}: {listed}", "them"
        self.told = told
        mostly = [name for name, count in counts.items() if n_rows is not None and 2 * count > n_rows]
        filled = 'with open_source(..., impute="mean")'
        rest = f"{filled}, drop those rows, or leave {them} out of features"
        if not mostly:
            super().__init__(f"{told}: fill them {rest}")
            return
        out = f"Most of these rows lack {_some([*map(repr, mostly)])}: {left_out(mostly, excluded)}"
        others = (
            f". Fill the others {rest}"
            if len(mostly) < len(counts)
            else f", or fill what is missing {filled}"
        )
        super().__init__(f"{told}. {out}{others}")

    def of(self, counts: Mapping[str, int]) -> MissingValuesError:
        """Return the error for other columns of the same rows."""
        return type(self)(counts, self._where, self._n_rows, self._excluded)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by what it was built from, as errors of workers are."""
        return type(self), (self.counts, self._where, self._n_rows, self._excluded)


def left_out(names: Sequence[str], excluded: Sequence[str] | None) -> str:
    """Return how columns are left out: beside those that are already, or of the list of features."""
    them = "it" if len(names) == 1 else "them"
    if excluded is None:
        return f"leave {them} out of features"
    return f"leave {them} out with exclude={[*excluded, *names]!r}"


def no_rows(place: str) -> ValueError:
    """Return the error of a table without rows, about whose columns no advice would help."""
    return ValueError(f"{place} has no rows: pass a table with rows")


def refuse_unusable(held: Mapping[str, str], excluded: Sequence[str] | None, unread: str = "") -> None:
    """Refuse columns that cannot be features, all at once; `held` says what each of them holds."""
    if not held:
        return
    way_out = left_out([*held], excluded)
    if any(what.endswith("values") for what in held.values()):
        which = "it" if len(held) == 1 else "those with values"
        way_out = f"convert {which} to numbers or text, or {way_out}"
    if "no value" in held.values():
        way_out += unread
    if len(held) == 1:
        ((name, what),) = held.items()
        raise ValueError(f"column {name!r} holds {what}: {way_out}")
    by_kind: dict[str, list[str]] = {}
    for name, what in held.items():
        by_kind.setdefault(what, []).append(repr(name))
    told = "; ".join(f"{what} in {_some(names)}" for what, names in by_kind.items())
    raise ValueError(f"{len(held)} columns cannot be features ({told}): {way_out}")


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
