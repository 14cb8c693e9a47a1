"""Files: what is written is read back bit for bit, atomically, or refused with the typed error."""

import dataclasses
import datetime
import json
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from support.file_damage import resealed, start_of
from support.memory import peak_of

import fairstream
from fairstream import (
    FairstreamFileError,
    FairStreamingPCA,
    FairstreamWarning,
    FairSubspace,
    GroupMoments,
    load,
    solve,
)
from fairstream.data.schema import Schema
from fairstream.files import format as persist
from fairstream.linalg import top_eigenpairs

D = 12


def blocks(n_blocks=6, n=80, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    for _ in range(n_blocks):
        groups = {
            "sex": rng.choice(["f", "m"], n).tolist(),
            "age": rng.choice([1, 2, 3], n).tolist(),
            "member": rng.choice([True, False], n).tolist(),
            "score": rng.choice([0.1, 2.5], n).tolist(),
        }
        yield (rng.normal(size=(n, D)) * np.arange(1, D + 1)).astype(dtype), groups


def collected(rank=None, dtype=np.float64, **how):
    moments = GroupMoments(D, rank, dtype)
    for X, groups in blocks(dtype=dtype, **how):
        moments.update(X, groups)
    return moments


def assert_same_state(one, two):
    (header, arrays), (header_two, arrays_two) = one.to_state(), two.to_state()
    assert json.dumps(header) == json.dumps(header_two)
    assert arrays.keys() == arrays_two.keys()
    for name, array in arrays.items():
        assert array.dtype == arrays_two[name].dtype
        assert array.tobytes() == arrays_two[name].tobytes(), name


KINDS = [(None, np.float64), (None, np.float32), (4, np.float64), (4, np.float32)]


@pytest.mark.parametrize(("rank", "dtype"), KINDS)
def test_moments_come_back_bit_for_bit_and_go_on_alike(tmp_path, rank, dtype):
    moments = collected(rank, dtype)
    moments.save(tmp_path / "a.moments")
    again = load(tmp_path / "a.moments")
    assert type(again) is GroupMoments
    assert again.groups == moments.groups
    assert_same_state(again, moments)
    for X, groups in blocks(seed=1, dtype=dtype):
        moments.update(X, groups)
        again.update(X, groups)
    assert_same_state(again, moments)


@pytest.mark.parametrize(("rank", "dtype"), KINDS)
def test_a_subspace_comes_back_bit_for_bit(tmp_path, rank, dtype):
    subspace = solve(collected(rank, dtype), 3, 1, "mean", feature_names=tuple("abcdefghijkl"))
    subspace.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert type(again) is FairSubspace
    assert_same_state(again, subspace)
    assert again.group_counts == subspace.group_counts
    assert again.parameters == subspace.parameters
    assert again.feature_names == subspace.feature_names
    X = np.random.default_rng(0).normal(size=(5, D))
    np.testing.assert_array_equal(again.embed(X), subspace.embed(X))


@pytest.mark.parametrize("solver", ["exact", "sketch"])
def test_a_half_finished_fit_goes_on_after_loading(tmp_path, solver):
    estimator = FairStreamingPCA(
        2, n_unfair={"sex": 1, "age": 1, "member": 0, "score": 1}, solver=solver, rank=None
    )
    data = list(blocks())
    for X, groups in data[:3]:
        estimator.partial_fit(X, sensitive_features=groups)
    estimator.save(tmp_path / "half.safetensors")
    again = load(tmp_path / "half.safetensors")
    assert again.get_params() == estimator.get_params()
    for X, groups in data[3:]:
        estimator.partial_fit(X, sensitive_features=groups)
        again.partial_fit(X, sensitive_features=groups)
    np.testing.assert_array_equal(again.components_, estimator.components_)
    assert_same_state(again, estimator)


def test_a_finished_fit_with_feature_names_is_whole_after_loading(tmp_path):
    pd = pytest.importorskip("pandas")
    X, groups = next(blocks(n=300))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    estimator = FairStreamingPCA(2).fit(frame, sensitive_features=groups["sex"])
    estimator.save(tmp_path / "fit.safetensors")
    again = load(tmp_path / "fit.safetensors")
    np.testing.assert_array_equal(again.transform(frame), estimator.transform(frame))
    assert again.feature_names_in_.tolist() == frame.columns.tolist()
    assert again.get_feature_names_out().tolist() == estimator.get_feature_names_out().tolist()


def test_an_unfitted_estimator_has_nothing_to_save(tmp_path):
    with pytest.raises(NotFittedError):
        FairStreamingPCA(2).save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_generator_as_random_state_is_refused_by_name(tmp_path):
    X, groups = next(blocks())
    estimator = FairStreamingPCA(2, random_state=np.random.RandomState(0)).fit(
        X, sensitive_features=groups["sex"]
    )
    with pytest.raises(ValueError, match="random_state is a RandomState"):
        estimator.save(tmp_path / "x")
    estimator.set_params(random_state=7).save(tmp_path / "x")
    assert load(tmp_path / "x").random_state == 7


def test_labels_keep_their_types(tmp_path):
    moments = collected()
    moments.save(tmp_path / "a")
    groups = load(tmp_path / "a").groups
    assert [type(labels[0]) for labels in groups.values()] == [str, int, bool, float]
    assert groups["score"] == (0.1, 2.5)


@pytest.mark.parametrize("label", [datetime.date(2000, 1, 1), ("a", 1), b"f", 1 + 2j])
def test_other_label_types_are_refused_by_name(tmp_path, label):
    X = np.random.default_rng(0).normal(size=(6, D))
    moments = GroupMoments(D).update(X, {"sex": [label, "x"] * 3})
    with pytest.raises(ValueError, match=f"'sex' is of type {type(label).__name__}"):
        moments.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_an_attribute_without_a_known_label_survives(tmp_path):
    moments = GroupMoments(2).update(np.eye(2), {"sex": [None, None]})
    moments.save(tmp_path / "a")
    assert load(tmp_path / "a").groups == {"sex": ()}


def test_the_file_is_a_safetensors_file(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    moments = collected(4, np.float32)
    moments.save(tmp_path / "a")
    with safetensors.safe_open(str(tmp_path / "a"), "numpy") as file:
        assert set(file.keys()) == {"weights", "means", "basis", "cores", "energy", "row_marks"}
        np.testing.assert_array_equal(file.get_tensor("basis"), moments._scatter.basis)
        about = json.loads(file.metadata()["fairstream"])
    assert about["kind"] == "GroupMoments"
    assert about["format_version"] == persist.FORMAT_VERSION
    assert about["versions"]["fairstream"] == fairstream.__version__


def test_a_file_of_the_first_sketch_is_read_and_learns_on():
    """It holds coordinates of the means too, and cuts where there are steps now."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12)) * np.arange(1, 13) ** -1.0
    sex = np.arange(300) % 2
    X[:, 0] += sex
    stored = load(STORED / "format-1-sketch.moments")
    assert (stored.rank, stored.n_rows) == (4, 300)
    assert stored.total_variance == pytest.approx(X.var(axis=0).sum())
    exact = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1][:3]
    for moments in (stored, stored.update(X, {"sex": sex})):
        np.testing.assert_allclose(top_eigenpairs(moments.covariance(), 3)[0], exact, rtol=0.02)
    assert stored.n_rows == 600


def test_the_digest_covers_the_whole_file(tmp_path):
    import hashlib

    collected().save(tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    digest = data[35:99].decode()
    data[35:99] = b"0" * 64
    assert hashlib.sha256(data).hexdigest() == digest


def test_column_order_is_kept(tmp_path):
    array = np.asfortranarray(np.random.default_rng(0).normal(size=(3, 5)))
    persist.write_file(
        tmp_path / "a", "Test", {}, {"A": array, "B": array.T.copy(), "C": np.zeros((2, 0, 3))}
    )
    _, arrays = persist.read_file(tmp_path / "a")
    assert arrays["A"].flags.f_contiguous
    assert not arrays["A"].flags.c_contiguous
    np.testing.assert_array_equal(arrays["A"], array)
    np.testing.assert_array_equal(arrays["B"], array.T)
    assert arrays["C"].shape == (2, 0, 3)


def test_moments_of_other_columns_do_not_merge():
    one, two = collected(), collected()
    one.schema, two.schema = Schema(tuple("abcdefghijkl")), Schema(tuple("bacdefghijkl"))
    with pytest.raises(ValueError, match="another feature_names"):
        one.merge(two)
    two.schema = one.schema
    assert one.merge(two).n_rows == 2 * two.n_rows


# Files of every format version that was ever written stay readable -----------------------------------

STORED = Path(__file__).parent / "stored"


def whole_numbers():
    """Data whose moments are exact in any order of summation."""
    X = np.array(
        [[4.0, 0, 0], [-4, 0, 0], [0, 2, 0], [0, -2, 0], [0, 0, 1], [0, 0, -1], [8, 8, 8], [-8, -8, -8]]
    )
    return X, {"sex": ["f", "f", "m", "m", "f", "f", "m", "m"], "old": [True, False] * 4}


def test_moments_of_format_1_are_read():
    moments = load(STORED / "format-1.moments")
    X, groups = whole_numbers()
    assert moments.groups == {"sex": ("f", "m"), "old": (False, True)}
    assert moments.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(moments.covariance().to_dense(), X.T @ X / len(X))
    assert moments.update(X, groups).n_rows == 16


def test_subspaces_of_format_1_are_read():
    subspace = load(STORED / "format-1.safetensors")
    assert subspace.components.shape == (1, 3)
    assert subspace.group_counts["old"] == {False: 4, True: 4}
    assert subspace.feature_names == ("a", "b", "c")
    assert subspace.parameters["constraint"] == "mean"


def test_estimators_of_format_1_are_read():
    estimator = load(STORED / "format-1-fit.safetensors")
    X, groups = whole_numbers()
    assert estimator.constraint == "mean"
    assert estimator.partial_fit(X, sensitive_features=groups).n_samples_seen_ == 16


# Atomicity ----------------------------------------------------------------------------------------


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a"
    collected().save(path)
    before = path.read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        collected(seed=5).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_data_reach_the_disk_before_the_name_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor):
        calls.append("folder" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "file")
        fsync(descriptor)

    def noted_replace(draft, target):
        assert Path(draft).parent == Path(target).parent
        calls.append("rename")
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    collected().save(tmp_path / "a")
    assert calls == ["file", "rename", "folder"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder: make it"):
        collected().save(tmp_path / "no" / "a")


def test_threads_may_save_to_one_path_at_a_time(tmp_path):
    path, several = tmp_path / "a", [collected(seed=seed) for seed in range(4)]
    several[0].save(path)
    problems, ended = [], threading.Event()

    def write(moments):
        try:
            for _ in range(40):
                moments.save(path)
        except OSError as error:
            problems.append(error)

    def read():
        while not ended.is_set():
            try:
                load(path)
            except (OSError, FairstreamFileError) as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(moments,)) for moments in several]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    assert not problems
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_overwriting_keeps_the_mode_and_a_new_file_follows_the_umask(tmp_path):
    path = tmp_path / "a"
    before = os.umask(0o027)
    try:
        collected().save(path)
        assert path.stat().st_mode & 0o777 == 0o640
        for mode in (0o600, 0o664):
            path.chmod(mode)
            collected(seed=2).save(path)
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


# What is refused ----------------------------------------------------------------------------------


def test_a_missing_file_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "a")
    with pytest.raises(FairstreamFileError, match="not a regular file"):
        load(tmp_path)


def test_a_later_format_asks_for_an_upgrade(tmp_path):
    collected().save(tmp_path / "a")
    about, table = start_of((tmp_path / "a").read_bytes())
    about["format_version"] = 2
    (tmp_path / "a").write_bytes(resealed((tmp_path / "a").read_bytes(), about, table))
    with pytest.raises(FairstreamFileError, match=r"format version 2.*upgrade"):
        load(tmp_path / "a")


def test_an_unknown_kind_is_refused(tmp_path):
    persist.write_file(tmp_path / "a", "Surprise", {}, {})
    with pytest.raises(FairstreamFileError, match="'Surprise'"):
        load(tmp_path / "a")


def test_resealing_itself_does_not_damage(tmp_path):
    """The control for the resealed files of the damage tests."""
    collected().save(tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(resealed(data, *start_of(data)))
    assert load(tmp_path / "a").groups == collected().groups


def test_loading_takes_no_more_than_twice_the_file(tmp_path):
    path = tmp_path / "a"
    GroupMoments(400).update(np.random.default_rng(0).normal(size=(50, 400)), {"sex": ["f", "m"] * 25}).save(
        path
    )
    peak, held = peak_of(lambda: load(path))
    assert held.n_rows == 50
    assert peak <= 2 * path.stat().st_size


# ONNX ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_onnx_embeds_as_we_do(tmp_path, dtype):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    subspace = solve(collected(dtype=dtype), 3, constraint="mean")
    subspace.to_onnx(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["Sub", "MatMul"]
    X = np.random.default_rng(0).normal(size=(7, D)).astype(dtype)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (embedded,) = session.run(None, {"X": X})
    np.testing.assert_allclose(
        embedded, subspace.embed(X), rtol=1e-4, atol=1e-5 if dtype == np.float32 else 1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constraint", ["mean", "none"])
def test_onnx_erases_as_we_do(tmp_path, dtype, constraint):
    runtime = pytest.importorskip("onnxruntime")
    subspace = solve(collected(dtype=dtype), 3, constraint=constraint)
    subspace.to_onnx(tmp_path / "eraser.onnx", "erase")
    X = np.random.default_rng(0).normal(size=(7, D)).astype(dtype)
    session = runtime.InferenceSession(str(tmp_path / "eraser.onnx"), providers=["CPUExecutionProvider"])
    (erased,) = session.run(["erased"], {"X": X})
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(erased, subspace.erase(X), rtol=1e-4, atol=tolerance)


@pytest.mark.filterwarnings("ignore:a guarded model hides groups")
@pytest.mark.parametrize("choice", [{"whiten": True}, {"guard": 1.0}])
def test_onnx_of_whitened_and_guarded_models(tmp_path, choice):
    runtime = pytest.importorskip("onnxruntime")
    plain = solve(collected(), 3, constraint="mean")
    subspace = dataclasses.replace(plain, parameters={**plain.parameters, **choice})
    X = np.random.default_rng(0).normal(size=(7, D))
    for verb in ("embed", "erase"):
        subspace.to_onnx(tmp_path / "model.onnx", verb)
        session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"X": X})
        np.testing.assert_allclose(found, getattr(subspace, verb)(X), atol=1e-12)
    with pytest.raises(ValueError, match="verb='remove' is not one of 'embed', 'erase'"):
        subspace.to_onnx(tmp_path / "model.onnx", "remove")


@pytest.mark.parametrize("verb", ["embed", "erase"])
def test_onnx_of_a_model_with_dither_says_that_it_adds_none(tmp_path, verb):
    pytest.importorskip("onnx")
    plain = solve(collected(), 3, constraint="mean")
    noisy = dataclasses.replace(plain, parameters={**plain.parameters, "dither": 0.3})
    with pytest.warns(FairstreamWarning, match=r"meant to be used with dither=0\.3, which ONNX does not add"):
        noisy.to_onnx(tmp_path / "model.onnx", verb)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.to_onnx(tmp_path / "plain.onnx", verb)  # the control


def test_a_missing_onnx_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"fairstream\[onnx\]"):
        solve(collected(), 3, constraint="mean").to_onnx(tmp_path / "model.onnx")
