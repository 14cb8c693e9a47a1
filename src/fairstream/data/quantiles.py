"""Groups of a continuous attribute: as many as declared, of about the same size."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from fairstream.errors import FairstreamWarning


def quantile_groups(values: Any, groups: int | Sequence[float] = 4) -> Any:
    """Return a group for every value of a continuous attribute, age or income say.

    Parameters
    ----------
    values : list, array or Series of numbers (n,)
        Missing ones (None, NaN) are in no group.
    groups : int or sequence of numbers, default 4
        How many groups of about the same size; or the values at which one group ends and the next begins.
        The blocks of a stream need the latter, `np.quantile(first_block, [0.25, 0.5, 0.75])` say: groups
        that every block cuts for itself are not the same groups.

    Returns
    -------
    array or Series of str
        A Series, with its index, if `values` is one. Warns if equal values leave fewer groups than asked for.

    Examples
    --------
    >>> quantile_groups([18, 25, 31, 40, 52, 67], 2).tolist()
    ['below 35.5', 'below 35.5', 'below 35.5', '35.5 and above', '35.5 and above', '35.5 and above']
    >>> quantile_groups([18, 40, 67], [30, 60]).tolist()
    ['below 30', '30 to 60', '60 and above']
    """
    series: Any = nw.from_native(values, series_only=True, pass_through=True)
    numbers = _numbers(series if isinstance(series, nw.Series) else values)
    known = np.isfinite(numbers)
    edges = _quantiles(numbers[known], groups) if isinstance(groups, int | np.integer) else _checked(groups)
    texts = [f"{edge:.6g}" for edge in edges]
    if len({*texts}) < len(texts):
        texts = [repr(float(edge)) for edge in edges]
    between = [f"{one} to {two}" for one, two in pairwise(texts)]
    names = [f"below {texts[0]}", *between, f"{texts[-1]} and above"]
    labels = np.full(len(numbers), None, dtype=object)
    labels[known] = np.array(names, dtype=object)[np.searchsorted(edges, numbers[known], side="right")]
    if not isinstance(series, nw.Series):
        return labels
    made: Any = nw.new_series(
        series.name, labels.tolist(), nw.String, native_namespace=nw.get_native_namespace(series)
    ).to_native()
    if (index := nw.maybe_get_index(series)) is not None:
        made.index = index
    return made


def _numbers(values: Any) -> NDArray[np.float64]:
    try:
        if isinstance(values, nw.Series):
            values = values.cast(nw.Float64).to_numpy()
        numbers = np.asarray(values, dtype=np.float64)
    except Exception as error:  # every library has its own
        raise ValueError("values of a continuous attribute are numbers or missing: pass numbers") from error
    if numbers.ndim != 1:
        raise ValueError(f"values have shape {numbers.shape}: pass one number per row")
    if np.isinf(numbers).any():
        raise ValueError("values are infinite in some rows: pass None if they are unknown")
    return numbers


def _quantiles(known: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """Return the inner quantiles, each once; equal values stay together."""
    if isinstance(groups, bool) or groups < 2:
        raise ValueError(f"groups={groups!r}: give a whole number from 2, or the edges between groups")
    if len(known) == 0:
        raise ValueError("all values are missing: there is nothing to group by")
    edges = np.unique(np.quantile(known, np.arange(1, groups) / groups))
    edges = edges[edges > known.min()]  # below the smallest value there is nobody
    if len(edges) == 0:
        least = known.min()
        if known.max() == least:
            raise ValueError(f"all values are {least:g}: an attribute needs two groups, leave it out")
        above = known[known > least].min()
        raise ValueError(
            f"too many values are {least:g} for {groups} groups of like size: give the edges between groups, "
            f"such as groups=[{above:g}]"
        )
    if len(edges) + 1 < groups:
        warnings.warn(
            f"so many values are equal that only {len(edges) + 1} of {groups} groups are left: give fewer "
            "groups, or the edges between them",
            FairstreamWarning,
            stacklevel=3,
        )
    return edges


def _checked(groups: Any) -> NDArray[np.float64]:
    edges = np.asarray(groups, dtype=np.float64)
    if edges.ndim != 1 or len(edges) == 0 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(f"groups={groups!r}: give edges in rising order, or a number of groups")
    return edges
