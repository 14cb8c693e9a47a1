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
from fairstream.auditing.render.figures import Placed, Series, frontier_figure, map_figure, probe_figure
from fairstream.auditing.render.labels import shown
from fairstream.auditing.report import (
    FORMAT_VERSION,
    DownstreamResult,
    Estimate,
    FrontierChoice,
    GroupFairness,
)

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


def test_the_page_drops_what_no_page_can_show(report):
    odd = dataclasses.replace(report, title="a\x00\x1bb\ud800<i>")
    assert "<h1>ab&lt;i&gt;</h1>" in odd.to_html()
    assert len(shown("x" * 10_000)) == 62


def test_a_label_that_utf8_does_not_know_is_still_written(report, tmp_path):
    odd = dataclasses.replace(report, title="half a pair \ud800")
    for write, name in ((odd.to_json, "a.json"), (odd.to_html, "a.html"), (odd.to_markdown, "a.md")):
        write(tmp_path / name)
        assert "half a pair" in (tmp_path / name).read_text(encoding="utf-8")
    assert len([*tmp_path.iterdir()]) == 3, "no draft is left behind"


def with_auc(leak, value, *, detected=True):
    """Return a leak whose probes all have this AUC."""
    auc = Estimate(value, value - 0.02, value + 0.02)
    probes = tuple(dataclasses.replace(result, auc=auc) for result in leak.probes)
    return dataclasses.replace(leak, probes=probes, detected=detected)


def compared(report, ours, pca, **leaking):
    """Return the report of one model beside plain PCA, with these AUCs."""
    model, control = report.models[0], report.models[-1]
    model = dataclasses.replace(model, leaks=(with_auc(model.leaks[0], ours, **leaking),))
    control = dataclasses.replace(control, leaks=(with_auc(control.leaks[0], pca),))
    return dataclasses.replace(report, warnings=(), models=(model, control))


def test_the_first_sentence_says_if_plain_pca_hides_the_attribute_as_well(report):
    worse = compared(report, 0.9, 0.87).summary()[0]
    assert "no better than plain PCA" in worse
    assert "AUC 0.90, from plain PCA 0.87" in worse
    better = compared(report, 0.6, 0.87).summary()[0]
    assert "no better" not in better
    assert better.endswith("The attribute still leaks.")
    assert "luck may explain the difference" in compared(report, 0.86, 0.87).summary()[0]
    assert "No probe did better than luck" in compared(report, 0.51, 0.5, detected=False).summary()[0]


def test_the_first_screen_and_the_probe_chart_speak_of_one_measure(report):
    page = report.to_html()
    first_screen = page[page.index('id="summary"') : page.index('id="leaks"')]
    assert "AUC" in first_screen
    assert "accuracy" not in first_screen
    assert "AUC of the probe: 0.5 = pure guessing" in page


def test_headings_and_words_need_no_explanation(report):
    page = report.to_html()
    assert "Where the groups are in the embedding" in page
    for word in ("How the groups lie", "A task on top", "Δ"):
        assert word not in page


def test_several_models_are_first_set_side_by_side_in_one_table(report):
    page, text = report.to_html(), report.to_markdown()
    assert page.index("At a glance") < page.index("<svg")
    table = text.split("## At a glance")[1].split("##")[0].strip().splitlines()
    assert len(table) == 2 + len(report.models)
    assert f"{report.models[0].leaks[0].best_probe.auc.value:.3f}" in table[2]
    alone = dataclasses.replace(report, models=report.models[:1])
    assert "At a glance" not in alone.to_html()


def test_training_accuracies_are_in_the_data_and_in_no_rendering(report):
    fair = (GroupFairness("sex", 0.1, 0.2, {"f": 0.625, "m": 0.75}),)
    downstream = tuple(
        DownstreamResult("MLP", protocol, f"note of {protocol}", 100, accuracy, 0.5, fair)
        for protocol, accuracy in (("paper", 0.987), ("honest", 0.654))
    )
    models = (dataclasses.replace(report.models[0], downstream=downstream),)
    changed = dataclasses.replace(report, models=models)
    assert "0.987" in changed.to_json()
    for text in (changed.to_markdown(), changed.to_html()):
        assert "65.4%" in text
        assert "98.7%" not in text
        assert "demographic parity difference" in text
        assert "equalized odds difference" in text
    assert "note of honest" in changed.to_html()


def frontier_points(*places):
    return [
        FrontierChoice("all", "absolute", m, m, explained, 0.0, 0.0, gap, gap) for m, gap, explained in places
    ]


def test_a_choice_that_another_one_beats_is_grey(report):
    points = frontier_points((1, 0.5, 0.8), (5, 0.6, 0.7), (15, 0.2, 0.6))
    drawing = frontier_figure(points, [], narrow=False)
    assert [mark.style for mark in drawing.marks] == ["absolute", "dominated", "absolute"]
    assert "another choice keeps more" in drawing.marks[1].tip
    assert drawing.paths[0][0].count("L") == 1, "the curve leaves it out"


def test_a_curve_of_the_frontier_never_folds_back():
    points = frontier_points((1, 0.5, 0.8), (5, 0.2, 0.4), (15, 0.3, 0.6), (50, 0.1, 0.2))
    path = frontier_figure(points, [], narrow=False).paths[0][0]
    xs = [float(corner.split(",")[0]) for corner in path[1:].split("L")]
    assert xs == sorted(xs)


def test_labels_of_the_frontier_do_not_overlap():
    crowded = frontier_points(*[(m, 0.5 - m / 1e4, 0.5 - m / 1e4) for m in (1, 5, 15, 50)])
    names = [Placed(Series(f"a model with a name {i}", "series-0"), 0.5 - i / 1e4, 0.5) for i in range(3)]
    drawing = frontier_figure(crowded, names, narrow=False)
    boxes = [mark.label.box for mark in drawing.marks if mark.label]
    assert len(boxes) >= 2, "some find room"
    for i, (a, b, c, d) in enumerate(boxes):
        assert not any(a < r and s < c and b < t and u < d for s, u, r, t in boxes[:i])


@pytest.mark.parametrize("narrow", [False, True])
def test_every_axis_has_a_title(report, narrow):
    model = report.models[0]
    results = [(Series("ours", "series-0"), model.leaks[0].probes)]
    figures = [probe_figure("sex", results, narrow=narrow), map_figure(model.maps[0], "ours")]
    figures.append(frontier_figure(report.frontier, [], narrow=narrow))
    assert [sum("axis" in label.style for label in figure.labels) for figure in figures] == [1, 2, 2]
