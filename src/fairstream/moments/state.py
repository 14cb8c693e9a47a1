"""Group moments as plain values and arrays, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.schema import Schema
from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked, checked_signs, label_from_json, label_to_json
from fairstream.moments.scatter import ExactScatter, SketchedScatter
from fairstream.moments.sketch import is_orthonormal

if TYPE_CHECKING:
    from fairstream.moments.summary import GroupMoments

_SKETCH_ARRAYS = ("basis", "cores", "offsets", "energy")


def describe(moments: GroupMoments) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header of JSON values and the arrays, not copied."""
    scatter = moments._scatter
    labelled = [(slot, a, label) for a, known in moments._slots.items() for label, slot in known.items()]
    header = {
        "n_features": moments.n_features,
        "rank": moments.rank,
        "dtype": str(moments.dtype),
        "attributes": list(moments._slots),
        "groups": [
            [a, label_to_json(a, label)] for _, a, label in sorted(labelled, key=lambda item: item[0])
        ],
        **moments.schema.to_header(),
        "cuts": getattr(scatter, "cuts", None),
    }
    names = ("cores",) if isinstance(scatter, ExactScatter) else _SKETCH_ARRAYS
    arrays = {"weights": moments._weights, "means": moments._means}
    return header, arrays | {name: getattr(scatter, name) for name in names}


def rebuild(kind: type[GroupMoments], header: Header, arrays: Arrays) -> GroupMoments:
    """Return the moments that `describe` described, after checking that everything fits."""
    d, groups, names = header["n_features"], header["groups"], header["feature_names"]
    weights, means = arrays["weights"], arrays["means"]
    checked(type(d) is int and means.shape == (1 + len(groups), d), "means and groups")
    checked(
        weights.shape == (len(means),) and weights.dtype == means.dtype == np.float64, "weights and means"
    )
    checked(names is None or len(names) == d, "feature names and features")
    checked_signs(weights, "weights")
    checked(bool((weights <= weights[0] * (1 + 1e-6)).all()), "weights of groups and of all rows")
    scatter = _rebuild_scatter(header, arrays, len(means), d)
    # Rank 1 for the moment: exact moments would first make a d x d matrix of zeros.
    moments = kind(d, 1, header["dtype"])
    moments.rank, moments._scatter = header["rank"], scatter
    moments._weights, moments._means = weights, means
    moments._slots = {str(name): {} for name in header["attributes"]}
    for slot, (name, label) in enumerate(groups, start=1):
        moments._slots[name][label_from_json(label)] = slot
    checked(sum(map(len, moments._slots.values())) == len(groups), "groups and their labels")
    moments.schema = Schema.from_header(header)
    return moments


def _rebuild_scatter(header: Header, arrays: Arrays, n_slots: int, d: int) -> ExactScatter | SketchedScatter:
    rank, cuts, cores = header["rank"], header["cuts"], arrays["cores"]
    checked(cores.dtype == np.float64, "cores and header")
    if rank is None:
        checked(cores.shape == (n_slots, d, d), "cores and features")
        _check_variances(np.diagonal(cores, axis1=1, axis2=2), arrays, header)
        exact = ExactScatter.__new__(ExactScatter)
        exact.cores = cores
        return exact
    basis, width = arrays["basis"], len(arrays["basis"])
    shapes = [arrays[name].shape for name in _SKETCH_ARRAYS]
    checked(
        shapes == [(width, d), (n_slots, width, width), (n_slots, width), (n_slots,)], "the sketch's arrays"
    )
    checked(type(rank) is int and rank >= 1 and type(cuts) is int and cuts >= 0, "rank and sketch")
    # Rank 0 for the moment: a rank of d would first make a d x d basis.
    sketch = SketchedScatter(d, 0, header["dtype"])
    sketch.rank = min(rank, d)
    checked(basis.dtype == sketch.basis.dtype and width <= d, "basis and header")
    if not is_orthonormal(basis):
        raise FairstreamFileError("the rows of the sketch's basis are not orthonormal: write the file again")
    _check_variances(arrays["energy"], arrays, header)
    _check_variances(np.diagonal(cores, axis1=1, axis2=2), arrays, header)
    sketch.basis, sketch.cores, sketch.cuts = basis, cores, cuts
    sketch.offsets, sketch.energy = arrays["offsets"], arrays["energy"]
    return sketch


def _check_variances(variances: NDArray[Any], arrays: Arrays, header: Header) -> None:
    """Refuse negative variances. Rounding may leave some, small beside the squares they came from."""
    weights, means = arrays["weights"], arrays["means"]
    with np.errstate(over="ignore"):
        squares = float(weights[0]) * float(np.abs(means).max(initial=0.0)) ** 2 * means.shape[1]
        scale = squares + float(np.abs(variances).max(initial=0.0))
    checked_signs(variances, "variances", (1e-3 if header["dtype"] == "float32" else 1e-6) * scale)
