"""Zarr and HDF5 sources pass the contract, whatever the storage blocks."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows

N, D = 310, 50
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D)).astype(np.float32)
pytestmark = pytest.mark.filterwarnings("ignore:The data type")  # text in Zarr v3 has no specification yet
SEX = RNG.choice(["f", "männlich"], N)
RACE = RNG.integers(0, 4, N)
Y = RNG.integers(0, 2, N)


class StoreContract(SourceContract):
    stored_rows = 48
    matrix = X

    @pytest.fixture
    def expected(self):
        return Block(self.matrix.reshape(N, -1), encode_groups({"sex": SEX, "race": RACE}, N), Y)

    @pytest.fixture
    def reopen(self, tmp_path):
        data = self.data(tmp_path)
        return lambda size: open_source(data, sensitive_features=["sex", "race"], target="y", block_size=size)


class TestHDF5(StoreContract):
    def data(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "data.h5", "w") as file:
            chunks = (self.stored_rows, *self.matrix.shape[1:]) if self.stored_rows else None
            file.create_dataset("X", data=self.matrix, chunks=chunks)
            file["sex"] = SEX.astype(object)
            file["race"] = RACE
            file["y"] = Y
            file.create_group("ignored")
        return tmp_path / "data.h5"


class TestHDF5Contiguous(TestHDF5):
    stored_rows = None


class TestHDF5LargeStorageBlocks(TestHDF5):
    stored_rows = N


class TestHDF5OfImages(TestHDF5):
    matrix = RNG.integers(0, 256, (N, 20, 15, 3), dtype=np.uint8)


class TestHDF5Group(TestHDF5):
    @pytest.fixture
    def reopen(self, tmp_path):
        import h5py

        path = self.data(tmp_path)
        with h5py.File(path, "r") as file:
            group = file["/"]
            yield lambda size: open_source(
                group, sensitive_features=["sex", "race"], target="y", block_size=size
            )


class TestZarr(StoreContract):
    shard_rows = None

    def data(self, tmp_path):
        zarr = pytest.importorskip("zarr", minversion="3")
        group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=3)
        shards = self.shard_rows and (self.shard_rows, D)
        X_array = group.create_array(
            "X", shape=(N, D), dtype=X.dtype, chunks=(self.stored_rows, D), shards=shards
        )
        X_array[:] = X
        for name, values in (("sex", SEX), ("race", RACE), ("y", Y)):
            array = group.create_array(name, shape=(N,), dtype=values.dtype, chunks=(100,))
            array[:] = values
        return tmp_path / "data.zarr"


class TestShardedZarr(TestZarr):
    stored_rows, shard_rows = 16, 96


class TestZarrGroup(TestZarr):
    def data(self, tmp_path):
        import zarr

        return zarr.open_group(super().data(tmp_path), mode="r")


class TestZarrArrayWithLabels(TestZarr):
    @pytest.fixture
    def reopen(self, tmp_path):
        path = self.data(tmp_path) / "X"
        return lambda size: open_source(path, sensitive_features={"sex": SEX, "race": RACE}, block_size=size)

    @pytest.fixture
    def expected(self):
        return Block(X, encode_groups({"sex": SEX, "race": RACE}, N))


def hdf5(tmp_path, **arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return tmp_path / "data.h5"


def test_default_blocks_are_whole_storage_blocks(tmp_path):
    source = open_source(TestHDF5().data(tmp_path))
    assert source.block_size % TestHDF5.stored_rows == 0


def test_storage_blocks_are_read_once(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    path = TestZarr().data(tmp_path)
    reads = []
    original = zarr.Array.__getitem__

    def counting(self, rows):
        if self.ndim == 2:
            reads.append((rows.start, rows.stop))
        return original(self, rows)

    monkeypatch.setattr(zarr.Array, "__getitem__", counting)
    for size in (1, 7, 100):
        reads.clear()
        list(open_source(path, block_size=size))
        assert all(start % TestZarr.stored_rows == 0 for start, _ in reads)
        assert sum(stop - start for start, stop in reads) == N


def test_key_and_features(tmp_path):
    path = hdf5(tmp_path, a=X, b=X + 1)
    (block,) = open_source(path, key="b", features=[2, 0])
    np.testing.assert_array_equal(block.X, (X + 1)[:, [2, 0]])


def test_labels_may_be_passed_in(tmp_path):
    path = hdf5(tmp_path, X=X)
    assert_same_rows(
        open_source(path, sensitive_features=RACE, block_size=9), Block(X, encode_groups(RACE, N))
    )


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"a": X, "b": X}, {}, "holds a, b: say which is X"),
        ({"a": X, "b": X}, {"key": "c"}, "not 'c'"),
        ({"X": X}, {"sensitive_features": ["sex"]}, "sensitive_features names 'sex'"),
        ({"X": X}, {"target": "y"}, "target names 'y'"),
        ({"X": X, "sex": RACE[:5]}, {"sensitive_features": ["sex"]}, r"shape \(5,\), X has 310 rows"),
        ({"X": RACE}, {}, "reshape"),
        ({"X": X}, {"sensitive_features": RACE[:5]}, "5 rows, X has 310"),
        ({"X": X}, {"impute": "mean"}, "impute does not apply to an HDF5 file"),
    ],
)
def test_refusals_name_the_way_out(tmp_path, arrays, options, message):
    path = hdf5(tmp_path, **arrays)
    with pytest.raises(ValueError, match=message) as error:
        open_source(path, **options)
    assert "\n" not in str(error.value)


def test_unreadable_stores_are_one_line_errors(tmp_path):
    pytest.importorskip("h5py")
    pytest.importorskip("zarr")
    (tmp_path / "a.h5").write_text("no")
    (tmp_path / "b.zarr").mkdir()
    for name in ("a.h5", "b.zarr"):
        with pytest.raises(ValueError, match="cannot be read") as error:
            open_source(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_single_array_has_no_siblings(tmp_path):
    path = TestZarr().data(tmp_path) / "X"
    with pytest.raises(ValueError, match="single array"):
        open_source(path, sensitive_features=["sex"])


def zarr_of(tmp_path, values, **layout):
    zarr = pytest.importorskip("zarr", minversion="3")
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=layout.pop("zarr_format", 3))
    layout = {"chunks": (10, 4), **layout}
    X_array = group.create_array("X", shape=values.shape, dtype=values.dtype, **layout)
    X_array[:] = values
    sex = group.create_array("sex", shape=(len(values),), dtype=np.int64, chunks=(10,))
    sex[:] = 1 + np.arange(len(values)) % 2
    return tmp_path / "data.zarr"


def stored_chunks(path, name="X"):
    """Files of an array that are not metadata."""
    files = [file for file in (path / name).rglob("*") if file.is_file()]
    return sorted(file for file in files if not file.name.endswith((".json", ".zarray", ".zattrs")))


LAYOUTS = {
    "format 2": {"zarr_format": 2},
    "format 3": {},
    "shards": {"chunks": (5, 2), "shards": (10, 4)},
    "shards that the rows do not fill": {"chunks": (1, 1), "shards": (40, 40)},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_missing_chunk_is_not_taken_for_zeros(tmp_path, layout):
    values = np.arange(1.0, 401.0).reshape(100, 4)
    path = zarr_of(tmp_path, values, **layout)
    (block,) = open_source(path, key="X")
    np.testing.assert_array_equal(block.X, values, err_msg="the control")
    chunks = stored_chunks(path)
    chunks[-1].unlink()
    message = (
        rf"data\.zarr\[X\] lacks 1 of {len(chunks)} chunks: write it again, or pass missing_chunks=\"fill\""
    )
    with pytest.raises(ValueError, match=message):
        open_source(path, key="X")
    (block,) = open_source(path, key="X", missing_chunks="fill")
    assert (block.X == 0).any()


def test_a_missing_chunk_of_labels_is_refused_too(tmp_path):
    path = zarr_of(tmp_path, np.ones((100, 4)))
    stored_chunks(path, "sex")[0].unlink()
    assert open_source(path, key="X").n_rows == 100
    with pytest.raises(ValueError, match=r"\[sex\] lacks 1 of 10 chunks"):
        open_source(path, sensitive_features=["sex"])


def test_missing_chunks_of_an_object_are_refused_too(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    path = zarr_of(tmp_path, np.ones((100, 4)))
    stored_chunks(path)[0].unlink()
    for data in (zarr.open(path, mode="r"), zarr.open(path / "X", mode="r")):
        with pytest.raises(ValueError, match="lacks 1 of 10 chunks"):
            open_source(data)
        assert open_source(data, missing_chunks="fill").n_rows == 100


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_damaged_chunk_names_the_array_and_the_rows(tmp_path, layout):
    path = zarr_of(tmp_path, RNG.normal(size=(100, 4)), **layout)
    for chunk in stored_chunks(path):
        chunk.write_bytes(RNG.bytes(chunk.stat().st_size))
    with pytest.raises(ValueError, match=r"data\.zarr\[X\] cannot be read in rows 0 to .*damaged") as error:
        list(open_source(path, key="X"))
    assert "\n" not in str(error.value)


def test_a_damaged_chunk_of_hdf5_names_the_array_and_the_rows(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        array = file.create_dataset("X", data=X, chunks=(48, D), compression="gzip")
        stored = array.id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[stored.byte_offset : stored.byte_offset + stored.size] = bytes(stored.size)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"data\.h5\[X\] cannot be read in rows .*damaged"):
        list(open_source(path))


def test_missing_chunks_is_checked(tmp_path):
    path = zarr_of(tmp_path, np.ones((100, 4)))
    with pytest.raises(ValueError, match="missing_chunks is 'zero'"):
        open_source(path, missing_chunks="zero")
    h5py = pytest.importorskip("h5py")
    with (
        h5py.File(hdf5(tmp_path, X=X), "r") as file,
        pytest.raises(ValueError, match="missing_chunks does not apply to an HDF5 file"),
    ):
        open_source(file, missing_chunks="fill")


def with_secrets(tmp_path):
    """An HDF5 file that shows the numbers of other files as its own, in four ways."""
    h5py = pytest.importorskip("h5py")
    np.arange(40.0).tofile(tmp_path / "secret.bin")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = np.ones((10, 4))
    layout = h5py.VirtualLayout((10, 4), dtype="f8")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "X", shape=(10, 4))
    inside = h5py.VirtualLayout((10, 4), dtype="f8")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["own"] = np.full((10, 4), 2.0)
        file.create_dataset("raw", (10, 4), "f8", external=[(str(tmp_path / "secret.bin"), 0, 320)])
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/X")
        file["dangling"] = h5py.ExternalLink(str(tmp_path / "nothing.h5"), "/X")
        file["soft"] = h5py.SoftLink("/link")
        file.create_virtual_dataset("virtual", layout)
        inside[:] = h5py.VirtualSource(file["own"])
        file.create_virtual_dataset("inside", inside)
        file["alias"] = h5py.SoftLink("/own")
    return tmp_path / "data.h5"


@pytest.mark.parametrize("key", ["raw", "link", "dangling", "soft", "virtual"])
def test_hdf5_does_not_reach_into_other_files(tmp_path, key):
    path = with_secrets(tmp_path)
    with pytest.raises(ValueError, match=f"'{key}' is kept in another file, .*: copy it into this one"):
        open_source(path, key=key)


@pytest.mark.parametrize("key", ["own", "alias", "inside"])
def test_links_within_an_hdf5_file_are_followed(tmp_path, key):
    (block,) = open_source(with_secrets(tmp_path), key=key)
    np.testing.assert_array_equal(block.X, np.full((10, 4), 2.0))


def test_hdf5_labels_do_not_come_from_other_files(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["sex"] = RACE
    with h5py.File(hdf5(tmp_path, X=X), "a") as file:
        file["sex"] = h5py.ExternalLink("other.h5", "/sex")
    with pytest.raises(ValueError, match="'sex' is kept in another file"):
        open_source(tmp_path / "data.h5", sensitive_features=["sex"])
