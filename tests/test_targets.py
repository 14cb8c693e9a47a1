"""Targets as numbers: in samples of rows, in parts that are merged, and for tuning."""

import numpy as np
import pytest
from support.command import run

from fairstream import GroupMoments, collect_moments, open_source, tune
from fairstream.data.targets import TargetNumbers

pytestmark = pytest.mark.usefixtures("few_families")


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    sex, X = rng.choice(["f", "m"], 400), rng.normal(size=(400, 7))
    return X, sex, np.where(X[:, 1] > 0, ">50K", "<=50K")


def moments_of(people, rows=slice(None), **options):
    X, sex, income = people
    opened = open_source(X[rows], sensitive_features={"sex": sex[rows]}, target=income[rows])
    return collect_moments(opened, **options)


def test_a_class_has_one_number_whichever_comes_first():
    first, second = TargetNumbers()(["yes", "no", "no"]), TargetNumbers()(["no", "yes"])
    assert first[0] == second[1] != first[1] == second[0]


def test_missing_targets_are_no_class():
    numbers = TargetNumbers()(["yes", None, "no", float("nan")])
    assert np.isnan(numbers).tolist() == [False, True, False, True]


def test_a_third_class_is_refused_and_forgotten():
    numbers = TargetNumbers()
    numbers(["a", "b"])
    with pytest.raises(ValueError, match=r"more than two classes \('a', 'b', 'c', \.\.\.\)"):
        numbers(["a", "c"])
    assert len(numbers(["b", "a"])) == 2


def test_a_sample_of_rows_keeps_their_target_and_parts_agree_on_it(people):
    whole = moments_of(people, sample=1_000).sample.rows()
    parts = moments_of(people, slice(0, 150), sample=1_000)
    parts.merge(moments_of(people, slice(150, 400), sample=1_000))
    np.testing.assert_array_equal(parts.sample.rows().target, whole.target)
    np.testing.assert_array_equal(whole.target == whole.target[whole.X[:, 1] > 0][0], whole.X[:, 1] > 0)
    assert moments_of(people).sample is None  # the control: without a sample there is nothing to keep


def test_tuning_for_a_target_that_is_not_there_is_refused(people):
    X, sex, _ = people
    without = GroupMoments(7, sample=1_000).update(X, {"sex": sex})
    with pytest.raises(ValueError, match="needs the target of the rows, these have none"):
        tune(without, limit=0.8, n_components=2, maximise="target")
    several = GroupMoments(7, sample=1_000).update(X, {"sex": sex}, target=np.arange(400) % 3)
    with pytest.raises(ValueError, match="two classes, this one has 3 values"):
        tune(several, limit=0.8, n_components=2, maximise="target")


@pytest.fixture
def table(tmp_path, people):
    pytest.importorskip("pyarrow")
    X, sex, income = people
    rows = [f"{','.join(map(str, x))},{s},{y}" for x, s, y in zip(X, sex, income, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,c,d,e,f,g,sex,income", *rows]))
    return tmp_path / "d.csv"


@pytest.mark.slow
def test_moments_with_a_sample_can_be_tuned_for_their_target(table):
    moments, model = table.with_name("m"), table.with_name("model")
    run("moments", table, "-s", "sex", "--target", "income", "--sample", 2_000, "-o", moments)
    wish = ["--maximise", "target", "--keep", 0.3, "-k", 2, "--attack", "standard"]
    assert "target" in run("tune", moments, *wish, "-o", model).stdout


@pytest.mark.parametrize(
    ("sampled", "command", "said"),
    [
        (False, ["tune", "--keep", 0.5], "collect them with fairstream moments --sample 30000"),
        (False, ["solve", "--guard", 1, "--constraint", "none", "-k", 2], "--guard needs a sample of rows"),
        (True, ["tune", "--keep", 0.5, "--maximise", "target"], "fairstream moments --sample --target"),
        (
            True,
            ["solve", "--guard", 1, "--keep-target", 1, "--constraint", "none", "-k", 2],
            "fairstream moments --sample --target",
        ),
    ],
)
def test_what_moments_lack_is_told_in_options(table, sampled, command, said):
    moments = table.with_name("m")
    sample = ["--sample", 2_000] if sampled else []
    run("moments", table, "-s", "sex", "--features", "a,b,c,d", *sample, "-o", moments)
    text = run(command[0], moments, *command[1:], "-o", table.with_name("model"), code=1).stderr
    assert said in text
    assert "sample=" not in text
    assert "pass y" not in text


def test_moments_of_which_only_some_have_a_sample_are_refused_in_options(table):
    reading = ["moments", table, "-s", "sex", "--features", "a,b,c,d"]
    run(*reading, "-o", table.with_name("one"))
    run(*reading, "--sample", 100, "-o", table.with_name("two"))
    text = run("merge", table.with_name("one"), table.with_name("two"), "-o", table.with_name("m"), code=1)
    assert "collect both with fairstream moments --sample" in text.stderr
