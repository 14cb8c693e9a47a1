"""FairEraser: the columns, names and kind that went in come out, without what gives a group away."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairstream import FairEraser, FairStreamingPCA, fit_source, load, open_source
from fairstream.auditing.subjects import as_subjects

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
NAMES = [f"x{j}" for j in range(8)]


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 400)
    X = rng.normal(size=(400, 8)) @ rng.normal(size=(8, 8))
    X[:, 0] += 3.0 * (sex == "m")
    return X, sex


def named(X, sex):
    return {"sex": sex, **dict(zip(NAMES, X.T, strict=True))}


def mean_gap(X, sex):
    X = np.asarray(X)
    return np.abs(X[sex == "m"].mean(axis=0) - X[sex == "f"].mean(axis=0)).max()


def test_it_erases_what_the_pca_erases_whatever_its_number_of_components(people):
    X, sex = people
    eraser = FairEraser().fit(X, sensitive_features=sex)
    for k in (1, 3):
        pca = FairStreamingPCA(k).fit(X, sensitive_features=sex)
        assert np.allclose(eraser.transform(X), pca.erase(X))
    assert np.array_equal(eraser.transform(X), eraser.erase(X))
    assert mean_gap(eraser.transform(X), sex) < 1e-10 < 1 < mean_gap(X, sex)


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_names_and_kind_stay_and_sensitive_columns_go(people, kind):
    frame = FRAMES[kind](named(*people))
    eraser = FairEraser(sensitive_columns="sex").fit(frame)
    for erased in (eraser.transform(frame), eraser.erase(frame), eraser.fit_transform(frame)):
        assert type(erased) is type(frame)
        assert [*(erased.column_names if kind == "pyarrow" else erased.columns)] == NAMES
        assert mean_gap(erased, people[1]) < 1e-10
    assert [*eraser.get_feature_names_out()] == NAMES
    assert [*eraser.get_feature_names_out(["sex", *NAMES])] == NAMES


def test_the_index_stays(people):
    frame = pd.DataFrame(named(*people), index=[f"person {i}" for i in range(400)])
    eraser = FairEraser(sensitive_columns="sex").fit(frame)
    assert eraser.transform(frame).index.equals(frame.index)
    assert eraser.transform(frame[::2]).index.equals(frame.index[::2])


@pytest.mark.parametrize("asked", ["pandas", "polars"])
@pytest.mark.parametrize("kind", [*FRAMES, "array", "sparse"])
def test_set_output_has_the_last_word(people, kind, asked):
    X, sex = people
    given = FRAMES[kind](dict(zip(NAMES, X.T, strict=True))) if kind in FRAMES else X
    given = sp.csr_array(X) if kind == "sparse" else given
    eraser = FairEraser().set_output(transform=asked).fit(given, sensitive_features=sex)
    erased = eraser.transform(given)
    assert type(erased) is FRAMES[asked]
    assert [*erased.columns] == (NAMES if kind in FRAMES else [f"x{j}" for j in range(8)])
    assert np.allclose(erased.to_numpy(), FairEraser().fit_transform(X, sensitive_features=sex))


def test_a_pipeline_puts_it_before_any_model(people):
    X, sex = people
    frame, y = pd.DataFrame(named(X, sex)), X[:, 1] > 0
    scaler = ColumnTransformer([("scale", StandardScaler(), NAMES)], remainder="passthrough")
    scaler.set_output(transform="pandas").set_params(verbose_feature_names_out=False)
    for model in (LogisticRegression(), HistGradientBoostingClassifier(max_iter=5)):
        pipeline = make_pipeline(scaler, FairEraser(sensitive_columns=["sex"]), model).fit(frame, y)
        assert [*pipeline[:-1].get_feature_names_out()] == NAMES
        assert mean_gap(pipeline[:-1].transform(frame), sex) < 1e-10
        grid = {"faireraser__n_unfair": [0, 2]}
        GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(frame, y)


def test_metadata_routing_delivers_labels_too(people):
    X, sex = people
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FairEraser(), LogisticRegression())
        pipeline.fit(X, X[:, 1] > 0, sensitive_features=sex)
    assert mean_gap(pipeline[0].transform(X), sex) < 1e-10


@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_every_solver_erases_group_means(people, solver):
    X, sex = people
    options = {"solver": solver, **({"random_state": 0, "power_steps": 40} if solver == "power" else {})}
    assert mean_gap(FairEraser(**options).fit_transform(X, sensitive_features=sex), sex) < 1e-8


def test_blocks_sources_and_files(people, tmp_path):
    X, sex = people
    whole = FairEraser().fit(X, sensitive_features=sex).transform(X)
    streamed = FairEraser()
    for rows in (slice(0, 150), slice(150, 400)):
        streamed.partial_fit(X[rows], sensitive_features=sex[rows])
    assert np.allclose(streamed.transform(X), whole)
    source = open_source(X, sensitive_features={"sex": sex}, block_size=100)
    read = fit_source(source, FairEraser(), checkpoint=tmp_path / "checkpoints")
    assert isinstance(read, FairEraser)
    read.save(tmp_path / "eraser")
    loaded = load(tmp_path / "eraser")
    assert isinstance(loaded, FairEraser)
    assert np.allclose(loaded.transform(X), whole)
    read.subspace_.save(tmp_path / "subspace")
    assert np.allclose(load(tmp_path / "subspace").erase(X), whole)
    assert np.allclose(
        loaded.resolve(n_unfair=3).transform(X),
        FairEraser(n_unfair=3).fit_transform(X, sensitive_features=sex),
    )


def test_it_has_no_inverse_and_no_components(people):
    """What is erased is gone, and an embedding is not what it makes."""
    for name in ("inverse_transform", "components_", "n_components", "frontier"):
        assert not hasattr(FairEraser(), name)


def test_an_audit_is_of_the_erased_rows(people):
    """The control: the same parameters as a PCA of one component give the audit one column."""
    X, sex = people
    eraser = FairEraser(constraint="mean").fit(X, sensitive_features=sex)
    pca = FairStreamingPCA(1, constraint="mean").fit(X, sensitive_features=sex)
    audited = {subject.name: subject.embed(X) for subject in as_subjects({"erased": eraser, "pca": pca})}
    assert np.array_equal(audited["erased"], eraser.transform(X))
    assert audited["pca"].shape == (400, 1)


def test_scaled_features_of_a_table_are_not_called_like_its_columns(people):
    X, sex = people
    frame = pd.DataFrame(50 + 9 * X, columns=NAMES).assign(sex=sex)
    source = open_source(frame, sensitive_features=["sex"], standardize=True)
    eraser = fit_source(source, FairEraser())
    (block,) = source
    out = eraser.set_output(transform="pandas").transform(block.X)
    assert [*out] == [*eraser.get_feature_names_out()] == [f"{name} (scaled)" for name in NAMES]
    np.testing.assert_allclose(out.mean(), 0, atol=1e-9)
    with pytest.raises(ValueError, match=r"has the column 'x0 \(scaled\)' where 'x0' is expected"):
        eraser.subspace_.embed(out)
    plain = fit_source(open_source(frame, sensitive_features=["sex"]), FairEraser())  # the control
    assert [*plain.get_feature_names_out()] == NAMES
