"""Labels and weights meet the rows they belong to: by index if both sides have one, never silently wrong."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairstream import FairImagePCA, FairStreamingPCA, FairstreamWarning, GroupMoments, open_source
from fairstream.auditing import audit
from fairstream.baselines import KleindessnerFairPCA
from fairstream.data.alignment import paired
from fairstream.power import FairPowerMethod

N, D = 400, 12


@pytest.fixture
def people():
    """Rows whose first feature gives the sex away, in an index of names."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], N)
    X = rng.normal(size=(N, D)) + 3.0 * (sex == "m")[:, None] * np.eye(D)[0]
    names = [f"person {i}" for i in range(N)]
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)], index=names)
    return frame, pd.Series(sex, index=names, name="sex")


def shuffled(values, seed=1):
    return values.sample(frac=1, random_state=seed)


def mean_gap(fitted, X, sex):
    Z = np.asarray(fitted.transform(X))
    is_m = (sex.loc[X.index] == "m").to_numpy()
    return np.linalg.norm(Z[is_m].mean(axis=0) - Z[~is_m].mean(axis=0))


FORMS = {
    "series": lambda sex: sex,
    "frame": lambda sex: sex.to_frame(),
    "dict": lambda sex: {"sex": sex},
    "two in a dict": lambda sex: {"sex": sex, "again": shuffled(sex, 2)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", [FairStreamingPCA, FairImagePCA])
def test_labels_in_another_order_are_brought_into_that_of_the_rows(people, form, verb, kind):
    X, sex = people
    estimator = kind(1, constraint="mean")
    Xs = shuffled(X)
    getattr(estimator, verb)(Xs, sensitive_features=FORMS[form](sex))
    assert mean_gap(estimator, Xs, sex) < 1e-8
    by_position = kind(1, constraint="mean").fit(Xs, sensitive_features=sex.to_numpy())
    assert mean_gap(by_position, Xs, sex) > 1  # what pairing by position does to the same call


@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_every_solver_pairs_by_index(people, solver):
    X, sex = people
    fitted = FairStreamingPCA(1, solver=solver, random_state=0).fit(X, sensitive_features=shuffled(sex))
    assert mean_gap(fitted, X, sex) < 1e-8


def test_moments_and_the_power_method_pair_by_index(people):
    X, sex = people
    moments = GroupMoments(D).update(X, shuffled(sex))
    assert np.allclose(moments.mean("sex", "m"), X[sex == "m"].mean())
    method = FairPowerMethod(D, 1, step_rows=(N, N), power_steps=(1, 1), random_state=0)
    method.update(X, {"sex": shuffled(sex)})
    assert np.allclose(method.group_means["sex"]["m"], X[sex == "m"].mean())
    whole = FairPowerMethod(D, 1, power_steps=1, random_state=0).fit_full(X, {"sex": shuffled(sex)})
    assert np.allclose(whole.group_means["sex"]["m"], X[sex == "m"].mean())


def test_weights_are_paired_by_index(people):
    X, sex = people
    weight = pd.Series(np.arange(1.0, N + 1), index=X.index)
    expected = np.average(X.to_numpy(), axis=0, weights=weight)
    for estimator in (FairStreamingPCA(1), FairImagePCA(1)):
        estimator.fit(X, sensitive_features=sex, sample_weight=shuffled(weight))
        assert np.allclose(estimator.mean_, expected)
    assert np.allclose(GroupMoments(D).update(X, sex, shuffled(weight)).mean(), expected)
    with pytest.raises(ValueError, match="sample_weight has the index"):
        FairStreamingPCA(1).fit(X, sensitive_features=sex, sample_weight=weight.reset_index(drop=True))


@pytest.mark.parametrize("form", ["series", "dict"])
def test_a_source_over_a_frame_pairs_by_index(people, form):
    X, sex = people
    source = open_source(X, sensitive_features=FORMS[form](shuffled(sex)), block_size=90)
    found = np.concatenate([block.groups["sex"].decode() for block in source])
    assert found.tolist() == sex.tolist()


def test_blocks_of_an_iterable_are_paired_by_index(people):
    X, sex = people
    (block,) = open_source([(X, shuffled(sex))])
    assert block.groups["sex"].decode().tolist() == sex.tolist()


def test_baselines_and_audits_pair_by_index(people):
    X, sex = people
    fitted = KleindessnerFairPCA(1).fit(X, sensitive_features=shuffled(sex))
    assert mean_gap(fitted, X, sex) < 1e-8
    subspace = FairStreamingPCA(1).fit(X, sensitive_features=sex).subspace_
    straight, crossed = (
        audit(subspace, X, labels, attackers=["linear"], n_permutations=0).to_dict()["models"]
        for labels in (sex, shuffled(sex))
    )
    assert straight == crossed


# What cannot be told ------------------------------------------------------------------------------


def ambiguous(people):
    X, sex = people
    numbered, plain = X.reset_index(drop=True), sex.reset_index(drop=True)
    return {
        "labels with a default index": (X, plain),
        "rows with a default index": (numbered, sex),
        "labels of other rows": (X, sex.rename(lambda name: name + "!")),
        "one other row": (X, sex.rename({"person 7": "nobody"})),
        "duplicates in another order": (X.rename({"person 7": "person 8"}), shuffled(sex)),
    }


@pytest.mark.parametrize("case", [*ambiguous((pd.DataFrame({"x": [0.0]}, ["a"]), pd.Series([0], ["a"])))])
def test_labels_whose_index_does_not_match_are_refused(people, case):
    X, sex = ambiguous(people)[case]
    estimator = FairStreamingPCA(1)
    for labels in (sex, sex.to_frame(), {"sex": sex}):
        with pytest.raises(ValueError, match=r"sensitive_features.* has the index .*, X has .*to_numpy\(\)"):
            estimator.fit(X, sensitive_features=labels)
    assert not hasattr(estimator, "_learner")
    for refused in (
        lambda: estimator.partial_fit(X, sensitive_features=sex),
        lambda: FairImagePCA(1).fit(X, sensitive_features=sex),
        lambda: GroupMoments(D).update(X, sex),
        lambda: open_source(X, sensitive_features=sex),
        lambda: KleindessnerFairPCA(1).fit(X, sensitive_features=sex),
    ):
        with pytest.raises(ValueError, match="has the index"):
            refused()
    estimator.fit(X, sensitive_features=sex.to_numpy())  # the way out


@pytest.mark.parametrize("default", ["labels", "rows"])
def test_a_default_index_in_another_order_is_paired_by_index_with_a_warning(people, default):
    X, sex = (part.reset_index(drop=True) for part in people)
    expected = FairStreamingPCA(1).fit(X, sensitive_features=sex)
    rows, labels = (shuffled(X), sex) if default == "labels" else (X, shuffled(sex))
    with pytest.warns(FairstreamWarning, match="default index.*paired with X by index"):
        fitted = FairStreamingPCA(1).fit(rows, sensitive_features=labels)
    np.testing.assert_allclose(fitted.unfair_basis_, expected.unfair_basis_, atol=1e-9)


def test_the_message_shows_both_indexes_and_both_ways_out(people):
    X, sex = people
    with pytest.raises(ValueError, match="has the index") as caught:
        FairStreamingPCA(1).fit(X, sensitive_features={"sex": sex.reset_index(drop=True)})
    assert str(caught.value) == (
        "sensitive_features['sex'] has the index [0, 1, 2, ...], X has ['person 0', 'person 1', 'person 2', "
        "...]: they do not tell which row is whose; pass sensitive_features['sex'].to_numpy() if the rows "
        "are in the same order, or sensitive_features['sex'].loc[X.index] to pair them by index"
    )


def test_a_refused_partial_fit_leaves_what_was_learned(people):
    X, sex = people
    estimator = FairStreamingPCA(1).partial_fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="has the index"):
        estimator.partial_fit(X, sensitive_features=sex.reset_index(drop=True))
    assert estimator.n_samples_seen_ == N


# What goes on as before ---------------------------------------------------------------------------


def test_equal_indexes_lists_and_arrays_are_by_position(people):
    X, sex = people
    twice = pd.concat([X, X]), pd.concat([sex, sex])  # duplicates in the same order
    numbered = X.reset_index(drop=True), sex.reset_index(drop=True)
    for rows, labels in ((X, sex), twice, numbered):
        assert paired(labels, rows) is labels
    for labels in (sex.tolist(), sex.to_numpy(), pl.Series("sex", sex.tolist()), pd.Categorical(sex)):
        assert paired(labels, X) is labels
    assert paired(shuffled(sex), X.to_numpy()).tolist() == shuffled(sex).tolist()  # an array has no index
    assert paired(None, X) is None


def test_an_index_of_dates_or_several_levels_is_paired_too():
    for index in (
        pd.date_range("2020-01-01", periods=4),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]]),
        pd.Index([1.5, np.nan, 0.0, -1.0]),
    ):
        labels = pd.Series([*"wxyz"], index=index)
        rows = pd.DataFrame({"x": range(4)}, index=index)
        assert paired(labels.iloc[[2, 0, 3, 1]], rows).tolist() == [*"wxyz"]


def test_numbers_do_not_match_the_intervals_that_hold_them():
    labels = pd.Series([*"xyz"], index=pd.IntervalIndex.from_breaks([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="has the index"):
        paired(labels, pd.DataFrame({"x": range(3)}, index=[1, 2, 3]))


def test_another_length_is_still_reported_with_both_numbers(people):
    X, sex = people
    with pytest.raises(ValueError, match="has 399 rows, X has 400: pass one label per row"):
        FairStreamingPCA(1).fit(X, sensitive_features=sex.iloc[1:])


def test_splits_and_cross_validation_slice_both_alike(people):
    X, sex = people
    train, _, train_sex, _ = train_test_split(X.reset_index(drop=True), sex.reset_index(drop=True))
    fitted = FairStreamingPCA(1, constraint="mean").fit(train, sensitive_features=train_sex)
    assert mean_gap(fitted, train, train_sex) < 1e-8
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            StandardScaler().set_output(transform="pandas"), FairStreamingPCA(2), LogisticRegression()
        )
        scores = cross_validate(
            pipeline, X, (sex == "m"), params={"sensitive_features": sex}, error_score="raise", cv=3
        )
    assert len(scores["test_score"]) == 3


def test_dask_collections_are_refused_by_the_estimators_with_the_way_out(people):
    dd = pytest.importorskip("dask.dataframe")
    X, sex = people
    rows, labels = dd.from_pandas(X, npartitions=2), dd.from_pandas(sex, npartitions=2)
    for pair in ((rows, labels), (rows, sex), (X, labels), (X, {"sex": labels})):
        with pytest.raises(ValueError, match=r"is a Dask collection: fit_source\(open_source"):
            FairStreamingPCA(1).fit(pair[0], sensitive_features=pair[1])
