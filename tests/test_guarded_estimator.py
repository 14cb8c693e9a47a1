"""The estimator with a screen, a guard and dither: fitted, solved again, saved, and used without groups."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from support.command import run

from fairstream import FairImagePCA, FairStreamingPCA, FairstreamWarning, load
from fairstream.subspace.dither import KEY_VARIABLE

N, D = 4_000, 8
KEY = b"a secret of more than sixteen bytes"
CHOICES = {"constraint": "none", "guard": 2.0, "sample": 600}


@pytest.fixture(scope="module")
def shapes():
    """Group 1 is two-valued in the first feature, with the mean and variance of group 0."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, N)
    X = rng.normal(size=(N, D)) * [3.0, 2.5, 2.0, 1.8, 1, 1, 1, 1]
    X[group == 1, 0] = 3.0 * rng.choice([-1.0, 1.0], int(group.sum()))
    return X, group


@pytest.fixture(scope="module")
def guarded(shapes):
    X, group = shapes
    return FairStreamingPCA(3, **CHOICES).fit(X, sensitive_features=group)


def leak(Z, group):
    half = len(Z) // 2
    attacker = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(Z[:half], group[:half])
    return roc_auc_score(group[half:], attacker.predict_proba(Z[half:])[:, 1])


def test_a_guarded_fit_hides_what_the_paper_s_method_cannot(shapes, guarded):
    X, group = shapes
    assert leak(guarded.transform(X), group) < 0.62
    assert leak(guarded.resolve(guard=0.0).transform(X), group) > 0.9


def test_streamed_blocks_give_the_same_guarded_components(shapes, guarded):
    X, group = shapes
    streamed = FairStreamingPCA(3, **CHOICES)
    for part in np.array_split(np.arange(N), 5):
        streamed.partial_fit(X[part], sensitive_features=group[part])
    np.testing.assert_allclose(np.abs(streamed.components_), np.abs(guarded.components_), atol=1e-8)


def test_another_strength_needs_no_data(guarded):
    weak = guarded.resolve(guard=0.01)
    assert weak.explained_variance_.sum() > guarded.explained_variance_.sum()
    assert clone(guarded).get_params() == guarded.get_params()


def test_a_model_holds_no_sampled_row_and_an_estimator_only_if_told_to(shapes, guarded, tmp_path):
    X, _ = shapes
    with pytest.raises(ValueError, match="save subspace_, which holds no row, or pass with_sample=True"):
        guarded.save(tmp_path / "estimator")
    guarded.subspace_.save(tmp_path / "model")
    row = guarded.moments_.sample.rows().X[0].tobytes()
    assert row not in (tmp_path / "model").read_bytes()
    model = load(tmp_path / "model")
    np.testing.assert_array_equal(model.embed(X), guarded.transform(X))
    guarded.save(tmp_path / "whole", with_sample=True)
    assert row in (tmp_path / "whole").read_bytes()
    np.testing.assert_array_equal(load(tmp_path / "whole").components_, guarded.components_)


def test_erase_of_a_guarded_model_gives_the_rows_of_its_scores_and_says_so(shapes, guarded):
    X, _ = shapes
    with pytest.warns(FairstreamWarning, match="erase returns the rows that these stand for"):
        erased = guarded.erase(X)
    np.testing.assert_allclose(erased, guarded.inverse_transform(guarded.transform(X)))


def test_a_target_is_kept_by_fit(shapes):
    X, group = shapes
    y = X[:, 5] > 0
    kept = FairStreamingPCA(3, keep_target=3.0, **CHOICES).fit(X, y, sensitive_features=group)
    assert leak(kept.transform(X), y) > 0.8
    with pytest.raises(ValueError, match="y has dtype"):
        kept.fit(X, np.where(y, "yes", "no"), sensitive_features=group)
    with pytest.raises(ValueError, match="keep_target needs the target"):
        kept.fit(X, sensitive_features=group)


def test_a_guard_needs_groups_and_moments(shapes):
    X, group = shapes
    with pytest.raises(ValueError, match="sensitive_features is missing"):
        FairStreamingPCA(3, **CHOICES).fit(X)
    for choice in ({"guard": 1.0}, {"sample": 10}):
        with pytest.raises(ValueError, match="needs moments: use solver"):
            FairStreamingPCA(3, solver="power", **choice).fit(X, sensitive_features=group)


def test_a_guard_works_in_a_sketch_and_in_channels(shapes):
    X, group = shapes
    sketched = FairStreamingPCA(3, solver="sketch", rank=6, **CHOICES).fit(X, sensitive_features=group)
    assert leak(sketched.transform(X), group) < 0.65
    image = FairImagePCA(2, n_channels=2, **CHOICES).fit(X, sensitive_features=group)
    assert leak(image.transform(X), group) < 0.65
    assert image.transform(X).shape == (N, 4)


# Screen and dither ----------------------------------------------------------------------------------


def test_screened_columns_do_not_change_a_score(shapes):
    X, group = shapes
    X = X + 2.0 * group[:, None] * np.eye(D)[1]
    pca = FairStreamingPCA(3, screen=1).fit(X, sensitive_features=group)
    changed = X.copy()
    changed[:, 1] = 0
    np.testing.assert_array_equal(pca.transform(changed), pca.transform(X))
    assert [point.n_screened for point in pca.frontier([0], screen=[0, 2])] == [0, 2]


@pytest.mark.parametrize("estimator", [FairStreamingPCA, FairImagePCA])
def test_dither_is_the_same_for_the_same_row_and_of_the_size_asked_for(shapes, estimator, tmp_path):
    X, group = shapes
    (tmp_path / "key").write_bytes(KEY)
    options = {"n_channels": 2} if estimator is FairImagePCA else {}
    plain = estimator(2, **options).fit(X, sensitive_features=group)
    noisy = estimator(2, dither=0.3, dither_key=tmp_path / "key", **options).fit(X, sensitive_features=group)
    Z, clear = noisy.transform(X), plain.transform(X)
    np.testing.assert_array_equal(noisy.transform(X[::-1]), Z[::-1])
    np.testing.assert_allclose((Z - clear).std(axis=0), 0.3 * clear.std(axis=0), rtol=0.05)
    erased = noisy.erase(X) - plain.erase(X)
    assert erased.std() > 0
    assert KEY not in repr(noisy.get_params()).encode()


def test_dither_without_a_key_says_where_it_comes_from(shapes, monkeypatch):
    X, group = shapes
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    pca = FairStreamingPCA(2, dither=0.3).fit(X, sensitive_features=group)
    with pytest.raises(ValueError, match=KEY_VARIABLE):
        pca.transform(X)
    with pytest.raises(ValueError, match="dither=-1: give a share"):
        pca.subspace_.embed(X, dither=-1)
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert pca.transform(X).shape == (N, 2)


@pytest.mark.parametrize("as_given", [str, Path])
def test_no_file_holds_the_key(shapes, tmp_path, as_given):
    X, group = shapes
    (tmp_path / "key").write_bytes(KEY)
    pca = FairStreamingPCA(2, dither=0.3, dither_key=as_given(tmp_path / "key"))
    pca.fit(X, sensitive_features=group).save(tmp_path / "estimator")
    pca.subspace_.save(tmp_path / "model")
    for name in ("estimator", "model"):
        assert KEY not in (tmp_path / name).read_bytes()
    np.testing.assert_array_equal(load(tmp_path / "estimator").transform(X), pca.transform(X))


# On the command line --------------------------------------------------------------------------------


def test_the_command_line_screens_guards_and_dithers(shapes, tmp_path, monkeypatch):
    X, group = shapes
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, group)))
    (tmp_path / "key").write_bytes(KEY)
    labels = ["-s", f"group={tmp_path / 'labels.txt'}"]
    data, moments, model = tmp_path / "x.npy", tmp_path / "m.moments", tmp_path / "m.safetensors"
    asked = ["-k", "2", "--constraint", "none", "--guard", "2"]
    run("moments", data, *labels, "--sample", "500", "-o", moments)
    assert "treat this as row-level data" in run("inspect", moments).stdout
    run("solve", moments, *asked, "-o", model)
    assert load(model).is_guarded
    run("fit", data, *labels, *asked, "--screen", "1", "-o", model)
    assert load(model).parameters["n_screened"] == 1
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    refused = run("transform", model, data, "-o", tmp_path / "z.npy", "--dither", "0.3", code=1)
    assert KEY_VARIABLE in refused.stderr
    noisy = ["--dither", "0.3", "--dither-key", tmp_path / "key"]
    run("transform", model, data, "-o", tmp_path / "z.npy", *noisy)
    expected = load(model).embed(X, dither=0.3, key=KEY)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), expected)


def test_a_guard_with_more_components_than_directions_of_variance_is_refused():
    """Two complete one-hot pairs and two free columns have rank four."""
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, size=(900, 2)).astype(float)
    X = np.column_stack([coins, 1 - coins, rng.normal(size=(900, 2))])
    sex = rng.integers(0, 2, 900)
    with pytest.raises(ValueError, match=r"n_components is 5, but a guard has 4 directions.*lower .* to 4"):
        FairStreamingPCA(5, constraint="none", guard=1.0).fit(X, sensitive_features=sex)
    fitted = FairStreamingPCA(4, constraint="none", guard=1.0).fit(X, sensitive_features=sex)
    assert np.isfinite(fitted.components_).all()
