"""Screening by name with the power method and on a cluster: exact zeros, the rest as the moments have it."""

import numpy as np
import pandas as pd
import pytest
from support.bits import assert_same_bits

from fairstream import FairEraser, FairStreamingPCA, load
from fairstream.data import open_source
from fairstream.data.blocks import SourceAround
from fairstream.linalg import principal_angles
from fairstream.streaming.fit import fit_source

NAMES = [*"abcdefgh"]
SCREEN = ["b", "job"]
COMMON = {"n_components": 2, "constraint": "mean", "screen": SCREEN, "sensitive_columns": ["sex"]}
POWER = {**COMMON, "solver": "power", "power_steps": 40, "random_state": 0}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1_200, 8)) * np.linspace(6, 1, 8) + 3, columns=NAMES)
    frame["sex"] = rng.choice(["f", "m"], 1_200)
    frame["b"] += 3 * (frame["sex"] == "m")
    other = np.where(frame["sex"] == "m", "driver", "nurse")
    frame["job"] = np.where(rng.random(1_200) < 0.5, "clerk", other)
    return frame


@pytest.fixture(scope="module")
def source(people):
    return open_source(people, sensitive_features=["sex"], block_size=100)


@pytest.fixture(scope="module")
def exact(source):
    return fit_source(source, **COMMON)


def _assert_same(fitted, exact):
    ours, theirs = fitted.subspace_, exact.subspace_
    screened = [name == "b" or name.startswith("job=") for name in theirs.feature_names]
    assert sum(screened) == 4
    assert not ours.components[:, screened].any()  # to the bit
    assert not ours.unfair_basis[4:, screened].any()
    np.testing.assert_array_equal(ours.unfair_basis[:4], np.eye(len(screened))[screened])
    assert ours.parameters["n_screened"] == theirs.parameters["n_screened"] == 4
    assert principal_angles(ours.components.T, theirs.components.T).max() < 1e-3
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.total_variance, theirs.total_variance, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance, theirs.explained_variance, rtol=1e-3)
    assert ours.group_counts == theirs.group_counts
    for label in ("f", "m"):
        np.testing.assert_allclose(
            ours.group_means["sex"][label], theirs.group_means["sex"][label], atol=1e-9
        )


def test_the_power_method_screens_names_like_the_moments(source, exact):
    _assert_same(fit_source(source, **POWER), exact)


@pytest.mark.filterwarnings("ignore:the power method has not converged")
def test_a_frame_in_memory_and_a_stream_of_steps_screen_too(people, exact):
    numbers = people[[*NAMES, "sex"]]
    options = {**POWER, "screen": ["b", "d"]}
    pca = FairStreamingPCA(**options).fit(numbers)
    assert not pca.components_[:, [1, 3]].any()
    assert pca.components_[:, [0, 2]].any()
    streamed = FairStreamingPCA(**{**options, "step_rows": (100, 100), "power_steps": 3})
    for start in range(0, 1_200, 150):
        streamed.partial_fit(numbers.iloc[start : start + 150])
    assert not streamed.components_[:, [1, 3]].any()
    assert streamed.n_samples_seen_ == 1_200
    np.testing.assert_allclose(streamed.mean_, numbers[NAMES].mean(), rtol=1e-9)
    variances = numbers[NAMES].var().sum()
    np.testing.assert_allclose(streamed.subspace_.total_variance, variances, rtol=1e-9)
    options = {name: value for name, value in options.items() if name != "n_components"}
    erased = FairEraser(**options).fit_transform(numbers)
    np.testing.assert_allclose(erased["b"], numbers["b"].mean(), atol=1e-9)


class _Breaks(SourceAround):
    def __iter__(self):
        for number, block in enumerate(self._source):
            if number == 7:
                raise OSError("the disk is gone")
            yield block


def test_a_screened_power_fit_is_stored_and_resumed_to_the_bit(source, tmp_path):
    options = {**POWER, "step_rows": (100, 100), "power_steps": 3}
    whole = fit_source(source, **options)
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(_Breaks(source), checkpoint=tmp_path / "half", every=100, **options)
    resumed = fit_source(source, checkpoint=tmp_path / "half", resume=True, **options)
    assert_same_bits(resumed.subspace_, whole.subspace_)
    whole.save(tmp_path / "fit")
    assert_same_bits(load(tmp_path / "fit").subspace_, whole.subspace_)


def test_columns_that_only_moments_rank_and_rows_without_names_are_refused(people):
    X, sex = people[NAMES].to_numpy(), people["sex"].to_numpy()
    options = {"n_components": 2, "solver": "power", "random_state": 0}
    for screen in (2, 0.5):
        with pytest.raises(ValueError, match=f"screen={screen} needs moments"):
            FairStreamingPCA(screen=screen, **options).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="names columns, the rows have no names"):
        FairStreamingPCA(screen=["b"], **options).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="screen names 'z', which is no column"):
        FairStreamingPCA(screen=["z"], **options).fit(people[NAMES], sensitive_features=sex)


@pytest.mark.slow
def test_a_cluster_screens_with_moments_and_with_the_power_method(source, exact):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.Client(set_as_default=False, **options) as client:
        for parameters in (COMMON, {**COMMON, "screen": 2}, POWER):
            fitted = fit_source(source, client=client, partition_rows=300, **parameters)
            _assert_same(fitted, exact)
