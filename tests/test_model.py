import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream import GroupMoments, solve


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 300)
    X = rng.normal(size=(300, 7)) + 3
    X[sex == "m", 0] += 1
    moments = GroupMoments(7).update(X, {"sex": sex})
    return X, moments, solve(moments, 3, 2)


def test_embed_is_the_centred_projection(fitted):
    X, _, subspace = fitted
    assert np.allclose(subspace.embed(X), (X - X.mean(axis=0)) @ subspace.components.T)


def test_erase_keeps_d_columns_and_removes_the_unfair_part(fitted):
    X, _, subspace = fitted
    erased = subspace.erase(X)
    assert erased.shape == X.shape
    assert np.allclose(erased, subspace.erase(erased))
    assert np.allclose((erased - X.mean(axis=0)) @ subspace.unfair_basis.T, 0)
    assert np.allclose(subspace.embed(erased), subspace.embed(X))


def test_reconstruct_inverts_embed_on_the_subspace(fitted):
    X, _, subspace = fitted
    Z = subspace.embed(X)
    assert np.allclose(subspace.embed(subspace.reconstruct(Z)), Z)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array])
def test_sparse_input_equals_dense(fitted, form):
    X, _, subspace = fitted
    assert np.allclose(subspace.embed(form(X)), subspace.embed(X))
    assert np.allclose(subspace.erase(form(X)), subspace.erase(X))


def test_dtype_is_kept(fitted):
    X, _, subspace = fitted
    assert subspace.embed(X.astype(np.float32)).dtype == np.float32
    assert subspace.erase(X.astype(np.float32)).dtype == np.float32
    assert subspace.embed((X * 10).astype(np.uint8)).dtype == np.float64


def test_large_input_goes_through_slice_by_slice(fitted, monkeypatch):
    X, _, subspace = fitted
    whole = subspace.embed(X)
    monkeypatch.setattr("fairstream.model._SLICE_BYTES", 8 * 7 * 11)
    assert np.allclose(subspace.embed(X), whole)


def test_it_is_frozen_and_owns_its_arrays(fitted):
    _, moments, subspace = fitted
    with pytest.raises(AttributeError):
        subspace.mean = 0
    with pytest.raises(ValueError, match="read-only"):
        subspace.components[0, 0] = 1
    with pytest.raises(TypeError):
        subspace.group_counts["sex"]["m"] = 0
    before = subspace.mean.copy()
    moments.update(np.full((50, 7), 9.0), {"sex": ["f"] * 50})
    assert np.array_equal(subspace.mean, before)


def test_it_says_what_it_learned_from(fitted):
    X, _, subspace = fitted
    assert subspace.n_rows == 300
    assert subspace.groups == {"sex": ("f", "m")}
    assert sum(subspace.group_counts["sex"].values()) == 300
    assert subspace.total_variance == pytest.approx(X.var(axis=0, ddof=1).sum())
    assert 0 < subspace.explained_variance_ratio.sum() < 1
    assert subspace.parameters["constraint"] == "all"


def test_copies_and_workers_get_the_same_subspace(fitted):
    X, _, subspace = fitted
    for twin in (copy.deepcopy(subspace), pickle.loads(pickle.dumps(subspace))):
        assert np.array_equal(twin.embed(X), subspace.embed(X))
        assert twin.groups == subspace.groups


def test_wrong_shapes_are_named(fitted):
    _, _, subspace = fitted
    with pytest.raises(ValueError, match="7 columns are expected"):
        subspace.embed(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="7 columns are expected"):
        subspace.erase(np.zeros(7))
    with pytest.raises(ValueError, match="3 columns are expected"):
        subspace.reconstruct(np.zeros((2, 7)))
