import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fairstream import FairStreamingPCA, GroupMoments, fit_source, open_source, solve
from fairstream.subspace.channels import ChannelSubspaces


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
    monkeypatch.setattr("fairstream.subspace.rows._SLICE_BYTES", 8 * 7 * 11)
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


def calls(fitted):
    """What takes rows, and what takes coordinates, with good input for each."""
    X, _, subspace = fitted
    channels = ChannelSubspaces([subspace, subspace])
    wide = np.hstack([X, X])
    estimator = FairStreamingPCA(3).fit(X, sensitive_features=X[:, 0] > 3)
    return {
        "embed": (subspace.embed, X),
        "erase": (subspace.erase, X),
        "reconstruct": (subspace.reconstruct, subspace.embed(X)),
        "channels embed": (channels.embed, wide),
        "channels erase": (channels.erase, wide),
        "channels reconstruct": (channels.reconstruct, channels.embed(wide)),
        "inverse_transform": (estimator.inverse_transform, estimator.transform(X)),
    }


CALLS = [
    "embed",
    "erase",
    "reconstruct",
    "channels embed",
    "channels erase",
    "channels reconstruct",
    "inverse_transform",
]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CALLS)
def test_nan_and_infinity_are_refused(fitted, name, value):
    call, X = calls(fitted)[name]
    for dtype in (np.float64, np.float32):
        bad = X.astype(dtype)
        bad[-1, -1] = value
        with pytest.raises(ValueError, match="NaN or infinite values"):
            call(bad)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("name", ["embed", "erase", "channels embed"])
def test_nan_in_sparse_rows_is_refused(fitted, name, form):
    call, X = calls(fitted)[name]
    X = X.copy()
    X[5, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values"):
        call(form(X))


@pytest.mark.parametrize("name", CALLS)
def test_text_masks_complex_numbers_and_wrong_shapes_are_refused(fitted, name):
    call, X = calls(fitted)[name]
    with pytest.raises(ValueError, match="pass real numbers"):
        call(X.astype(str))
    with pytest.raises(ValueError, match="pass real numbers"):
        call(np.full(X.shape, "f", dtype=object))
    with pytest.raises(ValueError, match="pass real numbers"):
        call(X.astype(complex))
    for shape in (X[0], X[:, :-1], X[None], 5, None):
        with pytest.raises(ValueError, match="columns are expected"):
            call(shape)
    if name != "inverse_transform":  # scikit-learn's way with masks is its own
        with pytest.raises(ValueError, match="masked array"):
            call(np.ma.masked_greater(X, 0))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", CALLS)
def test_frames_give_what_their_values_give(fitted, name, library):
    frames = pytest.importorskip(library)
    call, X = calls(fitted)[name]
    frame = frames.DataFrame({f"x{j}": column for j, column in enumerate(X.T)})
    np.testing.assert_array_equal(call(frame), call(X))


def test_a_list_of_rows_and_objects_that_are_numbers_are_taken(fitted):
    X, _, subspace = fitted
    np.testing.assert_array_equal(subspace.embed(X.tolist()), subspace.embed(X))
    np.testing.assert_array_equal(subspace.embed(X.astype(object)), subspace.embed(X))


def test_a_frame_with_its_columns_in_another_order_is_refused(fitted):
    pd = pytest.importorskip("pandas")
    X, moments, _ = fitted
    names = tuple("abcdefg")
    subspace = solve(moments, 3, 2, feature_names=names)
    frame = pd.DataFrame(X, columns=list(names))
    np.testing.assert_array_equal(subspace.embed(frame), subspace.embed(X))
    with pytest.raises(ValueError, match="column 'g' where 'a' is expected"):
        subspace.embed(frame[list(reversed(names))])
    with pytest.raises(ValueError, match="not numbers"):
        subspace.embed(frame.assign(a="text"))


def test_huge_but_finite_values_pass_the_check(fitted):
    """The control: a sum that overflows is not taken for infinity in the data."""
    _, _, subspace = fitted
    assert np.isfinite(subspace.embed(np.full((2, 7), 1e307) * [[1], [-1]])).all()
    assert np.isfinite(subspace.embed(np.full((4, 7), 1.5e307))).all()


def test_merging_with_something_else_says_so(fitted):
    _, moments, _ = fitted
    for other in (5, None, np.eye(7)):
        with pytest.raises(TypeError, match=f"other is a {type(other).__name__}: merge takes another GroupM"):
            moments.merge(other)


def test_a_frame_that_lacks_columns_is_told_which():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["age", "hours", "pay"]).assign(
        job=["x", "y"] * 30
    )
    source = open_source(frame.assign(sex=[0, 1] * 30), sensitive_features=["sex"])
    model = fit_source(source, FairStreamingPCA(2, constraint="mean")).subspace_
    with pytest.raises(ValueError, match="the model needs columns 'hours', 'job', which X does not have"):
        model.embed(frame[["age", "pay"]])
    named = FairStreamingPCA(1).fit(frame[["age", "hours", "pay"]], sensitive_features=[0, 1] * 30).subspace_
    with pytest.raises(ValueError, match="the model needs column 'hours', which X does not have"):
        named.embed(frame[["age", "pay"]])
