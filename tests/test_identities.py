"""Ids in every kind of source: a column by name or index, or one per row, in blocks of any size."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.cutting import reslice

X = np.arange(20.0).reshape(10, 2)
IDS = np.arange(100, 110)
NAMES = np.array([f"p-{j:03}" for j in range(10)])


def _frame(ids=IDS):
    return pd.DataFrame({"person": ids, "age": X[:, 0], "hours": X[:, 1], "sex": ["f", "m"] * 5})


def _file(tmp_path, kind, ids):
    path = tmp_path / f"people.{kind}"
    if kind == "csv":
        _frame(ids).to_csv(path, index=False)
    elif kind == "parquet":
        _frame(ids).to_parquet(path)
    elif kind == "npz":
        np.savez(path, X=X, sex=np.arange(10) % 2, person=ids)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["X"], file["sex"] = X, np.arange(10) % 2
            file["person"] = ids if ids.dtype.kind == "i" else ids.astype("S")
    return path


def _read(source):
    blocks = [*source]
    ids = np.concatenate([block.ids for block in blocks])
    return np.concatenate([block.X for block in blocks]), ids


@pytest.mark.parametrize("ids", [IDS, NAMES], ids=["numbers", "text"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "h5"])
def test_a_named_column_of_a_file_is_ids_and_no_feature(tmp_path, kind, ids):
    path = _file(tmp_path, kind, ids)
    source = open_source(path, sensitive_features=["sex"], ids="person", block_size=3)
    rows, found = _read(source)
    np.testing.assert_array_equal(rows, X)
    assert found.tolist() == ids.tolist()
    part = source.part(source.cuts[0], source.cuts[-1]) if source.cuts is not None else source
    assert _read(part)[1].tolist() == ids.tolist()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_column_of_a_matrix_by_index_is_ids_and_no_feature(form):
    source = open_source(form(np.column_stack([X, IDS])), sensitive_features={"sex": ["f", "m"] * 5}, ids=2)
    assert source.n_features == 2
    ids = np.concatenate([block.ids for block in source])
    assert ids.dtype.kind == "i"
    assert ids.tolist() == IDS.tolist()


def test_ids_beside_the_data_are_matched_by_row_and_by_index():
    source = open_source(X, ids=IDS, block_size=4)
    assert _read(source)[1].tolist() == IDS.tolist()
    assert _read(source.part(3, 7))[1].tolist() == IDS[3:7].tolist()
    frame = _frame().drop(columns="person").set_index(NAMES)
    shuffled = pd.Series(IDS, index=NAMES).iloc[::-1]
    assert _read(open_source(frame, sensitive_features=["sex"], ids=shuffled))[1].tolist() == IDS.tolist()
    with pytest.raises(ValueError, match=r"^ids has the index \['x'"):
        open_source(frame, ids=pd.Series(IDS, index=["x", *NAMES[1:]]))
    with pytest.raises(ValueError, match="ids has 9 rows, the data has 10"):
        open_source(X, ids=IDS[1:])


def test_blocks_of_an_iterable_bring_their_ids_and_keep_them_when_cut_anew():
    blocks = [Block(X[:4], ids=IDS[:4]), Block(X[4:], ids=IDS[4:])]
    source = open_source(blocks)
    assert [block.ids.tolist() for block in reslice(source, 5)] == [[*range(100, 105)], [*range(105, 110)]]
    with pytest.raises(ValueError, match="some blocks have ids and some have none"):
        [*reslice([blocks[0], Block(X[4:])], 5)]


def test_ids_of_a_dask_frame_are_no_feature():
    dd = pytest.importorskip("dask.dataframe")
    source = open_source(dd.from_pandas(_frame(), npartitions=3), sensitive_features=["sex"], ids="person")
    rows, ids = _read(source)
    assert rows.shape == (10, 2)
    assert ids.tolist() == IDS.tolist()
    with pytest.raises(ValueError, match="ids holds values beside a Dask collection"):
        open_source(dd.from_pandas(_frame(), npartitions=3), ids=IDS)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0.5] * 10, "has shape .* and type float64"),
        ([*range(9), None], "NoneType and int"),
        (["a"] * 9 + [""], "empty text"),
        ([True] * 10, "type bool"),
        (np.eye(10, dtype=int), "has shape"),
    ],
)
def test_what_says_of_nobody_whose_row_it_is_is_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        open_source(X, ids=ids)


def test_a_missing_id_in_a_table_is_refused():
    frame = _frame()
    frame["person"] = frame["person"].astype("Int64").where(frame["age"] > 0)
    with pytest.raises(ValueError, match="column 'person' is ids and has missing values"):
        [*open_source(frame, sensitive_features=["sex"], ids="person")]
    with pytest.raises(ValueError, match="ids names 'who'"):
        open_source(frame, sensitive_features=["sex"], ids="who")
