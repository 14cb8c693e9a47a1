"""Tables that others hold or compute: databases, DuckDB, polars, pyarrow, Hugging Face, torch."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from support import postgres
from support.command import run
from support.people import (
    EXPECTED,
    PARTS,
    ROLES,
    SEX,
    TABLE,
    PeopleContract,
    PeopleOnceContract,
    X,
    Y,
)

from fairstream import collect_moments, load
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows

pa = pytest.importorskip("pyarrow")
import pyarrow.dataset  # noqa: E402, F401
import pyarrow.parquet as pq  # noqa: E402

QUERY = "SELECT * FROM people ORDER BY row"
FEATURES = {"features": TABLE.column_names[:6]}


def fill(connection, mark):
    """Make a table in a database through its own Python interface."""
    numbers = ", ".join(f"{name} double precision" for name in TABLE.column_names[:4])
    cursor = connection.cursor()
    cursor.execute(
        f"CREATE TABLE people (row integer, {numbers}, age integer, work text, sex text, y integer)"
    )
    rows = [(i, *row.values()) for i, row in enumerate(TABLE.to_pylist())]
    cursor.executemany(f"INSERT INTO people VALUES ({', '.join([mark] * 9)})", rows)
    connection.commit()
    connection.close()


class TestSqlite(PeopleContract):
    def data(self, folder):
        pytest.importorskip("adbc_driver_sqlite")
        fill(sqlite3.connect(folder / "people.db"), "?")
        return f"sqlite:///{folder}/people.db", {"query": QUERY, **FEATURES}


class TestDuckDbFile(PeopleContract):
    header_bytes = 4 * 2**20  # DuckDB reads the blocks of its catalogue

    def data(self, folder):
        duckdb = pytest.importorskip("duckdb")
        fill(duckdb.connect(folder / "people.duckdb"), "?")
        return f"duckdb:///{folder}/people.duckdb", {"query": QUERY, **FEATURES}


@pytest.fixture(scope="module")
def address():
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("adbc_driver_postgresql")
    with postgres.server() as url:
        fill(psycopg.connect(url), "%s")
        yield url


class TestPostgres(PeopleContract):
    @pytest.fixture
    def reopen(self, address):
        return lambda size: open_source(address, query=QUERY, block_size=size, **ROLES, **FEATURES)


def test_decimals_of_postgres_are_numbers(address):
    query = "SELECT row::numeric(9, 2) / 4 AS quarter, sex FROM people ORDER BY row"
    source = open_source(address, query=query, sensitive_features=["sex"])
    assert source.feature_names == ("quarter",)
    (block,) = source
    np.testing.assert_array_equal(block.X[:, 0], np.arange(len(X)) / 4)


def test_a_wrong_query_is_one_line_without_the_password(address):
    with pytest.raises(ValueError, match=r"nothere.*check the address and the query") as caught:
        open_source(address, query="SELECT * FROM nothere")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_databases_say_what_they_need(tmp_path):
    pytest.importorskip("adbc_driver_sqlite")
    fill(sqlite3.connect(tmp_path / "people.db"), "?")
    place = f"sqlite:///{tmp_path}/people.db"
    with pytest.raises(ValueError, match=r"query is None: say what to read from sqlite:///.*people.db"):
        open_source(place)
    with pytest.raises(FileNotFoundError, match=r"no.db does not exist: write sqlite:///file"):
        open_source(f"sqlite:///{tmp_path}/no.db", query=QUERY)
    assert not (tmp_path / "no.db").exists(), "a driver would have made it"
    with pytest.raises(ValueError, match="query does not apply to an array"):
        open_source(X, query=QUERY)


def test_the_command_line_reads_a_database(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite")
    fill(sqlite3.connect(tmp_path / "people.db"), "?")
    monkeypatch.chdir(tmp_path)
    for place in ("sqlite:///people.db", f"sqlite:///{tmp_path}/people.db"):
        columns = ("-s", "sex", "--target", "y", "--features", "x0,x1,x2,age")
        run("fit", place, *columns, "--option", f"query={QUERY}", "-k", 1, "-o", "m")
        assert load(tmp_path / "m").schema.feature_names == ("x0", "x1", "x2", "age")
        (tmp_path / "m").unlink()


class TestDuckDbRelation(PeopleContract):
    picklable = False
    side_by_side = False

    @pytest.fixture
    def reopen(self):
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        people = TABLE
        relation = connection.from_arrow(people)
        return lambda size: open_source(relation, block_size=size, **ROLES)


class TestLazyFrame(PeopleContract):
    def data(self, folder):
        pl = pytest.importorskip("polars", minversion="1.34")
        pq.write_table(TABLE, folder / "people.parquet", row_group_size=100)
        return pl.scan_parquet(folder / "people.parquet")


class TestArrowDataset(PeopleContract):
    def data(self, folder):
        for number, part in enumerate(PARTS):
            pq.write_table(part, folder / f"{number}.parquet", row_group_size=100)
        return pa.dataset.dataset(folder)


class TestHuggingFace(PeopleContract):
    def data(self, folder):
        datasets = pytest.importorskip("datasets")
        return datasets.Dataset(TABLE)


class TestHuggingFaceShuffled(TestHuggingFace):
    """A data set whose rows are chosen by index reads them in that order."""

    def data(self, folder):
        datasets = pytest.importorskip("datasets")
        order = np.random.default_rng(0).permutation(len(X))
        shuffled = datasets.Dataset(TABLE.take(pa.array(order)))
        return shuffled.select(np.argsort(order))


class TestHuggingFaceStream(PeopleContract):
    def data(self, folder):
        datasets = pytest.importorskip("datasets")
        return datasets.Dataset(TABLE).to_iterable_dataset(num_shards=3)


def test_class_labels_are_read_by_their_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"x": datasets.Value("float64"), "sex": datasets.ClassLabel(names=["f", "m"])}
    )
    data = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0], "sex": [1, 0, -1]}, features=features)
    for one in (data, data.to_iterable_dataset()):
        (block,) = open_source(one, sensitive_features=["sex"])
        assert block.groups["sex"].decode().tolist() == ["m", "f", None]
    with pytest.raises(ValueError, match="several data sets: pass one of 'train'"):
        open_source(datasets.DatasetDict({"train": data}))


class TestTorchLoader(SourceContract):
    @pytest.fixture
    def reopen(self):
        torch = pytest.importorskip("torch")
        sex = np.array([{"f": 0, "m": 1, None: 2}[label] for label in SEX])
        data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(sex), torch.from_numpy(Y))
        loader = torch.utils.data.DataLoader(data, batch_size=64)
        return lambda size: open_source(loader, sensitive_features=["sex"], block_size=size)

    @pytest.fixture
    def expected(self):
        return Block(
            X, encode_groups({"sex": [{"f": 0, "m": 1, None: 2}[label] for label in SEX]}, len(X)), Y
        )


class TestRecordBatchReader(PeopleOnceContract):
    @pytest.fixture
    def reopen(self):
        categories = {"work": ["private", "state"]}
        return lambda size: open_source(TABLE.to_reader(50), categories=categories, block_size=size, **ROLES)


class TestGenerator(PeopleOnceContract):
    @pytest.fixture
    def reopen(self):
        blocks = ((X[a:b], {"sex": SEX[a:b]}, Y[a:b]) for a, b in ((0, 40), (40, 41), (41, len(X))))
        return lambda size: open_source(blocks, block_size=size)


def test_a_generator_and_a_loader_give_the_moments_of_the_rows_in_memory():
    torch = pytest.importorskip("torch")
    from support.bits import assert_same_bits

    whole = collect_moments(open_source(X, sensitive_features={"sex": SEX}, block_size=64))
    blocks = ((X[a:b], {"sex": SEX[a:b]}) for a, b in ((0, 40), (40, 41), (41, len(X))))
    assert_same_bits(collect_moments(open_source(blocks, block_size=64)), whole)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X)), batch_size=50)
    rows = ((X, SEX[i * 50 : (i + 1) * 50]) for i, (X,) in enumerate(loader))
    source = open_source(rows, sensitive_features=["sex"], block_size=64)
    assert_same_bits(collect_moments(source), whole)


def test_a_relation_on_a_file_is_read_through_its_connection(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    pq.write_table(TABLE, tmp_path / "people.parquet")
    relation = duckdb.connect().sql(f"SELECT * FROM '{tmp_path}/people.parquet'")
    assert_same_rows(open_source(relation, **ROLES), EXPECTED)
