"""Named columns of a frame are the labels, and no features: pipelines and searches need no routing."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

from fairstream import FairImagePCA, FairStreamingPCA, fit_source, load, open_source

FRAMES = {"pandas": lambda columns: pd.DataFrame(columns), "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture
def people():
    """Columns by name: twelve features, the first of which gives the sex away, and two attributes."""
    rng = np.random.default_rng(0)
    n = 300
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b", "c"], n)
    X = rng.normal(size=(n, 12))
    X[:, 0] += 3.0 * (sex == "m")
    X[:, 1] += 2.0 * (race == "b")
    columns = {"sex": sex, **{f"x{j}": X[:, j] for j in range(3)}, "race": race}
    return columns | {f"x{j}": X[:, j] for j in range(3, 12)}


def features_of(columns):
    return np.column_stack([columns[f"x{j}"] for j in range(12)])


def labels_of(columns):
    return {name: columns[name] for name in ("sex", "race")}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_named_columns_are_the_labels_and_no_features(people, kind, verb):
    frame = FRAMES[kind](people)
    named = FairStreamingPCA(2, sensitive_columns=["sex", "race"])
    getattr(named, verb)(frame)
    passed = FairStreamingPCA(2).fit(features_of(people), sensitive_features=labels_of(people))
    assert named.n_features_in_ == 12
    assert [*named.feature_names_in_] == [f"x{j}" for j in range(12)]
    assert np.allclose(named.components_, passed.components_)
    assert named.group_counts_ == passed.group_counts_
    assert [*named.get_feature_names_out()] == ["fairstreamingpca0", "fairstreamingpca1"]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("verb", ["transform", "erase"])
def test_rows_may_come_with_the_columns_or_without(people, kind, verb):
    frame = FRAMES[kind](people)
    fitted = FairStreamingPCA(2, sensitive_columns=["sex", "race"]).fit(frame)
    full = np.asarray(getattr(fitted, verb)(frame))
    bare = FRAMES[kind]({name: people[name] for name in people if name not in ("sex", "race")})
    half = FRAMES[kind]({name: people[name] for name in people if name != "race"})
    assert np.allclose(full, np.asarray(getattr(fitted, verb)(bare)))
    assert np.allclose(full, np.asarray(getattr(fitted, verb)(half)))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert np.allclose(full, getattr(fitted, verb)(features_of(people)))


def test_a_pipeline_and_a_search_need_no_routing(people):
    frame, y = pd.DataFrame(people), people["x2"] > 0
    pipeline = make_pipeline(FairStreamingPCA(2, sensitive_columns=["sex", "race"]), LogisticRegression())
    assert pipeline.fit(frame, y).predict(frame).shape == y.shape
    Z = pipeline[:-1].transform(frame)
    gap = Z[people["sex"] == "m"].mean(axis=0) - Z[people["sex"] == "f"].mean(axis=0)
    assert np.abs(gap).max() < 1e-10
    scores = cross_validate(pipeline, frame, y, cv=3, error_score="raise")["test_score"]
    assert np.isfinite(scores).all()
    grid = {"fairstreamingpca__n_unfair": [0, 1], "fairstreamingpca__n_components": [1, 2]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(frame, y)
    assert set(search.best_params_) == set(grid)


def test_without_the_columns_the_same_pipeline_is_refused(people):
    """The control: the search above would fail, not be unfair, if the names did nothing."""
    X, y = pd.DataFrame(features_of(people)), people["x2"] > 0
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        make_pipeline(FairStreamingPCA(2), LogisticRegression()).fit(X, y)


def test_set_output_keeps_index_and_names(people):
    frame = pd.DataFrame(people, index=[f"person {i}" for i in range(300)])
    fitted = FairStreamingPCA(2, sensitive_columns="sex").set_output(transform="pandas")
    Z = fitted.fit_transform(frame.drop(columns="race"))
    assert [*Z.columns] == ["fairstreamingpca0", "fairstreamingpca1"]
    assert Z.index.equals(frame.index)


def test_images_take_named_columns_too(people):
    fitted = FairImagePCA(1, constraint="mean", sensitive_columns=["sex", "race"]).fit(pd.DataFrame(people))
    assert fitted.n_features_in_ == 12
    assert fitted.transform(pd.DataFrame(people)).shape == (300, 3)
    assert len(fitted.estimators_) == 3


BAD = {
    "both": ({"sex": ["f", "m"] * 150}, {}, "sensitive_features and sensitive_columns=.* both given"),
    "unknown": (None, {"sensitive_columns": ["gender"]}, "sensitive_columns names 'gender'.*its columns are"),
    "numbers": (None, {"sensitive_columns": [0]}, r"sensitive_columns=\[0\]: give the names"),
    "nothing": (None, {"sensitive_columns": []}, r"sensitive_columns=\[\]: give the names"),
    "twice": (None, {"sensitive_columns": ["sex", "sex"]}, "give the names"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_names_are_refused_and_change_nothing(people, case):
    labels, parameters, says = BAD[case]
    frame = pd.DataFrame(people)
    fitted = FairStreamingPCA(2, sensitive_columns=["sex", "race"]).fit(frame)
    before = fitted.components_
    with pytest.raises(ValueError, match=says):
        fitted.set_params(**parameters).fit(frame, sensitive_features=labels)
    fitted.set_params(sensitive_columns=["sex", "race"])
    assert fitted.components_ is before


def test_a_name_with_the_prefix_of_a_column_transformer_is_explained(people):
    frame = pd.DataFrame(people).rename(columns={"sex": "remainder__sex"})
    with pytest.raises(ValueError, match="'remainder__sex' may be it: pass verbose_feature_names_out=False"):
        FairStreamingPCA(2, sensitive_columns=["sex"]).fit(frame)


def test_an_array_has_no_named_columns(people):
    with pytest.raises(ValueError, match="X is a ndarray without names: pass a frame"):
        FairStreamingPCA(2, sensitive_columns=["sex"]).fit(features_of(people))


def test_a_file_keeps_the_names(people, tmp_path):
    frame = pd.DataFrame(people)
    FairStreamingPCA(2, sensitive_columns=["sex", "race"]).fit(frame).save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.transform(frame).shape == (300, 2)
    loaded.partial_fit(frame)
    assert loaded.n_samples_seen_ == 600


def test_clones_keep_the_names_and_old_parameters_do_without():
    assert clone(FairStreamingPCA(sensitive_columns=["sex"])).sensitive_columns == ["sex"]
    assert FairStreamingPCA().sensitive_columns is None


def test_fit_source_opens_a_frame_with_its_named_columns(people):
    frame = pd.DataFrame(people)
    fitted = fit_source(frame, FairStreamingPCA(2, sensitive_columns=["sex", "race"]))
    assert np.allclose(
        np.abs(fitted.components_),
        np.abs(FairStreamingPCA(2, sensitive_columns=["sex", "race"]).fit(frame).components_),
    )


def test_a_source_without_the_named_attributes_is_refused(people):
    source = open_source(pd.DataFrame(people), sensitive_features=["sex"])
    with pytest.raises(ValueError, match=r"names 'race', the rows come with the attributes \['sex'\]"):
        fit_source(source, FairStreamingPCA(2, sensitive_columns=["sex", "race"]))
    bare = open_source(pd.DataFrame(people).drop(columns="sex"))
    with pytest.raises(ValueError, match=r"names 'sex', the rows come with the attributes \[\]"):
        fit_source(bare, FairStreamingPCA(2, constraint="none", sensitive_columns=["sex"]))


@pytest.mark.parametrize("form", [list, tuple])
def test_a_checkpoint_with_named_columns_resumes(people, tmp_path, form):
    source = open_source(pd.DataFrame(people), sensitive_features=["sex", "race"], block_size=100)
    named = {"n_components": 2, "sensitive_columns": form(["sex", "race"])}
    fit_source(source, **named, checkpoint=tmp_path)
    resumed = fit_source(source, **named, checkpoint=tmp_path, resume=True)
    assert resumed.n_samples_seen_ == 300
    with pytest.raises(ValueError, match=r"sensitive_columns is 'sex', the checkpoint .* was written with"):
        fit_source(source, n_components=2, sensitive_columns="sex", checkpoint=tmp_path, resume=True)
