"""Fits that keep a sample of rows: checkpoints hold it only if told to by name, and resume to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from support.bits import assert_same_bits
from support.command import run

from fairstream import load
from fairstream.data import open_source
from fairstream.data.blocks import SourceAround
from fairstream.streaming.checkpoint_folder import CheckpointFolder
from fairstream.streaming.fit import fit_source

pytestmark = pytest.mark.filterwarnings("ignore:the guard has not converged")
CHOICES = {"n_components": 2, "constraint": "none", "guard": 1.0, "keep_target": 1.0, "sample": 60}


class _Breaks(SourceAround):
    """A source whose reading fails after some blocks."""

    def __init__(self, source, after):
        super().__init__(source)
        self._after = after

    def __iter__(self):
        for number, block in enumerate(self._source):
            if number == self._after:
                raise OSError("the disk is gone")
            yield block


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr("fairstream.subspace.guard.STEPS", 5)


@pytest.fixture
def source():
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(400, 6)), rng.integers(0, 2, 400)
    X[sex == 1, 0] = np.abs(X[sex == 1, 0])
    y = (X[:, 1] > 0).astype(float)
    return open_source(X, sensitive_features={"sex": sex}, target=y, block_size=50)


@pytest.mark.parametrize("solver", [{}, {"solver": "sketch", "rank": 2}], ids=["exact", "sketch"])
def test_a_guarded_fit_resumes_from_its_checkpoint_to_the_bit(source, tmp_path, solver):
    whole = fit_source(source, **CHOICES, **solver)
    options = {"checkpoint": tmp_path / "half", "every": 50, "with_sample": True, **CHOICES, **solver}
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(_Breaks(source, after=5), **options)
    held = CheckpointFolder(tmp_path / "half").newest()
    assert held.rows == 250
    assert 0 < len(held.estimator.moments_.sample) <= 120
    resumed = fit_source(source, resume=True, **options)
    assert_same_bits(resumed.moments_, whole.moments_)
    for name in ("X", "weights", "target"):
        ours, theirs = (getattr(of.moments_.sample.rows(), name) for of in (resumed, whole))
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


def test_a_guarded_fit_does_not_resume_with_another_target(source, tmp_path):
    class Other(SourceAround):
        def __iter__(self):
            for block in self._source:
                yield replace(block, target=1 - block.target)

    options = {"checkpoint": tmp_path / "half", "every": 50, "with_sample": True, **CHOICES}
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(_Breaks(source, after=5), **options)
    with pytest.raises(ValueError, match="the targets differ"):
        fit_source(Other(source), resume=True, **options)
    unkept = {
        **options,
        "keep_target": 0.0,
        "checkpoint": tmp_path / "unkept",
    }  # the control: not learned from
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(_Breaks(source, after=5), **unkept)
    fit_source(Other(source), resume=True, **unkept)


def test_a_checkpoint_holds_sampled_rows_only_if_told_to_by_name(source, tmp_path):
    with pytest.raises(ValueError, match=r"would hold the rows .* pass with_sample=True"):
        fit_source(source, checkpoint=tmp_path / "c", **CHOICES)
    with pytest.raises(ValueError, match="would hold the rows"):
        fit_source(source, checkpoint=tmp_path / "c", n_components=2, sample=10)
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError, match="with_sample is given without checkpoint"):
        fit_source(source, with_sample=True, **CHOICES)
    fit_source(source, checkpoint=tmp_path / "told", with_sample=True, **CHOICES)
    fit_source(source, checkpoint=tmp_path / "plain", with_sample=True, n_components=2)
    (told,), (plain,) = ([*(tmp_path / name).glob("*.safetensors")] for name in ("told", "plain"))
    assert "treat this as row-level data" in load(told).describe()["sample"]
    assert "sample" not in load(plain).describe()  # the control: there is none


def test_the_command_line_lets_checkpoints_hold_sampled_rows_by_name(source, tmp_path):
    blocks = [*source]
    X, sex = (
        np.concatenate([pick(b) for b in blocks]) for pick in (lambda b: b.X, lambda b: b.groups["sex"].codes)
    )
    np.save(tmp_path / "rows.npy", np.column_stack([X, sex]))
    fit = ["fit", tmp_path / "rows.npy", "-s", 6, "-k", 2, "--constraint", "none", "--guard", 1]
    fit += ["--checkpoint", tmp_path / "folder"]
    failed = run(*fit, "-o", tmp_path / "model.safetensors", code=1)
    assert "--with-sample" in failed.stderr
    run(*fit, "--with-sample", "-o", tmp_path / "model.safetensors")
    assert "sampled rows" in run("inspect", next((tmp_path / "folder").glob("*.safetensors"))).stdout
