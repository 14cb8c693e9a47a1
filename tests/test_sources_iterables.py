"""The iterable source: lists, callables, generators, data loaders."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows

N, D = 101, 4
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
SEX = [("f", "m", None)[i] for i in RNG.integers(0, 3, N)]
RACE = RNG.integers(0, 3, N)
Y = RNG.integers(0, 2, N)
CUTS = [(0, 40), (40, 41), (41, 101)]
EXPECTED = Block(X, encode_groups({"sex": SEX}, N), Y)


def triples():
    for start, stop in CUTS:
        yield X[start:stop], {"sex": SEX[start:stop]}, Y[start:stop]


class TestList(SourceContract):
    @pytest.fixture
    def reopen(self):
        return lambda size: open_source(list(triples()), block_size=size)

    @pytest.fixture
    def expected(self):
        return EXPECTED


class TestCallable(TestList):
    @pytest.fixture
    def reopen(self):
        return lambda size: open_source(triples, block_size=size)


class Loader:
    """Re-iterable like a data loader: lists of tensors, labels as one integer column."""

    def __iter__(self):
        return ([X[a:b], RACE[a:b]] for a, b in CUTS)


class TestLoader(SourceContract):
    @pytest.fixture
    def reopen(self):
        return lambda size: open_source(Loader(), sensitive_features=["race"], block_size=size)

    @pytest.fixture
    def expected(self):
        return Block(X, encode_groups({"race": RACE}, N))


def test_blocks_stay_as_they_come():
    assert [block.n_rows for block in open_source(triples)] == [40, 1, 60]


def test_a_generator_is_read_once():
    source = open_source(triples())
    assert_same_rows(source, EXPECTED)
    with pytest.raises(ValueError, match="once only"):
        list(source)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(source)


def test_looking_at_a_generators_width_loses_no_row():
    source = open_source(triples(), block_size=10)
    assert source.n_features == D
    assert source.n_features == D
    assert source.n_rows is None
    assert_same_rows(source, EXPECTED)
    assert source.n_rows == N
    with pytest.raises(ValueError, match="once only"):
        list(source)


def test_blocks_sparse_rows_and_bare_rows_are_taken():
    assert_same_rows(open_source([EXPECTED]), EXPECTED)
    assert_same_rows(open_source([X[:50], X[50:]]), Block(X))
    (block,) = open_source(
        [(sp.csr_array(X[:50]), RACE[:50]), (sp.csr_array(X[50:]), RACE[50:])], block_size=N
    )
    assert sp.issparse(block.X)
    np.testing.assert_array_equal(block.X.toarray(), X)


def test_sensitive_chooses_and_names_label_columns():
    both = [(X, {"sex": SEX, "race": RACE})]
    assert list(next(iter(open_source(both, sensitive_features=["race"]))).groups) == ["race"]
    unnamed = [(X, np.column_stack([RACE, Y]))]
    assert list(next(iter(open_source(unnamed, sensitive_features=["race", "y"]))).groups) == ["race", "y"]


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ([X.tolist()], {}, "block 0 of the iterable is a list: yield"),
        ([(X, SEX), (X[:, 1:], SEX)], {}, "block 1 of the iterable has 3 columns, the first has 4"),
        ([(X, SEX[:-1])], {}, "100 rows, X has 101"),
        ([(X, SEX, Y[:-1])], {}, "one each"),
        ([X], {"sensitive_features": ["sex"]}, "has no labels"),
        ([(X, np.column_stack([RACE, Y]))], {"sensitive_features": ["race"]}, "name each label column"),
        ([(X, {"race": RACE})], {"sensitive_features": ["sex"]}, "name each label column"),
        ([(X, SEX)], {"sensitive_features": RACE}, "come with its blocks"),
        ([(X, SEX)], {"target": "y"}, "target does not apply to an iterable"),
        ([(X, SEX)], {"features": [0]}, "features does not apply to an iterable"),
        ([(X.astype(str), SEX)], {}, "real numbers"),
    ],
)
def test_refusals_name_the_way_out(items, options, message):
    with pytest.raises(ValueError, match=message) as error:
        list(open_source(items, **options))
    assert "\n" not in str(error.value)


def test_an_empty_iterable_has_no_width():
    with pytest.raises(ValueError, match="empty"):
        open_source([]).n_features


def test_an_early_break_closes_the_generator_behind_a_callable():
    closed = []

    def blocks():
        try:
            yield from triples()
        finally:
            closed.append(True)

    for _ in open_source(blocks, block_size=3):
        break
    assert closed


def test_a_torch_loader_is_a_source():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(RACE))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    source = open_source(loader, sensitive_features=["race"], block_size=25)
    for _ in range(2):
        assert_same_rows(source, Block(X, encode_groups({"race": RACE}, N)))
