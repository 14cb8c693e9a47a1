"""Rows of a fit are recognised later by the marks that a model keeps, and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import fairstream
from fairstream import FairStreamingPCA, GroupMoments, audit, solve
from fairstream.data.row_marks import MOST_MARKS, RowMarks
from fairstream.errors import FairstreamFileError
from fairstream.files.format import write_file

QUICK = {"attackers": ["linear"], "n_permutations": 0}


def rows(n_rows, seed, d=6):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, size=n_rows)
    return rng.normal(size=(n_rows, d)) + sex[:, None], {"sex": np.array(["f", "m"])[sex]}


def one_hot(n_rows, seed, d=60):
    return np.eye(d)[np.random.default_rng(seed).integers(0, d, size=(n_rows, 3))].sum(axis=1)


def repeated(n_rows, seed):
    """Rows of which most have twins."""
    return np.repeat(rows(n_rows // 6, seed)[0], 6, axis=0)


@pytest.mark.parametrize(
    "make", [lambda: rows(3_000, 0)[0], lambda: one_hot(3_000, 0), lambda: repeated(3_000, 0)]
)
def test_marks_do_not_depend_on_cuts_order_storage_or_merging(make):
    X = make()
    whole = RowMarks().updated(X).values
    order = np.random.default_rng(1).permutation(len(X))
    cut = RowMarks()
    for start in range(0, len(X), 700):
        cut = cut.updated(X[order][start : start + 700])
    assert np.array_equal(cut.values, whole)
    assert np.array_equal(RowMarks().updated(sp.csr_array(X)).values, whole)
    assert np.array_equal(RowMarks().updated(np.asfortranarray(X)).values, whole)
    merged = RowMarks().updated(X[1_000:]).merged(RowMarks().updated(X[:1_000]))
    assert np.array_equal(merged.values, whole)
    assert len(whole) == MOST_MARKS
    assert len(whole) == MOST_MARKS


def test_marks_recognise_the_share_of_rows_that_were_there():
    X, _ = rows(20_000, 0)
    marks = RowMarks().updated(X)
    mixed = np.concatenate([X[:5_000], rows(5_000, 1)[0]])
    hits, told = marks.recognised(mixed)
    assert told > 80
    assert abs(hits / told - 0.5) < 0.2
    assert marks.recognised(rows(5_000, 2)[0])[0] == 0
    assert marks.recognised(X) == (MOST_MARKS, MOST_MARKS)


def test_fewer_rows_than_marks_are_all_recognised():
    X, _ = rows(100, 0)
    assert RowMarks().updated(X).recognised(X) == (100, 100)


def test_marks_survive_files_and_merged_fits(tmp_path):
    X, sex = rows(2_000, 0)
    first, second = (
        GroupMoments(6).update(X[part], {"sex": sex["sex"][part]})
        for part in (slice(0, 900), slice(900, 2_000))
    )
    whole = GroupMoments(6).update(X, sex)
    first.save(tmp_path / "first.moments")
    merged = fairstream.load(tmp_path / "first.moments").merge(second)
    assert np.array_equal(merged.row_marks, whole.row_marks)
    subspace = solve(merged, n_components=2)
    subspace.save(tmp_path / "model.safetensors")
    assert np.array_equal(fairstream.load(tmp_path / "model.safetensors").row_marks, whole.row_marks)


def test_moments_of_a_file_without_marks_have_none_and_pass_none_on(tmp_path):
    X, sex = rows(500, 0)
    header, arrays = GroupMoments(6).update(X, sex).to_state()
    del arrays["row_marks"]
    old = GroupMoments.from_state(header, arrays)
    assert old.row_marks is None
    assert old.merge(GroupMoments(6).update(X, sex)).row_marks is None
    assert old.update(X, sex).row_marks is None
    assert solve(old, n_components=2).row_marks is None


def test_marks_that_cannot_be_some_are_refused(tmp_path):
    subspace = FairStreamingPCA(2).fit(*rows(500, 0)[:1], sensitive_features=rows(500, 0)[1]).subspace_
    header, arrays = subspace.to_state()
    for bad in (
        arrays["row_marks"][::-1],
        arrays["row_marks"].astype(float),
        np.arange(300, dtype=np.uint64),
    ):
        write_file(tmp_path / "bad", subspace.kind, header, {**arrays, "row_marks": np.array(bad)})
        with pytest.raises(FairstreamFileError, match="row marks"):
            fairstream.load(tmp_path / "bad")


def test_rows_of_the_fit_are_flagged_with_their_share_and_refused_if_asked():
    X, sex = rows(4_000, 0)
    model = FairStreamingPCA(2).fit(X[:3_000], sensitive_features={"sex": sex["sex"][:3_000]})
    seen = audit([model, model, model], X[:1_000], {"sex": sex["sex"][:1_000]}, **QUICK)
    assert seen.models[0].seen_share.value == 1.0
    assert len(seen.warnings) == 1, "what is true of all models is said once"
    assert "rows that all 3 models were fitted on" in seen.warnings[0]
    assert seen.warnings[0].startswith(
        "About 100% of the audited rows are equal in all features to rows that"
    )
    half = audit(model, X[2_500:3_500], {"sex": sex["sex"][2_500:3_500]}, **QUICK)
    assert half.models[0].seen_share.low < 0.5 < half.models[0].seen_share.high
    assert "of the audited rows are equal in all features to rows" in half.warnings[0]
    unseen = audit(model, X[3_000:], {"sex": sex["sex"][3_000:]}, seen_rows="refuse", **QUICK)
    assert unseen.models[0].seen_share.value == 0.0
    assert unseen.warnings == ()
    with pytest.raises(ValueError, match="X has rows that FairStreamingPCA was fitted on"):
        audit(model, X[:1_000], {"sex": sex["sex"][:1_000]}, seen_rows="refuse", **QUICK)
    with pytest.raises(ValueError, match="seen_rows is 'ignore'"):
        audit(model, X, sex, seen_rows="ignore", **QUICK)


def test_marks_are_those_that_files_of_earlier_versions_hold():
    X = np.add.outer(np.arange(2_000.0), np.arange(30.0) ** 2) % 7
    X[:, 0] = np.arange(2_000) / 8
    marks = RowMarks().updated(X[:900]).updated(X[900:]).values
    assert [int(mark) for mark in marks[[0, 1, -1]]] == [
        0x1AD102E2E51BABDA,
        0x1AD10386382FA206,
        0x1AD1E6020EDDDFF8,
    ]
