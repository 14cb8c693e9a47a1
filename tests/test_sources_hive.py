"""Hive partitions: the keys in the names of folders are columns like any other."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from support.command import run

from fairstream import fit_source
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

N = 400
RNG = np.random.default_rng(3)
NUMBERS = RNG.normal(size=(N, 12))
# In the order in which the folders are read: by race, then by year.
RACE = np.sort(RNG.choice(["Black/Brown", "White", "Ünknown"], N))
YEAR = np.concatenate([np.sort(RNG.integers(7, 10, (race == RACE).sum())) for race in np.unique(RACE)])
SEX = RNG.choice(["f", "m"], N)
PLAIN = pa.table({**{f"x{j}": NUMBERS[:, j] for j in range(12)}, "sex": SEX, "race": RACE, "year": YEAR})


def partitioned(folder, table=PLAIN, keys=("race", "year")):
    pq.write_to_dataset(table, folder, partition_cols=list(keys))
    return folder


class TestHivePartitions(SourceContract):
    header_bytes = 14_000

    @pytest.fixture
    def reopen(self, tmp_path):
        data = partitioned(tmp_path / "people")
        return lambda size: open_source(
            data, sensitive_features=["race"], features=[*names(), "year"], block_size=size
        )

    @pytest.fixture
    def expected(self):
        # "%C3%9Cnknown" comes before "Black%2FBrown".
        order = np.argsort([["Ünknown", "Black/Brown", "White"].index(race) for race in RACE], kind="stable")
        X = np.column_stack([NUMBERS, YEAR])[order]
        return Block(X, encode_groups({"race": RACE[order]}, N))


def names():
    return [f"x{j}" for j in range(12)]


def test_a_partitioned_table_has_the_columns_of_the_plain_one(tmp_path):
    pq.write_table(PLAIN, tmp_path / "plain.parquet")
    plain = open_source(tmp_path / "plain.parquet", sensitive_features=["sex"])
    hive = open_source(partitioned(tmp_path / "hive"), sensitive_features=["sex"])
    assert hive.feature_names == plain.feature_names


@pytest.mark.parametrize("pattern", ["", "race=*/*/*.parquet", "**/*.parquet"])
def test_a_key_can_be_the_sensitive_attribute(tmp_path, pattern):
    partitioned(tmp_path / "hive")
    pq.write_table(PLAIN, tmp_path / "plain.parquet")
    fits = [
        fit_source(
            open_source(path, sensitive_features=["race"], features=[*names(), "year"]), n_components=2
        )
        for path in (tmp_path / "plain.parquet", tmp_path / "hive" / pattern)
    ]
    plain, hive = (fit.components_.T @ fit.components_ for fit in fits)
    np.testing.assert_allclose(hive, plain, atol=1e-10)


def test_the_command_line_finds_a_key(tmp_path):
    path = partitioned(tmp_path / "hive")
    model = tmp_path / "model.safetensors"
    run("fit", path, "-s", "race", "-k", 2, "-o", model)
    assert model.exists()


def test_keys_are_typed_as_pyarrow_types_them(tmp_path):
    table = pa.table(
        {
            "x": [1.0, 2.0, 3.0],
            "zero": ["01", "2", "3"],
            "long": [2**40, 1, 2],
            "minus": [-1, 0, 1],
            "some": ["a b", None, "c=d"],
        }
    )
    keys = ("zero", "long", "minus", "some")
    folder = partitioned(tmp_path / "hive", table, keys)
    expected = pq.read_table(folder, partitioning="hive")
    source = open_source(folder, sensitive_features=["some"], features=["x", "zero", "minus"])
    order = np.argsort(expected.column("x").to_numpy())
    (block,) = source
    rows = np.argsort(block.X[:, 0])
    for j, name in enumerate(("x", "zero", "minus")):
        values = np.array(expected.column(name).to_pylist())
        np.testing.assert_array_equal(block.X[rows, j], values[order])
    assert block.groups["some"].decode()[rows].tolist() == ["a b", None, "c=d"]
    long = open_source(folder, sensitive_features=["some"], features=["long"])
    assert long.feature_names == ("long=1", "long=1099511627776", "long=2"), "text, as in pyarrow"


def test_parts_and_pickles_keep_the_keys(tmp_path):
    source = open_source(partitioned(tmp_path / "hive"), sensitive_features=["race"], features=["year"])
    (whole,) = source
    cuts = source.cuts
    parts = [pickle.loads(pickle.dumps(source.part(a, b))) for a, b in itertools.pairwise(cuts)]
    assert len(parts) == 9
    blocks = [next(iter(part)) for part in parts]
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), whole.X)
    labels = np.concatenate([block.groups["race"].decode() for block in blocks])
    assert labels.tolist() == whole.groups["race"].decode().tolist()


def test_a_file_that_holds_the_key_itself_is_believed(tmp_path):
    (tmp_path / "hive" / "race=a").mkdir(parents=True)
    pq.write_table(
        pa.table({"x": [1.0, 2.0], "race": ["b", "c"]}), tmp_path / "hive" / "race=a" / "1.parquet"
    )
    (block,) = open_source(tmp_path / "hive", sensitive_features=["race"])
    assert block.groups["race"].labels == ("b", "c")


def test_folders_above_the_one_opened_are_no_keys(tmp_path):
    folder = tmp_path / "run=3" / "plain"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1.0, 2.0]}), folder / "1.parquet")
    for path in (folder, folder / "1.parquet", folder / "*.parquet"):
        assert open_source(path).feature_names == ("x",)


def test_a_key_that_the_files_hold_with_another_type_is_read_from_the_files(tmp_path):
    for year in (7, 8):
        (tmp_path / "hive" / f"year={year}").mkdir(parents=True)
        held = pa.table({"x": [1.0, 2.0], "year": pa.array([year + 0.5] * 2, pa.float64())})
        pq.write_table(held, tmp_path / "hive" / f"year={year}" / "1.parquet")
    (block,) = open_source(tmp_path / "hive")
    assert block.X[:, 1].tolist() == [7.5, 7.5, 8.5, 8.5]
