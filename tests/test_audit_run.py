"""audit(): what it measures, on arrays and on streams, and what it refuses."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from support import embedded

from fairstream import FairStreamingPCA, GroupMoments, fair_components, solve
from fairstream.auditing import audit, run
from fairstream.auditing.comparing import compared
from fairstream.auditing.measure import task
from fairstream.auditing.measure.mmd import mmd2
from fairstream.auditing.measure.words import VERBS
from fairstream.auditing.report import Estimate
from fairstream.auditing.suppression import rare_combinations
from fairstream.auditing.survey import survey
from fairstream.auditing.tuning.division import divided
from fairstream.auditing.tuning.judge import Judge
from fairstream.data import open_source
from fairstream.data.blocks import Block, take_rows
from fairstream.data.groups import encode_groups
from fairstream.linalg.kernels import median_squared_distance
from fairstream.streaming.embed import open_like
from fairstream.streaming.fit import fit_source

QUICK = {"attackers": ["linear"], "n_permutations": 0}


def planted(n_rows, seed=0, n_features=12):
    """Gaussian rows that differ between the groups in mean and covariance, along three directions only."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, size=n_rows)
    X = rng.normal(size=(n_rows, n_features)) * np.linspace(3, 1, n_features)
    X[:, 0] += 8 * sex
    X[:, 1] *= np.where(sex, 4.0, 1.0)
    X[:, 2] *= np.where(sex, 1.0, 3.0)
    return X, {"sex": np.array(["f", "m"])[sex]}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """What is asked here of scores for a target is whose they are and where they go, not how good."""
    few = functools.partial(task.HistGradientBoostingClassifier, max_iter=15, max_leaf_nodes=8)
    monkeypatch.setattr(task, "HistGradientBoostingClassifier", few)


@pytest.fixture(scope="module")
def fair():
    X, sex = planted(20_000)
    return FairStreamingPCA(4, n_unfair=3).fit(X, sensitive_features=sex)


@dataclass
class Stream:
    """The same rows cut into blocks of another size."""

    X: np.ndarray
    groups: dict
    target: np.ndarray | None
    block_size: int
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self):
        return self.X.shape[1]

    @property
    def n_rows(self):
        return None

    def __iter__(self):
        columns = encode_groups(self.groups, len(self.X))
        for start in range(0, len(self.X), self.block_size):
            rows = slice(start, start + self.block_size)
            target = None if self.target is None else self.target[rows]
            yield Block(self.X[rows], take_rows(columns, rows), target)


def test_attackers_read_the_attribute_off_the_raw_data_and_not_off_our_embedding(fair):
    X, sex = planted(1_500, seed=1)
    report = audit(fair, X, sex, attackers=["linear", "quadratic"], n_permutations=49)
    ours, pca = report.models
    assert (ours.role, pca.role) == ("model", "control")
    for result in (ours.leaks[0].attack.strongest, *ours.leaks[0].attack.attackers):
        assert result.auc.low <= 0.5 <= result.auc.high
    assert not ours.leaks[0].detected
    assert report.raw[0].attack.strongest.auc.value > 0.95
    assert pca.leaks[0].detected
    assert pca.leaks[0].attack.strongest.auc.low > 0.9
    assert ours.leaks[0].gaps[0].mmd2_p_value > 0.05
    assert pca.leaks[0].gaps[0].mmd2_p_value == 1 / 50


def test_moment_numbers_equal_the_pure_functions_on_all_rows(fair):
    X, sex = planted(900, seed=2)
    X += 50.0  # far from the model's mean
    labels = sex["sex"]
    report = audit(fair, X, sex, **QUICK)
    ours, pca = report.models
    V, mean, inside = fair.components_, fair.mean_, labels == "m"
    Z = (X - mean) @ V.T
    assert ours.explained_variance == pytest.approx(embedded.explained_variance_ratio(X, V), abs=1e-10)
    errors = np.sum((X - mean - Z @ V) ** 2, axis=1)
    assert ours.reconstruction_error == pytest.approx(errors.mean(), rel=1e-9)
    gap = ours.leaks[0].gaps[0]
    assert gap.group == "m"
    assert gap.mean_gap == pytest.approx(embedded.mean_gap(Z, inside), abs=1e-9)
    assert gap.second_moment_gap == pytest.approx(embedded.second_moment_gap(Z, inside), abs=1e-9)
    assert gap.mean_gap_relative == pytest.approx(gap.mean_gap / pca.leaks[0].gaps[0].mean_gap)
    by_group = {line.group: line for line in ours.by_group}
    for name, of_group in (("f", ~inside), ("m", inside)):
        share = embedded.explained_variance_ratio(X[of_group], V)
        assert by_group[name].explained_variance == pytest.approx(share, abs=1e-10)
        assert by_group[name].reconstruction_error == pytest.approx(errors[of_group].mean(), rel=1e-9)


def test_mmd_follows_the_papers_protocol(fair):
    X, sex = planted(400, seed=3)
    X_train, sex_train = planted(300, seed=4)
    report = audit(fair, X, sex, train=(X_train, sex_train), **QUICK)
    moments = fair.moments_
    _, vectors = np.linalg.eigh(moments.covariance().to_dense())
    bandwidth = median_squared_distance(X_train @ vectors[:, -4:])
    expected = mmd2(X @ fair.components_.T, sex["sex"] == "m", bandwidth)
    assert report.models[0].leaks[0].gaps[0].mmd2 == pytest.approx(expected, abs=1e-10)


def test_the_first_line_warns_when_the_model_is_audited_on_its_own_training_rows():
    X, sex = planted(600)
    model = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    own = audit(model, X, sex, **QUICK)
    assert "very rows" in own.summary()[0]
    assert own.models[0].looks_like_training
    assert "very rows" in own.to_markdown().splitlines()[2]
    assert "very rows" in audit(model.subspace_, X, sex, **QUICK).warnings[0]
    assert "very rows" in audit(PCA(3).fit(X), X, sex, **QUICK).warnings[0]
    other_rows = audit(model, *planted(600, seed=9), **QUICK)
    assert other_rows.warnings == ()


def test_a_stream_gives_the_report_of_the_array_whatever_the_blocks(fair):
    X, sex = planted(1_000, seed=5)
    y = (X[:, 5] > 0).astype(int)
    options = {**QUICK, "sample_rows": 300, "random_state": 3}
    whole = audit(fair, X, sex, y, **options)
    assert whole.data.sample_rows == 300
    for block_size in (64, 999):
        stream = audit(fair, Stream(X, sex, y, block_size), **options)
        assert stream.data.digest == whole.data.digest
        assert stream.raw == whole.raw
        for ours, theirs in zip(stream.models, whole.models, strict=True):
            assert ours.task.auc.value == pytest.approx(theirs.task.auc.value, abs=1e-9)
            assert ours.explained_variance == pytest.approx(theirs.explained_variance, abs=1e-12)
            assert ours.leaks[0].gaps[0].mean_gap == pytest.approx(
                theirs.leaks[0].gaps[0].mean_gap, abs=1e-10
            )
    other = audit(fair, X, sex, y, **{**options, "random_state": 4})
    assert other.raw != whole.raw
    changed = X.copy()
    changed[7, 3] += 1e-9
    assert audit(fair, changed, sex, y, **options).data.digest != whole.data.digest


def test_the_sample_is_uniform_over_the_stream():
    X = np.arange(400.0)[:, None]
    seen = np.zeros(400)
    for seed in range(200):
        sample = survey(
            open_source(X, sensitive_features={"g": np.arange(400) % 2}), sample_rows=40, seed=seed
        ).sample
        assert np.all(np.diff(sample.X[:, 0]) > 0)
        seen[sample.X[:, 0].astype(int)] += 1
    assert seen.sum() == 200 * 40
    assert abs(seen[:200].sum() / seen.sum() - 0.5) < 0.02
    assert seen.max() < 45  # 20 expected, deviation 4.2


def test_small_groups_are_suppressed_everywhere(fair):
    X, sex = planted(500, seed=6)
    labels = sex["sex"].astype(object)
    labels[:6] = "rare-label"
    report = audit(fair, X, {"sex": labels}, min_group_size=20, **QUICK)
    for text in (report.to_json(), report.to_markdown(), report.to_html()):
        assert "rare-label" not in text
    summary = report.data.attributes[0]
    assert (summary.n_suppressed_groups, summary.n_other_rows) == (1, 0)
    assert (report.data.n_rows, report.data.left_out_below) == (494, 20)
    shown = audit(fair, X, {"sex": labels}, min_group_size=5, **QUICK)
    assert "rare-label" in shown.to_json()
    assert [gap.group for gap in shown.models[0].leaks[0].gaps] == ["f", "m", "rare-label"]


def test_several_models_and_attributes_stand_side_by_side(fair):
    X, sex = planted(500, seed=7)
    rng = np.random.default_rng(0)
    groups = {**sex, "age": rng.choice(["old", "young", "middle"], size=500)}
    report = audit({"ours": fair, "PCA 2": PCA(2).fit(X[:50])}, X, groups, **QUICK)
    assert [model.name for model in report.models] == ["ours", "PCA 2", "plain PCA (k=2)", "plain PCA (k=4)"]
    for model in report.models:
        assert [leak.attribute for leak in model.leaks] == ["sex", "age"]
        assert [len(leak.gaps) for leak in model.leaks] == [1, 3]
    listed = audit([fair, fair], X, sex, **QUICK)
    assert [model.name for model in listed.models[:2]] == ["FairStreamingPCA", "FairStreamingPCA (2)"]


def test_a_transformer_that_is_not_linear_has_no_variance_numbers(fair):
    class Squares:
        def transform(self, X):
            return np.asarray(X)[:, :3] ** 2

    X, sex = planted(400, seed=8)
    squares = audit(Squares(), X, sex, **QUICK).models[0]
    assert squares.explained_variance is None
    assert squares.reconstruction_error is None
    whitened = audit(PCA(2, whiten=True).fit(X[:100]), X, sex, **QUICK).models[0]
    assert whitened.explained_variance is None
    assert whitened.leaks[0].attack.n_scored == 400


def test_the_task_is_scored_on_rows_the_classifier_has_not_seen(fair):
    X, sex = planted(400, seed=9)
    noise = (np.random.default_rng(0).random(400) < 0.5).astype(int)  # nothing to learn
    folds = audit(fair, X, sex, noise, **QUICK).models[0].task
    assert folds.auc.low <= 0.5 <= folds.auc.high
    assert "cross-validated" in folds.protocol
    Xt, sex_t = planted(600, seed=10)
    y, y_train = ((rows @ fair.components_[1] > 0).astype(int) for rows in (X, Xt))
    report = audit(fair, X, sex, y, train=(Xt, sex_t, y_train), **QUICK)
    assert report.models[0].task.auc.low > 0.9
    assert report.raw_task.auc.low > 0.8
    assert report.models[0].task.protocol == report.models[0].decisions.protocol == task.TRAIN_NOTE


def test_decisions_are_those_of_the_scores_by_group_and_intersection(fair):
    X, sex = planted(800, seed=11)
    y = np.where(X @ fair.components_[1] > 0, "yes", "no")
    groups = {**sex, "age": np.array(["old", "young"])[np.arange(800) % 2]}
    report = audit(fair, X, groups, y, intersections=[("sex", "age")], **QUICK)
    view = report.models[0].decisions
    assert (view.positive, view.n_rows) == ("yes", 800)
    assert [part.attribute for part in view.by_attribute] == ["sex", "age", "sex and age"]
    assert [group.group for group in view.by_attribute[2].groups][:2] == ["f and old", "f and young"]
    for part in view.by_attribute:
        assert sum(group.n_rows for group in part.groups) == 800
    rates = [group.selection_rate for group in view.by_attribute[0].groups]
    for label, rate in zip(("f", "m"), rates, strict=True):
        assert abs(rate.value - np.mean(y[sex["sex"] == label] == "yes")) < 0.1
    three = audit(fair, X, sex, np.arange(800) % 3, **QUICK).models[0]
    assert three.decisions is None
    assert three.task is not None


def test_floors_say_what_the_task_tells_of_the_group(fair):
    X, sex = planted(1_000, seed=12)
    inside = sex["sex"] == "m"
    y = np.where(np.random.default_rng(0).random(1_000) < 0.8, inside, ~inside)
    floor = audit(fair, X, sex, y, **QUICK).floors[0]
    assert floor.guessing == 0.5
    assert floor.label.low < 0.8 < floor.label.high
    assert floor.score.value > 0.75
    without = audit(fair, X, sex, **QUICK).floors[0]
    assert (without.label, without.score, without.target_auc) == (None, None, None)


def test_a_strong_attack_has_all_rows_whatever_the_sample(fair):
    X, sex = planted(900, seed=13)
    labels = sex["sex"].astype(object)
    labels[:100] = None
    train = planted(1_200, seed=14)
    for strength, n_fit, n_scored in (("standard", 300, None), ("strong", 1_840, 800)):
        report = audit(fair, X, {"sex": labels}, train=train, attack=strength, sample_rows=300, **QUICK)
        for found in (report.models[0].leaks[0].attack, report.raw[0].attack):
            assert found.strength == strength
            assert found.n_fit == n_fit == found.strongest.n_rows
            assert found.n_scored + found.n_unknown == (300 if n_scored is None else 900)
        assert n_scored is None or found.n_scored == n_scored
        assert "is unknown" in report.warnings[0]


def test_fitting_rows_of_a_small_group_are_not_counted_out(fair):
    """The number of rows that attackers had would tell how many training rows are of a hidden group."""
    X, sex = planted(400, seed=15)
    Xt, sex_t = planted(600, seed=16)
    labels = sex_t["sex"].astype(object)
    labels[:3] = "lone"
    found = audit(fair, X, sex, train=(Xt, {"sex": labels}), **QUICK).models[0].leaks[0].attack
    assert (found.n_unknown_fit, found.n_fit) == (20, 580)


def test_a_group_of_the_least_fitting_rows_is_attacked_though_some_rows_are_not_counted(fair):
    X, sex = planted(400, seed=15)
    Xt, sex_t = planted(600, seed=16)
    labels, labels_t = sex["sex"].astype(object), sex_t["sex"].astype(object)
    labels[:30], labels_t[:10], labels_t[10:13] = "rare", "rare", "lone"
    found = audit(fair, X, {"sex": labels}, train=(Xt, {"sex": labels_t}), **QUICK).models[0].leaks[0].attack
    assert (found.n_unknown_fit, found.n_groups) == (20, 3)


def test_a_gap_stands_beside_what_shuffled_labels_show(fair):
    X, sex = planted(4_000, seed=17)
    options = {"attackers": ["linear"], "n_permutations": 99}
    whole = audit(fair, X, sex, **options)
    ours, pca = (model.leaks[0].gaps[0] for model in whole.models)
    assert pca.mean_gap_noise.beyond
    assert pca.mean_gap_noise.p_value == 1 / 100
    assert ours.mean_gap_noise.median < ours.mean_gap_noise.high
    assert not ours.mean_gap_noise.beyond
    # A sample shows the noise of all rows, not its own.
    sampled = audit(fair, X, sex, sample_rows=500, **options).models[0].leaks[0].gaps[0]
    assert sampled.mean_gap == pytest.approx(ours.mean_gap)
    assert sampled.mean_gap_noise.high == pytest.approx(ours.mean_gap_noise.high, rel=0.35)


@pytest.mark.parametrize(
    ("limit", "answers"), [(0.65, ["holds", "does not hold"]), (0.51, ["cannot tell", "does not hold"])]
)
def test_a_limit_gets_a_verdict_for_every_attribute(fair, limit, answers, monkeypatch):
    monkeypatch.setattr(
        "fairstream.auditing.measure.leaks.FAMILIES", ("linear",)
    )  # as if there were no others
    X, sex = planted(3_000, seed=18)
    report = audit(fair, X, sex, limit=limit, **QUICK)
    assert [model.answer for model in report.models] == answers
    assert [model.leaks[0].verdict.answer for model in report.models] == answers
    assert f"the limit of {limit} {VERBS[answers[0]]} for sex" in report.headline
    assert audit(fair, X, sex, **QUICK).models[0].answer is None


def test_a_limit_does_not_hold_for_attackers_that_were_not_tried(fair):
    X, sex = planted(3_000, seed=18)
    found = audit(fair, X, sex, limit=0.65, **QUICK).models[0].leaks[0].verdict
    assert found.answer == "cannot tell"
    assert "but quadratic, " in found.sentence


def test_an_attribute_that_was_not_audited_is_no_pass(fair, monkeypatch):
    monkeypatch.setattr(
        "fairstream.auditing.measure.leaks.FAMILIES", ("linear",)
    )  # as if there were no others
    X, sex = planted(3_000, seed=18)
    groups = {**sex, "city": np.array(["a"] * 2_999 + ["b"])}
    report = audit(fair, X, groups, limit=0.65, **QUICK)
    assert report.models[0].leaks[0].verdict.answer == "holds"
    assert report.models[0].answer == "cannot tell"
    assert "city has fewer than two groups" in " ".join(report.warnings)


def test_a_limit_cannot_be_confirmed_on_the_rows_of_the_fit():
    X, sex = planted(3_000)
    model = FairStreamingPCA(4, n_unfair=3).fit(X, sensitive_features=sex)
    report = audit(model, X, sex, limit=0.65, **QUICK)
    assert report.models[0].leaks[0].verdict.answer == "cannot tell"
    assert "rows of the fit" in report.models[0].leaks[0].verdict.sentence


def test_the_headline_says_first_if_plain_pca_hides_as_much(fair):
    X, sex = planted(1_500, seed=19)
    pca = PCA(4).fit(planted(1_500, seed=20)[0])
    first = audit({"mine": pca}, X, sex, limit=0.9, **QUICK).headline
    assert first.startswith("The embedding mine does not hide sex clearly better than plain PCA does (AUC ")
    assert "; the intervals overlap). mine: the limit of 0.9 " in first


def test_the_headline_says_first_what_a_model_that_hides_more_is_better_than(fair):
    X, sex = planted(1_500, seed=19)
    pca = PCA(4).fit(planted(1_500, seed=20)[0])
    said = audit({"my_model": fair, "another": pca}, X, sex, **QUICK).headline
    first, *rest = said.split(". ")
    assert re.fullmatch(
        r"The embedding my_model hides sex better than plain PCA does \(AUC 0\.\d+ against 0\.\d+\) and than "
        r"another \(0\.\d+\)",
        first,
    )
    assert any(line.startswith("The embedding another does not hide sex clearly better") for line in rest)


@pytest.mark.parametrize(
    ("ours", "theirs", "how"),
    [
        ((0.70, 0.69, 0.71), (0.90, 0.89, 0.91), "better"),
        ((0.87, 0.86, 0.88), (0.90, 0.89, 0.91), "little better"),
        ((0.70, 0.60, 0.80), (0.79, 0.78, 0.81), "not clearly better"),
        ((0.90, 0.89, 0.91), (0.90, 0.89, 0.91), "not clearly better"),
        ((0.90, 0.89, 0.91), (0.70, 0.69, 0.71), "worse"),
    ],
)
def test_better_and_worse_are_said_only_of_intervals_that_do_not_overlap(ours, theirs, how):
    assert compared(Estimate(*ours), Estimate(*theirs)) == how


@pytest.mark.parametrize(("coefficient", "warned"), [(1e-16, True), (0.0, False)])
def test_a_leak_through_rounding_is_a_warning_that_names_the_columns(coefficient, warned):
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, size=800)
    X = np.column_stack([np.eye(2)[sex], np.eye(5)[rng.integers(0, 5, size=800)]])
    names = ["sex=f", "sex=m", *"abcde"]
    model = PCA(3).fit(X)
    model.mean_ = np.zeros(7)
    model.components_ = np.hstack([np.full((3, 2), coefficient) * [1, -1], rng.normal(size=(3, 5)) / 5])
    frame = pd.DataFrame(X, columns=names)
    report = audit({"mine": model}, frame, {"sex": sex}, **QUICK)
    lines = [line for line in report.warnings if "through rounding" in line]
    assert bool(lines) is warned
    if warned:
        assert lines[0].startswith(
            "The embedding mine gives sex away through rounding: noise of a millionth of each column's"
        )
        assert lines[0].endswith("Columns with tiny coefficients instead of 0: sex=f, sex=m.")
    assert all(line in report.to_markdown().replace("\\", "") for line in lines)


def test_what_was_removed_is_said_in_words(fair):
    X, sex = planted(1_000, seed=21)
    report = audit(fair, X, sex, **QUICK)
    assert report.models[0].removed.startswith("4 directions were removed; the strongest is mostly feature")
    assert report.models[1].removed == "Nothing was removed."
    screened = fair.resolve(screen=2, constraint="mean")
    model = audit(screened, X, sex, **QUICK).models[0]
    assert len(model.screened) == 2
    assert "Left out before: " + ", ".join(model.screened) in model.removed
    assert not {*model.screened} & {name for direction in model.directions for name in direction.weights}


def test_noise_that_a_model_adds_counts_as_lost_variance(fair, monkeypatch):
    monkeypatch.setenv("FAIRSTREAM_DITHER_KEY", "a key of sixteen bytes or more")
    X, sex = planted(2_000, seed=22)
    plain = audit(fair, X, sex, **QUICK).models[0].explained_variance
    dithered = (
        clone(fair).set_params(dither=1.0).fit(*planted(20_000)[:1], sensitive_features=planted(20_000)[1])
    )
    report = audit(dithered, X, sex, **QUICK).models[0]
    assert report.explained_variance == pytest.approx(plain / 2, rel=0.05)
    Z = dithered.transform(X)
    centred = X - X.mean(axis=0)
    solved, *_ = np.linalg.lstsq(Z - Z.mean(axis=0), centred, rcond=None)
    left = centred - (Z - Z.mean(axis=0)) @ solved
    recovered = 1 - np.sum(left**2) / np.sum(centred**2)
    assert report.explained_variance == pytest.approx(recovered, abs=0.02)


def test_variance_kept_is_what_tune_says_of_the_same_model(monkeypatch):
    """What a linear map recovers: features tell of each other, and what one row carries hardly counts."""
    monkeypatch.setenv("FAIRSTREAM_DITHER_KEY", "a key of sixteen bytes or more")
    X, sex = planted(3_000, seed=25)
    rng = np.random.default_rng(1)
    X = X @ (np.eye(X.shape[1]) + rng.normal(size=(X.shape[1], X.shape[1])))
    X = np.column_stack([X, np.where(np.arange(3_000) == 10, 500.0, 0.0)])
    judge = Judge(divided(X, sex, None, 5_000), confidence=0.95, seed=0)
    for dither in (0.0, 0.3):
        model = FairStreamingPCA(2, constraint="mean", dither=dither).fit(X, sensitive_features=sex)
        report = audit(model, X, sex, **QUICK)
        ours, pca = report.models
        told = judge.recovered_variance(model.subspace_, dither)
        assert ours.recovered_variance == pytest.approx(told, abs=0.01)
        assert abs(ours.explained_variance - told) > 0.05  # the control
        of_pca = judge.recovered_variance(solve(model.moments_, 2, constraint="none"), 0.0)
        assert pca.recovered_variance == pytest.approx(of_pca, abs=0.01)
        assert ours.recovered_variance_relative == ours.recovered_variance / pca.recovered_variance
        cost = 1 - ours.recovered_variance_relative
        assert f"the cost is {max(cost, 0):.0%} of the variance" in " ".join(report.summary())


def test_a_report_says_how_to_make_it_again(tmp_path, fair):
    X, sex = planted(300, seed=23)
    found = audit(fair, X, sex, limit=0.7, **QUICK).reproduction
    assert "limit=0.7" in found.call
    assert found.date.startswith("20")
    assert found.date.endswith("+00:00")
    assert {"fairstream", "python", "numpy", "scipy", "scikit-learn"} == found.versions.keys()
    assert [(item.role, item.name) for item in found.inputs] == [("audited rows", None)]
    assert found.inputs[0].digest == audit(fair, X, sex, **QUICK).data.digest


def test_progress_counts_to_the_end(fair):
    X, sex = planted(300, seed=24)
    seen = []
    audit(fair, X, sex, progress=lambda done, total: seen.append((done, total)), **QUICK)
    assert seen == sorted(seen)
    assert seen[-1] == (300, 300)


def test_the_frontier_starts_at_plain_pca_and_is_measured_on_the_audited_rows(fair):
    X, sex = planted(700, seed=12)
    report = audit(fair, X, sex, **QUICK)
    pca = report.models[1]
    assert report.frontier_fitted_on == "training data"
    start = report.frontier[0]
    assert start.explained_variance == pytest.approx(pca.explained_variance, abs=1e-10)
    assert start.second_moment_gap == pytest.approx(pca.leaks[0].gaps[0].second_moment_gap, rel=1e-9)
    chosen = next(p for p in report.frontier if (p.directions, p.n_unfair) == ("absolute", 3))
    assert chosen.explained_variance == pytest.approx(report.models[0].explained_variance, abs=1e-10)
    assert chosen.second_moment_gap == pytest.approx(
        report.models[0].leaks[0].gaps[0].second_moment_gap, rel=1e-6
    )


def test_removed_directions_name_the_features_that_differ(fair):
    X, sex = planted(2_000, seed=13)
    import pandas as pd

    frame = pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    directions = audit(fair, frame, sex, **QUICK).models[0].directions
    heaviest = {next(iter(direction.weights)) for direction in directions[:3]}
    assert heaviest == {"column 0", "column 1", "column 2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attackers": ["magic"]}, r"attackers has \['magic'\]: choose from linear"),
        ({"attackers": []}, "attackers has none: choose from linear"),
        ({"attack": "weak"}, "attack is 'weak': choose one of 'standard', 'strong'"),
        ({"limit": 0.4}, "limit is 0.4: pass an AUC above 0.5"),
        (
            {"intersections": [("sex", "height")], "y": np.arange(100) % 2},
            "pass two or more of the attributes sex",
        ),
        ({"intersections": [("sex", "race")]}, "decisions about a target: pass y too"),
        ({"sample_rows": 3}, "sample_rows is 3: pass an integer of at least 50"),
        ({"level": 2.0}, "level is 2.0"),
        ({"min_group_size": 10_000}, "no attribute has two groups of at least 10000 rows"),
        ({"sensitive_features": None}, "sensitive_features is None: pass one label per row"),
        ({"sensitive_features": ["f", "m"]}, "has 2 rows, X has 100"),
        ({"y": [1, 2, 3]}, r"y has shape \(3,\), X has 100 rows"),
        ({"y": np.arange(100.0)}, "y has 100 different values"),
        ({"model": object()}, "without transform"),
        ({"model": []}, "model is empty"),
        ({"X": np.zeros((100, 3))}, "X has 3 features, FairStreamingPCA was fitted on 12"),
    ],
)
def test_errors_name_the_argument_and_the_way_out(fair, change, message):
    X, sex = planted(100)
    arguments = {"model": fair, "X": X, "sensitive_features": sex, **QUICK, **change}
    with pytest.raises(ValueError, match=message):
        audit(**arguments)


def test_a_source_keeps_its_own_labels_and_target(fair):
    X, sex = planted(200)
    source = Stream(X, {**sex, "other": np.arange(200) % 2}, None, 50)
    report = audit(fair, source, "sex", **QUICK)
    assert [summary.attribute for summary in report.data.attributes] == ["sex"]
    trained = audit(fair, source, "sex", train=(source,), **QUICK)
    assert trained.models[0].leaks[0].gaps[0].mmd2 == pytest.approx(report.models[0].leaks[0].gaps[0].mmd2)
    with pytest.raises(ValueError, match="sensitive_features names 'height', the source has"):
        audit(fair, source, ["height"], **QUICK)
    with pytest.raises(ValueError, match="y is given beside a source"):
        audit(fair, source, None, np.zeros(200), **QUICK)
    nothing = replace(source, X=X[:0], groups={"sex": []})
    with pytest.raises(ValueError, match="the source has no rows"):
        audit(fair, nothing, **QUICK)


def test_a_group_too_rare_for_the_sample_is_measured_but_not_attacked(fair):
    X, sex = planted(3_000, seed=14)
    labels = sex["sex"].astype(object)
    labels[:25] = "rare"
    report = audit(fair, X, {"sex": labels}, sample_rows=200, min_group_size=20, **QUICK)
    gaps = {gap.group: gap for gap in report.models[0].leaks[0].gaps}
    assert gaps["rare"].mean_gap > 0
    assert gaps["rare"].mmd2 is None
    assert gaps["m"].mmd2 is not None
    assert report.models[0].leaks[0].attack.n_groups == 2
    everyone = audit(fair, X, {"sex": labels}, sample_rows=200, attack="strong", **QUICK)
    assert everyone.models[0].leaks[0].attack.n_groups == 3
    assert everyone.warnings == ()
    assert "sex = rare" in report.warnings[0]
    assert "rare" in report.to_html()


def test_a_saved_subspace_is_audited_like_its_estimator(fair):
    X, sex = planted(600, seed=15)
    saved = audit(fair.subspace_, X, sex, **QUICK)
    assert saved.frontier_fitted_on == "audited data"
    assert saved.models[0].digest == audit(fair, X, sex, **QUICK).models[0].digest
    assert saved.models[0].parameters["n_unfair"] == 3


def test_a_waiting_caller_hears_what_is_done(fair):
    X, sex = planted(100)
    lines = []
    audit(fair, X, sex, announce=lines.append, **QUICK)
    assert lines[0].startswith("reading the data")
    assert "attacking FairStreamingPCA" in lines


def test_a_stream_is_audited_without_being_held():
    """40 MB pass through; less than a quarter is held. The control samples all rows and must fail that."""
    import tracemalloc

    n_blocks, size, d = 100, 2_000, 25

    class Endless:
        n_features, feature_names, n_rows = d, None, None

        def __iter__(self):
            for seed in range(n_blocks):
                rng = np.random.default_rng(seed)
                yield Block(rng.normal(size=(size, d)), encode_groups({"g": np.arange(size) % 2}, size))

    model = PCA(2).fit(np.random.default_rng(0).normal(size=(50, d)))
    whole = n_blocks * size * d * 8

    def peak(run, sample_rows):
        tracemalloc.start()
        run(Endless(), sample_rows=sample_rows)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(lambda rows, **more: audit(model, rows, **QUICK, **more), 500) < whole / 4
    assert peak(lambda rows, **more: survey(rows, seed=0, **more), n_blocks * size) > whole


def test_very_wide_rows_are_audited_through_a_sketch():
    """Above 2,048 features the moments are a sketch; a frontier that asks for too much stays quiet."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(400, 2_100)), np.arange(400) % 2
    X[:, 0] += 9 * groups
    model = FairStreamingPCA(3).fit(X[:200], sensitive_features=groups[:200])
    report = audit(model, X[200:], groups[200:], attackers=["linear"], n_permutations=9)
    ours, pca = report.models
    assert ours.explained_variance == pytest.approx(
        embedded.explained_variance_ratio(X[200:], model.components_), rel=1e-6
    )
    aucs = [model.leaks[0].attack.strongest.auc.value for model in (pca, ours)]
    assert aucs[0] > 0.95 > aucs[1]
    assert report.raw[0].n_features == 200


def test_a_target_that_cannot_be_classified_is_refused_before_any_attack(fair):
    X, sex = planted(600, seed=5)
    said = []
    rare = np.zeros(600, dtype=int)
    rare[:6] = 1
    with pytest.raises(ValueError, match="raise sample_rows"):
        audit(fair, X, sex, rare, sample_rows=100, announce=said.append, **QUICK)
    missing = np.array(["a", "b"] * 300, dtype=object)
    missing[7] = None
    with pytest.raises(ValueError, match="y is missing in 1 of 600 rows"):
        audit(fair, X, sex, missing, announce=said.append, **QUICK)
    whole = np.array(["a", "b"] * 300)
    with pytest.raises(ValueError, match="y is missing in 1"):
        audit(fair, X, sex, whole, train=(X, sex, missing), announce=said.append, **QUICK)
    assert not any("attacking" in line for line in said)


def scaled_tables(folder):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    paths = []
    for seed in (1, 2):
        X, sex = planted(800, seed=seed)
        paths.append(folder / f"{seed}.parquet")
        pd.DataFrame(X, columns=[f"x{j}" for j in range(12)]).assign(**sex).to_parquet(paths[-1])
    return paths


def test_a_path_is_read_as_the_model_s_own_table_was(tmp_path):
    seen, unseen = scaled_tables(tmp_path)
    model = fit_source(
        open_source(seen, sensitive_features=["sex"], standardize=True), n_components=3
    ).subspace_
    report = audit(model, unseen, "sex", **QUICK)
    same = audit(model, open_like(model, unseen, sensitive_features=["sex"]), **QUICK)
    assert report.data.digest == same.data.digest
    frame = pytest.importorskip("pandas").read_parquet(unseen)
    framed = audit(model, frame, {"sex": frame["sex"]}, **QUICK)
    assert framed.data.digest == same.data.digest, "a frame in memory as well"
    assert "encoding" not in report.models[0].parameters, "categories are values of the data"


def test_rows_scaled_otherwise_than_the_fit_are_refused(tmp_path):
    seen, unseen = scaled_tables(tmp_path)
    first, other = (
        fit_source(open_source(path, sensitive_features=["sex"], standardize=True), n_components=3).subspace_
        for path in (seen, unseen)
    )
    with pytest.raises(ValueError, match="encoded or scaled otherwise"):
        audit(first, open_source(unseen, sensitive_features=["sex"], standardize=True), **QUICK)
    with pytest.raises(ValueError, match="second was fitted on columns"):
        audit({"first": first, "second": other}, unseen, "sex", **QUICK)


def test_rows_of_a_suppressed_group_are_in_no_comparison():
    """The frontier's point for the audited model has the gap that the model's own report has."""
    rng = np.random.default_rng(0)
    labels = np.array(["a"] * 590 + ["b"] * 590 + ["rare"] * 15)
    X = rng.normal(size=(1195, 5))
    X[labels == "b", 0] += 1
    X[labels == "rare"] += 4
    train = FairStreamingPCA(2, constraint="none").fit(
        X + rng.normal(size=X.shape), sensitive_features=labels
    )
    report = audit(train.subspace_, X, labels, min_group_size=20, **QUICK)
    shown = labels != "rare"
    restricted = GroupMoments(5).update(X[shown], labels[shown])
    V = next(point for point in report.frontier if point.constraint == "none")
    components, _ = fair_components(restricted, np.zeros((5, 0)), 2)
    f = restricted.mean_gap("sensitive_feature_0", "b")
    assert V.mean_gap == pytest.approx(np.linalg.norm(components.T @ f))


def with_a_lone_person(seed=6, n_rows=500):
    X, sex = planted(n_rows, seed=seed)
    labels = sex["sex"].astype(object)
    labels[7] = "lone"
    X[7] += 5.0
    return X, {"sex": labels}


def remainders(report):
    """Attack a report: every attribute's total minus its groups, and what these differ by, as (rows, sum)."""
    tree = json.loads(report.to_json())
    model = tree["models"][0]
    n_rows = tree["data"]["n_rows"]
    left = []
    for attribute in tree["data"]["attributes"]:
        errors = {
            line["group"]: line["reconstruction_error"]
            for line in model["by_group"]
            if line["attribute"] == attribute["attribute"]
        }
        shown = sum(attribute["groups"].values())
        total = sum(count * errors[group] for group, count in attribute["groups"].items())
        left.append((n_rows - shown, n_rows * model["reconstruction_error"] - total))
    pairs = [(a[0] - b[0], a[1] - b[1]) for a in left for b in left if a is not b]
    return left + pairs


def test_a_hidden_person_cannot_be_recovered_by_subtraction(fair, monkeypatch):
    X, groups = with_a_lone_person()
    residual = X[7] - fair.mean_
    own_error = residual @ residual - np.sum((fair.components_ @ residual) ** 2)
    for rows, total in remainders(report := audit(fair, X, groups, **QUICK)):
        assert rows == 0
        assert abs(total) < 1e-6 * own_error
    sizes = [line for line in report.to_markdown().splitlines() if line.startswith("| sex |")]
    assert [line for line in sizes if "small group" in line] == ["| sex | (1 small group) | left out |"]
    assert "fewer than 20" in report.to_markdown()
    assert "Fewer than 20 rows are left out" in report.warnings[-1]
    # The control: without complementary suppression the attack succeeds.
    monkeypatch.setattr(run, "rare_combinations", lambda *_: frozenset())
    ((rows, total),) = remainders(audit(fair, X, groups, **QUICK))
    assert rows == 1
    assert total == pytest.approx(own_error)


def test_a_report_says_nothing_about_the_rows_that_are_left_out(fair):
    """It is the report of the other rows, but for the digest and the remark that rows were left out."""
    X, groups = with_a_lone_person()
    y = (X[:, 5] > 0).astype(int)
    stays = np.arange(500) != 7
    one, other = (
        audit(fair, X[rows], {"sex": groups["sex"][rows]}, y[rows], **QUICK).to_dict()
        for rows in (np.arange(500), np.flatnonzero(stays))
    )
    assert (one["data"].pop("left_out_below"), other["data"].pop("left_out_below")) == (20, 0)
    assert one["data"].pop("digest") != other["data"].pop("digest")
    assert one.pop("reproduction").keys() == other.pop("reproduction").keys()
    assert one["data"]["attributes"][0].pop("n_suppressed_groups") == 1
    assert other["data"]["attributes"][0].pop("n_suppressed_groups") == 0
    assert len(one.pop("warnings")) == len(other.pop("warnings")) + 1
    assert one == other


def test_two_attributes_that_hide_nearly_the_same_rows_do_not_show_the_odd_one(fair):
    X, sex = planted(600, seed=8)
    rng = np.random.default_rng(0)
    first, second = sex["sex"].astype(object), rng.choice(["old", "young"], 600).astype(object)
    first[:40] = None
    second[:41] = None  # row 40 is hidden in one attribute only
    report = audit(fair, X, {"sex": first, "age": second}, **QUICK)
    assert report.data.n_rows == 599
    for rows, _ in remainders(report):
        assert rows == 0 or abs(rows) >= 20


def test_leaving_rows_out_is_repeated_until_no_group_is_small():
    # Without the lone row of the second attribute, group "c" of the first has 19 rows left.
    counts = {("a", "x"): 50, ("b", "y"): 50, ("c", "x"): 19, ("c", "lone"): 1}
    assert rare_combinations(counts, ["one", "two"], 20) == {("c", "x"), ("c", "lone")}
    assert rare_combinations(counts, ["one", "two"], 5) == {("c", "lone")}
    pooled = {("a",): 50, ("b",): 50, **{(f"group {i}",): 1 for i in range(30)}}
    assert rare_combinations(pooled, ["one"], 20) == frozenset()


def test_unknown_labels_are_stated_first_with_their_number(fair):
    X, sex = planted(1_000, seed=9)
    labels = sex["sex"].astype(object)
    labels[:300] = None
    labels[300:310] = "rare"
    report = audit(fair, X, {"sex": labels}, **QUICK)
    assert "The sex of 300 of 990 rows (30.3%) is unknown" in report.warnings[0]
    assert "300 of 990 rows" in report.to_markdown().splitlines()[2]
    page = report.to_html()
    assert page.index("300 of 990 rows") < page.index("<svg")
    assert json.loads(report.to_json())["warnings"][0] == report.warnings[0]
    assert report.data.attributes[0].n_unknown_rows == 300
    sizes = report.to_markdown().split("## Group sizes")[1]
    assert "| sex | (unknown) | 300 |" in sizes
    assert "| sex | (1 small group) | left out |" in sizes
    known = audit(fair, X[310:], {"sex": labels[310:]}, **QUICK)
    assert known.warnings == ()


def test_training_rows_are_recognised_with_a_hidden_person_and_without_a_row_count():
    X, groups = with_a_lone_person()
    model = FairStreamingPCA(3).fit(X, sensitive_features=groups)
    report = audit(model, X, groups, **QUICK)
    assert "very rows" in report.warnings[0]
    assert report.models[0].fitted_rows is None  # 500, beside 499 rows: that one is hidden
    silent = PCA(3).fit(X)
    del silent.n_samples_
    assert "very rows" in audit(silent, X, groups, **QUICK).warnings[0]
    assert "very rows" not in " ".join(audit(silent, *with_a_lone_person(seed=7), **QUICK).warnings)


def test_train_rows_that_are_the_audited_rows_are_pointed_out(fair):
    X, sex = planted(300, seed=3)
    report = audit(fair, X, sex, train=(X, sex), **QUICK)
    assert "train holds the very rows that are audited" in report.warnings[0]
