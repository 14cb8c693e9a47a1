"""The comparison with peers: a tiny run in real processes, its limits, and verdicts that can be not met."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not part of this copy", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import peers  # noqa: E402
import peers_data  # noqa: E402
import peers_report  # noqa: E402
from peers_fits import BY_NAME, Contender  # noqa: E402

TINY = replace(
    peers_data.FULL[1], n_rows=4_000, n_held_out=600, n_features=80, n_components=4
)  # room for three attributes
LIMITS = peers.Limits(60.0, 4.0, threads=1)
MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "memory_gb": 8.0,
    "system": "Linux",
    "python": "3.11",
    "blas": "a BLAS",
    "packages": {"numpy": "2.0", "torch": None},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    return folder, peers_data.write(TINY, folder / TINY.name)


def line(contender, seconds=1.0, auc=0.9, **more):
    """A measured line as a worker leaves it."""
    about = BY_NAME[contender]
    measured = {
        "workload": TINY.name,
        "contender": contender,
        "family": about.family,
        "streams": about.streams,
        "date": "2026-01-01 00:00 UTC",
        "seconds": seconds,
        "peak_mb": 10.0,
        "auc": auc,
        "auc_low": auc - 0.02,
        "auc_high": auc + 0.02,
        "explained_variance": 0.5,
        "mean_gap": 0.1,
        "second_moment_gap": 0.1,
        "limits": {"seconds": 60.0, "gigabytes": 4.0},
        "facts": {"workload": vars(TINY), "file_mb": 1.0},
    }
    return {**measured, **more}


def test_a_tiny_run_measures_in_processes_of_their_own_and_writes_the_page(tiny, tmp_path):
    folder, _ = tiny
    wanted = [BY_NAME["fairstream exact"], BY_NAME["scikit-learn PCA"]]
    lines = peers.run([TINY], wanted, folder, LIMITS, [], lambda lines: None)
    ours, plain = lines
    assert ours["auc"] < 0.6 < plain["auc"], "plain PCA is the control: its embedding gives the group away"
    assert ours["mean_gap"] < 0.5 * plain["mean_gap"]
    assert ours["seconds"] > 0
    assert ours["peak_mb_half"] is not None
    assert min(ours["busy_seconds"], ours["several_seconds"]) > 0
    assert not {"busy_seconds", "several_seconds"} & plain.keys()
    peers_report.write_report({"machine": MACHINE, "lines": lines}, tmp_path)
    page = (tmp_path / "peers.md").read_text()
    assert "fairstream exact" in page
    assert (tmp_path / "images" / f"peers-{TINY.name}.svg").exists()


@pytest.mark.parametrize(
    ("limits", "failed"),
    [(peers.Limits(60.0, 0.01, 1), "memory"), (peers.Limits(0.0, 4.0, 1), "time")],
)
def test_a_fit_beyond_a_limit_is_ended_and_says_which(tiny, limits, failed):
    folder, facts = tiny
    found = peers.measured(TINY, BY_NAME["fairstream sketch"], folder / TINY.name, facts, limits)
    assert found["failed"] == failed
    assert "seconds" not in found


def test_a_peer_that_is_slow_on_a_sixteenth_of_the_rows_is_not_given_all(tiny, monkeypatch):
    folder, facts = tiny
    given = []

    def never_done(workload, contender, folder, facts, limits, limit=None, several=False):
        given.append(limit or workload.n_rows)
        return {"failed": "time", "error": f"not done after {limits.seconds:g} s"}

    monkeypatch.setattr(peers, "measured", never_done)
    monkeypatch.setattr(peers, "TRIAL_FROM", 1)
    limits = peers.Limits(8.0, 4.0, threads=1)
    found = peers.run_one(TINY, BY_NAME["scikit-learn PCA"], folder / TINY.name, facts, limits)
    assert found["error"] == "a sixteenth of the rows took over 1 s"
    assert given == [TINY.n_rows // 16]
    ours = peers.run_one(TINY, BY_NAME["fairstream exact"], folder / TINY.name, facts, limits)
    assert ours["error"] == "not done after 8 s"  # no trial: all rows, for as long as they may take
    assert given[1:] == [TINY.n_rows]


def test_a_peer_that_cannot_be_imported_is_reported_with_its_error(tiny, monkeypatch):
    folder, facts = tiny
    missing = Contender("KleindessnerFairPCA", "fair", BY_NAME["scikit-learn PCA"].fit, (), False)
    monkeypatch.setattr(peers, "HERE", folder)
    (folder / "peers_worker.py").write_text("import no_such_package_anywhere\n")
    found = peers.measured(TINY, missing, folder / TINY.name, facts, LIMITS)
    assert found == {
        "error": "ModuleNotFoundError: No module named 'no_such_package_anywhere'",
        "failed": "error",
    }


def test_rows_are_the_same_however_they_are_read(tiny):
    folder, _ = tiny
    data = peers_data.WorkloadData(TINY, folder / TINY.name, limit=1_500)
    X, groups = data.load()
    blocks = [*data.blocks(700)]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in blocks]), X)
    np.testing.assert_array_equal(np.concatenate([codes for _, codes in blocks]), groups)
    np.testing.assert_array_equal(data.read(10, 20), X[10:20])
    assert len(X) == 1_500


def test_gaps_of_sparse_rows_are_those_of_the_same_rows_made_dense():
    X = sp.random(300, 40, 0.2, format="csr", random_state=0)
    groups = np.arange(300) % 2
    sparse, dense = (peers_data.gaps_of(rows, groups) for rows in (X, X.toarray()))
    assert sparse == pytest.approx(dense, rel=1e-2)
    rows, mean = X.toarray(), X.toarray().mean(axis=0)
    second = [(rows[groups == g] - mean).T @ (rows[groups == g] - mean) / 150 for g in (0, 1)]
    assert dense["second_moment_gap"] == pytest.approx(np.linalg.norm(second[1] - second[0], 2), rel=1e-2)


def test_goals_are_met_or_not_by_the_figures():
    ours = line("fairstream exact", seconds=1.0, auc=0.51, peak_mb_half=10.0)
    peer = "scikit-learn IncrementalPCA"
    for seconds, met in ((3.0, True), (0.5, False)):
        answers = {goal: ok for goal, ok, _ in peers_report.verdicts(TINY, [ours, line(peer, seconds)])}
        assert answers["as fast as every incremental peer"] is met
        assert answers["our default (exact) as fast as every incremental peer"] is met
    for seconds, met in ((3.0, True), (0.5, False)):
        rival = line("LeacePCA", seconds, auc=0.5)
        answers = {goal: ok for goal, ok, _ in peers_report.verdicts(TINY, [ours, rival])}
        assert answers["as fast as every fair contender"] is met
    growing = ours | {"peak_mb": 200.0, "peak_mb_half": 100.0}
    answers = {goal: ok for goal, ok, _ in peers_report.verdicts(TINY, [growing])}
    assert answers["memory flat in rows, exact"] is False
    unfair = line("fairstream exact", auc=0.8)
    assert peers_report.verdicts(TINY, [unfair]) == [("fair", False, "none of our solvers is")]


def test_a_peer_ended_for_its_time_counts_with_the_time_it_took():
    ours = line("fairstream exact", seconds=1.0, auc=0.51)
    ended = {
        key: value
        for key, value in line("scikit-learn IncrementalPCA").items()
        if key not in ("seconds", "auc")
    } | {"failed": "time", "error": "not done after 60 s", "at_least": 60.0}
    answers = {goal: (ok, words) for goal, ok, words in peers_report.verdicts(TINY, [ours, ended])}
    assert answers["as fast as every incremental peer"] == (
        True,
        "at least 60.00 times the speed of scikit-learn IncrementalPCA",
    )


def test_a_rival_that_failed_on_less_is_not_started_on_more():
    failed = {"workload": "adult", "contender": "RLACE", "failed": "time", "error": "not done"}
    spared = peers._hopeless(peers_data.FULL[1], BY_NAME["RLACE"], [failed])
    assert spared is not None
    assert spared["failed"] == "not started"
    assert peers._hopeless(peers_data.FULL[1], BY_NAME["RLACE"], []) is None
