"""A half-finished power method as plain values and arrays, and back."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.schema import Schema
from fairstream.errors import FairstreamFileError
from fairstream.files.format import checked_number, checked_orthonormal, checked_signs

if TYPE_CHECKING:
    from fairstream.power.method import FairPowerMethod

STATE_FORMAT = 1
_LEDGER_ARRAYS = ("counts", "means", "open_counts", "open_sums", "shift")


def describe(method: FairPowerMethod) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header of JSON values and the arrays, not copied."""
    ledger = method._ledger
    groups = [[a, label, entry] for a, known in ledger.entries.items() for label, entry in known.items()]
    for attribute, label, _ in groups:
        if not isinstance(label, str | int | float):
            raise ValueError(
                f"the label {label!r} of {attribute!r} cannot be stored: label groups by text or numbers"
            )
    header = {
        "format": STATE_FORMAT,
        "options": method.plan.to_header(),
        "declared": method._declared,
        "attributes": list(ledger.entries),
        "groups": groups,
        "step": method._step,
        "scatter": ledger.scatter,
        "open_squares": ledger.open_squares,
        "generator": method._generator.bit_generator.state,
        "convergence": dict(method._moved),
        **method.schema.to_header(),
    }
    arrays = {name: getattr(ledger, name) for name in _LEDGER_ARRAYS}
    arrays |= {"variances": method._variances, "Q": method._Q, "P": method._P, "U": method._U}
    return header, {name: array for name, array in arrays.items() if array is not None}


def rebuild(
    kind: type[FairPowerMethod], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> FairPowerMethod:
    """Return the method that `describe` described, after checking that everything fits."""
    if header.get("format") != STATE_FORMAT:
        raise FairstreamFileError(
            f"power state has format {header.get('format')!r}, this version reads {STATE_FORMAT}"
        )
    try:
        method = kind(**header["options"])
        method.schema = Schema.from_header(header)
        ledger = method._ledger
        method._declared, method._step = bool(header["declared"]), operator.index(header["step"])
        method._generator.bit_generator.state = header["generator"]
        moved = header.get("convergence", {})  # files from before it was measured have none
        method._moved = {str(phase): float(sine) for phase, sine in moved.items()}
        groups = {int(entry): (str(attribute), label) for attribute, label, entry in header["groups"]}
        ledger.enlist(groups, attributes=header["attributes"])
        ledger.scatter, ledger.open_squares = float(header["scatter"]), float(header["open_squares"])
        for name in _LEDGER_ARRAYS:
            if name in arrays:
                setattr(ledger, name, np.array(arrays[name]))
        method._variances = np.array(arrays["variances"])
        method._Q, method._P, method._U = (
            np.array(arrays[name], order="F") if name in arrays else None for name in ("Q", "P", "U")
        )
        fits = _fits(method)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FairstreamFileError(f"power state cannot be read: {error!r}") from error
    if not fits:
        raise FairstreamFileError("power state has arrays that do not fit its header: the file is damaged")
    _check_ranges(method)
    return method


def _check_ranges(method: FairPowerMethod) -> None:
    """Refuse counts and variances below zero, and bases that are not orthonormal."""
    ledger = method._ledger
    for name in ("counts", "open_counts"):
        checked_signs(getattr(ledger, name), name)
    for name in ("scatter", "open_squares"):
        checked_number(getattr(ledger, name), name)
    checked_signs(method._variances, "variances")
    if method._U is not None:
        checked_orthonormal(method._U.T, "the columns of the unfair basis")
        if method._Q is not None and method._step > method.plan.unfair_steps:
            checked_orthonormal(method._Q.T, "components", method._U.T)


def _fits(method: FairPowerMethod) -> bool:
    """Whether the arrays have the shapes and types that the header asks for."""
    plan, ledger = method.plan, method._ledger
    d = plan.n_features
    entries = sorted(entry for known in ledger.entries.values() for entry in known.values())
    n = 1 + len(entries)
    small = {"counts": (n,), "open_counts": (n,), "means": (n, d), "open_sums": (n, d)}
    fits = entries == list(range(1, n)) and (method._U is None) == (method._step < plan.unfair_steps)
    fits &= all(getattr(ledger, name).shape == shape for name, shape in small.items())
    fits &= ledger.counts.dtype == ledger.open_counts.dtype == np.int64
    fits &= ledger.means.dtype == ledger.open_sums.dtype == method._variances.dtype == np.float64
    fits &= method._variances.shape == (plan.n_components,)
    fits &= ledger.shift is None or (ledger.shift.shape == (d,) and ledger.shift.dtype == plan.dtype)
    for array in (method._Q, method._P, method._U):
        fits &= array is None or (array.ndim == 2 and array.shape[0] == d and array.dtype == plan.dtype)
    if fits and method._Q is not None and method._U is not None:
        fits &= method._Q.shape[1] == plan.n_components
    if fits and method._P is not None:
        slots = method._slots()
        fits &= method._P.shape[1] == (slots[-1].place.stop if slots else 0) and method._Q is not None
    return bool(fits)
