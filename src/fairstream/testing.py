"""The contract that every block source keeps, as a test class to subclass; needs pytest."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream.data.blocks import Block, BlockSource
from fairstream.data.cutting import join_blocks
from fairstream.data.parts import DivisibleSource

_FREE_BYTES = 65_536


class _Fixtures:
    """What a subclass of a contract overrides."""

    @pytest.fixture
    def reopen(self) -> Callable[[int | None], BlockSource]:
        """Return a function that opens the source with a block size."""
        raise NotImplementedError("override the fixture reopen: a function (block_size) -> source")

    @pytest.fixture
    def expected(self) -> Block:
        """Return one block with all rows."""
        raise NotImplementedError("override the fixture expected: one Block with all rows")


class SourceContract(_Fixtures):
    """What a block source promises. Subclass it and override the fixtures `reopen` and `expected`.

    `reopen` is a function (block_size) -> newly opened source over the same data, None for the default size;
    `expected` is one `Block` with all rows. `header_bytes` is what opening may read from files, beyond 64 KB.
    A source that belongs to a connection sets `picklable` to False and must then refuse to be pickled;
    `side_by_side` to False if a second reader is refused while the first one reads. A source that can be read
    only once keeps `OnePassContract` instead.

    Examples
    --------
    >>> from fairstream.data import open_source
    >>> class TestMySource(SourceContract):
    ...     X = np.eye(100)
    ...
    ...     @pytest.fixture
    ...     def reopen(self):
    ...         return lambda block_size: open_source(self.X, block_size=block_size)
    ...
    ...     @pytest.fixture
    ...     def expected(self):
    ...         return Block(self.X)
    """

    header_bytes = 0
    picklable = True
    side_by_side = True

    @pytest.fixture
    def source(self, reopen: Callable[[int | None], BlockSource]) -> BlockSource:
        """Return the source with its default block size."""
        return reopen(None)

    def test_keeps_the_protocol(self, source: BlockSource) -> None:
        """A source is iterable and is not itself an iterator."""
        assert isinstance(source, BlockSource)
        assert not hasattr(source, "__next__"), "a source starts again at each iter(): it is not an iterator"

    def test_yields_every_row_with_its_labels(self, source: BlockSource, expected: Block) -> None:
        """Rows, labels and target arrive whole, in order and aligned."""
        assert_same_rows(source, expected)

    def test_can_be_read_again(self, source: BlockSource, expected: Block) -> None:
        """A second pass gives the same blocks as the first."""
        assert_same_rows(source, expected)
        assert_same_rows(source, expected)

    def test_two_readers_do_not_disturb_each_other(self, reopen: Callable[..., Any], expected: Block) -> None:
        """Two iterations of one source run side by side, or the second is refused."""
        source = reopen(max(1, expected.n_rows // 3))
        if not self.side_by_side:
            first = iter(source)
            begun = [next(first)]
            with pytest.raises(ValueError, match="one result at a time"):
                next(iter(source))
            assert_same_rows([*begun, *first], expected)
            return
        pairs = list(zip(source, source, strict=True))
        assert_same_rows([first for first, _ in pairs], expected)
        assert_same_rows([second for _, second in pairs], expected)

    def test_starts_again_after_an_early_break(self, reopen: Callable[..., Any], expected: Block) -> None:
        """A loop that was left early leaves nothing behind."""
        source = reopen(max(1, expected.n_rows // 3))
        next(iter(source))
        assert_same_rows(source, expected)

    @pytest.mark.parametrize("size", ["1", "7", "half", "all", "more"])
    def test_rows_do_not_depend_on_the_block_size(
        self, reopen: Callable[..., Any], expected: Block, size: str
    ) -> None:
        """Every block but the last has exactly the rows asked for, and the rows are always the same."""
        n = expected.n_rows
        block_size = {"1": 1, "7": 7, "half": -(-n // 2), "all": n, "more": n + 1}[size]
        blocks = list(reopen(block_size))
        sizes = [block.n_rows for block in blocks]
        assert sizes[:-1] == [block_size] * (len(sizes) - 1)
        assert 1 <= sizes[-1] <= block_size
        assert_same_rows(blocks, expected)

    def test_refuses_a_senseless_block_size(self, reopen: Callable[..., Any]) -> None:
        """No rows, or half a row, make no block."""
        for block_size in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match="block_size"):
                reopen(block_size)

    def test_blocks_stay_as_they_were_yielded(self, reopen: Callable[..., Any], expected: Block) -> None:
        """A block is not overwritten by those that follow it."""
        kept, copies = [], []
        for block in reopen(max(1, expected.n_rows // 4)):
            kept.append(block)
            copies.append(_dense(block.X).copy())
        for block, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(_dense(block.X), copy)

    def test_knows_its_shape(self, reopen: Callable[..., Any], expected: Block) -> None:
        """Width, names and, where known, length are true before and after reading."""
        source = reopen(None)
        if source.n_rows is not None:
            assert source.n_rows == expected.n_rows
        assert source.n_features == expected.X.shape[1]
        if source.feature_names is not None:
            assert len(source.feature_names) == expected.X.shape[1]
            assert all(isinstance(name, str) for name in source.feature_names)
        for block in source:
            assert block.X.shape[1] == source.n_features
        assert source.n_rows in (None, expected.n_rows)

    def test_closes_files_and_threads_after_an_early_break(self, reopen: Callable[..., Any]) -> None:
        """Leaving the loop closes what it opened, at once."""
        source = reopen(1)
        gc.collect()
        files, threads = open_files(), set(threading.enumerate())
        for _ in source:
            break
        gc.collect()
        assert not left_open(files, threads)

    def test_closes_files_and_threads_at_the_end(self, source: BlockSource) -> None:
        """A full pass leaves nothing open."""
        gc.collect()
        files, threads = open_files(), set(threading.enumerate())
        for _ in source:
            pass
        assert not left_open(files, threads)

    def test_can_be_pickled(self, reopen: Callable[..., Any], expected: Block) -> None:
        """A copy made elsewhere, even in the middle of a pass, gives the same rows."""
        source = reopen(max(1, expected.n_rows // 3))
        if not self.picklable:
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(source)
            return
        assert_same_rows(pickle.loads(pickle.dumps(source)), expected)
        reading = iter(source)
        next(reading)
        assert_same_rows(pickle.loads(pickle.dumps(source)), expected)

    @pytest.mark.parametrize("n_parts", [1, 3])
    def test_parts_hold_the_same_rows(
        self, reopen: Callable[..., Any], expected: Block, n_parts: int
    ) -> None:
        """Parts sent elsewhere give the rows of the whole, wherever it is cut; so do parts of parts."""
        source = reopen(max(1, expected.n_rows // 4))
        if getattr(source, "cuts", None) is None:
            pytest.skip("this source can only be read from front to back")
        assert isinstance(source, DivisibleSource)
        cuts = [*(source.cuts or ())]
        n = cuts[-1]
        assert cuts[0] == 0
        assert sorted({*cuts}) == cuts
        assert source.part_rows >= 1
        ends = [n * i // n_parts for i in range(n_parts + 1)]
        parts: list[Any] = [
            pickle.loads(pickle.dumps(source.part(start, stop))) for start, stop in itertools.pairwise(ends)
        ]
        assert_same_rows([block for part in parts for block in part], expected)
        middle = parts[0].cuts[len(parts[0].cuts) // 2]
        halves = [parts[0].part(0, middle), parts[0].part(middle, parts[0].cuts[-1])]
        assert_same_rows([block for part in [*halves, *parts[1:]] for block in part], expected)
        for start, stop in ((-1, 1), (2, 1), (0, n + 1)):
            with pytest.raises(ValueError, match="are asked for"):
                source.part(start, stop)

    def test_opening_reads_no_more_than_the_header(self, reopen: Callable[..., Any]) -> None:
        """Rows are read when they are asked for, not before."""
        reopen(None)  # imports read files as well: the first opening pays for them
        before = bytes_read()
        if before is None:
            pytest.skip("this system does not tell how much a process has read")
        reopen(None)
        after = bytes_read()
        assert after is not None
        assert after - before <= self.header_bytes + _FREE_BYTES


class OnePassContract(_Fixtures):
    """What a source over a generator or a record batch reader promises: one pass, and no quiet second one.

    Subclass it and override the fixtures `reopen` and `expected`, as for `SourceContract`; `reopen` makes a
    new generator every time.
    """

    @pytest.mark.parametrize("size", [1, 7, 10_000])
    def test_rows_do_not_depend_on_the_block_size(
        self, reopen: Callable[..., Any], expected: Block, size: int
    ) -> None:
        """Every block but the last has exactly the rows asked for, and the rows are always the same."""
        blocks = list(reopen(size))
        assert all(block.n_rows == size for block in blocks[:-1])
        assert_same_rows(blocks, expected)

    def test_refuses_a_second_pass(self, reopen: Callable[..., Any], expected: Block) -> None:
        """What is gone is not taken for the end of the data."""
        source = reopen(None)
        assert_same_rows(source, expected)
        with pytest.raises(ValueError, match="once only"):
            list(source)

    def test_knows_its_width_without_losing_rows(self, reopen: Callable[..., Any], expected: Block) -> None:
        """A look at the shape takes nothing from the pass."""
        source = reopen(None)
        assert source.n_features == expected.X.shape[1]
        assert_same_rows(source, expected)

    def test_refuses_to_be_pickled(self, reopen: Callable[..., Any]) -> None:
        """A copy could not read the same rows."""
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(reopen(None))


def assert_same_rows(blocks: Iterable[Block], expected: Block) -> None:
    """Assert that the blocks hold exactly the expected rows, labels and target, in order."""
    found = join_blocks(list(blocks))
    np.testing.assert_array_equal(_dense(found.X), _dense(expected.X))
    assert set(found.groups) == set(expected.groups)
    for attribute, column in expected.groups.items():
        assert found.groups[attribute].decode().tolist() == column.decode().tolist(), attribute
    assert (found.target is None) == (expected.target is None)
    if expected.target is not None and found.target is not None:
        assert found.target.tolist() == expected.target.tolist()


def open_files() -> Counter[str]:
    """Count the files this process holds open, by name (none where the system does not tell)."""
    folder = Path("/proc/self/fd")
    found: Counter[str] = Counter()
    for entry in os.listdir(folder) if folder.exists() else []:
        try:
            name = os.readlink(folder / entry)
        except OSError:  # the descriptor that listed the folder itself
            continue
        if name.startswith("/"):  # sockets belong to a pool of connections, which stays
            found[name] += 1
    return found


def left_open(files: Counter[str], threads: set[threading.Thread], patience: float = 5.0) -> list[str]:
    """Name the files and threads that are open and were not before.

    Libraries such as Arrow close a file in a thread of their own, a moment after the last row was read, so
    what is still open is looked at again for `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        left = [*(open_files() - files), *(thread.name for thread in set(threading.enumerate()) - threads)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def bytes_read() -> int | None:
    """Return how many bytes this process has read from files so far, None where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return int(dict(line.split(": ") for line in lines)["rchar"])


def _dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else np.asarray(X)
