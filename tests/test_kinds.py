"""The same kind out as in: frames with their index, tensors on their device, tokens in their axes."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fairstream import FairEraser, FairImagePCA, FairStreamingPCA, open_like, open_source
from fairstream.data.kinds import Given
from fairstream.data.tensors import TensorRows, is_tensor

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
NAMES = [f"x{j}" for j in range(12)]
VERBS = ("transform", "erase", "inverse_transform")
MODELS = {
    "pca": lambda: FairStreamingPCA(3, constraint="mean"),
    "images": lambda: FairImagePCA(2, constraint="mean"),
    "eraser": lambda: FairEraser(constraint="mean"),
}


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 300)
    X = rng.normal(size=(300, 12)) + 5.0
    X[:, 0] += 3.0 * (sex == "m")
    return X, sex


def frame_of(kind, rows, names):
    return FRAMES[kind](dict(zip(names, rows.T, strict=True)))


def columns_of(frame):
    return [*(frame.column_names if isinstance(frame, pa.Table) else frame.columns)]


# Frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("model", ["pca", "images"])
def test_frames_come_back_as_the_kind_they_were(people, kind, model):
    X, sex = people
    frame = frame_of(kind, X, NAMES)
    fitted = MODELS[model]().fit(frame, sensitive_features=sex)
    arrays = MODELS[model]().fit(X, sensitive_features=sex)
    Z = fitted.transform(frame)
    assert columns_of(Z) == [*fitted.get_feature_names_out()]
    back, erased = fitted.inverse_transform(Z), fitted.erase(frame)
    assert columns_of(erased) == NAMES
    for found, wanted in (
        (Z, arrays.transform(X)),
        (back, arrays.inverse_transform(arrays.transform(X))),
        (erased, arrays.erase(X)),
    ):
        assert type(found) is type(frame)
        assert np.allclose(np.asarray(found), wanted)


def test_an_inverse_of_a_frame_has_the_names_of_the_features(people):
    X, sex = people
    fitted = FairStreamingPCA(3).fit(frame_of("pandas", X, NAMES), sensitive_features=sex)
    Z = fitted.transform(frame_of("pandas", X, NAMES))
    assert columns_of(fitted.inverse_transform(Z)) == NAMES


@pytest.mark.parametrize("verb", VERBS)
def test_the_index_of_a_frame_is_kept(people, verb):
    X, sex = people
    index = [f"person {i}" for i in range(300)]
    frame = pd.DataFrame(X, columns=NAMES, index=index)
    fitted = FairStreamingPCA(3).fit(frame, sensitive_features=sex)
    given = fitted.transform(frame) if verb == "inverse_transform" else frame
    assert [*getattr(fitted, verb)(given).index] == index


def test_arrays_lists_and_sparse_matrices_give_arrays(people):
    import scipy.sparse as sp

    X, sex = people
    fitted = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    for given in (X, X.tolist(), sp.csr_array(X)):
        assert type(fitted.transform(given)) is np.ndarray
        assert type(fitted.erase(given)) is np.ndarray


@pytest.mark.parametrize("kind", FRAMES)
def test_a_subspace_gives_frames_back_too(people, kind):
    X, sex = people
    frame = frame_of(kind, X, NAMES)
    subspace = FairStreamingPCA(2).fit(frame, sensitive_features=sex).subspace_
    assert columns_of(subspace.embed(frame)) == ["component_0", "component_1"]
    assert columns_of(subspace.erase(frame)) == NAMES
    assert columns_of(subspace.reconstruct(subspace.embed(frame))) == NAMES


# Axes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("model", MODELS)
def test_any_axis_may_hold_the_features(people, axis, model):
    X, sex = people
    fitted = MODELS[model]().fit(X, sensitive_features=sex)
    tokens = np.moveaxis(X[:60].reshape(5, 12, 12), -1, axis)
    Z = fitted.transform(tokens, axis=axis)
    assert np.allclose(np.moveaxis(Z, axis, -1).reshape(60, -1), fitted.transform(X[:60]))
    erased = fitted.erase(tokens, axis=axis)
    assert np.allclose(np.moveaxis(erased, axis, -1).reshape(60, -1), fitted.erase(X[:60]))
    if model != "eraser":
        assert fitted.inverse_transform(Z, axis=axis).shape == tokens.shape


def test_a_wrong_axis_is_named(people):
    X, sex = people
    fitted = FairStreamingPCA(2).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match=r"axis=3, X has shape \(5, 12, 12\)"):
        fitted.transform(X[:60].reshape(5, 12, 12), axis=3)
    with pytest.raises(ValueError, match="axis=-1 is for arrays and tensors, X is a DataFrame"):
        fitted.transform(pd.DataFrame(X), axis=-1)


# Tensors --------------------------------------------------------------------------------------------------


def test_numpy_and_lists_are_no_tensors():
    assert not any(map(is_tensor, (np.eye(2), [[1.0]], np.float64(1.0), pd.DataFrame())))


def test_asking_whether_something_is_a_tensor_imports_no_torch():
    before = "torch" in sys.modules
    is_tensor(object())
    assert ("torch" in sys.modules) is before


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def strict():
    return pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")


FLOATS = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("model", MODELS)
def test_tensors_come_back_as_tensors_of_their_type(people, torch, dtype, model):
    X, sex = people
    tensor = torch.tensor(X).to(getattr(torch, dtype))
    rounded = tensor.double().numpy()
    fitted = MODELS[model]().fit(tensor, sensitive_features=sex)
    wanted = MODELS[model]().fit(rounded, sensitive_features=sex)
    pairs = [("erase", tensor, rounded), ("transform", tensor, rounded)]
    if model != "eraser":
        pairs.append(("inverse_transform", fitted.transform(tensor), wanted.transform(rounded)))
    for verb, ours, theirs in pairs:
        found = getattr(fitted, verb)(ours)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == tensor.dtype
        assert found.device == tensor.device
        scale = 1 + np.abs(getattr(wanted, verb)(theirs)).max()
        assert np.abs(found.double().numpy() - getattr(wanted, verb)(theirs)).max() < FLOATS[dtype] * scale


def test_whole_numbers_in_a_tensor_become_floats(people, torch):
    X, sex = people
    tensor = torch.tensor(X * 10).to(torch.uint8)
    fitted = FairStreamingPCA(2).fit(tensor, sensitive_features=sex)
    assert fitted.transform(tensor).dtype == torch.float32
    assert fitted.erase(tensor.to(torch.int64)).dtype == torch.float32


def test_gradients_are_left_behind(people, torch):
    X, sex = people
    tensor = torch.tensor(X, requires_grad=True)
    fitted = FairStreamingPCA(2).fit(tensor, sensitive_features=sex)
    Z = fitted.transform(tensor)
    assert not Z.requires_grad
    assert np.allclose(Z.numpy(), fitted.transform(X))


def test_labels_may_be_a_tensor(people, torch):
    X, sex = people
    codes = (sex == "m").astype(int)
    fitted = FairStreamingPCA(2).fit(torch.tensor(X), sensitive_features=torch.tensor(codes))
    assert fitted.group_counts_["sensitive_feature_0"].keys() == {0, 1}


def test_tokens_by_an_axis(people, torch):
    X, sex = people
    fitted = FairStreamingPCA(2).fit(X, sensitive_features=sex)
    tokens = torch.tensor(X[:60].reshape(5, 12, 12)).to(torch.bfloat16)
    Z = fitted.transform(tokens, axis=-1)
    assert Z.shape == (5, 12, 2)
    assert Z.dtype == torch.bfloat16
    assert fitted.erase(tokens.movedim(-1, 0), axis=0).shape == (12, 5, 12)
    with pytest.raises(ValueError, match=r"X has shape \(5, 12, 12\): .* or axis=-1"):
        fitted.transform(tokens)


@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_half_precision_is_learned_block_by_block(people, torch, solver, monkeypatch):
    """Rows that NumPy cannot see are fetched in pieces, in every pass, and give what whole rows give."""
    X, sex = people
    tensor = torch.tensor(X).to(torch.bfloat16)
    options = {"solver": solver, **({"random_state": 0, "power_steps": 30} if solver == "power" else {})}
    monkeypatch.setattr("fairstream.estimators.base.default_block_size", lambda row_bytes: 70)
    asked = []
    fetch = TensorRows.__getitem__
    monkeypatch.setattr(TensorRows, "__getitem__", lambda self, key: asked.append(key) or fetch(self, key))
    found = FairStreamingPCA(2, **options).fit(tensor, sensitive_features=sex)
    passes = found.learner_.passes
    taken = [key for key in asked if key.stop is not None and key.stop > 1]
    assert [key.stop - key.start for key in taken] == [70, 70, 70, 70, 20] * passes
    whole = FairStreamingPCA(2, **options).fit(tensor.float().numpy(), sensitive_features=sex)
    assert np.allclose(np.abs(found.components_), np.abs(whole.components_), atol=2e-3)


def test_partial_fit_of_half_precision_is_all_or_nothing(people, torch):
    X, sex = people
    tensor = torch.tensor(X).to(torch.bfloat16)
    fitted = FairStreamingPCA(2).partial_fit(tensor, sensitive_features=sex)
    tensor[250, 3] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        fitted.partial_fit(tensor, sensitive_features=sex)
    assert fitted.n_samples_seen_ == 300
    with pytest.raises(ValueError, match="NaN"):
        fitted.transform(tensor)


def test_floats_that_numpy_can_see_are_not_copied(people, torch):
    X, _ = people
    tensor = torch.tensor(X)
    seen = Given(tensor).rows
    assert isinstance(seen, np.ndarray)
    assert seen.ctypes.data == tensor.data_ptr()
    assert isinstance(Given(tensor.to(torch.bfloat16)).rows, TensorRows)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sources_of_tensors_are_read_whatever_their_type(people, torch, dtype):
    X, sex = people
    tensor = torch.tensor(X, dtype=getattr(torch, dtype), requires_grad=True)
    rows, labels = tensor.detach().float().numpy(), torch.tensor([label == "m" for label in sex])
    batches = [(tensor[:50], labels[:50]), (tensor[50:], labels[50:])]
    for data in (tensor, batches):
        named = {"sensitive_features": {"sex": sex} if data is tensor else ["sex"]}
        source = open_source(data, block_size=70, **named)
        np.testing.assert_array_equal(np.vstack([block.X for block in source]), rows)
    (part,) = open_source(tensor, block_size=70).part(3, 40)
    np.testing.assert_array_equal(part.X, rows[3:40])


def test_complex_tensors_and_wrong_widths_are_refused(people, torch):
    X, sex = people
    fitted = FairStreamingPCA(2).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match=r"[Cc]omplex"):
        fitted.transform(torch.tensor(X).to(torch.complex64))
    with pytest.raises(ValueError, match="11 features"):
        fitted.transform(torch.tensor(X[:, 1:]).to(torch.bfloat16))


@pytest.mark.parametrize("device", ["CPU_DEVICE", "device1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_array_api_arrays_keep_kind_type_and_device(people, strict, device, dtype):
    X, sex = people
    place = strict.Device(device)
    array = strict.asarray(X, dtype=getattr(strict, dtype), device=place)
    fitted = FairStreamingPCA(3).fit(array, sensitive_features=sex)
    Z = fitted.transform(array)
    for found in (Z, fitted.erase(array), fitted.inverse_transform(Z), fitted.subspace_.embed(array)):
        assert type(found) is type(array)
        assert found.dtype == array.dtype
        assert found.device == place
    wanted = FairStreamingPCA(3).fit(X, sensitive_features=sex).transform(X)
    assert np.allclose(np.abs(np.from_dlpack(Z)), np.abs(wanted), atol=1e-4)
    tokens = strict.reshape(array[:60, :], (5, 12, 12))
    assert fitted.transform(strict.permute_dims(tokens, (2, 0, 1)), axis=0).shape == (3, 5, 12)


def test_an_estimator_given_to_open_like_is_told_to_pass_its_subspace():
    with pytest.raises(ValueError, match="model is a FairStreamingPCA: pass its subspace_"):
        open_like(FairStreamingPCA(2), np.ones((5, 3)))
