"""The contract all rival systems share: scikit-learn's checks, groups, messages, names, state."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairstream import baselines, open_source
from fairstream.auditing import audit
from fairstream.baselines import (
    INLP,
    RLACE,
    KleindessnerFairPCA,
    KleindessnerKernelFairPCA,
    LeacePCA,
    MbFPCA,
    OlfatAswaniFairPCA,
    SamadiFairPCA,
)
from fairstream.baselines.kleindessner_kernel import _noise
from fairstream.data.groups import GroupColumn
from fairstream.errors import FairstreamWarning, NotEnoughGroupsError

SYSTEMS = [
    KleindessnerFairPCA(2),
    KleindessnerFairPCA(2, fraction=0.8),
    KleindessnerKernelFairPCA(2),
    LeacePCA(2),
    SamadiFairPCA(2),
    SamadiFairPCA(2, embedding="published"),
    INLP(2, random_state=0),
    INLP(2, variant="paper", random_state=0),
    RLACE(2, max_iter=40, random_state=0),
    RLACE(2, variant="paper", max_iter=40, random_state=0),
    MbFPCA(2, tau=0.3, random_state=0),
    OlfatAswaniFairPCA(2, tolerance=1e-5),
]
TWO_GROUPS_ONLY = [
    KleindessnerFairPCA(2, fraction=0.8),
    SamadiFairPCA(2),
    RLACE(2),
    MbFPCA(2),
    OlfatAswaniFairPCA(2),
]
# The contract is tested on fits cut short; what they promise is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:.*still reads the group")
every_system = pytest.mark.parametrize("system", SYSTEMS, ids=repr)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = np.where(rng.random(120) < 0.4, "b", "a")
    X = rng.normal(size=(120, 6)) * np.arange(6, 0, -1)
    X[groups == "b", :3] += 2.0
    return X + 5.0, groups


def with_groups_from_X(system: type, **settings: object) -> object:
    """Return the system as an ordinary transformer: its groups are read off the first column of X."""

    def fit(self, X, y=None):  # type: ignore[no-untyped-def]
        first = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=object)
        first = first[:, 0] if first.ndim == 2 and first.shape[1] else first.ravel()
        try:
            middle = np.sort(first)[len(first) // 2] if len(first) else 0
            groups = [value >= middle for value in first]
        except (TypeError, ValueError):  # not numbers: let the system's own check of X speak
            groups = [False] * len(first)
        return system.fit(self, X, sensitive_features=groups)

    plain = type(f"Plain{system.__name__}", (system,), {"fit": fit, "__module__": __name__})
    globals()[plain.__name__] = plain  # pickle looks classes up by name
    return plain(**settings)


@parametrize_with_checks(
    [
        with_groups_from_X(KleindessnerFairPCA, n_components=1),
        with_groups_from_X(KleindessnerKernelFairPCA, n_components=1),
        with_groups_from_X(LeacePCA, n_components=1),
        with_groups_from_X(SamadiFairPCA, n_components=1),
        with_groups_from_X(INLP, n_components=1),
        with_groups_from_X(RLACE, n_components=1, max_iter=5),
        with_groups_from_X(MbFPCA, n_components=1, tau=2.0, max_iter=5, max_rounds=1),
        with_groups_from_X(OlfatAswaniFairPCA, n_components=1, tolerance=1e-3),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_system
def test_same_fit_whatever_the_labels_look_like(system, rows):
    X, groups = rows
    plain = clone(system).fit_transform(X, sensitive_features=groups)
    for form in (groups.tolist(), pd.Series(groups, name="g"), pd.DataFrame({"g": groups}), {"g": groups}):
        np.testing.assert_array_equal(clone(system).fit_transform(X, sensitive_features=form), plain)


@every_system
def test_embedding_has_names_and_frames(system, rows):
    X, groups = rows
    frame = pd.DataFrame(X, columns=list("uvwxyz"))
    model = clone(system).set_output(transform="pandas").fit(frame, sensitive_features=groups)
    embedded = model.transform(frame)
    assert list(embedded.columns) == list(model.get_feature_names_out())
    assert embedded.columns[0] == f"{type(system).__name__.lower()}0"
    assert model.group_counts_ == {
        "sensitive_feature_0": {"a": (groups == "a").sum(), "b": (groups == "b").sum()}
    }
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list("zyxwvu")])


@every_system
def test_linear_systems_publish_the_map_they_use(system, rows):
    X, groups = rows
    model = clone(system).fit(X, sensitive_features=groups)
    if isinstance(system, KleindessnerKernelFairPCA):
        assert not hasattr(model, "components_")
        return
    np.testing.assert_allclose(model.transform(X), (X - X.mean(axis=0)) @ model.components_.T, atol=1e-9)


@every_system
def test_missing_sensitive_features_are_an_error(system, rows):
    with pytest.raises(ValueError, match=r"sensitive_features is missing.*pass one label per row"):
        clone(system).fit(rows[0])


@every_system
def test_one_group_is_an_error(system, rows):
    with pytest.raises(NotEnoughGroupsError, match=r"shows 1 group\(s\) \('a',\)"):
        clone(system).fit(rows[0], sensitive_features=["a"] * len(rows[0]))


@pytest.mark.parametrize("system", TWO_GROUPS_ONLY, ids=repr)
def test_binary_systems_name_the_groups_they_refuse(system, rows):
    X, _ = rows
    with pytest.raises(ValueError, match=r"has 3 groups \('p', 'q', 'r'\), .* compares two"):
        clone(system).fit(X, sensitive_features=np.array(list("pqr"))[np.arange(len(X)) % 3])


@pytest.mark.parametrize("system", [*TWO_GROUPS_ONLY, INLP(2)], ids=repr)
def test_systems_of_one_attribute_refuse_two(system, rows):
    X, groups = rows
    with pytest.raises(ValueError, match=r"has 2 attributes \('p', 'q'\).*takes one"):
        clone(system).fit(X, sensitive_features={"p": groups, "q": groups[::-1]})


@every_system
@pytest.mark.parametrize("n_components", [0, 7, 1.5, True, "2"])
def test_impossible_n_components_are_named(system, n_components, rows):
    X, groups = rows
    if n_components == 7 and isinstance(system, KleindessnerKernelFairPCA):
        n_components = 120
    with pytest.raises(ValueError, match="n_components is"):
        clone(system).set_params(n_components=n_components).fit(X, sensitive_features=groups)


@every_system
def test_a_rejected_fit_leaves_the_earlier_one_whole(system, rows):
    X, groups = rows
    model = clone(system).fit(X, sensitive_features=groups)
    before = model.transform(X)
    with pytest.raises(ValueError, match="sensitive_features"):
        model.fit(X[:, :4], sensitive_features=groups[:3])
    np.testing.assert_array_equal(model.transform(X), before)
    fresh = clone(system)
    with pytest.raises(ValueError, match="sensitive_features"):
        fresh.fit(X, sensitive_features=groups[:3])
    assert not hasattr(fresh, "n_features_in_")


@every_system
def test_groups_listed_without_rows_do_not_count(system, rows):
    X, groups = rows
    column = {"g": GroupColumn(np.where(groups == "a", 1, 3), ("never", "a", "nowhere", "b", "nor here"))}
    expected = clone(system).fit_transform(X, sensitive_features=groups)
    np.testing.assert_array_equal(clone(system).fit_transform(X, sensitive_features=column), expected)


@every_system
def test_rows_of_unknown_group_are_accepted(system, rows):
    X, groups = rows
    some = np.where(np.arange(len(X)) % 10 == 0, None, groups)
    assert np.isfinite(clone(system).fit_transform(X, sensitive_features=some)).all()


def test_sensitive_features_are_routed_through_a_pipeline(rows):
    X, groups = rows
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), LeacePCA(2))
        embedded = pipeline.fit(X, sensitive_features=groups).transform(X)
    gap = embedded[groups == "b"].mean(axis=0) - embedded[groups == "a"].mean(axis=0)
    np.testing.assert_allclose(gap, 0, atol=1e-9)


def test_every_system_is_public_and_tested():
    assert {type(system).__name__ for system in SYSTEMS} == set(baselines.__all__) - {"fit_all"}


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (KleindessnerFairPCA(fraction=1.5), "fraction is 1.5"),
        (KleindessnerKernelFairPCA(gamma=-1.0), "gamma is -1.0"),
        (SamadiFairPCA(embedding="wide"), "embedding is 'wide'"),
        (SamadiFairPCA(n_rounds=0), "n_rounds is 0"),
        (INLP(variant="torch"), "variant is 'torch'"),
        (RLACE(variant="torch"), "variant is 'torch'"),
        (RLACE(rank=9), "rank is 9"),
        (RLACE(rank=1, variant="paper"), "rank is 1.*paper"),
        (MbFPCA(tau=0.0), "tau is 0.0"),
        (MbFPCA(bandwidth=0.0), "bandwidth is 0.0"),
        (OlfatAswaniFairPCA(delta=-1.0), "delta is -1.0"),
        (OlfatAswaniFairPCA(mu=-1.0), "mu is -1.0"),
    ],
    ids=repr,
)
def test_impossible_settings_are_named(system, message, rows):
    X, groups = rows
    with pytest.raises(ValueError, match=message):
        system.fit(X, sensitive_features=groups)


def test_every_system_appears_in_one_side_by_side_audit():
    rng = np.random.default_rng(3)
    groups = np.where(rng.random(900) < 0.4, "b", "a")
    X = rng.normal(size=(900, 6)) * np.arange(6, 0, -1)
    X[groups == "b", 0] += 12.0
    models = {repr(system): clone(system).fit(X[:300], sensitive_features=groups[:300]) for system in SYSTEMS}
    report = audit(models, X[300:], groups[300:], attackers=["linear"], n_permutations=0, random_state=0)
    measured = {model.name: model.leaks[0].attack.strongest.auc.value for model in report.models}
    assert measured.keys() >= models.keys()
    # The control: plain PCA of the same width, which the audit adds, tells the groups apart.
    plain = [model.leaks[0].attack.strongest.auc.value for model in report.models if model.role == "control"]
    assert min(plain) > 0.9
    for system in (KleindessnerFairPCA(2), LeacePCA(2), OlfatAswaniFairPCA(2, tolerance=1e-5)):
        assert measured[repr(system)] < 0.6
    linear = {model.name: model.explained_variance for model in report.models}
    assert linear[repr(KleindessnerKernelFairPCA(2))] is None
    assert 0 < linear[repr(KleindessnerFairPCA(2))] < 1
    for text in (report.to_markdown(), report.to_html()):
        assert all(type(system).__name__ in text for system in SYSTEMS)


def test_kernel_noise_leaves_room_for_directions_on_adult():
    """31,655 rows in float32: a limit that grows with n itself would leave no eigenvalue above it."""
    assert _noise(31_655, np.float32) < 5e-3
    assert _noise(31_655, np.float32) > 31_655**0.5 * np.finfo(np.float32).eps


def test_rlace_needs_a_step():
    X, group = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match="max_iter is 0: pass a whole number from 1"):
        RLACE(1, max_iter=0).fit(X, sensitive_features=group)


# All at once ----------------------------------------------------------------------------------------


def test_all_rivals_are_fitted_on_the_same_rows():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 240)
    X = rng.normal(size=(240, 6)) + (sex == "m")[:, None] * [2.0, 0, 0, 0, 0, 0]
    chosen = {"LEACE": baselines.LeacePCA, "INLP": baselines.INLP}
    fitted = baselines.fit_all(X, {"sex": sex}, n_components=2, systems=chosen)
    source = open_source(X, sensitive_features={"sex": sex}, block_size=50)
    again = baselines.fit_all(source, n_components=2, systems=chosen)
    assert [*fitted] == [*again] == ["LEACE", "INLP"]
    alone = baselines.LeacePCA(2).fit(X, sensitive_features=sex)
    np.testing.assert_allclose(again["LEACE"].transform(X), alone.transform(X))
    np.testing.assert_array_equal(again["INLP"].transform(X), fitted["INLP"].transform(X))


def test_a_rival_that_refuses_the_rows_is_left_out_with_a_warning():
    rng = np.random.default_rng(0)
    X, race = rng.normal(size=(150, 5)), rng.choice([*"abc"], 150)
    chosen = {"Samadi et al.": baselines.SamadiFairPCA, "LEACE": baselines.LeacePCA}
    with pytest.warns(FairstreamWarning, match=r"^Samadi et al\. is left out: .* 3 groups"):
        assert [*baselines.fit_all(X, race, n_components=2, systems=chosen)] == ["LEACE"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sensitive_features": None}, "^sensitive_features is missing"),
        ({"n_components": "2"}, "^n_components is '2': pass an integer of at least 1$"),
        ({"n_components": 20}, "^n_components is 20, X has 5 features: pass fewer$"),
        ({"systems": ["LEACE"]}, r"^systems is \['LEACE'\]: pass a dict"),
        ({"systems": {}}, "^systems is {}: pass a dict"),
        ({"systems": {"LEACE": baselines.LeacePCA(2)}}, "^systems is .*: pass a dict of names and classes"),
        ({"X": np.zeros((0, 5)), "sensitive_features": {"sex": []}}, "^X has no rows: pass rows"),
        ({"sensitive_features": ["f"] * 60}, "^no system can be fitted on these rows; Samadi et al.: .*two"),
        (
            {"n_components": 5, "systems": {"LEACE": baselines.LeacePCA}},
            "; LEACE: n_components is 5, .* 4 comp",
        ),
    ],
)
def test_what_no_rival_can_be_fitted_with_is_one_error_and_no_warning(changes, message):
    X = np.random.default_rng(0).normal(size=(60, 5))
    chosen = {"LEACE": baselines.LeacePCA, "Samadi et al.": baselines.SamadiFairPCA}
    given = {"X": X, "sensitive_features": ["f", "m"] * 30, "n_components": 2, "systems": chosen} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            baselines.fit_all(**given)
