"""Tables as people have them: odd columns in frames, files that are not what they are called, lists."""

from __future__ import annotations

import gzip
import sqlite3
import warnings
import zipfile

import numpy as np
import pytest
from support.command import run

from fairstream import FairStreamingPCA, fit_source, load, open_source
from fairstream.errors import FairstreamWarning

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
N = 120


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 4)), columns=["age", "größe in cm", "x=3", "年齢"])
    return frame.assign(sex=["f", "m"] * (N // 2))


@pytest.fixture
def lines():
    return "age,sex\n" + "1.5,f\n2,m\n" * 20


def refused(action, *said):
    with pytest.raises((ValueError, TypeError, ImportError)) as error:
        action()
    assert type(error.value) is not TypeError
    for text in said:
        assert text in str(error.value)
    assert "\n" not in str(error.value)


# Frames passed to an estimator ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pd.array([None, *range(N - 1)], dtype="Int64"), "column 'odd' of X has 1 missing value: "),
        (pd.array([None, True] * (N // 2), dtype="boolean"), "column 'odd' of X has 60 missing values: "),
        ([np.nan, *range(N - 1)], 'fit_source(open_source(X, impute="mean", ...))'),
        ([np.inf, *range(N - 1)], "column 'odd' of X holds infinite values: "),
        (pd.date_range("2020", periods=N), "column 'odd' of X holds dates (Timestamp("),
        (
            [np.ones(3)] * N,
            "column 'odd' of X holds lists (array([1., 1., 1.])): pass numbers, or let open_s",
        ),
        (["cook"] * N, "column 'odd' of X holds text ('cook'): pass numbers, or let open_source(frame) or"),
    ],
)
def test_what_an_estimator_cannot_use_is_named_by_its_column(people, column, said):
    refused(lambda: FairStreamingPCA(2, sensitive_columns="sex").fit(people.assign(odd=column)), said)


def test_polars_and_pyarrow_name_the_column_with_missing_values_too(people):
    frame = people.assign(odd=[None, *np.arange(N - 1.0)])
    for kind in (
        pl.from_pandas(frame),
        pl.from_pandas(frame, nan_to_null=False),
        pa.Table.from_pandas(frame),
    ):
        refused(lambda kind=kind: FairStreamingPCA(2, sensitive_columns="sex").fit(kind), "column 'odd' of X")


def test_what_only_looks_like_a_frame_in_memory_is_refused_with_the_way_to_fit_it(people):
    duckdb = pytest.importorskip("duckdb")
    pca = FairStreamingPCA(2, sensitive_columns="sex")
    relation = duckdb.from_df(people)
    refused(
        lambda: pca.fit(relation), "a DuckDBPyRelation, which is not in memory", "fit_source(X, estimator)"
    )
    refused(lambda: pca.fit(pl.from_pandas(people).lazy()), "a LazyFrame, which is not in memory")
    refused(
        lambda: pca.fit(pa.Table.from_pandas(people).to_batches()[0]), "X is a RecordBatch: make it a frame"
    )
    assert fit_source(relation, pca).n_features_in_ == 4


def test_a_source_or_a_path_is_no_rows_and_no_estimator(people, tmp_path):
    pca = FairStreamingPCA(2, constraint="none")
    source = open_source(people.drop(columns="sex").to_numpy())
    refused(lambda: pca.fit(source), "X is of type MatrixSource", "fit_source(X, estimator)")
    refused(lambda: pca.partial_fit(tmp_path / "rows.npy"), "not rows in memory", "fit_source(X, estimator)")
    refused(lambda: fit_source(pca, source), "estimator is of type MatrixSource", "pass the source first")
    assert fit_source(source, pca).n_features_in_ == 4


def test_columns_of_one_name_are_refused_by_name(people):
    twice = people.set_axis(["age", "age", "a", "b", "sex"], axis="columns")
    refused(lambda: FairStreamingPCA(2, sensitive_columns="sex").fit(twice), "several columns named 'age'")
    refused(lambda: open_source(twice), "several columns named 'age'")


def test_sparse_columns_of_pandas_are_numbers(people):
    dense = people.assign(odd=np.arange(N) % 3)
    sparse = dense.astype({"odd": pd.SparseDtype("int64")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn tells that they become dense
        fitted = [FairStreamingPCA(2, sensitive_columns="sex").fit(one) for one in (dense, sparse)]
    np.testing.assert_array_equal(*(one.components_ for one in fitted))
    (one,), (other,) = (open_source(frame, sensitive_features=["sex"]) for frame in (dense, sparse))
    np.testing.assert_array_equal(one.X, other.X)


def test_intervals_of_cut_are_groups_that_a_file_can_hold(people, tmp_path):
    frame = people.drop(columns="sex").assign(band=pd.cut(np.arange(N), [-1, 50, 80, N]))
    frame.loc[3, "band"] = np.nan
    fitted = FairStreamingPCA(1, sensitive_columns="band", constraint="mean").fit(frame)
    fitted.save(tmp_path / "model.safetensors")
    counts = {"(-1, 50]": 50, "(50, 80]": 30, "(80, 120]": 39}
    assert dict(load(tmp_path / "model.safetensors").group_counts_["band"]) == counts
    (block,) = open_source(frame, sensitive_features=["band"])
    assert block.groups["band"].counts() == counts
    assert "band=(50, 80]" in open_source(frame.dropna()).feature_names


def test_a_name_that_is_nearly_there_is_pointed_at(people, tmp_path):
    people.rename(columns={"sex": " Sex"}).to_csv(tmp_path / "people.csv", index=False)
    refused(
        lambda: open_source(tmp_path / "people.csv", sensitive_features=["sex"]),
        "name one of these; ' Sex' may be it",
    )
    refused(lambda: FairStreamingPCA(2, sensitive_columns="Sex").fit(people), "; 'sex' may be it")
    refused(lambda: FairStreamingPCA(2, sensitive_columns="race").fit(people), "'年齢', 'sex'")


# Lists of numbers in a column ------------------------------------------------------------------------


def table_of_lists(kind=None, missing=False):
    rows = np.random.default_rng(1).normal(size=(N, 3)).tolist()
    rows[5] = None if missing else rows[5]
    return pa.table({"text": pa.array(rows, kind or pa.list_(pa.float64())), "sex": ["f", "m"] * (N // 2)})


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32())])
def test_lists_of_one_length_are_features_wherever_they_come_from(kind, tmp_path):
    table = table_of_lists(kind)
    pa.parquet.write_table(table, tmp_path / "text.parquet", row_group_size=50)
    fixed = table_of_lists(pa.list_(kind.value_type, 3))
    (expected,) = open_source(fixed, sensitive_features=["sex"])
    for data in (table, table.to_pandas(), pl.from_arrow(table), tmp_path / "text.parquet"):
        source = open_source(data, sensitive_features=["sex"], block_size=N)
        assert source.feature_names == ("text_0", "text_1", "text_2")
        (block,) = source
        np.testing.assert_array_equal(block.X, expected.X)
    model = fit_source(open_source(table, sensitive_features=["sex"]), n_components=1).subspace_
    assert model.embed(table.to_pandas()).shape == (N, 1)


def test_lists_of_other_lengths_and_missing_ones_are_refused_or_filled():
    ragged = pa.table({"text": [[1.0, 2.0], [3.0]], "age": [1.0, 2.0]})
    refused(
        lambda: [*open_source(ragged)], "column 'text' has lists of different lengths, the first has 2 numb"
    )
    missing = table_of_lists(missing=True)
    refused(lambda: [*open_source(missing, sensitive_features=["sex"])], "column 'text' has 1 missing value")
    (block,) = open_source(missing, sensitive_features=["sex"], impute="mean")
    np.testing.assert_allclose(block.X[5], np.delete(block.X, 5, axis=0).mean(axis=0))
    encoding = open_source(table_of_lists(), exclude=["sex"]).encoding
    refused(lambda: [*open_source(ragged, encoding=encoding)], "the first has 3 numbers")
    refused(lambda: open_source(table_of_lists().to_reader()), "can be read once only")


# Files that are not what they are called -------------------------------------------------------------


def test_a_csv_file_that_holds_something_else_says_what(tmp_path, lines):
    pa.parquet.write_table(pa.table({"a": [1.0]}), tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "c.csv").write_bytes(lines.encode("utf-16"))
    (tmp_path / "d.csv").write_bytes(b"")
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(lines.encode())[:-9])
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("people.csv", lines)
    for name, said in [
        ("a.csv", "holds what .parquet files hold, not text: rename it"),
        ("b.csv", "holds what .csv.gz files hold, not text: rename it"),
        ("c.csv", 'is UTF-16 text: pass text_encoding="utf-16"'),
        ("d.csv", "it is empty; leave it out, or write its header at least"),
        ("e.csv.gz", "check the file, or write it again"),
        ("f.zip", "unpack it if it holds tables"),
    ]:
        refused(lambda name=name: [*open_source(tmp_path / name)], name, said)
    (block,) = open_source(tmp_path / "c.csv", text_encoding="utf-16", sensitive_features=["sex"])
    assert block.X.sum() == 70.0


def test_what_cannot_be_opened_says_how_it_can(tmp_path, lines):
    (tmp_path / "people.csv").write_text(lines)
    (tmp_path / "people.db").write_bytes(b"")
    (tmp_path / "people.xlsx").write_bytes(b"")
    with (tmp_path / "people.csv").open() as file, sqlite3.connect(":memory:") as connection:
        for data, said in [
            (file, "is an open file: pass its path"),
            (connection, 'open_source("sqlite:///people.db", query='),
            (tmp_path / "people.db", f"is a database: name it by URL, sqlite:///{tmp_path}/people.db"),
            (tmp_path / "people.xlsx", "else convert it"),
        ]:
            refused(lambda data=data: open_source(data), said)
    frame = pd.read_csv(tmp_path / "people.csv")
    refused(lambda: open_source([frame, frame]).n_features, "is a frame with columns that are no numbers")


def test_types_of_columns_are_names_or_types_of_arrow(tmp_path):
    (tmp_path / "people.csv").write_text("zip,age\n" + "01067,1\n80331,2\n" * 20)
    for of in ("string", pa.string()):
        source = open_source(tmp_path / "people.csv", column_types={"zip": of})
        assert source.feature_names == ("zip=01067", "zip=80331", "age")
    for of in (str, "txt", None):
        refused(
            lambda of=of: open_source(tmp_path / "people.csv", column_types={"zip": of}),
            "column_types['zip']",
        )


@pytest.mark.parametrize("text", ["1,5", "12 %", "$5.50", "1,234", "1.234,50"])
def test_numbers_that_are_text_for_the_way_they_are_written_are_warned_of(tmp_path, text):
    (tmp_path / "people.csv").write_text("pay;age\n" + f"{text};1\n7;2\n" * 20)
    with pytest.warns(FairstreamWarning, match="column 'pay' holds numbers written as"):
        _ = open_source(tmp_path / "people.csv", delimiter=";").feature_names


@pytest.mark.parametrize("text", ["01.05.2020", "25-34", "A1", "12:30"])
def test_other_text_with_digits_is_no_number(tmp_path, text):
    (tmp_path / "people.csv").write_text("pay;age\n" + f"{text};1\n{text}x;2\n" * 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        assert open_source(tmp_path / "people.csv", delimiter=";").feature_names[0] == f"pay={text}"


# Several files ---------------------------------------------------------------------------------------


def test_a_part_without_any_value_in_a_column_fits_any_type(tmp_path):
    for number, column in enumerate([[1.5, 2.5], [None, None]]):
        table = pa.table({"age": column, "sex": ["f", "m"]})
        pa.parquet.write_table(table, tmp_path / f"{number}.parquet")
    (block,) = open_source(tmp_path, sensitive_features=["sex"], impute="mean")
    assert block.X.ravel().tolist() == [1.5, 2.5, 2.0, 2.0]


def test_a_file_that_is_named_twice_does_not_count_twice(tmp_path, lines):
    (tmp_path / "people.csv").write_text(lines)
    for twice in (
        tmp_path / "people.csv",
        tmp_path / ".." / tmp_path.name / "people.csv",
        tmp_path / "*.csv",
    ):
        refused(lambda twice=twice: open_source([tmp_path / "people.csv", str(twice)]), "is named twice")


def test_an_archive_is_a_file_system_too(tmp_path, lines):
    pytest.importorskip("fsspec")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("people.csv", lines)
    (block,) = open_source(f"zip://people.csv::{tmp_path}/a.zip", sensitive_features=["sex"])
    assert block.n_rows == 40


# The command line ------------------------------------------------------------------------------------


def test_options_that_list_names_may_be_repeated(people, tmp_path):
    path = tmp_path / "people.csv"
    people.assign(id=range(N), name=[f"n{j}" for j in range(N)]).to_csv(path, index=False)
    model, out = tmp_path / "model", tmp_path / "out.csv"
    run("fit", path, "-s", "sex", "--exclude", "id", "--exclude", "name,x=3", "-k", 1, "-o", model)
    assert load(model).feature_names == ("age", "größe in cm", "年齢")
    run("transform", model, path, "--keep", "id", "--keep", "name", "-o", out)
    assert [*pd.read_csv(out)][:2] == ["id", "name"]
    said = run("fit", path, "-s", "sex,race", "-k", 1, "-o", tmp_path / "other", code=1).stderr
    assert "name one of these, and give --sensitive once for each" in said
