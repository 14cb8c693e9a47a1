"""What a user of scikit-learn's PCA expects; without a constraint the same numbers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score

from fairstream import (
    FairImagePCA,
    FairStreamingPCA,
    FairSubspace,
    Frontier,
    fit_source,
    frontier,
    load,
    open_source,
)

PLAIN = {"constraint": "none"}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 400)
    X = rng.normal(size=(400, 9)) @ np.diag(2.0 ** -np.arange(9)) @ rng.normal(size=(9, 9)) + 10.0
    X[:, 0] += 3.0 * (sex == "m")
    return X, sex


# A share of the variance --------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.95, 0.99, 0.9999999])
@pytest.mark.parametrize("solver", ["exact", "sketch"])
def test_a_share_keeps_as_many_components_as_pca(data, share, solver):
    X, _ = data
    ours, theirs = (
        FairStreamingPCA(share, solver=solver, **PLAIN).fit(X),
        PCA(share, svd_solver="full").fit(X),
    )
    assert ours.n_components_ == theirs.n_components_
    assert np.allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    assert ours.n_components == share


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_share_is_of_the_variance_outside_the_nulled_directions(data, share):
    X, sex = data
    fair = FairStreamingPCA(share).fit(X, sensitive_features=sex)
    U = fair.unfair_basis_
    outside = (X - X.mean(axis=0)) @ (np.eye(9) - U.T @ U)
    values = np.linalg.eigvalsh(np.cov(outside.T))[::-1]
    kept = np.cumsum(values) / values.sum()
    assert kept[fair.n_components_ - 1] > share
    assert fair.n_components_ == 1 or kept[fair.n_components_ - 2] <= share
    assert np.allclose(fair.explained_variance_, values[: fair.n_components_])


def test_a_share_of_all_variance_would_keep_more(data):
    """The control: half of the variance is nulled here, and a share of what is left is less."""
    X, sex = data
    fair = FairStreamingPCA(0.9).fit(X, sensitive_features=sex)
    assert fair.explained_variance_ratio_.sum() < 0.8


def test_a_share_goes_through_streams_files_and_new_choices(data, tmp_path):
    X, sex = data
    fitted = fit_source(open_source(X, sensitive_features={"sex": sex}), n_components=0.8)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.n_components == 0.8
    assert loaded.n_components_ == fitted.n_components_
    assert loaded.resolve(n_components=0.999).n_components_ > fitted.n_components_
    assert all(isinstance(point.n_removed, int) for point in frontier(fitted.moments_, 0.8, [0, 1, 2]))


def test_channels_may_keep_different_numbers(data):
    X, sex = data
    wide = np.hstack([X, np.random.default_rng(1).normal(size=(400, 9)) + (sex == "m")[:, None]])
    fitted = FairImagePCA(0.8, n_channels=2).fit(wide, sensitive_features=sex)
    numbers = [len(V) for V in fitted.components_]
    assert numbers[0] < numbers[1]
    assert fitted.transform(wide).shape == (400, sum(numbers))


def test_a_share_needs_moments_and_says_so(data):
    X, sex = data
    with pytest.raises(
        ValueError, match=r'n_components=0.9 is not possible with solver="power".*or use solver'
    ):
        FairStreamingPCA(0.9, solver="power").fit(X, sensitive_features=sex)
    with pytest.raises(
        ValueError, match=r"looks inside the leading components, n_components=0.9: give n_components"
    ):
        FairStreamingPCA(0.9, directions="relative").fit(X, sensitive_features=sex)
    wide = np.random.default_rng(0).normal(size=(50, 600))
    with pytest.raises(ValueError, match=r"n_components=0.9 may keep all of n_features=600"):
        FairStreamingPCA(0.9, solver="sketch", **PLAIN).fit(wide)
    with pytest.raises(ValueError, match=r"the sketch holds only 0\.\d+ of the variance .* a larger rank"):
        FairStreamingPCA(0.9, solver="sketch", rank=5, **PLAIN).fit(wide)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.5, 1.5, float("nan"), True, "all"])
def test_what_is_no_share_and_no_number_is_refused(data, wrong):
    with pytest.raises(ValueError, match=r"n_components=.*: give a whole number from 1, a share"):
        FairStreamingPCA(wrong, **PLAIN).fit(data[0])


# Whitening ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_whitened_coordinates_are_those_of_pca(data, form):
    X, _ = data
    ours, theirs = FairStreamingPCA(4, whiten=True, **PLAIN).fit(form(X)), PCA(4, whiten=True).fit(X)
    Z = ours.transform(form(X))
    assert np.allclose(np.abs(Z), np.abs(theirs.transform(X)), atol=1e-8)
    assert np.allclose(Z.var(axis=0, ddof=1), 1.0)
    assert np.allclose(ours.inverse_transform(Z), theirs.inverse_transform(theirs.transform(X)))


@pytest.mark.parametrize("kind", [FairStreamingPCA, FairImagePCA])
@pytest.mark.parametrize("solver", ["exact", "sketch", "power"])
def test_whitening_travels_with_the_result(data, kind, solver, tmp_path):
    X, sex = data
    extra = {"random_state": 0, "power_steps": 60} if solver == "power" else {}
    fitted = kind(1, whiten=True, solver=solver, constraint="mean", **extra).fit(X, sensitive_features=sex)
    Z = fitted.transform(X)
    assert np.allclose(Z.var(axis=0, ddof=1), 1.0, rtol=1e-3)
    fitted.subspace_.save(tmp_path / "subspace")
    assert np.array_equal(load(tmp_path / "subspace").embed(X), Z)
    fitted.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), Z)
    plain = kind(1, solver=solver, constraint="mean", **extra).fit(X, sensitive_features=sex)
    assert np.allclose(fitted.inverse_transform(Z), plain.inverse_transform(plain.transform(X)))


def test_a_component_without_variance_is_not_divided_by_zero():
    subspace = FairSubspace(
        np.eye(3)[:2],
        np.zeros((0, 3)),
        np.zeros(3),
        np.array([1.0, 0.0]),
        1.0,
        10,
        parameters={"whiten": True},
    )
    assert np.isfinite(subspace.embed(np.eye(3))).all()


def test_whiten_must_be_true_or_false(data):
    with pytest.raises(ValueError, match="whiten=2: give True or False"):
        FairStreamingPCA(2, whiten=2, **PLAIN).fit(data[0])


# The Gaussian model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 8, 9])
def test_covariance_precision_and_scores_are_those_of_pca(data, k):
    X, _ = data
    ours, theirs = FairStreamingPCA(k, **PLAIN).fit(X), PCA(k, svd_solver="full").fit(X)
    assert np.allclose(ours.noise_variance_, theirs.noise_variance_, rtol=1e-8, atol=1e-12)
    assert np.allclose(ours.get_covariance(), theirs.get_covariance())
    scale = np.abs(theirs.get_precision()).max()
    assert np.abs(ours.get_precision() - theirs.get_precision()).max() < 1e-7 * scale
    assert np.allclose(ours.score_samples(X), theirs.score_samples(X))
    assert np.isclose(ours.score(X), theirs.score(X))


def test_fewer_rows_than_columns_as_in_pca():
    X = np.random.default_rng(0).normal(size=(7, 20))
    ours, theirs = FairStreamingPCA(3, **PLAIN).fit(X), PCA(3, svd_solver="full").fit(X)
    assert np.isclose(ours.noise_variance_, theirs.noise_variance_)
    assert np.allclose(ours.score_samples(X), theirs.score_samples(X))


def test_the_fair_model_is_a_density(data):
    """Precision and covariance are inverse, and the density is the normal one that scipy has."""
    from scipy.stats import multivariate_normal

    X, sex = data
    fair = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    assert np.allclose(fair.get_covariance() @ fair.get_precision(), np.eye(9))
    wanted = multivariate_normal(fair.mean_, fair.get_covariance()).logpdf(X)
    assert np.allclose(fair.score_samples(X), wanted)
    assert np.allclose(fair.score_samples(sp.csc_array(X)), wanted)
    assert np.allclose(fair.score_samples(X.astype(np.float32)), wanted, atol=1e-2)
    assert np.isclose(np.trace(fair.get_covariance()), X.var(axis=0, ddof=1).sum())


def test_whitening_does_not_change_the_model(data):
    X, sex = data
    one, two = (FairStreamingPCA(3, whiten=w).fit(X, sensitive_features=sex) for w in (False, True))
    assert np.array_equal(one.get_covariance(), two.get_covariance())
    assert np.array_equal(one.score_samples(X), two.score_samples(X))


def test_channels_add_up(data):
    X, sex = data
    fitted = FairImagePCA(1, constraint="mean").fit(X, sensitive_features=sex)
    each = [
        one.score_samples(X[:, columns])
        for one, columns in zip(fitted.estimators_, fitted.subspace_.channel_slices, strict=True)
    ]
    assert np.allclose(fitted.score_samples(X), np.sum(each, axis=0))
    assert len(fitted.get_covariance()) == len(fitted.get_precision()) == len(fitted.noise_variance_) == 3


def test_a_model_without_noise_has_no_density(data):
    X, _ = data
    flat = np.hstack([X, np.ones((400, 1))])
    with pytest.raises(ValueError, match=r"directions without variance.*leave constant columns out"):
        FairStreamingPCA(10, **PLAIN).fit(flat).score_samples(flat)


def test_cross_validation_scores_by_likelihood(data):
    X, sex = data
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(9)]).assign(sex=sex)
    scores = cross_val_score(FairStreamingPCA(2, sensitive_columns="sex"), frame, cv=3, error_score="raise")
    assert np.isfinite(scores).all()


# The frontier -------------------------------------------------------------------------------------------


@pytest.fixture
def fair(data):
    X, sex = data
    race = np.random.default_rng(1).choice(["a", "b"], 400)
    return FairStreamingPCA(2, constraint="mean").fit(X, sensitive_features={"sex": sex, "race": race})


def test_a_frontier_is_a_list_a_frame_and_a_figure(fair):
    points = fair.frontier([0, 1, 2], constraint="all")
    assert isinstance(points, Frontier)
    assert points == [*points]
    frame = points.to_frame()
    assert [*frame] == [
        "n_unfair",
        "n_screened",
        "n_removed",
        "explained_variance_ratio",
        "mean_gap[sex]",
        "mean_gap[race]",
        "covariance_gap[sex]",
        "covariance_gap[race]",
    ]
    assert frame["n_unfair"].tolist() == [0, 1, 2]
    assert frame["covariance_gap[race]"].tolist() == [point.covariance_gap["race"] for point in points]


def test_the_figure_has_a_curve_for_each_attribute_with_every_point(fair):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    points = fair.frontier([0, 1, 2], constraint="all")
    (axes,) = points.plot().axes
    assert [line.get_label() for line in axes.lines] == ["sex", "race"]
    for line, attribute in zip(axes.lines, ("sex", "race"), strict=True):
        assert np.allclose(line.get_xdata(), [point.covariance_gap[attribute] for point in points])
        assert np.allclose(line.get_ydata(), [point.explained_variance_ratio for point in points])
    assert [note.get_text() for note in axes.texts] == ["0", "1", "2"] * 2


def test_screens_are_curves_of_their_own(fair):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    points = fair.frontier([0, 1], constraint="all", screen=[0, 2])
    assert len(points.plot().axes[0].lines) == 4
    assert len(points.to_frame()) == 4


def test_an_empty_frontier_is_no_error():
    assert Frontier().to_frame().empty
    assert len(Frontier().plot().axes[0].lines) == 0
