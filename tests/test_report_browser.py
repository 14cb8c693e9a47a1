"""The page as a person sees it: headless Chromium, driven over its debugging pipe.

Nothing is installed here. Without a `chromium` (or the one FAIRSTREAM_CHROMIUM names) the tests are skipped.
"""

from __future__ import annotations

import base64
import itertools
import re
import sys

import pytest
from support.browser import EXECUTABLE, Browser
from support.example_report import example_report
from support.hostile_report import QUOTES, SCRIPT, hostile_report

NO_BROWSER = EXECUTABLE is None or sys.platform == "win32"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NO_BROWSER, reason="no chromium on this machine: apt-get install chromium"),
]

A4_BETWEEN_MARGINS = 688  # pixels: 210 mm less 14 mm on both sides
SECTIONS = [
    "summary", "attack", "frontier", "removed", "maps", "gaps", "floors", "decisions", "data", "reproduce",
    "glossary", "sign-off",
]  # fmt: skip
LUMINANCE = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      const s = v / 255;
      return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const worst = [];
  const read = "h1,h2,h3,p,li,td,th,dt,a,summary,strong,small,caption,figcaption,pre,.chip,.value,svg text";
  for (const node of document.querySelectorAll(read)) {
    if (!node.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = light(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const paper = light(ground(node));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    worst.push([contrast, node.textContent.slice(0, 40)]);
  }
  return worst.sort((a, b) => a[0] - b[0])[0];
})()
"""
OVERFLOWING = """
[...document.querySelectorAll("body *")].filter((node) => {
  if (node.parentElement.closest(".scroll, pre") || node.closest(".skip")) return false;
  const box = node.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((node) => node.outerHTML.slice(0, 120))
"""
OVERLAPPING = """
[...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
  const boxed = (text) => [text.textContent, text.getBoundingClientRect()];
  const texts = [...svg.querySelectorAll("text")].map(boxed);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return a.width && b.width && across > 1 && down > 4;  // boxes of letters include their line's leading
  }).map(([other]) => `${one} / ${other}`));
})
"""
CUT_OFF = """
[...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
  }).map((text) => text.textContent);
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driven = Browser(tmp_path_factory.mktemp("profile"))
    yield driven
    driven.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The example with three embeddings, with ten (nine and plain PCA), and with hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    reports = {"three": example_report(), "ten": example_report(10), "hostile": hostile_report()}
    for name, report in reports.items():
        report.to_html(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in reports}


@pytest.fixture(scope="module")
def page(pages):
    return pages["three"]


def test_every_section_is_there_and_nothing_is_asked_of_the_network(browser, page):
    browser.open(page)
    assert browser.run("[...document.querySelectorAll('main section')].map((s) => s.id)") == SECTIONS
    links = browser.run("[...document.querySelectorAll('nav a')].map((a) => a.hash)")
    assert links == [f"#{key}" for key in SECTIONS[1:]]
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


def test_the_guards_see_a_page_that_misbehaves(browser, tmp_path):
    """The control: a request, a console error, overflow, overlap and grey on grey must all be noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><body style='background:#888'><p style='color:#999'>grey</p>"
        "<svg role=img viewBox='0 0 90 90' width=90><text x=5 y=20>one</text><text x=9 y=20>two</text>"
        "<text x=80 y=60>cut off</text></svg>"
        "<div style='width:9000px'>wide</div><img src='missing.png'><script>console.error('no')</script>"
    )
    browser.open(bad)
    assert browser.complaints() != []
    assert browser.requests() != [bad.as_uri()]
    assert browser.run(OVERFLOWING) != []
    assert browser.run(OVERLAPPING) == ["one / two"]
    assert browser.run(CUT_OFF) == ["cut off"]
    assert browser.run(LUMINANCE)[0] < 2


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["three", "ten", "hostile"])
def test_nothing_overflows_and_all_text_is_legible(browser, pages, name, width, scheme):
    browser.open(pages[name], width=width, scheme=scheme)
    browser.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(OVERFLOWING) == []
    assert browser.run(CUT_OFF) == []
    contrast, text = browser.run(LUMINANCE)
    assert contrast >= 4.5, text


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", ["three", "ten"])
def test_texts_of_a_figure_do_not_overlap(browser, pages, name, width):
    browser.open(pages[name], width=width)
    assert browser.run("document.querySelectorAll('svg[role=img] text').length") > 100
    assert browser.run(OVERLAPPING) == []


def test_the_one_table_starts_on_the_first_screen(browser, page):
    browser.open(page, width=1440, height=900)
    assert browser.run("document.querySelector('#summary table').getBoundingClientRect().top") < 700
    assert browser.run("document.querySelector('.headline').getBoundingClientRect().bottom") < 700


def test_a_table_that_is_too_wide_scrolls_inside_its_own_frame(browser, pages):
    browser.open(pages["ten"], width=390)
    wide = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
    assert browser.run(f"{wide}.length") > 0
    assert browser.run(f"{wide}.every((box) => box.tabIndex === 0 && box.getAttribute('aria-label'))")
    browser.run(f"{wide}[0].scrollLeft = 200")
    left = browser.run(f"{wide}[0].querySelector('tbody th').getBoundingClientRect().left")
    assert 0 <= left < 30, "the names stay in sight"


def test_the_one_table_fits_a_phone_if_there_is_one_attribute(browser, page):
    browser.open(page, width=390)
    box = "document.querySelector('#summary .scroll')"
    beyond = f"{box}.scrollWidth - {box}.clientWidth"
    assert browser.run(beyond) > 0, "the control: two attributes are too wide"
    second = "#summary tr > :nth-child(3)"
    browser.run(f"document.querySelectorAll('{second}').forEach((cell) => cell.remove())")
    assert browser.run(beyond) <= 0


def test_the_page_can_be_read_with_the_keyboard(browser, page):
    browser.open(page)

    def press(key, code):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    press("Tab", 9)
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    seen = set()
    for _ in range(12):
        press("Tab", 9)
        seen.add(browser.run("document.activeElement.className || document.activeElement.tagName"))
        outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "the focus is visible"
    assert {"scroll", "A"} <= seen


def test_a_screen_reader_finds_landmarks_headings_tables_and_names_of_figures(browser, page):
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    nodes = [node for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    named = {}
    for node in nodes:
        named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert len(named[landmark]) == 1, landmark
    for role in ("region", "table", "image", "rowheader", "columnheader"):
        assert named[role]
        assert all(named[role]), role
    assert len(named["table"]) == browser.run("document.querySelectorAll('table').length")
    assert browser.run("document.querySelectorAll('h1').length") == 1
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    assert browser.run("document.querySelectorAll('th:not([scope])').length") == 0
    assert browser.run("document.documentElement.lang") == "en"


def test_a_verdict_is_told_in_words_not_by_colour_alone(browser, page):
    browser.open(page)
    cells = browser.run("[...document.querySelectorAll('#summary tbody .chip')].map((c) => c.textContent)")
    assert {re.sub(r"^\W+", "", cell) for cell in cells} == {"holds", "does not hold", "cannot tell"}
    assert {cell[0] for cell in cells} == {"✓", "✕", "?"}


def test_dark_mode_is_dark(browser, page):
    grounds = []
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, ground[4:-1].split(","))) for ground in grounds)
    assert light > 600
    assert dark < 150


def test_hostile_labels_are_shown_as_text(browser, pages):
    browser.open(pages["hostile"])
    assert browser.run("document.title") == SCRIPT
    assert browser.run("document.querySelectorAll('img, main script').length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [pages["hostile"].as_uri()]
    body = browser.run("document.body.innerText")
    assert SCRIPT in body
    assert QUOTES in body
    assert "W" * 100 not in body
    assert browser.run("[...document.querySelectorAll('main section')].map((s) => s.id)") == SECTIONS


def test_a_printed_page_keeps_its_tables_and_the_line_to_sign(browser, pages):
    for name in ("three", "ten"):
        browser.open(pages[name], width=A4_BETWEEN_MARGINS, scheme="dark")
        browser.call("Emulation.setEmulatedMedia", media="print")
        browser.run("window.dispatchEvent(new Event('beforeprint'))")
        assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
        for absent in ("nav", "summary", ".skip"):
            assert browser.run(f"getComputedStyle(document.querySelector('{absent}')).display") == "none"
        assert browser.run(OVERFLOWING) == [], "nothing is cut off"
        wide = (
            "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
        )
        assert browser.run(f"{wide}.map((box) => box.getAttribute('aria-label'))") == []
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        lines = browser.run(
            "[...document.querySelectorAll('.sign div')].map((d) => [d.innerText.trim(), d.offsetWidth])"
        )
        assert [text for text, _ in lines] == ["Name", "Role", "Date", "Signature"]
        assert all(width > 200 for _, width in lines)
        assert browser.run(LUMINANCE)[0] >= 4.5
        browser.run("window.dispatchEvent(new Event('afterprint'))")
        assert browser.run("document.querySelectorAll('details[open]').length") == 0
        printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=False)["data"])
        assert printed.startswith(b"%PDF")
        assert len(re.findall(rb"/Type /Page\b", printed)) > 5
