"""Fits on Dask: the same answer as one process, whatever the cut, the workers, and who dies on the way."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from sklearn.base import clone

from fairstream import (
    FairImagePCA,
    FairStreamingPCA,
    NotEnoughGroupsError,
    collect_moments,
    encode_groups,
    fit_source,
    load,
)
from fairstream.cli import main
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.cutting import join_blocks
from fairstream.linalg import principal_angles
from fairstream.streaming.checkpoint_folder import CheckpointFolder
from fairstream.streaming.embed import embed_source, open_like
from fairstream.streaming.signals import FitInterrupted

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
psutil = pytest.importorskip("psutil")  # comes with distributed

from fairstream.streaming.dask.partitioning import cut  # noqa: E402
from fairstream.streaming.dask.reducing import FAN_IN, WINDOW, reduce_parts  # noqa: E402

pytestmark = pytest.mark.slow
N_ROWS, N_FEATURES = 2_000, 12


@pytest.fixture(scope="module")
def processes():
    """Two worker processes, as on two machines."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def one_thread():
    """One worker in this process: quick, and a different number of workers."""
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", set_as_default=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N_ROWS, p=[0.3, 0.7])
    X = rng.normal(size=(N_ROWS, N_FEATURES)) * np.linspace(3, 1, N_FEATURES) + 1e3
    X[sex == "m"] += np.linspace(2, 0, N_FEATURES)
    X[sex == "m", 3] *= 1.01
    return X, sex


@pytest.fixture(scope="module")
def single(rows) -> FairStreamingPCA:
    X, sex = rows
    return FairStreamingPCA(3).fit(X, sensitive_features={"sex": sex})


def fit_dask(
    estimator: Any,
    X: Any,
    sensitive_features: Any = None,
    *,
    client: Any,
    partition_rows: int | None = None,
    checkpoint: Any = None,
    resume: bool = False,
    progress: Any = None,
    **options: Any,
) -> Any:
    """Open X, unless nothing is said about it, and fit an estimator that may have been fitted before."""
    labels = {} if sensitive_features is None else {"sensitive_features": sensitive_features}
    source = open_source(X, **labels, **options) if labels or options else X
    keeping = {"partition_rows": partition_rows, "checkpoint": checkpoint, "resume": resume}
    fitted = fit_source(source, clone(estimator), client=client, progress=progress, **keeping)
    return estimator.adopt(fitted.learner_, solve=True)


def assert_same_moments(fitted: FairStreamingPCA, expected: FairStreamingPCA) -> None:
    ours, theirs = fitted.moments_, expected.moments_
    assert ours.n_rows == theirs.n_rows
    assert ours.groups == theirs.groups
    scale = np.abs(theirs.covariance().to_dense()).max()
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-10)
    for attribute, group in theirs.comparisons():
        gap, expected_gap = (
            ours.second_moment_gap(attribute, group).to_dense(),
            theirs.second_moment_gap(attribute, group).to_dense(),
        )
        np.testing.assert_allclose(gap, expected_gap, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(
        ours.covariance().to_dense(), theirs.covariance().to_dense(), rtol=0, atol=1e-10 * scale
    )
    assert principal_angles(fitted.components_.T, expected.components_.T).max() < 1e-7
    assert principal_angles(fitted.unfair_basis_.T, expected.unfair_basis_.T).max() < 1e-7


# The same answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [N_ROWS, 333, 41, (1, 1_500, 0, 499)], ids=str)
def test_exact_moments_equal_the_single_process_fit_however_the_rows_are_cut(cut, rows, single, processes):
    X, sex = rows
    chunks = (cut, 5)
    labels = da.from_array(sex, chunks=700)
    fitted = fit_dask(FairStreamingPCA(3), da.from_array(X, chunks=chunks), {"sex": labels}, client=processes)
    assert_same_moments(fitted, single)


def test_labels_in_memory_are_cut_like_the_rows(rows, single, one_thread):
    X, sex = rows
    fitted = fit_dask(
        FairStreamingPCA(3), da.from_array(X, chunks=(300, -1)), {"sex": sex}, client=one_thread
    )
    assert_same_moments(fitted, single)


def test_the_number_of_workers_does_not_change_a_sketch(processes, one_thread):
    rng = np.random.default_rng(1)
    X, sex = rng.normal(size=(900, 80)) * np.linspace(2, 1, 80), rng.choice(["f", "m"], 900)

    def sketch(client: Any, rows_each: int) -> np.ndarray:
        pca = FairStreamingPCA(2, solver="sketch", rank=4)
        fit_dask(pca, da.from_array(X, chunks=(rows_each, -1)), {"sex": sex}, client=client)
        return pca.components_.T @ pca.components_

    np.testing.assert_allclose(sketch(processes, 90), sketch(one_thread, 90), rtol=0, atol=1e-11)
    # The control: another cut of the rows does show, so equality above is not for free.
    assert np.abs(sketch(one_thread, 90) - sketch(one_thread, 60)).max() > 1e-9


@pytest.mark.parametrize("n_parts", [1, 2, 4, 5, WINDOW, WINDOW + 1, 3 * WINDOW + 7])
def test_merges_are_in_order_and_of_bounded_fan_in(n_parts):
    widths = []

    class Done:
        def __init__(self, value: Any) -> None:
            self.value = value

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return self.value

        def release(self) -> None:
            pass

    class AtOnce:
        def submit(self, function: Any, *args: Any, **_: Any) -> Done:
            if function is merge:
                args = ([done.value for done in args[0]],)
            return Done(function(*args))

        def nthreads(self) -> dict[str, int]:
            return {"a": 1}

    def merge(below: list[list[int]]) -> list[int]:
        widths.append(len(below))
        return [index for part in below for index in part]

    parts = cut([open_source(np.eye(3))] * n_parts).parts
    merged = [*reduce_parts(AtOnce(), parts, lambda part, index, inputs: [index], merge)]
    assert [index for _, window in merged for index in window] == [*range(n_parts)]
    assert max(widths, default=1) <= FAN_IN
    assert merged[-1][0] == n_parts


# One door ---------------------------------------------------------------------------------------------


def test_fit_source_fits_a_dask_collection_on_the_cluster(rows, single, one_thread):
    X, sex = rows
    source = open_source(da.from_array(X, chunks=(300, -1)), sensitive_features={"sex": sex})
    assert_same_moments(fit_source(source, FairStreamingPCA(3), client=one_thread), single)
    with one_thread.as_current():
        assert_same_moments(fit_source(source, n_components=3), single)


def test_fit_source_sends_an_open_source_to_the_cluster_of_a_client(tmp_path, rows, single, one_thread):
    path, sensitive_features, _ = write_npy(tmp_path, *rows)
    source = open_source(path, sensitive_features=sensitive_features)
    seen: list[tuple[int, int | None]] = []
    fitted = fit_source(
        source,
        n_components=3,
        client=one_thread,
        partition_rows=100,
        progress=lambda *rows: seen.append(rows),
    )
    assert_same_moments(fitted, single)
    assert seen == [(1_600, N_ROWS), (N_ROWS, N_ROWS)], "two windows of partitions"


def dask_forms(X: np.ndarray, sex: np.ndarray) -> dict[str, Any]:
    frame = as_frame(X, sex)
    frame["town"] = np.array([*"abcd"])[np.arange(N_ROWS) // 500]
    pairs = [(X[i : i + 700], {"sex": sex[i : i + 700]}) for i in range(0, N_ROWS, 700)]
    beside = as_frame(X, sex).drop(columns="sex")
    return {
        "array": (da.from_array(X, chunks=(300, 5)), {"sex": sex}, X, {"sex": sex}),
        "frame": (dd.from_pandas(frame, npartitions=4), ["sex"], frame, ["sex"]),
        "labels in dask": (
            dd.from_pandas(beside, npartitions=3),
            {"sex": dd.from_pandas(frame["sex"], npartitions=3)},
            X,
            {"sex": sex},
        ),
        "delayed": ([dask.delayed(pair) for pair in pairs], None, X, {"sex": sex}),
        "one delayed": (dask.delayed((X, {"sex": sex})), None, X, {"sex": sex}),
    }


@pytest.mark.parametrize("form", ["array", "frame", "labels in dask", "delayed", "one delayed"])
def test_an_opened_dask_collection_is_a_source_like_any_other(form, rows):
    given, labels, plain, plain_labels = dask_forms(*rows)[form]
    with dask.config.set(scheduler="synchronous"):
        source, expected = (
            open_source(given, sensitive_features=labels),
            open_source(plain, sensitive_features=plain_labels),
        )
        assert source.n_features == expected.n_features
        if form == "frame":
            assert source.feature_names == expected.feature_names
            assert source.encoding == expected.encoding
        ours, theirs = join_blocks([*source]), join_blocks([*expected])
        np.testing.assert_array_equal(ours.X, theirs.X)
        np.testing.assert_array_equal(ours.groups["sex"].codes, theirs.groups["sex"].codes)
        assert collect_moments(source).n_rows == N_ROWS


def test_futures_are_a_source_like_any_other(rows, one_thread):
    X, sex = rows
    source = open_source([one_thread.submit(lambda rows: rows, (X, {"sex": sex}))])
    np.testing.assert_array_equal(join_blocks([*source]).X, X)


def test_rows_of_a_dask_frame_are_embedded_as_those_of_the_frame(tmp_path, rows, single):
    frame = as_frame(*rows)
    model = fit_source(open_source(frame, sensitive_features=["sex"]), n_components=2).subspace_
    with dask.config.set(scheduler="synchronous"):
        source = open_like(model, dd.from_pandas(frame, npartitions=3), sensitive_features=["sex"])
        assert embed_source(model, source, tmp_path / "dask.npy") == N_ROWS
    embed_source(model, open_source(frame, sensitive_features=["sex"]), tmp_path / "frame.npy")
    np.testing.assert_allclose(np.load(tmp_path / "dask.npy"), np.load(tmp_path / "frame.npy"), atol=1e-12)


def test_a_list_of_paths_is_fitted_with_a_client(tmp_path, rows, single, one_thread):
    paths, _, _ = write_two_parquets(tmp_path, *rows)
    sources = [open_source(path, sensitive_features=["sex"]) for path in paths]
    assert_same_moments(fit_source(sources, n_components=3, client=one_thread), single)
    np.save(tmp_path / "x.npy", rows[0])
    plain = fit_source([tmp_path / "x.npy"], n_components=3, client=one_thread, constraint="none")
    np.testing.assert_allclose(plain.mean_, single.mean_)


@pytest.mark.parametrize("several", [False, True])
def test_workers_take_the_sensitive_columns_of_the_estimator(several, tmp_path, rows, single, one_thread):
    paths, names, _ = (write_two_parquets if several else write_parquet)(tmp_path, *rows)
    pca = FairStreamingPCA(3, sensitive_columns=names)
    assert_same_moments(fit_source(paths, pca, client=one_thread), single)


def test_opening_a_dask_collection_computes_nothing():
    def rows() -> Any:
        raise UnluckyError

    source = open_source([dask.delayed(rows)()])
    assert open_source(source) is source
    with dask.config.set(scheduler="synchronous"), pytest.raises(UnluckyError):
        source.n_features


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 10, "checkpoint": "kept", "client": 1}, "every=10 does not apply on a cluster"),
        ({"partition_rows": 10}, "partition_rows=10 is for a cluster: pass client"),
        ({"client": 1, "resume": True}, "resume is given without checkpoint"),
    ],
)
def test_fit_source_refuses_what_it_would_ignore(options, message):
    with pytest.raises(ValueError, match=message):
        fit_source(open_source(EYE, sensitive_features=SEX), n_components=2, **options)


# Data that workers open themselves ----------------------------------------------------------------------


def write_npy(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    np.save(folder / "x.npy", X)
    return folder / "x.npy", {"sex": sex}, {}


def write_fortran(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    np.save(folder / "x.npy", np.asfortranarray(X))
    return folder / "x.npy", {"sex": sex}, {}


def write_npz(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    np.savez(folder / "x.npz", X=X, sex=sex)
    return str(folder / "x.npz"), ["sex"], {"key": "X"}


def write_parquet(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    pytest.importorskip("pyarrow")
    frame = as_frame(X, sex)
    (folder / "parts").mkdir()
    frame[:1_500].to_parquet(folder / "parts" / "a.parquet", row_group_size=200)
    frame[1_500:].to_parquet(folder / "parts" / "b.parquet", row_group_size=130)
    return folder / "parts", ["sex"], {}


def write_hive(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    path, names, options = write_parquet(folder, X, sex)
    frame = pytest.importorskip("pandas").read_parquet(path)
    frame.to_parquet(folder / "hive", partition_cols=names, row_group_size=130)
    return folder / "hive", names, options


def write_two_parquets(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    path, names, options = write_parquet(folder, X, sex)
    return [path / "a.parquet", path / "b.parquet"], names, options


def write_csv(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    pytest.importorskip("pyarrow")
    as_frame(X, sex).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv", "sex", {}


def write_zarr(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "x.zarr", mode="w")
    group.create_array("X", data=X, chunks=(150, N_FEATURES))
    group.create_array("sex", data=(sex == "m").astype(np.int8), chunks=(400,))
    return folder / "x.zarr", ["sex"], {"key": "X"}


def write_hdf5(folder: Path, X: np.ndarray, sex: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(64, N_FEATURES))
    return folder / "x.h5", {"sex": sex}, {"key": "X"}


def as_frame(X: np.ndarray, sex: np.ndarray) -> Any:
    return pd.DataFrame(X, columns=[f"f{j:02d}" for j in range(N_FEATURES)]).assign(sex=sex)


WRITERS = [
    write_npy,
    write_fortran,
    write_npz,
    write_parquet,
    write_hive,
    write_two_parquets,
    write_csv,
    write_zarr,
    write_hdf5,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_files_are_read_by_the_workers(write, tmp_path, rows, single, one_thread):
    path, sensitive_features, options = write(tmp_path, *rows)
    data = cut([open_source(path, sensitive_features=sensitive_features, **options)], 170)
    fitted = fit_dask(
        FairStreamingPCA(3), path, sensitive_features, client=one_thread, partition_rows=170, **options
    )
    assert fitted.n_samples_seen_ == N_ROWS
    np.testing.assert_allclose(fitted.mean_, single.mean_, rtol=1e-10)
    assert principal_angles(fitted.components_.T, single.components_.T).max() < 1e-7
    if write not in (write_npz, write_csv):
        assert len(data.parts) > 8
        labels = 0 if isinstance(sensitive_features, list) else 170
        assert max(len(pickle.dumps(part)) for part in data.parts) < 8_000 + labels, "rows travelled"


def test_table_columns_keep_their_names(tmp_path, rows, one_thread):
    path, sensitive_features, _ = write_parquet(tmp_path, *rows)
    fitted = fit_dask(FairStreamingPCA(3), str(path), sensitive_features, client=one_thread)
    assert [*fitted.feature_names_in_[:2]] == ["f00", "f01"]
    assert fitted.moments_.encoding == fitted.subspace_.schema.encoding
    power = FairStreamingPCA(3, solver="power", power_steps=1, random_state=0)
    fit_dask(power, str(path), sensitive_features, client=one_thread)
    assert power.subspace_.schema.encoding == fitted.moments_.encoding


def test_worker_processes_open_the_files_too(tmp_path, rows, single, processes):
    path, sensitive_features, _ = write_npy(tmp_path, *rows)
    fitted = fit_dask(FairStreamingPCA(3), path, sensitive_features, client=processes, partition_rows=99)
    assert_same_moments(fitted, single)


def test_images_are_decoded_by_the_workers(tmp_path, one_thread):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    smiling = rng.integers(0, 2, 90)
    for i in range(90):
        pixels = rng.integers(0, 255, (6, 5, 3), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / f"{i:03d}.png")
    pca = FairStreamingPCA(2, constraint="mean")
    fit_dask(pca, tmp_path, {"smiling": smiling}, client=one_thread, partition_rows=20, mode="grey")
    source = open_source(tmp_path, sensitive_features={"smiling": smiling}, mode="grey", block_size=90)
    (block,) = source
    expected = FairStreamingPCA(2, constraint="mean").fit(block.X, sensitive_features=block.groups)
    np.testing.assert_allclose(pca.mean_, expected.mean_, rtol=1e-5)
    assert principal_angles(pca.components_.T, expected.components_.T).max() < 1e-2
    assert pca.group_counts_ == expected.group_counts_


def test_open_sources_are_cut_where_they_can_be(rows, single, one_thread):
    X, sex = rows
    sources = [
        open_source(X[a:b], sensitive_features={"sex": sex[a:b]})
        for a, b in ((0, 700), (700, 701), (701, N_ROWS))
    ]
    assert_same_moments(fit_dask(FairStreamingPCA(3), sources, client=one_thread), single)
    whole = open_source(X, sensitive_features={"sex": sex})
    assert len(cut([whole], 99).parts) == 21
    assert_same_moments(fit_dask(FairStreamingPCA(3), whole, client=one_thread, partition_rows=99), single)
    one_way = open_source([(X[:900], {"sex": sex[:900]}), (X[900:], {"sex": sex[900:]})])
    assert len(cut([one_way], 99).parts) == 1
    assert_same_moments(fit_dask(FairStreamingPCA(3), one_way, client=one_thread), single)


# Frames, delayed blocks and futures ---------------------------------------------------------------------


def test_a_dask_frame_names_its_sensitive_column(rows, single, one_thread):
    frame = dd.from_pandas(as_frame(*rows), npartitions=5)
    fitted = fit_dask(FairStreamingPCA(3), frame, "sex", client=one_thread)
    assert_same_moments(fitted, single)
    beside = fit_dask(FairStreamingPCA(3), frame.drop(columns="sex"), frame["sex"], client=one_thread)
    assert_same_moments(beside, single)


@pytest.mark.parametrize("kind", ["dask", "delayed"])
def test_the_categories_of_all_partitions_count(kind, rows, one_thread):
    X, sex = rows
    frame = as_frame(X, sex)[["f00", "f01", "f02", "sex"]].copy()
    frame["job"] = np.where(np.arange(N_ROWS) < 1_500, "cook", "baker")
    frame["town"] = pd.Categorical(np.array(["a", "b", "c", "d"])[np.arange(N_ROWS) // 500])
    if kind == "dask":
        data: Any = dd.from_pandas(frame, npartitions=4)
    else:
        data = [dask.delayed(frame[i : i + 500]) for i in range(0, N_ROWS, 500)]
        data.insert(0, dask.delayed(frame[:0]))
    fitted = fit_dask(FairStreamingPCA(2), data, "sex", client=one_thread)
    source = open_source(frame, sensitive_features=["sex"])
    assert tuple(fitted.feature_names_in_) == source.feature_names
    assert fitted.moments_.encoding == source.encoding
    (block,) = source
    expected = FairStreamingPCA(2).fit(block.X, sensitive_features=block.groups)
    assert_same_moments(fitted, expected)
    # What is given is not asked for, and then a category of a later partition is one too many.
    categories = {"job": ["cook"], "town": [*"abcd"]}
    with pytest.raises(ValueError, match="'baker', which"):
        fit_dask(FairStreamingPCA(2), data, "sex", client=one_thread, categories=categories)


@pytest.mark.parametrize("kind", ["pairs", "blocks", "apart", "futures", "sparse"])
def test_blocks_may_be_delayed_or_futures(kind, rows, single, one_thread):
    X, sex = rows
    cuts = [slice(0, 800), slice(800, 800), slice(800, N_ROWS)]
    labels: Any = None
    if kind == "sparse":  # implicit centring of sparse rows has fewer digits far from the origin
        X = X - 1e3
        single = FairStreamingPCA(3).fit(X, sensitive_features={"sex": sex})
    if kind == "blocks":
        made = [Block(X[cut], encode_groups({"sex": sex[cut]}, len(sex[cut]))) for cut in cuts]
    elif kind == "sparse":
        made = [(sp.csr_array(X[cut]), {"sex": sex[cut]}) for cut in cuts]
    else:
        made = [(X[cut], {"sex": sex[cut]}) for cut in cuts]
    if kind == "futures":
        blocks = [one_thread.submit(lambda pair: pair, pair) for pair in made]
    elif kind == "apart":
        blocks, labels = [dask.delayed(X[cut]) for cut in cuts], [{"sex": sex[cut]} for cut in cuts]
    else:
        blocks = [dask.delayed(block) for block in made]
    fitted = fit_dask(FairStreamingPCA(3), blocks, labels, client=one_thread)
    assert_same_moments(fitted, single)


def test_columns_in_another_order_are_put_in_order(rows, single, one_thread):
    frame = as_frame(*rows)
    swapped = frame[frame.columns[::-1]]
    parts = [dask.delayed(frame[:600]), dask.delayed(swapped[600:].astype({"f00": "float32"}))]
    exact = fit_dask(FairStreamingPCA(3), [parts[0], dask.delayed(swapped[600:])], "sex", client=one_thread)
    assert_same_moments(exact, single)
    narrower = fit_dask(FairStreamingPCA(3), parts, "sex", client=one_thread)
    np.testing.assert_allclose(narrower.mean_, single.mean_, rtol=1e-6)


def test_a_partition_may_lack_a_group_or_all_labels_or_all_rows(rows, single, one_thread):
    X, sex = rows
    order = np.argsort(sex, kind="stable")
    cuts = np.split(order, [0, 200, np.sum(sex == "f")])
    blocks = [dask.delayed((X[cut], {"sex": sex[cut]})) for cut in cuts]
    assert_same_moments(fit_dask(FairStreamingPCA(3), blocks, client=one_thread), single)
    unlabelled = [dask.delayed((X[:10], {"sex": [None] * 10})), *blocks]
    with_ten_more = fit_dask(FairStreamingPCA(3), unlabelled, client=one_thread)
    assert with_ten_more.n_samples_seen_ == N_ROWS + 10
    assert with_ten_more.group_counts_ == single.group_counts_


# The power method -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [None, (300, 150)])
def test_power_steps_equal_those_of_one_process(block_size, rows, processes):
    X, sex = rows
    choices = {"solver": "power", "step_rows": block_size, "power_steps": 3, "random_state": 0}
    expected = FairStreamingPCA(2, **choices).fit(X, sensitive_features={"sex": sex})
    fitted = fit_dask(
        FairStreamingPCA(2, **choices), da.from_array(X, chunks=(170, -1)), {"sex": sex}, client=processes
    )
    np.testing.assert_allclose(fitted.components_, expected.components_, atol=1e-9)
    np.testing.assert_allclose(fitted.explained_variance_, expected.explained_variance_, rtol=1e-9)
    assert principal_angles(fitted.unfair_basis_.T, expected.unfair_basis_.T).max() < 1e-7
    assert fitted.power_.convergence == pytest.approx(expected.power_.convergence, abs=1e-6)
    assert fitted.n_samples_seen_ == N_ROWS
    assert fitted.group_counts_ == expected.group_counts_


def test_a_power_step_without_a_group_is_refused(rows, one_thread):
    X, sex = rows
    order = np.argsort(sex, kind="stable")
    pca = FairStreamingPCA(2, solver="power", step_rows=100, power_steps=2, random_state=0)
    blocks = da.from_array(X[order], chunks=(170, -1))
    with pytest.raises(NotEnoughGroupsError, match=r"1 group of 'sex'.*larger step_rows"):
        fit_dask(pca, blocks, {"sex": sex[order]}, client=one_thread)


class UnluckyError(RuntimeError):
    """Raised half-way through a fit."""


@pytest.mark.parametrize("block_size", [None, (300, 150)])
def test_a_power_fit_goes_on_from_its_last_step(block_size, tmp_path, rows, one_thread):
    X, sex = rows
    np.save(tmp_path / "x.npy", X)
    choices = {"solver": "power", "step_rows": block_size, "power_steps": 3, "random_state": 0}
    asked = {"sensitive_features": {"sex": sex}, "client": one_thread, "partition_rows": 170}
    seen: list[int] = []

    def fail_once(done: int, total: int | None) -> None:
        seen.append(done)
        if len(seen) == 4:  # in the second phase
            raise UnluckyError

    def fit(**more: Any) -> FairStreamingPCA:
        return fit_dask(FairStreamingPCA(2, **choices), tmp_path / "x.npy", **asked, **more)

    with pytest.raises(UnluckyError):
        fit(checkpoint=tmp_path / "kept", progress=fail_once)
    resumed = fit(checkpoint=tmp_path / "kept", progress=fail_once, resume=True)
    assert sorted({*seen}) == seen, "a step was done twice"
    uninterrupted = fit()
    np.testing.assert_allclose(resumed.components_, uninterrupted.components_, atol=1e-12)
    assert resumed.group_counts_ == uninterrupted.group_counts_
    # The control: three steps more or less do show.
    other = fit_dask(FairStreamingPCA(2, **choices | {"power_steps": 2}), tmp_path / "x.npy", **asked)
    assert np.abs(other.components_ - uninterrupted.components_).max() > 1e-6


# Channels ---------------------------------------------------------------------------------------------------

CHANNEL_WAYS = {
    "exact": {"solver": "exact"},
    "sketch": {"solver": "sketch", "rank": 4},
    "power": {"solver": "power", "step_rows": (300, 150), "power_steps": 3, "random_state": 0},
    "power, whole data": {"solver": "power", "power_steps": 3, "random_state": 0},
}


@pytest.mark.filterwarnings("ignore:the power method has not converged")
@pytest.mark.parametrize("way", CHANNEL_WAYS)
def test_channels_on_a_cluster_equal_those_of_one_process(way, rows, processes):
    X, sex = rows
    choices = {"n_components": 1, "n_channels": 3, **CHANNEL_WAYS[way]}
    expected = FairImagePCA(**choices).fit(X, sensitive_features={"sex": sex})
    source = open_source(da.from_array(X, chunks=(170, -1)), sensitive_features={"sex": sex})
    fitted = fit_source(source, FairImagePCA(**choices), client=processes)
    assert fitted.n_samples_seen_ == N_ROWS
    assert fitted.group_counts_ == expected.group_counts_
    for ours, theirs in zip(fitted.components_, expected.components_, strict=True):
        assert principal_angles(ours.T, theirs.T).max() < 1e-6
    for ours, theirs in zip(fitted.unfair_basis_, expected.unfair_basis_, strict=True):
        assert principal_angles(ours.T, theirs.T).max() < 1e-6


@pytest.mark.filterwarnings("ignore:the power method has not converged")
@pytest.mark.parametrize("way", CHANNEL_WAYS)
def test_channels_on_a_cluster_resume_from_a_checkpoint(way, tmp_path, rows, one_thread):
    X, sex = rows
    source = open_source(X, sensitive_features={"sex": sex})
    choices = {"n_components": 1, "n_channels": 3, **CHANNEL_WAYS[way]}
    seen: list[int] = []

    def fail_once(done: int, total: int | None) -> None:
        seen.append(done)
        if len(seen) == 2:
            raise UnluckyError

    def fit(**more: Any) -> FairImagePCA:
        return fit_source(source, FairImagePCA(**choices), client=one_thread, partition_rows=50, **more)

    with pytest.raises(UnluckyError):
        fit(checkpoint=tmp_path / "kept", progress=fail_once)
    assert load(max((tmp_path / "kept").iterdir())).kind == "FairImagePCA"
    resumed = fit(checkpoint=tmp_path / "kept", progress=fail_once, resume=True)
    assert sorted({*seen}) == seen, "something was done twice"
    (header, arrays), (header_two, arrays_two) = resumed.to_state(), fit().to_state()
    assert header == header_two
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, arrays_two[name], err_msg=name)


def test_a_cluster_checks_the_channels_of_its_source(tmp_path, rows, one_thread):
    path, sensitive_features, _ = write_parquet(tmp_path, *rows)
    frame = dd.from_pandas(as_frame(*rows), npartitions=2)
    for source in (
        open_source(path, sensitive_features=sensitive_features),
        open_source(frame, sensitive_features=sensitive_features),
    ):
        with pytest.raises(ValueError, match="the source is a table, which has no colour channels"):
            fit_source(source, FairImagePCA(1), client=one_thread)


# Weights ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights() -> np.ndarray:
    return np.random.default_rng(5).uniform(0.1, 3, N_ROWS)


@pytest.fixture(scope="module")
def weighted(rows, weights) -> FairStreamingPCA:
    X, sex = rows
    return FairStreamingPCA(3).fit(X, sensitive_features={"sex": sex}, sample_weight=weights)


@pytest.mark.parametrize("kind", ["array", "in memory", "frame", "blocks", "apart"])
def test_weights_of_a_dask_collection_count(kind, rows, weights, weighted, one_thread):
    X, sex = rows
    data: Any = da.from_array(X, chunks=(300, -1))
    labels: Any = {"sex": sex}
    given: Any = da.from_array(weights, chunks=700)
    cuts = [slice(0, 900), slice(900, N_ROWS)]
    if kind == "in memory":
        given = weights
    elif kind == "frame":
        data, labels = dd.from_pandas(as_frame(X, sex), npartitions=4), "sex"
        given = dd.from_pandas(pd.Series(weights), npartitions=4)
    elif kind == "blocks":
        made = [
            Block(X[cut], encode_groups({"sex": sex[cut]}, len(sex[cut])), None, weights[cut]) for cut in cuts
        ]
        data, labels, given = [dask.delayed(block) for block in made], None, None
    elif kind == "apart":
        data = [dask.delayed((X[cut], {"sex": sex[cut]})) for cut in cuts]
        labels, given = None, [dask.delayed(weights[cut]) for cut in cuts]
    seen: list[int] = []
    fitted = fit_dask(
        FairStreamingPCA(3),
        data,
        labels,
        weights=given,
        client=one_thread,
        progress=lambda done, total: seen.append(done),
    )
    assert fitted.n_samples_seen_ == pytest.approx(weights.sum())
    np.testing.assert_allclose(fitted.mean_, weighted.mean_, rtol=1e-10)
    assert principal_angles(fitted.components_.T, weighted.components_.T).max() < 1e-7
    assert seen[-1] == N_ROWS, "progress counts rows, not weights"
    # The control: without them the mean is another.
    plain = fit_dask(FairStreamingPCA(3), da.from_array(X, chunks=(300, -1)), {"sex": sex}, client=one_thread)
    assert np.abs(plain.mean_ - weighted.mean_).max() > 1e-3


@pytest.mark.parametrize(
    ("blocks", "choices", "message"),
    [
        ([np.ones(8), None], {}, "partition 1 .*it has no weights, partition 0 has weights"),
        ([np.ones(8), np.ones(7)], {}, r"partition 1 .*weights has shape \(7,\), X has 8 rows"),
        ([np.ones(8), -np.ones(8)], {}, "partition 1 .*weight"),
        ([np.ones(8)] * 2, {"solver": "power"}, "sample_weight is not part of the power method"),
    ],
)
def test_weights_that_do_not_fit_are_refused(blocks, choices, message, one_thread):
    tasks = [dask.delayed((EYE, SEX)) for _ in blocks]
    with pytest.raises(ValueError, match=message):
        fit_dask(FairStreamingPCA(2, **choices), tasks, weights=blocks, client=one_thread)


# Deaths -----------------------------------------------------------------------------------------------------


def slow_rows(X: np.ndarray, sex: np.ndarray) -> Any:
    time.sleep(0.05)
    return X, {"sex": sex}


@pytest.mark.parametrize("solver", ["exact", "power"])
def test_a_worker_killed_half_way_changes_nothing(solver, rows, processes):
    X, sex = rows
    choices = {"solver": solver, "power_steps": 2, "random_state": 0} if solver == "power" else {}
    size = 200 if solver == "power" else 50  # moments report after 16 blocks, the power method after a step
    blocks = [dask.delayed(slow_rows)(X[i : i + size], sex[i : i + size]) for i in range(0, N_ROWS, size)]
    address, pid = oldest_worker(processes)
    killed: list[str] = []

    def kill_one(done: int, total: int | None) -> None:
        if not killed:
            os.kill(pid, signal.SIGKILL)
            killed.append(address)

    fitted = fit_dask(FairStreamingPCA(3, **choices), blocks, client=processes, progress=kill_one)
    assert killed, "the fit ended before anybody was killed"
    expected = FairStreamingPCA(3, **choices).fit(X, sensitive_features={"sex": sex})
    np.testing.assert_allclose(np.abs(fitted.components_), np.abs(expected.components_), atol=1e-8)
    wait_for_replacement(processes, address)


def oldest_worker(client: Any) -> tuple[str, int]:
    """Return address and process of the worker that runs longest: one just started is not yet replaced."""
    started = client.run(lambda: (psutil.Process().create_time(), os.getpid()))
    address = min(started, key=started.get)
    return address, started[address][1]


def wait_for_replacement(client: Any, killed: str) -> None:
    """Wait until two workers are alive again, for the tests that follow; help them start if need be."""
    for _ in range(3):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            alive = client.scheduler_info()["workers"]
            if killed not in alive and len(alive) >= 2:
                return
            time.sleep(0.2)
        client.restart(timeout=120, wait_for_workers=False)
    pytest.fail(f"{killed} was not replaced: {[*alive]}")


def test_scattered_blocks_that_died_with_their_worker_are_an_error(rows, processes):
    X, sex = rows
    holder, pid = oldest_worker(processes)
    blocks = processes.scatter(
        [(X[:900], {"sex": sex[:900]}), (X[900:], {"sex": sex[900:]})], workers=[holder]
    )
    fit_dask(
        FairStreamingPCA(3), blocks, client=processes
    )  # the control: while the worker lives, all is well
    os.kill(pid, signal.SIGKILL)
    wait_for_replacement(processes, holder)
    with pytest.raises(RuntimeError, match="blocks of X were lost with the worker that held them"):
        fit_dask(FairStreamingPCA(3), blocks, client=processes)


CLUSTER = """
import sys, time
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0",
                      protocol="tcp") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def doomed_cluster(tmp_path):
    """Start a scheduler with a worker, in a process of its own."""
    (tmp_path / "cluster.py").write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, tmp_path / "cluster.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_what_was_merged_survives_a_lost_scheduler(tmp_path, rows, single, one_thread, doomed_cluster):
    X, sex = rows
    process, address = doomed_cluster
    np.save(tmp_path / "x.npy", X)
    folder = tmp_path / "checkpoints"
    asked = {"sensitive_features": {"sex": sex}, "partition_rows": 20, "checkpoint": folder}
    pca = FairStreamingPCA(3)
    with pytest.raises(ConnectionError, match=r"scheduler was lost after \d+ of 100 partitions.*resume=True"):
        fit_dask(pca, tmp_path / "x.npy", client=address, progress=lambda *_: process.kill(), **asked)
    assert not hasattr(pca, "_learner")
    kept = load(max(folder.iterdir())).moments_
    assert 0 < kept.n_rows < N_ROWS
    seen: list[int] = []
    fit_dask(
        pca,
        tmp_path / "x.npy",
        client=one_thread,
        resume=True,
        progress=lambda done, total: seen.append(done),
        **asked,
    )
    assert seen[0] > kept.n_rows
    assert_same_moments(pca, single)


@pytest.mark.parametrize("solver", ["exact", "power"])
def test_a_signal_stops_the_fit_and_loses_nothing(solver, tmp_path, rows, one_thread):
    X, sex = rows
    np.save(tmp_path / "x.npy", X)
    choices = {"solver": "power", "random_state": 0, "power_steps": 2} if solver == "power" else {}
    asked = {"sensitive_features": {"sex": sex}, "client": one_thread, "partition_rows": 20}
    seen: list[int] = []

    def stop_once(done: int, total: int | None) -> None:
        seen.append(done)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(
        FitInterrupted, match=r"stopped after [\d,]+ rows; checkpoint written to .*resume=True"
    ):
        fit_dask(
            FairStreamingPCA(3, **choices),
            tmp_path / "x.npy",
            checkpoint=tmp_path / "kept",
            progress=stop_once,
            **asked,
        )
    assert len(seen) == 1
    resumed = fit_dask(
        FairStreamingPCA(3, **choices),
        tmp_path / "x.npy",
        checkpoint=tmp_path / "kept",
        resume=True,
        progress=stop_once,
        **asked,
    )
    assert seen[1] > seen[0]
    expected = FairStreamingPCA(3, **choices).fit(X, sensitive_features={"sex": sex})
    np.testing.assert_allclose(np.abs(resumed.components_), np.abs(expected.components_), atol=1e-8)


def test_a_checkpoint_is_not_mixed_with_other_data_or_choices(tmp_path, rows, one_thread):
    X, sex = rows
    np.save(tmp_path / "x.npy", X)

    def fit(pca: FairStreamingPCA, rows_each: int, **keeping: Any) -> None:
        fit_dask(
            pca,
            tmp_path / "x.npy",
            {"sex": sex},
            client=one_thread,
            partition_rows=rows_each,
            checkpoint=tmp_path / "kept",
            **keeping,
        )

    fit(FairStreamingPCA(3), 200)
    with pytest.raises(ValueError, match="already holds a fit: pass resume=True"):
        fit(FairStreamingPCA(3), 200)
    with pytest.raises(ValueError, match="other partitions: resume with the same data and partition_rows"):
        fit(FairStreamingPCA(3), 100, resume=True)
    with pytest.raises(ValueError, match="n_components is 2, the checkpoint"):
        fit(FairStreamingPCA(2), 200, resume=True)
    fit(FairStreamingPCA(3), 200, resume=True)


def test_a_checkpoint_of_one_machine_and_one_of_a_cluster_are_not_mixed(tmp_path, rows, one_thread):
    X, sex = rows
    source = open_source(X, sensitive_features={"sex": sex})
    fit_source(source, n_components=3, checkpoint=tmp_path / "here")
    fit_source(source, n_components=3, checkpoint=tmp_path / "there", client=one_thread)
    with pytest.raises(ValueError, match="belongs to data cut into other partitions"):
        fit_source(source, n_components=3, checkpoint=tmp_path / "here", client=one_thread, resume=True)
    with pytest.raises(ValueError, match="belongs to data cut into other partitions"):
        fit_source(source, n_components=3, checkpoint=tmp_path / "there", resume=True)
    fit_source(source, n_components=3, checkpoint=tmp_path / "there", client=one_thread, resume=True)
    with pytest.raises(ValueError, match="is of a FairStreamingPCA, the estimator a FairImagePCA"):
        fit_source(source, FairImagePCA(3), checkpoint=tmp_path / "there", client=one_thread, resume=True)


@pytest.mark.parametrize("change", ["values", "labels", "dtype", "columns"])
def test_a_checkpoint_is_not_resumed_onto_other_rows(tmp_path, rows, one_thread, change):
    X, sex = rows

    def fit(X: Any, sex: Any, **keeping: Any) -> FairStreamingPCA:
        np.save(tmp_path / "x.npy", X)
        options = {"client": one_thread, "partition_rows": 200, "checkpoint": tmp_path / "kept"}
        return fit_dask(FairStreamingPCA(3), tmp_path / "x.npy", {"sex": sex}, **options, **keeping)

    fit(X, sex)
    other = {"values": X[::-1], "dtype": X.astype(np.float32), "columns": X[:, ::-1]}.get(change, X)
    with pytest.raises(ValueError, match="first rows are not those that rows-"):
        fit(other, np.asarray(sex)[::-1] if change == "labels" else sex, resume=True)
    fit(X, sex, resume=True)


def test_an_occupied_folder_is_refused_before_data_is_read(tmp_path, rows, one_thread):
    X, sex = rows
    options = {"client": one_thread, "checkpoint": tmp_path / "kept"}
    np.save(tmp_path / "x.npy", X)
    fit_dask(FairStreamingPCA(3), tmp_path / "x.npy", {"sex": sex}, **options)
    with pytest.raises(ValueError, match="already holds a fit"):
        fit_source(tmp_path / "not there.csv", FairStreamingPCA(3), **options)


def test_a_signal_during_the_last_checkpoint_is_not_lost(tmp_path, rows, one_thread, monkeypatch):
    X, sex = rows
    np.save(tmp_path / "x.npy", X)
    write = CheckpointFolder.write

    def interrupted(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return write(*arguments, **options)

    monkeypatch.setattr(CheckpointFolder, "write", interrupted)
    with pytest.raises(FitInterrupted, match="pass resume=True to continue from there") as stopped:
        fit_dask(
            FairStreamingPCA(3),
            tmp_path / "x.npy",
            {"sex": sex},
            client=one_thread,
            checkpoint=tmp_path / "kept",
        )
    assert stopped.value.signal_number == signal.SIGTERM


# Refusals ---------------------------------------------------------------------------------------------------


def delayed_pairs(*pairs: Any) -> list[Any]:
    return [dask.delayed(pair) for pair in pairs]


EYE, SEX = np.eye(8), {"sex": [0, 1] * 4}
REFUSED = {
    "columns": (delayed_pairs((EYE, SEX), (EYE[:, :5], SEX)), "partition 1 .block 1 of X.: it has 5 columns"),
    "attributes": (delayed_pairs((EYE, SEX), (EYE, {"age": [0, 1] * 4})), r"it has the attributes \['age'\]"),
    "precision": (
        delayed_pairs((EYE.astype("f4"), SEX), (EYE, SEX)),
        "dtype float64, partition 0 has float32",
    ),
    "NaN": (delayed_pairs((EYE, SEX), (EYE * np.nan, SEX)), "partition 1 .*NaN"),
    "text": (delayed_pairs((EYE, SEX), (EYE.astype(str), SEX)), "partition 1 .*real numbers"),
    "label count": (delayed_pairs((EYE, SEX), (EYE, {"sex": [0]})), "partition 1 .*has 1 rows, X has 8"),
    "no rows": (delayed_pairs((EYE[:0], {"sex": []})), "X has no rows"),
    "not a block": (delayed_pairs("rows"), "partition 0 .*it is a str: yield rows"),
    "no labels": (delayed_pairs(EYE), "sensitive_features is missing"),
    "missing column": (
        [dask.delayed(pd.DataFrame(EYE, columns=[*"abcdefgh"])[[*names]]) for names in ("abcdh", "abch")],
        "partition 1 .*'d'",
    ),
    "array in memory": (EYE, "source is a ndarray.*without a client"),
    "generator": (open_source((EYE, SEX) for _ in range(2)), "sent to a worker: a generator cannot be"),
    "mixed list": ([dask.delayed(EYE), EYE], "list with a ndarray"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(case, one_thread):
    X, message = REFUSED[case]
    sensitive_features = "h" if case == "missing column" else None
    pca = FairStreamingPCA(2, constraint="mean").fit(EYE, sensitive_features=SEX)
    before = pca.components_.copy()
    with pytest.raises(ValueError, match=message):
        fit_dask(pca, X, sensitive_features, client=one_thread)
    np.testing.assert_array_equal(pca.components_, before)
    # The control: the first partition alone is fine, where there is one.
    if case in ("columns", "attributes", "precision", "NaN", "text", "label count"):
        fit_dask(pca, X[:1], client=one_thread)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resume": True}, "resume is given without checkpoint"),
        ({"partition_rows": 0}, "partition_rows is 0"),
        ({"client": 0}, "client is 0"),
        ({"client": "tcp://127.0.0.1:1"}, "no Dask scheduler answers"),
        ({"sensitive_features": np.zeros(7)}, "has 7 rows, X has 8"),
        ({"sensitive_features": da.zeros(7)}, "has 7 rows, X has 8"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, one_thread):
    blocks = da.from_array(EYE, chunks=(4, 8))
    asked = {"client": one_thread, "sensitive_features": np.zeros(8), **arguments}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises((ValueError, ConnectionError), match=message),
    ):
        fit_dask(FairStreamingPCA(2), blocks, **asked)


def test_a_first_pass_over_part_of_the_rows_is_refused(one_thread):
    frame = dd.from_pandas(pd.DataFrame(EYE, columns=[*"abcdefgh"]), npartitions=2)
    with pytest.raises(ValueError, match="standardize needs a first pass over all rows"):
        fit_dask(FairStreamingPCA(2), frame, "h", client=one_thread, standardize=True)


# Memory -----------------------------------------------------------------------------------------------------


def test_a_worker_holds_a_block_and_not_its_partition(tmp_path):
    from fairstream.streaming.dask.fit import _summarise
    from fairstream.streaming.dask.schema import _look

    X = np.random.default_rng(0).normal(size=(16_000, 64))
    X[:, 63] = X[:, 0] > 0
    np.save(tmp_path / "x.npy", X)

    def peak_once(n_rows: int, block_size: int) -> int:
        source = open_source(tmp_path / "x.npy", sensitive_features=[63], block_size=block_size)
        (part, *_) = cut([source], n_rows).parts
        schema = _look(part, 0, None, ())
        tracemalloc.start()
        _summarise(part, 0, schema, FairStreamingPCA(2, solver="sketch", rank=8), ())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    def peak(n_rows: int, block_size: int) -> int:
        # The smallest of several: a cluster of another test still has threads here, whose memory counts too.
        return min(peak_once(n_rows, block_size) for _ in range(4))

    peak(4_000, 500)  # imports and caches
    assert peak(16_000, 500) < 1.25 * peak(4_000, 500)
    assert peak(16_000, 500) < X.nbytes / 4
    # The control: a block that is the whole partition does show.
    assert peak(16_000, 16_000) > X.nbytes


# The command line -------------------------------------------------------------------------------------------


def test_the_command_line_fits_on_a_cluster(tmp_path, rows, single, processes):
    path, _, _ = write_parquet(tmp_path, *rows)
    command = ["fit", path, "-s", "sex", "-k", 3, "-o", tmp_path / "model", "--json"]
    address = processes.scheduler.address
    result = CliRunner().invoke(main, [*map(str, command), "--dask", address])
    assert result.exit_code == 0, result.output
    subspace = load(tmp_path / "model")
    assert principal_angles(subspace.components.T, single.components_.T).max() < 1e-7
    assert subspace.feature_names[0] == "f00"


def test_the_command_line_starts_workers_of_its_own(tmp_path, rows, single):
    path, _, _ = write_npy(tmp_path, *rows)
    np.save(tmp_path / "sex.npy", rows[1])
    command = ["fit", path, "-s", f"sex={tmp_path / 'sex.npy'}", "-k", 3, "-o", tmp_path / "model"]
    result = subprocess.run(
        [sys.executable, "-m", "fairstream.cli", *map(str, command), "--workers", "1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert principal_angles(load(tmp_path / "model").components.T, single.components_.T).max() < 1e-7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dask", "tcp://127.0.0.1:1", "--workers", "2"], "--dask and --workers"),
        (["--workers", "2", "--every", "10", "--checkpoint", "kept"], "--every does not apply"),
        (["--workers", "0"], "0 is not in the range"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, message, tmp_path):
    np.save(tmp_path / "x.npy", EYE)
    arguments = ["fit", tmp_path / "x.npy", "-s", 7, "-o", tmp_path / "model", *options]
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == 2
    assert message in result.output


# Labels and rows that have an index ---------------------------------------------------------------


@pytest.fixture(scope="module")
def indexed(rows):
    X, sex = rows
    index = [f"{i:05}" for i in range(N_ROWS)]
    frame = pd.DataFrame(X, index=index, columns=[f"x{j}" for j in range(N_FEATURES)])
    return frame, pd.Series(sex, index=index, name="sex")


def test_dask_labels_in_another_order_within_a_partition_are_paired_by_index(indexed, single, one_thread):
    X, sex = (dd.from_pandas(of, npartitions=4) for of in indexed)
    crossed = sex.map_partitions(lambda part: part.iloc[::-1], meta=sex)
    for labels in (sex, crossed, {"sex": crossed}):
        assert_same_moments(fit_dask(FairStreamingPCA(3), X, labels, client=one_thread), single)


def test_dask_labels_of_other_rows_are_refused_with_the_number_of_the_partition(indexed, one_thread):
    X = dd.from_pandas(indexed[0], npartitions=4)
    third = [*range(1500, 2000), *range(1000, 1500)]
    moved = dd.from_map(
        lambda rows: indexed[1].iloc[rows], [[*range(500)], [*range(500, 1000)], third[:500], third[500:]]
    )
    assert not moved.known_divisions
    says = r"partition 2 .* sensitive_features has the index \['01500'.*pass sensitive_features.values if"
    with pytest.raises(ValueError, match=says):
        fit_dask(FairStreamingPCA(3), X, moved, client=one_thread)
    fit_dask(FairStreamingPCA(3), X, moved.values, client=one_thread)  # the way out: by position
    with pytest.raises(ValueError, match=r"sensitive_features\['sex'\] has the index"):
        fit_dask(FairStreamingPCA(3), X, {"sex": moved}, client=one_thread)


def test_dask_labels_with_other_divisions_are_refused_before_anything_is_read(indexed, single, one_thread):
    X, sex = (dd.from_pandas(of, npartitions=4) for of in indexed)
    other = sex.repartition(divisions=(X.divisions[0], "00600", *X.divisions[2:]))
    for labels, name in ((other, "sensitive_features"), ({"sex": other}, r"sensitive_features\['sex'\]")):
        with pytest.raises(ValueError, match=rf"partition 1 begins at '00600' of the index of {name}"):
            open_source(X, sensitive_features=labels)
    mended = other.repartition(divisions=X.divisions)  # the way out
    assert_same_moments(fit_dask(FairStreamingPCA(3), X, mended, client=one_thread), single)


def test_delayed_blocks_are_paired_by_index(indexed, single, one_thread):
    X, sex = indexed
    cuts = [slice(start, start + 500) for start in range(0, N_ROWS, 500)]
    blocks = [dask.delayed((X.iloc[rows], {"sex": sex.iloc[rows].iloc[::-1]})) for rows in cuts]
    assert_same_moments(fit_dask(FairStreamingPCA(3), blocks, client=one_thread), single)
