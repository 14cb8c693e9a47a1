"""CSV files that are wide, bombed, cut at the wrong character, left open at a quote, or not UTF-8."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from support.memory import arrow_peak_of

from fairstream.data import open_source

pa = pytest.importorskip("pyarrow")


class CountedName(str):
    """A column name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class NamesOnly:
    """As much of a reader as the check of column names needs."""

    place = "the table"

    def __init__(self, names):
        self.schema = self
        self.names = names


def test_checking_the_columns_of_a_wide_table_takes_linear_time():
    from fairstream.data.tables import check_columns

    names = [CountedName(f"x{j}") for j in range(2_000)]
    CountedName.compared = 0
    check_columns(NamesOnly(names), features=[CountedName(name) for name in names])
    assert CountedName.compared <= 10 * len(names)


def test_a_wide_file_is_read_whole(tmp_path):
    names = [f"x{j}" for j in range(20_000)]
    lines = [",".join(["sex", *names]), ",".join(["f", *["1"] * 20_000]), ",".join(["m", *["2"] * 20_000])]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    source = open_source(tmp_path / "wide.csv", sensitive_features=["sex"])
    (block,) = source
    assert source.feature_names == tuple(names)
    np.testing.assert_array_equal(block.X, np.repeat([[1.0], [2.0]], 20_000, axis=1))


def test_a_batch_of_a_wide_file_holds_many_rows(tmp_path):
    """Every batch costs time for every column, so that batches of a row or two would take quadratic time."""
    from fairstream.data.csv_files import CsvReader
    from fairstream.data.data_files import DataFile

    names = [f"x{j}" for j in range(20_000)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *[",".join(["1"] * 20_000)] * 100]))
    rows = [batch.num_rows for batch in CsvReader(DataFile(str(tmp_path / "wide.csv"))).batches(names, names)]
    assert sum(rows) == 100
    assert len(rows) == 1


def test_lines_longer_than_a_read_are_no_obstacle(tmp_path):
    name = "c" * 3_000_000
    (tmp_path / "a.csv").write_text(f"x,{name},sex\n1,2,f\n3,4,m\n")
    (block,) = open_source(tmp_path / "a.csv", sensitive_features=["sex"])
    assert block.X.tolist() == [[1, 2], [3, 4]]


def test_a_line_without_end_is_refused_with_the_file_and_the_limit(tmp_path):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"x" * 80_000_000, compresslevel=1))
    with pytest.raises(ValueError, match=r"bomb\.csv\.gz has a line of more than 67,108,864 bytes"):
        open_source(path)


def test_a_line_that_grows_too_long_further_down_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,sex\n" + b"1,f\n" * 300_000 + b"2," + b"m" * 3_000_000 + b"\n")
    with pytest.raises(ValueError, match=r"a\.csv cannot be read: it has a line of more than 524,288"):
        list(open_source(path, sensitive_features=["sex"]))


def empty_for(size, *, end=""):
    """Lines of CSV whose column c holds no value for so many bytes, and then does."""
    return "x,c,sex\n" + "1.5,,f\n" * (size // 7) + "2.5,3.5,m\n" * 20 + end


def test_a_column_that_is_empty_for_the_first_half_megabyte_is_read(tmp_path):
    (tmp_path / "a.csv").write_text(empty_for(700_000))
    blocks = list(open_source(tmp_path / "a.csv", sensitive_features=["sex"], impute="mean"))
    assert {value for block in blocks for value in block.X[:, 1]} == {3.5}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_column_that_is_empty_for_the_first_megabyte_is_told_of_with_how_much_was_looked_at(
    tmp_path, encoding
):
    path = tmp_path / "a.csv"
    path.write_text(empty_for(2_000_000))
    options = {"sensitive_features": ["sex"], "impute": "mean", "text_encoding": encoding}
    said = (
        r"column 'c' holds no value: leave it out with exclude=\['c'\]; only the first 1,048,5\d\d bytes of "
        r".*a\.csv were looked at: if values follow, fix a type with column_types=\{name: type\}$"
    )
    with pytest.raises(ValueError, match=said):
        open_source(path, **options)
    blocks = list(open_source(path, **options, column_types={"c": "float64"}))
    assert blocks[-1].X[-1].tolist() == [2.5, 3.5]
    assert open_source(path, exclude=["c"], **options).feature_names == ("x",)


def test_the_value_of_a_last_line_without_an_end_is_looked_at(tmp_path):
    (tmp_path / "a.csv").write_text("x,c,sex\n1,,f\n1,,m\n1,2,m")
    (block,) = open_source(tmp_path / "a.csv", sensitive_features=["sex"], impute="mean")
    assert block.X.tolist() == [[1, 2]] * 3


def test_a_new_table_whose_column_is_empty_says_what_the_encoding_wants(tmp_path):
    (tmp_path / "a.csv").write_text("x,c\n1,2\n3,4\n")
    encoding = open_source(tmp_path / "a.csv").encoding
    (tmp_path / "new.csv").write_text(empty_for(1_100_000))
    with pytest.raises(ValueError, match=r"'c' holds no value, the encoding wants a number: .*looked at"):
        open_source(tmp_path / "new.csv", encoding=encoding)


@pytest.mark.parametrize(
    "more", [{}, {"encoding": {"columns": [{"name": "x", "kind": "number", "width": 1}]}}]
)
def test_a_file_with_a_header_only_has_no_rows(tmp_path, more):
    (tmp_path / "a.csv").write_text("x,c,sex\n")
    with pytest.raises(ValueError, match=r"a\.csv has no rows: pass a table with rows$"):
        open_source(tmp_path / "a.csv", sensitive_features=["sex"], **more)
    (tmp_path / "b.csv").write_text("x,c,sex\n1,2,f\n")
    with pytest.raises(ValueError, match=r"a\.csv has no rows"):  # the first file settles the types
        open_source(tmp_path / "*.csv", sensitive_features=["sex"], **more)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """The parser's buffers are most of it: they hold as much of a file of 25 MB as of one of 75."""
    rng = np.random.default_rng(0)
    lines = "".join(",".join([*(f"{value:.6f}" for value in row), "f\n"]) for row in rng.random((5_000, 20)))
    peaks = []
    for copies in (28, 84):
        path = tmp_path / f"{copies}.csv"
        path.write_text(",".join([*(f"x{j}" for j in range(20)), "sex"]) + "\n" + lines * copies)

        def read(path=path):
            for _ in open_source(path, sensitive_features=["sex"]):
                pass

        peaks.append(arrow_peak_of(read))
    assert max(peaks) < 36 * 2**20
    # The control: the whole file at once needs more.
    assert arrow_peak_of(lambda: pa.csv.read_csv(path)) > 84 * 5_000 * 20 * 8


def latin(path, text):
    path.write_bytes(text.encode("latin-1"))
    return path


@pytest.mark.parametrize("text", ["größe,sex\n1,f\n2,m\n", "x,sex\n1,für\n2,m\n", "x,sex,y\n1,f,ü\n2,m,a\n"])
def test_another_text_encoding_can_be_named(tmp_path, text):
    path = latin(tmp_path / "a.csv", text)
    expected = tmp_path / "expected.csv"
    expected.write_text(text, encoding="utf-8")
    (there,) = open_source(expected, sensitive_features=["sex"])
    (here,) = open_source(path, sensitive_features=["sex"], text_encoding="latin-1")
    np.testing.assert_array_equal(here.X, there.X)
    assert here.groups["sex"].labels == there.groups["sex"].labels
    with pytest.raises(ValueError, match=r'a\.csv is not UTF-8 text.*text_encoding="latin-1"'):
        list(open_source(path, sensitive_features=["sex"]))


def test_wide_characters_are_read_too(tmp_path):
    (tmp_path / "a.csv").write_bytes("x,sex\n1,f\n2,für\n".encode("utf-16"))
    (block,) = open_source(tmp_path / "a.csv", sensitive_features=["sex"], text_encoding="utf-16")
    assert block.X.tolist() == [[1], [2]]
    assert block.groups["sex"].labels == ("f", "für")


def test_text_that_stops_being_utf8_further_down_names_the_file_and_the_option(tmp_path):
    path = tmp_path / "late.csv"
    path.write_bytes(b"x,sex\n" + b"1,f\n" * 300_000 + "2,für\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r'late\.csv is not UTF-8 text.*text_encoding="latin-1"'):
        list(open_source(path, sensitive_features=["sex"]))


def test_text_that_is_not_in_the_encoding_named_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a\.csv is not ASCII text"):
        open_source(latin(tmp_path / "a.csv", "größe,sex\n1,f\n"), text_encoding="ascii")


@pytest.mark.parametrize("name", ["no such", "hex", 8])
def test_what_is_no_text_encoding_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"text_encoding is {name!r}: pass the name of a text encoding"):
        open_source(latin(tmp_path / "a.csv", "x,sex\n1,f\n"), text_encoding=name)


def test_a_column_that_is_not_read_may_hold_anything(tmp_path):
    path = latin(tmp_path / "a.csv", "x,note,sex\n1,ü,f\n2,ß,m\n")
    (block,) = open_source(path, sensitive_features=["sex"], features=["x"])
    assert block.X.tolist() == [[1], [2]]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_header_cut_at_the_wrong_character_hints_at_the_delimiter(tmp_path, mark):
    path = tmp_path / "a.csv"
    path.write_text(f"x{mark}sex\n1{mark}f\n2{mark}m\n")
    with pytest.raises(ValueError, match=r"a\.csv has one column, .*: pass delimiter=") as caught:
        open_source(path, sensitive_features=["sex"])
    assert f"delimiter={mark!r}" in str(caught.value)
    (block,) = open_source(path, sensitive_features=["sex"], delimiter=mark)
    assert block.X.tolist() == [[1], [2]]


def test_decimal_commas_do_not_hide_that_the_header_is_cut_at_the_wrong_character(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;y;sex\n1,5;2;f\n2,5;3;m\n")  # two fields in each row, as a comma cuts them
    with pytest.raises(ValueError, match=r"pass delimiter=';' if .*, with decimal=',' if numbers"):
        open_source(path, sensitive_features=["sex"])
    (block,) = open_source(path, sensitive_features=["sex"], decimal=",")
    assert block.X.tolist() == [[1.5, 2], [2.5, 3]]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('"a,x";b;sex\n1;2;f\n3;4;m\n', "'a,x;b;sex'"),
        ("\n\na;b;sex\n1;2;f\n", "'a;b;sex'"),
        ('"a\nx";b\n1;2\n3;3\n', r"'a\\nx;b'"),
        ("\ufeffa;b;sex\n1;2;f\n", "'a;b;sex'"),
        ("\ufeffa;b;sex\n1,5;2;f\n", "'a;b;sex'"),  # no table as a comma cuts it
        ("a;b;sex\r1;2;f\r3;4;m\r", "'a;b;sex'"),
        ("\r\na;b;sex\r\n1,5;2;f\r\n", "'a;b;sex'"),
    ],
)
def test_the_header_is_the_one_that_the_parser_finds(tmp_path, text, shown):
    (tmp_path / "a.csv").write_bytes(text.encode())
    with pytest.raises(ValueError, match=rf"a\.csv has one column, {shown}: pass delimiter=';'"):
        open_source(tmp_path / "a.csv")


def test_a_quoted_name_with_another_delimiter_is_no_reason_to_doubt_several_columns(tmp_path):
    (tmp_path / "a.csv").write_text('"a;x",b\n1,2\n')
    assert open_source(tmp_path / "a.csv").feature_names == ("a;x", "b")


def test_a_single_column_whose_name_has_a_semicolon_can_be_read(tmp_path):
    (tmp_path / "a.csv").write_text("x;y\n1\n2\n")
    (block,) = open_source(tmp_path / "a.csv", delimiter=",")
    assert block.X.tolist() == [[1], [2]]


UNCLOSED = "x,work,sex\n1,a,f\n" + "2,{},{}\n" + "".join(f"{i},a,f\n" for i in range(10)) + '3,a,"m"\n4,a,f\n'


@pytest.mark.parametrize(("column", "cells"), [("sex", ("a", '"m')), ("work", ('"a', "m"))])
def test_an_unclosed_quote_does_not_swallow_rows(tmp_path, column, cells):
    path = tmp_path / "open.csv"
    path.write_text(UNCLOSED.format(*cells) if column == "sex" else 'x,work,sex\n1,a,f\n2,"a,m\n3,a",f\n')
    with pytest.raises(ValueError, match=rf"open\.csv: column '{column}' holds a line end in row 2.*quote"):
        list(open_source(path, sensitive_features=["sex"]))


def test_values_of_several_lines_are_read_on_request(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x,sex\n1,"f\ng"\n2,m\n')
    (block,) = open_source(path, sensitive_features=["sex"], newlines_in_values=True)
    assert block.groups["sex"].labels == ("f\ng", "m")


def test_a_label_as_long_as_a_text_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x,sex\n1,f\n2,"m\n' + "3,f\n" * 500 + '"\n4,m\n')
    with pytest.raises(ValueError, match=r"sensitive column 'sex' holds a label of 2,00\d characters.*quote"):
        list(open_source(path, sensitive_features=["sex"], newlines_in_values=True))
