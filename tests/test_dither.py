"""Dither: the same row gets the same noise, and only the key tells which."""

import traceback
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from support.command import run

from fairstream import FairStreamingPCA, FairstreamWarning, FairSubspace, GroupMoments, solve
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.dither import KEY_VARIABLE, chacha_block, dither_key, identities, keyed_noise

KEY = b"a secret of more than sixteen bytes"


def test_the_generator_is_chacha20_of_rfc_8439():
    state = np.zeros((16, 1), dtype=np.uint32)
    state[:4, 0] = np.frombuffer(b"expand 32-byte k", "<u4")
    state[4:12, 0] = np.frombuffer(bytes(range(32)), "<u4")
    state[12:, 0] = [1, 0x09000000, 0x4A000000, 0]
    expected = [
        *(0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204, 0x4E6CD4C3),
        *(0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE, 0xE883D0CB, 0x4E3C50A2),
    ]
    assert chacha_block(state)[:, 0].tolist() == expected


def test_the_same_row_gets_the_same_noise_however_it_comes():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(500, 6)).astype(float)
    noise = keyed_noise(X, 20, KEY)
    order = rng.permutation(500)
    np.testing.assert_array_equal(keyed_noise(X[order], 20, KEY), noise[order])
    np.testing.assert_array_equal(keyed_noise(sp.csr_array(X), 20, KEY), noise)
    np.testing.assert_array_equal(keyed_noise(X.astype(np.float32), 20, KEY), noise)
    assert not np.isclose(keyed_noise(X, 20, KEY + b"!"), noise).any()


def test_noise_is_standard_normal_and_independent_between_columns_and_rows():
    X = np.random.default_rng(0).normal(size=(40_000, 3))
    noise = keyed_noise(X, 18, KEY)
    assert np.abs(noise.mean(axis=0)).max() < 4 / 200
    assert np.abs(noise.var(axis=0) - 1).max() < 0.04
    assert np.abs(np.corrcoef(noise.T) - np.eye(18)).max() < 5 / 200
    assert np.abs(np.corrcoef(np.c_[X, noise].T)[:3, 3:]).max() < 5 / 200
    assert abs(float((noise**4).mean()) - 3) < 0.1


def test_the_key_comes_from_bytes_a_file_or_the_environment(tmp_path, monkeypatch):
    (tmp_path / "key").write_bytes(KEY + b"\n")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert dither_key(KEY) == dither_key(tmp_path / "key") == KEY
    with pytest.raises(ValueError, match=f"set the environment variable {KEY_VARIABLE}"):
        dither_key()
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert dither_key() == KEY
    with pytest.raises(ValueError, match="holds 5 bytes: a key needs at least 16"):
        dither_key(b"short")


def test_a_model_made_for_dither_does_not_embed_without_it(monkeypatch):
    monkeypatch.delenv("FAIRSTREAM_DITHER_KEY", raising=False)
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    with pytest.raises(ValueError, match="dither needs a secret key"):
        model.embed(X)
    noise = model.embed(X, key=KEY) - model.embed(X, dither=0)
    np.testing.assert_allclose(noise.std(axis=0), 0.3 * np.sqrt(model.explained_variance), rtol=0.15)


def test_the_guard_reckons_with_the_dither_it_is_told_of():
    X, sex = np.random.default_rng(0).normal(size=(600, 5)), np.arange(600) % 2
    moments = GroupMoments(5, sample=300).update(X, sex)
    options = {"constraint": "none", "guard": 1.0}
    plain, dithered = (solve(moments, 2, dither=dither, **options) for dither in (0.0, 0.3))
    assert np.abs(plain.components - dithered.components).max() > 1e-6


def test_twins_share_their_noise_unless_they_are_told_apart():
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    twins = np.repeat(X[:1], 3, axis=0)
    alike, apart = model.embed(twins, key=KEY), model.embed(twins, key=KEY, ids=[5, 6, 5])
    assert (alike == alike[0]).all()  # the control: the second is known by the first
    assert (apart[0] == apart[2]).all()
    assert (apart[0] != apart[1]).all()
    again = model.embed(X[:1], key=KEY, ids=[6])
    np.testing.assert_allclose(again[0], apart[1], rtol=1e-12)
    for wrong in ([1, 2], [0.5, 1, 2], [1, None, 2], ["a", "b", ""]):
        with pytest.raises(ValueError, match=r"^ids has"):
            model.embed(twins, key=KEY, ids=wrong)


def test_one_number_for_different_people_is_warned_of(recwarn):
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    with pytest.warns(FairstreamWarning, match="300 rows 1 numbers, and different rows the same one"):
        model.embed(X, key=KEY, ids=np.zeros(300, dtype=int))
    recwarn.clear()
    model.embed(np.repeat(X, 2, axis=0), key=KEY, ids=np.repeat(np.arange(300), 2))  # one person twice
    assert not recwarn.list


@pytest.mark.parametrize(
    "ids",
    [[5, -5, 2**60], [2**53 + 1, 2**53, 1], ["ann", "an", "A"], np.array([2**64 - 1, 1, 2], dtype=np.uint64)],
    ids=["signs", "large", "text", "unsigned"],
)
def test_every_id_has_noise_of_its_own_whatever_is_beside_it(ids):
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    twins = np.repeat(X[:1], 3, axis=0)
    noisy = model.embed(twins, key=KEY, ids=ids)
    assert len({*map(tuple, noisy.round(6).tolist())}) == 3
    alone = np.concatenate([model.embed(X[:1], key=KEY, ids=[one]) for one in ids])
    np.testing.assert_allclose(alone, noisy, rtol=1e-12)


def test_text_and_numbers_are_different_people():
    assert not np.isclose(
        keyed_noise(identities([65, 7], 2), 4, KEY), keyed_noise(identities(["A", "7"], 2), 4, KEY)
    ).any()


def test_a_model_made_for_ids_adds_no_noise_without_them():
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3, ids=True)
    for verb in (model.embed, model.erase):
        with pytest.raises(ValueError, match="depends on whose row it is, and no ids are given: pass ids"):
            verb(X, key=KEY)
        assert np.isfinite(verb(X, dither=0)).all()
        assert (verb(X, key=KEY, ids=np.arange(300)) != verb(X, dither=0)).all()
    with pytest.raises(ValueError, match="ids=3: give True, False or the name of a column"):
        solve(GroupMoments(4).update(X, sex), 2, ids=3)


def test_erasing_tells_twins_apart_too():
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    twins = np.repeat(X[:1], 2, axis=0)
    alike, apart = model.erase(twins, key=KEY), model.erase(twins, key=KEY, ids=[5, 6])
    assert (alike[0] == alike[1]).all()  # the control
    assert (apart[0] != apart[1]).all()


def test_scores_and_erased_rows_share_no_noise():
    """With both in hand nobody can take noise off; scores keep the noise that earlier versions gave them."""
    X, sex = np.random.default_rng(0).normal(size=(2_000, 4)), np.arange(2_000) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    on_scores, on_rows = (verb(X, key=KEY) - verb(X, dither=0) for verb in (model.embed, model.erase))
    words = keyed_noise(X, 4, KEY)
    correlations = np.corrcoef(np.hstack([words, on_scores, on_rows]).T)
    np.testing.assert_allclose(np.diag(correlations[:2, 4:6]), 1, rtol=1e-9)  # the control
    assert np.abs(correlations[:6, 6:]).max() < 0.1


def test_a_key_or_ids_without_noise_are_warned_of(recwarn):
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2)
    for given, words in (({"key": KEY}, "a key given"), ({"ids": np.arange(300)}, "ids given")):
        with pytest.warns(FairstreamWarning, match=f"^{words}, but the model has no dither"):
            model.embed(X, **given)
        with pytest.warns(FairstreamWarning, match=words):
            model.erase(X, **given)
    recwarn.clear()
    model.embed(X)
    model.embed(X, dither=0, key=KEY, ids=np.arange(300))  # the model has no dither to miss
    assert not recwarn.list


def test_less_noise_than_the_model_was_chosen_with_is_warned_of(recwarn):
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    pca = FairStreamingPCA(2, dither=0.3).fit(X, sensitive_features=sex)
    model, image = pca.subspace_, ChannelSubspaces([pca.subspace_] * 2)
    no_noise = "^dither=0 adds no noise, the model was chosen with 0.3: rows are hidden less well than its "
    for verb in (model.embed, model.erase):
        with pytest.warns(
            FairstreamWarning, match=no_noise + "tuning or audit said; pass dither=0.3"
        ) as told:
            verb(X, dither=0)
        assert [one.filename for one in told] == [__file__]
        with pytest.warns(FairstreamWarning, match=r"^dither=0\.1 adds less noise, .* with 0\.3"):
            verb(X, dither=0.1, key=KEY)
    with pytest.warns(FairstreamWarning, match=no_noise):
        image.embed(np.hstack([X, X]), dither=0)
    with pytest.warns(FairstreamWarning, match=no_noise):
        clone(pca).fit(X, sensitive_features=sex).set_params(dither=0.0).transform(X)
    recwarn.clear()
    for dither in (None, 0.3, 0.5):
        model.embed(X, dither=dither, key=KEY)
    pca.resolve(dither=0.0).transform(X)  # chosen anew
    assert not recwarn.list


def test_the_command_line_says_once_that_less_noise_is_added(tmp_path):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(90, 4)))
    np.save(tmp_path / "sex.npy", np.arange(90) % 2)
    model, source = tmp_path / "model", ["-s", f"sex={tmp_path / 'sex.npy'}"]
    run("fit", tmp_path / "X.npy", *source, "-k", 1, "--dither", 0.3, "-o", model)
    for command in ("transform", "erase"):
        write = [command, model, tmp_path / "X.npy", "--block-size", 30, "-o", tmp_path / f"{command}.npy"]
        text = run(*write, "--dither", 0).stderr
        assert (
            text.count("--dither 0 adds no noise, the model was chosen with 0.3: rows are hidden less") == 1
        )
        assert "pass --dither 0.3 for as much" in text
        (tmp_path / "key").write_bytes(KEY)
        assert "noise" not in run(*write, "--overwrite", "--dither-key", tmp_path / "key").stderr


def test_ids_of_a_series_are_paired_by_index():
    pd = pytest.importorskip("pandas")
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    model = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    names = [f"row {j}" for j in range(300)]
    frame, ids = pd.DataFrame(X, index=names), pd.Series(np.arange(300), index=names)
    expected = model.embed(frame, key=KEY, ids=ids)
    pd.testing.assert_frame_equal(model.embed(frame, key=KEY, ids=ids.iloc[::-1]), expected)
    with pytest.raises(ValueError, match="ids has the index"):
        model.embed(frame, key=KEY, ids=ids.rename({"row 0": "nobody"}))


def test_channels_have_noise_of_their_own_for_the_same_id():
    """With one key for all channels, the difference of two channels would be free of noise."""
    X, sex = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
    one = solve(GroupMoments(4).update(X, sex), 2, dither=0.3)
    image, rows, ids = ChannelSubspaces([one, one]), np.hstack([X, X]), np.arange(300)
    noise = image.embed(rows, key=KEY, ids=ids) - image.embed(rows, dither=0)
    correlation = [np.corrcoef(noise[:, j], noise[:, 2 + j])[0, 1] for j in range(2)]
    assert np.abs(correlation).max() < 0.25
    plain = one.embed(X, key=KEY, ids=ids) - one.embed(X, dither=0)
    assert np.corrcoef(plain[:, 0], noise[:, 0])[0, 1] < 0.25  # the control: one model has another key
    assert image.dither == 0.3
    assert image.ids is False
    needs = ChannelSubspaces([solve(GroupMoments(4).update(X, sex), 2, dither=0.3, ids=True)] * 2)
    with pytest.raises(ValueError, match="no ids are given"):
        needs.embed(rows, key=KEY)


@pytest.mark.parametrize("secret", ["a very secret key, far longer than sixteen", "a\0b" * 9, "x" * 5_000])
def test_a_key_passed_as_a_path_is_not_repeated(secret):
    with pytest.raises(ValueError, match="a key itself is passed as bytes") as told:
        dither_key(secret)
    shown = "".join(traceback.format_exception(told.value)[-1:]) + str(told.value)
    assert secret not in shown
    assert told.value.__context__ is None  # nor by a traceback


def test_a_key_that_adds_no_noise_is_warned_of():
    model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    for verb in (model.embed, model.erase):
        with pytest.warns(FairstreamWarning, match="a key given, but the model has no dither"):
            verb(np.ones((2, 3)), key=KEY)
        with warnings.catch_warnings():  # the control
            warnings.simplefilter("error")
            verb(np.ones((2, 3)), key=KEY, dither=0.1)
            verb(np.ones((2, 3)), key=KEY, dither=0)
            verb(np.ones((2, 3)))


def test_messages_about_keys_name_options(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(60, 4)))
    np.save(tmp_path / "sex.npy", np.arange(60) % 2)
    run("fit", tmp_path / "X.npy", "-s", f"sex={tmp_path / 'sex.npy'}", "-k", 1, "-o", tmp_path / "model")
    transform = ["transform", tmp_path / "model", tmp_path / "X.npy", "-o", tmp_path / "Z.npy", "--overwrite"]
    text = run(*transform, "--dither", 0.3, code=1).stderr
    assert "--dither-key" in text
    assert "--dither 0" in text
    text = run(*transform, "--dither", 0.3, "--dither-key", "my-secret-typed-by-mistake", code=1).stderr
    assert "the file of --dither-key cannot be read" in text
    assert "my-secret" not in text
    (tmp_path / "key").write_bytes(KEY)
    text = run(*transform, "--dither-key", tmp_path / "key").stderr
    assert "--dither-key is given, but no noise is added" in text
