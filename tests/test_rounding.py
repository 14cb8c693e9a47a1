"""Coefficients that are tiny instead of 0 give rows away, and are found."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream.auditing.measure import rounding
from fairstream.auditing.measure.rounding import FEW, reordered_share, rounding_leak, tiny_coefficients


def checkerboard(seed, n_rows, cells=6):
    """Rows whose group is the colour of their cell: nothing for a line, much for trees with enough rows."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n_rows, 2)) * cells
    return Z, (np.floor(Z).sum(axis=1) % 2).astype(int)


def one_hot(seed, n_rows=600):
    """Rows of two one-hot variables: the group itself, and another that has nothing to do with it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, size=n_rows)
    other = np.eye(5)[rng.integers(0, 5, size=n_rows)]
    return np.column_stack([np.eye(2)[codes], other]), codes


@pytest.mark.parametrize(("coefficient", "leaks"), [(1e-16, True), (0.0, False)])
def test_coefficients_of_1e_16_on_one_hot_columns_are_found_and_exact_zeros_are_not(coefficient, leaks):
    X, codes = one_hot(0)
    rng = np.random.default_rng(1)
    V = np.hstack([np.full((3, 2), coefficient) * [1, -1], rng.normal(size=(3, 5)) / 5])
    names = ["sex=f", "sex=m", *"abcde"]
    Z = X @ V.T
    fit = (Z[300:], codes[300:])
    found = rounding_leak(Z[:300], codes[:300], fit=fit, components=V, feature_names=names)
    assert found.leaks is leaks
    assert found.features == (("sex=f", "sex=m") if leaks else ())
    assert (found.before is not None and found.before.low > 0.6) is leaks
    assert found.after is None or found.after.low <= 0.5 <= found.after.high


def test_a_few_values_that_many_rows_share_are_not_overlooked():
    values = np.repeat([0.0, 1e-16, 1.0, 2.0], 1_000)[:, None]
    assert reordered_share(values) == 0.25
    assert reordered_share(np.repeat([0.0, 1.0, 2.0], 1_000)[:, None]) == 0.0
    rng = np.random.default_rng(0)
    assert reordered_share(rng.normal(size=(8_000, 10))) < FEW
    assert reordered_share(rng.exponential(size=(8_000, 10))) < FEW


def test_a_leak_that_noise_does_not_remove_is_no_rounding_leak():
    rng = np.random.default_rng(2)
    (Z, codes), (Z_fit, codes_fit) = (checkerboard(seed, n, cells=3) for seed, n in ((0, 300), (1, 400)))
    # On a lattice, with digits that tell nothing.
    Z, Z_fit = (rows.round(1) + 1e-12 * rng.normal(size=rows.shape) for rows in (Z, Z_fit))
    found = rounding_leak(Z, codes, fit=(Z_fit, codes_fit))
    assert found.before.low > 0.6
    assert not found.leaks
    assert abs(found.drop) < 0.02


def test_a_feature_with_one_real_coefficient_is_not_named():
    assert tiny_coefficients([[1.0, 1e-16], [1.0, 0.5]]) == ()
    with pytest.raises(ValueError, match="feature_names has 1 names"):
        tiny_coefficients([[1.0, 0.0]], ["a"])


def test_a_rare_group_is_known_to_a_forest_that_has_only_some_of_the_rows(monkeypatch):
    monkeypatch.setattr(rounding, "MOST_ROWS", 100)
    codes = np.repeat([0, 1, 2], [10, 1_500, 1_500])
    X = np.eye(3)[codes]
    Z = X @ np.array([[1.0], [1.0 + 1e-13], [1.0 + 2e-13]]) + np.arange(3_000 + 10)[:, None] % 7
    found = rounding_leak(Z, codes, fit=(Z, codes))
    assert found.leaks
    assert found.before.low > 0.9
