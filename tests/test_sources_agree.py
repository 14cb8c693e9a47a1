"""One data set, many containers: Adult gives the same fair subspace from every kind of source."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream import GroupMoments, solve
from fairstream.data import open_source
from fairstream.data.cutting import join_blocks
from fairstream.data.groups import encode_groups
from fairstream.datasets import load_adult
from fairstream.linalg import principal_angles

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

OPTIONS = {"sensitive_features": ["sex", "race"], "target": "income", "standardize": True}


def fitted(source):
    moments = GroupMoments(source.n_features)
    for block in source:
        moments.update(block.X, block.groups)
    return solve(moments, n_components=5, n_unfair=2)


@pytest.fixture(scope="module")
def adult():
    return load_adult(drop_missing=True)


@pytest.fixture(scope="module")
def encoded(adult):
    return join_blocks(list(open_source(adult, **OPTIONS)))


@pytest.fixture(scope="module")
def reference(adult, encoded):
    """Fitted in one piece, on features built by hand."""
    columns = []
    for name in adult.columns.drop(["sex", "race", "income"]):
        values = adult[name].to_numpy()
        if values.dtype.kind in "if":
            columns.append((values - values.mean()) / values.std())
        else:
            columns += [(values == category).astype(float) for category in sorted(set(values))]
    X = np.column_stack(columns)
    np.testing.assert_allclose(encoded.X, X, atol=1e-10)
    moments = GroupMoments(X.shape[1]).update(X, encode_groups(adult[["sex", "race"]], len(X)))
    return solve(moments, n_components=5, n_unfair=2)


def as_pandas(adult, encoded, folder):
    return open_source(adult, block_size=5_000, **OPTIONS)


def as_polars(adult, encoded, folder):
    return open_source(pytest.importorskip("polars").from_pandas(adult), **OPTIONS)


def as_pyarrow(adult, encoded, folder):
    return open_source(pa.Table.from_pandas(adult), block_size=777, **OPTIONS)


def as_csv(adult, encoded, folder):
    adult.to_csv(folder / "adult.csv", index=False)
    return open_source(folder / "adult.csv", **OPTIONS)


def as_parquet(adult, encoded, folder):
    adult.to_parquet(folder / "adult.parquet", row_group_size=3_000)
    return open_source(folder / "adult.parquet", block_size=4_096, **OPTIONS)


def as_npy(adult, encoded, folder):
    np.save(folder / "adult.npy", encoded.X)
    return open_source(folder / "adult.npy", sensitive_features=adult[["sex", "race"]])


def as_hdf5(adult, encoded, folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "adult.h5", "w") as file:
        file.create_dataset("X", data=encoded.X, chunks=(1_000, encoded.X.shape[1]))
        for name in ("sex", "race"):
            file[name] = adult[name].to_numpy(dtype=object)
    return open_source(folder / "adult.h5", sensitive_features=["sex", "race"])


def as_zarr(adult, encoded, folder):
    zarr = pytest.importorskip("zarr", minversion="3")
    group = zarr.open_group(folder / "adult.zarr", mode="w")
    group.create_array("X", data=encoded.X, chunks=(1_000, encoded.X.shape[1]))
    for name in ("sex", "race"):
        group.create_array(name, data=encoded.groups[name].codes)
    return open_source(folder / "adult.zarr", sensitive_features=["sex", "race"])


CONTAINERS = (as_pandas, as_polars, as_pyarrow, as_csv, as_parquet, as_npy, as_hdf5, as_zarr)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda function: function.__name__)
def test_adult_gives_the_same_subspace_from(container, adult, encoded, reference, tmp_path):
    found = fitted(container(adult, encoded, tmp_path))
    assert found.n_rows == reference.n_rows == 45_222
    assert principal_angles(found.components.T, reference.components.T)[0] < 1e-8
    assert principal_angles(found.unfair_basis.T, reference.unfair_basis.T)[0] < 1e-8


def test_labels_out_of_step_give_another_subspace(adult, encoded, reference):
    """The control: the comparison above would notice labels that slipped by one row."""
    slipped = np.roll(adult["sex"].to_numpy(dtype=object), 1)
    found = fitted(open_source(encoded.X, sensitive_features={"sex": slipped, "race": adult["race"]}))
    assert principal_angles(found.components.T, reference.components.T)[0] > 1e-3
