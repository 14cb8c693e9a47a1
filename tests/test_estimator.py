import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.brute_force import largest_sine
from support.embedded import explained_variance_ratio

from fairstream import FairStreamingPCA, FairstreamWarning, NotEnoughGroupsError
from fairstream.datasets import paper_split


@pytest.fixture
def data(rng):
    n, d = 600, 12
    sex = rng.choice(["f", "m"], n)
    race = rng.choice(["a", "b", "c"], n)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    X[sex == "m", 0] += 3
    X[race == "b"] *= 1.5
    return X, sex, race


def subspaces_agree(one, two, tolerance=1e-8):
    return largest_sine(one.components_.T, two.components_.T) < tolerance


def test_constraint_none_is_plain_pca(data):
    X, _, _ = data
    ours, theirs = FairStreamingPCA(4, constraint="none").fit(X), PCA(4).fit(X)
    assert largest_sine(ours.components_.T, theirs.components_.T) < 1e-8
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name)), name
    assert np.allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)))
    assert np.allclose(
        ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X))
    )


def test_plain_pca_leaks_where_ours_does_not(data):
    X, sex, _ = data
    ours = FairStreamingPCA(4).fit(X, sensitive_features=sex).transform(X)
    plain = PCA(4).fit_transform(X)

    def gap(Z):
        return np.linalg.norm(Z[sex == "m"].mean(axis=0) - Z[sex == "f"].mean(axis=0))

    assert gap(ours) < 1e-10
    assert gap(plain) > 0.5


@pytest.mark.parametrize("sizes", [[1] * 600, [1, 2, 3, 94, 500], [600], [599, 1]])
def test_any_block_sizes_give_the_same_exact_solution(data, sizes):
    X, sex, race = data
    whole = FairStreamingPCA(3).fit(X, sensitive_features={"sex": sex, "race": race})
    streamed, start = FairStreamingPCA(3), 0
    for size in sizes:
        rows = slice(start, start + size)
        streamed.partial_fit(X[rows], sensitive_features={"sex": sex[rows], "race": race[rows]})
        start += size
    assert subspaces_agree(whole, streamed)
    assert largest_sine(whole.unfair_basis_.T, streamed.unfair_basis_.T) < 1e-8
    assert streamed.n_samples_seen_ == 600


def test_blocks_in_any_order_give_the_same_solution(data, rng):
    X, sex, _ = data
    one, two = FairStreamingPCA(3), FairStreamingPCA(3)
    blocks = np.array_split(np.arange(600), 9)
    for rows in blocks:
        one.partial_fit(X[rows], sensitive_features=sex[rows])
    for j in rng.permutation(9):
        two.partial_fit(X[blocks[j]], sensitive_features=sex[blocks[j]])
    assert subspaces_agree(one, two)


def test_partial_fit_solves_only_when_asked(data, monkeypatch):
    X, sex, _ = data
    calls = []
    import fairstream.estimators.moments_learner as module

    real = module.subspace_for
    monkeypatch.setattr(
        module, "subspace_for", lambda *args, **options: calls.append(1) or real(*args, **options)
    )
    pca = FairStreamingPCA(3)
    for rows in np.array_split(np.arange(600), 5):
        pca.partial_fit(X[rows], sensitive_features=sex[rows])
    assert calls == []
    pca.transform(X)
    pca.transform(X)
    assert len(calls) == 1


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_sensitive_features_in_every_form(data, frame):
    X, sex, race = data
    reference = FairStreamingPCA(3).fit(X, sensitive_features={"sex": sex, "race": race})
    columns = {"sex": sex.tolist(), "race": race.tolist()}
    pca = FairStreamingPCA(3).fit(X, sensitive_features=frame(columns))
    assert subspaces_agree(reference, pca)
    assert {a: dict(c) for a, c in pca.group_counts_.items()} == {
        a: {label: values.count(label) for label in sorted(set(values))} for a, values in columns.items()
    }
    assert np.allclose(pca.group_means_["sex"]["m"], X[sex == "m"].mean(axis=0))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_names(data, frame):
    X, sex, _ = data
    columns = {f"x{j}": X[:, j] for j in range(12)}
    kind = "pandas" if frame is pd.DataFrame else "polars"
    pca = FairStreamingPCA(2).set_output(transform=kind).fit(frame(columns), sensitive_features=sex)
    assert pca.feature_names_in_.tolist() == [*columns]
    assert pca.subspace_.feature_names == tuple(columns)
    embedded = pca.transform(frame(columns))
    assert isinstance(embedded, frame)
    assert [*embedded.columns] == ["fairstreamingpca0", "fairstreamingpca1"]
    assert pca.get_feature_names_out().tolist() == [*embedded.columns]


def test_missing_sensitive_features_raise_unless_nothing_is_constrained(data):
    X, _, _ = data
    for fit in (FairStreamingPCA(2).fit, FairStreamingPCA(2).partial_fit):
        with pytest.raises(ValueError, match=r'sensitive_features is missing.*constraint="none"'):
            fit(X)


def test_one_group_raises_in_fit_and_waits_in_partial_fit(data):
    X, sex, _ = data
    with pytest.raises(NotEnoughGroupsError, match="'sensitive_feature_0' shows only 1 group"):
        FairStreamingPCA(2).fit(X, sensitive_features=["f"] * 600)
    pca = FairStreamingPCA(2).partial_fit(X[sex == "f"], sensitive_features=sex[sex == "f"])
    with pytest.raises(NotEnoughGroupsError, match="only 1 group"):
        pca.transform(X)
    pca.partial_fit(X[sex == "m"], sensitive_features=sex[sex == "m"])
    assert subspaces_agree(pca, FairStreamingPCA(2).fit(X, sensitive_features=sex))


def state(pca):
    return pickle.dumps(vars(pca))


@pytest.mark.parametrize(
    ("method", "change", "arguments", "says"),
    [
        ("fit", {}, {"sensitive_features": None}, "missing"),
        ("fit", {}, {"sensitive_features": ["a"] * 600}, "only 1 group"),
        ("fit", {}, {"sensitive_features": ["a", "b"]}, "has 2 rows"),
        ("fit", {"n_components": 12}, {}, "do not fit"),
        ("fit", {"n_components": 13}, {}, "n_components=13"),
        ("fit", {"n_components": 0}, {}, "n_components=0"),
        ("fit", {"n_components": 2.5}, {}, "n_components=2.5"),
        ("fit", {"constraint": "both"}, {}, "constraint='both'"),
        ("fit", {"solver": "magic"}, {}, "solver='magic'"),
        ("fit", {"solver": "exact", "rank": 3}, {}, "rank=3 has no meaning"),
        ("fit", {"n_unfair": {"age": 1}}, {}, "n_unfair names"),
        ("partial_fit", {}, {"sensitive_features": None}, "missing"),
        ("partial_fit", {}, {"sensitive_features": {"other": ["a"] * 600}}, "same attributes"),
        ("partial_fit", {}, {"X": np.full((600, 12), np.nan)}, "NaN"),
        ("partial_fit", {}, {"X": np.zeros((600, 5))}, "5 features"),
        ("partial_fit", {}, {"sample_weight": np.full(600, -1.0)}, "weights must be >= 0"),
    ],
)
def test_a_rejected_call_leaves_the_fitted_state_as_it_was(data, method, change, arguments, says):
    X, sex, _ = data
    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    before = pca.get_params()
    pca.set_params(**change)
    bits = state(pca)
    call = {"X": X, "sensitive_features": sex, **arguments}
    with pytest.raises(ValueError, match=says):
        getattr(pca, method)(call.pop("X"), **call)
    assert state(pca) == bits
    pca.set_params(**before)
    assert np.isfinite(pca.transform(X)).all()


def test_issued_results_do_not_move_when_learning_goes_on(data):
    X, sex, _ = data
    pca = FairStreamingPCA(3).fit(X[:300], sensitive_features=sex[:300])
    issued, components = pca.subspace_, pca.components_.copy()
    pca.partial_fit(X[300:] * 5, sensitive_features=sex[300:])
    assert not np.allclose(pca.components_, components)
    assert np.array_equal(issued.components, components)


def test_resolve_equals_a_new_fit_and_is_independent(data):
    X, sex, _ = data
    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    changes = {"n_components": 2, "n_unfair": 4, "constraint": "covariance"}
    other = pca.resolve(**changes)
    assert subspaces_agree(other, FairStreamingPCA(**changes).fit(X, sensitive_features=sex))
    other.partial_fit(X, sensitive_features=sex)
    assert pca.n_samples_seen_ == 600
    with pytest.raises(ValueError, match="resolve cannot change"):
        pca.resolve(solver="exact")


def test_frontier_needs_no_data(data):
    X, sex, _ = data
    points = FairStreamingPCA(3).fit(X, sensitive_features=sex).frontier(range(4))
    assert [point.n_unfair for point in points] == [0, 1, 2, 3]
    assert all(point.mean_gap["sensitive_feature_0"] < 1e-10 for point in points)


def test_none_keeps_as_many_as_the_constraint_leaves(data):
    X, sex, _ = data
    pca = FairStreamingPCA(n_unfair=2).fit(X, sensitive_features=sex)
    assert pca.components_.shape == (12 - 3, 12)


def test_auto_chooses_by_width(rng):
    sex = np.arange(40) % 2
    wide = rng.normal(size=(40, 2100))
    assert FairStreamingPCA(2).fit(wide, sensitive_features=sex).solver_ == "sketch"
    assert FairStreamingPCA(2).fit(wide[:, :100], sensitive_features=sex).solver_ == "exact"
    assert FairStreamingPCA(2, rank=10).fit(wide[:, :100], sensitive_features=sex).solver_ == "sketch"
    with pytest.raises(ValueError, match="give n_components"):
        FairStreamingPCA().fit(wide, sensitive_features=sex)


def test_auto_does_not_keep_eighty_large_matrices(rng):
    X = rng.normal(size=(30, 1800))
    many = {f"a{j}": rng.permutation(np.arange(30) % 2) for j in range(40)}
    pca = FairStreamingPCA(2, constraint="mean").partial_fit(X, sensitive_features=many)
    assert pca.solver_ == "sketch"


def test_default_rank_is_four_times_what_is_needed_or_less_of_many(rng):
    X, race = rng.normal(size=(60, 3000)), np.arange(60) % 3
    pca = FairStreamingPCA(40, n_unfair=2).fit(X, sensitive_features=race)
    assert pca.moments_.rank == 2 * (40 + 3 * (2 + 1)) + 64
    few = FairStreamingPCA(9, n_unfair=2).fit(X, sensitive_features=race)
    assert few.moments_.rank == 4 * (9 + 3 * (2 + 1))


def test_a_sketch_of_few_features_drops_nothing_and_one_that_drops_too_much_says_so():
    """COMPAS: 402 standardised features, most of them rare categories, hold their variance evenly."""
    split = paper_split("compas", 0)

    def kept(**options):
        pca = FairStreamingPCA(10, constraint="mean", **options)
        pca.fit(split.X_train, sensitive_features=split.groups_train)
        return explained_variance_ratio(split.X_test, pca.components_)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept(solver="sketch") == pytest.approx(kept(solver="exact"), rel=1e-6)
    with pytest.warns(FairstreamWarning, match=r"flat spectrum needs a larger rank \(it is 24\)"):
        assert kept(solver="sketch", rank=24) < 0.9 * kept(solver="exact")


def test_a_spectrum_with_a_gap_gives_no_warning_however_much_noise_is_dropped(rng):
    B = np.linalg.qr(rng.normal(size=(3_000, 10)))[0]
    X = (10 * rng.normal(size=(1_000, 10))) @ B.T + rng.normal(size=(1_000, 3_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca = FairStreamingPCA(5, constraint="none", solver="sketch").fit(X)
        assert pca.moments_.rank == 64
        assert pca.moments_.lost_energy > 0.3
        _ = pca.components_


@pytest.mark.parametrize("solver", ["exact", "sketch"])
def test_sparse_and_small_types(data, solver):
    X, sex, _ = data
    X = np.round(X).clip(-100, 100)
    reference = FairStreamingPCA(3, solver=solver).fit(X, sensitive_features=sex)
    sparse = FairStreamingPCA(3, solver=solver).fit(sp.csr_matrix(X), sensitive_features=sex)
    assert subspaces_agree(reference, sparse)
    assert np.allclose(sparse.transform(sp.csr_matrix(X)), reference.transform(X))
    small = FairStreamingPCA(3, solver=solver).fit(X.astype(np.int8), sensitive_features=sex)
    assert small.components_.dtype == np.float32
    assert subspaces_agree(reference, small, 1e-3)


def test_metadata_routing_delivers_groups_through_pipeline_and_search(data, rng):
    X, sex, _ = data
    y = (X[:, 1] > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), FairStreamingPCA(3), LogisticRegression())
        model.fit(X, y, sensitive_features=sex)
        embedded = model[:2].transform(X)
        assert np.allclose(embedded[sex == "m"].mean(axis=0), embedded[sex == "f"].mean(axis=0))
        scores = cross_validate(model, X, y, params={"sensitive_features": sex}, cv=3)
        assert np.isfinite(scores["test_score"]).all()
        grid = GridSearchCV(model, {"fairstreamingpca__n_unfair": [0, 1, 2]}, cv=3)
        grid.fit(X, y, sensitive_features=sex)
        assert grid.best_params_["fairstreamingpca__n_unfair"] in (0, 1, 2)
        with pytest.raises(ValueError, match="sensitive_features is missing"):
            model.fit(X, y)


def test_unfitted_says_so():
    pca = FairStreamingPCA(2)
    with pytest.raises(NotFittedError):
        pca.transform(np.zeros((2, 3)))
    assert not hasattr(pca, "components_")
    assert not hasattr(pca, "solver_")


def test_clone_forgets_and_pickle_remembers(data):
    X, sex, _ = data
    pca = FairStreamingPCA(3).fit(X, sensitive_features=sex)
    assert not hasattr(clone(pca), "moments_")
    twin = pickle.loads(pickle.dumps(pca))
    assert np.array_equal(twin.transform(X), pca.transform(X))


def test_erase_through_the_estimator(data):
    X, sex, _ = data
    erased = FairStreamingPCA(3).fit(X, sensitive_features=sex).erase(X)
    assert np.allclose(erased[sex == "m"].mean(axis=0), erased[sex == "f"].mean(axis=0))
    assert not np.allclose(X[sex == "m"].mean(axis=0), X[sex == "f"].mean(axis=0), atol=0.5)


# The power method through the estimator --------------------------------------------------------------


def test_power_on_whole_data_comes_to_the_exact_solution(data):
    X, sex, _ = data
    exact = FairStreamingPCA(2, n_unfair=1).fit(X, sensitive_features=sex)
    power = FairStreamingPCA(2, n_unfair=1, solver="power", power_steps=300, random_state=0)
    power.fit(X, sensitive_features=sex)
    assert power.solver_ == "power"
    assert power.phase_ == "components"
    assert subspaces_agree(exact, power, 1e-6)
    assert np.allclose(exact.explained_variance_, power.explained_variance_, rtol=1e-6)


def test_power_on_a_stream_goes_through_its_phases(data):
    X, sex, _ = data
    pca = FairStreamingPCA(2, solver="power", step_rows=(100, 100), power_steps=(3, 2), random_state=0)
    pca.partial_fit(X[:250], sensitive_features=sex[:250])
    assert pca.phase_ == "unfair"
    with pytest.raises(NotFittedError, match="at least 150 rows are missing"):
        pca.transform(X)
    pca.partial_fit(X[250:350], sensitive_features=sex[250:350])
    assert pca.phase_ == "components"
    pca.partial_fit(X[350:])  # groups are not needed any more
    assert pca.n_samples_seen_ == 600
    assert np.abs(pca.components_ @ pca.unfair_basis_.T).max() < 1e-12


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"solver": "power", "n_components": None}, "give a whole number"),
        ({"solver": "power", "rank": 5}, "rank=5 has no meaning"),
        ({"solver": "power", "directions": "relative"}, "needs moments"),
        ({"solver": "exact", "step_rows": 5}, "step_rows=5 has no meaning"),
        ({"solver": "exact", "power_steps": 77}, "power_steps=77 has no meaning"),
        ({"on_empty_group": "zero"}, "on_empty_group='zero' has no meaning"),
        ({"solver": "power", "step_rows": (1000, 10)}, "rows are missing"),
    ],
)
def test_options_that_would_be_ignored_raise(data, parameters, says):
    X, sex, _ = data
    with pytest.raises(ValueError, match=says):
        FairStreamingPCA(**{"n_components": 2, **parameters}).fit(X, sensitive_features=sex)


def test_power_keeps_no_moments_and_takes_no_weights(data):
    X, sex, _ = data
    pca = FairStreamingPCA(2, solver="power").fit(X, sensitive_features=sex)
    for use in (pca.frontier, pca.resolve):
        with pytest.raises(AttributeError, match="keeps no moments"):
            use()
    with pytest.raises(ValueError, match="sample_weight is not part"):
        FairStreamingPCA(2, solver="power").fit(X, sensitive_features=sex, sample_weight=np.ones(600))
    with pytest.raises(ValueError, match="reads the whole data"):
        FairStreamingPCA(2, solver="power").partial_fit(X, sensitive_features=sex)
