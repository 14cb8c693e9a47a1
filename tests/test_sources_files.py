"""Tables in files: every format, alone, in parts, in folders, compressed, piped in and behind URLs."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import pickle
import re
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.command import run
from support.people import EXPECTED, PARTS, ROLES, SEX, TABLE, N, PeopleContract

from fairstream.data import open_source
from fairstream.testing import assert_same_rows

pa = pytest.importorskip("pyarrow")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.ipc  # noqa: E402, F401
import pyarrow.parquet as pq  # noqa: E402


def csv_bytes(table=TABLE, delimiter=","):
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink, pa.csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue()


def json_bytes(table=TABLE):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def arrow_bytes(table=TABLE, stream=False, rows=70):
    sink = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def parquet_bytes(table=TABLE):
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=80)
    return sink.getvalue()


BYTES = {"csv": csv_bytes, "jsonl": json_bytes, "arrow": arrow_bytes, "parquet": parquet_bytes}


def in_parts(folder, ending, codec=bytes):
    """Three files, which sort in the order of their rows."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [folder / f"part-{number}.{ending}" for number in range(len(PARTS))]
    for name, part in zip(names, PARTS, strict=True):
        name.write_bytes(codec(BYTES[ending.partition(".")[0]](part)))
    return names


def compressed(codec):
    def write(data):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()

    return write


class TestCsvGlob(PeopleContract):
    def data(self, folder):
        in_parts(folder, "csv")
        return str(folder / "part-*.csv")


class TestTsvFolder(PeopleContract):
    def data(self, folder):
        (folder / "people").mkdir()
        for number, part in enumerate(PARTS):
            (folder / "people" / f"{number}.tsv").write_bytes(csv_bytes(part, "\t"))
        (folder / "people" / "_SUCCESS").touch()
        return folder / "people"


class TestCsvList(PeopleContract):
    def data(self, folder):
        first, second, third = in_parts(folder / "z", "csv")
        (folder / "a").mkdir()
        return [first, str(second), third.rename(folder / "a" / "last.csv")]


class TestCsvZstandard(PeopleContract):
    def data(self, folder):
        in_parts(folder, "csv.zst", compressed("zstd"))
        return folder


class TestCsvBzip2(PeopleContract):
    def data(self, folder):
        in_parts(folder, "csv.bz2", compressed("bz2"))
        return folder


class TestCsvInAnotherEncoding(PeopleContract):
    def data(self, folder):
        (folder / "a.csv").write_bytes(csv_bytes().decode().encode("utf-16"))
        return folder / "a.csv", {"text_encoding": "utf-16"}


class TestJsonLines(PeopleContract):
    def data(self, folder):
        (folder / "people.jsonl").write_bytes(json_bytes())
        return folder / "people.jsonl"


class TestJsonLinesGlob(PeopleContract):
    def data(self, folder):
        in_parts(folder, "jsonl.gz", gzip.compress)
        return str(folder / "*.jsonl.gz")


class TestArrowFile(PeopleContract):
    def data(self, folder):
        (folder / "people.arrow").write_bytes(arrow_bytes())
        return folder / "people.arrow"


class TestArrowStreamFile(PeopleContract):
    def data(self, folder):
        (folder / "people.arrows").write_bytes(arrow_bytes(stream=True))
        return folder / "people.arrows"


class TestFeather(PeopleContract):
    def data(self, folder):

        pa.feather.write_feather(TABLE, folder / "people.feather", compression="lz4", chunksize=90)
        return folder / "people.feather"


class TestArrowFolder(PeopleContract):
    def data(self, folder):
        in_parts(folder / "people", "arrow")
        return folder / "people"


class TestParquetList(PeopleContract):
    def data(self, folder):
        return in_parts(folder, "parquet")


class TestHivePartitionedCsv(PeopleContract):
    """The keys of folders are columns, whatever the format."""

    def data(self, folder):
        for number, (start, stop) in enumerate(itertools.pairwise((0, 120, N))):
            place = folder / "people" / f"half={number}"
            place.mkdir(parents=True)
            (place / "rows.csv").write_bytes(csv_bytes(TABLE.slice(start, stop - start)))
        return folder / "people", {"features": [*TABLE.column_names[:6]]}


class TestMemoryUrl(PeopleContract):
    ending = "csv"

    def data(self, folder):
        fsspec = pytest.importorskip("fsspec")
        place = f"memory://{uuid.uuid4().hex}"
        for number, part in enumerate(PARTS):
            with fsspec.open(f"{place}/part-{number}.{self.ending}", "wb") as file:
                file.write(BYTES[self.ending](part))
        return f"{place}/*.{self.ending}"


class TestParquetMemoryUrl(TestMemoryUrl):
    ending = "parquet"


class TestArrowMemoryUrl(TestMemoryUrl):
    ending = "arrow"


class TestJsonLinesMemoryUrl(TestMemoryUrl):
    ending = "jsonl"


class TestFileUrl(PeopleContract):
    def data(self, folder):
        pytest.importorskip("fsspec")
        in_parts(folder / "people", "csv.gz", gzip.compress)
        return f"file://{folder}/people"


@pytest.fixture(scope="module")
def s3():
    """A server that speaks S3 on this machine; yields how to connect, and the connected file system."""
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # In a process of its own: its threads would be taken for those of a source.
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", port]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
                break
            time.sleep(0.1)
        else:
            pytest.skip("the S3 server did not start")
        options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"}}
        files = s3fs.S3FileSystem(**options)
        files.mkdir("bucket")
        yield options, files
    finally:
        server.terminate()
        server.wait()


class TestS3(PeopleContract):
    ending = "parquet"

    @pytest.fixture
    def reopen(self, s3):
        options, files = s3
        for number, part in enumerate(PARTS):
            files.pipe(f"bucket/people/{self.ending}/part-{number}.{self.ending}", BYTES[self.ending](part))
        place = f"s3://bucket/people/{self.ending}"
        return lambda size: open_source(place, block_size=size, storage_options=options, **ROLES)


class TestS3Csv(TestS3):
    ending = "csv"


def test_what_s3_does_not_have_or_does_not_give_is_told_without_the_credentials(s3):
    options, _ = s3
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/no.csv does not exist: check the address"):
        open_source("s3://bucket/no.csv", storage_options=options)
    with pytest.raises(ValueError, match=r"s3://bucket/x.csv cannot be reached") as caught:
        open_source(
            "s3://bucket/x.csv",
            storage_options={
                **options,
                "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"},
                "config_kwargs": {"retries": {"max_attempts": 0}},
            },
        )
    assert "secret" not in str(caught.value)


def test_a_web_address_is_read_and_its_key_not_shown(tmp_path):
    pytest.importorskip("aiohttp")
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    (tmp_path / "people.csv").write_bytes(csv_bytes())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = f"http://127.0.0.1:{server.server_port}"
        assert_same_rows(open_source(f"{place}/people.csv?key=secret", **ROLES), EXPECTED)
        with pytest.raises(FileNotFoundError, match="does not exist") as caught:
            open_source(f"{place}/no.csv?key=secret")
        assert "secret" not in str(caught.value)
    finally:
        server.shutdown()


def test_storage_options_are_for_urls(tmp_path):
    (tmp_path / "a.csv").write_bytes(csv_bytes())
    with pytest.raises(ValueError, match="storage_options does not apply to local files"):
        open_source(tmp_path / "a.csv", storage_options={"anon": True})


def test_a_folder_of_two_kinds_is_refused_and_a_pattern_chooses(tmp_path):
    in_parts(tmp_path, "csv")
    (tmp_path / "other.parquet").write_bytes(parquet_bytes())
    with pytest.raises(ValueError, match=r"files of several kinds, .*other.parquet and .*part-0.csv: choose"):
        open_source(tmp_path, **ROLES)
    assert_same_rows(open_source(tmp_path / "*.csv", **ROLES), EXPECTED)


def test_files_that_are_no_tables_are_named(tmp_path):
    in_parts(tmp_path, "csv")
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"a.npy ends in .npy: name tables"):
        open_source(str(tmp_path / "*"))
    with pytest.raises(FileNotFoundError, match=r"no.csv does not exist"):
        open_source([tmp_path / "part-0.csv", tmp_path / "no.csv"])


def test_text_files_are_read_with_the_types_of_the_first(tmp_path):
    """Digits alone in a later file are text if the first file has text, and the other way round an error."""
    (tmp_path / "1.csv").write_text("zip,x,sex\n1a,1,f\n2b,2,m\n")
    (tmp_path / "2.csv").write_text("x,sex,zip\n3.5,f,007\n4,m,2b\n")
    source = open_source(tmp_path, sensitive_features=["sex"])
    assert source.feature_names == ("zip=007", "zip=1a", "zip=2b", "x")
    (block,) = source
    assert block.X[:, 3].tolist() == [1, 2, 3.5, 4]
    (tmp_path / "2.csv").write_text("x,sex,zip\nmany,f,007\n")
    with pytest.raises(ValueError, match=r"2\.csv cannot be read: .*many"):
        list(open_source(tmp_path, sensitive_features=["sex"]))
    (tmp_path / "2.csv").write_text("x,zip\n1,007\n")
    with pytest.raises(ValueError, match=r"2\.csv has no column 'sex', another file has: give all"):
        list(open_source(tmp_path, sensitive_features=["sex"]))


@pytest.mark.parametrize(
    "text", ["", "[1, 2]\n", '{"x": 1, "sex": "f"}\n{"x": "a", "sex": "f"}\n', '{"x": 1']
)
def test_what_is_no_json_lines_is_one_line_of_error(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"a\.jsonl cannot be read: ") as caught:
        list(open_source(tmp_path / "a.jsonl", sensitive_features=["sex"]))
    assert "\n" not in str(caught.value)


def test_a_number_with_a_point_after_whole_numbers_is_read_from_json_lines(tmp_path):
    rows = '{"x": 1, "sex": "f"}\n' * 100_000
    (tmp_path / "a.jsonl").write_text(rows + '{"x": 1.5, "sex": "m"}\n')
    blocks = list(open_source(tmp_path / "a.jsonl", sensitive_features=["sex"]))
    assert blocks[-1].X[-1, 0] == 1.5
    assert sum(block.n_rows for block in blocks) == 100_001


def test_long_lines_of_json_are_no_obstacle(tmp_path):
    row = {**{f"x{j}": 0.5 for j in range(200_000)}, "sex": "f"}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n" * 3)
    (block,) = open_source(tmp_path / "a.jsonl", sensitive_features=["sex"], features=["x7", "x9"])
    assert block.X.tolist() == [[0.5, 0.5]] * 3


def one_record_batch(path, compression=None, stream=False):
    """Write 32 MB as one record batch; return their number."""
    numbers = np.random.default_rng(0).normal(size=(4, 1_000_000))
    batch = pa.record_batch([pa.array(column) for column in numbers], names=["id", "x0", "x1", "x2"])
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(path, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return numbers.nbytes


@pytest.mark.parametrize("stream", [False, True])
def test_a_record_batch_is_used_where_it_is_mapped(tmp_path, stream):
    def held():
        before = pa.total_allocated_bytes()
        source = open_source(tmp_path / "a.arrow", features=["x0", "x1", "x2"])
        return max(pa.total_allocated_bytes() - before for _ in source)

    size = one_record_batch(tmp_path / "a.arrow", stream=stream)
    assert held() < size / 2  # a block or two
    one_record_batch(tmp_path / "a.arrow", compression="zstd", stream=stream)
    assert held() > size / 2, "the control: what is compressed cannot be used where it is"


def test_pages_of_a_mapped_file_are_left_once_they_were_read(tmp_path):
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the system does not tell what is resident")

    def resident():
        return 1024 * int(re.search(r"RssFile:\s+(\d+)", status.read_text())[1])

    size = one_record_batch(tmp_path / "a.arrow")
    for _ in range(2):  # code that is run for the first time is mapped too
        before = resident()
        grown = [resident() - before for _ in open_source(tmp_path / "a.arrow", block_size=10_000)]
    assert grown[-1] < size / 2
    with pa.memory_map(str(tmp_path / "a.arrow")) as handle:
        values = pa.ipc.open_file(handle).get_batch(0).to_tensor().to_numpy()
        assert values.any()
        assert resident() - before > size / 2, "the control: pages stay while a file is mapped"


@pytest.mark.parametrize("damage", [b"", b"ARROW1 not really", None])
def test_a_damaged_arrow_file_is_one_line_of_error(tmp_path, damage):
    (tmp_path / "a.arrow").write_bytes(arrow_bytes()[:-2_000] if damage is None else damage)
    with pytest.raises(ValueError, match=r"a\.arrow cannot be read: ") as caught:
        list(open_source(tmp_path / "a.arrow", **ROLES))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rows", [0, 3])
def test_an_arrow_file_without_columns_is_one_line_of_error(tmp_path, stream, rows):
    table = pa.table({"a": np.arange(rows)}).select([])
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for options in ({}, ROLES):
        with pytest.raises(ValueError, match=r"a\.arrow has no columns: pass a table with columns$"):
            open_source(tmp_path / "a.arrow", **options)


def test_an_arrow_file_without_rows_is_told_so(tmp_path):
    table = pa.table({"a": pa.array([], pa.string())})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match=r"a\.arrow has no rows: pass a table with rows$"):
        list(open_source(tmp_path / "a.arrow"))


def test_a_member_without_a_value_in_the_first_megabyte_of_json_lines_is_told_of(tmp_path):
    rows = '{"x": 1, "c": null}\n' * 60_000
    (tmp_path / "a.jsonl").write_text(rows + '{"x": 1, "c": 2}\n')
    said = (
        r"'c' holds no value: .*; only the first 1,048,5\d\d bytes of .*a\.jsonl were looked at: if values "
        r"follow, move a line with one to the front$"
    )
    with pytest.raises(ValueError, match=said):
        open_source(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"x": 1, "c": null}\n{"x": 1, "c": null}\n{"x": 1, "c": 2}')
    (block,) = open_source(tmp_path / "a.jsonl", impute="mean")
    assert block.X.tolist() == [[1, 2]] * 3


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "parquet", "stream", "gzip"])
def test_standard_input_is_a_source(monkeypatch, form):
    from fairstream.data.standard_input import spooled

    makers = {**BYTES, "stream": lambda: arrow_bytes(stream=True), "gzip": lambda: gzip.compress(csv_bytes())}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(makers[form]())))
    spooled.cache_clear()
    source = open_source("-", **ROLES)  # categories are found in a first pass: it is read twice
    assert_same_rows(source, EXPECTED)
    with pytest.raises(ValueError, match="features names 'no', standard input has x0"):
        open_source("-", features=["no"])
    os.remove(spooled())
    spooled.cache_clear()


def test_an_empty_standard_input_says_so(monkeypatch):
    from fairstream.data.standard_input import spooled

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    spooled.cache_clear()
    with pytest.raises(ValueError, match="standard input is empty: pipe a table"):
        open_source("-")


@pytest.mark.slow
def test_a_table_is_piped_into_the_command_and_leaves_nothing_behind(tmp_path):
    command = [
        sys.executable,
        "-m",
        "fairstream",
        "fit",
        "-",
        "-s",
        "sex",
        "-k",
        "2",
        "-o",
        str(tmp_path / "m"),
    ]
    (tmp_path / "tmp").mkdir()
    ran = subprocess.run(
        command, input=csv_bytes(), capture_output=True, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "m").exists()
    assert os.listdir(tmp_path / "tmp") == []


def test_the_command_line_reads_a_glob_and_never_writes_into_it(tmp_path):
    in_parts(tmp_path, "csv")
    pattern = tmp_path / "part-*.csv"
    run("fit", pattern, "-s", "sex", "--target", "y", "-k", 2, "-o", tmp_path / "m")
    run("transform", tmp_path / "m", pattern, "-o", tmp_path / "part-9.csv", code=1)
    assert not (tmp_path / "part-9.csv").exists()


def test_no_file_of_a_list_is_overwritten(tmp_path):
    from fairstream import embed_source, fit_source

    files = in_parts(tmp_path, "csv")
    before = files[1].read_bytes()
    source = open_source(files, **ROLES)
    with pytest.raises(ValueError, match="is also an input"):
        embed_source(fit_source(source, n_components=2).subspace_, source, files[1])
    assert files[1].read_bytes() == before


def test_a_stream_from_python_can_be_ended(tmp_path):
    """Threads of Arrow that read ahead come to an end at once when the loop is left."""
    from fairstream.data.data_files import DataFile
    from fairstream.data.file_streams import text_stream

    (tmp_path / "a.csv").write_bytes(csv_bytes())
    with text_stream(DataFile(str(tmp_path / "a.csv")), in_python=True) as (stream, end):
        assert stream.read(10) == csv_bytes()[:10]
        end()
        assert stream.read(10) == b""


@pytest.mark.parametrize(
    ("text", "options"), [("a,b\n1,2\n", {"column_types": {"z": "int64"}}), ("a;b\n1;2\n", {})]
)
def test_an_error_at_opening_keeps_no_parser_alive(tmp_path, text, options):
    """The traceback outlives the error; a parser in it, whose threads need Python, could abort the exit."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=r"column_types names|pass delimiter") as caught:
        open_source(tmp_path / "a.csv", **options)
    held = [value for entry in caught.traceback for value in entry.frame.f_locals.values()]
    assert held
    assert not [value for value in held if isinstance(value, pa.RecordBatchReader | pa.NativeFile)]


def test_sources_over_urls_travel_with_their_options(s3):
    options, files = s3
    files.pipe("bucket/one.csv", csv_bytes())
    source = open_source("s3://bucket/one.csv", storage_options=options, **ROLES)
    assert_same_rows(pickle.loads(pickle.dumps(source)), EXPECTED)
    assert "secret" not in repr(source)


def test_labels_beside_several_arrow_files_are_matched_by_row(tmp_path):
    files = in_parts(tmp_path, "arrow")
    source = open_source(files, sensitive_features={"sex": SEX}, target="y")
    assert_same_rows(source, EXPECTED)
