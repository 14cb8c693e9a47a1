"""A fair subspace as a torch module: it does what the subspace does, and lives in a model."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from fairstream import FairStreamingPCA


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 300)
    X = rng.normal(size=(300, 10)) + 2.0 * (sex == "m")[:, None]
    return X, FairStreamingPCA(3, whiten=True).fit(X, sensitive_features=sex).subspace_


def test_without_torch_the_extra_is_named(fitted, monkeypatch):
    monkeypatch.setattr("fairstream.files.torch_module.torch", None)
    with pytest.raises(ImportError, match=r"a torch module needs torch: pip install 'fairstream\[torch\]'"):
        fitted[1].to_torch()


def test_it_does_what_the_subspace_does(fitted, torch):
    X, subspace = fitted
    module, rows = subspace.to_torch(), torch.tensor(X)
    assert np.allclose(module(rows).numpy(), subspace.embed(X))
    assert np.allclose(module.erase(rows).numpy(), subspace.erase(X))
    assert np.allclose(module.reconstruct(module(rows)).numpy(), subspace.reconstruct(subspace.embed(X)))
    assert "n_features=10, n_components=3" in repr(module)


@pytest.mark.filterwarnings("ignore:a guarded model hides groups")
def test_a_guarded_model_erases_all_but_its_scores(fitted, torch):
    X, plain = fitted
    subspace = dataclasses.replace(plain, parameters={**plain.parameters, "guard": 1.0})
    assert np.allclose(subspace.to_torch().erase(torch.tensor(X)).numpy(), subspace.erase(X))


def test_tokens_keep_their_axes(fitted, torch):
    X, subspace = fitted
    module, tokens = subspace.to_torch(), torch.tensor(X).reshape(5, 60, 10)
    assert module(tokens).shape == (5, 60, 3)
    assert torch.equal(module.erase(tokens), module.erase(torch.tensor(X)).reshape(5, 60, 10))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_half_precision_is_rounded_once(fitted, torch, dtype):
    """The control: a module in half precision itself is further off."""
    X, subspace = fitted
    rows = torch.tensor(X).to(getattr(torch, dtype))
    found = subspace.to_torch().erase(rows)
    assert found.dtype == rows.dtype
    exact = subspace.to_torch().erase(rows.double())
    assert torch.equal(found, exact.to(rows.dtype))
    low = subspace.to_torch().to(rows.dtype).erase(rows)
    assert (low.double() - exact).abs().max() > (found.double() - exact).abs().max()


def test_gradients_pass_through_and_buffers_stay(fitted, torch):
    X, subspace = fitted
    rows = torch.tensor(X, requires_grad=True)
    first, last = torch.nn.Linear(10, 10).double(), torch.nn.Linear(3, 1).double()
    model = torch.nn.Sequential(first, subspace.to_torch(), last)
    model(rows).sum().backward()
    assert rows.grad is not None
    assert {name for name, _ in model.named_parameters()} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_state_dict_saves_and_restores_it(fitted, torch, tmp_path):
    X, subspace = fitted
    module = subspace.to_torch()
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = copy.deepcopy(module)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(torch.tensor(X)), module(torch.tensor(X)))
    assert torch.equal(
        pickle.loads(pickle.dumps(module)).erase(torch.tensor(X)), module.erase(torch.tensor(X))
    )


def test_it_is_a_copy(fitted, torch):
    """A module that is trained on, moved or zeroed leaves the frozen subspace as it was."""
    _, subspace = fitted
    subspace.to_torch().mean.zero_()
    assert np.abs(subspace.mean).min() > 0


def test_it_compiles_to_a_graph(fitted, torch):
    X, subspace = fitted
    exported = torch.export.export(subspace.to_torch(), (torch.tensor(X),))
    assert torch.allclose(exported.module()(torch.tensor(X)), subspace.to_torch()(torch.tensor(X)))
