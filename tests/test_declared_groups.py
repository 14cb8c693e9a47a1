"""Groups are declared: text is no feature, continuous attributes are binned, intersections are named."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fairstream import (
    FairEraser,
    FairImagePCA,
    FairStreamingPCA,
    FairstreamWarning,
    encode_groups,
    fit_source,
    load,
    open_source,
    quantile_groups,
)
from fairstream.data.groups import MANY_GROUPS, MOST_FRACTIONS

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    n = 600
    return {
        "sex": rng.choice(["f", "m"], n),
        "race": rng.choice(["a", "b"], n),
        "age": rng.normal(40, 10, n),
        "X": rng.normal(size=(n, 14)),
    }


# Mixed frames -------------------------------------------------------------------------------------------


COLUMNS = {  # values, what is said of them, and which of the ways out do not help
    "text": (["nurse", "baker"] * 50, "holds text \\('nurse'\\)", ()),
    "dates": ([datetime.date(2020, 1, 1)] * 100, "holds .*2020, 1, 1", ("open_source(frame)",)),
    "lists": ([[1.0, 2.0]] * 100, "holds lists", ("TableVectorizer",)),
}
WAYS_OUT = ("open_source(frame)", "TableVectorizer", "sensitive_columns")


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("verb", ["fit", "partial_fit", "transform", "erase"])
def test_a_column_that_is_no_number_is_named_with_the_way_out(kind, what, verb):
    values, says, no_help = COLUMNS[what]
    numbers = {f"x{j}": np.random.default_rng(j).normal(size=100) for j in range(3)}
    estimator = FairStreamingPCA(1, constraint="none").fit(FRAMES[kind](numbers))
    frame = FRAMES[kind]({"x0": numbers["x0"], "job": values, "x2": numbers["x2"]})
    with pytest.raises(ValueError, match="column 'job' of X .*" + says) as raised:
        getattr(estimator, verb)(frame)
    for way_out in WAYS_OUT:
        assert (way_out in str(raised.value)) == (way_out not in no_help)
    assert estimator.n_samples_seen_ == 100


def test_a_category_in_pandas_is_named_too():
    frame = pd.DataFrame({"x": np.arange(10.0), "job": pd.Categorical(["a", "b"] * 5)})
    with pytest.raises(ValueError, match="column 'job' of X holds text \\('a'\\)"):
        FairStreamingPCA(1, constraint="none").fit(frame)


def test_objects_that_are_numbers_are_numbers():
    """The control: what was taken before is taken still."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=100).round(3)
    frame = pd.DataFrame({"a": rng.normal(size=100), "b": [decimal.Decimal(str(one)) for one in numbers]})
    frame["c"] = pd.Series(rng.integers(0, 9, 100), dtype="Int64")
    frame["d"] = rng.random(100) > 0.5
    fitted = FairStreamingPCA(2, constraint="none").fit(frame)
    assert np.allclose(fitted.mean_[1], numbers.mean())


# Continuous attributes ----------------------------------------------------------------------------------


FORMS = {
    "array": np.asarray,
    "list": list,
    "pandas": pd.Series,
    "polars": pl.Series,
    "dict": lambda age: {"age": np.asarray(age)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_a_continuous_attribute_is_refused(people, form, verb):
    estimator = FairStreamingPCA(2)
    with pytest.raises(ValueError, match=r"not whole: bin .* quantile_groups\(values, 4\)"):
        getattr(estimator, verb)(people["X"], sensitive_features=FORMS[form](people["age"]))
    assert not hasattr(estimator, "n_features_in_")


def test_a_continuous_attribute_of_a_source_is_refused(people):
    frame = pd.DataFrame(people["X"]).add_prefix("x").assign(age=people["age"])
    with pytest.raises(ValueError, match=r"sensitive_features\['age'\] holds .* not whole"):
        fit_source(open_source(frame, sensitive_features=["age"]), n_components=2)
    with pytest.raises(ValueError, match="not whole"):
        FairStreamingPCA(2, sensitive_columns="age").fit(frame)


def test_as_many_labels_as_rows_are_refused_and_many_are_warned_of(people):
    names = [f"person {i}" for i in range(600)]
    with pytest.raises(ValueError, match="has 600 different labels in 600 rows: bin"):
        encode_groups(names, 600)
    years = np.random.default_rng(0).integers(20, 90, 600)
    with pytest.warns(FairstreamWarning, match="has more than 50 different labels"):
        encode_groups({"age": years}, 600)


@pytest.mark.filterwarnings("error")
def test_few_labels_are_not_warned_of():
    """The control, at the limits: numbers that are labels, and as many groups as are usual."""
    encode_groups(np.tile(np.arange(MOST_FRACTIONS) + 0.5, 30), 30 * MOST_FRACTIONS)
    encode_groups(np.tile(np.arange(MANY_GROUPS), 30), 30 * MANY_GROUPS)
    encode_groups([0.0, 1.0, float("nan"), 3.0], 4)
    encode_groups([f"person {i}" for i in range(40)], 40)  # a short block of a stream


@pytest.mark.parametrize("n_groups", [2, 4, 7])
def test_quantile_groups_are_of_about_the_same_size(people, n_groups):
    labels = quantile_groups(people["age"], n_groups)
    _, sizes = np.unique(labels.astype(str), return_counts=True)
    assert len(sizes) == n_groups
    assert sizes.max() - sizes.min() <= 1
    order = {label: people["age"][labels == label].mean() for label in labels}
    edges = np.quantile(people["age"], np.arange(1, n_groups) / n_groups)
    assert sorted(order.values()) == [order[label] for label in sorted(order, key=order.get)]
    assert (quantile_groups(people["age"], edges) == labels).all()


def test_quantile_groups_can_be_fitted_on(people):
    labels = {"age": quantile_groups(people["age"], 4), "sex": people["sex"]}
    fitted = FairStreamingPCA(2).fit(people["X"], sensitive_features=labels)
    assert len(fitted.group_counts_["age"]) == 4
    assert set(fitted.group_counts_["age"].values()) == {150}


def test_quantile_groups_keep_the_index_and_the_unknown():
    age = pd.Series([20.0, None, 40.0, 60.0, 80.0], index=list("abcde"), name="age")
    groups = quantile_groups(age, 2)
    assert [*groups.index] == list("abcde")
    assert groups.name == "age"
    assert groups.isna().tolist() == [False, True, False, False, False]
    assert pl.Series(quantile_groups(pl.Series("age", [1, None, 3]), 2)).null_count() == 1
    nullable = pd.Series([20, None, 40, 60], dtype="Int64")
    assert quantile_groups(nullable, 2).isna().sum() == 1


def test_equal_values_stay_together_and_lost_groups_are_told():
    with pytest.warns(FairstreamWarning, match="only 2 of 4 groups are left"):
        groups = quantile_groups([0.0] * 90 + [5.0] * 10 + [6.0] * 20, 4)
    assert len(set(groups)) == 2
    assert len(set(groups[:90])) == 1


@pytest.mark.parametrize(
    ("values", "groups", "says"),
    [
        (["a", "b"], 2, "numbers or missing"),
        ([[1.0], [2.0]], 2, "shape"),
        ([1.0, np.inf], 2, "infinite"),
        ([None, None], 2, "all values are missing"),
        ([3.0, 3.0], 2, "all values are 3"),
        ([1.0, 2.0], 1, "groups=1: give a whole number from 2"),
        ([1.0, 2.0], [2.0, 1.0], "rising order"),
        ([1.0, 2.0], [], "rising order"),
    ],
)
def test_what_cannot_be_binned_is_named(values, groups, says):
    with pytest.raises(ValueError, match=says):
        quantile_groups(values, groups)


# Intersections ------------------------------------------------------------------------------------------


def labels_of(people):
    return {"sex": people["sex"], "race": people["race"]}


@pytest.mark.parametrize("kind", [FairStreamingPCA, FairEraser])
def test_an_intersection_is_an_attribute_of_its_own(people, kind):
    joined = np.array([f"{s} & {r}" for s, r in zip(people["sex"], people["race"], strict=True)])
    asked = kind(intersections=[("sex", "race")], constraint="mean").fit(
        people["X"], sensitive_features=labels_of(people)
    )
    by_hand = kind(constraint="mean").fit(
        people["X"], sensitive_features=labels_of(people) | {"sex & race": joined}
    )
    assert asked.group_counts_ == by_hand.group_counts_
    assert [*asked.group_counts_["sex & race"]] == ["f & a", "f & b", "m & a", "m & b"]
    assert np.allclose(asked.unfair_basis_, by_hand.unfair_basis_)


def test_intersections_null_what_single_attributes_leave(people):
    """Sex and race are balanced here and only their combination shifts X: the control still leaks it."""
    X, odd = people["X"].copy(), (people["sex"] == "f") == (people["race"] == "a")
    X[odd, 0] += 3.0

    def gap(**options):
        Z = (
            FairStreamingPCA(3, constraint="mean", **options)
            .fit(X, sensitive_features=labels_of(people))
            .transform(X)
        )
        return np.abs(Z[odd].mean(axis=0) - Z[~odd].mean(axis=0)).max()

    assert gap(intersections=[("sex", "race")]) < 1e-10
    assert gap() > 1


def test_intersections_in_streams_sources_columns_and_files(people, tmp_path):
    frame = pd.DataFrame(people["X"]).add_prefix("x").assign(**labels_of(people))
    options = {"n_components": 2, "intersections": [("sex", "race")]}
    whole = FairStreamingPCA(**options, sensitive_columns=["sex", "race"]).fit(frame)
    streamed = FairStreamingPCA(**options)
    for rows in (slice(0, 7), slice(7, 300), slice(300, 600)):
        labels = {name: of[rows] for name, of in labels_of(people).items()}
        streamed.partial_fit(people["X"][rows], sensitive_features=labels)
    source = open_source(frame, sensitive_features=["sex", "race"], block_size=100)
    read = fit_source(source, **options, checkpoint=tmp_path / "checkpoints")
    resumed = fit_source(source, **options, checkpoint=tmp_path / "checkpoints", resume=True)
    whole.save(tmp_path / "model")
    for other in (streamed, read, resumed, load(tmp_path / "model")):
        assert other.group_counts_["sex & race"] == whole.group_counts_["sex & race"]
        assert np.allclose(np.abs(other.components_), np.abs(whole.components_))


def test_images_intersect_too(people):
    fitted = FairImagePCA(1, n_channels=2, constraint="mean", intersections=[["sex", "race"]])
    fitted.fit(people["X"], sensitive_features=labels_of(people))
    assert len(fitted.group_counts_["sex & race"]) == 4
    assert len(fitted.estimators_) == 2


def test_unknown_labels_are_in_no_intersection(people):
    sex = people["sex"].astype(object)
    sex[:100] = None
    labels = {"sex": sex, "race": people["race"]}
    fitted = FairStreamingPCA(2, intersections=[("sex", "race")]).fit(people["X"], sensitive_features=labels)
    assert sum(fitted.group_counts_["sex & race"].values()) == 500


def test_labels_with_the_joining_sign_stay_apart():
    one = ["a & b", "a", "a & b", "a"] * 10
    two = ["c", "b & c", "c", "b & c"] * 10
    fitted = FairStreamingPCA(1, constraint="mean", intersections=[("one", "two")])
    fitted.fit(np.random.default_rng(0).normal(size=(40, 5)), sensitive_features={"one": one, "two": two})
    assert len(fitted.group_counts_["one & two"]) == 2


@pytest.mark.parametrize(
    ("intersections", "says"),
    [
        (["sex", "race"], "give a list of at least two attributes each"),
        ([("sex",)], "at least two attributes each"),
        ([("sex", "sex")], "at least two attributes each"),
        ("sex", "at least two attributes each"),
        ([("sex", "income")], "names 'income', the rows come with the attributes"),
        ([("sex", "race"), ("sex", "race")], "there is an attribute 'sex & race' already"),
    ],
)
def test_wrong_intersections_are_named(people, intersections, says):
    with pytest.raises(ValueError, match=says):
        FairStreamingPCA(2, intersections=intersections).fit(
            people["X"], sensitive_features=labels_of(people)
        )
    source = open_source(people["X"], sensitive_features=labels_of(people))
    with pytest.raises(ValueError, match=says):
        fit_source(source, n_components=2, intersections=intersections)


@pytest.mark.slow
def test_intersections_on_a_cluster(people):
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    source = open_source(people["X"], sensitive_features=labels_of(people), block_size=100)
    whole = {"solver": "power", "power_steps": 40, "random_state": 0}
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        for solver in ({}, whole):
            options = {"n_components": 2, "intersections": [("sex", "race")], "constraint": "mean", **solver}
            here = fit_source(source, **options)
            there = fit_source(source, **options, client=client, partition_rows=200)
            assert there.group_counts_ == here.group_counts_
            assert len(there.group_counts_["sex & race"]) == 4
            ours, theirs = (one.unfair_basis_.T @ one.unfair_basis_ for one in (there, here))
            assert np.allclose(ours, theirs)
        with pytest.raises(ValueError, match="names 'income', the rows come with the attributes"):
            fit_source(source, n_components=2, intersections=[("sex", "income")], client=client)


@pytest.mark.filterwarnings("ignore:the power method has not converged")
@pytest.mark.parametrize("solver", ["exact", "power"])
def test_a_dict_of_n_unfair_names_intersections_too(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 12)) * np.linspace(3, 1, 12)
    labels = {"sex": rng.choice(["f", "m"], 2_000), "race": rng.choice(["a", "b"], 2_000)}
    options = {"constraint": "covariance", "intersections": [("sex", "race")], "solver": solver}
    options |= {"random_state": 0} if solver == "power" else {}
    asked = {"sex": 2, "race": 0, "sex & race": 1}  # one comparison, none, and four of one group and the rest
    pca = FairStreamingPCA(2, n_unfair=asked, **options).fit(X, sensitive_features=labels)
    assert len(pca.unfair_basis_) == 2 + 4
    fewer = FairStreamingPCA(2, n_unfair=asked | {"sex & race": 0}, **options)
    assert len(fewer.fit(X, sensitive_features=labels).unfair_basis_) == 2
    for wrong in ({"sex": 2, "race": 1}, {"sex": 2, "race": 1, "race & sex": 1}):
        with pytest.raises(ValueError, match="n_unfair names"):
            FairStreamingPCA(2, n_unfair=wrong, **options).fit(X, sensitive_features=labels)
