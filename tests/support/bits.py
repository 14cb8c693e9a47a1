"""Equality to the last bit."""

import json

import numpy as np


def assert_same_bits(one, two):
    """Compare what two models, summaries or estimators would save."""
    (header, arrays), (header_two, arrays_two) = one.to_state(), two.to_state()
    assert json.dumps(header, default=dict) == json.dumps(header_two, default=dict)
    assert arrays.keys() == arrays_two.keys()
    for name, array in arrays.items():
        assert array.dtype == arrays_two[name].dtype
        assert array.tobytes() == arrays_two[name].tobytes(), name
    if hasattr(one, "components_"):
        np.testing.assert_array_equal(one.components_, two.components_)
