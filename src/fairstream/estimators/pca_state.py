"""A fitted or half-fitted FairStreamingPCA as plain values and arrays, and back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairstream.errors import FairstreamFileError
from fairstream.files.format import Arrays, Header, checked
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod

if TYPE_CHECKING:
    from fairstream.estimators.pca import FairStreamingPCA

# What an estimator may have learned with.
_LEARNERS: dict[str, Any] = {
    "moments": GroupMoments,
    "power": FairPowerMethod,
}


def describe(estimator: FairStreamingPCA) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header of JSON values and the arrays, not copied; a subspace is solved again after loading."""
    parameters = estimator.get_params(deep=False)
    seed = parameters["random_state"]
    if seed is not None and not isinstance(seed, int | np.integer):
        raise ValueError(
            f"random_state is a {type(seed).__name__}, which a file cannot hold: set an int, or None"
        )
    learner = next(name for name, kind in _LEARNERS.items() if isinstance(estimator._learner, kind))
    state, arrays = estimator._learner.to_state()
    names = getattr(estimator, "feature_names_in_", None)
    header = {
        "parameters": parameters,
        "feature_names_in": None if names is None else [*map(str, names)],
        "learner": learner,
        "learned": state,
    }
    if learner == "power" and estimator._subspace is not None:
        # Moments remember how table columns became features; the power method's result alone does.
        encoding = estimator._subspace.parameters.get("encoding")
        header |= {} if encoding is None else {"encoding": encoding}
    return header, arrays


def rebuild(kind: type[FairStreamingPCA], header: Header, arrays: Arrays) -> FairStreamingPCA:
    """Return the estimator that `describe` described; `partial_fit` goes on exactly as it would have."""
    learner, names = header["learner"], header["feature_names_in"]
    if learner not in _LEARNERS:
        raise FairstreamFileError(f"learner {learner!r} is not known to this version: upgrade")
    # JSON knows no tuples: (b, B) comes back as a list.
    parameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in header["parameters"].items()
    }
    estimator = kind(**parameters)
    if learner == "power":
        checked(
            arrays["means"].shape[1:] == (header["learned"]["options"]["n_features"],), "means and features"
        )
    learned = _LEARNERS[learner].from_state(header["learned"], arrays)
    estimator.n_features_in_ = int(arrays["means"].shape[1])
    if names is not None:
        checked(len(names) == estimator.n_features_in_, "feature names and features")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._subspace = None
    estimator._learner = learned
    if "encoding" in header:
        solved = estimator.subspace_
        parameters = {**solved.parameters, "encoding": header["encoding"]}
        estimator._subspace = dataclasses.replace(solved, parameters=parameters)
    return estimator
