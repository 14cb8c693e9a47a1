"""The contract itself: each check fails on a source that breaks the promise it guards."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fairstream.data.blocks import Block
from fairstream.data.cutting import default_block_size, join_blocks, reslice
from fairstream.data.groups import encode_groups
from fairstream.testing import SourceContract, assert_same_rows, bytes_read

N, D = 40, 3
X = np.arange(N * D, dtype=float).reshape(N, D)
LABELS = [("f", "m", None)[i % 3] for i in range(N)]
EXPECTED = Block(X, encode_groups({"sex": LABELS}, N), np.arange(N))


class GoodSource:
    n_features, feature_names, n_rows = D, ("a", "b", "c"), N

    def __init__(self, block_size=None):
        if block_size is not None and (type(block_size) is not int or block_size < 1):
            raise ValueError(f"block_size is {block_size}")
        self.block_size = block_size or 16

    def __iter__(self):
        return reslice([EXPECTED], self.block_size)


class TestGoodSource(SourceContract):
    @pytest.fixture
    def reopen(self):
        return GoodSource

    @pytest.fixture
    def expected(self):
        return EXPECTED


class ReadsOnce(GoodSource):
    def __init__(self, block_size=None):
        super().__init__(block_size)
        self.blocks = reslice([EXPECTED], self.block_size)

    def __iter__(self):
        return self.blocks


class IsAnIterator(GoodSource):
    def __next__(self):
        return EXPECTED


class LosesLabels(GoodSource):
    def __iter__(self):
        for block in super().__iter__():
            yield Block(block.X, {}, block.target)


class ShiftsLabels(GoodSource):
    def __iter__(self):
        for block in super().__iter__():
            yield Block(block.X, encode_groups({"sex": LABELS[: block.n_rows]}, block.n_rows), block.target)


class DropsTheTail(GoodSource):
    def __iter__(self):
        return (block for block in super().__iter__() if block.n_rows == self.block_size)


class IgnoresTheBlockSize(GoodSource):
    def __init__(self, block_size=None):
        super().__init__(block_size)
        self.block_size = 16


class TakesAnyBlockSize(GoodSource):
    def __init__(self, block_size=None):
        self.block_size = 16


class ReusesItsBuffer(GoodSource):
    def __iter__(self):
        buffer = np.empty((self.block_size, D))
        for block in super().__iter__():
            buffer[: block.n_rows] = block.X
            yield Block(buffer[: block.n_rows], block.groups, block.target)


class SharesOnePosition(GoodSource):
    position = 0

    def __iter__(self):
        self.position = 0
        while self.position < N:
            rows = slice(self.position, self.position + self.block_size)
            self.position += self.block_size
            yield Block(X[rows], encode_groups({"sex": LABELS[rows]}, len(X[rows])), np.arange(N)[rows])


class WrongWidth(GoodSource):
    n_features = D + 1


class WrongLength(GoodSource):
    n_rows = N + 1


class LeavesAFileOpen(GoodSource):
    left: ClassVar = []

    def __iter__(self):
        self.left.append(open(__file__, "rb"))  # noqa: SIM115
        return super().__iter__()


class LeavesAThread(GoodSource):
    def __iter__(self):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return super().__iter__()


class HoldsAHandle(GoodSource):
    def __init__(self, block_size=None):
        super().__init__(block_size)
        self.lock = threading.Lock()


class ReadsAtOpening(GoodSource):
    path: Path

    def __init__(self, block_size=None):
        super().__init__(block_size)
        self.path.read_bytes()


contract = SourceContract()
BREACHES = {
    "once": lambda: contract.test_can_be_read_again(ReadsOnce(), EXPECTED),
    "once, pickled": lambda: contract.test_can_be_pickled(ReadsOnce, EXPECTED),
    "once, early break": lambda: contract.test_starts_again_after_an_early_break(ReadsOnce, EXPECTED),
    "iterator": lambda: contract.test_keeps_the_protocol(IsAnIterator()),
    "no protocol": lambda: contract.test_keeps_the_protocol([EXPECTED]),
    "labels lost": lambda: contract.test_yields_every_row_with_its_labels(LosesLabels(), EXPECTED),
    "labels shifted": lambda: contract.test_rows_do_not_depend_on_the_block_size(ShiftsLabels, EXPECTED, "7"),
    "tail": lambda: contract.test_yields_every_row_with_its_labels(DropsTheTail(), EXPECTED),
    "block size": lambda: contract.test_rows_do_not_depend_on_the_block_size(
        IgnoresTheBlockSize, EXPECTED, "7"
    ),
    "block size 0": lambda: contract.test_refuses_a_senseless_block_size(TakesAnyBlockSize),
    "buffer": lambda: contract.test_blocks_stay_as_they_were_yielded(ReusesItsBuffer, EXPECTED),
    "position": lambda: contract.test_two_readers_do_not_disturb_each_other(SharesOnePosition, EXPECTED),
    "width": lambda: contract.test_knows_its_shape(WrongWidth, EXPECTED),
    "length": lambda: contract.test_knows_its_shape(WrongLength, EXPECTED),
    "thread": lambda: contract.test_closes_files_and_threads_after_an_early_break(LeavesAThread),
    "thread at the end": lambda: contract.test_closes_files_and_threads_at_the_end(LeavesAThread()),
    "pickle": lambda: contract.test_can_be_pickled(HoldsAHandle, EXPECTED),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_broken_source_fails_the_contract(breach):
    with pytest.raises((AssertionError, TypeError, ValueError, IndexError, pytest.fail.Exception)):
        BREACHES[breach]()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
def test_a_file_left_open_fails_the_contract():
    for check in (
        lambda: contract.test_closes_files_and_threads_after_an_early_break(LeavesAFileOpen),
        lambda: contract.test_closes_files_and_threads_at_the_end(LeavesAFileOpen()),
    ):
        with pytest.raises(AssertionError):
            check()
    for file in LeavesAFileOpen.left:
        file.close()


@pytest.mark.skipif(bytes_read() is None, reason="the system does not tell what was read")
def test_reading_rows_at_opening_fails_the_contract(tmp_path):
    ReadsAtOpening.path = tmp_path / "rows"
    ReadsAtOpening.path.write_bytes(bytes(200_000))
    with pytest.raises(AssertionError):
        contract.test_opening_reads_no_more_than_the_header(ReadsAtOpening)


def test_the_fixtures_must_be_overridden():
    with pytest.raises(NotImplementedError, match="reopen"):
        SourceContract.reopen.__wrapped__(contract)
    with pytest.raises(NotImplementedError, match="expected"):
        SourceContract.expected.__wrapped__(contract)


@pytest.mark.parametrize("sizes", [[N], [1] * N, [5, 0, 30, 5], [39, 1]])
@pytest.mark.parametrize("block_size", [1, 6, N, N + 3])
def test_reslicing_keeps_rows_and_cuts_exactly(sizes, block_size):
    parts, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        parts.append(Block(X[rows], encode_groups({"sex": LABELS[rows]}, size), np.arange(N)[rows]))
        start += size
    blocks = list(reslice(parts, block_size))
    assert [block.n_rows for block in blocks[:-1]] == [block_size] * (len(blocks) - 1)
    assert_same_rows(blocks, EXPECTED)


def test_blocks_of_different_attributes_do_not_join():
    with pytest.raises(ValueError, match="different attributes"):
        join_blocks([EXPECTED, Block(X, {}, np.arange(N))])
    with pytest.raises(ValueError, match="target"):
        join_blocks([EXPECTED, Block(X, EXPECTED.groups)])


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 65_536), (1, 65_536), (1_024, 8_192), (10**9, 64)])
def test_default_block_is_about_eight_megabytes(row_bytes, rows):
    assert default_block_size(row_bytes) == rows
