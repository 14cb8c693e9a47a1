"""The report as one self-contained page: verdict, headline and one table first, then the sections."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairstream.auditing.render.canvas import outline
from fairstream.auditing.render.figures import RADIUS
from fairstream.auditing.render.labels import clipped, shown, without_control_characters
from fairstream.auditing.render.sections import SIGN_OFF, first_screen, sections
from fairstream.auditing.report import Report

TONES = {"holds": "holds", "does not hold": "fails", "cannot tell": "unclear"}


def render_page(report: Report) -> str:
    """Return the whole page; it asks nothing of the network and works printed."""
    environment = _environment()
    style, script = (_whole_file(environment, name) for name in ("page.css", "page.js"))
    return environment.get_template("page.html.j2").render(
        report=report,
        facts=[*_facts(report)],
        first=first_screen(report),
        sections=sections(report),
        sign_off=SIGN_OFF,
        style=Markup(style),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@cache
def _environment() -> Environment:
    """Return templates that escape by construction: only `Markup` is markup."""
    environment = Environment(
        loader=PackageLoader("fairstream.auditing.render", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "clipped": clipped, "tone": lambda answer: TONES[answer]}
    environment.filters |= {"px": lambda value: f"{value:.1f}"}
    environment.globals |= {"outline": outline, "radius": RADIUS}
    return environment


def _whole_file(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _facts(report: Report) -> Iterator[str]:
    """Yield when and on what the audit was done."""
    made = report.reproduction
    yield made.date[:10]
    yield from (shown(file.name) for file in made.inputs if file.name and file.role == "audited rows")
    yield f"{report.data.n_rows:,} rows"
    yield f"{report.data.n_features:,} features"
    yield f"fairstream {report.fairstream_version}"
