"""What users ask for, task by task: the lines between "begin" and "end" run as they would be pasted.

The documents show some of them word for word. Every task finds its files in the current folder (`people.csv`,
`people.parquet`, `unseen.csv`, ...) and the frames `people` and `unseen`: ten numbers, sex, race and hired.
"""

import io
import json
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.command import run

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

NUMBERS = [f"x{j}" for j in range(10)]


def made_up_people(n, seed):
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b"], n)
    X = rng.normal(size=(n, 10)) * np.linspace(3, 1, 10)
    X[:, 0] += 4 * (sex == "m")
    X[:, 1] *= np.where(race == "a", 2, 1)
    frame = pd.DataFrame(X.round(3), columns=NUMBERS).assign(sex=sex, race=race)
    return frame.assign(hired=(X[:, 2] + X[:, 0] + rng.normal(size=n) > 2).astype(int))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The files that users have."""
    folder = tmp_path_factory.mktemp("shelf")
    people, unseen = made_up_people(600, 0), made_up_people(400, 1)
    people.to_csv(folder / "people.csv", index=False)
    people.to_parquet(folder / "people.parquet", index=False)
    unseen.to_csv(folder / "unseen.csv", index=False)
    people.to_csv(folder / "european.csv", sep=";", decimal=",", index=False)
    people.assign(id=range(600), job=["cook", "nurse", "clerk"] * 200).to_parquet(folder / "staff.parquet")
    for year, part in people.groupby(np.arange(600) // 300 + 2025):
        (folder / "years" / f"year={year}").mkdir(parents=True)
        part.to_parquet(folder / "years" / f"year={year}" / "part.parquet", index=False)
        part.to_parquet(folder / f"clinic{year - 2024}.parquet", index=False)
    (folder / "key").write_text("0123456789abcdef0123456789abcdef")
    return folder


@pytest.fixture(autouse=True)
def desk(shelf, tmp_path, monkeypatch):
    """The current folder of a task: a copy of the files."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRSTREAM_DITHER_KEY", raising=False)
    return tmp_path


@pytest.fixture
def people():
    return made_up_people(600, 0)


@pytest.fixture
def unseen():
    return made_up_people(400, 1)


def shell(line, code=0):
    """Run a line that a user types."""
    return run(*shlex.split(line)[1:], code=code)


def gap(Z, sex):
    """The largest difference between the mean scores of two groups, in deviations."""
    Z, first = np.asarray(Z), np.asarray(sex) == "f"
    return np.abs((Z[first].mean(axis=0) - Z[~first].mean(axis=0)) / Z.std(axis=0)).max()


# In scikit-learn ------------------------------------------------------------------------------------


def test_reduce_a_matrix_without_telling_the_sex(people):
    X, sex = people[NUMBERS].to_numpy(), people["sex"].to_numpy()
    # begin reduce a matrix
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(n_components=3, n_unfair=2)
    Z = pca.fit_transform(X, sensitive_features=sex)
    # end
    assert Z.shape == (600, 3)
    assert gap(Z, sex) < 1e-10


def test_drop_the_sensitive_column_and_fit_in_a_pipeline(people):
    # begin pipeline
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from fairstream import FairStreamingPCA

    X, y = people.drop(columns=["hired", "race"]), people["hired"]
    pca = FairStreamingPCA(n_components=4, sensitive_columns=["sex"])
    model = make_pipeline(pca, LogisticRegression()).fit(X, y)
    predicted = model.predict(X.drop(columns="sex"))
    # end
    assert (predicted == y).mean() > 0.6


def test_search_for_the_best_number_of_components(people):
    # begin grid search
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    from fairstream import FairStreamingPCA

    X, y = people.drop(columns=["hired", "race"]), people["hired"]
    model = make_pipeline(FairStreamingPCA(sensitive_columns=["sex"]), LogisticRegression())
    search = GridSearchCV(model, {"fairstreamingpca__n_components": [2, 4, 6]}, cv=3).fit(X, y)
    # end
    assert search.best_params_["fairstreamingpca__n_components"] in (2, 4, 6)


def test_pass_the_labels_through_a_pipeline_with_metadata_routing(people):
    X, y, sex = people[NUMBERS], people["hired"], people["sex"]
    # begin metadata routing
    import sklearn
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from fairstream import FairStreamingPCA

    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(FairStreamingPCA(4), LogisticRegression())
        model.fit(X, y, sensitive_features=sex)
    # end
    assert gap(model[0].transform(X), sex) < 1e-10


def test_erase_before_any_model(people):
    # begin eraser
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline

    from fairstream import FairEraser

    X, y = people.drop(columns=["hired", "race"]), people["hired"]
    model = make_pipeline(FairEraser(sensitive_columns=["sex"]), HistGradientBoostingClassifier(max_iter=20))
    predicted = model.fit(X, y).predict(X)
    # end
    assert set(predicted) == {0, 1}
    assert [*model[0].transform(X).columns] == NUMBERS


def test_keep_95_percent_of_the_variance(people):
    X = people.drop(columns=["hired", "race"])
    # begin share of variance
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(n_components=0.95, sensitive_columns=["sex"]).fit(X)
    print(pca.n_components_, pca.explained_variance_ratio_.sum())
    # end
    assert 1 < pca.n_components_ < 9


def test_whiten_the_scores(people):
    X = people.drop(columns=["hired", "race"])
    # begin whiten
    from fairstream import FairStreamingPCA

    Z = FairStreamingPCA(3, whiten=True, sensitive_columns=["sex"]).fit_transform(X)
    # end
    np.testing.assert_allclose(np.asarray(Z).std(axis=0, ddof=1), 1)


def test_compare_models_by_their_likelihood(people, unseen):
    # begin score
    from fairstream import FairStreamingPCA

    columns = people.columns.drop(["hired", "race"])
    small = FairStreamingPCA(2, sensitive_columns=["sex"]).fit(people[columns])
    large = FairStreamingPCA(6, sensitive_columns=["sex"]).fit(people[columns])
    better = large.score(unseen[columns]) > small.score(unseen[columns])
    # end
    assert better


def test_weigh_some_rows_more_than_others(people):
    X, sex = people[NUMBERS], people["sex"]
    weights = np.arange(600) % 3
    # begin sample weights
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex, sample_weight=weights)
    # end
    assert pca.n_samples_seen_ == weights.sum()


def test_some_people_did_not_say_their_sex(people):
    X, sex = people[NUMBERS], people["sex"].where(np.arange(600) % 4 > 0)
    # begin missing labels
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex)  # None or NaN: they count for the total only
    print(pca.group_counts_)
    # end
    assert sum(pca.group_counts_["sex"].values()) == 450


# Frames and tensors ---------------------------------------------------------------------------------


def test_pandas_in_pandas_out():
    # begin pandas
    import pandas as pd

    from fairstream import FairStreamingPCA

    people = pd.read_csv("people.csv").drop(columns=["race", "hired"])
    Z = FairStreamingPCA(3, sensitive_columns=["sex"]).fit_transform(people)
    # end
    assert isinstance(Z, pd.DataFrame)
    assert gap(Z, people["sex"]) < 1e-10


def test_polars_in_polars_out():
    pytest.importorskip("polars")
    # begin polars
    import polars as pl

    from fairstream import FairEraser

    people = pl.read_csv("people.csv").drop("race", "hired")
    erased = FairEraser(sensitive_columns=["sex"]).fit(people).transform(people)
    # end
    assert isinstance(erased, pl.DataFrame)
    assert erased.columns == NUMBERS


def test_erase_from_the_activations_of_a_network():
    pytest.importorskip("torch")
    # begin torch tensors
    import torch

    from fairstream import FairEraser

    tokens, sex = torch.randn(40, 16, 24), torch.arange(40) % 2
    eraser = FairEraser().fit(tokens.reshape(-1, 24), sensitive_features=sex.repeat_interleave(16))
    erased = eraser.transform(tokens, axis=-1)
    # end
    assert isinstance(erased, torch.Tensor)
    assert erased.shape == tokens.shape


def test_put_the_projection_into_a_network(people):
    pytest.importorskip("torch")
    X, sex = people[NUMBERS].to_numpy(), people["sex"].to_numpy()
    # begin torch module
    import torch

    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    network = torch.nn.Sequential(pca.subspace_.to_torch(), torch.nn.Linear(3, 1).double())
    scores = network(torch.tensor(X))
    # end
    assert scores.shape == (600, 1)


# Files and folders ----------------------------------------------------------------------------------


def test_fit_on_a_parquet_file_that_does_not_fit_in_memory():
    # begin parquet
    from fairstream import fit_source, open_source

    columns = ["x0", "x1", "x2", "x3", "x4"]
    source = open_source("people.parquet", sensitive_features=["sex"], features=columns)
    pca = fit_source(source, n_components=2)
    pca.subspace_.save("model.safetensors")
    # end
    assert pca.n_samples_seen_ == 600


def test_a_csv_file_with_decimal_commas():
    # begin decimal comma
    from fairstream import fit_source, open_source

    source = open_source("european.csv", decimal=",", sensitive_features=["sex", "race"], target="hired")
    pca = fit_source(source, n_components=2)
    # end
    assert pca.n_features_in_ == 10


def test_a_hive_folder_whose_keys_are_columns():
    # begin hive folder
    from fairstream import fit_source, open_source

    source = open_source("years", sensitive_features=["sex", "year"], features=[f"x{j}" for j in range(10)])
    pca = fit_source(source, n_components=2, constraint="mean")
    # end
    assert {*pca.group_counts_["year"]} == {2025, 2026}


def test_all_files_that_match_a_pattern():
    # begin glob
    from fairstream import fit_source, open_source

    source = open_source("clinic*.parquet", sensitive_features=["sex"], features=[f"x{j}" for j in range(10)])
    pca = fit_source(source, n_components=2)
    # end
    assert pca.n_samples_seen_ == 600


def test_a_table_with_text_and_missing_values():
    frame = pd.read_parquet("staff.parquet")
    frame.assign(x0=frame["x0"].where(frame["x0"] < 6)).to_csv("staff.csv", index=False)
    # begin mixed table
    from fairstream import embed_source, fit_source, open_like, open_source

    options = {"sensitive_features": ["sex", "race"], "target": "hired", "keep": ["id"]}
    source = open_source("staff.csv", standardize=True, impute="mean", unseen="ignore", **options)
    pca = fit_source(source, n_components=3)
    embed_source(pca.subspace_, open_like(pca.subspace_, "staff.csv", keep=["id"]), "scores.csv")
    # end
    assert [*pd.read_csv("scores.csv").columns] == ["id", "component_0", "component_1", "component_2"]
    assert "job=nurse" in pca.feature_names_in_


def test_embeddings_in_a_column_of_a_table(people):
    vectors = people[NUMBERS].to_numpy()
    # begin embeddings in a column
    import pandas as pd

    from fairstream import fit_source, open_source

    texts = pd.DataFrame({"vector": list(vectors), "sex": people["sex"]})
    texts.to_parquet("texts.parquet")
    model = fit_source(open_source("texts.parquet", sensitive_features=["sex"]), n_components=4)
    # end
    assert model.n_features_in_ == 10


def test_blocks_that_arrive_one_by_one(people):
    blocks = [people[start : start + 100] for start in range(0, 600, 100)]
    # begin blocks
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3)
    for block in blocks:
        X = block.drop(columns=["sex", "race", "hired"])
        pca.partial_fit(X, sensitive_features=block["sex"])
    Z = pca.transform(X)
    # end
    assert len(Z) == 100
    assert pca.n_samples_seen_ == 600


def test_fit_a_dask_data_frame():
    pytest.importorskip("distributed")
    # begin dask
    import dask.dataframe as dd
    from dask.distributed import Client

    from fairstream import fit_source, open_source

    frame = dd.read_parquet("people.parquet").drop(columns=["race", "hired"])
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        pca = fit_source(open_source(frame, sensitive_features=["sex"]), n_components=2, client=client)
    # end
    assert pca.n_samples_seen_ == 600


def test_resume_a_fit_that_was_stopped():
    # begin checkpoint
    from fairstream import fit_source, open_source

    options = {"sensitive_features": ["sex"], "features": ["x0", "x1", "x2", "x3"], "block_size": 100}
    source = open_source("people.parquet", **options)
    pca = fit_source(source, n_components=2, checkpoint="checkpoints", every=200, resume=True)
    # end
    again = fit_source(source, n_components=2, checkpoint="checkpoints", resume=True)
    assert again.components_.tobytes() == pca.components_.tobytes()


def test_merge_what_several_institutions_collected():
    # begin merge
    from fairstream import collect_moments, load, open_source, solve

    for clinic in ("clinic1", "clinic2"):  # each where its data is
        features = [f"x{j}" for j in range(10)]
        source = open_source(f"{clinic}.parquet", sensitive_features=["sex"], features=features)
        collect_moments(source).save(f"{clinic}.moments")
    moments = load("clinic1.moments").merge(load("clinic2.moments"))
    model = solve(moments, n_components=3)
    # end
    assert model.n_rows == 600


def test_colour_images():
    Image = pytest.importorskip("PIL.Image")
    rng, lines = np.random.default_rng(0), ["name,glasses"]
    with zipfile.ZipFile("faces.zip", "w") as archive:
        for i in range(60):
            stream = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (6, 5, 3), dtype=np.uint8)).save(stream, "png")
            archive.writestr(f"{i}.png", stream.getvalue())
            lines.append(f"{i}.png,{'yn'[i % 2]}")
    Path("faces.csv").write_text("\n".join(lines))
    # begin images
    from fairstream import FairImagePCA, fit_source, open_source

    source = open_source("faces.zip", attributes="faces.csv", sensitive_features=["glasses"])
    pca = fit_source(source, FairImagePCA(n_components=4, n_unfair=1))
    pca.subspace_.save("faces.safetensors")
    # end
    assert len(pca.components_) == 3


# Which groups ---------------------------------------------------------------------------------------


def test_hide_several_attributes_at_once(people):
    # begin several attributes
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3, n_unfair={"sex": 1, "race": 2}, sensitive_columns=["sex", "race"])
    Z = pca.fit_transform(people.drop(columns="hired"))
    # end
    assert gap(Z, people["sex"]) < 1e-10


def test_hide_combinations_of_attributes(people):
    # begin intersections
    from fairstream import FairStreamingPCA

    both = [("sex", "race")]
    pca = FairStreamingPCA(3, constraint="mean", sensitive_columns=["sex", "race"], intersections=both)
    pca.fit(people.drop(columns="hired"))
    print(pca.group_counts_["sex & race"])
    # end
    assert len(pca.group_counts_["sex & race"]) == 4


def test_hide_the_age_of_people(people):
    X, age = people[NUMBERS], np.random.default_rng(0).normal(40, 12, 600)
    # begin quantile groups
    from fairstream import FairStreamingPCA, quantile_groups

    quarters = quantile_groups(age, 4)
    pca = FairStreamingPCA(3, constraint="mean").fit(X, sensitive_features={"age": quarters})
    # end
    assert [*pca.group_counts_["age"].values()] == [150] * 4


# Choosing -------------------------------------------------------------------------------------------


def test_see_what_fairness_costs(people):
    pytest.importorskip("matplotlib")
    X = people.drop(columns=["hired", "race"])
    # begin frontier
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3, sensitive_columns=["sex"]).fit(X)
    points = pca.frontier(range(6))
    print(points.to_frame())
    points.plot().savefig("frontier.png")
    # end
    assert len(points) == 6


def test_null_more_directions_without_reading_the_data_again(people):
    X = people.drop(columns=["hired", "race"])
    # begin resolve
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3, n_unfair=1, sensitive_columns=["sex"]).fit(X)
    stricter = pca.resolve(n_unfair=4)
    # end
    assert len(stricter.unfair_basis_) == 5


def test_keep_what_it_can_below_a_limit_on_what_leaks(people):
    X, sex = people[NUMBERS], people["sex"]
    quick = {"searched": [{"constraint": "mean"}], "dithers": (0.0, 0.3), "attack": "standard"}
    # begin tune by limit
    from fairstream import tune

    found = tune(X, {"sex": sex}, limit=0.75, n_components=3, **quick)
    print(*found.summary(), sep="\n")
    found.estimator.subspace_.save("model.safetensors")
    # end
    assert found.chosen.leak < 0.75


def test_leak_as_little_as_possible_at_80_percent_of_the_variance(people):
    X, sex = people[NUMBERS], people["sex"]
    quick = {"searched": [{"constraint": "none"}], "dithers": (0.0, 0.3), "attack": "standard"}
    # begin tune by keep
    from fairstream import tune

    found = tune(X, {"sex": sex}, keep=0.8, n_components=3, **quick)
    print(found.to_frame())
    # end
    assert found.chosen.variance >= 0.8 * found.plain_variance


def test_leave_out_the_columns_that_tell_most(people):
    X = people.drop(columns=["hired", "race"])
    # begin screen
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3, constraint="mean", screen=1, sensitive_columns=["sex"]).fit(X)
    # end
    assert np.abs(pca.components_[:, 0]).max() < 1e-12  # x0


def test_guard_against_attackers_that_are_not_linear(people):
    X = people.drop(columns=["hired", "race"])
    # begin guard
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(2, constraint="none", guard=2.0, sample=150, sensitive_columns=["sex"]).fit(X)
    Z = pca.transform(X)
    # end
    assert gap(Z, people["sex"]) < gap(people[["x0"]], people["sex"]) / 4


def test_add_noise_with_a_key_from_a_file(people):
    X = people.drop(columns=["hired", "race"])
    # begin dither
    from fairstream import FairStreamingPCA

    pca = FairStreamingPCA(3, dither=0.3, dither_key="key", sensitive_columns=["sex"]).fit(X)
    Z, again = pca.transform(X), pca.transform(X)  # the same row has the same noise
    # end
    pd.testing.assert_frame_equal(Z, again)
    assert not np.allclose(Z, pca.subspace_.embed(X[NUMBERS], dither=0))


# Handing on -----------------------------------------------------------------------------------------


def test_save_a_model_and_use_it_elsewhere(people):
    X = people.drop(columns=["hired", "race"])
    # begin save and load
    from fairstream import FairStreamingPCA, load

    FairStreamingPCA(3, sensitive_columns=["sex"]).fit(X).subspace_.save("model.safetensors")
    model = load("model.safetensors")
    Z = model.embed(X.drop(columns="sex"))
    # end
    assert Z.shape == (600, 3)


def test_look_at_what_a_file_holds(people):
    # begin inspect
    from fairstream import FairStreamingPCA
    from fairstream.cli.describe import inspect_file

    pca = FairStreamingPCA(3, sensitive_columns=["sex"]).fit(people.drop(columns=["race", "hired"]))
    pca.subspace_.save("model.safetensors")
    print(inspect_file("model.safetensors"))
    # end
    assert inspect_file("model.safetensors")["n_rows"] == 600


def test_run_the_model_in_another_language(people):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    X, sex = people[NUMBERS].to_numpy(), people["sex"]
    # begin onnx
    import onnxruntime

    from fairstream import FairStreamingPCA

    model = FairStreamingPCA(3).fit(X, sensitive_features=sex).subspace_
    model.to_onnx("model.onnx")
    (Z,) = onnxruntime.InferenceSession("model.onnx").run(None, {"X": X})
    # end
    np.testing.assert_allclose(Z, model.embed(X), atol=1e-8)


def test_embed_a_file_and_keep_the_columns_that_say_whose_rows_they_are():
    # begin embed a file
    from fairstream import embed_source, fit_source, open_like, open_source

    options = {"sensitive_features": ["sex"], "features": ["x0", "x1", "x2", "x3"]}
    model = fit_source(open_source("staff.parquet", **options), n_components=2).subspace_
    embed_source(model, open_like(model, "staff.parquet", keep=["id", "hired"]), "scores.parquet")
    # end
    scores = pd.read_parquet("scores.parquet")
    assert [*scores.columns] == ["id", "hired", "component_0", "component_1"]


def test_write_a_folder_of_parts():
    # begin parts
    from fairstream import erase_source, fit_source, open_like, open_source

    options = {"sensitive_features": ["sex"], "features": ["x0", "x1", "x2", "x3"]}
    model = fit_source(open_source("people.parquet", **options), n_components=2).subspace_
    erase_source(model, open_like(model, "people.parquet"), "erased.parquet", part_rows=200)
    # end
    assert len(pd.read_parquet("erased.parquet")) == 600


# Auditing -------------------------------------------------------------------------------------------


def test_audit_a_model_against_a_limit(people, unseen):
    # begin audit
    from fairstream import FairStreamingPCA, audit

    columns = people.columns.drop(["hired", "race", "sex"])
    pca = FairStreamingPCA(3).fit(people[columns], sensitive_features=people[["sex"]])
    report = audit(pca, unseen[columns], unseen[["sex"]], unseen["hired"], limit=0.65)
    print(*report.summary(), sep="\n")
    report.to_html("report.html")
    # end
    assert "sex" in "".join(report.summary())


def test_audit_numbers_for_a_program(people, unseen):
    quick = {"attackers": ["linear"], "n_permutations": 19}
    # begin audit as JSON
    from fairstream import FairStreamingPCA, audit

    columns = people.columns.drop(["hired", "race", "sex"])
    pca = FairStreamingPCA(3).fit(people[columns], sensitive_features=people[["sex"]])
    audit(pca, unseen[columns], unseen[["sex"]], **quick).to_json("report.json")
    # end
    assert json.loads(Path("report.json").read_text())["format"] == "fairstream.auditing"


def test_compare_with_other_methods_in_one_call(people, unseen):
    quick = {"attackers": ["linear"], "n_permutations": 0}
    # begin baselines
    from fairstream import FairStreamingPCA, audit
    from fairstream.baselines import KleindessnerFairPCA, LeacePCA

    columns, sex = people.columns.drop(["hired", "race", "sex"]), people[["sex"]]
    models = {"ours": FairStreamingPCA(3), "Kleindessner": KleindessnerFairPCA(3), "LEACE": LeacePCA(3)}
    fitted = {name: m.fit(people[columns], sensitive_features=sex) for name, m in models.items()}
    report = audit(fitted, unseen[columns], unseen[["sex"]], **quick)
    # end
    assert {"ours", "Kleindessner", "LEACE"} <= {model.name for model in report.models}


# In a shell -----------------------------------------------------------------------------------------


def test_fit_and_transform_on_the_command_line():
    # begin command line
    shell("fairstream fit people.csv -s sex --features x0,x1,x2,x3 -k 2 -o model.safetensors")
    shell("fairstream transform model.safetensors unseen.csv --keep hired -o scores.parquet")
    shell("fairstream inspect model.safetensors")
    # end
    assert [*pd.read_parquet("scores.parquet").columns] == ["hired", "component_0", "component_1"]


def test_merge_and_look_at_the_frontier_on_the_command_line():
    # begin command line merge
    shell("fairstream moments clinic1.parquet -s sex --features x0,x1,x2,x3 -o one.moments")
    shell("fairstream moments clinic2.parquet -s sex --features x0,x1,x2,x3 -o two.moments")
    shell("fairstream merge one.moments two.moments -o all.moments")
    shell("fairstream frontier all.moments -k 2 -m 1")
    shell("fairstream solve all.moments -k 0.9 -m 1 -o model.safetensors")
    # end
    from fairstream import load

    assert load("model.safetensors").n_rows == 600


def test_audit_on_the_command_line():
    shell(
        "fairstream fit people.csv -s sex --target hired --features x0,x1,x2,x3,x4 -k 2 -o model.safetensors"
    )
    line = "fairstream audit model.safetensors unseen.csv -s sex --html report.html"
    # begin command line audit
    shell(f"{line} --attacker linear --sample 400")
    # end
    assert "<html" in Path("report.html").read_text()


def test_a_european_file_on_the_command_line():
    # begin command line CSV
    options = "--decimal , --null-values '?' --bad-rows skip"
    shell(f"fairstream fit european.csv {options} -s sex -s race --target hired -k 2 -o model.safetensors")
    # end
    from fairstream import load

    assert load("model.safetensors").n_features == 10


def test_a_copy_of_the_sensitive_column_among_the_features_is_noticed(people):
    X = people[NUMBERS].assign(sex_code=(people["sex"] == "f").astype(float))
    # begin copies
    import pytest

    from fairstream import FairStreamingPCA, FairstreamWarning

    with pytest.warns(FairstreamWarning, match="'sex_code' among the features is named like"):
        FairStreamingPCA(3).fit(X, sensitive_features={"sex": people["sex"]})
    # end


def test_there_are_at_least_forty_tasks_of_ten_lines_at_most():
    text = Path(__file__).read_text()
    tasks = [part.split("# end")[0] for part in text.split("    # begin ")[1:]]
    assert len(tasks) >= 40
    for task in tasks:
        name, *lines = task.splitlines()
        assert sum(bool(line.strip()) for line in lines) <= 10, name
