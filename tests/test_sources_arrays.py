"""Array sources: in memory, .npy, .npz, sparse; each passes the contract."""

from __future__ import annotations

import pickle
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows

N, D = 300, 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
SEX = [("f", "m", None)[i] for i in RNG.integers(0, 3, N)]
RACE = RNG.integers(0, 4, N)
Y = RNG.integers(0, 2, N)
LABELS = {"sex": SEX, "race": RACE}
SPARSE = sp.random_array((N, 2_000), density=0.03, rng=RNG, format="csr")


class ArrayContract(SourceContract):
    """Opens what `data` makes of a folder, with labels passed in."""

    matrix = X
    options: ClassVar = {}

    def data(self, tmp_path):
        return self.matrix

    @pytest.fixture
    def reopen(self, tmp_path):
        data = self.data(tmp_path)
        return lambda size: open_source(
            data, sensitive_features=LABELS, target=Y, block_size=size, **self.options
        )

    @pytest.fixture
    def expected(self):
        return Block(self.matrix.reshape(N, -1), encode_groups(LABELS, N), Y)


class TestArray(ArrayContract):
    pass


class TestImagesInMemory(ArrayContract):
    matrix = RNG.integers(0, 256, (N, 5, 4, 3), dtype=np.uint8)


class TestSparse(ArrayContract):
    @pytest.fixture
    def expected(self):
        return Block(SPARSE, encode_groups(LABELS, N), Y)

    def data(self, tmp_path):
        return sp.csc_matrix(SPARSE)


class TestNpy(ArrayContract):
    def data(self, tmp_path):
        np.save(tmp_path / "X.npy", self.matrix)
        return tmp_path / "X.npy"


class TestNpyOfImages(TestNpy):
    matrix = RNG.integers(0, 256, (N, 20, 20, 1), dtype=np.uint8)


class TestNpyInFortranOrder(ArrayContract):
    def data(self, tmp_path):
        np.save(tmp_path / "X.npy", np.asfortranarray(X))
        return str(tmp_path / "X.npy")


class TestMemoryMap(ArrayContract):
    def data(self, tmp_path):
        np.save(tmp_path / "X.npy", X)
        return np.load(tmp_path / "X.npy", mmap_mode="r")


class TestNpz(ArrayContract):
    options: ClassVar = {"key": "rows"}

    def data(self, tmp_path):
        np.savez(tmp_path / "X.npz", other=Y, rows=X)
        return tmp_path / "X.npz"


class TestCompressedNpz(ArrayContract):
    def data(self, tmp_path):
        np.savez_compressed(tmp_path / "X.npz", X=X, other=Y)
        return tmp_path / "X.npz"


class TestNpzInFortranOrder(ArrayContract):
    def data(self, tmp_path):
        np.savez(tmp_path / "X.npz", np.asfortranarray(X))
        return tmp_path / "X.npz"


class TestNpzWithLabelsInside(ArrayContract):
    @pytest.fixture
    def reopen(self, tmp_path):
        path = tmp_path / "all.npz"
        np.savez(path, X=X, race=RACE, y=Y)
        return lambda size: open_source(path, sensitive_features=["race"], target="y", block_size=size)

    @pytest.fixture
    def expected(self):
        return Block(X, encode_groups({"race": RACE}, N), Y)


class TestSparseNpz(TestSparse):
    format = "csr"

    def data(self, tmp_path):
        sp.save_npz(tmp_path / "X.npz", SPARSE.asformat(self.format))
        return tmp_path / "X.npz"


class TestSparseNpzByColumns(TestSparseNpz):
    format = "csc"


class TestSensitiveColumns(ArrayContract):
    @pytest.fixture
    def reopen(self, tmp_path):
        np.save(tmp_path / "X.npy", np.column_stack([RACE, X, Y]))
        return lambda size: open_source(
            tmp_path / "X.npy", sensitive_features=[0], target=-1, block_size=size
        )

    @pytest.fixture
    def expected(self):
        return Block(X, encode_groups({"column_0": RACE.astype(float)}, N), Y.astype(float))


def test_sparse_blocks_stay_sparse(tmp_path):
    sp.save_npz(tmp_path / "X.npz", SPARSE)
    for data in (SPARSE, tmp_path / "X.npz"):
        assert all(sp.issparse(block.X) for block in open_source(data))


def test_sensitive_column_of_a_sparse_matrix():
    (block,) = open_source(SPARSE, sensitive_features=[0])
    assert block.X.shape == (N, 1_999)
    assert block.groups["column_0"].decode().tolist() == SPARSE[:, [0]].toarray().ravel().tolist()


def test_values_keep_their_type(tmp_path):
    np.save(tmp_path / "X.npy", X.astype(np.float16))
    assert next(iter(open_source(tmp_path / "X.npy"))).X.dtype == np.float16


def test_array_blocks_are_views():
    assert all(np.shares_memory(block.X, X) for block in open_source(X, block_size=100))


def test_a_pickled_memory_map_carries_its_path_only(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert len(pickle.dumps(open_source(mapped))) < 2_000
    # A part of a map, or a copy-on-write map, is not the file: its own rows count.
    assert_same_rows(open_source(mapped[5:]), Block(X[5:]))
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private[0, 0] = 7.0
    assert next(iter(open_source(private))).X[0, 0] == 7.0


def test_no_rows_make_no_block():
    source = open_source(np.empty((0, 3)))
    assert list(source) == []
    assert (source.n_rows, source.n_features) == (0, 3)


def test_features_choose_columns():
    whole = np.round(X)  # column 3 holds the groups
    (block,) = open_source(whole, features=[2, -1], sensitive_features=[3])
    np.testing.assert_array_equal(block.X, whole[:, [2, D - 1]])
    (block,) = open_source(whole, sensitive_features=[3], keep_sensitive=True)
    np.testing.assert_array_equal(block.X, whole)


def test_other_arrays_are_taken_as_arrays():
    class Tensor:
        shape = (3, 2)

        def __array__(self, dtype=None, copy=None):
            return np.ones((3, 2))

    assert next(iter(open_source(Tensor()))).X.tolist() == np.ones((3, 2)).tolist()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (X, {"sensitive_features": LABELS["sex"][:-1]}, "299 rows, X has 300"),
        (X, {"sensitive_features": [D]}, "names column 60, X has 60 columns"),
        (X, {"sensitive_features": [1, 1]}, "names a column twice"),
        (X, {"features": ["a"]}, "pass column indices"),
        (X, {"features": [99]}, "features names column 99"),
        (X, {"features": [1, 3], "sensitive_features": [3]}, "features names 3, which is sensitive"),
        (X, {"features": [1, -1], "target": D - 1}, f"features names {D - 1}, which is the target"),
        (X, {"features": [1, 2], "ids": 2}, "features names 2, which is the ids"),
        (X, {"target": Y[:4]}, r"target has shape \(4,\)"),
        (X, {"keep_sensitive": True}, "keep_sensitive does not apply"),
        (
            X,
            {"sensitive_features": [0], "features": [1], "keep_sensitive": True},
            "keep_sensitive does not apply",
        ),
        (X, {"standardize": True}, "standardize does not apply to an array"),
        (X, {"key": "X"}, "key does not apply to an array"),
        (X[:, :1], {"sensitive_features": [0]}, "no feature column is left"),
        (X[0], {}, "reshape"),
        (np.array([["a"]]), {}, "real numbers"),
        (np.array([[None]], dtype=object), {}, "Python objects"),
        (X.astype(complex), {}, "real numbers"),
        (np.empty((3, 0)), {}, "no columns"),
        (np.ma.masked_array(X, X > 0), {}, "masked array"),
    ],
)
def test_refusals_name_the_way_out(data, options, message):
    with pytest.raises(ValueError, match=message) as error:
        open_source(data, **options)
    assert "\n" not in str(error.value)


def test_bad_files_are_one_line_errors(tmp_path):
    good, short, text = tmp_path / "good.npy", tmp_path / "short.npy", tmp_path / "text.npy"
    np.save(good, X)
    short.write_bytes(good.read_bytes()[:-8])
    text.write_text("a,b\n1,2\n")
    np.save(tmp_path / "objects.npy", np.array([[None]], dtype=object), allow_pickle=True)
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    np.savez(tmp_path / "objects.npz", X=X, sex=np.array(SEX, dtype=object))
    for name, options, message in [
        ("short.npy", {}, "shorter than its header"),
        ("text.npy", {}, "not a .npy array"),
        ("objects.npy", {}, "Python objects"),
        ("text.npz", {}, "not an .npz file"),
        ("two.npz", {}, "holds a, b: say which"),
        ("two.npz", {"key": "c"}, "not 'c'"),
        ("two.npz", {"key": "a", "sensitive_features": ["sex"]}, "sensitive_features names 'sex'"),
        ("objects.npz", {"sensitive_features": ["sex"]}, "Python objects"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            open_source(tmp_path / name, **options)
        assert "\n" not in str(error.value)


def test_a_file_cut_off_after_opening_is_an_error(tmp_path):
    np.save(tmp_path / "X.npy", X)
    source = open_source(tmp_path / "X.npy", block_size=100)
    (tmp_path / "X.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:100_000])
    with pytest.raises(ValueError, match="ends too early"):
        list(source)


def test_key_does_not_apply_to_a_sparse_file(tmp_path):
    sp.save_npz(tmp_path / "X.npz", SPARSE)
    with pytest.raises(ValueError, match="key does not apply"):
        open_source(tmp_path / "X.npz", key="data")
