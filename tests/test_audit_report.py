"""The report: stable plain data, harmless text, one self-contained page."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA

from fairstream import FairStreamingPCA
from fairstream.auditing import audit
from fairstream.auditing.render.markup import shown, tag
from fairstream.auditing.report import FORMAT_VERSION

HOSTILE = '<script>document.title="owned"</script>"\'&</style>'


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, size=400)
    X = rng.normal(size=(400, 6)) * [3, 2, 2, 1, 1, 1]
    X[:, 0] += 4 * sex
    labels = {"sex|column": np.array([HOSTILE, "b"])[sex]}
    train = {"sex|column": labels["sex|column"][:200]}
    ours = FairStreamingPCA(2, n_unfair=1).fit(X[:200], sensitive_features=train)
    models = {"ours": ours, HOSTILE: PCA(2).fit(X[:100])}
    held_out = {"sex|column": labels["sex|column"][200:]}
    return audit(models, X[200:], held_out, probes=["linear", "quadratic"], n_permutations=9, title=HOSTILE)


def test_json_is_the_whole_tree_with_stable_keys(report):
    tree = json.loads(report.to_json())
    assert tree == report.to_dict()
    assert (tree["format"], tree["format_version"]) == ("fairstream.auditing", FORMAT_VERSION)
    assert [*tree] == [
        "format", "format_version", "title", "warnings", "data", "models", "raw", "frontier",
        "frontier_fitted_on", "parameters", "fairstream_version",
    ]  # fmt: skip
    assert [*tree["models"][0]] == [
        "name", "role", "kind", "n_components", "n_removed", "explained_variance",
        "explained_variance_relative",
        "reconstruction_error", "leaks", "by_group", "directions", "maps", "downstream", "fitted_rows",
        "looks_like_training", "parameters", "digest",
    ]  # fmt: skip
    assert [*tree["models"][0]["leaks"][0]["probes"][0]] == [
        "probe", "auc", "balanced_accuracy", "chance", "base_rate", "p_value", "n_rows", "n_folds",
    ]  # fmt: skip


def test_the_gap_about_the_total_mean_is_never_called_a_covariance_gap(report):
    """`FrontierPoint.covariance_gap` is about the group means: another quantity."""
    assert FORMAT_VERSION == 2
    for text in (report.to_json(), report.to_markdown(), report.to_html()):
        assert re.search("covariance.gap", text) is None
        assert re.search("second.moment.gap", text)


def test_the_report_cannot_be_changed(report):
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.title = "other"


def test_the_report_holds_no_row(report):
    """Nothing in the tree is as long as the data, and no cell of a map counts fewer rows than its limit."""

    def lists(node):
        if isinstance(node, dict):
            for value in node.values():
                yield from lists(value)
        elif isinstance(node, list):
            yield node
            for value in node:
                yield from lists(value)

    assert max(len(node) for node in lists(report.to_dict())) < report.data.n_rows
    clouds = [cloud for model in report.models for view in model.maps for cloud in view.clouds]
    assert clouds
    for cloud in clouds:
        assert all(count >= 5 for _, _, count in cloud.cells)
        assert sum(count for _, _, count in cloud.cells) + cloud.n_hidden_rows == cloud.n_rows


def test_not_a_number_becomes_null(report):
    odd = dataclasses.replace(report, parameters={"x": float("nan"), "y": float("inf")})
    assert json.loads(odd.to_json())["parameters"] == {"x": None, "y": None}


def test_markdown_shows_hostile_text_as_text(report):
    text = report.to_markdown()
    assert "<script>" not in text.replace("\\<", "")
    assert re.search(r"(?<!\\)<script", text) is None
    assert "sex\\|column" in text
    probes = [line for line in text.splitlines() if line.startswith("|") and "logistic" in line]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in probes} == {9}  # eight cells, whatever the labels


@pytest.mark.parametrize(
    "address", ["https://evil.example/x", "HTTP://evil.example", "WWW.evil.example", "a@b.co"]
)
def test_markdown_makes_no_link_of_an_address_in_the_data(report, address):
    """What GitHub links by itself: a scheme with ://, www., and e-mail addresses."""
    named = dataclasses.replace(report, title=address, warnings=(address,))
    text = named.to_markdown()
    assert re.search(r"(?i)https?://|ftp://|www\.|\w@\w", text) is None
    assert address in text.replace("\\", "").replace("\u2060", "")


def test_a_gap_that_luck_explains_is_no_share_of_pcas(report):
    model = report.models[0]
    leak = model.leaks[0]

    def shown(p_value):
        gap = dataclasses.replace(
            leak.gaps[0], mean_gap_relative=1.379, second_moment_gap_relative=0.5, mmd2_p_value=p_value
        )
        changed = dataclasses.replace(leak, gaps=(gap,))
        models = (dataclasses.replace(model, leaks=(changed,)),)
        return dataclasses.replace(report, models=models)

    noise, real = (shown(p_value) for p_value in (0.455, 0.005))
    assert "137.9%" not in noise.to_markdown() + noise.to_html()
    assert noise.to_markdown().count("within noise") == 2
    assert "137.9%" in real.to_markdown()
    assert "within noise" not in real.to_markdown()


def test_the_page_is_self_contained_and_escapes_everything(report):
    page = report.to_html()
    assert page.count("<script>") == 1  # ours
    assert "document.title=" not in re.sub(r"&lt;script&gt;document.title=", "", page)
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?+(?!#)[^\s>]""", page) == []
    assert "http://" not in page
    assert "https://" not in page
    assert page.startswith("<!doctype html>")


def test_the_page_says_the_uncomfortable_thing_before_any_figure(report):
    page = report.to_html()
    assert page.index("It does not make the groups identical") < page.index("<svg")
    assert page.index("guesses") < page.index("<svg")


def test_files_are_written_whole(report, tmp_path):
    for name, write in (("a.json", report.to_json), ("a.md", report.to_markdown), ("a.html", report.to_html)):
        text = write(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text == write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.md"]


def test_elements_escape_all_but_markup():
    assert tag("b", "<i>", title='"') == '<b title="&quot;">&lt;i&gt;</b>'
    assert tag("b", tag("i", "x")) == "<b><i>x</i></b>"
    assert tag("b", "a\x00\x1bb\ud800") == "<b>ab</b>"
    assert len(shown("x" * 10_000)) == 62


def test_a_label_that_utf8_does_not_know_is_still_written(report, tmp_path):
    odd = dataclasses.replace(report, title="half a pair \ud800")
    for write, name in ((odd.to_json, "a.json"), (odd.to_html, "a.html"), (odd.to_markdown, "a.md")):
        write(tmp_path / name)
        assert "half a pair" in (tmp_path / name).read_text(encoding="utf-8")
    assert len([*tmp_path.iterdir()]) == 3, "no draft is left behind"
