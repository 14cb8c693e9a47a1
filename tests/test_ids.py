"""Ids go wherever dither goes: estimators, pipelines, files, the command line, audits and tuning."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.command import answer, run

from fairstream import (
    FairEraser,
    FairImagePCA,
    FairStreamingPCA,
    FairstreamWarning,
    audit,
    embed_source,
    erase_source,
    fit_source,
    load,
    open_like,
    tune,
)
from fairstream.data import open_source
from fairstream.subspace.dither import KEY_VARIABLE

SECRET = "a secret of more than sixteen bytes"
N = 400
pytestmark = pytest.mark.usefixtures("few_families")


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, SECRET)


@pytest.fixture
def people():
    """Every row twice: a person and a twin with other ids."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(N // 2, 5)).round(3), 2, axis=0)
    frame = pd.DataFrame(X, columns=[*"abcde"])
    frame["sex"] = np.repeat(rng.choice(["f", "m"], N // 2), 2)
    frame["person"] = rng.permutation(N) + 1_000
    return frame


def _told_apart(Z):
    Z = np.asarray(Z)
    return bool((Z[::2] != Z[1::2]).any(axis=1).all())


# Estimators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [lambda **p: FairStreamingPCA(2, **p), FairEraser], ids=["pca", "eraser"])
def test_a_column_of_ids_is_no_feature_and_tells_twins_apart(new, people):
    options = {"sensitive_columns": ["sex"], "dither": 0.3}
    model = new(ids="person", **options).fit(people)
    assert [*model.feature_names_in_] == [*"abcde"]
    assert _told_apart(model.transform(people))
    assert _told_apart(new(ids="person", **options).fit_transform(people))
    assert _told_apart(model.erase(people))
    given = model.transform(people.drop(columns="person"), ids=people["person"])
    pd.testing.assert_frame_equal(given, model.transform(people))
    by_values = new(**options).fit(people.drop(columns="person"))
    assert not _told_apart(by_values.transform(people.drop(columns="person")))  # the control


@pytest.mark.parametrize("asked", ["person", True])
def test_an_estimator_made_for_ids_refuses_to_add_noise_without_them(people, asked):
    X, sex = people[[*"abcde"]], people["sex"]
    pca = FairStreamingPCA(2, dither=0.3, ids=asked).fit(X, sensitive_features=sex)
    for verb in (pca.transform, pca.erase):
        with pytest.raises(ValueError, match="no ids are given: pass ids"):
            verb(X)
        assert _told_apart(verb(X, ids=people["person"]))
    assert pca.set_params(dither=0.0).transform(X).shape == (N, 2)


def test_ids_come_by_index_and_others_are_refused(people):
    people.index = [f"row {j}" for j in range(N)]
    X, ids = people[[*"abcde"]], people["person"]
    pca = FairStreamingPCA(2, dither=0.3).fit(X, sensitive_features=people["sex"])
    pd.testing.assert_frame_equal(pca.transform(X, ids=ids.iloc[::-1]), pca.transform(X, ids=ids))
    with pytest.raises(ValueError, match="ids has the index"):
        pca.transform(X, ids=ids.rename({"row 0": "nobody"}))
    with pytest.raises(ValueError, match="ids has shape"):
        pca.transform(X, ids=ids.to_numpy()[1:])


def test_ids_or_a_key_file_without_dither_are_warned_of(people, tmp_path):
    X = people[[*"abcde"]]
    pca = FairStreamingPCA(2).fit(X, sensitive_features=people["sex"])
    with pytest.warns(FairstreamWarning, match="^ids given, but the model has no dither"):
        pca.transform(X, ids=people["person"])
    (tmp_path / "key").write_text(SECRET)
    pca.set_params(dither_key=tmp_path / "key")
    with pytest.warns(FairstreamWarning, match="^a key given"):
        pca.erase(X)


def test_a_pipeline_routes_ids_to_transform(people):
    X = people[[*"abcde"]].to_numpy()
    sex, ids = people["sex"].to_numpy(), people["person"].to_numpy()
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), FairStreamingPCA(2, dither=0.3, ids=True))
        Z = pipe.fit_transform(X, sensitive_features=sex, ids=ids)
        assert _told_apart(Z)
        np.testing.assert_allclose(pipe.transform(X, ids=ids), Z)
        quiet = FairStreamingPCA(2).set_transform_request(ids=False)
        assert quiet.get_metadata_routing().transform.requests["ids"] is False


def test_images_take_ids():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 200, (100, 12), dtype=np.uint8), 2, axis=0)
    pca = FairImagePCA(1, dither=0.3, ids=True).fit(X, sensitive_features=rng.integers(0, 2, 200))
    assert _told_apart(pca.transform(X, ids=np.arange(200)))
    with pytest.raises(ValueError, match="no ids are given"):
        pca.transform(X)


def test_resolving_keeps_and_changes_what_noise_depends_on(people):
    pca = FairStreamingPCA(2, dither=0.3, ids="person", sensitive_columns=["sex"]).fit(people)
    assert pca.resolve(n_components=3).subspace_.ids == "person"
    assert pca.resolve(ids=False).subspace_.ids is False


# Sources and files --------------------------------------------------------------------------------


def test_a_fit_of_a_table_leaves_the_column_of_ids_out_and_the_model_file_names_it(people, tmp_path):
    people.to_parquet(tmp_path / "people.parquet")
    options = {"sensitive_columns": ["sex"], "dither": 0.3, "ids": "person", "n_components": 2}
    pca = fit_source(tmp_path / "people.parquet", **options)
    assert [*pca.feature_names_in_] == [*"abcde"]
    pca.subspace_.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert model.ids == "person"
    source = open_like(model, tmp_path / "people.parquet", block_size=150)
    for write in (embed_source, erase_source):
        write(model, source, tmp_path / "out.npy")
        assert _told_apart(np.load(tmp_path / "out.npy"))
    np.testing.assert_allclose(model.embed(people.drop(columns="sex")), pca.transform(people), rtol=1e-9)
    anonymous = open_like(model, tmp_path / "people.parquet", ids=None)
    with pytest.raises(ValueError, match="a frame with the column 'person', or dither=0"):
        embed_source(model, anonymous, tmp_path / "out.npy")
    embed_source(model, anonymous, tmp_path / "plain.npy", dither=0)
    assert not _told_apart(np.load(tmp_path / "plain.npy"))


def test_a_source_with_the_ids_among_its_features_is_refused(people):
    source = open_source(people, sensitive_features=["sex"])
    with pytest.raises(ValueError, match=r"has the column 'person' among its features.*ids='person'"):
        fit_source(source, n_components=2, ids="person")


def test_writing_warns_once_of_ids_without_noise(people, tmp_path):
    source = open_source(people, sensitive_features=["sex"], ids="person", block_size=50)
    model = fit_source(source, n_components=2).subspace_
    with pytest.warns(FairstreamWarning, match="ids given") as caught:
        embed_source(model, source, tmp_path / "out.npy")
    assert len(caught) == 1


def test_the_id_column_of_a_model_without_noise_is_no_reason_to_warn(people, tmp_path):
    source = open_source(people, sensitive_features=["sex"], ids="person")
    model = fit_source(source, n_components=2, ids="person").subspace_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(model.embed(people)) == N
        embed_source(model, source, tmp_path / "out.npy")


@pytest.mark.parametrize("name", ["format-1.safetensors", "format-1-channels.safetensors"])
def test_files_of_before_know_of_no_ids(name):
    model = load(f"tests/stored/{name}")
    assert model.ids is False
    assert model.dither == 0.0


# The command line ---------------------------------------------------------------------------------


def test_the_command_line_takes_the_column_and_remembers_it(people, tmp_path):
    data, model, out = (tmp_path / name for name in ("people.csv", "model.safetensors", "out.npy"))
    people.to_csv(data, index=False)
    fit = ["fit", data, "-s", "sex", "--id-column", "person", "--dither", "0.3", "-k", 2]
    facts = answer(*fit, "-o", model, "--json")
    assert facts["n_features"] == 5
    assert facts["parameters"]["ids"] == "person"
    for command in ("transform", "erase"):
        run(command, model, data, "-o", out, "--overwrite")
        assert _told_apart(np.load(out))
    renamed = people.rename(columns={"person": "who"})
    renamed.to_csv(tmp_path / "other.csv", index=False)
    failed = run("transform", model, tmp_path / "other.csv", "-o", out, "--overwrite", code=1)
    assert "the model needs column 'person', which " in failed.stderr
    assert "name the column that tells whose rows these are with --id-column\n" in failed.stderr
    named = run(
        *("transform", model, tmp_path / "other.csv", "--id-column", "whose", "-o", out, "--overwrite"),
        code=1,
    )
    assert "--id-column names 'whose'" in named.stderr
    run("transform", model, tmp_path / "other.csv", "--id-column", "who", "-o", out, "--overwrite")
    assert _told_apart(np.load(out))
    run("transform", model, tmp_path / "other.csv", "--dither", "0", "-o", out, "--overwrite")
    assert not _told_apart(np.load(out))


def test_solved_moments_know_of_the_column_too(people, tmp_path):
    data, moments, model = (tmp_path / name for name in ("people.csv", "all.moments", "model.safetensors"))
    people.to_csv(data, index=False)
    run("moments", data, "-s", "sex", "--id-column", "person", "-o", moments)
    solve = ["solve", moments, "-k", 2, "--dither", "0.3", "--id-column", "person"]
    assert answer(*solve, "-o", model, "--json")["parameters"]["ids"] == "person"
    assert load(model).n_features == 5


# Audits and tuning --------------------------------------------------------------------------------


def _twins(n=600):
    """Every row six times; the group is a coin toss that only a twin gives away."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(n // 6, 4)), 6, axis=0)
    frame = pd.DataFrame(X, columns=[*"abcd"])
    frame["sex"] = np.repeat(rng.integers(0, 2, n // 6), 6)
    frame["person"] = rng.permutation(n)
    return frame


FOREST = {"attackers": ["forest"], "n_permutations": 0}
LINEAR = {"attackers": ["linear"], "n_permutations": 0}


def _leak(report):
    return report.models[0].leaks[0].attack.strongest.auc.value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_an_audit_embeds_with_the_ids_that_are_handed_on():
    frame = _twins()
    X, sex, ids = frame[[*"abcd"]], {"sex": frame["sex"]}, frame["person"]
    pca = FairStreamingPCA(3, constraint="mean", dither=0.8).fit(X, sensitive_features=sex)
    by_values = _leak(audit(pca, X, sex, **FOREST))
    by_ids = _leak(audit(pca, X, sex, ids=ids, **FOREST))
    assert by_values > 0.95  # the control: attackers know the twins
    assert by_ids < by_values - 0.1


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_an_audit_finds_the_column_that_the_model_knows_and_refuses_rows_of_nobody(tmp_path):
    frame = _twins()
    X, sex = frame[[*"abcd"]], {"sex": frame["sex"]}
    pca = FairStreamingPCA(2, dither=0.8, ids="person").fit(X, sensitive_features=sex)
    for attack in ("standard", "strong"):
        with pytest.raises(ValueError, match="no ids are given: pass ids"):
            audit(pca, X, sex, attack=attack, **LINEAR)
        audit(pca, X, sex, ids=frame["person"], attack=attack, **LINEAR)
    frame.to_parquet(tmp_path / "twins.parquet")
    found = [
        audit(pca, frame.drop(columns="sex"), sex, **LINEAR),
        audit(pca, tmp_path / "twins.parquet", ["sex"], **LINEAR),
        audit(pca, frame.drop(columns="sex").rename(columns={"person": "who"}), sex, ids="who", **LINEAR),
    ]
    assert [report.data.n_features for report in found] == [4, 4, 4]


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_training_rows_of_an_audit_have_ids_too():
    frame = _twins()
    X, sex, ids = frame[[*"abcd"]], frame["sex"], frame["person"]
    pca = FairStreamingPCA(3, constraint="mean", dither=0.8, ids=True).fit(X, sensitive_features=sex)
    known, new = slice(0, None, 2), slice(1, None, 2)
    options = {"ids": ids[new], **LINEAR}
    with pytest.raises(ValueError, match="no ids are given"):
        audit(pca, X[new], sex[new], train=(X[known], sex[known]), **options)
    train = (X[known], sex[known], None, ids[known])
    audit(pca, X[new], sex[new], train=train, **options)


@pytest.mark.filterwarnings("ignore::fairstream.FairstreamWarning")
def test_an_erased_table_is_audited_with_ids():
    frame = _twins()
    X, sex, ids = frame[[*"abcd"]], frame["sex"], frame["person"]
    eraser = FairEraser(constraint="mean", dither=0.8, ids=True).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="no ids are given"):
        audit(eraser, X, sex, **LINEAR)
    audit(eraser, X, sex, ids=ids, **LINEAR)


def test_an_audit_warns_of_ids_that_no_model_uses():
    frame = _twins()
    X, sex = frame[[*"abcd"]], frame["sex"]
    pca = FairStreamingPCA(2, constraint="mean").fit(X, sensitive_features=sex)
    with pytest.warns(FairstreamWarning, match="^ids given, but the model has no dither"):
        audit(pca, X, sex, ids=frame["person"], **LINEAR)


@pytest.mark.parametrize("asked", [True, "person"])
def test_a_model_tuned_for_ids_records_it(asked):
    frame = _twins(1_500)
    X = frame.drop(columns="sex") if asked == "person" else frame[[*"abcd"]]
    options = {"n_components": 3, "attack": "standard", "searched": [{"constraint": "mean"}]}
    found = tune(X, frame["sex"], limit=0.7, ids=asked, dithers=(0.0, 0.8), **options)
    assert found.estimator.ids == found.estimator.subspace_.ids == asked
    assert found.estimator.n_features_in_ == 4
    with pytest.raises(ValueError, match="no ids are given"):
        found.estimator.transform(X[[*"abcd"]].to_numpy())
    assert _told_apart(found.estimator.transform(X[[*"abcd"]].to_numpy(), ids=frame["person"].to_numpy()))
