"""The report: stable plain data, harmless text, and a page that says first what matters most."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA
from support.example_report import example_report
from support.hostile_report import ENDLESS, QUOTES, SCRIPT, hostile_report

from fairstream.auditing import audit
from fairstream.auditing.render.canvas import SHAPES, Series
from fairstream.auditing.render.figures import Spot, curve_figure, frontier_figure, map_figure
from fairstream.auditing.render.glossary import GLOSSARY
from fairstream.auditing.render.labels import shown
from fairstream.auditing.render.sections import first_screen, looks, sections
from fairstream.auditing.render.summary import plain
from fairstream.auditing.render.tables import Cell
from fairstream.auditing.report import FORMAT_VERSION, Estimate


@pytest.fixture(scope="module")
def report():
    return example_report()


@pytest.fixture(scope="module")
def hostile():
    return hostile_report()


def text_of(page):
    """Return what a reader of the page reads, on one line."""
    body = re.sub(r"<(style|script|title)>.*?</\1>", " ", page, flags=re.S)
    return " ".join(plain(html.unescape(re.sub(r"<[^>]*>", " ", body))).split())


def first_screen_of(page):
    return page[page.index('id="summary"') : page.index("<nav")]


# --- plain data ---------------------------------------------------------------------------------------------


def test_json_is_the_whole_tree_with_stable_keys(report):
    tree = json.loads(report.to_json())
    assert tree == report.to_dict()
    assert (tree["format"], tree["format_version"]) == ("fairstream.auditing", FORMAT_VERSION)
    fields = [field.name for field in dataclasses.fields(report)]
    assert [*tree] == ["format", "format_version", *fields]
    assert {"headline", "limit", "warnings", "models", "raw", "floors", "reproduction"} <= {*tree}
    assert {"verdict", "attack", "gaps", "rounding"} <= {*tree["models"][0]["leaks"][0]}


def test_the_gap_about_the_total_mean_is_never_called_a_covariance_gap(report):
    """`FrontierPoint.covariance_gap` is about the group means: another quantity."""
    for text in (report.to_json(), report.to_markdown(), report.to_html()):
        assert re.search("covariance.gap", text) is None
        assert re.search("second.moment.gap", text)


def test_the_report_cannot_be_changed(report):
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.title = "other"


def test_the_report_holds_no_row():
    """Nothing in the tree is as long as the data, and no cell of a map counts fewer rows than its limit."""
    rng = np.random.default_rng(0)
    sex, X = np.arange(400) % 2, rng.normal(size=(400, 4))
    audited = audit(PCA(2).fit(X[:200]), X[200:], sex[200:], attackers=["linear"], n_permutations=0)

    def lists(node):
        if isinstance(node, dict):
            node = [*node.values()]
        if isinstance(node, list):
            yield node
            for value in node:
                yield from lists(value)

    assert max(len(node) for node in lists(audited.to_dict())) < audited.data.n_rows
    clouds = [cloud for model in audited.models for view in model.maps for cloud in view.clouds]
    assert clouds
    for cloud in clouds:
        assert all(count >= 5 for _, _, count in cloud.cells)
        assert sum(count for _, _, count in cloud.cells) + cloud.n_hidden_rows == cloud.n_rows
    assert "<svg" in audited.to_html(), "a real report renders"


def test_not_a_number_becomes_null(report):
    odd = dataclasses.replace(report, parameters={"x": float("nan"), "y": float("inf")})
    assert json.loads(odd.to_json())["parameters"] == {"x": None, "y": None}


def test_files_are_written_whole(report, tmp_path):
    for name, write in (("a.json", report.to_json), ("a.md", report.to_markdown), ("a.html", report.to_html)):
        text = write(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text == write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.md"]


# --- harmless text ------------------------------------------------------------------------------------------


def test_markdown_shows_hostile_text_as_text(hostile):
    text = hostile.to_markdown()
    assert re.search(r"(?<!\\)<script", text) is None
    assert "\\<script\\>" in text
    assert "sex\\|column" in text
    table = text.split("#### Gaps between the groups\n")[1].split("###")[0].strip().splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {8}  # seven cells, whatever the labels


@pytest.mark.parametrize(
    "address", ["https://evil.example/x", "HTTP://evil.example", "WWW.evil.example", "a@b.co"]
)
def test_markdown_makes_no_link_of_an_address_in_the_data(report, address):
    """What GitHub links by itself: a scheme with ://, www., and e-mail addresses."""
    named = dataclasses.replace(report, title=address, warnings=(address,))
    text = named.to_markdown()
    assert re.search(r"(?i)https?://|ftp://|www\.|\w@\w", text) is None
    assert address in text.replace("\\", "").replace("\u2060", "")


def test_the_page_is_self_contained_and_escapes_everything(hostile):
    page = hostile.to_html()
    assert page.count("<script>") == 1  # ours
    assert "document.title=" not in re.sub(r"(&lt;script&gt;|onerror=)document.title=", "", page)
    assert "<img" not in page
    assert "unsafe-inline" not in page
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?+(?![#x])[^\s>]""", page) == []
    assert "http://" not in page
    assert "https://" not in page
    assert page.startswith("<!doctype html>")
    for name in (SCRIPT, QUOTES):
        assert name in text_of(page)


def test_a_long_name_does_not_bury_the_message(hostile):
    for text in (hostile.to_html(), hostile.to_markdown()):
        assert ENDLESS[:100] not in text_of(text)
    assert "was fitted on these rows" in text_of(hostile.to_html())


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


# --- the first screen ---------------------------------------------------------------------------------------


def test_the_first_screen_is_warnings_then_headline_then_verdict_then_one_table(report):
    screen = first_screen_of(report.to_html())
    text = text_of(screen)
    order = [
        *report.warnings,
        report.headline,
        "Stated limit",
        "sex: holds for",
        "embedding AUC of",
    ]
    places = [text.index(line) for line in order]
    assert places == sorted(places)
    assert screen.count("<table>") == 1
    assert "<svg viewBox" not in screen, "figures come later"


def test_the_one_table_sets_every_model_beside_plain_pca_raw_data_and_guessing(report):
    table = first_screen(report).overview
    assert [plain(name) for name in table.header] == [
        "embedding", "AUC of sex", "AUC of race, average of 5 groups", "variance kept", "task score (AUC)",
    ]  # fmt: skip
    names = [row[0].value for row in table.rows]
    assert names == ["guarded PCA", "the paper's method", "plain PCA (k=10)", "raw data", "guessing"]
    strongest = report.models[0].leaks[0].attack.strongest.auc
    cell = table.rows[0][1]
    assert cell.value == f"{strongest.value:.3f}"
    assert cell.beside == f"{strongest.low:.3f}–{strongest.high:.3f}"
    assert cell.verdict == report.models[0].leaks[0].verdict.answer
    assert table.rows[-1][1:] == ("0.500", "0.500", "–", "0.500")


def test_without_a_limit_there_is_no_verdict_and_the_page_says_so(report):
    models = tuple(
        dataclasses.replace(
            model, leaks=tuple(dataclasses.replace(leak, verdict=None) for leak in model.leaks), answer=None
        )
        for model in report.models
    )
    free = dataclasses.replace(report, models=models, limit=None, headline="")
    for text in (text_of(free.to_html()), free.to_markdown()):
        assert "No limit was stated" in text
        assert "does not hold" not in text.split("Words used in this report")[0]
    assert "Stated limit" in text_of(report.to_html())


def test_one_model_gets_the_reason_of_its_verdict(report):
    alone = dataclasses.replace(report, models=(report.models[0], report.models[-1]))
    (sex, race) = first_screen(alone).answers
    assert (sex.told, race.told) == ("holds", "cannot tell")
    assert sex.says == [report.models[0].leaks[0].verdict.sentence]


def test_one_answer_for_all_embeddings_cannot_be_misread(report):
    def answered(answer):
        models = [
            dataclasses.replace(
                model,
                leaks=tuple(
                    dataclasses.replace(leak, verdict=dataclasses.replace(leak.verdict, answer=answer))
                    for leak in model.leaks
                ),
            )
            for model in report.models
        ]
        found = first_screen(dataclasses.replace(report, models=tuple(models))).answers[0]
        reasons = [model.leaks[0].verdict.sentence for model in report.models if model.role == "model"]
        assert [told.split(": ", 1)[1] for told in found.says] == reasons
        return found.told

    assert answered("holds") == "holds for every embedding"
    assert answered("does not hold") == "does not hold for any embedding"
    assert answered("cannot tell") == "cannot tell for any embedding"


def test_two_embeddings_with_different_verdicts_get_one_each_in_their_order(report):
    found = [(one.attribute, one.answer, plain(one.told)) for one in first_screen(report).answers]
    assert found[0] == ("sex", "holds", "holds for A · guarded PCA")
    assert found[1] == ("sex", "does not hold", "does not hold for B · the paper's method")
    reasons = [model.leaks[0].verdict.sentence for model in report.models[:2]]
    assert [one.says for one in first_screen(report).answers[:2]] == [[reason] for reason in reasons]


def test_if_embeddings_are_many_the_headline_counts_those_that_are_not_clearly_better_than_plain_pca():
    many = first_screen(example_report(9))
    assert plain(many.headline) == (
        "4 of 8 embeddings do not hide race clearly better than plain PCA does, as far as these rows tell; "
        "A · guarded PCA hides it best, at AUC 0.685 (for Black, the group it reads best). "
        "4 of 8 embeddings hide sex little better than plain PCA does, as far as these rows tell; "
        "A · guarded PCA hides it best, at AUC 0.634."
    )
    assert many.answers[0].says == ["Does not hold: B, D, F, H.", "Holds: A, C, E, G."]


def test_an_average_over_groups_is_called_one_and_stands_above_the_group_that_is_read_best(report):
    """A limit of 0.65 is broken by an average of 0.63 if one group is read at 0.66."""
    first = first_screen(report)
    assert [plain(name) for name in first.overview.header[1:3]] == [
        "AUC of sex",
        "AUC of race, average of 5 groups",
    ]
    sex, race = first.overview.rows[0][1:3]
    assert sex.beside == "0.626–0.642"
    assert plain(race.beside) == "0.647–0.663\nBlack: 0.685"
    assert "0.647–0.663; Black: 0.685" in plain(report.to_markdown())
    assert "A limit is for each of them." in first.caveat
    drawn = [panel.wide for part in sections(report)[0].parts if part.figure for panel in part.figure.panels]
    words = [{label.text for label in drawing.labels} for drawing in drawn]
    assert {"limit 0.65", "AUC of the strongest attacker"} <= words[0]
    assert {"limit 0.65 for each group", "AUC of the strongest attacker, average of 5 groups"} <= words[1]


def test_if_embeddings_are_many_costs_and_four_fifths_take_a_sentence_each():
    said = {
        section.key: [plain(t) for p in section.parts for t in p.says]
        for section in sections(example_report(9))
    }
    costs = [line for line in said["frontier"] if "cost" in line]
    assert costs == [
        "The cost, as a share of the variance that plain PCA keeps with as many components: A 38%, B 10%, "
        "C 38%, D 10%, E 38%, F 10%, G 38%, H 10%."
    ]
    below = [line for line in said["decisions"] if line.startswith("Below four fifths")]
    assert len(below) == 3
    assert "Black at 0.46 for every embedding" in below[1].replace("0.46 to 0.46", "0.46")


def test_an_attribute_that_was_not_audited_cannot_be_told(report):
    unaudited = dataclasses.replace(report.data.attributes[0], attribute="religion", groups={})
    data = dataclasses.replace(report.data, attributes=(*report.data.attributes, unaudited))
    *_, last = first_screen(dataclasses.replace(report, data=data)).answers
    assert (last.attribute, last.told) == ("religion", "cannot tell")
    assert "not audited" in last.says[0]
    assert all(one.attribute != "religion" for one in first_screen(report).answers)


def test_models_that_could_not_be_attacked_are_shown_without_numbers(report):
    leaks = tuple(dataclasses.replace(leak, attack=None, rounding=None) for leak in report.models[0].leaks)
    models = (dataclasses.replace(report.models[0], leaks=leaks), *report.models[1:])
    odd = dataclasses.replace(report, models=models)
    assert first_screen(odd).overview.rows[0][1] == Cell("–", "too few rows", "holds")
    assert "guarded PCA" in odd.to_html()


# --- one measure, one number --------------------------------------------------------------------------------


def test_one_measure_is_used_throughout(report):
    for text in (text_of(report.to_html()), report.to_markdown()):
        assert "AUC" in text
        assert re.search(r"accurac|\bprobe", text) is None


def test_the_strongest_attackers_auc_is_the_same_in_every_table(report):
    by_title = {
        plain(part.table.title): part.table
        for section in sections(report)
        for part in section.parts
        if part.table
    }
    overview = [(row[1].value, row[1].beside) for row in first_screen(report).overview.rows[:3]]
    curve = [
        (row[-2].value, row[-2].beside) for row in by_title["AUC of sex by the attacker's rows"].rows[:3]
    ]
    spots = [(row[1].value, row[1].beside) for row in by_title["Variance kept and AUC of sex"].rows]
    strongest = [
        (row[-1].value, row[-1].beside)
        for row in by_title["Every attacker of sex"].rows
        if row[1].startswith("strongest")
    ]
    assert overview == curve == spots == strongest[:3]


def test_headings_and_words_need_no_explanation(report):
    page = report.to_html()
    assert "Where the groups are in the embedding" in page
    for word in ("How the groups lie", "A task on top", "Δ", "heteroscedastic"):
        assert word not in page


def test_a_gap_within_noise_is_no_share_of_pcas(report):
    def with_gap(*, beyond):
        leak = report.models[0].leaks[0]
        noise = dataclasses.replace(leak.gaps[0].mean_gap_noise, beyond=beyond)
        gap = dataclasses.replace(
            leak.gaps[0], mean_gap_relative=1.379, mean_gap_noise=noise, second_moment_gap_noise=noise
        )
        changed = dataclasses.replace(report.models[0], leaks=(dataclasses.replace(leak, gaps=(gap,)),))
        return dataclasses.replace(report, models=(changed,))

    luck, real = with_gap(beyond=False), with_gap(beyond=True)
    assert "137.9%" not in luck.to_markdown() + luck.to_html()
    assert luck.to_markdown().count("(within noise)") == 2
    assert "137.9% of plain PCA's" in real.to_markdown()
    assert "(within noise)" not in real.to_markdown()


def test_a_gap_without_a_floor_is_read_by_its_p_value(report):
    leak = report.models[0].leaks[0]
    bare = {"mean_gap_noise": None, "second_moment_gap_noise": None, "mean_gap_relative": 1.379}
    for p_value, expected in ((0.455, "within noise"), (0.005, "137.9% of plain PCA's")):
        gap = dataclasses.replace(leak.gaps[0], mmd2_p_value=p_value, **bare)
        changed = dataclasses.replace(report.models[0], leaks=(dataclasses.replace(leak, gaps=(gap,)),))
        assert f"({expected})" in dataclasses.replace(report, models=(changed,)).to_markdown()


# --- what follows -------------------------------------------------------------------------------------------


def test_the_page_and_markdown_hold_the_same_sentences_and_tables(report):
    page = text_of(report.to_html())
    markdown = plain(report.to_markdown()).replace("\\", "")
    cells = 0
    for section in sections(report):
        assert section.heading in page
        assert f"## {section.heading}" in markdown
        for part in section.parts:
            for line in part.says:
                assert plain(line) in page
                assert plain(line) in markdown
            for row in part.table.rows if part.table else ():
                for cell in (Cell(value) if isinstance(value, str) else value for value in row):
                    for text in filter(None, (cell.value, cell.beside)):
                        cells += 1
                        assert " ".join(plain(text).split()) in page
                        assert " ".join(plain(text).split()) in markdown
    assert cells > 500


def test_each_trend_is_said_in_plain_words(report):
    text = text_of(report.to_html())
    assert "B · the paper's method: still rising: an attacker with more rows would learn more." in text
    assert "were fitted on 32,561 rows and scored on 16,281 rows" in text


def test_the_decision_view_shows_every_group_with_intervals_and_four_fifths(report):
    (section,) = (section for section in sections(report) if section.key == "decisions")
    titles = [plain(part.title) for part in section.parts if part.title]
    assert titles == ["sex", "race", "sex and race"], "intersections come last"
    table = next(part.table for part in section.parts if part.title and plain(part.title) == "race")
    row = dict(zip(table.header, table.rows[2], strict=True))
    assert (row["group"], row["four fifths"]) == ("Black", "below")
    assert row["selection rate"] == Cell("12.0%", "10.0%–14.0%")
    assert row["ratio to the group selected most often"].beside == "0.41–0.51"
    assert plain(section.parts[4].says[0]).endswith(
        "plain PCA (k=10): below four fifths of the rate of Asian-Pac-Islander: Amer-Indian-Eskimo at 0.42 "
        "(0.37 to 0.47), Black at 0.46 (0.41 to 0.51), Other at 0.54 (0.49 to 0.59). These rows cannot "
        "tell for White."
    )


def test_what_was_removed_is_said_in_words(report):
    text = text_of(report.to_html())
    assert report.models[0].removed in text
    assert "mostly relationship=Wife" in text


def test_a_leak_through_rounding_is_not_folded_away(report):
    rounding = [part for part in sections(report)[0].parts if part.title == "Leaks through rounding"]
    assert not rounding[0].folded
    quiet = dataclasses.replace(report, models=(report.models[0], report.models[-1]))
    rounding = [part for part in sections(quiet)[0].parts if part.title == "Leaks through rounding"]
    assert rounding[0].folded


def test_date_files_digests_call_versions_and_seeds_are_there(report):
    for text in (text_of(report.to_html()), report.to_markdown().replace("\\", "")):
        for wanted in (
            "2026-01-31 09:30:00 UTC", "unseen.parquet", "adult.parquet", "1f" * 32, "3d" * 32,
            'attack="strong"', "fairstream audit model.safetensors", "scikit-learn 1.7.0", "random_state 0",
            "about 12.0% (9.0% to 16.0%) of the audited rows",
        ):  # fmt: skip
            assert wanted in text


def test_there_is_a_line_for_name_role_and_date(report):
    for text in (text_of(report.to_html()), report.to_markdown()):
        signed = text[text.rindex("Sign-off") :]
        assert all(line in signed for line in ("Name", "Role", "Date", "Signature"))


def test_every_word_of_the_glossary_is_used_and_every_key_word_is_explained(report):
    for made in (report, dataclasses.replace(report, floors=(), frontier=(), raw_task=None)):
        glossary = sections(made)[-1]
        words = {row[0] for row in glossary.parts[0].table.rows}
        page = text_of(made.to_html())
        before = page[: page.rindex("Words used in this report")].lower()
        explanations = " ".join(row[1] for row in glossary.parts[0].table.rows).lower()
        for word in words:
            assert word.lower() in before + explanations
        for word in GLOSSARY:
            if word.lower() in before:
                assert word in words
    assert {"AUC", "attacker", "embedding", "noise floor", "four fifths", "MMD²", "digest"} <= words


def test_a_word_that_is_not_used_is_not_explained(report):
    models = tuple(dataclasses.replace(model, decisions=None) for model in report.models)
    words = {row[0] for row in sections(dataclasses.replace(report, models=models))[-1].parts[0].table.rows}
    assert "selection rate" not in words
    assert "AUC" in words


# --- figures ------------------------------------------------------------------------------------------------


def overlapping(labels):
    """Return pairs of labels whose boxes overlap."""
    return [
        (one.text, other.text)
        for one, other in itertools.combinations(labels, 2)
        if one.box[0] < other.box[2]
        and other.box[0] < one.box[2]
        and one.box[1] < other.box[3]
        and other.box[1] < one.box[3]
    ]


def spots_at(*places):
    looks = [
        Series(f"a model with a name {letter}", letter, "series-0", lettered=True) for letter in "ABCDEFGHI"
    ]
    return [
        Spot(look, kept, Estimate(auc, auc, auc)) for look, (auc, kept) in zip(looks, places, strict=False)
    ]


def test_an_embedding_that_another_one_beats_is_grey():
    drawing = frontier_figure("sex", spots_at((0.8, 0.5), (0.9, 0.4), (0.6, 0.3)), None, narrow=False)
    assert [mark.style for mark in drawing.marks] == ["series-0", "dominated", "series-0"]
    assert "another embedding keeps as much and gives away less" in drawing.marks[1].tip
    (edge,) = (path for path, style in drawing.paths if style == "edge")
    xs = [float(corner.split(",")[0]) for corner in edge[1:].split("L")]
    assert len(xs) == 2, "the line leaves it out"
    assert xs == sorted(xs)


@pytest.mark.parametrize("narrow", [False, True])
def test_labels_of_the_frontier_do_not_overlap(narrow):
    crowded = spots_at(*[(0.7 + i / 500, 0.3 + i / 300) for i in range(9)])
    drawing = frontier_figure("sex", crowded, 0.65, narrow=narrow)
    labels = [mark.label for mark in drawing.marks if mark.label]
    assert len(labels) == 9, "all find room"
    assert overlapping(labels) == []
    assert overlapping([labels[0], labels[0]]) != [], "the check sees an overlap"


@pytest.mark.parametrize("narrow", [False, True])
def test_labels_of_the_curve_do_not_overlap(narrow):
    points = [(n_rows, Estimate(0.8, 0.78, 0.82)) for n_rows in (500, 1000, 2000)]
    curves = [(Series(f"model {i}", f"{i}", "series-0"), points) for i in range(11)]
    drawing = curve_figure("sex", curves, 0.65, narrow=narrow)
    names = [label for label in drawing.labels if "name" in label.style]
    assert len(names) == 11
    assert overlapping(names) == []
    assert all(label.box[2] <= drawing.width and label.box[1] >= 0 for label in names)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("aucs", "in_gap"), [((0.62, 0.70, 0.95, 0.98), 2), ((0.95, 0.90, 0.70, 0.62), 0)])
def test_the_word_of_the_limit_is_where_the_curves_are_far(aucs, in_gap, narrow):
    points = [(500 * 2**i, Estimate(auc, auc, auc)) for i, auc in enumerate(aucs)]
    drawing = curve_figure("sex", [(Series("model", "A", "series-0"), points)], 0.65, narrow=narrow)
    (word,) = (label for label in drawing.labels if label.style == "limit-label")
    assert drawing.marks[in_gap].x < word.x < drawing.marks[in_gap + 1].x


def test_a_map_of_five_groups_names_each_one_and_gives_it_its_own_shape(report):
    (view,) = (view for view in report.models[0].maps if view.attribute == "race")
    drawing = map_figure(view, "ours")
    labels = [mark.label for mark in drawing.marks]
    assert [plain(label.text) for label in labels] == [cloud.group for cloud in view.clouds]
    assert overlapping(labels) == []
    shapes = tuple(mark.shape for mark in drawing.marks)
    assert shapes == SHAPES[:5]
    assert len({mark.style for mark in drawing.marks}) == 5
    assert drawing.clouds == [], "discs of five groups would hide each other"
    assert map_figure(report.models[0].maps[0], "ours").clouds != []


@pytest.mark.parametrize("narrow", [False, True])
def test_every_axis_has_a_title(report, narrow):
    curve = [
        (Series("ours", "A", "series-0"), [(10, Estimate(0.6, 0.5, 0.7)), (20, Estimate(0.6, 0.5, 0.7))])
    ]
    figures = [
        curve_figure("sex", curve, None, narrow=narrow),
        frontier_figure("sex", spots_at((0.8, 0.5), (0.9, 0.4)), None, narrow=narrow),
        map_figure(report.models[0].maps[0], "ours"),
    ]
    assert [sum("axis" in label.style for label in figure.labels) for figure in figures] == [2, 2, 2]


def test_nine_embeddings_have_nine_letters_and_nine_looks():
    given = [look for model, look in looks(example_report(10)) if model.role == "model"]
    assert [look.key for look in given] == [*"ABCDEFGHI"]
    assert len({(look.style, look.shape) for look in given}) == 9
