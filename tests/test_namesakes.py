"""Features that are named like a sensitive attribute are warned of, whichever way the rows come in."""

import warnings

import numpy as np
import pytest

from fairstream import FairStreamingPCA, FairstreamWarning, collect_moments, fit_source, open_source
from fairstream.data.namesakes import namesakes

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
