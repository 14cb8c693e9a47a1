"""Screening with the power method and on a cluster: exact zeros, the rest as the moments have it."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from support.bits import assert_same_bits

from fairstream import FairEraser, FairStreamingPCA, encode_groups, load
from fairstream.data import open_source
from fairstream.data.blocks import Block, SourceAround, take_rows
from fairstream.data.schema import Schema
from fairstream.errors import FairstreamFileError, FairstreamWarning, NoRoomError
from fairstream.linalg import principal_angles
from fairstream.power.columns import ColumnMoments
from fairstream.streaming.fit import fit_source

NAMES = [*"abcdefgh"]
SCREEN = ["b", "job"]
COMMON = {"n_components": 2, "constraint": "mean", "screen": SCREEN, "sensitive_columns": ["sex"]}
POWER = {**COMMON, "solver": "power", "power_steps": 40, "random_state": 0}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1_200, 8)) * np.linspace(6, 1, 8) + 3, columns=NAMES)
    frame["sex"] = rng.choice(["f", "m"], 1_200)
    frame["b"] += 3 * (frame["sex"] == "m")
    other = np.where(frame["sex"] == "m", "driver", "nurse")
    frame["job"] = np.where(rng.random(1_200) < 0.5, "clerk", other)
    return frame


@pytest.fixture(scope="module")
def source(people):
    return open_source(people, sensitive_features=["sex"], block_size=100)


@pytest.fixture(scope="module")
def exact(source):
    return fit_source(source, **COMMON)


def _assert_same(fitted, exact):
    ours, theirs = fitted.subspace_, exact.subspace_
    screened = [name == "b" or name.startswith("job=") for name in theirs.feature_names]
    assert sum(screened) == 4
    assert not ours.components[:, screened].any()  # to the bit
    assert not ours.unfair_basis[4:, screened].any()
    np.testing.assert_array_equal(ours.unfair_basis[:4], np.eye(len(screened))[screened])
    assert ours.parameters["n_screened"] == theirs.parameters["n_screened"] == 4
    assert principal_angles(ours.components.T, theirs.components.T).max() < 1e-3
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.total_variance, theirs.total_variance, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance, theirs.explained_variance, rtol=1e-3)
    assert ours.group_counts == theirs.group_counts
    for label in ("f", "m"):
        np.testing.assert_allclose(
            ours.group_means["sex"][label], theirs.group_means["sex"][label], atol=1e-9
        )


def test_the_power_method_screens_names_like_the_moments(source, exact):
    _assert_same(fit_source(source, **POWER), exact)


@pytest.mark.filterwarnings("ignore:the power method has not converged")
def test_a_frame_in_memory_and_a_stream_of_steps_screen_too(people, exact):
    numbers = people[[*NAMES, "sex"]]
    options = {**POWER, "screen": ["b", "d"]}
    pca = FairStreamingPCA(**options).fit(numbers)
    assert not pca.components_[:, [1, 3]].any()
    assert pca.components_[:, [0, 2]].any()
    streamed = FairStreamingPCA(**{**options, "step_rows": (100, 100), "power_steps": 3})
    for start in range(0, 1_200, 150):
        streamed.partial_fit(numbers.iloc[start : start + 150])
    assert not streamed.components_[:, [1, 3]].any()
    assert streamed.n_samples_seen_ == 1_200
    np.testing.assert_allclose(streamed.mean_, numbers[NAMES].mean(), rtol=1e-9)
    variances = numbers[NAMES].var().sum()
    np.testing.assert_allclose(streamed.subspace_.total_variance, variances, rtol=1e-9)
    options = {name: value for name, value in options.items() if name != "n_components"}
    erased = FairEraser(**options).fit_transform(numbers)
    np.testing.assert_allclose(erased["b"], numbers["b"].mean(), atol=1e-9)


class _Breaks(SourceAround):
    after = 7

    def __iter__(self):
        for number, block in enumerate(self._source):
            if number == self.after:
                raise OSError("the disk is gone")
            yield block


def test_a_screened_power_fit_is_stored_and_resumed_to_the_bit(source, tmp_path):
    options = {**POWER, "step_rows": (100, 100), "power_steps": 3}
    whole = fit_source(source, **options)
    with pytest.raises(OSError, match="the disk is gone"):
        fit_source(_Breaks(source), checkpoint=tmp_path / "half", every=100, **options)
    resumed = fit_source(source, checkpoint=tmp_path / "half", resume=True, **options)
    assert_same_bits(resumed.subspace_, whole.subspace_)
    whole.save(tmp_path / "fit")
    assert_same_bits(load(tmp_path / "fit").subspace_, whole.subspace_)


def test_names_that_are_no_columns_and_rows_without_names_are_refused(people):
    X, sex = people[NAMES].to_numpy(), people["sex"].to_numpy()
    options = {"n_components": 2, "solver": "power", "random_state": 0}
    with pytest.raises(ValueError, match="names columns, the rows have no names"):
        FairStreamingPCA(screen=["b"], **options).fit(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="screen names 'z', which is no column"):
        FairStreamingPCA(screen=["z"], **options).fit(people[NAMES], sensitive_features=sex)


@pytest.mark.parametrize("screen", [2, 0.3])
def test_a_first_pass_ranks_columns_like_the_moments(source, exact, screen):
    """By number and by limit the two columns that differ; the control is another number."""
    fitted = fit_source(source, **{**POWER, "screen": screen})
    _assert_same(fitted, exact)
    assert fitted.subspace_.parameters["screen"] == screen
    one = fit_source(source, **{**POWER, "screen": 1})
    assert one.subspace_.parameters["n_screened"] == 3


def test_a_limit_that_no_column_exceeds_leaves_none_out(source):
    ours, theirs = (fit_source(source, **{**POWER, "screen": screen}) for screen in (9.0, None))
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-12)
    assert ours.subspace_.parameters["n_screened"] == 0


@pytest.mark.filterwarnings("ignore:the power method has not converged")
def test_a_stream_ranks_by_the_rows_of_one_step_and_learns_from_those_after(people):
    X, sex = people[NAMES].to_numpy(), people["sex"].to_numpy()
    options = {"n_components": 2, "solver": "power", "screen": 1, "random_state": 0}
    options |= {"step_rows": (200, 100), "power_steps": 3}
    pca, cut = FairStreamingPCA(**options), FairStreamingPCA(**options)
    pca.partial_fit(X[:150], sensitive_features=sex[:150])
    with pytest.raises(NotFittedError, match="has not ranked the columns yet: at least 50 rows are missing"):
        pca.subspace_
    pca.partial_fit(X[150:], sensitive_features=sex[150:])
    for start in range(0, 1_200, 70):
        cut.partial_fit(X[start : start + 70], sensitive_features=sex[start : start + 70])
    np.testing.assert_allclose(pca.components_, cut.components_, atol=1e-12)
    assert not pca.components_[:, 1].any()
    assert (pca.components_[:, [0, *range(2, 8)]] != 0).all()
    assert pca.n_samples_seen_ == 1_200
    np.testing.assert_allclose(pca.mean_, X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(pca.subspace_.total_variance, X.var(axis=0, ddof=1).sum(), rtol=1e-9)
    later = FairStreamingPCA(**{**options, "screen": None})
    later.partial_fit(X[200:][:, [0, *range(2, 8)]], sensitive_features=sex[200:])
    np.testing.assert_allclose(pca.components_[:, [0, *range(2, 8)]], later.components_, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the power method has not converged")
def test_a_fit_broken_off_while_it_ranks_resumes_to_the_bit(source, tmp_path):
    breaks = _Breaks(source)
    breaks.after = 3
    for step_rows in ((200, 100), None):  # equal means take one step, of twice 200 rows
        options = {**POWER, "screen": 2, "step_rows": step_rows, "power_steps": 2}
        whole = fit_source(source, **options)
        folder = tmp_path / str(step_rows)
        every = {} if step_rows is None else {"every": 100}
        with pytest.raises(OSError, match="the disk is gone"):
            fit_source(breaks, checkpoint=folder, **every, **options)
        resumed = fit_source(source, checkpoint=folder, resume=True, **options)
        assert_same_bits(resumed.subspace_, whole.subspace_)


def test_ranking_needs_groups_and_two_of_them(people):
    X = people[NAMES].to_numpy()
    options = {"n_components": 2, "solver": "power", "screen": 1, "constraint": "none", "random_state": 0}
    with pytest.raises(ValueError, match="screen=1 ranks columns by how groups differ in them"):
        FairStreamingPCA(**options).fit(X)
    with pytest.raises(ValueError, match="shows only 1 group"):
        FairStreamingPCA(**options).fit(X, sensitive_features=np.zeros(len(X)))


@pytest.mark.slow
def test_a_cluster_screens_with_moments_and_with_the_power_method(source, exact):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.Client(set_as_default=False, **options) as client:
        for parameters in (COMMON, {**COMMON, "screen": 2}, POWER, {**POWER, "screen": 2}):
            fitted = fit_source(source, client=client, partition_rows=300, **parameters)
            _assert_same(fitted, exact)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_sparse_columns_far_from_zero_are_ranked_like_dense_ones(form):
    rng = np.random.default_rng(0)
    sex = np.arange(3_000) % 2
    X = rng.normal(size=(3_000, 6)) + np.outer(sex, [0, 3, 0.5, 0.3, 0, 0])
    X[:, 2] += 1e8
    X[:, 4] *= rng.random(3_000) < 0.1  # and one that is mostly zero
    options = {"n_components": 2, "solver": "power", "screen": 2, "random_state": 0, "constraint": "mean"}
    dense, sparse = (
        FairStreamingPCA(**options, power_steps=20).fit(rows, sensitive_features=sex).subspace_
        for rows in (X, form(X))
    )
    assert np.flatnonzero(~sparse.components.any(axis=0)).tolist() == [1, 2]
    np.testing.assert_array_equal(dense.components == 0, sparse.components == 0)
    np.testing.assert_allclose(sparse.total_variance, X.var(axis=0, ddof=1).sum(), rtol=1e-9)


def test_moments_of_sparse_columns_are_those_of_the_dense_ones_also_if_entries_are_stored_in_parts():
    rng = np.random.default_rng(1)
    X = np.where(rng.random((400, 5)) < 0.3, rng.normal([0, 1e7, 0, 5, 0], size=(400, 5)), 0.0)
    parts = sp.csr_array(X)
    twice = sp.csr_array(
        (np.repeat(parts.data / 2, 2), np.repeat(parts.indices, 2), 2 * parts.indptr), shape=X.shape
    )
    before = twice.data.copy()
    groups = encode_groups({"sex": np.arange(400) % 2}, 400)
    dense = ColumnMoments.of(X, groups)
    for rows in (parts, twice):
        sparse = ColumnMoments.of(rows, groups)
        np.testing.assert_allclose(sparse.means, dense.means, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sparse.scatter, dense.scatter, rtol=1e-12)
    np.testing.assert_array_equal(twice.data, before)  # the caller's matrix is not touched


@pytest.mark.filterwarnings("ignore:the power method has not converged")
@pytest.mark.parametrize("constraint", ["all", "none"])
@pytest.mark.parametrize("start", [100, 200])  # while columns are ranked, and right after
def test_attributes_may_not_change_between_blocks(people, constraint, start):
    X, sex = people[NAMES].to_numpy(), people["sex"].to_numpy()
    options = {"n_components": 2, "solver": "power", "screen": 1, "random_state": 0, "constraint": constraint}
    pca = FairStreamingPCA(**options, step_rows=(200, 200), power_steps=2)
    pca.partial_fit(X[:start], sensitive_features={"sex": sex[:start]})
    for other in ({"race": sex[start:]}, {"sex": sex[start:], "race": sex[start:]}):
        with pytest.raises(ValueError, match=r"before it had \['sex'\]: pass the same attributes every time"):
            pca.partial_fit(X[start:], sensitive_features=other)
    assert pca.n_samples_seen_ == start


def _state(learner):
    header, arrays = learner.to_state()
    return repr(header), {name: array.tobytes() for name, array in sorted(arrays.items())}


def _learner(people, screen, **options):
    X, groups = people[NAMES].to_numpy(), encode_groups({"sex": people["sex"].to_numpy()}, len(people))
    pca = FairStreamingPCA(5, solver="power", screen=screen, random_state=0, **options)
    return pca.new_learner(X, groups), X, groups


TOO_FEW = r"leaves 3 of 8 columns, too few for n_components=5 and the unfair directions: screen fewer"


def test_a_step_that_leaves_no_room_changes_nothing_and_names_screen(people):
    learner, X, groups = _learner(people, 5)
    learner.update(X, groups)
    before = _state(learner)
    with pytest.raises(NoRoomError, match=f"screen=5 {TOO_FEW}"):
        learner.end_step()
    assert _state(learner) == before
    learner, X, groups = _learner(people, 5)
    before = _state(learner)
    with pytest.raises(NoRoomError, match=f"screen=5 {TOO_FEW}"):
        learner.close_step(learner.partial_sums([Block(X, groups)]))
    assert _state(learner) == before
    with pytest.raises(NoRoomError, match="screen=8 leaves out all 8 features"):
        _learner(people, 8)[0].fit(X, groups)


def test_names_that_leave_no_room_change_nothing(people):
    learner, X, groups = _learner(people, [*"abcde"])
    before = _state(learner)
    with pytest.raises(NoRoomError, match=TOO_FEW):
        learner.schema = Schema(tuple(NAMES))
    assert _state(learner) == before
    # Room for the components, but not beside the unfair directions, which the rows show.
    learner, X, groups = _learner(people, [*"ab"])
    learner.schema = Schema(tuple(NAMES))
    before = _state(learner)
    with pytest.raises(NoRoomError, match=r"screen=\['a', 'b'\] leaves 6 of 8 columns"):
        learner.fit(X, groups)
    assert _state(learner) == before
    with pytest.raises(NoRoomError, match="leaves 6 of 8 columns"):
        learner.declare({"sex": ["f", "m"]})
    assert _state(learner) == before


@pytest.mark.filterwarnings("ignore:the power method has not converged")
def test_small_groups_are_counted_with_the_rows_that_ranked_columns(people):
    X = np.tile(people[NAMES].to_numpy(), (5, 1))
    group = np.array(["a", "b"] * 3_000, dtype=object)
    group[[*range(5, 15), 301, 601, 901]] = "c"  # three of its rows after those of the first step
    options = {"n_components": 2, "solver": "power", "random_state": 0, "power_steps": 3, "screen": 1}
    pca = FairStreamingPCA(**options, step_rows=(300, 100), min_group_size=12)
    pca.partial_fit(X, sensitive_features=group)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="fewer than min_group_size")
        found = pca.subspace_
    assert found.group_counts["sensitive_feature_0"]["c"] == 13
    assert "small_group_directions" not in found.parameters
    with pytest.warns(FairstreamWarning, match="fewer than min_group_size=14"):  # the control
        pca.set_params(min_group_size=14).partial_fit(X[:1], sensitive_features=group[:1]).subspace_


def test_rows_of_later_passes_are_not_counted_again(people, monkeypatch):
    learner, X, groups = _learner(people, 1, constraint="mean")
    counted = []
    monkeypatch.setattr(
        ColumnMoments, "of", lambda X, groups, of=ColumnMoments.of: counted.append(len(X)) or of(X, groups)
    )
    learner.declare({"sex": ["f", "m"]})
    blocks = [Block(X[rows], take_rows(groups, rows)) for rows in (slice(0, 500), slice(500, None))]
    for _ in range(3):
        learner.open_step(X)
        sums = learner.partial_sums(blocks)
        assert sums[0].counts[0] == len(X)
        learner.close_step(sums)
    assert counted == [500, 700]
    assert learner.n_rows == len(X)


@pytest.mark.parametrize("screened", [[0, 0], [1, 0], [-1, 0], [7, 8], [0.0, 1.0], [False, True]])
def test_a_file_with_screened_columns_that_cannot_be_is_refused(people, screened):
    learner, X, groups = _learner(people, 2, constraint="mean")
    learner.update(X, groups)
    learner.end_step()
    header, arrays = learner.to_state()
    assert type(learner).from_state(header, arrays).n_features == 8  # the control
    with pytest.raises(FairstreamFileError, match="screened columns and features"):
        type(learner).from_state({**header, "screened": screened}, arrays)
