"""A fitted or half-fitted FairImagePCA as plain values and arrays, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import Arrays, Header, checked
from fairstream.subspace.channels import joined_states, parted_states

if TYPE_CHECKING:
    from fairstream.estimators.images import FairImagePCA

E = TypeVar("E", bound="FairImagePCA")


def describe(image: FairImagePCA) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header of JSON values and the arrays of all channels, not copied."""
    headers, arrays = joined_states([estimator.to_state() for estimator in image.estimators_])
    names = getattr(image, "feature_names_in_", None)
    header = {
        "parameters": image.get_params(deep=False),
        "feature_names_in": None if names is None else [*map(str, names)],
        "estimators": headers,
    }
    return header, arrays


def rebuild(kind: type[E], header: Header, arrays: Arrays) -> E:
    """Return the estimator that `describe` described, after checking that its channels go together."""
    # JSON knows no tuples: (b, B) comes back as a list.
    parameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in header["parameters"].items()
    }
    image, names = kind(**parameters), header["feature_names_in"]
    states = parted_states(header["estimators"], arrays)
    estimators = [FairStreamingPCA.from_state(*state) for state in states]
    n_features = sum(estimator.n_features_in_ for estimator in estimators)
    slices, shared = image._slices(n_features), image._channel_parameters()
    checked(len(slices) == len(estimators), "channels and parameters")
    for estimator, columns in zip(estimators, slices, strict=True):
        checked(estimator.n_features_in_ == columns.stop - columns.start, "channels and features")
        checked(estimator.get_params(deep=False) == shared, "parameters of the channels")
        checked(estimator.n_samples_seen_ == estimators[0].n_samples_seen_, "rows of the channels")
    image.estimators_, image._subspace = tuple(estimators), None
    image.n_features_in_ = n_features
    if names is not None:
        checked(len(names) == n_features, "feature names and features")
        image.feature_names_in_ = np.array(names, dtype=object)
    return image
