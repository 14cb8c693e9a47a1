"""Options of tables: missing values, decimal comma, bad rows, unknown categories, identifiers."""

import pickle
import re
import warnings

import numpy as np
import pytest
from support.command import answer, run

from fairstream import FairstreamWarning, fit_source, load, open_like, open_source

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


def rows_of(source):
    return np.concatenate([block.X for block in source])


# CSV ------------------------------------------------------------------------------------------------


def test_tokens_that_are_named_count_as_missing(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("age,job\n30,cook\n?,-\nNA,nurse\n50,cook\n")
    source = open_source(path, null_values=["?", "-"], impute="mean")
    assert source.feature_names == ("age", "job=cook", "job=nurse")
    np.testing.assert_allclose(rows_of(source)[:, 0], [30, 40, 40, 50])
    with pytest.raises(ValueError, match="null_values is"):
        open_source(path, null_values="?")


def test_a_decimal_comma_is_read(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("gain;hours;job\n0,5;40;cook\n-1,25e1;8,0;nurse\n")
    source = open_source(path, decimal=",", features=["gain", "hours"])
    np.testing.assert_array_equal(rows_of(source), [[0.5, 40], [-12.5, 8]])
    with pytest.raises(ValueError, match="and so is the delimiter"):
        open_source(path, decimal=",", delimiter=",")


BAD = "a,b,sex\n1,2,m\n3,4\n5,6,f,9\n7,oops,m\n9,10,f\n"


def test_rows_that_do_not_fit_are_refused_by_default(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(BAD)
    with pytest.raises(ValueError, match='pass bad_rows="skip"'):
        list(open_source(path, sensitive_features=["sex"], column_types={"b": "float64"}))


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("decimal", [".", ","])
def test_rows_that_do_not_fit_are_skipped_and_counted_on_request(tmp_path, standardize, decimal):
    path = tmp_path / "d.csv"
    text = BAD + "".join(f"{a}.5,1,m\n" for a in range(5))
    path.write_text(text if decimal == "." else text.replace(",", ";").replace(".", ","))
    options = {"sensitive_features": ["sex"], "column_types": {"b": "float64"}, "decimal": decimal}
    source = open_source(path, bad_rows="skip", standardize=standardize, **options)
    with pytest.warns(FairstreamWarning, match='3 rows were skipped, as bad_rows="skip" asks'):
        X = rows_of(source)
    assert (len(X), source.n_rows, source.skipped_rows) == (7, 7, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(rows_of(pickle.loads(pickle.dumps(source))), X)
    if not standardize:
        np.testing.assert_array_equal(X[:2], [[1, 2], [9, 10]])


def test_a_clean_file_reads_the_same_whatever_is_done_with_bad_rows(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "d.csv"
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc")).assign(n=rng.integers(0, 9, 300))
    frame.to_csv(path, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        skipping = rows_of(open_source(path, bad_rows="skip"))
    assert skipping.tobytes() == rows_of(open_source(path)).tobytes()


def test_the_command_line_reads_such_files(tmp_path):
    lines = [f"{a % 7},5;{a % 5};{'fm'[a % 2]};{'?' if a == 3 else a % 3}" for a in range(80)]
    (tmp_path / "d.csv").write_bytes("\n".join(["gain;hours;sex;größe", *lines, "1;2"]).encode("latin-1"))
    reading = ["--decimal", ",", "--text-encoding", "latin-1", "--null-values", "?,-", "--bad-rows", "skip"]
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", *reading, "--impute", "mean", "-k", 1, "-m", 0]
    facts = answer(*fit, "-o", tmp_path / "m")
    assert (facts["n_rows"], facts["n_features"], facts["rows_skipped"]) == (80, 3, 1)
    transform = ["transform", tmp_path / "m", tmp_path / "d.csv", *reading, "-o", tmp_path / "z.npy"]
    assert answer(*transform)["rows_skipped"] == 1
    refused = run(*fit[:-6], "--bad-rows", "raise", "-k", 1, "-o", tmp_path / "n", code=1).stderr
    assert "--bad-rows skip" in refused


def test_a_model_remembers_what_counts_as_missing(tmp_path):
    """A control without the declaration takes "?" for a category of its own."""
    lines = [
        f"{'?' if a % 9 == 4 else a % 7},{'?' if a % 11 == 5 else 'ab'[a % 2]},{'fm'[a // 2 % 2]}"
        for a in range(120)
    ]
    (tmp_path / "d.csv").write_text("\n".join(["age,job,sex", *lines]))
    (tmp_path / "new.csv").write_text("age,job\n3,?\n?,a\n1,b\n")
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "-k", 1, "-m", 0]
    answer(*fit, "--null-values", "?", "--impute", "mean", "-o", tmp_path / "m")
    answer("transform", tmp_path / "m", tmp_path / "new.csv", "-o", tmp_path / "z.npy")
    model = load(tmp_path / "m")
    new = open_like(model, tmp_path / "new.csv")
    assert new.feature_names == ("age", "job=a", "job=b")
    assert new.encoding == model.schema.encoding
    assert new.encoding["null_values"] == ["?"]
    X = rows_of(new)
    assert 0 < X[0, 1] < 1
    assert X[0, 1:].sum() == pytest.approx(1)
    frame = pd.DataFrame(
        {"age": [3.0, None, 1.0], "job": ["?", "a", "b"]}
    )  # "?" is text here, and missing all the same
    np.testing.assert_array_equal(rows_of(open_like(model, frame)), X)
    more = open_like(model, tmp_path / "new.csv", null_values=["a"], unseen="ignore")
    assert rows_of(more)[1, 1] == X[0, 1]
    assert "null_values" not in open_source(frame[["age"]].fillna(0)).encoding


def same_rows(path, kind):
    """Return the rows of a CSV file as another kind of table, in which "?" is text."""
    frame = pd.read_csv(path)
    if kind == "frame":
        return frame
    if kind == "categorical":
        return frame.astype({"job": "category", "sex": "category"})
    if kind == "polars":
        return pytest.importorskip("polars").from_pandas(frame)
    other = path.with_suffix(f".{kind}")
    if kind == "jsonl":
        frame.to_json(other, orient="records", lines=True)
    else:
        {"parquet": frame.to_parquet, "feather": frame.to_feather}[kind](other)
    return other


@pytest.mark.parametrize("kind", ["frame", "categorical", "polars", "parquet", "feather", "jsonl"])
def test_what_counts_as_missing_is_no_group_and_no_target_in_any_table(tmp_path, kind):
    path = tmp_path / "d.csv"
    path.write_text(
        "a,job,sex,y\n" + "".join(f"{i},{'?xy'[i % 3]},{'fm?'[i % 3]},{'ab?'[i % 3]}\n" for i in range(9))
    )
    roles = {"sensitive_features": ["sex"], "target": "y"}
    fitted = open_source(path, null_values=["?"], impute="mean", **roles)
    (expected,) = fitted
    (block,) = open_source(same_rows(path, kind), encoding=fitted.encoding, **roles)
    np.testing.assert_array_equal(block.X, expected.X)
    assert block.groups["sex"].labels == ("f", "m")
    np.testing.assert_array_equal(block.groups["sex"].codes, expected.groups["sex"].codes)
    assert block.target.tolist() == expected.target.tolist() == ["a", "b", None] * 3
    with pytest.raises(ValueError, match="'sex' is ids and has missing values"):
        list(open_source(same_rows(path, kind), encoding=fitted.encoding, ids="sex"))
    assert open_source(same_rows(path, kind), encoding=fitted.encoding).encoding == fitted.encoding


def test_an_encoding_remembers_what_was_declared_later_too(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a,job\n1,x\n2,?\n3,-\n")
    encoding = open_source(path, null_values=["?", "-"], impute="mean").encoding | {"null_values": ["?"]}
    assert open_source(path, encoding=encoding, null_values=["-"]).encoding["null_values"] == ["-", "?"]


@pytest.mark.parametrize("nothing", [None, (), [], np.array([], dtype=str)])
def test_options_that_list_nothing_change_nothing(tmp_path, nothing):
    path = tmp_path / "d.csv"
    path.write_text("a,b\n1,2\n")
    assert open_source(path, exclude=nothing, keep=nothing, null_values=nothing).feature_names == ("a", "b")
    encoding = {"columns": [{"name": "a", "kind": "number", "width": 1}], "null_values": ["?"]}
    like = open_source(path, encoding=encoding, exclude=nothing, keep=nothing, null_values=nothing)
    assert like.encoding == encoding


@pytest.mark.parametrize("kind", [list, tuple, pd.Index, np.array])
def test_names_of_columns_come_in_any_list(kind):
    frame = pd.DataFrame({"a": [1.0], "b": [2.0], "c": ["?"], "d": [None]})
    source = open_source(frame, exclude=kind(["b", "d"]), keep=kind(["c"]))
    assert (source.feature_names, source.kept_names) == (("a",), ("c",))
    with pytest.raises(ValueError, match=r"leave it out with exclude=\['b', 'd'\]"):
        open_source(frame, exclude=kind(["b"]))
    assert open_source(frame, features=kind(["a"])).feature_names == ("a",)


@pytest.mark.parametrize("argument", ["exclude", "keep", "features", "null_values"])
@pytest.mark.parametrize("value", ["a", 1, [1], [None]])
def test_what_is_no_list_of_texts_is_refused_by_its_name(tmp_path, argument, value):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=f"^{argument} is {re.escape(repr(value))}: pass a list of"):
        open_source(tmp_path / "d.csv", **{argument: value})


# Categories -----------------------------------------------------------------------------------------


def table(jobs, **more):
    return pd.DataFrame({"job": jobs, "age": np.arange(len(jobs)) % 5, **more})


@pytest.mark.parametrize(
    ("unseen", "names", "strange"),
    [
        ("ignore", ("job=cook", "job=nurse", "age"), [0, 0]),
        ("other", ("job=cook", "job=nurse", "job=other", "age"), [0, 0, 1]),
    ],
)
def test_a_category_that_the_fit_has_not_seen(unseen, names, strange):
    seen, new = table(["cook", "nurse"] * 3), table(["nurse", "judge"])
    source = open_source(seen, unseen=unseen)
    assert source.feature_names == names
    X = rows_of(open_source(new, encoding=source.encoding))
    assert X[0, 1] == 1
    assert X[1, :-1].tolist() == strange
    with pytest.raises(ValueError, match="the encoding does not know"):  # the control
        rows_of(open_source(new, encoding=open_source(seen).encoding))


def test_what_becomes_of_unseen_categories_can_be_said_later_unless_it_takes_a_feature():
    seen, new = table(["cook", "nurse"] * 3), table(["nurse", "judge"])
    encoding = open_source(seen).encoding
    assert rows_of(open_source(new, encoding=encoding, unseen="ignore"))[1, :2].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"unseen is 'other'.*without that feature in the model"):
        open_source(new, encoding=encoding, unseen="other")
    strict = open_source(seen, unseen="other").encoding
    with pytest.raises(ValueError, match="'judge'"):
        rows_of(open_source(new, encoding=strict, unseen="raise"))
    with pytest.raises(ValueError, match="unseen is 'drop': pass one of"):
        open_source(seen, unseen="drop")


def test_numbers_as_categories_have_others_too():
    seen, new = table([1, 2, 2, 1]), table([2, 9])
    source = open_source(seen, categories={"job": None}, unseen="other")
    assert source.feature_names == ("job=1", "job=2", "job=other", "age")
    assert rows_of(open_source(new, encoding=source.encoding))[:, :3].tolist() == [[0, 1, 0], [0, 0, 1]]


def test_a_category_that_is_called_other_takes_in_the_unseen():
    source = open_source(table(["other", "cook"] * 3), unseen="other")
    assert source.feature_names == ("job=cook", "job=other", "age")
    new = rows_of(open_source(table(["judge", "other"]), encoding=source.encoding))
    assert new[:, :2].tolist() == [[0, 1], [0, 1]]


def test_too_many_categories_are_refused_or_the_rarest_joined():
    jobs = ["cook"] * 9 + ["nurse"] * 8 + ["judge"] * 2 + ["clown"]
    with pytest.raises(ValueError, match="more than 3 categories"):
        rows_of(open_source(table(jobs), max_categories=3))
    source = open_source(table(jobs), max_categories=3, unseen="other")
    assert source.feature_names == ("job=cook", "job=nurse", "job=other", "age")
    assert rows_of(source)[:, 2].sum() == 3
    with pytest.raises(ValueError, match="max_categories is 0"):
        open_source(table(jobs), max_categories=0)


def test_a_model_file_remembers_what_becomes_of_unseen_categories(tmp_path):
    rng = np.random.default_rng(0)
    seen = table(rng.choice(["cook", "nurse", "clerk"], 200), sex=rng.choice(["f", "m"], 200))
    pca = fit_source(open_source(seen, sensitive_features=["sex"], unseen="other"), n_components=1)
    pca.subspace_.save(tmp_path / "model")
    model = load(tmp_path / "model")
    (block,) = open_like(model, table(["judge"]))
    assert block.X[0, model.feature_names.index("job=other")] == 1


def test_the_command_line_says_how_unseen_categories_are_passed_over(tmp_path):
    table(["cook", "nurse", "cook"] * 20, sex=["f", "m"] * 30).to_csv(tmp_path / "d.csv", index=False)
    table(["judge"], sex=["f"]).to_csv(tmp_path / "new.csv", index=False)
    run("fit", tmp_path / "d.csv", "-s", "sex", "-k", 1, "-m", 0, "-o", tmp_path / "m")
    transform = ["transform", tmp_path / "m", tmp_path / "new.csv", "-o", tmp_path / "z.npy"]
    assert "--unseen ignore" in run(*transform, code=1).stderr
    run(*transform, "--unseen", "ignore")
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "-k", 1, "-m", 0, "-o", tmp_path / "m"]
    assert "--max-categories" in run(*fit, "--max-categories", 1, code=1).stderr
    assert answer(*fit, "--max-categories", 2, "--unseen", "other")["n_features"] == 3


# Identifiers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [64, 1_000])
@pytest.mark.parametrize("kind", ["csv", "frame"])
def test_a_whole_number_of_its_own_for_every_row_is_warned_of_once(tmp_path, kind, block_size):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": rng.permutation(10_000)[:300], "age": rng.integers(18, 90, 300)})
    frame.to_csv(tmp_path / "d.csv", index=False)
    source = open_source(frame if kind == "frame" else tmp_path / "d.csv", block_size=block_size)
    with pytest.warns(FairstreamWarning, match="column 'id' has a whole number of its own in each of 300"):
        list(source)
    with warnings.catch_warnings():  # and 'age' was not: neither then nor now
        warnings.simplefilter("error")
        list(source)


def test_numbers_that_repeat_or_are_few_are_no_identifiers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(open_source(pd.DataFrame({"n": [*range(150), 3]})))
        list(open_source(pd.DataFrame({"n": range(50)})))
        list(open_source(pd.DataFrame({"x": np.arange(500) / 7})))


# Columns that are left out --------------------------------------------------------------------------


def test_excluded_columns_are_no_features(tmp_path):
    frame = table(["cook", "nurse"] * 60, person=np.arange(120), sex=["f", "f", "m", "m"] * 30)
    assert open_source(frame, sensitive_features=["sex"], exclude=["person"]).feature_names == (
        "job=cook",
        "job=nurse",
        "age",
    )
    for options, words in (
        ({"exclude": ["nobody"]}, "exclude names 'nobody'"),
        ({"exclude": "person"}, "exclude is 'person': pass a list"),
        ({"exclude": ["person"], "features": ["age"]}, "exclude does not apply beside features"),
        ({"exclude": ["age"], "encoding": open_source(frame[["age"]]).encoding}, "beside encoding"),
    ):
        with pytest.raises(ValueError, match=words):
            open_source(frame, **options)
    frame.to_csv(tmp_path / "d.csv", index=False)
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "-k", 1, "-m", 0]
    told = " ".join(run(*fit, "-o", tmp_path / "m").stderr.split())
    assert "leave it out with --exclude person" in told
    assert "pass --id-column person" in told
    assert not run(*fit, "--exclude", "person", "-o", tmp_path / "m").stderr
    assert not run(*fit, "--id-column", "person", "-o", tmp_path / "m").stderr


@pytest.mark.parametrize("value", ["?", "N/A", "Unknown", " - "])
def test_a_category_that_usually_means_missing_is_warned_of(value):
    jobs = ["cook", "nurse", value] * 3
    with pytest.warns(
        FairstreamWarning, match=r"'job' holds .* in 3 rows, taken for a category.*null_values"
    ):
        rows_of(open_source(table(jobs)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows_of(open_source(table(jobs), categories={"job": ["cook", "nurse", value]}))
        rows_of(open_source(table(["cook", "nurse", "unknown soldier"])))


def test_the_command_line_names_the_option_for_missing_values(tmp_path):
    (tmp_path / "d.csv").write_text(
        "age,job,sex\n" + "".join(f"{a},{'a?b'[a % 3]},{'fm'[a % 2]}\n" for a in range(80))
    )
    fit = ["fit", tmp_path / "d.csv", "-s", "sex", "--exclude", "age", "-k", 1, "-m", 0, "-o", tmp_path / "m"]
    told = " ".join(run(*fit).stderr.split())
    assert "pass --null-values '?' --impute mean" in told
    assert "list all of them in the JSON file of --categories" in told
    assert "taken for a category" not in run(*fit, "--null-values", "?", "--impute", "mean").stderr


# Frames as they are ---------------------------------------------------------------------------------


def test_a_model_embeds_a_frame_with_the_columns_of_its_table():
    """All rows, also beyond a block, and columns that are no features are ignored."""
    frame = table(["cook", "nurse", "judge"] * 60, sex=["f", "m"] * 90)
    pca = fit_source(
        open_source(frame, sensitive_features=["sex"], standardize=True), n_components=1, constraint="mean"
    )
    model, new = pca.subspace_, frame.iloc[::-1]
    Z = model.embed(new)
    np.testing.assert_allclose(Z.to_numpy(), model.embed(rows_of(open_like(model, new, block_size=50))))
    assert Z.index.equals(new.index)
    np.testing.assert_allclose(model.erase(new), model.erase(rows_of(open_like(model, new))))
    with pytest.raises(ValueError, match=r"pass it to subspace_\.embed"):
        pca.transform(new.drop(columns="sex"))


def test_scaled_numbers_of_a_frame_are_scaled_as_in_the_fit():
    """Their names are those of the features, so taking them as they are would go unnoticed."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 3)) * [1, 10, 100] + 5, columns=[*"abc"])
    sex = {"sex": rng.choice(["f", "m"], 90)}
    model = fit_source(open_source(frame, sensitive_features=sex, standardize=True), n_components=1).subspace_
    np.testing.assert_allclose(model.embed(frame), model.embed(rows_of(open_like(model, frame))))
    plain = fit_source(open_source(frame, sensitive_features=sex), n_components=1).subspace_
    np.testing.assert_allclose(plain.embed(frame.assign(d="x")), plain.embed(frame.to_numpy()))


def test_columns_that_hold_the_same_mark_of_a_missing_value_are_warned_of_once():
    table = pd.DataFrame({name: ["x", "y", "?"] * n for name, n in (("job", 2), ("town", 2))})
    table["state"] = ["x", "N/A"] * 3
    with pytest.warns(FairstreamWarning, match="taken for a category") as told:
        list(open_source(table))
    assert [str(one.message).split(": if")[0] for one in told] == [
        "2 columns hold '?', taken for a category: 'job' (2 rows), 'town' (2 rows)",
        "column 'state' holds 'N/A' in 3 rows, taken for a category",
    ]
