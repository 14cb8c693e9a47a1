"""The site as a person sees it: every page in headless Chromium, on a phone and on a desktop, and every link.

`make docs` builds the site. Without it, or without a browser, the tests are skipped.
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.browser import EXECUTABLE, Browser

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
DOORS = [f"{door}/index.html" for door in ("start", "howto", "understand", "reference", "evidence")]
PAGES = sorted(SITE.rglob("*.html")) if (SITE / "index.html").exists() else []
PAGES = [page for page in PAGES if "_static" not in page.parts and "_downloads" not in page.parts]
HERE = ("file:", "data:", "about:", "blob:")
WIDTHS = {"phone": 390, "desktop": 1440}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGES, reason="the site is not built: make docs"),
    pytest.mark.skipif(
        EXECUTABLE is None or sys.platform == "win32",
        reason="no chromium on this machine: apt-get install chromium",
    ),
]
TOO_WIDE = """
document.documentElement.scrollWidth > innerWidth + 1 ? [...document.querySelectorAll("body *")].filter(
  (node) => node.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map(
  (node) => node.outerHTML.slice(0, 160)) : []
"""
BROKEN_IMAGES = """
[...document.images].filter((image) => image.loading !== "lazy" && !(image.complete && image.naturalWidth))
  .map((image) => image.src)
"""


class Links(HTMLParser):
    """The links of a page, and the places in it that a link can point to."""

    def __init__(self):
        super().__init__()
        self.links, self.places = [], set()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(found[name])


def links_of(page):
    parser = Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def parsed():
    return {page.resolve(): links_of(page) for page in PAGES}


def broken(page, parsed):
    """The links of a page that lead to no file of the site, or to no place in it."""
    wrong = []
    for link in parsed[page.resolve()].links:
        parts = urlsplit(link)
        if parts.scheme or link.startswith("//"):
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
        if not target.exists() or (
            parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].places
        ):
            wrong.append(link)
    return wrong


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def test_every_internal_link_of_every_page_leads_somewhere(parsed):
    wrong = {str(page.relative_to(SITE)): found for page in PAGES if (found := broken(page, parsed))}
    assert not wrong


def test_a_link_to_nowhere_is_seen(parsed):
    page = SITE / "index.html"
    parser = links_of(page)
    parser.links += ["no-such-page.html", "#no-such-place", "start/index.html#no-such-place"]
    known = {**parsed, page.resolve(): parser}
    assert broken(page, known) == ["no-such-page.html", "#no-such-place", "start/index.html#no-such-place"]


def test_every_page_can_be_reached_from_the_front_page(parsed):
    seen, waiting = set(), [(SITE / "index.html").resolve()]
    while waiting:
        page = waiting.pop()
        if page in seen or page not in parsed:
            continue
        seen.add(page)
        paths = [urlsplit(link).path for link in parsed[page].links if not urlsplit(link).scheme]
        waiting += [(page.parent / unquote(path)).resolve() for path in paths if path]
    assert not [str(page.relative_to(SITE)) for page in PAGES if page.resolve() not in seen]


def faults(browser):
    """What is wrong with the page that is open, as short lines."""
    wide = [f"too wide: {node}" for node in browser.run(TOO_WIDE)]
    images = [f"no image: {address}" for address in browser.run(BROKEN_IMAGES)]
    asked = [f"asks {url}" for url in browser.requests() if not url.startswith(HERE)]
    said = []
    for event in browser.complaints():
        told = event["params"]
        level = told.get("entry", {}).get("level") or told.get("type") or "error"  # an exception has no level
        if level in ("error", "assert", "warning"):
            said.append(f"{level}: {json.dumps(told)[:300]}")
    return wide + images + asked + said


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_no_page_scrolls_sideways_complains_or_asks_the_network(browser, width):
    wrong = []
    for page in PAGES:
        browser.open(page, width=width)
        wrong += [f"{page.relative_to(SITE)}: {fault}" for fault in faults(browser)]
    assert not wrong, "\n".join(wrong)


def test_a_page_that_is_too_wide_is_seen(browser, tmp_path):
    page = tmp_path / "wide.html"
    page.write_text("<!doctype html><p style='width: 2000px'>wide</p><script>throw Error('x')</script>")
    browser.open(page, width=390)
    assert [fault.split(":")[0] for fault in faults(browser)] == ["too wide", "error"]


def test_the_front_page_has_five_doors(browser):
    browser.open(SITE / "index.html")
    links = browser.run(
        '[...document.querySelectorAll("article a")].map((link) => link.getAttribute("href"))'
    )
    assert [link for link in dict.fromkeys(links) if link in DOORS] == DOORS


def test_search_works_without_a_network(browser):
    browser.open(SITE / "search.html", query="?q=dither")
    assert browser.wait_for('document.querySelectorAll("ul.search li").length >= 3')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scheme_of_the_system_is_taken(browser, scheme):
    browser.open(SITE / "index.html", scheme=scheme)
    light = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 127")
    assert light == (scheme == "light")
