"""Fits that are killed, really, and resume: the same bits as if nothing had happened."""

import multiprocessing
import os
import random
import signal
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from support import fit_worker
from support.bits import assert_same_bits
from support.file_damage import resealed, start_of
from threadpoolctl import threadpool_limits

from fairstream import FairstreamFileError, FairStreamingPCA, FairstreamWarning, GroupMoments, load
from fairstream.cli import main
from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.groups import GroupColumn
from fairstream.data.row_digest import RowDigest
from fairstream.files.locking import folder_locked
from fairstream.moments import sketch
from fairstream.streaming import checkpoint_folder
from fairstream.streaming.checkpoint_folder import CheckpointFolder
from fairstream.streaming.fit import fit_source
from fairstream.streaming.signals import FitInterrupted, signals_held_back

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")]

KILLS = 8  # of each solver, at random moments
SOLVERS = ("exact", "sketch", "power", "power in passes")


@pytest.fixture(scope="module")
def processes():
    """Processes that start quickly: one server imports everything, each process is forked from it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.fit_worker", "fairstream.streaming.fit"])
    return context


@pytest.fixture(scope="module")
def uninterrupted(processes, tmp_path_factory):
    """What each solver comes to when nothing happens, in a process like those that will be killed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    for solver in SOLVERS:
        process, _ = start(processes, folder / f"{solver} checkpoints", folder / solver, solver)
        process.join(120)
        assert process.exitcode == 0
    return {solver: load(folder / solver) for solver in SOLVERS}


def start(processes, folder, output, solver, target=fit_worker.fit_to_file, **how):
    started = processes.Event()
    process = processes.Process(target=target, args=(folder, output, solver, started), kwargs=how)
    process.start()
    assert started.wait(120)
    return process, time.monotonic()


@pytest.mark.parametrize("solver", SOLVERS)
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path, processes, uninterrupted, solver):
    chance = random.Random(solver)
    kills, rounds, resumed = 0, 0, 0
    while kills < KILLS:
        rounds += 1
        folder, output = tmp_path / f"{rounds}", tmp_path / f"{rounds}.safetensors"
        while not output.exists():
            process, _ = start(processes, folder, output, solver)
            process.join(chance.uniform(0, 0.25) if kills < KILLS else 120)
            if process.is_alive():
                process.kill()
                kills += 1
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
            if folder.exists():
                found = CheckpointFolder(folder).newest()
                resumed += found is not None and found.rows > 0
        assert_same_bits(load(output), uninterrupted[solver])
    assert kills >= KILLS
    assert resumed, "no process ever left a checkpoint: the test would prove nothing"


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("call", [1, 2, 5, 6])
def test_killed_in_the_middle_of_writing_it_ends_with_the_same_bits(
    tmp_path, processes, uninterrupted, function, call
):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    how = {"target": fit_worker.die_at, "function": function, "call": call}
    process, _ = start(processes, folder, output, "exact", **how)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    process, _ = start(processes, folder, output, "exact", pause=0)
    process.join(120)
    assert process.exitcode == 0
    assert_same_bits(load(output), uninterrupted["exact"])
    assert not list(folder.glob(".*.part")), "what the killed process left was cleared away"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_first(tmp_path, processes, uninterrupted, number):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    process, _ = start(processes, folder, output, "exact", every=10**9)
    time.sleep(0.1)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 100 + number
    assert len(list(folder.iterdir())) == 1, "none was due: the signal alone made this one"
    assert 0 < CheckpointFolder(folder).newest().rows < fit_worker.ROWS
    process, _ = start(processes, folder, output, "exact")
    process.join(60)
    assert_same_bits(load(output), uninterrupted["exact"])


def test_the_second_signal_stops_at_once():
    with pytest.raises(KeyboardInterrupt), signals_held_back() as pending:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        assert pending.number == signal.SIGTERM
        signal.raise_signal(signal.SIGINT)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with signals_held_back():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_thread_fits_with_checkpoints_too(tmp_path):
    with ThreadPoolExecutor() as pool:
        assert pool.submit(fitted, tmp_path).result().n_samples_seen_ == fit_worker.ROWS


def test_the_comparison_notices_the_last_bit(uninterrupted):
    """The control: one rounding step in one number is seen."""
    header, arrays = uninterrupted["exact"].to_state()
    other = FairStreamingPCA.from_state(header, {name: array.copy() for name, array in arrays.items()})
    other.moments_._means[0, 0] = np.nextafter(other.moments_._means[0, 0], np.inf)
    with pytest.raises(AssertionError, match="means"):
        assert_same_bits(other, uninterrupted["exact"])


# The folder ---------------------------------------------------------------------------------------


def fitted(folder, **how):
    with threadpool_limits(1):
        return fit_source(fit_worker.labelled_source(), checkpoint=folder, n_components=3, **how)


def test_two_generations_are_kept(tmp_path):
    fitted(tmp_path, every=500)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "rows-000000000002500.safetensors",
        "rows-000000000003000.safetensors",
    ]


def test_a_damaged_generation_gives_way_to_the_one_before(tmp_path):
    whole = fitted(tmp_path, every=500)
    newest = CheckpointFolder(tmp_path).files()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(FairstreamWarning, match=r"cut short.*resuming from rows-000000000002500"):
        again = fitted(tmp_path, resume=True)
    assert_same_bits(again, whole)
    for file in CheckpointFolder(tmp_path).files():
        file.write_bytes(b"nothing")
    with pytest.raises(FairstreamFileError, match="no checkpoint"):
        fitted(tmp_path, resume=True)


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    fitted(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="already holds a fit: pass resume=True"):
        fitted(tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("stop", [30, 90, 150])
def test_a_sketch_whose_rows_wait_resumes_from_where_none_did(tmp_path, stop, monkeypatch):
    """Blocks of 15 rows, a step from 50 rows on: a checkpoint holds the rows of whole steps only."""
    monkeypatch.setattr(sketch, "WAITING_BYTES", 0)
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(400, 120)) * np.arange(1, 121) ** -0.5, rng.integers(0, 2, 400)
    source = open_source(X, sensitive_features={"sex": sex}, block_size=15)
    options = {"n_components": 3, "solver": "sketch", "rank": 40}
    through = fit_source(source, **options)

    def interrupt(done, total):
        if done >= stop:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fit_source(source, checkpoint=tmp_path / "folder", every=1, progress=interrupt, **options)
    files = CheckpointFolder(tmp_path / "folder").files()
    assert bool(files) == (stop >= 60)
    assert all(int(file.stem.removeprefix("rows-")) % 60 == 0 for file in files)
    resumed = fit_source(source, checkpoint=tmp_path / "folder", every=1, resume=True, **options)
    for name, array in through.to_state()[1].items():
        assert array.tobytes() == resumed.to_state()[1][name].tobytes()


def test_resuming_a_finished_fit_reads_and_learns_nothing_more(tmp_path):
    whole = fitted(tmp_path)
    assert_same_bits(fitted(tmp_path, resume=True), whole)


def test_resuming_an_empty_folder_begins(tmp_path):
    assert fitted(tmp_path / "new", resume=True).n_samples_seen_ == fit_worker.ROWS


def test_checkpoints_do_not_change_the_result(tmp_path):
    with threadpool_limits(1):
        plain = fit_source(fit_worker.labelled_source(), n_components=3)
    assert_same_bits(fitted(tmp_path, every=50), plain)


def interrupted_folder(tmp_path, rows=1_000):
    """A folder as it is left by a fit that ended after some rows."""
    part = list(fit_worker.labelled_source())[: rows // fit_worker.BLOCK]
    source = fit_worker.Slow(fit_worker.labelled_source(), 0)
    source._source = part
    with threadpool_limits(1):
        fit_source(source, checkpoint=tmp_path, n_components=3)
    return tmp_path


def test_another_block_size_warns_and_is_right(tmp_path):
    folder = interrupted_folder(tmp_path)
    with threadpool_limits(1):
        with pytest.warns(FairstreamWarning, match=r"another block size 300 \(was 50\)"):
            again = fit_source(
                fit_worker.labelled_source(300), checkpoint=folder, resume=True, n_components=3
            )
        whole = fit_source(fit_worker.labelled_source(), n_components=3)
    assert again.n_samples_seen_ == fit_worker.ROWS
    np.testing.assert_allclose(again.components_, whole.components_, atol=1e-10)


def test_the_same_environment_does_not_warn(tmp_path):
    folder = interrupted_folder(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(folder, resume=True)


def test_a_signal_while_rows_are_read_past_stops_at_once(tmp_path):
    folder, read = interrupted_folder(tmp_path), []

    class Signalled(fit_worker.Slow):
        def __iter__(self):
            for block in super().__iter__():
                read.append(block.n_rows)
                if len(read) == 3:
                    signal.raise_signal(signal.SIGTERM)
                yield block

    before = CheckpointFolder(folder).files()
    source = Signalled(fit_worker.labelled_source(), 0)
    with threadpool_limits(1), pytest.raises(FitInterrupted, match="reading past 1,000 rows") as stopped:
        fit_source(source, checkpoint=folder, resume=True, n_components=3)
    assert stopped.value.signal_number == signal.SIGTERM
    assert len(read) == 3
    assert CheckpointFolder(folder).files() == before


def test_other_parameters_are_refused(tmp_path):
    folder = interrupted_folder(tmp_path)
    with pytest.raises(ValueError, match=r"n_components is 4, the checkpoint .* was written with 3"):
        fit_source(fit_worker.labelled_source(), checkpoint=folder, resume=True, n_components=4)


def test_a_path_among_the_parameters_is_the_same_when_the_fit_is_resumed(tmp_path):
    fitted(tmp_path, every=2_000, dither=0.3, dither_key=tmp_path / "key")
    assert fitted(tmp_path, resume=True, dither=0.3, dither_key=tmp_path / "key").n_samples_seen_ == 3_000
    with pytest.raises(ValueError, match=r"dither_key is .*other.* was written with"):
        fitted(tmp_path, resume=True, dither=0.3, dither_key=tmp_path / "other")


def test_other_data_are_refused(tmp_path):
    folder = interrupted_folder(tmp_path)
    rng = np.random.default_rng(0)
    wide = open_source(rng.normal(size=(100, 30)), sensitive_features={"sex": rng.integers(0, 2, 100)})
    with pytest.raises(ValueError, match=r"30 features, the checkpoint .* has 24"):
        fit_source(wide, checkpoint=folder, resume=True, n_components=3)
    short = open_source(
        rng.normal(size=(100, 24)), sensitive_features={"sex": rng.integers(0, 2, 100)}, block_size=50
    )
    with threadpool_limits(1), pytest.raises(ValueError, match="100 rows, the checkpoint 1,000"):
        fit_source(short, checkpoint=folder, resume=True, n_components=3)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"resume": True}, "resume is given without checkpoint"),
        ({"every": 5}, "every is given without checkpoint"),
        ({"estimator": FairStreamingPCA(3)}, "estimator and n_components are both given"),
    ],
)
def test_options_that_would_be_ignored_raise(how, message):
    with pytest.raises(ValueError, match=message):
        fit_source(fit_worker.labelled_source(), n_components=3, **how)


def test_a_fitted_estimator_is_refused(tmp_path):
    estimator = fitted(tmp_path)
    with pytest.raises(ValueError, match="already fitted"):
        fit_source(fit_worker.labelled_source(), estimator)


def test_progress_tells_rows_done_and_in_all(tmp_path):
    seen = []
    fitted(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (50, 3_000)
    assert seen[-1] == (3_000, 3_000)
    assert len(seen) == 60


# Other data ---------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
X, SEX, AGE = RNG.normal(size=(400, 6)), RNG.choice(["f", "m"], 400), RNG.integers(0, 3, 400)
RACE = RNG.choice(["a", "b", "c"], 400)


def other_rows():
    """What a source may have become between two runs, and what the refusal calls it."""
    flipped, changed, swapped = X[::-1], X.copy(), SEX.copy()
    changed[17, 3] = np.nextafter(changed[17, 3], 9)
    swapped[[10, 11, 12, 13]] = np.where(SEX[[10, 11, 12, 13]] == "f", "m", "f")
    return {
        "reversed rows": ({"X": flipped, "sex": SEX[::-1]}, "the values"),
        "one bit of one value": ({"X": changed}, "the values"),
        "permuted columns": ({"X": X[:, ::-1]}, "the values"),
        "permuted labels": ({"sex": RNG.permutation(SEX)}, "the labels of 'sex'"),
        "four labels": ({"sex": swapped}, "the labels of 'sex'"),
        "other labels": ({"sex": np.char.upper(SEX)}, "the labels of 'sex'"),
        "labels of another type": ({"age": AGE.astype(str)}, "the labels of 'age'"),
        "another attribute": ({"age": None, "race": RACE}, "the sensitive attributes"),
        "another dtype": ({"X": X.astype(np.float32)}, "the types"),
        "sparse rows": ({"X": sp.csr_matrix(X)}, "the types"),
    }


def data(block_size=50, **changes):
    given = {"X": X, "sex": SEX, "age": AGE} | changes
    rows = given.pop("X")
    groups = {name: labels for name, labels in given.items() if labels is not None}
    return open_source(rows, sensitive_features=groups, block_size=block_size)


def stopped_half_way(source, folder, after=4, **choices):
    """Fit until some blocks are learned, as a signal would stop it."""

    class Stopped(fit_worker.Slow):
        def __iter__(self):
            for number, block in enumerate(super().__iter__(), start=1):
                if number == after:
                    signal.raise_signal(signal.SIGTERM)
                yield block

    with threadpool_limits(1), pytest.raises(FitInterrupted):
        fit_source(Stopped(source, 0), checkpoint=folder, **({"n_components": 2} | choices))


@pytest.mark.parametrize("change", [*other_rows()])
def test_resuming_onto_other_data_is_refused_before_anything_is_learned(tmp_path, monkeypatch, change):
    stopped_half_way(data(), tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    changes, message = other_rows()[change]
    with monkeypatch.context() as patched:
        patched.setattr(GroupMoments, "update", None)
        with threadpool_limits(1), pytest.raises(ValueError, match=f"first 200 rows .*{message} differ"):
            fit_source(data(**changes), checkpoint=tmp_path, resume=True, n_components=2)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    with threadpool_limits(1):  # the control
        assert fit_source(data(), checkpoint=tmp_path, resume=True, n_components=2).n_samples_seen_ == 400


def test_the_power_method_is_not_resumed_onto_other_data(tmp_path):
    choices = {"solver": "power", "step_rows": (90, 110), "power_steps": 2, "random_state": 0}
    stopped_half_way(data(age=None), tmp_path, **choices)
    with threadpool_limits(1), pytest.raises(ValueError, match="the values differ"):
        fit_source(data(X=X + 1, age=None), checkpoint=tmp_path, resume=True, n_components=2, **choices)


PASSES = {"solver": "power", "power_steps": (2, 3), "random_state": 0}


def test_steps_over_all_rows_write_a_checkpoint_after_each_step(tmp_path):
    rows = []
    with threadpool_limits(1):
        whole = fit_source(data(age=None), n_components=2, **PASSES)
        for after in (1, 12, 20, 39):  # blocks of 400 rows in 8 blocks: in steps 1, 2, 3 and 5
            folder = tmp_path / str(after)
            stopped_after(data(age=None), folder, after, **PASSES)
            found = CheckpointFolder(folder).newest()
            rows.append(0 if found is None else found.rows)
            resumed = fit_source(data(age=None), checkpoint=folder, resume=True, n_components=2, **PASSES)
            assert_same_bits(resumed, whole)
    assert rows == [0, 400, 800, 1600]


def stopped_after(source, folder, after, **choices):
    """Fit until so many blocks of all passes together have been read."""
    read = iter(range(1, after + 1))

    class Stopped(fit_worker.Slow):
        def __iter__(self):
            for block in super().__iter__():
                if next(read) == after:
                    signal.raise_signal(signal.SIGTERM)
                yield block

    with pytest.raises(FitInterrupted):
        fit_source(Stopped(source, 0), checkpoint=folder, **({"n_components": 2} | choices))


def test_steps_over_all_rows_are_not_resumed_onto_other_data(tmp_path):
    stopped_after(data(age=None), tmp_path, 12, **PASSES)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="not those of the steps before, the values differ"):
        fit_source(data(X=X + 1, age=None), checkpoint=tmp_path, resume=True, n_components=2, **PASSES)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_steps_over_all_rows_finished_are_not_taken_again(tmp_path):
    with threadpool_limits(1):
        whole = fit_source(data(age=None), checkpoint=tmp_path, n_components=2, **PASSES)
        read = []
        again = fit_source(
            data(age=None),
            checkpoint=tmp_path,
            resume=True,
            progress=lambda *done: read.append(done),
            n_components=2,
            **PASSES,
        )
    assert not read
    assert_same_bits(again, whole)


def test_every_spaces_the_checkpoints_of_steps_over_all_rows(tmp_path):
    fit_source(data(age=None), checkpoint=tmp_path, every=800, n_components=2, **PASSES)
    rows = [int(file.stem.removeprefix("rows-")) for file in CheckpointFolder(tmp_path).files()]
    assert rows == [2000, 1600]  # the end of the fit, and the last multiple of 800


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_matrix])
@pytest.mark.parametrize("block_size", [1, 30, 50, 400])
def test_the_same_rows_are_known_again_in_blocks_of_any_size(tmp_path, form, block_size):
    stopped_half_way(data(X=form(X)), tmp_path)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = fit_source(data(block_size, X=form(X)), checkpoint=tmp_path, resume=True, n_components=2)
    assert again.n_samples_seen_ == 400


def test_rows_beyond_the_checkpoint_may_differ(tmp_path):
    """The control: nothing is known of them yet. A stream may have grown."""
    stopped_half_way(data(), tmp_path)
    later = X.copy()
    later[200:] += 1
    with threadpool_limits(1):
        assert fit_source(data(X=later), checkpoint=tmp_path, resume=True, n_components=2).n_samples_seen_


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_array, np.uint8])
def test_a_digest_does_not_depend_on_cuts_layout_or_tables_of_labels(form):
    rows = np.abs(X * 40).astype(np.uint8) if form is np.uint8 else form(X)
    labels = np.array([*"fmx", None], dtype=object)[RNG.integers(0, 4, 400)]
    cuts = np.sort(RNG.integers(0, 400, 9))
    whole, cut = RowDigest(), RowDigest()
    table = {"f": 0, "m": 1, "x": 2, None: -1}
    whole.update(Block(rows, {"s": GroupColumn(np.array([table[x] for x in labels]), ("f", "m", "x"))}))
    for number, index in enumerate(np.split(np.arange(400), cuts)):
        names = ("x", "unused", "f", "m") if number % 2 else ("m", "f", "x")
        codes = np.array([-1 if x is None else names.index(x) for x in labels[index]], dtype=np.intp)
        part = rows[index] if number % 3 or sp.issparse(rows) else np.asfortranarray(rows[index])
        cut.update(Block(part, {"s": GroupColumn(codes, names)}))
    assert cut.difference(whole.to_json()) is None


def test_sparse_rows_with_the_same_values_in_other_places_differ():
    rows = sp.csr_array(np.eye(4))
    moved, lengths = sp.csr_array(np.eye(4)[:, [1, 0, 2, 3]]), sp.csr_array(np.eye(4))
    lengths.indptr = np.array([0, 2, 2, 3, 4], dtype=lengths.indptr.dtype)
    digests = [RowDigest() for _ in range(3)]
    for digest, X in zip(digests, (rows, moved, lengths), strict=True):
        digest.update(Block(X))
    assert digests[1].difference(digests[0].to_json()) == "values"
    assert digests[2].difference(digests[0].to_json()) == "values"


def weighted_source(weights):
    """Blocks that bring the weights of their rows."""
    cuts = [slice(start, start + 50) for start in range(0, 400, 50)]
    groups = [{"sex": GroupColumn((SEX[cut] == "m").astype(np.intp), ("f", "m"))} for cut in cuts]
    blocks = [Block(X[cut], of, None, weights[cut]) for cut, of in zip(cuts, groups, strict=True)]
    return open_source(blocks)


def test_blocks_bring_the_weights_of_their_rows(tmp_path):
    weights = RNG.uniform(1, 2, 400)
    with threadpool_limits(1):
        plain = FairStreamingPCA(2).fit(X, sensitive_features={"sex": SEX}, sample_weight=weights)
        learned = fit_source(weighted_source(weights), n_components=2)
        kept = fit_source(weighted_source(weights), checkpoint=tmp_path / "kept", n_components=2)
        recut = fit_source(open_source(list(weighted_source(weights)), block_size=70), n_components=2)
    assert_same_bits(kept, learned)
    for fit in (learned, recut):
        np.testing.assert_allclose(fit.mean_, plain.mean_, rtol=1e-12)
        np.testing.assert_allclose(fit.components_, plain.components_, atol=1e-10)
    assert np.abs(fit_source(data(age=None), n_components=2).mean_ - plain.mean_).max() > 1e-3  # the control


def test_resuming_with_other_weights_is_refused(tmp_path):
    weights = RNG.uniform(1, 2, 400)
    fit_source(weighted_source(weights), checkpoint=tmp_path, n_components=2)
    with pytest.raises(ValueError, match="the weights differ"):
        fit_source(weighted_source(weights[::-1]), checkpoint=tmp_path, resume=True, n_components=2)
    fit_source(weighted_source(weights), checkpoint=tmp_path, resume=True, n_components=2)


def test_a_fit_that_fails_keeps_what_it_learned(tmp_path):
    broken = X.copy()
    broken[320, 0] = np.nan
    with threadpool_limits(1):
        with pytest.raises(ValueError, match="NaN"):
            fit_source(data(X=broken, age=None), checkpoint=tmp_path, n_components=2)
        assert CheckpointFolder(tmp_path).newest().rows == 300
        mended = fit_source(data(age=None), checkpoint=tmp_path, resume=True, n_components=2)
        assert_same_bits(mended, fit_source(data(age=None), n_components=2))


def test_a_checkpoint_without_a_digest_resumes_with_a_warning(tmp_path):
    stopped_half_way(data(), tmp_path)
    for file in CheckpointFolder(tmp_path).files():
        about, table = start_of(file.read_bytes())
        del about["state"]["checkpoint"]["digest"]
        file.write_bytes(resealed(file.read_bytes(), about, table))
    with threadpool_limits(1), pytest.warns(FairstreamWarning, match="holds no digest of its rows"):
        fit_source(data(), checkpoint=tmp_path, resume=True, n_components=2)
    with pytest.raises(ValueError, match="the values differ"):  # the resumed fit wrote one
        fit_source(data(X=-X), checkpoint=tmp_path, resume=True, n_components=2)


# Several at a time --------------------------------------------------------------------------------


def test_two_fits_do_not_share_a_folder(tmp_path, processes):
    process, _ = start(processes, tmp_path / "kept", tmp_path / "out", "exact", pause=0.05)
    while not (tmp_path / "kept" / ".lock").exists() or not CheckpointFolder(tmp_path / "kept").files():
        time.sleep(0.01)
    message = rf"in use by another fit \(process {process.pid}\): wait for it to end"
    with pytest.raises(ValueError, match=message):
        fitted(tmp_path / "kept", resume=True)
    process.kill()
    process.join()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another environment
        how = fit_worker.parameters("exact")
        again = fit_source(fit_worker.labelled_source(), checkpoint=tmp_path / "kept", resume=True, **how)
    assert again.n_samples_seen_ == fit_worker.ROWS
    assert not (tmp_path / "kept" / ".lock").exists()


def test_two_threads_do_not_share_a_folder(tmp_path):
    with (
        folder_locked(tmp_path),
        ThreadPoolExecutor() as pool,
        pytest.raises(ValueError, match="in use by another fit"),
    ):
        pool.submit(fitted, tmp_path).result()
    assert fitted(tmp_path).n_samples_seen_ == fit_worker.ROWS


def test_where_nothing_can_be_locked_a_warning_says_so(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(FairstreamWarning, match="cannot be locked .*not supported"):
        assert fitted(tmp_path).n_samples_seen_ == fit_worker.ROWS


def test_drafts_are_cleared_away_only_by_the_holder_of_the_lock(tmp_path):
    draft = tmp_path / ".rows-000000000000500.safetensors.1-abc.part"
    draft.write_bytes(b"half")
    folder, estimator = CheckpointFolder(tmp_path), fitted(tmp_path / "other")
    folder.write(estimator, 1, {})
    assert draft.exists(), "its writer may live"
    with folder.locked():
        folder.write(estimator, 2, {})
    assert not draft.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_last_checkpoint_is_not_lost(tmp_path, monkeypatch, number):
    write = CheckpointFolder.write

    def interrupted(*arguments, **options):
        signal.raise_signal(number)
        return write(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFolder, "write", interrupted)
        with pytest.raises(FitInterrupted, match="stopped after 3,000 rows; checkpoint written") as stopped:
            fitted(tmp_path)
    assert stopped.value.signal_number == number
    assert CheckpointFolder(tmp_path).newest().rows == fit_worker.ROWS
    assert fitted(tmp_path, resume=True).n_samples_seen_ == fit_worker.ROWS


def test_a_generation_that_may_not_be_read_gives_way_to_the_one_before(tmp_path, monkeypatch):
    whole, read = fitted(tmp_path, every=500), checkpoint_folder.read_file

    def denied(path):
        if "3000" in path.name:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(checkpoint_folder, "read_file", denied)
    with pytest.warns(FairstreamWarning, match=r"Permission denied.*resuming from rows-000000000002500"):
        again = fitted(tmp_path, resume=True)
    assert_same_bits(again, whole)


def test_an_occupied_folder_is_refused_before_data_is_read(tmp_path):
    fitted(tmp_path / "kept")
    with pytest.raises(ValueError, match="already holds a fit"):
        fit_source(tmp_path / "not there.csv", checkpoint=tmp_path / "kept", n_components=3)
    where = ["--checkpoint", str(tmp_path / "kept"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["fit", str(tmp_path / "not there.csv"), "-s", "sex", *where])
    assert result.exit_code != 0
    assert "already holds a fit" in result.output
