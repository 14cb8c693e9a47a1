"""One small mixed table, and the contract that every kind of source over it keeps."""

import numpy as np
import pytest

from fairstream import collect_moments
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import encode_groups
from fairstream.testing import OnePassContract, SourceContract
from support.bits import assert_same_bits

pa = pytest.importorskip("pyarrow")

N = 300
RNG = np.random.default_rng(5)
NUMBERS = {f"x{j}": RNG.normal(size=N) * 10.0**j for j in range(4)}
AGE = RNG.integers(17, 90, N)
WORK = RNG.choice(["private", "state"], N)
SEX = [("f", "m", None)[i] for i in RNG.integers(0, 3, N)]
Y = RNG.integers(0, 2, N)
TABLE = pa.table({**NUMBERS, "age": AGE, "work": WORK, "sex": SEX, "y": Y})
PARTS = [TABLE.slice(0, 100), TABLE.slice(100, 1), TABLE.slice(101)]
ONE_HOT = (WORK[:, None] == np.array(["private", "state"])).astype(float)
X = np.column_stack([*NUMBERS.values(), AGE, ONE_HOT])
EXPECTED = Block(X, encode_groups({"sex": SEX}, N), Y)
ROLES = {"sensitive_features": ["sex"], "target": "y"}


class PeopleContract(SourceContract):
    """Subclass it and return the data, and options if it needs any, from `data`."""

    header_bytes = 300_000

    def data(self, folder):
        raise NotImplementedError

    @pytest.fixture
    def reopen(self, tmp_path):
        found = self.data(tmp_path)
        data, options = found if isinstance(found, tuple) else (found, {})
        return lambda size: open_source(data, block_size=size, **ROLES, **options)

    @pytest.fixture
    def expected(self):
        return EXPECTED

    def test_names_the_features(self, source):
        assert source.feature_names == (*NUMBERS, "age", "work=private", "work=state")

    def test_gives_the_same_moments_as_the_rows_in_memory_to_the_last_bit(self, reopen):
        assert_same_bits(
            collect_moments(reopen(64)), collect_moments(open_source(TABLE, block_size=64, **ROLES))
        )


class PeopleOnceContract(OnePassContract):
    @pytest.fixture
    def expected(self):
        return EXPECTED
