"""Learners: one protocol for moments, the power method and channels; the schema travels with them."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from fairstream import (
    ChannelSubspaces,
    FairImagePCA,
    FairPowerMethod,
    FairStreamingPCA,
    GroupMoments,
    fit_source,
    load,
    open_source,
    solve,
)
from fairstream.cli.describe import inspect_file
from fairstream.data.groups import encode_groups
from fairstream.data.schema import Schema
from fairstream.estimators.channels import ChannelLearner
from fairstream.estimators.learner import Learner
from fairstream.estimators.moments_learner import MomentsLearner
from fairstream.estimators.power_learner import PowerLearner
from fairstream.subspace.choices import Choices, choice_names
from fairstream.subspace.model import FairSubspace

D, C, N = 4, 3, 200
rng = np.random.default_rng(0)
X = rng.normal(size=(N, C * D)) * np.linspace(3, 1, C * D)
SEX = rng.choice(["f", "m"], N)
GROUPS = encode_groups({"sex": SEX}, N)
POWER = {"solver": "power", "step_rows": (40, 60), "power_steps": 2, "random_state": 0}
WHOLE = {"solver": "power", "power_steps": (3, 4), "random_state": 0}
quiet = pytest.mark.filterwarnings("ignore:the power method has not converged")


def bits(learner):
    header, arrays = learner.to_state()
    return repr(header), {name: array.tobytes() for name, array in sorted(arrays.items())}


def moments_learner(d=C * D, rank=None):
    return MomentsLearner(GroupMoments(d, rank))


def power_learner(d=C * D, **options):
    sizes = {"step_rows": (40, 60), "power_steps": 2, "random_state": 0}
    return PowerLearner(FairPowerMethod(d, 2, **(sizes | options)))


LEARNERS = {
    "exact": moments_learner,
    "sketch": lambda: moments_learner(rank=6),
    "power": power_learner,
    "power, whole data": lambda: power_learner(step_rows=None),
    "channels": lambda: ChannelLearner([moments_learner(D) for _ in range(C)]),
    "channels, power": lambda: ChannelLearner([power_learner(D) for _ in range(C)]),
    "channels, whole data": lambda: ChannelLearner([power_learner(D, step_rows=None) for _ in range(C)]),
}


def taught(learner: Learner) -> Learner:
    for _ in range(learner.passes):
        for rows in (slice(0, 70), slice(70, N)):
            groups = encode_groups({"sex": SEX[rows]}, len(X[rows]))
            learner.update(X[rows], groups)
        learner.end_step()
    return learner


@quiet
@pytest.mark.parametrize("kind", LEARNERS)
def test_every_learner_keeps_the_protocol(kind):
    learner = LEARNERS[kind]()
    assert (learner.n_features, learner.n_rows, learner.dtype) == (C * D, 0, np.float64)
    assert learner.needs_groups
    learner = taught(learner)
    assert learner.n_rows == N
    assert learner.group_counts == {"sex": {"f": (SEX == "f").sum(), "m": (SEX == "m").sum()}}
    subspace = learner.subspace(Choices(2))
    assert isinstance(subspace, ChannelSubspaces if "channels" in kind else FairSubspace)
    assert learner.describe()["n_features"] == C * D
    assert bits(type(learner).from_state(*learner.to_state())) == bits(learner)


@quiet
@pytest.mark.parametrize("kind", LEARNERS)
def test_a_copy_stays_as_it_is_while_the_learner_learns(kind):
    learner = LEARNERS[kind]()
    learner.update(X[:50], encode_groups({"sex": SEX[:50]}, 50))
    kept, before = learner.copy(), bits(learner)
    learner.update(X[50:], encode_groups({"sex": SEX[50:]}, N - 50))
    assert bits(kept) == before != bits(learner)
    kept.update(X[50:], encode_groups({"sex": SEX[50:]}, N - 50))
    assert bits(kept) == bits(learner)


@quiet
@pytest.mark.parametrize("kind", [kind for kind in LEARNERS if "whole" in kind])
def test_all_rows_at_once_are_learned_like_passes_over_blocks(kind):
    at_once, in_blocks = LEARNERS[kind](), taught(LEARNERS[kind]())
    at_once.fit(X, GROUPS)
    assert at_once.passes == in_blocks.passes == 4
    one, two = (learner.subspace(Choices(2)) for learner in (at_once, in_blocks))
    np.testing.assert_allclose(one.embed(X), two.embed(X), atol=1e-8)
    with pytest.raises(ValueError, match="sample_weight is not part of the power method"):
        LEARNERS[kind]().fit(X, GROUPS, np.ones(N))


@pytest.mark.parametrize("kind", ["exact", "channels"])
def test_merged_learners_have_seen_the_rows_of_both(kind):
    whole, one, two = (LEARNERS[kind]() for _ in range(3))
    whole.update(X, GROUPS)
    one.update(X[:70], encode_groups({"sex": SEX[:70]}, 70))
    two.update(X[70:], encode_groups({"sex": SEX[70:]}, N - 70))
    before = bits(two)
    one.merge(two)
    assert one.n_rows == N
    assert bits(two) == before
    np.testing.assert_allclose(
        one.subspace(Choices(2)).embed(X), whole.subspace(Choices(2)).embed(X), atol=1e-8
    )


def test_what_cannot_merge_says_so():
    with pytest.raises(ValueError, match="the power method does not merge: use solver 'exact' or 'sketch'"):
        power_learner().merge(power_learner())
    with pytest.raises(ValueError, match="other has 1 channels, this has 3"):
        LEARNERS["channels"]().merge(ChannelLearner([moments_learner()]))


def test_channels_that_fail_in_the_middle_are_all_as_they_were():
    learner = taught(LEARNERS["channels"]())
    before = bits(learner)
    broken = X.copy()
    broken[5, -1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        learner.update(broken, GROUPS)
    other = ChannelLearner([moments_learner(D), moments_learner(D), moments_learner(D, rank=1)])
    other.update(X, GROUPS)
    with pytest.raises(ValueError, match="other has rank=1"):
        learner.merge(other)
    with pytest.raises(ValueError, match=r"X has shape \(200, 13\), 12 columns are expected"):
        learner.update(np.ones((N, C * D + 1)), GROUPS)
    assert bits(learner) == before


# The estimators -----------------------------------------------------------------------------------


@quiet
def test_an_image_estimator_is_a_streaming_one_with_more_channels():
    pca = FairImagePCA(2).fit(X, sensitive_features=SEX)
    assert isinstance(pca, FairStreamingPCA)
    assert pca.n_components_ == pca.transform(X).shape[1] == 2 * C
    assert pca.singular_values_.shape == (2 * C,)
    assert [one.n_components_ for one in pca.estimators_] == [2, 2, 2]
    with pytest.raises(AttributeError, match='solver="exact" runs no power method'):
        pca.phase_
    streamed = FairImagePCA(2, **POWER).partial_fit(X[:100], sensitive_features=SEX[:100])
    assert streamed.phase_ == "components"
    assert len(streamed.power_) == C


def test_the_number_of_components_is_told_also_if_it_was_not_asked_for():
    pca = FairStreamingPCA(constraint="mean").fit(X, sensitive_features=SEX)
    assert pca.n_components_ == C * D - 1 == len(pca.components_)


def test_a_constraint_that_nulls_nothing_is_refused_with_the_first_block():
    pca = FairStreamingPCA(2, n_unfair=0, constraint="covariance")
    with pytest.raises(ValueError, match='n_unfair=0 with constraint="covariance" nulls nothing'):
        pca.partial_fit(X, sensitive_features=SEX)
    assert not pca.__sklearn_is_fitted__()


def test_every_choice_is_a_parameter_of_the_estimators_and_can_be_resolved():
    for kind in (FairStreamingPCA, FairImagePCA):
        pca = kind(2).fit(X, sensitive_features=SEX)
        assert set(choice_names()) <= set(pca.get_params())
        assert pca.resolve(min_group_size=7).subspace_.parameters["min_group_size"] == 7


def failing_source():
    blocks = [(X[:100], SEX[:100]), (X[100:, :5], SEX[100:])]

    class Failing:
        n_features, feature_names, n_rows = C * D, None, N

        def __iter__(self):
            for rows, labels in blocks:
                yield from open_source(rows, sensitive_features={"sex": labels})

    return Failing()


@pytest.mark.parametrize("kind", [FairStreamingPCA, FairImagePCA])
def test_a_source_that_fails_leaves_the_estimator_to_be_fitted_again(kind):
    pca = kind(2)
    with pytest.raises(ValueError, match="12 columns are expected"):
        fit_source(failing_source(), pca)
    assert not pca.__sklearn_is_fitted__()
    assert fit_source(open_source(X, sensitive_features={"sex": SEX}), pca).n_samples_seen_ == N


def test_resuming_fits_the_estimator_that_was_passed(tmp_path):
    with pytest.raises(ValueError, match="12 columns are expected"):
        fit_source(failing_source(), FairStreamingPCA(2), checkpoint=tmp_path, every=50)
    pca = FairStreamingPCA(2)
    with pytest.warns(UserWarning, match="resuming with another block size"):
        again = fit_source(
            open_source(X, sensitive_features={"sex": SEX}), pca, checkpoint=tmp_path, resume=True
        )
    assert again is pca
    assert pca.n_samples_seen_ == N


# The schema ---------------------------------------------------------------------------------------

NAMES = tuple(f"x{j}" for j in range(C * D))


def table():
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    return open_source(frame.assign(city=rng.choice(["x", "y", "z"], N), sex=SEX), sensitive_features=["sex"])


@quiet
@pytest.mark.parametrize("options", [{}, POWER, WHOLE], ids=["exact", "power", "power, whole data"])
def test_a_table_s_names_and_encoding_travel_from_the_source_to_the_model_s_file(tmp_path, options):
    source = table()
    pca = fit_source(source, n_components=2, **options)
    assert pca.learner_.schema == pca.subspace_.schema == Schema.of(source)
    assert tuple(pca.feature_names_in_) == source.feature_names
    assert "encoding" not in pca.subspace_.parameters
    pca.save(tmp_path / "fit")
    pca.subspace_.save(tmp_path / "model")
    for held in (load(tmp_path / "fit").subspace_, load(tmp_path / "model")):
        assert held.schema == Schema.of(source)


def test_moments_learned_from_a_frame_know_its_names(tmp_path):
    pca = FairStreamingPCA(2).fit(pd.DataFrame(X, columns=NAMES), sensitive_features=SEX)
    assert pca.moments_.feature_names == pca.subspace_.feature_names == NAMES
    assert FairStreamingPCA(2).fit(X, sensitive_features=SEX).moments_.schema == Schema()


def test_models_with_the_encoding_among_their_parameters_are_read():
    subspace = solve(GroupMoments(C * D).update(X, GROUPS), 2, feature_names=NAMES)
    header, arrays = subspace.to_state()
    del header["encoding"]
    header["parameters"]["encoding"] = {"columns": []}
    old = FairSubspace.from_state(header, arrays)
    assert old.schema == Schema(NAMES, {"columns": []})
    assert "encoding" not in old.parameters


@quiet
def test_power_fits_with_the_encoding_beside_the_learner_are_read():
    pca = FairStreamingPCA(2, **WHOLE).fit(pd.DataFrame(X, columns=NAMES), sensitive_features=SEX)
    header, arrays = pca.to_state()
    del header["learned"]["feature_names"], header["learned"]["encoding"]
    old = FairStreamingPCA.from_state({**header, "encoding": {"columns": []}}, arrays)
    assert old.subspace_.schema == Schema(NAMES, {"columns": []})


def test_fits_of_channels_with_parameters_of_each_are_read():
    pca = FairImagePCA(2).fit(X, sensitive_features=SEX)
    header, arrays = pca.to_state()
    for part in header["estimators"]:
        part |= {"parameters": FairStreamingPCA(2).get_params(), "feature_names_in": None}
    np.testing.assert_array_equal(FairImagePCA.from_state(header, arrays).transform(X), pca.transform(X))


def test_an_empty_summary_takes_over_the_schema_of_the_one_it_merges():
    named = GroupMoments(C * D).update(X, GROUPS)
    named.schema = Schema(NAMES)
    empty = GroupMoments(C * D)
    empty.schema = Schema(None, {"columns": []})
    assert empty.merge(named).schema == Schema(NAMES, {"columns": []})
    assert named.schema == Schema(NAMES)


# Descriptions -------------------------------------------------------------------------------------


@quiet
def test_everything_that_is_stored_describes_itself(tmp_path):
    stored = {
        "moments": GroupMoments(C * D).update(X, GROUPS),
        "fit": FairStreamingPCA(2).fit(X, sensitive_features=SEX),
        "power": FairStreamingPCA(2, **POWER).partial_fit(X, sensitive_features=SEX),
        "images": FairImagePCA(2).fit(X, sensitive_features=SEX),
    }
    stored |= {"model": stored["fit"].subspace_, "channels": stored["images"].subspace_}
    for name, held in stored.items():
        held.save(tmp_path / name)
        facts = inspect_file(tmp_path / name)
        assert facts["kind"] == type(held).__name__
        assert (facts["n_rows"], facts["n_features"]) == (N, C * D)
        assert {key: facts[key] for key in held.describe()} == load(tmp_path / name).describe()
    assert len(stored["images"].describe()["lost_energy"]) == C
    assert stored["channels"].describe()["n_removed"] == [2, 2, 2]


def test_choices_are_plain_values_that_nothing_changes():
    choices = Choices(np.int64(2), {"sex": np.int64(1)})
    assert choices.to_parameters()["n_unfair"] == {"sex": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        choices.constraint = "mean"
