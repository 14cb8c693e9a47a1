"""Damaged and foreign files are refused with the typed error, cheaply; even those with a right digest."""

import json
import pickle
import tracemalloc

import numpy as np
import pytest
from file_damage import DAMAGES, Bomb, resealed, start_of

from fairstream import FairstreamFileError, FairStreamingPCA, GroupMoments, load, solve

ROUNDS = 140  # times 15 kinds of damage: 2,100 files
SMALL_CHANGE = 32_768  # the interpreter's own: file buffer, messages


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(200, 20)), rng.choice(["f", "m"], 200)
    GroupMoments(20).update(X, {"sex": sex}).save(folder / "exact")
    sketch = GroupMoments(20, 4, np.float32).update(X, {"sex": sex})
    sketch.save(folder / "sketch")
    solve(GroupMoments(20).update(X, {"sex": sex}), 3).save(folder / "subspace")
    FairStreamingPCA(2).fit(-X, sensitive_features={"sex": sex}).save(folder / "estimator")
    return [(folder / name).read_bytes() for name in ("exact", "sketch", "subspace", "estimator")]


def test_the_originals_load(originals, tmp_path):
    for data in originals:
        (tmp_path / "a").write_bytes(data)
        load(tmp_path / "a")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_and_cost_no_more_than_twice_their_size(originals, tmp_path, damage):
    rng = np.random.default_rng(len(damage.__name__))
    path = tmp_path / "a"
    tracemalloc.start()
    try:
        for turn in range(ROUNDS):
            which = turn % len(originals)
            others = originals[:which] + originals[which + 1 :]
            damaged = damage(originals[which], others, rng)
            path.write_bytes(damaged)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(FairstreamFileError) as refusal:
                load(path)
            assert tracemalloc.get_traced_memory()[1] - before <= 2 * len(damaged) + SMALL_CHANGE
            assert str(path) in str(refusal.value)
    finally:
        tracemalloc.stop()
    assert not Bomb.exploded


def test_the_bomb_would_have_exploded():
    """The control: unpickling such a file does run code."""
    pickle.loads(pickle.dumps(Bomb()))
    assert Bomb.exploded
    Bomb.exploded = False


@pytest.mark.parametrize(
    ("damage", "message"),
    [("truncated", "cut short"), ("extended", "longer than"), ("bit_flipped", "SHA-256 differs")],
)
def test_the_error_says_what_happened(originals, tmp_path, damage, message):
    data = originals[0]
    damaged = {"truncated": data[:-1], "extended": data + b"x", "bit_flipped": data[:-1] + b"\xff"}[damage]
    (tmp_path / "a").write_bytes(damaged)
    with pytest.raises(FairstreamFileError, match=message):
        load(tmp_path / "a")


# Forged: the digest is right, the contents are not ------------------------------------------------


def mutations(value):
    """Yield copies of a JSON value with one entry replaced by something it cannot be."""
    wrong = [None, -1, 10**30, 1e300, "x", [], {}, True, [[[]]]]
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: changed} for changed in [*wrong, *mutations(inner)])
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            yield [*value[:index], *value[index + 1 :]]
            changes = [*wrong, *mutations(inner)]
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in changes)


def load_or_refuse(path, data):
    path.write_bytes(data)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        load(path)
        refused = False
    except FairstreamFileError:
        refused = True
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak <= 4 * len(data) + 2**18, "a forged header must not make us allocate at will"
    return refused


@pytest.mark.parametrize("which", range(4))
def test_forged_headers_are_refused_or_harmless(originals, tmp_path, which):
    data = originals[which]
    about, table = start_of(data)
    tracemalloc.start()
    try:
        refused = [load_or_refuse(tmp_path / "a", resealed(data, m, table)) for m in mutations(about)]
        refused_tables = [load_or_refuse(tmp_path / "a", resealed(data, about, m)) for m in mutations(table)]
    finally:
        tracemalloc.stop()
    assert sum(refused) > len(refused) / 3
    assert all(refused_tables)


def test_deeply_nested_json_is_refused(originals, tmp_path):
    about, table = start_of(originals[0])
    for text in (
        "[" * 200_000,
        json.dumps(about)[:-1] + ',"x":' + "[" * 200_000,
        "null",
        "3",
        '"x"',
        "{",
        "",
    ):
        (tmp_path / "a").write_bytes(resealed(originals[0], text, table))
        with pytest.raises(FairstreamFileError):
            load(tmp_path / "a")
