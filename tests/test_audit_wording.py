"""What a report says fits the model, the target and the groups that it is about."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fairstream import FairStreamingPCA, audit
from fairstream.auditing.measure.attack import attack
from fairstream.auditing.measure.words import headline

QUICK = {"attackers": ["linear"], "n_permutations": 0}


def people(n_rows, seed, shift=0.0):
    """Three cities, of which one can be read, if there is a shift."""
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 3, size=n_rows)
    X = rng.normal(size=(n_rows, 8))
    X[:, 0] += shift * (city == 2)
    return X, {"city": np.array(["a", "b", "c"])[city]}


@pytest.mark.parametrize(
    ("constraint", "said"),
    [("none", None), ("mean", "groups' averages agree"), ("all", "groups' averages and spreads agree")],
)
def test_the_caveat_speaks_of_what_the_model_does(constraint, said):
    X, city = people(900, 0, 1.0)
    model = FairStreamingPCA(1, n_unfair=1, constraint=constraint).fit(X, sensitive_features=city)
    for found in (model, model.subspace_):
        last = audit(found, *people(600, 1, 1.0), **QUICK).summary()[-1]
        assert last.endswith("is no proof that every attacker fails.")
        assert (said in last) if said else last.startswith("That these attackers fail")


def test_decisions_name_the_target_and_what_selected_means():
    X, city = people(900, 0, 1.0)
    model = FairStreamingPCA(2, constraint="mean").fit(X[:400], sensitive_features=city["city"][:400])
    target = pd.Series((X[400:, 1] > 0).astype(int), name="two_year_recid")
    text = audit(model, X[400:], city["city"][400:], target, **QUICK).to_markdown().replace("\\", "")
    text = text.replace("\u2068", "").replace("\u2069", "")
    assert "Boosted trees give each row a score for two_year_recid = 1." in text
    assert "selected means predicted to have two_year_recid = 1" in text
    assert "a disadvantage only if being selected is an advantage" in text
    unnamed = audit(model, X[400:], city["city"][400:], target.to_numpy(), **QUICK)
    assert unnamed.models[0].decisions.target is None
    assert "the target = 1" in unnamed.to_markdown().replace("\u2068", "").replace("\u2069", "")


def test_the_verdict_names_the_group_that_is_read_best_of_more_than_two():
    X, city = people(900, 0)
    model = FairStreamingPCA(8, constraint="none").fit(X, sensitive_features=city)
    report = audit(model, *people(900, 1, 3.0), limit=0.9, **QUICK)
    leak = report.models[0].leaks[0]
    by_group = leak.attack.by_group
    assert by_group.keys() == {"a", "b", "c"}
    assert np.isclose(np.mean([auc.value for auc in by_group.values()]), leak.attack.strongest.auc.value)
    assert by_group["c"].low > 0.95 > max(by_group["a"].value, by_group["b"].value)
    assert leak.attack.strongest.auc.high < 0.9  # the control: on average the limit would hold
    assert leak.verdict.answer == "does not hold"
    assert "reads c, of 3 groups the one it reads best, at AUC 0.9" in leak.verdict.sentence
    assert any(line.endswith(f": city: {leak.verdict.sentence}") for line in report.summary())
    assert f"(AUC {by_group['c'].value:.3f} against " in report.headline  # on the scale of the limit
    assert "; for c, the group it reads best)" in report.headline


def test_of_several_attributes_the_headline_begins_with_the_one_that_is_read_best():
    X, city = people(900, 0, 3.0)
    both = {"chance": np.arange(900) % 2, **city}
    model = FairStreamingPCA(3, constraint="mean").fit(X, sensitive_features=both)
    unseen, city = people(900, 1, 3.0)
    report = audit(model, unseen, {"chance": np.arange(900) % 2, **city}, **QUICK)
    assert [leak.attribute for leak in report.models[0].leaks] == ["chance", "city"]  # as they were given
    assert report.headline.startswith(
        "The embedding FairStreamingPCA hides city "
    ) or report.headline.startswith("FairStreamingPCA hides city ")
    assert "the group it reads best; of 2 attributes city is read best)." in report.headline
    assert report.headline.index(" reads city at AUC ") < report.headline.index(" and chance at AUC ")


def test_two_groups_have_one_auc():
    rng = np.random.default_rng(0)
    assert attack(rng.normal(size=(200, 2)), np.arange(200) % 2, families=["linear"]).by_group == {}


def test_the_headline_says_if_the_limit_holds_for_plain_pca_too(monkeypatch):
    monkeypatch.setattr("fairstream.auditing.measure.leaks.FAMILIES", ("linear",))
    X, city = people(2_000, 0)
    model = FairStreamingPCA(2, constraint="mean").fit(X, sensitive_features=city)
    same = audit(model, *people(2_000, 1), limit=0.65, **QUICK)
    assert "the limit of 0.65 holds for city (for plain PCA too)" in same.headline
    X, city = people(4_000, 2, 6.0)
    model = FairStreamingPCA(2, constraint="mean").fit(X, sensitive_features=city)
    better = audit(model, *people(4_000, 3, 6.0), limit=0.65, **QUICK)
    assert "the limit of 0.65 holds for city." in better.headline
    assert headline(better.models, None).count("plain PCA") == 1


def test_the_summary_names_the_score_of_the_target_beside_plain_pca_and_the_raw_data():
    X, city = people(900, 0, 1.0)
    known, unseen = slice(None, 400), slice(400, None)
    model = FairStreamingPCA(2, constraint="mean").fit(X[known], sensitive_features=city["city"][known])
    target = pd.Series((X[unseen, 1] > 0).astype(int), name="two_year_recid")
    report = audit({"ours": model, "again": model}, X[unseen], city["city"][unseen], target, **QUICK)
    pca = next(found for found in report.models if found.role == "control")
    scores = [found.task.auc.value for found in (report.models[0], pca)] + [report.raw_task.auc.value]
    assert len({f"{score:.3f}" for score in scores}) == 3  # else one could stand for another
    for name in ("Ours", "Again"):
        said = (
            f"{name}: two_year_recid is predicted from the embedding at AUC {scores[0]:.3f}, from plain PCA "
            f"{scores[1]:.3f}, from the raw data {scores[2]:.3f}."
        )
        assert report.summary().count(said) == 1
    alone = dataclasses.replace(report, models=report.models[:2], raw_task=None).summary()
    assert f"Ours: two_year_recid is predicted from the embedding at AUC {scores[0]:.3f}." in alone
    without = audit(model, X[unseen], city["city"][unseen], **QUICK)
    assert not any("predicted" in line for line in without.summary())


def test_the_summary_names_the_score_of_a_target_of_three_values():
    X, city = people(900, 0, 1.0)
    model = FairStreamingPCA(2, constraint="mean").fit(X[:400], sensitive_features=city["city"][:400])
    report = audit(model, X[400:], city["city"][400:], np.digitize(X[400:, 1], [-0.5, 0.5]), **QUICK)
    assert report.models[0].decisions is None
    assert any(": the target is predicted from the embedding at AUC 0." in line for line in report.summary())
