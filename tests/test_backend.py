"""Products with rows by torch: NumPy's answers to rounding; on a processor only, for want of a card."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import fairstream
from fairstream import FairPowerMethod, FairStreamingPCA, GroupMoments
from fairstream.linalg import principal_angles
from fairstream.linalg.engine import torch_device
from fairstream.linalg.products import DenseRows, SparseRows, centred_rows
from fairstream.linalg.torch_rows import TorchRows

FORMS = {
    "float32": lambda X: X.astype(np.float32),
    "float64": lambda X: X,
    "uint8": lambda X: np.clip(40 * X + 100, 0, 255).astype(np.uint8),
    "uint16": lambda X: np.clip(40 * X + 100, 0, 255).astype(np.uint16),
    "backwards": lambda X: X[::-1],
    "columns first": np.asfortranarray,
}


def stream(n=600, d=20):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) * (1 + sex[:, None] * (np.arange(d) < 3)) * 0.9 ** np.arange(d)
    X[:, 5] += sex
    return X, sex


@pytest.fixture(autouse=True, scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_product_with_rows_is_numpys(form, weighted):
    X, _ = stream(50)
    X, rng = FORMS[form](X), np.random.default_rng(1)
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float32)
    origin, scale = X.mean(axis=0), rng.random(50) if weighted else None
    T, A = rng.normal(size=(4, 50)).astype(dtype), rng.normal(size=(3, 20)).astype(dtype)
    expected = centred_rows(X, origin, scale, dtype)
    with fairstream.backend("torch"):
        rows = centred_rows(X, origin, scale, dtype)
    assert (type(expected), type(rows)) == (DenseRows, TorchRows)
    close = {"rtol": 1e-4 if dtype == np.float32 else 1e-12, "atol": 1e-3 if dtype == np.float32 else 1e-12}
    out, room = np.ones((4, 20), dtype), np.full((4, 20), np.nan, dtype)
    rows.add_combined(T, out)
    assert rows.combine(T, room) is room
    np.testing.assert_allclose(rows.dot(A), expected.dot(A), **close)
    np.testing.assert_allclose(rows.combine(T), expected.combine(T), **close)
    np.testing.assert_allclose(room, expected.combine(T), **close)
    np.testing.assert_allclose(out - 1, expected.combine(T), **close)
    np.testing.assert_allclose(rows.row_squares(), expected.row_squares(), **close)
    assert rows.dot(A).dtype == dtype


def test_cells_of_rows_give_the_scatter_that_a_card_would_be_asked_for(torch):
    X, sex = stream(80)
    scale = np.random.default_rng(1).random(80)
    rows = TorchRows(X, np.ones(20), scale, np.float64, torch.device("cpu"))
    cells = [np.flatnonzero(sex == 0), np.flatnonzero(sex == 1)]
    for cell, (product, sums) in zip(cells, rows.products(cells), strict=True):
        R = (X[cell] - 1) * scale[cell, None]
        np.testing.assert_allclose(product, R.T @ R, rtol=1e-10)
        np.testing.assert_allclose(sums, scale[cell] @ R, rtol=1e-10)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_a_model_fitted_with_torch_is_the_one_fitted_with_numpy(solver):
    X, sex = stream()
    models = []
    for name in ("numpy", "torch"):
        model = FairStreamingPCA(3, solver=solver, random_state=0)
        with fairstream.backend(name):
            models.append(model.fit(X, sensitive_features=sex))
    assert principal_angles(*(m.components_.T for m in models)).max() < 1e-6
    assert principal_angles(*(m.unfair_basis_.T for m in models)).max() < 1e-6
    np.testing.assert_allclose(models[1].explained_variance_, models[0].explained_variance_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
@pytest.mark.parametrize("n_components", [3, 140])
def test_power_steps_in_float32_agree_for_few_and_for_many_components(n_components):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(900, 200)).astype(np.float32), rng.integers(0, 2, 900)
    X[:, :5] *= 4
    found = []
    for name in ("numpy", "torch"):
        method = FairPowerMethod(
            200, n_components, step_rows=300, power_steps=(1, 2), random_state=0, dtype=np.float32
        )
        with fairstream.backend(name):
            found.append(method.update(X, sex))
    assert principal_angles(*(m.components.T for m in found)).max() < 1e-2
    np.testing.assert_allclose(found[1].explained_variance, found[0].explained_variance, rtol=1e-3)
    assert found[1].total_variance == pytest.approx(found[0].total_variance, rel=1e-5)
    assert isinstance(found[1].to_state()[1]["Q"], np.ndarray)


def test_rows_are_neither_copied_nor_written_to(torch):
    X, sex = stream()
    before = X.copy()
    rows = TorchRows(X, np.zeros(20), None, np.float64, torch.device("cpu"))
    assert rows.R.data_ptr() == X.ctypes.data
    X.flags.writeable = False
    with fairstream.backend("torch"), warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays it may not write to
        GroupMoments(20, 5).update(X, {"sex": sex})
    np.testing.assert_array_equal(X, before)


def test_the_choice_ends_with_the_block_whatever_happens():
    with pytest.raises(ZeroDivisionError), fairstream.backend("torch"):
        _ = (torch_device() is not None) / 0
    assert torch_device() is None
    with fairstream.backend("torch"), fairstream.backend("numpy"):
        assert torch_device() is None


def test_sparse_rows_stay_with_scipy():
    import scipy.sparse as sp

    with fairstream.backend("torch"):
        assert isinstance(centred_rows(sp.eye_array(3).tocsr(), np.zeros(3), None, np.float64), SparseRows)


def test_an_unknown_library_or_device_is_refused():
    with pytest.raises(ValueError, match=r"backend is 'jax': use one of 'numpy', 'torch'"):
        fairstream.backend("jax").__enter__()
    with pytest.raises(ValueError, match="device is 'toaster', which torch does not have here"):
        fairstream.backend("torch", "toaster").__enter__()


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'fairstream\[torch\]'"):
        fairstream.backend("torch").__enter__()
