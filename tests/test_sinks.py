"""Where rows are written to: every format, columns carried along, folders of parts, moments beside a fit."""

import numpy as np
import pytest
from support.command import answer, run

from fairstream import (
    FairStreamingPCA,
    FairstreamWarning,
    collect_moments,
    embed_source,
    erase_source,
    fit_source,
    load,
    open_like,
    open_source,
)
from fairstream.streaming.sinks import SUFFIXES, open_sink

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

N = 250


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("abcd"))
    sex, name = rng.choice(["f", "m"], N), [f"p{i}" for i in range(N)]
    return numbers.assign(sex=sex, name=name, income=rng.integers(0, 9, N))


@pytest.fixture
def model(frame):
    source = open_source(frame, sensitive_features=["sex"], features=list("abcd"))
    return fit_source(source, n_components=2).subspace_


def read(path):
    """What a reader finds in the output, as a frame; matrices have no names."""
    if path.suffix == ".zarr":
        zarr = pytest.importorskip("zarr")
        X = zarr.open_group(path, mode="r")["X"]
        return pd.DataFrame(X[:], columns=X.attrs["columns"])
    if path.suffix == ".npy":
        return pd.DataFrame(np.load(path))
    readers = {".csv": pd.read_csv, ".arrow": pd.read_feather, ".feather": pd.read_feather}
    return readers.get(path.suffix, pd.read_parquet)(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_holds_the_same_coordinates(frame, model, tmp_path, suffix):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    path = tmp_path / f"Z{suffix}"
    assert embed_source(model, open_like(model, frame, block_size=64), path) == N
    found = read(path)
    np.testing.assert_allclose(found.to_numpy(), model.embed(frame[[*"abcd"]].to_numpy()), atol=1e-12)
    if suffix != ".npy":
        assert [*found.columns] == ["component_0", "component_1"]
    assert [made.name for made in tmp_path.iterdir()] == [path.name]  # and no draft


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow", ".feather"])
@pytest.mark.parametrize("write", [embed_source, erase_source])
def test_kept_columns_are_carried_along_in_order(frame, model, tmp_path, suffix, write):
    path = tmp_path / f"Z{suffix}"
    write(model, open_like(model, frame, keep=["name", "income"], block_size=64), path)
    found = read(path)
    assert [*found.columns[:2]] == ["name", "income"]
    pd.testing.assert_frame_equal(found[["name", "income"]], frame[["name", "income"]], check_dtype=False)
    assert len(found.columns) == 2 + (2 if write is embed_source else 4)


def test_kept_columns_are_no_features_unless_listed(frame):
    assert open_source(frame, keep=["name", "sex", "income"]).feature_names == tuple("abcd")
    both = open_source(frame, keep=["a"], features=["a", "b"])
    assert both.feature_names == ("a", "b")
    (block,) = both
    np.testing.assert_array_equal(block.kept.column("a").to_numpy(), block.X[:, 0])


def test_a_category_of_pandas_is_kept_as_text(frame, model, tmp_path):
    typed = frame.assign(name=frame["name"].astype("category"))
    for suffix in ("csv", "parquet"):
        embed_source(model, open_like(model, typed, keep=["name"], block_size=50), tmp_path / f"Z.{suffix}")
        assert read(tmp_path / f"Z.{suffix}")["name"].tolist() == frame["name"].tolist()


def test_a_sensitive_attribute_that_is_kept_is_warned_of(frame, model, tmp_path):
    with pytest.warns(FairstreamWarning, match="keep names 'sex', a sensitive attribute of the model"):
        embed_source(model, open_like(model, frame, keep=["sex"]), tmp_path / "Z.parquet")


def test_what_cannot_be_kept_is_refused(frame, model, tmp_path):
    with pytest.raises(ValueError, match="keep names 'age'"):
        open_source(frame, keep=["age"])
    with pytest.raises(ValueError, match="keep is 'name': pass a list"):
        open_source(frame, keep="name")
    with pytest.raises(ValueError, match="keep does not apply to an array"):
        open_source(np.eye(3), keep=["a"])
    with pytest.raises(ValueError, match="one matrix of numbers"):
        embed_source(model, open_like(model, frame, keep=["name"]), tmp_path / "Z.npy")
    with pytest.raises(ValueError, match="keep names 'a', which the output has already"):
        erase_source(model, open_like(model, frame, keep=["a"]), tmp_path / "Z.csv")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy", ".arrow"])
@pytest.mark.parametrize("part_rows", [40, 125, 1_000])
def test_parts_together_are_the_whole(frame, model, tmp_path, suffix, part_rows):
    folder = tmp_path / f"Z{suffix}"
    embed_source(model, open_like(model, frame, block_size=64), folder, part_rows=part_rows)
    parts = [read(path) for path in sorted(folder.iterdir())]
    assert [len(part) for part in parts[:-1]] == [part_rows] * (len(parts) - 1)
    expected = model.embed(frame[[*"abcd"]].to_numpy())
    np.testing.assert_allclose(pd.concat(parts).to_numpy(), expected, atol=1e-12)
    assert [made.name for made in tmp_path.iterdir()] == [folder.name]


def test_a_folder_of_parts_opens_as_one_table(frame, model, tmp_path):
    source = open_like(model, frame, keep=["name"])
    embed_source(model, source, tmp_path / "Z.parquet", part_rows=100)
    opened = open_source(tmp_path / "Z.parquet", features=["component_0", "component_1"])
    assert opened.n_rows == N
    with pytest.raises(FileExistsError, match="exists: name another folder"):
        embed_source(model, source, tmp_path / "Z.parquet", part_rows=100)


def test_a_failure_leaves_no_part_behind(model, tmp_path):
    for path, options in (("Z.parquet", {"part_rows": 2}), ("Z.zarr", {}), ("Z.arrow", {})):
        if path.endswith("zarr"):
            pytest.importorskip("zarr")
        with (
            pytest.raises(ValueError, match=r"shape|unequal"),
            open_sink(tmp_path / path, ["a"], **options) as write,
        ):
            [write(rows) for rows in (np.ones((5, 1)), np.ones(5))]
    assert not [*tmp_path.iterdir()]


def test_no_rows_are_an_empty_file_of_every_format(tmp_path):
    for suffix in SUFFIXES:
        if suffix == ".zarr":
            pytest.importorskip("zarr")
        with open_sink(tmp_path / f"Z{suffix}", ["a", "b"]):
            pass
        assert read(tmp_path / f"Z{suffix}").shape == (0, 2)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_blocks_without_rows_leave_no_trace(tmp_path, suffix):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    rows = np.arange(12.0).reshape(6, 2)
    with open_sink(tmp_path / f"Z{suffix}", ["a", "b"]) as write:
        for part in (rows[:0], rows[:4], rows[4:4], rows[4:]):
            write(part)
    np.testing.assert_array_equal(read(tmp_path / f"Z{suffix}"), rows)


def test_all_blocks_have_the_noise_of_the_key_that_was_read_first(frame, model, tmp_path):
    key, path = tmp_path / "key", tmp_path / "Z.npy"
    key.write_bytes(b"sixteen bytes or more")
    options = {"dither": 0.3, "key": key}
    expected = model.embed(frame[[*"abcd"]].to_numpy(), **options)
    source = open_like(model, frame, block_size=64)
    embed_source(model, source, path, progress=lambda *_: key.write_bytes(b"another key, as long"), **options)
    np.testing.assert_array_equal(np.load(path), expected)


# On the command line --------------------------------------------------------------------------------


def test_transform_carries_columns_and_writes_parts(frame, tmp_path):
    frame.to_csv(tmp_path / "d.csv", index=False)
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "--features", "a,b,c,d", "-k", 2]
    run(*fit, "-o", tmp_path / "model")
    transform = ["transform", tmp_path / "model", tmp_path / "d.csv"]
    options = ["--keep", "name,income", "--part-rows", 100, "-o", tmp_path / "Z.parquet"]
    assert answer(*transform, *options)["n_rows"] == N
    assert len([*(tmp_path / "Z.parquet").iterdir()]) == 3
    found = pd.read_parquet(tmp_path / "Z.parquet")
    assert found["name"].tolist() == frame["name"].tolist()
    refused = run(*transform, "--keep", "age", "-o", tmp_path / "z.csv", code=1).stderr
    assert "--keep names 'age'" in refused
    run(*transform, *options, code=2)  # a folder that exists is not replaced, even if told to
    run(*transform, *options, "--overwrite", code=2)


def test_an_output_within_the_input_folder_is_refused_in_parts_too(frame, model, tmp_path):
    frame.to_parquet(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="lies within the input"):
        embed_source(model, open_like(model, tmp_path), tmp_path / "Z.parquet", part_rows=100)


def test_fit_writes_its_moments_too(frame, tmp_path):
    frame.to_csv(tmp_path / "d.csv", index=False)
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "--features", "a,b,c,d", "-k", 2, "-o", tmp_path / "model"]
    assert answer(*fit, "--save-moments", tmp_path / "m")["moments"] == str(tmp_path / "m")
    source = open_source(tmp_path / "d.csv", sensitive_features=["sex"], features=list("abcd"))
    np.testing.assert_array_equal(load(tmp_path / "m").mean(), collect_moments(source).mean())
    assert len(answer("frontier", tmp_path / "m", "-k", 2, "-m", 1)) == 2
    power = run(*fit, "--solver", "power", "--save-moments", tmp_path / "n", code=2)
    assert "--save-moments does not go with --solver power" in power.stderr


@pytest.mark.parametrize("write", [embed_source, erase_source])
def test_arguments_in_another_order_are_refused(write, tmp_path):
    rng = np.random.default_rng(0)
    pca = FairStreamingPCA(1, constraint="none").fit(rng.normal(size=(50, 3)))
    model, source, path = pca.subspace_, open_source(rng.normal(size=(50, 3))), tmp_path / "z.npy"
    for given, words in (
        ((source, model, path), r"pass the model first, \(model, source, path\)"),
        ((pca, source, path), "model is a FairStreamingPCA: pass its subspace_"),
        ((model, path, source), r"pass open_like\(model, data\)"),
        ((model, source, None), "path is a NoneType: name a file"),
    ):
        with pytest.raises(ValueError, match=words):
            write(*given)
    assert write(model, source, path) == 50


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy"])
def test_erased_tables_are_read_like_the_table_and_erased_matrices_hold_features(frame, tmp_path, suffix):
    frame = frame.assign(a=9 * frame["a"] + 40)
    columns = {"sensitive_features": ["sex"], "features": [*"abcd"]}
    model = fit_source(open_source(frame, standardize=True, **columns), n_components=2).subspace_
    erase_source(model, open_like(model, frame, block_size=64), tmp_path / f"erased{suffix}")
    found = read(tmp_path / f"erased{suffix}")
    if suffix == ".npy":
        np.testing.assert_allclose(found.mean(), 0, atol=1e-9)
        Z = model.embed(found.to_numpy())
    else:
        np.testing.assert_allclose(found.mean(), frame[[*"abcd"]].mean(), atol=1e-9)
        Z = np.concatenate([model.embed(b.X) for b in open_like(model, tmp_path / f"erased{suffix}")])
    np.testing.assert_allclose(Z, model.embed(frame), atol=1e-9)
