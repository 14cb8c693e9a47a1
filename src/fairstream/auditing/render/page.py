"""The report as one self-contained page: plain sentences first, then figures, each with its table."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template

from fairstream.auditing.render import text
from fairstream.auditing.render.figures import (
    Series,
    frontier_figure,
    map_figure,
    placed_models,
    probe_figure,
)
from fairstream.auditing.render.markup import Markup, breakable, join, shown, tag
from fairstream.auditing.render.summary import CAVEAT, findings, raw_control
from fairstream.auditing.report import Direction, EmbeddingMap, ModelReport, ProbeResult, Report

N_SERIES = 5
N_DIRECTIONS = 3
N_WEIGHTS = 6


def render_page(report: Report) -> str:
    """Return the whole page; it asks nothing of the network and works printed."""
    look = _series(report)
    sections = [
        ("summary", "", _summary(report, look)),
        ("leaks", "What still leaks", _leaks(report, look)),
        ("cost", "What fairness cost", _cost(report, look)),
        ("maps", "How the groups lie", _maps(report)),
        ("gaps", "Gaps between groups", _gaps(report)),
        ("removed", "What was removed", _removed(report)),
        ("downstream", "A task on top", _downstream(report)),
        ("groups", "Group by group", _groups(report)),
        ("reproduce", "To reproduce", _reproduce(report)),
    ]
    shown_sections = [(key, heading, body) for key, heading, body in sections if body]
    links = [tag("a", heading, href=f"#{key}") for key, heading, _ in shown_sections if heading]
    body = [
        tag(
            "section",
            tag("h2", heading) if heading else "",
            content,
            id=key,
            class_="card" if heading else "hero",
        )
        for key, heading, content in shown_sections
    ]
    script = _template("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_template("page.html")).substitute(
        title=join(report.title),
        facts=_facts(report),
        navigation=tag("nav", links, aria_label="Sections"),
        body=join(body),
        style=_template("page.css"),
        script=script,
        script_digest=digest,
        version=join(report.fairstream_version),
    )


def _series(report: Report) -> list[Series]:
    """Give every model a colour: numbered for models, one grey for the controls."""
    looks, n_models = [], 0
    for model in report.models:
        looks.append(
            Series(model.name, "control" if model.role == "control" else f"series-{n_models % N_SERIES}")
        )
        n_models += model.role == "model"
    return looks


def _facts(report: Report) -> Markup:
    data = report.data
    facts = [
        f"{data.n_rows:,} rows",
        f"{data.n_features:,} features",
        f"probes on {data.sample_rows:,} rows",
        f"fairstream {report.fairstream_version}",
    ]
    return tag("p", join(tag("span", fact) for fact in facts), class_="facts")


def _summary(report: Report, look: Sequence[Series]) -> Markup:
    warnings = [
        tag("p", tag("strong", "Read this first. "), line, class_="warning", role="alert")
        for line in _warned(report)
    ]
    said = [
        tag(
            "li",
            tag("strong", shown(model.name), class_=f"model-name {series.style}"),
            _paragraphs(report, model),
        )
        for model, series in zip(report.models, look, strict=True)
        if model.role == "model"
    ]
    bars = [_guess_bars(report, look, raw.attribute) for raw in report.raw]
    told = tag("div", tag("ul", said, class_="findings"), tag("p", CAVEAT, class_="caveat"), class_="told")
    figures = tag("div", bars, _kept_bars(report, look), class_="guesses")
    return join([warnings, tag("div", told, figures, class_="hero-grid")])


def _paragraphs(report: Report, model: ModelReport) -> list[Markup]:
    return [tag("p", line[0].upper() + line[1:]) for line in findings(report, model, shown)]


def _warned(report: Report) -> Iterable[str]:
    """Return the warnings with long names clipped: a name must not bury the message."""
    for line in report.warnings:
        for name in (model.name for model in report.models if len(model.name) > 60):
            line = line.replace(name, shown(name))
        yield line if len(line) < 600 else line[:599] + "…"


def _guess_bars(report: Report, look: Sequence[Series], attribute: str) -> Markup:
    """Draw how well the best probe guesses, as bars that start at pure chance."""
    rows = [(series, best) for series, probes in _probed(report, look, attribute) if (best := _best(probes))]
    if not rows:
        return Markup("")
    chance = rows[0][1].chance
    bars = []
    for series, best in rows:
        value = best.balanced_accuracy.value
        bars.append(_bar(series, max((value - chance) / (1 - chance), 0.0), f"{value:.2f}"))
    caption = f"Guessing {shown(attribute)}: balanced accuracy of the best probe"
    scale = tag(
        "p", tag("span", f"{chance:.2f} = pure guessing"), tag("span", "1 = certain"), class_="bar-scale"
    )
    return tag("figure", tag("figcaption", caption), bars, scale, class_="bars")


def _kept_bars(report: Report, look: Sequence[Series]) -> Markup:
    """Draw how much of the variance of plain PCA each model keeps."""
    bars = [
        _bar(series, min(model.explained_variance_relative, 1.0), f"{model.explained_variance_relative:.0%}")
        for model, series in zip(report.models, look, strict=True)
        if model.role == "model" and model.explained_variance_relative is not None
    ]
    caption = tag("figcaption", "Variance kept, of what plain PCA keeps")
    return tag("figure", caption, bars, class_="bars") if bars else Markup("")


def _bar(series: Series, fraction: float, value: str) -> Markup:
    fill = tag("span", style=f"width:{fraction * 100:.1f}%", class_="fill")
    name = tag("span", shown(series.name), class_="bar-name")
    bar = tag("span", fill, class_="track", aria_hidden="true")
    return tag("div", name, bar, tag("span", value, class_="bar-value"), class_=f"bar {series.style}")


def _leaks(report: Report, look: Sequence[Series]) -> Markup:
    intro = (
        "Each probe learns to recover the attribute from the embedding and is scored on rows it has not "
        "seen. 0.5 is a coin toss, 1 is certainty. "
        f"Lines are {report.parameters.get('level', 0.95):.0%} intervals, widened for shared training folds."
    )
    parts: list[Markup] = [tag("p", intro, class_="intro")]
    for raw in report.raw:
        results = [*_probed(report, look, raw.attribute)]
        if any(probes for _, probes in results):
            parts.append(tag("h3", shown(raw.attribute)))
            parts.append(_legend([series for series, _ in results]))
            figures = [probe_figure(raw.attribute, results, narrow=narrow) for narrow in (False, True)]
            parts.append(_both_widths(*figures))
            parts.append(_table(text.LEAK_HEADER, text.leak_rows(report, raw.attribute), "Probes", n_names=3))
    return join(parts) if len(parts) > 1 else Markup("")


def _cost(report: Report, look: Sequence[Series]) -> Markup:
    placed = placed_models(report, look)
    wide, narrow = (frontier_figure(report.frontier, placed, narrow=narrow) for narrow in (False, True))
    if wide is None or narrow is None:
        return Markup("")
    intro = (
        "Every point is another choice of how many unfair directions to remove, m, solved from the moments "
        f"of the {report.frontier_fitted_on} and measured on the audited data. Up is more variance, left is "
        "less gap. Rings mark the audited models. Hover, tap or tab for the values."
    )
    keys = [
        ("absolute", "absolute directions"),
        ("relative", "relative directions"),
        ("mean", "mean only"),
        ("none", "plain PCA"),
    ]
    legend = _legend([Series(label, style) for style, label in keys] + [spot.series for spot in placed])
    table = _table(text.FRONTIER_HEADER, text.frontier_rows(report), "Frontier", n_names=1)
    return join([tag("p", intro, class_="intro"), legend, _both_widths(wide, narrow), table])


def _maps(report: Report) -> Markup:
    parts: list[Markup] = []
    ordered = sorted(report.models, key=lambda model: model.role != "control")
    for raw in report.raw:
        views = [(model, view) for model in ordered for view in model.maps if view.attribute == raw.attribute]
        if views:
            parts += _maps_of(raw.attribute, views)
    return join(parts)


def _maps_of(attribute: str, views: Sequence[tuple[ModelReport, EmbeddingMap]]) -> list[Markup]:
    note = (
        "Discs count rows in a cell of the first two coordinates, relative to the group's size; ellipses are "
        "two standard deviations. Where ellipses coincide, mean and spread agree. Cells with fewer than "
        f"{views[0][1].smallest_cell} rows are not drawn."
    )
    names = [cloud.group for cloud in views[0][1].clouds]
    legend = _legend([Series(group, f"group-{i % 6}") for i, group in enumerate(names)])
    panels = [
        tag("figure", tag("figcaption", shown(model.name)), map_figure(view, model.name), class_="panel")
        for model, view in views
    ]
    header = (
        "embedding",
        "group",
        "rows",
        "mean 1",
        "mean 2",
        "deviation 1",
        "deviation 2",
        "rows not drawn",
    )
    rows = []
    for model, view in views:
        for cloud in view.clouds:
            spreads = (cloud.covariance[0][0] ** 0.5, cloud.covariance[1][1] ** 0.5)
            numbers = [f"{value:.3g}" for value in (*cloud.mean, *spreads)]
            rows.append((model.name, cloud.group, f"{cloud.n_rows:,}", *numbers, f"{cloud.n_hidden_rows:,}"))
    title, intro = tag("h3", shown(attribute)), tag("p", note, class_="intro")
    return [title, intro, legend, tag("div", panels, class_="panels"), _table(header, rows, "Map", n_names=2)]


def _gaps(report: Report) -> Markup:
    rows = text.gap_rows(report)
    intro = (
        "Gaps of the moments are exact over all rows; MMD² compares whole distributions on the sample (the "
        "paper's biased statistic with its bandwidth, the unbiased one, and the share of random relabellings "
        "that give as much)."
    )
    return (
        join([tag("p", intro, class_="intro"), _plain_table(text.GAP_HEADER, rows, "Gaps", n_names=3)])
        if rows
        else Markup("")
    )


def _removed(report: Report) -> Markup:
    parts = []
    for model in report.models:
        if model.directions:
            cards = [
                _direction(number, direction)
                for number, direction in enumerate(model.directions[:N_DIRECTIONS], 1)
            ]
            removed = (
                f"{shown(model.name)}: {model.n_removed} direction{'s' * (model.n_removed != 1)} removed"
            )
            more = "" if len(cards) == model.n_removed else f", the strongest {len(cards)} shown"
            parts += [tag("h3", removed + more), tag("div", cards, class_="directions")]
    if not parts:
        return Markup("")
    intro = (
        "What the embedding may no longer use. Each direction mixes features; the heaviest are listed with "
        "their weights, and what the direction carries in the audited data."
    )
    return join([tag("p", intro, class_="intro"), parts])


def _direction(position: int, direction: Direction) -> Markup:
    heaviest = max((abs(weight) for weight in direction.weights.values()), default=1.0)
    rows = []
    for feature, weight in [*direction.weights.items()][:N_WEIGHTS]:
        side = "positive" if weight >= 0 else "negative"
        bar = tag("span", style=f"width:{abs(weight) / heaviest * 100:.0f}%", class_=f"fill {side}")
        cells = (
            tag("span", breakable(feature), class_="feature"),
            tag("span", bar, class_="track"),
            tag("span", f"{weight:+.2f}", class_="weight"),
        )
        rows.append(tag("li", cells))
    facts = f"mean gap {direction.mean_gap:+.3g} · second-moment gap {direction.second_moment_gap:+.3g}"
    return tag(
        "article", tag("h4", f"Direction {position}"), tag("p", facts), tag("ol", rows), class_="direction"
    )


def _downstream(report: Report) -> Markup:
    rows = text.downstream_rows(report)
    if not rows:
        return Markup("")
    notes = {result.protocol: result.protocol_note for model in report.models for result in model.downstream}
    explained = [tag("li", tag("strong", protocol), f": {note}.") for protocol, note in notes.items()]
    n_rows = max(result.n_rows for model in report.models for result in model.downstream)
    intro = (
        f"The paper's classifiers predict the target from each embedding ({n_rows:,} rows). Two protocols:"
    )
    table = _plain_table(text.DOWNSTREAM_HEADER, rows, "Downstream task", n_names=4, marked=2)
    return join([tag("p", intro, class_="intro"), tag("ul", explained, class_="notes"), table])


def _groups(report: Report) -> Markup:
    header = ("model", "attribute", "group", "explained variance", "reconstruction error")
    small = report.parameters.get("min_group_size")
    note = (
        f"Groups with fewer than {small} rows are left out of this report and of every comparison; so are "
        "their rows, from every number, if subtracting the other groups from a total would show them."
    )
    sizes = _plain_table(("attribute", "group", "rows"), text.size_rows(report), "Group sizes", n_names=2)
    kept = _plain_table(header, text.group_rows(report), "By group", n_names=3)
    return join([tag("p", note, class_="intro"), tag("div", sizes, kept, class_="two")])


def _reproduce(report: Report) -> Markup:
    rows = [
        tag("div", tag("dt", shown(name)), tag("dd", value if len(value) < 600 else value[:599] + "…"))
        for name, value in text.reproduce_rows(report)
        if not name.startswith("audit: ")
    ]
    call = tag("pre", text.reproduce_call(report), tabindex=0)
    return join([tag("dl", rows), tag("h3", "The call"), call])


def _probed(
    report: Report, look: Sequence[Series], attribute: str
) -> Iterable[tuple[Series, tuple[ProbeResult, ...]]]:
    """Yield the raw data and plain PCA first, as the scale to read the models by, then the models."""
    raw = raw_control(report, attribute)
    if raw is not None:
        yield Series("raw data", "raw"), raw.probes
    pairs = [*zip(report.models, look, strict=True)]
    for model, series in sorted(pairs, key=lambda pair: pair[0].role != "control"):
        for leak in model.leaks:
            if leak.attribute == attribute:
                yield series, leak.probes


def _best(probes: tuple[ProbeResult, ...]) -> ProbeResult | None:
    return max(probes, key=lambda result: result.auc.value, default=None)


def _legend(series: Iterable[Series]) -> Markup:
    items = [
        tag("li", tag("span", class_=f"swatch {s.style}", aria_hidden="true"), shown(s.name)) for s in series
    ]
    return tag("ul", items, class_="legend")


def _both_widths(wide: Markup, narrow: Markup) -> Markup:
    """Draw for a desk and for a phone; only one is displayed, so letters never shrink."""
    return tag("div", tag("div", wide, class_="wide"), tag("div", narrow, class_="narrow"), class_="figure")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], label: str, *, n_names: int) -> Markup:
    """Return the table behind a figure, folded away until it is asked for."""
    return tag(
        "details", tag("summary", f"{label}: the numbers"), _plain_table(header, rows, label, n_names=n_names)
    )


def _plain_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    label: str,
    *,
    n_names: int,
    marked: int | None = None,
) -> Markup:
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_="name" if i < n_names else None)
            for i, name in enumerate(header)
        ],
    )
    body = []
    for row in rows:
        cells = [
            tag(
                "td",
                tag("span", value, class_=f"badge {value}") if i == marked else _cell(value),
                class_="name" if i < n_names else None,
            )
            for i, value in enumerate(row)
        ]
        body.append(tag("tr", cells))
    table = tag("table", tag("caption", label), tag("thead", head), tag("tbody", body))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _cell(value: str) -> str:
    return (
        value
        if len(value) <= 20 and value.isascii()
        else shown(value)
        if len(value) < 400
        else shown(value[:400])
    )


def _template(name: str) -> str:
    return (resources.files("fairstream.auditing.render") / "template" / name).read_text(encoding="utf-8")
