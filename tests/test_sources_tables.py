"""Table sources: frames, Arrow streams, CSV and Parquet; each passes the contract on the same mixed table."""

from __future__ import annotations

import gzip
import pickle
import warnings

import numpy as np
import pytest
from support.memory import arrow_peak_of

from fairstream import FairStreamingPCA, fit_source, load, open_like
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.errors import FairstreamWarning
from fairstream.testing import SourceContract, assert_same_rows

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
import pyarrow.parquet as pq  # noqa: E402

N = 400
RNG = np.random.default_rng(1)
NUMBERS = {f"x{j}": RNG.normal(size=N) for j in range(12)}
AGE = RNG.integers(17, 90, N)
WORK = RNG.choice(["private", "state", "none of it"], N)
VIP = RNG.integers(0, 2, N).astype(bool)
SEX = [("f", "m", None)[i] for i in RNG.integers(0, 3, N)]
Y = RNG.integers(0, 2, N)
TABLE = pa.table({**NUMBERS, "age": AGE, "work": WORK, "vip": VIP, "sex": SEX, "y": Y})
CATEGORIES = ["none of it", "private", "state"]
ONE_HOT = (WORK[:, None] == np.array(CATEGORIES)).astype(float)
X = np.column_stack([*NUMBERS.values(), AGE, ONE_HOT, VIP])
NAMES = (*NUMBERS, "age", *(f"work={name}" for name in CATEGORIES), "vip")


class TableContract(SourceContract):
    def data(self, tmp_path):
        raise NotImplementedError

    @pytest.fixture
    def reopen(self, tmp_path):
        data = self.data(tmp_path)
        return lambda size: open_source(data, sensitive_features=["sex"], target="y", block_size=size)

    @pytest.fixture
    def expected(self):
        return Block(X, encode_groups({"sex": SEX}, N), Y)

    def test_names_the_features(self, source):
        assert source.feature_names == NAMES


class TestArrowTable(TableContract):
    def data(self, tmp_path):
        return TABLE


class TestArrowTableInPieces(TableContract):
    def data(self, tmp_path):
        return pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1, 300), TABLE.slice(301)])


class TestPandas(TableContract):
    def data(self, tmp_path):
        return TABLE.to_pandas().set_index(np.linspace(0, 1, N))


class TestPandasCategorical(TableContract):
    def data(self, tmp_path):
        return TABLE.to_pandas().astype({"work": "category", "sex": "category"})


class TestPolars(TableContract):
    def data(self, tmp_path):
        return pytest.importorskip("polars").from_arrow(TABLE)


class StreamOnly:
    """Nothing but the Arrow stream protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class TestArrowStream(TableContract):
    def data(self, tmp_path):
        return StreamOnly(TABLE)


class TestCsv(TableContract):
    header_bytes = 4 * 2**20

    def data(self, tmp_path):
        TABLE.to_pandas().to_csv(tmp_path / "people.csv", index=False)
        return tmp_path / "people.csv"


class TestCompressedCsv(TestCsv):
    def data(self, tmp_path):
        TABLE.to_pandas().to_csv(tmp_path / "people.csv.gz", index=False)
        return tmp_path / "people.csv.gz"


class TestParquet(TableContract):
    header_bytes = 14_000  # the footer of 17 columns in 4 row groups

    def data(self, tmp_path):
        pq.write_table(TABLE, tmp_path / "people.parquet", row_group_size=110)
        return tmp_path / "people.parquet"


class TestParquetFolder(TableContract):
    header_bytes = 14_000

    def data(self, tmp_path):
        folder = tmp_path / "people"
        (folder / "more").mkdir(parents=True)
        pq.write_table(TABLE.slice(0, 150), folder / "a.parquet")
        # The second file is narrower in its types: the kinds are the same.
        age = pa.array(AGE[150:].astype(np.int32))
        pq.write_table(TABLE.slice(150).set_column(12, "age", age), folder / "more" / "b.parquet")
        (folder / "_ignored.parquet").write_bytes(b"")
        return folder


class TestParquetGlob(TestParquetFolder):
    def data(self, tmp_path):
        super().data(tmp_path)
        return str(tmp_path / "people" / "**" / "[ab].parquet")


class TestLabelsPassedBeside(TableContract):
    @pytest.fixture
    def reopen(self, tmp_path):
        frame = TABLE.to_pandas()
        return lambda size: open_source(frame, sensitive_features=frame["sex"], target="y", block_size=size)


class TestStandardised(TableContract):
    @pytest.fixture
    def reopen(self):
        return lambda size: open_source(
            TABLE,
            sensitive_features=["sex"],
            target="y",
            features=["x1", "age"],
            standardize=True,
            block_size=size,
        )

    @pytest.fixture
    def expected(self, reopen):
        return Block(next(iter(reopen(N))).X, encode_groups({"sex": SEX}, N), Y)

    def test_names_the_features(self, source):
        assert source.feature_names == ("x1", "age")

    def test_mean_is_zero_and_spread_is_one(self, source):
        values = np.column_stack([NUMBERS["x1"], AGE])
        wanted = (values - values.mean(axis=0)) / values.std(axis=0)
        np.testing.assert_allclose(next(iter(source)).X, wanted, rtol=1e-12, atol=1e-12)


def opened(columns, **options):
    return open_source(pa.table(columns), **options)


def test_a_constant_column_is_centred_and_not_blown_up():
    (block,) = opened({"a": [0.1] * 7, "b": [1e9] * 7}, standardize=True)
    np.testing.assert_allclose(block.X, 0.0, atol=1e-6)


def test_standardising_survives_a_large_offset():
    values = RNG.normal(size=1_000)
    blocks = list(opened({"a": values + 1e8}, standardize=True, block_size=7))
    wanted = (values - values.mean()) / values.std()
    np.testing.assert_allclose(np.concatenate([b.X[:, 0] for b in blocks]), wanted, atol=1e-6)


def test_mean_fills_missing_numbers_and_shares_fill_missing_categories():
    columns = {"a": [1.0, None, 5.0, float("nan")], "c": ["p", "q", None, "p"]}
    (block,) = opened(columns, impute="mean")
    np.testing.assert_allclose(block.X[:, 0], [1, 3, 5, 3])
    np.testing.assert_allclose(block.X[:, 1:], [[1, 0], [0, 1], [2 / 3, 1 / 3], [1, 0]])
    (block,) = opened(columns, impute="mean", standardize=True)
    np.testing.assert_allclose(block.X[[1, 3], 0], 0.0)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1.0, None, float("nan")]}, {}, "column 'a' has 2 missing values in rows 0 to 2"),
        ({"a": [1.0, None]}, {"standardize": True}, "column 'a' has 1 missing value in the table"),
        ({"c": ["p", None]}, {}, "column 'c' has 1 missing value in the table"),
        ({"c": ["p", None]}, {"categories": {"c": ["p"]}}, "column 'c' has 1 missing value in rows 0 to 1"),
        ({"c": ["p", "q", "r"]}, {"categories": {"c": ["p"]}}, "'q' and 1 more, which is not in categories"),
        ({"c": ["p", "q"]}, {"categories": {"c": ["p"]}, "impute": "mean"}, "'q', which is not in cat"),
        ({"c": ["p"]}, {"categories": {"c": ["p", "p"]}}, "each category once"),
        ({"c": ["p"]}, {"categories": {"d": ["p"]}}, "categories names 'd'"),
        ({"c": [1, 2]}, {"categories": {"c": ["one"]}}, "the column holds int64"),
        ({"a": pa.array([None, None], pa.float64())}, {"impute": "mean"}, "no value at all: leave it out"),
        ({"a": [None, None]}, {"impute": "mean"}, r"'a' holds no value: leave it out with exclude=\['a'\]$"),
        ({"a": [None], "b": [1]}, {"features": ["a", "b"]}, "'a' holds no value: leave it out of features"),
        ({"c": pa.array([None], pa.string())}, {"impute": "mean"}, "no value at all"),
        ({"a": pa.array([0], pa.timestamp("s"))}, {}, "holds timestamp"),
        ({"a": [1.0, float("inf")]}, {"standardize": True}, "infinite"),
        ({"a": [1.0, float("inf")]}, {}, "column 'a' holds infinite values"),
        ({"a": [1.0], "s": [b"x"]}, {"sensitive_features": ["s"]}, "which holds binary"),
        ({"a": [1.0]}, {"impute": "median"}, "impute is 'median'"),
        (
            {"a": [1.0]},
            {"sensitive_features": ["sex"]},
            "sensitive_features names 'sex', the pyarrow table has a: name one",
        ),
        ({"a": [1.0]}, {"target": "y"}, "target names 'y'"),
        ({"a": [1.0]}, {"features": ["b"]}, "features names 'b'"),
        ({"a": [1.0]}, {"features": ["a", "a"]}, "features names a column twice"),
        ({"a": [1.0]}, {"features": "a"}, "pass a list of column names"),
        ({"a": [1.0]}, {"features": [0]}, "pass a list of column names"),
        ({"a": [1.0]}, {"sensitive_features": ["a"]}, "no column left"),
        ({"a": [1.0]}, {"keep_sensitive": True}, "keep_sensitive does not apply"),
        (
            {"a": [1], "s": [1]},
            {"sensitive_features": ["s"], "features": ["a"], "keep_sensitive": True},
            "not apply",
        ),
        ({"a": [1.0]}, {"delimiter": ";"}, "delimiter does not apply to a frame"),
        ({"a": [1.0]}, {"sensitive_features": np.array([1, 2])}, "2 rows, X has 1"),
    ],
)  # fmt: skip
def test_refusals_name_column_and_way_out(columns, options, message):
    with pytest.raises(ValueError, match=message) as error:
        list(opened(columns, **options))
    assert "\n" not in str(error.value)


def test_sensitive_columns_stay_only_where_asked_for():
    columns = {"a": [1.0, 2.0], "sex": ["f", "m"], "y": [0, 1]}
    assert opened(columns, sensitive_features="sex", target="y").feature_names == ("a",)
    assert opened(columns, sensitive_features=["sex"], target="y", keep_sensitive=True).feature_names == (
        "a", "sex=f", "sex=m",
    )  # fmt: skip
    # Labels taken from the frame's own column are as sensitive as the column.
    frame = pd.DataFrame(columns)
    assert open_source(frame, sensitive_features=frame["sex"]).feature_names == ("a", "y")
    assert open_source(frame, sensitive_features=frame["sex"], keep_sensitive=True).n_features == 4


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"sensitive_features": ["sex"]}, "features names 'sex', which is sensitive and so never a feature"),
        ({"sensitive_features": {"sex": ["f", "m"]}}, "features names 'sex', which is sensitive"),
        ({"sensitive_features": ["sex", "y"]}, "names 'sex', 'y', which are sensitive .* leave them out of"),
        ({"target": "y"}, "features names 'y', which is the target .* leave it out of features"),
        ({"ids": "y"}, "features names 'y', which is the ids"),
    ],
)
def test_a_sensitive_column_or_the_target_is_never_a_feature(roles, message):
    frame = pd.DataFrame({"a": [1.0, 2.0], "sex": ["f", "m"], "y": [0, 1]})
    with pytest.raises(ValueError, match=message):
        open_source(frame, features=["a", "sex", "y"], **roles)


def test_a_column_that_a_model_uses_may_be_a_label_of_other_rows():
    frame = pd.DataFrame({"a": [1.0, 2.0], "sex": ["f", "m"]})
    encoding = open_source(frame).encoding
    assert open_source(frame, sensitive_features=["sex"], encoding=encoding).n_features == 3


MESSY = {
    "id": [1, 2],
    "born": pa.array([0, 1], pa.date32()),
    "died": pa.array([0, None], pa.date32()),
    "gone": pa.array([None, None], pa.null()),
    "jailed": pa.array([0, 1], pa.timestamp("s")),
    "a": [1.0, 2.0],
}


def test_all_columns_that_cannot_be_features_are_refused_at_once():
    with pytest.raises(ValueError, match="4 columns cannot be features") as error:
        opened(MESSY, exclude=["id"])
    assert str(error.value).endswith(
        "(date32[day] values in 'born', 'died'; no value in 'gone'; timestamp[s] values in 'jailed'): "
        "convert those with values to numbers or text, or leave them out with "
        "exclude=['id', 'born', 'died', 'gone', 'jailed']"
    )
    assert opened(MESSY, exclude=["id", "born", "died", "gone", "jailed"]).feature_names == ("a",)
    with pytest.raises(ValueError, match=r"or leave them out of features$"):
        opened(MESSY, features=["born", "gone", "a"])


def test_all_columns_without_a_value_are_refused_at_once():
    empty = pa.array([None, None], pa.string())
    with pytest.raises(
        ValueError, match=r"no value at all in 'b', 'c'\): leave them out with exclude=\['b', 'c'\]"
    ):
        list(opened({"a": ["x", None], "b": empty, "c": pa.array([None, None], pa.float64())}, impute="mean"))


@pytest.mark.parametrize("standardize", [False, True])
def test_all_columns_with_missing_values_are_named_at_once(standardize):
    """Also numbers, which a first pass does not read if only text needs one."""
    columns = {"a": [None, 1.0, float("nan")], "b": [1, 2, 3], "c": ["x", None, "y"], "d": [None, 2, 3]}
    with pytest.raises(ValueError, match="3 columns have missing values in the table") as error:
        list(opened(columns, standardize=standardize))
    assert "'a' (2 rows), " in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("standardize", [False, True])
def test_columns_that_are_mostly_empty_are_better_left_out_than_filled(standardize):
    """Filled, they would be one number almost everywhere."""
    columns = {"a": [None, 1.0, None, None], "b": [1.0, None, 3.0, 4.0], "c": [1.0, 2.0, 3.0, 4.0]}
    rest = r'Fill the others with open_source\(\.\.\., impute="mean"\), drop those rows, or leave them out'
    with pytest.raises(
        ValueError, match=rf"Most of these rows lack 'a': leave it out with exclude=\['c', 'a'\]\. {rest}"
    ):
        list(opened(columns, exclude=["c"], standardize=standardize))
    with pytest.raises(
        ValueError, match=r"lack 'a': leave it out of features, or fill what is missing with open_source"
    ) as error:
        list(opened(columns, features=["a", "c"], standardize=standardize))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(ValueError, match=r"column 'b' has 1 missing value in .*: fill them with open_source"):
        list(opened(columns, exclude=["a"], standardize=standardize))


def test_a_table_that_an_encoding_was_not_made_for_is_not_told_to_leave_columns_out():
    encoding = opened({"a": [1.0, 2.0]}).encoding
    with pytest.raises(ValueError, match="2 missing values") as error:
        list(opened({"a": [None, None, 1.0]}, encoding=encoding))
    assert "Most of these rows" not in str(error.value)


def test_a_list_that_misses_a_number_is_named_with_the_other_columns():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, float("nan"), 4.0, None, None]), 2)
    with pytest.raises(ValueError, match=r"in the table of 3 rows: 'v' \(2 rows\), 'c' \(1 row\)\. Most"):
        list(opened({"v": vectors, "c": ["x", None, "y"]}))


@pytest.mark.parametrize(
    "columns",
    [
        {"c": pa.array([], pa.string())},
        {"a": pa.array([], pa.null())},
        {"a": pa.array([], pa.float64()), "c": pa.array([], pa.string()).dictionary_encode()},
    ],
)
def test_a_table_without_rows_is_told_so(columns):
    with pytest.raises(ValueError, match=r"^the pyarrow table has no rows: pass a table with rows$"):
        list(opened(columns, impute="mean"))


def test_a_frame_without_rows_is_told_so():
    with pytest.raises(ValueError, match="the pandas frame has no rows"):
        open_source(pd.DataFrame({"a": [], "b": []}, dtype=object))


def test_columns_with_missing_values_beyond_a_few_are_counted():
    columns = {f"x{j}": [None, float(j)] for j in range(11)}
    with pytest.raises(
        ValueError, match=r"11 columns have missing values in rows 0 to 1: .*'x7' .* and 3 more: "
    ):
        list(opened(columns))


def test_numbers_can_be_categories():
    source = opened({"zip": [3, 1, 3]}, categories={"zip": None})
    assert source.feature_names == ("zip=1", "zip=3")
    assert next(iter(source)).X.tolist() == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("options", [{}, {"categories": {"a": ["x", "y"]}}])
def test_two_columns_that_give_one_feature_name_are_refused(options):
    frame = pd.DataFrame({"a": ["x", "y"], "a=x": [1.0, 2.0], "b": [0, 1]})
    with pytest.raises(ValueError, match="columns 'a' and 'a=x' both give a feature 'a=x': rename one"):
        _ = open_source(frame, sensitive_features="b", **options).feature_names
    renamed = open_source(frame.rename(columns={"a=x": "c"}), sensitive_features="b", **options)
    assert renamed.feature_names == ("a=x", "a=y", "c")


def test_given_categories_keep_their_order_and_need_no_first_pass():
    source = opened({"c": ["p", "q"]}, categories={"c": ["q", "r", "p"]})
    assert source.feature_names == ("c=q", "c=r", "c=p")
    assert next(iter(source)).X.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_lists_of_numbers_are_several_features():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 3)
    source = opened({"v": vectors, "a": [1, 2, 3, 4]}, block_size=3)
    assert source.feature_names == ("v_0", "v_1", "v_2", "a")
    wanted = np.column_stack([np.arange(12.0).reshape(4, 3), [1, 2, 3, 4]])
    assert_same_rows(source, Block(wanted))
    with_null = pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2))
    with pytest.raises(ValueError, match="1 missing value"):
        list(opened({"v": with_null}))
    assert next(iter(opened({"v": with_null}, impute="mean"))).X.tolist() == [[1, 2], [1, 2]]


def test_a_first_pass_that_fails_leaves_nothing_learned():
    frame = pd.DataFrame({"c": ["p", None], "s": [0, 1]})
    source = open_source(frame, sensitive_features=["s"])
    with pytest.raises(ValueError, match="missing"):
        list(source)
    frame.loc[1, "c"] = "q"
    assert source.feature_names == ("c=p", "c=q")


def test_a_pickled_source_carries_its_first_pass():
    frame = pd.DataFrame({"c": ["p", "q"]})
    source = open_source(frame)
    assert source.n_features == 2
    copy = pickle.loads(pickle.dumps(source))
    frame.loc[1, "c"] = "new"
    assert copy.feature_names == ("c=p", "c=q")
    with pytest.raises(ValueError, match="'new', which was not there in the first pass"):
        list(source)


def test_a_record_batch_reader_is_read_once():
    reader = TABLE.select(["x0", "sex"]).to_reader(max_chunksize=33)
    source = open_source(reader, sensitive_features=["sex"], block_size=50)
    assert_same_rows(source, Block(NUMBERS["x0"].reshape(-1, 1), encode_groups({"sex": SEX}, N)))
    with pytest.raises(ValueError, match="once only"):
        list(source)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(source)
    with pytest.raises(ValueError, match="needs a first pass"):
        open_source(TABLE.to_reader(), sensitive_features=["sex"])


def test_one_record_batch_is_a_table():
    batch = TABLE.select(["x0"]).to_batches()[0]
    assert next(iter(open_source(batch))).n_rows == N


def test_a_stream_that_runs_dry_is_noticed():
    stream = StreamOnly(TABLE.select(["x0"]))
    source = open_source(stream)
    list(source)
    stream.table = stream.table.slice(0, 10)
    with pytest.raises(ValueError, match="had 400 rows and now has 10"):
        list(source)


def test_parquet_reads_only_its_footer_and_then_the_columns_it_needs(tmp_path):
    from fairstream.testing import bytes_read

    wide = pa.table({f"x{j}": RNG.normal(size=20_000) for j in range(30)})
    pq.write_table(wide, tmp_path / "wide.parquet")
    if bytes_read() is None:
        pytest.skip("the system does not tell what was read")

    def cost(**options):
        source = open_source(tmp_path / "wide.parquet", **options)
        before = bytes_read()
        list(source)
        return bytes_read() - before

    whole = cost()
    assert cost(features=["x3"]) < 0.1 * whole
    before = bytes_read()
    open_source(tmp_path / "wide.parquet")
    assert bytes_read() - before < 0.05 * whole


def test_a_row_group_is_never_decoded_whole(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(4, 1_000_000))
    table = pa.table({f"x{j}": column for j, column in enumerate(numbers)})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    before = pa.total_allocated_bytes()
    # Small blocks: an old pyarrow allocates eight times what a block takes, and leaves the rest untouched.
    source = open_source(tmp_path / "a.parquet", block_size=10_000)
    held = [pa.total_allocated_bytes() - before for _ in source]
    assert max(held) < numbers.nbytes / 2
    whole = pq.read_table(tmp_path / "a.parquet")
    assert pa.total_allocated_bytes() - before > numbers.nbytes / 2, f"the control: {whole.num_rows} rows"


def test_files_and_row_groups_without_rows_are_passed_over(tmp_path):
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("x", pa.float64())])) as writer:
        for values in ([1.0, 2.0], [], [3.0]):
            writer.write_table(pa.table({"x": pa.array(values, pa.float64())}))
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"x": [4.0]}), tmp_path / "c.parquet")
    source = open_source(tmp_path)
    assert source.cuts == [0, 2, 3, 4]
    assert [block.X.ravel().tolist() for block in source.part(1, 4)] == [[2.0, 3.0, 4.0]]


def test_parquet_files_must_agree(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "s": [0, 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x", "y"], "s": [0, 1]}), tmp_path / "2.parquet")
    with pytest.raises(
        ValueError, match=r"column 'a' is int64 in .*1.parquet and (large_)?string in .*2.parquet"
    ):
        list(open_source(tmp_path, sensitive_features=["s"]))
    pq.write_table(pa.table({"a": [1, 2], "s": ["0", "1"]}), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match="column 's'"):
        list(open_source(tmp_path, sensitive_features=["s"]))
    pq.write_table(pa.table({"b": [1, 2], "s": [0, 1]}), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match="has no column 'a'"):
        list(open_source(tmp_path, sensitive_features=["s"]))


def write(path, text):
    path.write_text(text)
    return path


def test_csv_that_changes_type_half_way_is_one_line(tmp_path):
    rows = "".join(f"{i},{i % 2}\n" for i in range(200_000))
    path = write(tmp_path / "a.csv", f"a,s\n{rows}many,1\n")
    with pytest.raises(ValueError, match=r"a.csv cannot be read: .*many.*column_types") as error:
        list(open_source(path, sensitive_features=["s"]))
    assert "\n" not in str(error.value)
    path = write(tmp_path / "b.csv", f"a,s\n{rows}1,unknown\n")
    with pytest.raises(ValueError, match=r"unknown.*column_types"):
        list(open_source(path, sensitive_features=["s"]))
    # A number with a point after a megabyte without any is no change of type.
    path = write(tmp_path / "c.csv", f"a,s\n{rows}1.5,1\n")
    source = open_source(path, sensitive_features=["s"])
    assert source.n_rows is None
    assert list(source)[-1].X[-1, 0] == 1.5
    assert source.n_rows == 200_001


def test_csv_types_names_and_delimiters(tmp_path):
    path = write(tmp_path / "a.csv", "1;007;f\n2;008;m\n")
    source = open_source(
        path,
        sensitive_features=["sex"],
        delimiter=";",
        column_names=["a", "zip", "sex"],
        column_types={"zip": "string"},
    )
    assert source.feature_names == ("a", "zip=007", "zip=008")
    path = write(tmp_path / "a.tsv", "a\ts\n1\t0\n,\t1\n")
    assert open_source(path, sensitive_features=["s"]).feature_names == ("a=,", "a=1")


def test_csv_with_two_columns_of_one_name_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "a,a,b,b,c\n1,2,3,4,5\n")
    said = (
        r"2 columns named 'a', 2 columns named 'b': rename all but one of each, or leave all of them out "
        r"with exclude=\['a', 'b'\]"
    )
    with pytest.raises(ValueError, match=said):
        open_source(path)
    assert [block.X.tolist() for block in open_source(path, exclude=["a", "b"])] == [[[5.0]]]
    said = r"2 columns named 'b': rename one of them, or leave all of them out with exclude=\['a', 'b'\]"
    with pytest.raises(ValueError, match=said):
        open_source(path, exclude=["a"])
    with pytest.raises(ValueError, match=r"2 columns named 'b': rename one of them$"):
        open_source(path, features=["b"])


def test_csv_that_is_not_utf8_is_not_taken_for_labels(tmp_path):
    (tmp_path / "a.csv").write_bytes("a,s\n1,m\u00e4nnlich\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        open_source(tmp_path / "a.csv", sensitive_features=["s"])


def test_csv_empty_cells_are_missing(tmp_path):
    path = write(tmp_path / "a.csv", "a,c,s\n1,p,f\n,,\n")
    with pytest.raises(
        ValueError, match=r"missing values in the table of 2 rows: 'c' \(1 row\), 'a' \(1 row\): "
    ):
        list(open_source(path, sensitive_features=["s"]))
    (block,) = open_source(path, sensitive_features=["s"], impute="mean")
    assert block.X.tolist() == [[1, 1], [1, 1]]
    assert block.groups["s"].decode().tolist() == ["f", None]


def test_bad_table_files_are_one_line_errors(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "b.parquet").write_bytes(b"")
    (tmp_path / "c.csv.gz").write_bytes(
        gzip.compress(b"a,b\n" + RNG.bytes(3_000_000).hex().encode())[:-900_000]
    )
    for name, text in [("empty.csv", ""), ("ragged.csv", "a,b\n1,2\n3\n"), ("fine.csv", "a,b\n1,2\n")]:
        write(tmp_path / name, text)
    whole = tmp_path / "cut.parquet"
    pq.write_table(TABLE, whole)
    data = bytearray(whole.read_bytes())
    data[2_000:60_000] = bytes(58_000)
    whole.write_bytes(data)
    for name, options in [
        ("a.parquet", {}),
        ("b.parquet", {}),
        ("cut.parquet", {"sensitive_features": ["sex"]}),
        ("c.csv.gz", {}),
        ("empty.csv", {}),
        ("ragged.csv", {}),
        ("fine.csv", {"column_types": {"a": "integer please"}}),
        ("fine.csv", {"column_types": {"z": "int64"}}),
    ]:
        with pytest.raises(ValueError, match=r"cannot be read|column_types") as error:
            list(open_source(tmp_path / name, **options))
        assert "\n" not in str(error.value)


def test_odd_frames_are_refused():
    for frame, message in [
        (pd.Series([1.0]), "single (column|feature)"),  # pandas 2 opens it as an array
        (pa.array([1.0]), "single column"),
        (pd.DataFrame({0: [1.0]}), r"0, which is not text: .*rename\(columns=str\)"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "several columns named 'a'"),
        (pd.DataFrame({"a": [1, "x"]}, dtype=object), "column 'a' .* several types"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            open_source(frame)
        assert "\n" not in str(error.value)


def test_labels_beside_a_stream_of_unknown_length_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "a\n1\n2\n")
    with pytest.raises(ValueError, match="name columns instead"):
        open_source(path, sensitive_features=np.array([0, 1]))


def test_too_many_categories_look_like_names(monkeypatch):
    monkeypatch.setattr("fairstream.data.table_encoding.MAX_CATEGORIES", 3)
    with pytest.raises(ValueError, match="more than 3 categories"):
        list(opened({"name": ["a", "b", "c", "d"]}))


@pytest.mark.parametrize(
    "labels",
    [
        ["f", "m", "f", "f", "d", "m"],
        ["f", "m", None, "f", "d", "m"],
        ["f", "", "mm", "f", "d", "m"],  # as many bytes as rows
        ["f", "é", "m", "f", "d", "m"],
        ["x"] * 6,
    ],
)
@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_labels_of_one_letter_are_those_of_any_text(labels, kind):
    try:
        column = pa.array(["zz", *labels, "y"]).cast(kind)[1:-1]  # begins within its buffers
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow makes no string views")
    table = pa.table({"x": np.arange(12.0), "sex": pa.chunked_array([column, column])})
    (block,) = open_source(table, sensitive_features=["sex"])
    expected = encode_groups({"sex": labels * 2}, 12)["sex"]
    assert block.groups["sex"].labels == expected.labels
    assert block.groups["sex"].codes.tolist() == expected.codes.tolist()


def in_batches(values, sizes):
    """Return the columns of a matrix as a table whose record batches have these sizes."""
    table = pa.table({f"x{j}": column for j, column in enumerate(values.T)})
    ends = [0, *np.cumsum(sizes)]
    parts = [table.slice(start, size) for start, size in zip(ends[:-1], sizes, strict=True)]
    assert ends[-1] == len(values)
    return pa.concat_tables(parts)


@pytest.mark.parametrize("block_size", [100, 200, 1_000])
def test_floats_become_rows_wherever_batches_and_tiles_end(block_size):
    values = np.random.default_rng(0).normal(size=(200, 2_500))  # so wide that a tile has 64 rows
    blocks = [*open_source(in_batches(values, [1, 0, 63, 130, 6]), block_size=block_size)]
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), values)
    assert all(block.X.flags.c_contiguous and block.X.flags.writeable for block in blocks)


@pytest.mark.parametrize("n_columns", [1, 7, 8, 21])
@pytest.mark.parametrize("missing", [False, True])
def test_columns_that_lie_side_by_side_become_rows(tmp_path, n_columns, missing):
    values = np.random.default_rng(0).normal(size=(300, n_columns))
    parts = [values[:100], values[100:]]
    if missing:
        parts[1][0, -1] = np.nan
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(n_columns)])
    with pa.ipc.new_file(tmp_path / "side_by_side.arrow", schema) as writer:
        for part in parts:
            writer.write(pa.record_batch([pa.array(c, from_pandas=True) for c in part.T], schema=schema))
    source = open_source(tmp_path / "side_by_side.arrow", block_size=70, impute="mean" if missing else None)
    filled = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    np.testing.assert_allclose(np.concatenate([block.X for block in source]), filled, rtol=1e-15)


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "column 'x7' has 1 missing value"), (np.inf, "column 'x7' holds infinite")],
)
def test_a_value_that_is_no_number_is_found_in_any_tile(value, message):
    values = np.ones((200, 2_500))
    values[190, 7] = value
    with pytest.raises(ValueError, match=message):
        [*open_source(in_batches(values, [100, 100]))]
    values[190, 7], values[0, 0], values[1, 0] = 1.0, 1e308, 1e308  # the control: only their sum is infinite
    (block,) = open_source(in_batches(values, [100, 100]), block_size=200)
    np.testing.assert_array_equal(block.X, values)


def test_record_batches_are_not_joined_before_they_become_rows():
    values = np.random.default_rng(0).normal(size=(20_000, 50))
    table = in_batches(values, [1_000] * 20)
    source = open_source(table, block_size=20_000)
    assert arrow_peak_of(lambda: [*source]) < values.nbytes
    # The control: joining them takes as much as they are.
    assert arrow_peak_of(table.combine_chunks) >= values.nbytes


def test_opening_a_large_csv_reads_its_first_megabytes_only(tmp_path):
    from fairstream.testing import bytes_read

    if bytes_read() is None:
        pytest.skip("the system does not tell what was read")
    path = write(tmp_path / "a.csv", "a,s\n" + "1.25,0\n" * 2_000_000)
    before = bytes_read()
    open_source(path, sensitive_features=["s"])
    assert bytes_read() - before < 0.4 * path.stat().st_size


def test_another_table_is_read_alike_through_an_encoding():
    import json

    columns = {"a": [1.0, None, 5.0], "c": ["p", "q", None], "v": [True, False, True], "s": ["f", "m", "f"]}
    first = opened(columns, sensitive_features=["s"], impute="mean", standardize=True)
    encoding = json.loads(json.dumps(first.encoding))
    assert encoding == first.encoding
    same = opened(columns, sensitive_features=["s"], encoding=encoding)
    assert same.feature_names == first.feature_names
    assert same.encoding == encoding
    np.testing.assert_array_equal(next(iter(same)).X, next(iter(first)).X)
    # Rows that never saw the first pass are scaled by what it learned; other columns are left aside.
    (block,) = opened({"new": ["x"], "c": ["q"], "v": [False], "a": [3.0]}, encoding=encoding)
    np.testing.assert_array_equal(block.X, next(iter(first)).X[[1]])
    # The control: encoded on its own, the row is another.
    assert next(iter(opened({"a": [3.0], "c": ["q"], "v": [False]}, standardize=True))).X.shape == (1, 3)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            {"a": [1.0]},
            {},
            r"the encoding needs column 'c', which the pyarrow table does not have \(it has a\): ",
        ),
        ({"b": [1.0]}, {}, "the encoding needs columns 'a', 'c', which the pyarrow table does not have"),
        ({"a": ["x"], "c": ["p"]}, {}, "column 'a' holds string values, the encoding wants a number"),
        ({"a": [1.0], "c": ["z"]}, {}, "'z', which the encoding does not know: drop those rows"),
        ({"a": [None, 1.0], "c": ["p", "p"]}, {}, "1 missing value"),
        ({"a": [1.0], "c": ["p"]}, {"standardize": True}, "standardize does not apply beside encoding"),
        ({"a": [1.0], "c": ["p"]}, {"features": ["a"]}, "features does not apply beside encoding"),
        ({"a": [1.0], "c": ["p"]}, {"categories": {"c": ["p"]}}, "categories does not apply beside encoding"),
    ],
)
def test_a_table_that_does_not_fit_an_encoding_is_refused(columns, options, message):
    encoding = opened({"a": [1.0, 2.0], "c": ["p", "q"]}).encoding
    with pytest.raises(ValueError, match=message):
        list(opened(columns, encoding=encoding, **options))


def test_labels_passed_beside_keep_the_encoding():
    frame = pd.DataFrame({"a": [1.0, 2.0], "sex": ["f", "m"]})
    assert open_source(frame, sensitive_features=frame["sex"]).encoding == {
        "columns": [{"name": "a", "kind": "number", "width": 1}]
    }


def test_row_labels_that_pandas_stored_are_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "sex": ["f", "m", "f"]}, index=[17, 4, 99])
    frame.to_parquet(tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", sensitive_features=["sex"])
    assert "__index_level_0__" in pq.read_schema(tmp_path / "a.parquet").names, "the case is real"
    assert source.feature_names == ("a",)
    asked = open_source(
        tmp_path / "a.parquet", sensitive_features=["sex"], features=["a", "__index_level_0__"]
    )
    assert asked.n_features == 2


@pytest.mark.parametrize("solver", ["exact", "power"])
def test_a_stored_estimator_still_knows_how_columns_became_features(tmp_path, solver):
    source = open_source(TABLE, sensitive_features=["sex"], target="y", standardize=True)
    how = {"step_rows": 50, "power_steps": 2, "random_state": 0} if solver == "power" else {}
    fitted = fit_source(source, n_components=1, solver=solver, **how)
    fitted.save(tmp_path / "fit")
    again = load(tmp_path / "fit").subspace_
    assert again.schema.encoding == source.encoding
    np.testing.assert_array_equal(again.components, fitted.components_)


def test_one_word_among_numbers_does_not_make_them_names(tmp_path):
    ages = [str(18 + i % 60) for i in range(300)]
    rows = [f"{age},{'fm'[i % 2]}" for i, age in enumerate(ages)]
    (tmp_path / "good.csv").write_text("\n".join(["age,sex", *rows]))
    rows[200] = "old,f"
    (tmp_path / "bad.csv").write_text("\n".join(["age,sex", *rows]))
    assert open_source(tmp_path / "good.csv", sensitive_features=["sex"]).feature_names == ("age",)
    with pytest.raises(ValueError, match="column 'age' holds 'old' among numbers"):
        _ = open_source(tmp_path / "bad.csv", sensitive_features=["sex"]).feature_names


def test_a_column_that_looks_like_an_identifier_is_reported():
    x, sex = np.arange(300.0), ["f", "m"] * 150
    cases = {
        "every row its own": [f"person {i}" for i in range(300)],
        "half of the rows": [f"person {i % 160}" for i in range(300)],
    }
    for values in cases.values():
        source = open_source(pa.table({"x": x, "who": values, "sex": sex}), sensitive_features=["sex"])
        with pytest.warns(
            FairstreamWarning, match=r"'who' has \d+ categories in 300 rows.*exclude=\['who'\]"
        ):
            _ = source.n_features
        kept = open_source(
            pa.table({"x": x, "who": values, "sex": sex}), sensitive_features=["sex"], exclude=["who"]
        )
        assert kept.n_features == 1, "the way out"


@pytest.mark.parametrize("values", [[f"job {i % 90}" for i in range(300)], ["a", "b", "c"] * 100])
def test_common_categories_are_not_reported(values):
    source = open_source(pa.table({"x": np.arange(300.0), "job": values}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = source.n_features


def test_categories_that_were_listed_are_not_reported():
    who = [f"person {i}" for i in range(300)]
    source = open_source(pa.table({"who": who}), categories={"who": who})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = next(iter(source))


@pytest.mark.parametrize("encoded", [False, True], ids=["text", "dictionary"])
@pytest.mark.parametrize("categories", [None, {"work": CATEGORIES}], ids=["learned", "given"])
def test_string_views_are_read_as_text(encoded, categories):
    try:
        pa.array(["a"]).cast(pa.string_view())
    except (AttributeError, pa.ArrowNotImplementedError):
        pytest.skip("this pyarrow makes no string views")
    table = TABLE
    for name in ("work", "sex"):
        views = table.column(name).combine_chunks().cast(pa.string_view())
        if encoded:
            plain = table.column(name).combine_chunks().dictionary_encode()
            words = plain.dictionary.cast(pa.string_view())
            views = pa.DictionaryArray.from_arrays(plain.indices, words)
        table = table.set_column(table.schema.get_field_index(name), name, views)
    (block,) = open_source(table, sensitive_features=["sex"], target="y", categories=categories)
    assert_same_rows([block], Block(X, encode_groups({"sex": SEX}, N), Y))


def test_fitting_a_frame_with_missing_values_names_a_way_that_exists():
    frame = pd.DataFrame({"age": [30.0, None, 50.0, 20.0] * 10, "hours": range(40), "sex": list("fmfm") * 10})
    with pytest.raises(ValueError, match=r'open_source\(\.\.\., impute="mean"\)'):
        fit_source(frame, FairStreamingPCA(1, sensitive_columns=["sex"]))
    filled = open_source(frame, sensitive_features=["sex"], impute="mean")
    assert fit_source(filled, n_components=1, n_unfair=0).components_.shape == (1, 2)


@pytest.mark.parametrize("verb", ["transform", "erase"])
def test_a_table_passed_to_an_estimator_of_encoded_features_names_its_subspace(verb):
    frame = pd.DataFrame({"job": ["nurse", "cook"] * 30, "age": np.arange(60) % 7, "sex": list("fmm") * 20})
    pca = fit_source(open_source(frame, sensitive_features=["sex"]), n_components=1, n_unfair=0)
    with pytest.raises(ValueError, match=r"pass it to subspace_\.embed or subspace_\.erase"):
        getattr(pca, verb)(frame)
    (block,) = open_like(pca.subspace_, frame)
    verb_of_model = {"transform": "embed"}.get(verb, verb)
    of_table = getattr(pca.subspace_, verb_of_model)(frame)
    np.testing.assert_allclose(of_table, getattr(pca.subspace_, verb_of_model)(block.X))
    assert len(getattr(pca, verb)(block.X)) == 60
    named = pd.DataFrame(block.X, columns=pca.feature_names_in_)
    assert len(getattr(pca, verb)(named)) == 60


def numbers(n=400):
    rng = np.random.default_rng(0)
    columns = {"age": rng.normal(40, 9, n), "pay": rng.normal(3_000, 500, n), "hours": rng.normal(30, 5, n)}
    return pd.DataFrame({**columns, "kids": rng.integers(0, 5, n), "sex": rng.choice(["f", "m"], n)})


@pytest.mark.parametrize("options", [{"standardize": True}, {"impute": "mean"}, {}, {"unseen": "other"}])
@pytest.mark.parametrize("mixed", [False, True])
def test_what_erase_and_reconstruct_make_of_a_table_is_embedded_as_it_is(options, mixed):
    frame = numbers().assign(**({"job": ["nurse", "cook"] * 200} if mixed else {}))
    source = open_source(frame, sensitive_features=["sex"], **options)
    model = fit_source(source, n_components=2).subspace_
    rows = np.concatenate([block.X for block in source])
    Z = model.embed(frame)
    np.testing.assert_allclose(Z, model.embed(rows), atol=1e-9)
    erased = model.erase(frame)
    np.testing.assert_allclose(model.embed(erased), Z, atol=1e-9)
    np.testing.assert_allclose(model.erase(erased), erased, atol=1e-6)
    back = model.reconstruct(Z)
    np.testing.assert_allclose(model.embed(back), Z, atol=1e-9)
    if mixed:  # names tell features from columns, and arrays are features
        assert [*erased][-2:] in (["job=cook", "job=nurse"], ["job=nurse", "job=other"])
        np.testing.assert_allclose(erased, model.erase(rows), atol=1e-9)
    else:
        assert [*erased] == [*back] == [*frame.drop(columns="sex")]
        np.testing.assert_allclose(erased.mean(), frame[[*erased]].mean(), rtol=1e-9)
        np.testing.assert_allclose(back.mean(), frame[[*erased]].mean(), rtol=1e-9)


def test_a_scaled_array_stays_scaled():
    frame = numbers()
    source = open_source(frame, sensitive_features=["sex"], standardize=True)
    model = fit_source(source, n_components=2).subspace_
    (block,) = source
    erased = model.erase(block.X)
    np.testing.assert_allclose(erased.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(model.reconstruct(model.embed(block.X)).mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(model.embed(erased), model.embed(block.X), atol=1e-9)


def test_an_estimator_takes_features_under_the_names_of_the_table_unless_they_are_scaled():
    frame = numbers()
    filled = open_source(frame, sensitive_features=["sex"], impute="mean")
    pca = fit_source(filled, n_components=2)
    features = frame.drop(columns="sex")
    np.testing.assert_allclose(pca.transform(features), pca.subspace_.embed(features), atol=1e-9)
    scaled = fit_source(open_source(frame, sensitive_features=["sex"], standardize=True), n_components=2)
    with pytest.raises(ValueError, match="features that are scaled already have the same names: pass them"):
        scaled.transform(features)
    mixed = frame.assign(job=["a", "b"] * 200)  # here names tell them apart
    pca = fit_source(open_source(mixed, sensitive_features=["sex"], standardize=True), n_components=2)
    with pytest.raises(ValueError, match=r"open_like\(pca\.subspace_, X\)$"):
        pca.transform(mixed)


def test_a_table_without_rows_gives_no_rows():
    frame = numbers().assign(job=["nurse", "cook"] * 200)
    for options in ({}, {"standardize": True}):
        source = open_source(frame, sensitive_features=["sex"], **options)
        model = fit_source(source, n_components=2).subspace_
        assert model.embed(frame[:0]).shape == (0, 2)
        assert model.erase(frame[:0]).shape == (0, 6)


def test_a_table_that_a_model_cannot_encode_names_a_way_that_exists():
    frame = numbers().assign(job=["nurse", "cook"] * 200)
    model = fit_source(open_source(frame, sensitive_features=["sex"]), n_components=2).subspace_
    strange, holes = frame.copy(), frame.copy()
    strange.loc[3, "job"], holes.loc[3, "age"] = "pilot", np.nan
    for verb in (model.embed, model.erase):
        message = (
            r"holds 'pilot', .*: drop those rows, or open X with open_like\(model, X, unseen=\"ignore\"\)"
        )
        with pytest.raises(ValueError, match=message):
            verb(strange)
        with pytest.raises(
            ValueError, match=r"'age' has 1 missing value in .*: fill them in or drop those rows"
        ):
            verb(holes)
    (block,) = open_like(model, strange, unseen="ignore")
    assert model.embed(block.X).shape == (400, 2)


def test_errors_of_a_table_travel_between_processes():
    with pytest.raises(ValueError, match="the encoding does not know") as raised:
        list(opened({"c": ["z"]}, encoding=opened({"c": ["p", "q"]}).encoding))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (type(raised.value), str(raised.value))
