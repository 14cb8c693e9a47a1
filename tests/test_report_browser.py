"""The page as a person sees it: headless Chromium, driven over its debugging pipe.

Nothing is installed here. Without a `chromium` (or the one FAIRSTREAM_CHROMIUM names) the tests are skipped.
"""

from __future__ import annotations

import base64
import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.svm import SVC
from support.browser import EXECUTABLE, Browser

from fairstream import FairStreamingPCA
from fairstream.auditing import audit
from fairstream.auditing.measure import downstream

NO_BROWSER = EXECUTABLE is None or sys.platform == "win32"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NO_BROWSER, reason="no chromium on this machine: apt-get install chromium"),
]

SCRIPT = "<script>document.title='owned'</script>"
QUOTES = "\"'><img src=x onerror=document.title='owned'>"
RIGHT_TO_LEFT = "\u202eevil \u05e9\u05dc\u05d5\u05dd"
ENDLESS = "W" * 10_000
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
  const read = "h1,h2,h3,h4,p,li,td,th,dt,dd,a,summary,strong,.bar-name,.badge,svg text";
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
  if (node.closest(".scroll, nav, pre") || node.closest(".skip")) return false;
  const box = node.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((node) => node.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driven = Browser(tmp_path_factory.mktemp("profile"))
    yield driven
    driven.close()


def make_report(attribute, labels, names, features):
    rng = np.random.default_rng(0)
    n_rows, d = 500, 8
    sex = rng.integers(0, 2, size=n_rows)
    X = rng.normal(size=(n_rows, d)) * np.linspace(3, 1, d)
    X[:, 0] += 5 * sex
    X[:, 1] *= np.where(sex, 3.0, 1.0)
    groups = {attribute: np.array(labels, dtype=object)[sex]}
    fit, held_out = slice(0, 250), slice(250, None)
    part = {attribute: groups[attribute][fit]}
    ours = FairStreamingPCA(3, n_unfair=2).fit(X[fit], sensitive_features=part)
    import pandas as pd

    frame = pd.DataFrame(X[held_out], columns=features)
    models = {names[0]: ours, names[1]: PCA(3).fit(X[fit])}
    rest = {attribute: groups[attribute][held_out]}
    y = (X[held_out, 3] > 0).astype(int)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downstream, "classifiers", lambda: {"kernel SVM": SVC(gamma=1)})
        return audit(models, frame, rest, y, probes=["linear", "quadratic"], n_permutations=9)


@pytest.fixture(scope="module")
def report():
    features = [f"feature {j}" for j in range(8)]
    return make_report("sex", ["female", "male"], ["ours", "PCA, fitted elsewhere"], features)


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.to_html(path)
    return path


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    features = [SCRIPT, QUOTES, RIGHT_TO_LEFT, ENDLESS, "a", "b", "c", "</svg></style></script>"]
    report = make_report(ENDLESS, [SCRIPT, RIGHT_TO_LEFT], [QUOTES, ENDLESS + "2"], features)
    path = tmp_path_factory.mktemp("page") / "hostile.html"
    report.to_html(path)
    return path


def test_every_section_is_there_and_nothing_is_asked_of_the_network(browser, page):
    browser.open(page)
    sections = browser.run("[...document.querySelectorAll('main section')].map((s) => s.id)")
    expected = ["summary", "leaks", "cost", "maps", "gaps", "removed", "downstream", "groups", "reproduce"]
    assert sections == expected
    assert browser.run("document.querySelectorAll('nav a').length") == len(expected) - 1
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


def test_the_guards_see_a_page_that_misbehaves(browser, tmp_path):
    """The control: a request, a console error, an overflow and grey on grey must all be noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><body style='background:#888'><p style='color:#999'>grey</p>"
        "<div style='width:9000px'>wide</div><img src='missing.png'><script>console.error('no')</script>"
    )
    browser.open(bad)
    assert browser.complaints() != []
    assert browser.requests() != [bad.as_uri()]
    assert browser.run(OVERFLOWING) != []
    assert browser.run(LUMINANCE)[0] < 2


def test_hovering_over_the_frontier_shows_the_numbers_of_that_point(browser, page, report):
    browser.open(page)
    chosen = next(p for p in report.frontier if (p.directions, p.n_unfair) == ("absolute", 1))
    marks = "[...document.querySelectorAll('#cost .wide [data-tip]')]"
    position = browser.run(
        f"{marks}.findIndex((m) => m.dataset.tip.startsWith('absolute directions, m = 1\\n'))"
    )
    dot = f"{marks}[{position}].querySelector('circle')"
    browser.run(f"{dot}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.run(f"(({dot}).getBoundingClientRect()).toJSON()")
    assert browser.run("document.getElementById('tip').hidden")
    browser.move_to(box["x"] + box["width"] / 2 + 1, box["y"] + box["height"] / 2 + 1)
    shown = browser.run("document.getElementById('tip').innerText")
    assert "absolute directions, m = 1" in shown
    assert f"explained variance {chosen.explained_variance:.1%}" in shown
    assert f"({chosen.second_moment_gap_relative:.1%} of PCA's)" in shown
    browser.move_to(2, 2)
    assert browser.run("document.getElementById('tip').hidden")


def test_the_frontier_can_be_read_with_the_keyboard(browser, page):
    browser.open(page)
    browser.run("document.querySelector('#cost .wide [data-tip]').focus()")
    assert "plain PCA" in browser.run("document.getElementById('tip').innerText")
    assert browser.run("document.querySelectorAll('svg:not([aria-label])').length") == 0
    assert browser.run("document.querySelectorAll('#cost .wide [data-tip]:not([aria-label])').length") == 0
    assert browser.run("document.querySelectorAll('#cost details table, #leaks details table').length") == 2


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_all_text_is_legible(browser, page, hostile_page, width, scheme):
    for path in (page, hostile_page):
        browser.open(path, width=width, scheme=scheme)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(OVERFLOWING) == []
        contrast, text = browser.run(LUMINANCE)
        assert contrast >= 4.5, text


def test_dark_mode_is_dark(browser, page):
    grounds = []
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, ground[4:-1].split(","))) for ground in grounds)
    assert light > 600
    assert dark < 150


def test_hostile_labels_are_shown_as_text(browser, hostile_page):
    browser.open(hostile_page)
    assert browser.run("document.title") == "Fairness audit"
    assert browser.run("document.querySelectorAll('img, main script').length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [hostile_page.as_uri()]
    body = browser.run("document.body.innerText")
    assert SCRIPT in body
    assert QUOTES in body
    assert "W" * 100 not in body
    assert browser.run("document.querySelectorAll('main section').length") == 9


def test_a_printed_page_keeps_its_tables(browser, page):
    browser.open(page)
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=False)["data"])
    assert printed.startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
