"""Equal rows of different people are told from rows of the fit that are audited again."""

from __future__ import annotations

import numpy as np
import pytest

from fairstream import FairStreamingPCA, audit
from fairstream.auditing.measure.setting import SEEN_SHARE
from fairstream.auditing.measure.twins import twinned, twins_and_reused
from fairstream.data.row_marks import MOST_MARKS, RowMarks
from fairstream.datasets import load_adult, paper_split

QUICK = {"attackers": ["linear"], "n_permutations": 0}


def people(n_rows, seed):
    """Six columns of few values, which tell nothing of the sex: most people have a twin."""
    rng = np.random.default_rng(seed)
    X = np.minimum(rng.geometric(0.5, size=(n_rows, 6)), 5).astype(float)
    return X, {"sex": np.array(["f", "m"])[rng.integers(0, 2, size=n_rows)]}


def half_reused(n_rows, fitted, seed):
    """Rows of which the first half were fitted on."""
    X, sex = people(n_rows, seed)
    return np.concatenate([fitted[: n_rows // 2], X[n_rows // 2 :]]), sex


@pytest.fixture
def one_family(monkeypatch):
    monkeypatch.setattr("fairstream.auditing.measure.leaks.FAMILIES", ("linear",))


@pytest.mark.parametrize(("n_fitted", "n_audited"), [(4_000, 2_000), (2_000, 2_000), (1_500, 3_000)])
def test_twins_are_a_note_and_reused_rows_a_refusal(one_family, n_fitted, n_audited):
    X, sex = people(n_fitted, 0)
    model = FairStreamingPCA(3).fit(X, sensitive_features=sex)

    unseen = audit(model, *people(n_audited, 1), limit=0.65, seen_rows="refuse", **QUICK)
    assert unseen.models[0].seen_share.low > 0.1  # the control: so many rows are equal
    assert unseen.models[0].answer == "holds"
    assert len(unseen.warnings) == 1
    assert unseen.warnings[0].startswith("Note: ")
    assert "equal in all features to rows that FairStreamingPCA was fitted on" in unseen.warnings[0]
    assert "as many as chance explains" in unseen.to_markdown()

    mixed = half_reused(n_audited, X, 2)
    reused = audit(model, *mixed, limit=0.65, **QUICK)
    assert reused.models[0].answer == "cannot tell"
    assert "rows of the fit" in reused.models[0].leaks[0].verdict.sentence
    assert reused.warnings[0].startswith("About ")
    assert "audit unseen rows instead" in reused.warnings[0]
    assert reused.models[0].seen_share.low > reused.models[0].twin_share.value
    with pytest.raises(ValueError, match="X has rows that FairStreamingPCA was fitted on"):
        audit(model, *mixed, seen_rows="refuse", **QUICK)


def test_the_expected_share_is_that_of_unseen_rows():
    """At any number of fitted rows, also at far more than are audited, where twins must be extrapolated."""
    audited = people(2_000, 0)[0]
    _, counts = np.unique(audited, axis=0, return_counts=True)
    times, f = np.unique(counts, return_counts=True)
    for n_fitted in (200, 1_000, 2_000, 4_000, 10_000):
        fitted = {row.tobytes() for row in people(n_fitted, 1)[0]}
        met = np.mean([row.tobytes() in fitted for row in audited])
        expected = twinned(f[None].astype(float), times.astype(float), n_fitted / 2_000)[0] @ (f * times)
        assert abs(expected / 2_000 - met) < 0.03, n_fitted


def suspected(fitted, audited):
    """Whether the twins of unseen rows do not explain what is equal, as an audit asks."""
    found = twins_and_reused(audited, RowMarks().updated(fitted), len(fitted))
    return found is None or (found[1].low + found[1].value) / 2 > SEEN_SHARE


def test_disjoint_rows_of_real_tables_are_not_suspected_and_reused_ones_are():
    table = load_adult(drop_missing=True)[:6_000]
    words = [np.unique(table[name], return_inverse=True)[1] for name in ("marital-status", "occupation")]
    numbers = [table[name] for name in ("age", "education-num", "capital-gain", "hours-per-week")]
    people = np.column_stack([*numbers, *words]).astype(float)
    splits = [(people[:4_000], people[4_000:])]  # the start page's: 4,000 to fit, and 2,000 with more twins
    splits += [(split.X_train, split.X_test) for split in (paper_split("compas", j) for j in range(4))]
    wrong = [suspected(fitted, audited) for fitted, audited in splits]
    assert not any(wrong)
    for fitted, audited in splits:
        half = len(audited) // 2
        assert suspected(fitted, np.concatenate([fitted[:half], audited[half:]]))


def test_few_unseen_samples_are_taken_for_reused_rows_and_few_reused_ones_for_unseen():
    wrong, missed = 0, 0
    for seed in range(20):
        fitted = people(3_000, 100 + seed)[0]
        padding = np.zeros(MOST_MARKS, dtype=np.uint64)
        marks = RowMarks(np.sort(np.concatenate([padding, RowMarks().updated(fitted).values]))[-MOST_MARKS:])
        wrong += twins_and_reused(people(1_500, 200 + seed)[0], marks, 3_000)[1].low > SEEN_SHARE
        missed += twins_and_reused(half_reused(1_500, fitted, seed)[0], marks, 3_000)[1].low <= SEEN_SHARE
    assert wrong <= 2
    assert missed <= 4


def test_a_file_that_repeats_every_row_of_the_fit_is_no_table_of_twins():
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(600, 4)), np.arange(600) % 2
    model = FairStreamingPCA(2).fit(X, sensitive_features=sex)
    report = audit(model, np.repeat(X[:400], 2, axis=0), np.repeat(sex[:400], 2), **QUICK)
    assert "audit unseen rows instead" in report.warnings[0]
    table = people(3_000, 3)[0]
    model = FairStreamingPCA(2).fit(table, sensitive_features=np.arange(3_000) % 2)
    report = audit(model, np.repeat(table[:1_000], 2, axis=0), np.arange(2_000) % 2, **QUICK)
    assert "audit unseen rows instead" in report.warnings[0]


def test_a_table_without_equal_rows_has_no_twins():
    X = np.random.default_rng(0).normal(size=(500, 3))
    assert twins_and_reused(X, RowMarks().updated(X), 500) is None


def test_rows_repeated_before_a_split_are_no_twins():
    """Oversampling puts copies of one person on both sides; chance makes no equal rows of real numbers."""
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(2_000, 6)), (rng.random(2_000) < 0.4).astype(int)
    rows = np.concatenate([np.flatnonzero(sex == 0), np.repeat(np.flatnonzero(sex == 1), 4)])
    fitted, audited = np.array_split(rng.permutation(rows), 2)
    model = FairStreamingPCA(2).fit(X[fitted], sensitive_features=sex[fitted])
    with pytest.raises(ValueError, match="X has rows that FairStreamingPCA was fitted on"):
        audit(model, X[audited], sex[audited], seen_rows="refuse", **QUICK)


def test_one_equal_pair_does_not_excuse_rows_of_the_fit():
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        fitted = rng.normal(size=(20_000, 5))
        audited = np.concatenate([fitted[:1_200], rng.normal(size=(2_800, 5))])
        audited[-1] = audited[-2]
        found += twins_and_reused(audited, RowMarks().updated(fitted), 20_000) is None
    assert found == 10  # then every row that equals one of the fit counts
