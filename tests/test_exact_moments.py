"""Exact scatter matrices: every slot is that of its own rows, however few rows are multiplied for it."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from fairstream import GroupMoments
from fairstream.linalg import gathering
from fairstream.moments import cells
from fairstream.moments.cells import plan_cells

FEW, MANY = 40, gathering.SEVERAL_SCATTERS + 10  # features: two libraries multiply
SHARED = [(FEW, "rows"), (MANY, "rows"), (MANY, "features")]  # and what threads share


def labels(rng: np.random.Generator, n: int) -> dict[str, list[str | None]]:
    """Three attributes of 2, 5 and 8 groups; of the second nearly all labels are unknown."""
    race = rng.choice(5, n).astype(str).astype(object)
    race[rng.random(n) < 0.8] = None
    return {
        "sex": rng.choice(["f", "m"], n, p=[0.3, 0.7]).tolist(),
        "race": race.tolist(),
        "region": rng.choice(8, n).astype(str).tolist(),
    }


def rows_of(kind: str, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = rng.normal(size=(n, d)) @ np.diag(np.linspace(2, 0.5, d))
    return {
        "float64": X,
        "float32": X.astype(np.float32),
        "Fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "uint8": np.clip(X * 20 + 128, 0, 255).astype(np.uint8),
        "far": (X + 1e4).astype(np.float32),
        "sparse": sp.csr_array(X * (rng.random((n, d)) < 0.2)),
    }[kind]


def assert_every_slot_is_that_of_its_rows(moments, X, groups, weights, tolerance):
    dense = (X.toarray() if sp.issparse(X) else X).astype(np.float64)
    scale = np.ones(len(dense)) if weights is None else weights
    total = np.average((dense - np.average(dense, axis=0, weights=scale)) ** 2, axis=0, weights=scale).sum()
    for attribute, seen in moments.groups.items():
        for label in seen:
            rows = np.array([value == label for value in groups[attribute]])
            mean = np.average(dense[rows], axis=0, weights=scale[rows])
            centred = dense[rows] - mean
            expected = (centred.T * scale[rows]) @ centred / scale[rows].sum()
            slot = moments._index.slot(attribute, label)
            found = moments._scatter.cores[slot] / moments._weights[slot]
            assert np.abs(found - expected).max() < tolerance * total
            assert (
                np.abs(moments.mean(attribute, label) - mean).max()
                < tolerance * np.sqrt(total) + 1e-3 * tolerance * np.abs(mean).max()
            )
            assert moments.count(attribute, label) == pytest.approx(scale[rows].sum(), rel=1e-12)


def share(monkeypatch, what: str) -> list[str]:
    """Let threads share rows or features; return a list of what they do share."""
    seen = []
    monkeypatch.setattr(gathering, "_TOGETHER", 2**30 if what == "rows" else 1)
    for way in ("rows", "features"):
        keep = getattr(gathering.GatheredRows, f"_by_{way}")
        spied = lambda self, cells, way=way, keep=keep: seen.append(way) or keep(self, cells)  # noqa: E731
        monkeypatch.setattr(gathering.GatheredRows, f"_by_{way}", spied)
    return seen


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "d", "shared"),
    [
        (kind, *sharing)
        for kind in ("float64", "float32", "Fortran", "strided", "uint8", "far", "sparse")
        for sharing in (SHARED if kind != "sparse" else SHARED[:2])
    ],
)
def test_every_slot_is_the_scatter_of_its_own_rows(monkeypatch, kind, d, shared, weighted):
    seen = share(monkeypatch, shared)
    monkeypatch.setattr(gathering, "_LEAST_ROWS", 100)
    monkeypatch.setattr(gathering, "_PIECE_BYTES", 1)
    rng = np.random.default_rng(0)
    X, groups = rows_of(kind, rng, 700, d), labels(rng, 700)
    weights = rng.integers(1, 4, 700).astype(float) if weighted else None
    dtype = np.float32 if kind in ("float32", "far") else np.float64
    moments = GroupMoments(d, dtype=dtype).update(
        X[:450], {a: v[:450] for a, v in groups.items()}, None if weights is None else weights[:450]
    )
    moments.update(
        X[450:], {a: v[450:] for a, v in groups.items()}, None if weights is None else weights[450:]
    )
    tolerance = {"float32": 1e-6, "far": 1e-5}.get(kind, 1e-12)
    assert_every_slot_is_that_of_its_rows(moments, X, groups, weights, tolerance)
    core = moments._scatter.cores
    np.testing.assert_allclose(core, core.transpose(0, 2, 1), rtol=0, atol=1e-9 * np.abs(core).max())
    assert {*seen} == (set() if kind == "sparse" else {shared})


def test_a_slot_that_misses_its_rows_is_seen():
    """The control."""
    rng = np.random.default_rng(0)
    X, groups = rows_of("float64", rng, 700, FEW), labels(rng, 700)
    moments = GroupMoments(FEW).update(X, groups)
    moments._scatter.cores[3] *= 1.01
    with pytest.raises(AssertionError):
        assert_every_slot_is_that_of_its_rows(moments, X, groups, None, 1e-12)


@pytest.mark.parametrize(("d", "what"), SHARED)
def test_two_threads_find_the_same(monkeypatch, d, what):
    share(monkeypatch, what)
    rng = np.random.default_rng(0)
    X, groups = rows_of("float64", rng, 3_000, d), labels(rng, 3_000)
    alone = GroupMoments(d).update(X, groups)
    monkeypatch.setattr("fairstream.linalg.threads.blas_threads", lambda: 2)
    monkeypatch.setattr("fairstream.linalg.threads._WORTH_A_THREAD", 1)
    shared = GroupMoments(d).update(X, groups)
    np.testing.assert_allclose(shared._scatter.cores, alone._scatter.cores, rtol=0, atol=1e-9)
    np.testing.assert_allclose(shared._means, alone._means, rtol=0, atol=1e-12)


def members(codes: list[np.ndarray], sizes: list[int]) -> tuple[np.ndarray, list[list[int]]]:
    """Return `member` and `partition` for codes from 0 (unknown) to the number of groups."""
    member, partition = [np.ones(len(codes[0]), dtype=bool)], []
    for code, size in zip(codes, sizes, strict=True):
        partition.append([*range(len(member), len(member) + size)])
        member += [code == number for number in range(1, size + 1)]
    return np.array(member), partition


def test_the_largest_group_of_every_attribute_but_one_is_not_multiplied():
    rng = np.random.default_rng(0)
    codes = [rng.integers(1, size + 1, 1_000) for size in (2, 5, 8)]
    plan = plan_cells(*members(codes, [2, 5, 8]), adding=64)
    share = [np.bincount(code).max() / 1_000 for code in codes]
    multiplied = sum(len(cell.rows) for cell in plan.cells) / 1_000
    assert multiplied == pytest.approx(1 + (1 - share[0]) + (1 - share[1]))
    assert len(plan.by_subtraction) == 2


def test_few_joint_cells_multiply_every_row_once():
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 3, 100_000) for _ in range(2)]
    plan = plan_cells(*members(codes, [2, 2]), adding=64)
    assert sum(len(cell.rows) for cell in plan.cells) == 100_000
    assert len(plan.cells) == 9
    few = plan_cells(*members([code[:1_000] for code in codes], [2, 2]), adding=64)
    assert few.by_subtraction or sum(len(cell.rows) for cell in few.cells) > 1_000  # too few rows to pay


def test_some_attributes_are_taken_together_and_others_are_not():
    rng = np.random.default_rng(0)
    codes = [rng.integers(1, size + 1, 20_000) for size in (2, 2, 30)]
    plan = plan_cells(*members(codes, [2, 2, 30]), adding=64)
    assert {len(cell.slots) for cell in plan.cells if cell.of_all} == {2}
    assert len(plan.by_subtraction) == 1


@pytest.mark.parametrize("most_rows", [cells.MOST_ROWS, 60])
@pytest.mark.parametrize("seed", range(6))
def test_every_plan_counts_every_row_for_its_slots_once(monkeypatch, seed, most_rows):
    monkeypatch.setattr(cells, "MOST_ROWS", most_rows)
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 4)) for _ in range(3)]
    codes = [rng.integers(0, size + 1, 500) for size in sizes]
    if seed == 0:
        codes[1][:] = 0  # nobody's group is known
    member, partition = members(codes, sizes)
    attributes = [cells.counted(member, slots) for slots in partition]
    for together in (chosen for n in (1, 2, 3) for chosen in combinations(range(3), n)):
        plan = cells.make_plan(member, attributes, together)
        assert max(len(cell.rows) for cell in plan.cells) <= most_rows
        counted = np.zeros(member.shape, dtype=int)
        for cell in plan.cells:
            if cell.of_all:
                counted[0, cell.rows] += 1
                for slot in plan.by_subtraction:
                    counted[slot, cell.rows] += 1
            for slot in cell.slots:
                counted[slot, cell.rows] += 1
            if cell.taken_from:
                counted[cell.taken_from, cell.rows] -= 1
        np.testing.assert_array_equal(counted, member)


def test_values_are_refused_though_they_are_checked_by_their_sums():
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(5_000, 4)).astype(np.float32), rng.integers(0, 2, 5_000)
    for value, says in ((np.nan, "NaN"), (np.inf, "infinite"), (1e15, "overflow"), (1e30, "overflow")):
        bad = X.copy()
        bad[4_321, 2] = value
        moments = GroupMoments(4, dtype=np.float32).update(X, sex)
        before = moments._scatter.cores.tobytes()
        with pytest.raises(ValueError, match=says):
            moments.update(bad, sex)
        assert moments._scatter.cores.tobytes() == before
    with pytest.raises(ValueError, match="underflow"):
        GroupMoments(4, dtype=np.float32).update(X * np.float32(1e-20), sex)
    few_tiny = X.copy()
    few_tiny[:4_500] *= np.float32(1e-20)  # harmless beside larger ones
    GroupMoments(4, dtype=np.float32).update(few_tiny, sex)


def test_no_float_copy_of_a_block_exists(monkeypatch):
    buffers = []
    keep = gathering.GatheredRows._buffer
    monkeypatch.setattr(
        gathering.GatheredRows,
        "_buffer",
        lambda self, cells: buffers.append(keep(self, cells)) or buffers[-1],
    )
    X = np.random.default_rng(0).integers(0, 256, (20_000, MANY), dtype=np.uint8)
    GroupMoments(MANY, dtype=np.float32).update(X, np.arange(20_000) % 2)
    assert max(map(len, buffers)) <= gathering._MOST_ROWS
