"""Damaged and foreign files are refused with the typed error, cheaply; even those with a right digest."""

import json
import pickle
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from support.file_damage import DAMAGES, Bomb, resealed, start_of

from fairstream import FairstreamFileError, FairStreamingPCA, GroupMoments, load, solve
from fairstream.data.schema import Schema
from fairstream.files import format as persist

ROUNDS = 140  # times 15 kinds of damage: 2,100 files
SMALL_CHANGE = 32_768  # the interpreter's own: file buffer, messages


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(200, 20)), rng.choice(["f", "m"], 200)
    GroupMoments(20).update(X, {"sex": sex}).save(folder / "exact")
    sketch = GroupMoments(20, 4, np.float32).update(X, {"sex": sex})
    sketch.save(folder / "sketch")
    solve(GroupMoments(20).update(X, {"sex": sex}), 3).save(folder / "subspace")
    FairStreamingPCA(2).fit(-X, sensitive_features={"sex": sex}).save(folder / "estimator")
    return [(folder / name).read_bytes() for name in ("exact", "sketch", "subspace", "estimator")]


def test_the_originals_load(originals, tmp_path):
    for data in originals:
        (tmp_path / "a").write_bytes(data)
        load(tmp_path / "a")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_and_cost_no_more_than_twice_their_size(originals, tmp_path, damage):
    rng = np.random.default_rng(len(damage.__name__))
    path = tmp_path / "a"
    tracemalloc.start()
    try:
        for turn in range(ROUNDS):
            which = turn % len(originals)
            others = originals[:which] + originals[which + 1 :]
            damaged = damage(originals[which], others, rng)
            path.write_bytes(damaged)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(FairstreamFileError) as refusal:
                load(path)
            assert tracemalloc.get_traced_memory()[1] - before <= 2 * len(damaged) + SMALL_CHANGE
            assert str(path) in str(refusal.value)
    finally:
        tracemalloc.stop()
    assert not Bomb.exploded


def test_the_bomb_would_have_exploded():
    """The control: unpickling such a file does run code."""
    pickle.loads(pickle.dumps(Bomb()))
    assert Bomb.exploded
    Bomb.exploded = False


@pytest.mark.parametrize(
    ("damage", "message"),
    [("truncated", "cut short"), ("extended", "longer than"), ("bit_flipped", "SHA-256 differs")],
)
def test_the_error_says_what_happened(originals, tmp_path, damage, message):
    data = originals[0]
    damaged = {"truncated": data[:-1], "extended": data + b"x", "bit_flipped": data[:-1] + b"\xff"}[damage]
    (tmp_path / "a").write_bytes(damaged)
    with pytest.raises(FairstreamFileError, match=message):
        load(tmp_path / "a")


# Forged: the digest is right, the contents are not ------------------------------------------------


def mutations(value):
    """Yield copies of a JSON value with one entry replaced by something it cannot be."""
    wrong = [None, -1, 10**30, 1e300, "x", [], {}, True, [[[]]]]
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: changed} for changed in [*wrong, *mutations(inner)])
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            yield [*value[:index], *value[index + 1 :]]
            changes = [*wrong, *mutations(inner)]
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in changes)


def load_or_refuse(path, data):
    path.write_bytes(data)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        load(path)
        refused = False
    except FairstreamFileError:
        refused = True
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak <= 4 * len(data) + 2**18, "a forged header must not make us allocate at will"
    return refused


@pytest.mark.parametrize("which", range(4))
def test_forged_headers_are_refused_or_harmless(originals, tmp_path, which):
    data = originals[which]
    about, table = start_of(data)
    tracemalloc.start()
    try:
        refused = [load_or_refuse(tmp_path / "a", resealed(data, m, table)) for m in mutations(about)]
        refused_tables = [load_or_refuse(tmp_path / "a", resealed(data, about, m)) for m in mutations(table)]
    finally:
        tracemalloc.stop()
    assert sum(refused) > len(refused) / 3
    assert all(refused_tables)


def test_deeply_nested_json_is_refused(originals, tmp_path):
    about, table = start_of(originals[0])
    for text in (
        "[" * 200_000,
        json.dumps(about)[:-1] + ',"x":' + "[" * 200_000,
        "null",
        "3",
        '"x"',
        "{",
        "",
    ):
        (tmp_path / "a").write_bytes(resealed(originals[0], text, table))
        with pytest.raises(FairstreamFileError):
            load(tmp_path / "a")


@pytest.mark.parametrize("deep", [40, 600, 900])
@pytest.mark.parametrize("which", range(4))
def test_json_nested_deep_within_the_state_is_refused(originals, tmp_path, which, deep):
    about, table = start_of(originals[which])
    nested = {}
    for _ in range(deep):
        nested = {"x": nested}
    about["state"]["parameters"] = nested
    (tmp_path / "a").write_bytes(resealed(originals[which], about, table))
    with pytest.raises(FairstreamFileError, match="nested more than 32 deep"):
        load(tmp_path / "a")


@pytest.mark.parametrize("shape", [[1] * 65 + [0], [0] * 9, [2**40, 2**40, 0], [2**62, 4, 0]])
def test_shapes_that_numpy_cannot_have_are_refused(originals, tmp_path, shape):
    about, table = start_of(originals[0])
    table["extra"] = {"dtype": "F64", "shape": shape, "data_offsets": [0, 0]}
    (tmp_path / "a").write_bytes(resealed(originals[0], about, table))
    with pytest.raises(FairstreamFileError, match="'extra' of a size that is not its shape's"):
        load(tmp_path / "a")


def peak_of_refusal(path, match):
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(FairstreamFileError, match=match):
            load(path)
        return tracemalloc.get_traced_memory()[1], time.perf_counter() - began
    finally:
        tracemalloc.stop()


def test_a_file_of_empty_arrays_is_refused_within_twice_its_size(originals, tmp_path):
    about, table = start_of(originals[0])
    table |= {f"a{i}": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]} for i in range(200_000)}
    data = resealed(originals[0], about, table)
    (tmp_path / "a").write_bytes(data)
    peak, seconds = peak_of_refusal(tmp_path / "a", "header out of proportion")
    assert peak <= 2 * len(data)
    assert seconds < 2


@pytest.mark.slow
def test_a_header_of_many_small_values_is_refused_within_twice_its_size(originals, tmp_path):
    about, table = start_of(originals[2])
    about["state"]["feature_names"] = [[] for _ in range(3_000_000)]
    data = resealed(originals[2], about, table)
    (tmp_path / "a").write_bytes(data)
    peak, _ = peak_of_refusal(tmp_path / "a", "header out of proportion")
    assert peak <= 2 * len(data)


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    arrays = {f"a{i}": np.zeros(0) for i in range(persist.MAX_ARRAYS + 1)}
    with pytest.raises(ValueError, match="more than 10,000"):
        persist.write_file(tmp_path / "a", "GroupMoments", {}, arrays)
    assert not list(tmp_path.iterdir())


def test_a_model_of_many_named_features_and_groups_is_within_proportion(tmp_path):
    """The control: the widest headers that fits lead to are read back."""
    rng, d = np.random.default_rng(0), 3_000
    X, g = rng.normal(size=(2_000, 2)), rng.permutation(2_000) % 1_000
    moments = GroupMoments(2).update(X, {"zip, code": [f"[{g}, {g})" for g in g], "b": g, "c": g % 500})
    solve(moments, 1, constraint="none").save(tmp_path / "groups")
    assert len(load(tmp_path / "groups").groups["b"]) == 1_000
    wide = GroupMoments(d, 4, np.float32).update(rng.normal(size=(50, d)), {"sex": ["f", "m"] * 25})
    names = tuple(f"income = ({j}, {j + 1}], k, [a, b]" for j in range(d))
    wide.schema = Schema(names, {"columns": {name: {"mean": 0.5, "std": 1.5} for name in names}})
    wide.save(tmp_path / "names")
    assert load(tmp_path / "names").feature_names == wide.feature_names


# Forged: right in form, impossible in content -----------------------------------------------------


def power_estimator():
    rng = np.random.default_rng(0)
    estimator = FairStreamingPCA(2, solver="power", step_rows=(50, 50), power_steps=(2, 2), random_state=0)
    return estimator.fit(rng.normal(size=(230, 6)), sensitive_features=rng.choice(["f", "m"], 230))


def objects():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(200, 6)), {"sex": rng.choice(["f", "m"], 200)}
    moments = GroupMoments(6).update(X, groups)
    return {
        "exact": moments,
        "sketch": GroupMoments(6, 2, np.float32).update(X, groups),
        "subspace": solve(moments, 2),
        "estimator": FairStreamingPCA(2).fit(X, sensitive_features=groups),
        "power": power_estimator(),
    }


def forged(path, held, array=None, change=None, **header):
    """Write the object's file with one array or some entries of its header changed."""
    state, arrays = held.to_state()
    arrays = {name: np.array(value, order="K") for name, value in arrays.items()}
    if array is not None:
        arrays[array] = change(arrays[array])
    persist.write_file(path, held.kind, state | header, arrays)


ARRAYS = [
    (name, array)
    for name, held in objects().items()
    for array, values in held.to_state()[1].items()
    if values.dtype.kind == "f" and values.size
]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("name", "array"), ARRAYS)
def test_nan_in_any_array_is_refused_when_loading_and_when_saving(tmp_path, monkeypatch, name, array, value):
    held = objects()[name]

    def poisoned(values):
        values.flat[-1] = value
        return values

    with pytest.raises(ValueError, match=f"{array} has NaN or infinite values"):
        forged(tmp_path / "a", held, array, poisoned)
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(persist, "is_finite", lambda array: True)
        forged(tmp_path / "a", held, array, poisoned)
    with pytest.raises(FairstreamFileError, match=f"NaN or infinite values in '{array}'"):
        load(tmp_path / "a")


def zeroed(values):
    return np.zeros_like(values)


def negated(values):
    return -values


def first_row_twice(values):
    values[1] = values[0]
    return values


def first_component(values):
    """Replace a row by something within the span of the others of the subspace."""
    rows = objects()["subspace"].components
    values[0] = rows[0]
    return values


@pytest.mark.parametrize(
    ("name", "array", "change", "message"),
    [
        ("subspace", "components", zeroed, "components are not orthonormal"),
        ("subspace", "components", lambda values: 1.001 * values, "components are not orthonormal"),
        ("subspace", "components", first_row_twice, "components are not orthonormal"),
        ("subspace", "unfair_basis", zeroed, "unfair basis are not orthonormal"),
        ("subspace", "unfair_basis", first_component, "not orthonormal|not orthogonal"),
        ("subspace", "explained_variance", negated, "explained_variance has values down to"),
        ("exact", "weights", negated, "weights has values down to"),
        ("exact", "weights", lambda values: values * [1, 3, 1], "weights of groups and of all rows"),
        ("exact", "cores", negated, "variances has values down to"),
        ("estimator", "cores", negated, "variances has values down to"),
        ("sketch", "energy", negated, "variances has values down to"),
        ("sketch", "cores", negated, "variances has values down to"),
        ("sketch", "basis", lambda values: 2 * values, "basis are not orthonormal"),
        ("power", "counts", negated, "counts has values down to"),
        ("power", "variances", negated, "variances has values down to"),
        ("power", "U", zeroed, "unfair basis are not orthonormal"),
        ("power", "Q", lambda values: 2 * values, "components are not orthonormal"),
    ],
)
def test_arrays_that_no_fit_leaves_are_refused(tmp_path, name, array, change, message):
    forged(tmp_path / "a", objects()[name], array, change)
    with pytest.raises(FairstreamFileError, match=message):
        load(tmp_path / "a")


@pytest.mark.parametrize("entry", ["n_rows", "total_variance"])
@pytest.mark.parametrize("value", ["many", -1, None, True, [3]])
def test_numbers_of_a_model_that_are_none_are_refused(tmp_path, entry, value):
    forged(tmp_path / "a", objects()["subspace"], **{entry: value})
    with pytest.raises(FairstreamFileError, match=f"{entry} is .* not a number from 0"):
        load(tmp_path / "a")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "-Infinity"])
def test_numbers_of_a_header_that_are_not_finite_are_refused(originals, tmp_path, text):
    about, table = start_of(originals[2])
    about["state"]["total_variance"] = "HERE"
    changed = json.dumps(about).replace('"HERE"', text)
    (tmp_path / "a").write_bytes(resealed(originals[2], changed, table))
    with pytest.raises(FairstreamFileError):
        load(tmp_path / "a")


@pytest.mark.parametrize("name", [*objects()])
def test_forging_itself_does_not_damage(tmp_path, name):
    """The control: with nothing changed, the same objects are read back."""
    forged(tmp_path / "a", objects()[name])
    assert load(tmp_path / "a").kind == objects()[name].kind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [None, 8])
def test_files_of_difficult_data_are_not_taken_for_forged(tmp_path, rank, dtype):
    """The control for the ranges: constant columns, far offsets, single rows, tiny and huge scales."""
    rng = np.random.default_rng(0)
    for offset, scale in ((0, 0), (1e6, 1), (1e8, 1e-3), (0, 1e-12), (-5, 1e9)):
        X = (offset + scale * rng.normal(size=(60, 20))).astype(dtype)
        moments = GroupMoments(20, rank, dtype)
        for start in range(0, 60, 7):
            labels = {"sex": ["f", "m", "x", "x", "x", "x", "x"][: len(X[start : start + 7])]}
            moments.update(X[start : start + 7], labels)
        moments.update(X[:1], {"sex": ["alone"]})
        moments.save(tmp_path / "a")
        assert load(tmp_path / "a").n_rows == 61
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for constraint in ("none", "mean", "all"):
                solve(moments, 3, constraint=constraint).save(tmp_path / "a")
                assert load(tmp_path / "a").n_rows == 61


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_fits_of_difficult_data_are_not_taken_for_forged(tmp_path, dtype):
    """The same control for what the power method leaves, at every point of its two phases."""
    rng = np.random.default_rng(0)
    how = {"solver": "power", "step_rows": (30, 40), "power_steps": 2, "random_state": 0}
    for offset, scale in ((0, 0), (1e6, 1), (1e8, 1e-3), (0, 1e-12), (-5, 1e9)):
        estimator = FairStreamingPCA(3, **how)
        for _ in range(10):
            X = (offset + scale * rng.normal(size=(17, 12))).astype(dtype)
            estimator.partial_fit(X, sensitive_features=["f", "m"] * 8 + ["f"])
            estimator.save(tmp_path / "a")
            assert load(tmp_path / "a").n_samples_seen_ == estimator.n_samples_seen_
        estimator.subspace_.save(tmp_path / "a")
        assert load(tmp_path / "a").n_rows == 170


@pytest.mark.parametrize("rank", [None, 4])
def test_second_moments_that_are_not_symmetric_are_refused(tmp_path, rank):
    rng = np.random.default_rng(0)
    moments = GroupMoments(9, rank).update(rng.normal(size=(200, 9)), {"s": ["a", "b"] * 100})
    header, arrays = moments.to_state()
    cores = arrays["cores"].copy()
    cores[0, 0, 1] *= 1.5
    persist.write_file(tmp_path / "m", moments.kind, header, {**arrays, "cores": cores})
    with pytest.raises(FairstreamFileError, match="not symmetric"):
        load(tmp_path / "m")
