"""The report as one self-contained page: plain sentences first, then figures, each with its table."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairstream.auditing.render import tables
from fairstream.auditing.render.figures import (
    Drawing,
    Series,
    frontier_figure,
    map_figure,
    placed_models,
    probe_figure,
)
from fairstream.auditing.render.labels import (
    LONGEST_NAME,
    breakable,
    cell,
    clipped,
    shown,
    without_control_characters,
)
from fairstream.auditing.render.summary import CAVEAT, findings, raw_control
from fairstream.auditing.report import ProbeResult, Report

N_SERIES = 5
N_DIRECTIONS = 3
N_WEIGHTS = 6
HEADINGS = {
    "leaks": "What can still be guessed",
    "cost": "What fairness costs",
    "maps": "Where the groups are in the embedding",
    "gaps": "Gaps between the groups",
    "removed": "What was removed",
    "downstream": "Predicting the target from the embedding",
    "groups": "Group by group",
    "reproduce": "How to reproduce this report",
}


def render_page(report: Report) -> str:
    """Return the whole page; it asks nothing of the network and works printed."""
    environment = _environment()
    style, script = (_whole_file(environment, name) for name in ("page.css", "page.js"))
    looks = _series(report)
    placed = placed_models(report, looks)
    context: dict[str, Any] = {
        "report": report,
        "models": [pair for pair in zip(report.models, looks, strict=True) if pair[0].role == "model"],
        "placed": [spot.series for spot in placed],
        "warnings": [*_warned(report)],
        "findings": findings,
        "shown": shown,
        "caveat": CAVEAT,
        "probed": {raw.attribute: [*_probed(report, looks, raw.attribute)] for raw in report.raw},
        "frontier": _both_widths(frontier_figure(report.frontier, placed, narrow=n) for n in (False, True)),
        "probe_figures": lambda attribute, results: _both_widths(
            probe_figure(attribute, results, narrow=narrow) for narrow in (False, True)
        ),
        "map_figure": map_figure,
        "tables": tables,
        "n_directions": N_DIRECTIONS,
        "n_weights": N_WEIGHTS,
    }
    filled = {
        "leaks": any(probes for results in context["probed"].values() for _, probes in results),
        "cost": context["frontier"] is not None,
        "maps": any(model.maps for model in report.models),
        "gaps": bool(tables.gap_table(report).rows),
        "removed": any(model.directions for model in report.models),
        "downstream": bool(tables.downstream_table(report).rows),
    }
    return environment.get_template("page.html.j2").render(
        context,
        headings={key: heading for key, heading in HEADINGS.items() if filled.get(key, True)},
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
    environment.filters |= {"shown": shown, "clipped": clipped, "breakable": breakable, "cell": cell}
    environment.filters |= {"px": lambda value: f"{value:.1f}", "sentence": lambda s: s[:1].upper() + s[1:]}
    return environment


def _whole_file(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _series(report: Report) -> list[Series]:
    """Give every model a colour: numbered for models, one grey for the controls."""
    looks, n_models = [], 0
    for model in report.models:
        style = "control" if model.role == "control" else f"series-{n_models % N_SERIES}"
        looks.append(Series(model.name, style))
        n_models += model.role == "model"
    return looks


def _warned(report: Report) -> Iterable[str]:
    """Return the warnings with long names clipped: a name must not bury the message."""
    for line in report.warnings:
        for name in (model.name for model in report.models if len(model.name) > LONGEST_NAME):
            line = line.replace(name, shown(name))
        yield clipped(line)


def _probed(
    report: Report, looks: Sequence[Series], attribute: str
) -> Iterable[tuple[Series, tuple[ProbeResult, ...]]]:
    """Yield the raw data and plain PCA first, as the scale to read the models by, then the models."""
    raw = raw_control(report, attribute)
    if raw is not None:
        yield Series("raw data", "raw"), raw.probes
    pairs = [*zip(report.models, looks, strict=True)]
    for model, series in sorted(pairs, key=lambda pair: pair[0].role != "control"):
        for leak in model.leaks:
            if leak.attribute == attribute:
                yield series, leak.probes


def _both_widths(figures: Iterable[Drawing | None]) -> tuple[Drawing, ...] | None:
    """Return a figure for a desk and one for a phone; only one is displayed, so that letters never shrink."""
    drawn = tuple(figure for figure in figures if figure is not None)
    return drawn or None
