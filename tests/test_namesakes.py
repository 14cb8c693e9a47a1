"""Features that are a sensitive attribute, by name or by value, are warned of, however the rows come in."""

import re
import warnings

import numpy as np
import pytest
from support.command import run

from fairstream import (
    FairStreamingPCA,
    FairstreamWarning,
    GroupMoments,
    collect_moments,
    fit_source,
    open_source,
    solve,
)
from fairstream.auditing.tuning import tune
from fairstream.data.namesakes import namesakes
from fairstream.datasets import load_adult
from fairstream.subspace.screen import shares_between

pd = pytest.importorskip("pandas")


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 4)), columns=["age", "hours", "gain", "loss"])
    return frame, pd.Series(rng.choice(["f", "m"], 200), name="sex")


@pytest.mark.parametrize("name", ["sex", "Sex", " SEX", "sex.1", "sex_code", "sex_f", "sex=m", "sex copy"])
def test_a_name_like_the_attribute_s_is_found(name):
    assert namesakes([name], "sex", ["f", "m"]) == [name]


@pytest.mark.parametrize("name", ["age", "essex", "sexual_health", "sex_ratio_of_county", "is_sex", "s_ex"])
def test_other_names_are_not(name):
    assert namesakes([name], "sex", ["f", "m"]) == []


@pytest.mark.parametrize("name", ["sex", "Sex.1"])
def test_fitting_a_frame_with_a_copy_of_the_attribute_warns(people, name):
    frame, sex = people
    copied = frame.assign(**{name: (sex == "f").astype(float)})
    with pytest.warns(FairstreamWarning, match=f"'{name}' among the features is named like the sensitive"):
        FairStreamingPCA(1).fit(copied, sensitive_features=sex)
    with pytest.warns(FairstreamWarning, match="named like the sensitive attribute 'sex'"):
        FairStreamingPCA(1).partial_fit(copied, sensitive_features=sex)
    with warnings.catch_warnings():  # the control
        warnings.simplefilter("error")
        FairStreamingPCA(1).fit(frame, sensitive_features=sex)


def test_a_stream_with_a_copy_of_the_attribute_warns_once(people):
    pytest.importorskip("pyarrow")
    frame, sex = people
    source = open_source(frame.assign(sex=sex, Sex=sex), sensitive_features=["sex"], block_size=50)
    for learn in (lambda: fit_source(source, n_components=1), lambda: collect_moments(source)):
        with pytest.warns(FairstreamWarning, match="'Sex' among") as told:
            learn()
        assert len(told) == 1


def test_a_sensitive_column_that_was_asked_for_among_the_features_is_not_warned_of(people):
    pytest.importorskip("pyarrow")
    frame, sex = people
    source = open_source(frame.assign(sex=sex), sensitive_features=["sex"], keep_sensitive=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_source(source, n_components=1)


# Under another name -------------------------------------------------------------------------------

OUTRIGHT = "'gender' among the features tells groups of 'sex' apart outright"


def outright(told):
    return [str(one.message) for one in told if "apart outright" in str(one.message)]


@pytest.mark.parametrize("options", [{}, {"solver": "sketch", "rank": 3}, {"constraint": "none"}])
def test_a_column_that_is_the_attribute_under_another_name_is_warned_of(people, options):
    frame, sex = people
    copied = frame.assign(gender=3.0 + 2.0 * (sex == "f"))
    with pytest.warns(FairstreamWarning, match=OUTRIGHT) as told:
        FairStreamingPCA(1, **options).fit(copied, sensitive_features=sex)
    (said,) = outright(told)
    assert said.endswith("go with the group: leave it out, or keep components off it with screen=['gender']")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*outright")
        FairStreamingPCA(1, **{"screen": ["gender"], **options}).fit(copied, sensitive_features=sex)
        proxy = np.where(np.arange(200) % 20, copied["gender"], 8.0 - copied["gender"])  # 5 % are otherwise
        FairStreamingPCA(1, **options).fit(frame.assign(gender=proxy), sensitive_features=sex)


def test_categories_that_correspond_to_groups_are_warned_of_once_with_the_columns_to_exclude(people):
    pytest.importorskip("pyarrow")
    frame, sex = people
    race = pd.Series(np.random.default_rng(1).choice(["a", "b", "c"], 200), name="race")
    table = frame.assign(sex=sex, race=race, gender=sex.map({"f": "woman", "m": "man"}), is_b=race == "b")
    source = open_source(table, sensitive_features=["sex", "race"], block_size=50)
    with pytest.warns(FairstreamWarning, match=OUTRIGHT) as told:
        assert fit_source(source, n_components=1, constraint="mean").subspace_.n_components == 1
    assert [re.search(r"exclude=\[.*?\]", said)[0] for said in outright(told)] == [
        "exclude=['gender']",
        "exclude=['is_b']",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairstreamWarning)
        apart = open_source(table, sensitive_features=["sex", "race"], exclude=["gender", "is_b"])
        assert fit_source(apart, n_components=1, constraint="mean").subspace_.n_components == 1


def test_rows_of_unknown_group_and_tuning_do_not_hide_a_copy(people):
    frame, sex = people
    X = np.column_stack([frame, sex == "f"])
    known = np.where(np.arange(200) % 3 > 0, sex, None)
    moments = GroupMoments(5).update(X, {"sex": known})
    np.testing.assert_allclose(shares_between(moments, "sex")[4], 1.0, rtol=1e-9)
    with pytest.warns(FairstreamWarning, match=OUTRIGHT):
        solve(moments, 1, feature_names=("age", "hours", "gain", "loss", "gender"))
    wide = pd.concat([frame.assign(gender=1.0 * (sex == "f"))] * 5, ignore_index=True)
    how = {"n_components": 1, "searched": [{"constraint": "mean"}], "dithers": (0.0,), "attack": "standard"}
    with pytest.warns(FairstreamWarning, match=OUTRIGHT) as told:
        tune(wide, {"sex": np.tile(sex, 5)}, keep=0.1, **how)
    assert len(outright(told)) == 1


def test_small_groups_constants_and_rounding_are_no_copies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    group = np.array(["a", "b", "few"])[np.where(np.arange(300) < 3, 2, np.arange(300) % 2)]
    X[:, 1] = group == "few"
    X[:, 2] = 1e6
    X[:, 3] = 1e6 + 1e-6 * rng.normal(size=300)
    X = np.column_stack([X, 1e8 * rng.normal(size=300)])  # beside which the others are small
    for rank in (None, 5):
        shares = shares_between(GroupMoments(5, rank).update(X, {"g": group}), "g")
        assert shares.max() < 0.1
    whole = shares_between(GroupMoments(5).update(X, {"g": group}), "g", 2)
    np.testing.assert_allclose(whole[1], 1.0, rtol=1e-9)  # the control: with its three rows it is one


def test_what_a_sketch_dropped_is_not_taken_for_variance_between_groups():
    rng = np.random.default_rng(0)
    sex = np.arange(600) % 2
    X = rng.normal(size=(600, 60)) + 0.3 * sex[:, None]
    exact, sketch = (shares_between(GroupMoments(60, r).update(X, {"sex": sex}), "sex") for r in (None, 4))
    assert GroupMoments(60, 4).update(X, {"sex": sex}).lost_energy > 0.5
    assert (sketch <= exact + 1e-9).all()


def test_proxies_of_sex_on_adult_are_no_copies(tmp_path):
    pytest.importorskip("pyarrow")
    adult = load_adult(backend="pandas").iloc[:5_000]
    adult.assign(gender=adult["sex"]).to_parquet(tmp_path / "adult.parquet")
    fit = ["fit", tmp_path / "adult.parquet", "-s", "sex", "--impute", "mean", "--standardize", "-k", 2]
    told = run(*fit, "-o", tmp_path / "model").stderr
    assert OUTRIGHT in told  # the control
    assert "leave it out with --exclude gender, or keep components off it with --screen gender" in told
    for way_out in ("--exclude", "--screen"):
        left = run(*fit, way_out, "gender", "-o", tmp_path / "model", "--overwrite").stderr
        assert "outright" not in left
