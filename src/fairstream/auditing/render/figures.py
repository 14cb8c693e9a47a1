"""The figures of the page as SVG: probes, frontier, maps. Each mark carries the text of its tooltip."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairstream.auditing.render.markup import Markup, brief, join, shown, tag
from fairstream.auditing.render.summary import PROBE_NAMES
from fairstream.auditing.render.text import frontier_name, number, share
from fairstream.auditing.report import EmbeddingMap, FrontierChoice, GroupCloud, ProbeResult, Report

LABELLED = (1, 5, 15, 50)  # the m that are written beside their points


@dataclass(frozen=True)
class Series:
    """One embedding in the figures: its name and the class that gives it colour."""

    name: str
    style: str


@dataclass(frozen=True)
class Placed:
    """A model's own position beside the frontier."""

    series: Series
    explained_variance: float
    gap: float


def probe_figure(
    attribute: str, results: Sequence[tuple[Series, tuple[ProbeResult, ...]]], *, narrow: bool
) -> Markup:
    """Draw every probe's AUC with its interval, one row per kind of probe, one line per embedding."""
    kinds = [kind for kind in PROBE_NAMES if any(r.probe == kind for _, probes in results for r in probes)]
    width, left = (360, 12) if narrow else (860, 190)
    pitch, head = 15, 24 if narrow else 8
    row = head + pitch * len(results) + 14
    height = 34 + row * len(kinds) + 8
    lowest = min((r.auc.low for _, probes in results for r in probes), default=0.5)
    start = min(math.floor(lowest * 20) / 20, 0.45)
    x = _scale(start, 1.0, left, width - 16)
    parts = [_vertical_grid(x, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0], 22, height - 8, "{:.1f}", top=True)]
    parts.append(_line(x(0.5), 22, x(0.5), height - 8, "chance"))
    for i, kind in enumerate(kinds):
        top = 34 + i * row
        if narrow:
            parts.append(_text(left, top + 12, PROBE_NAMES[kind], "row-label", "start"))
        else:
            parts.append(_text(left - 14, top + row / 2 - 2, PROBE_NAMES[kind], "row-label", "end"))
        for j, (series, probes) in enumerate(results):
            for result in probes:
                if result.probe == kind:
                    parts.append(_probe_mark(x, top + head + pitch * j + 8, series, result))
    alt = (
        f"AUC of each probe for {shown(attribute)}, with intervals; the same numbers are in the table below."
    )
    return _svg(width, height, alt, parts)


def frontier_figure(
    points: Sequence[FrontierChoice], placed: Sequence[Placed], *, narrow: bool
) -> Markup | None:
    """Draw explained variance against the gap that is left, a curve for each way to choose directions."""
    drawn = [point for point in points if point.second_moment_gap_relative is not None]
    if not drawn:
        return None
    width, height, left, bottom = (360, 340, 44, 46) if narrow else (860, 430, 62, 54)
    gaps = [_visible(p.second_moment_gap_relative) for p in drawn] + [_visible(p.gap) for p in placed]
    low, high = min(gaps) / 1.3, max(*gaps, 1.0) * 1.3
    shares = [p.explained_variance for p in drawn] + [p.explained_variance for p in placed]
    step = next((s for s in (0.01, 0.02, 0.05, 0.1) if max(shares) - min(shares) <= 5 * s), 0.2)
    floor = max(math.floor(min(shares) / step - 0.5) * step, 0.0)
    roof = min(math.ceil(max(shares) / step + 0.3) * step, 1.0)
    log_x = _scale(math.log10(low), math.log10(high), left, width - 18)
    y = _scale(floor, roof, height - bottom, 18)
    ticks = [t for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0) if low <= t <= high]
    parts = [
        _vertical_grid(lambda v: log_x(math.log10(v)), ticks, 18, height - bottom, "{:.3g}%", factor=100)
    ]
    parts.append(_horizontal_grid(y, floor, roof, step, left, width - 18))
    parts.append(
        _text((left + width - 18) / 2, height - 10, "gap that is left, % of plain PCA's (log)", "axis")
    )
    parts.append(_text(left, 11, "explained variance", "axis", "start"))

    def at(point: FrontierChoice) -> tuple[float, float]:
        return log_x(math.log10(_visible(point.second_moment_gap_relative))), y(point.explained_variance)

    start = [p for p in drawn if p.constraint == "mean"]
    for directions in ("absolute", "relative"):
        curve = start + [p for p in drawn if p.constraint == "all" and p.directions == directions]
        if len(curve) > 1:
            path = "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in map(at, curve))
            parts.append(tag("path", d=path, class_=f"curve {directions}"))
    for point in drawn:
        parts.append(_frontier_mark(point, *at(point), labelled=not narrow))
    for spot in placed:
        spot_at = log_x(math.log10(_visible(spot.gap))), y(spot.explained_variance)
        parts.append(_placed_mark(spot, *spot_at, width, "" if narrow else brief(spot.series.name, 24)))
    alt = "Explained variance against the remaining gap for every choice; the table below holds the numbers."
    return _svg(width, height, alt, parts)


def map_figure(view: EmbeddingMap, name: str) -> Markup:
    """Draw the first two coordinates: a disc per cell and group, an ellipse of two deviations per group."""
    size, margin = 340, 30
    x = _scale(*view.x_range, margin, size - 8)
    y = _scale(*view.y_range, size - margin, 8)
    most = max((cell[2] / cloud.n_rows for cloud in view.clouds for cell in cloud.cells), default=1.0)
    parts: list[Markup] = [
        tag("rect", x=margin, y=8, width=size - margin - 8, height=size - margin - 8, class_="frame")
    ]
    for index, cloud in enumerate(view.clouds):
        parts.append(tag("g", _discs(view, cloud, x, y, most), class_=f"cloud group-{index % 6}"))
    for index, cloud in enumerate(view.clouds):
        parts.append(_ellipse(cloud, x, y, f"ellipse group-{index % 6}", margin, size))
    parts.append(_text((margin + size - 8) / 2, size - 8, "first coordinate", "axis"))
    middle = (size - margin + 8) / 2
    parts.append(
        tag(
            "text",
            "second coordinate",
            class_="axis",
            transform=f"translate(14,{middle}) rotate(-90)",
            text_anchor="middle",
        )
    )
    alt = (
        f"Where the groups of {shown(view.attribute)} lie in {shown(name)}: the table below gives their "
        "means and spreads."
    )
    return _svg(size, size, alt, parts)


def placed_models(report: Report, series: Sequence[Series]) -> list[Placed]:
    """Return where each compared model stands: its own variance, its largest relative second-moment gap."""
    placed = []
    for model, look in zip(report.models, series, strict=True):
        gaps = [gap.second_moment_gap_relative for leak in model.leaks for gap in leak.gaps]
        known = [gap for gap in gaps if gap is not None]
        if model.role == "model" and known and model.explained_variance is not None:
            placed.append(Placed(look, model.explained_variance, max(known)))
    return placed


def _probe_mark(x: Callable[[float], float], y: float, series: Series, result: ProbeResult) -> Markup:
    auc = result.auc
    tip = (
        f"{shown(series.name)}\n"
        f"{PROBE_NAMES[result.probe]}: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})\n"
        f"balanced accuracy {result.balanced_accuracy.value:.3f}, guessing {result.chance:.3f}"
    )
    low, high = x(max(auc.low, 0.0)), x(auc.high)
    bar = tag("line", x1=_n(low), x2=_n(high), y1=_n(y), y2=_n(y), class_="interval")
    dot = tag("circle", cx=_n(x(auc.value)), cy=_n(y), r=5, class_="dot")
    return tag(
        "g", bar, dot, class_=f"mark {series.style}", data_tip=tip, tabindex=0, role="img", aria_label=tip
    )


def _frontier_mark(point: FrontierChoice, x: float, y: float, *, labelled: bool) -> Markup:
    name = frontier_name(point.constraint, point.directions)
    title = name if point.constraint != "all" else f"{name}, m = {point.n_unfair}"
    tip = (
        f"{title}\nexplained variance {share(point.explained_variance)}\n"
        f"second-moment gap {number(point.second_moment_gap)} ({share(point.second_moment_gap_relative)} of PCA's)\n"
        f"mean gap {number(point.mean_gap)}; {point.n_removed} directions removed"
    )
    style = point.directions if point.constraint == "all" else point.constraint
    dot = tag("circle", cx=_n(x), cy=_n(y), r=5, class_="dot")
    label = []
    if point.constraint == "none" or (labelled and (point.constraint != "all" or point.n_unfair in LABELLED)):
        text = {"none": "PCA", "mean": "mean only"}.get(point.constraint, f"{point.n_unfair}")
        label = [_text(x, y - 10, text, "point-label", "end" if point.constraint == "none" else "middle")]
    return tag("g", dot, label, class_=f"mark {style}", data_tip=tip, tabindex=0, role="img", aria_label=tip)


def _placed_mark(spot: Placed, x: float, y: float, width: float, name: str) -> Markup:
    tip = (
        f"{shown(spot.series.name)} (audited)\nexplained variance {share(spot.explained_variance)}\n"
        f"largest second-moment gap {share(spot.gap)} of PCA's"
    )
    ring = tag("circle", cx=_n(x), cy=_n(y), r=10, class_="ring")
    half = 6 * len(name)  # no letter is wider than 12 units
    label = _text(min(max(x, half), width - half), y + 28, name, "model-label")
    look = f"mark placed {spot.series.style}"
    return tag("g", ring, label, class_=look, data_tip=tip, tabindex=0, role="img", aria_label=tip)


def _discs(
    view: EmbeddingMap,
    cloud: GroupCloud,
    x: Callable[[float], float],
    y: Callable[[float], float],
    most: float,
) -> Markup:
    step_x = (view.x_range[1] - view.x_range[0]) / view.n_bins
    step_y = (view.y_range[1] - view.y_range[0]) / view.n_bins
    largest = 0.62 * abs(x(step_x) - x(0))
    return join(
        tag(
            "circle",
            cx=_n(x(view.x_range[0] + (i + 0.5) * step_x)),
            cy=_n(y(view.y_range[0] + (j + 0.5) * step_y)),
            r=_n(max(largest * math.sqrt(count / cloud.n_rows / most), 0.8)),
        )
        for i, j, count in cloud.cells
    )


def _ellipse(
    cloud: GroupCloud,
    x: Callable[[float], float],
    y: Callable[[float], float],
    style: str,
    margin: int,
    size: int,
) -> Markup:
    """Draw the ellipse of two standard deviations from the group's mean and covariance."""
    (a, b), (_, c) = cloud.covariance
    # Cholesky factor of the covariance: its image of a circle is the ellipse.
    l11 = math.sqrt(max(a, 0.0))
    l21 = b / l11 if l11 > 0 else 0.0
    l22 = math.sqrt(max(c - l21**2, 0.0))
    corners = []
    for step in range(48):
        u, v = math.cos(step * math.pi / 24), math.sin(step * math.pi / 24)
        px, py = cloud.mean[0] + 2 * l11 * u, cloud.mean[1] + 2 * (l21 * u + l22 * v)
        inside = min(max(x(px), margin), size - 8), min(max(y(py), 8), size - margin)
        corners.append(f"{inside[0]:.1f},{inside[1]:.1f}")
    return tag("path", d="M" + "L".join(corners) + "Z", class_=style)


def _visible(gap: float | None) -> float:
    """Return a gap a logarithmic axis can show."""
    return max(gap or 0.0, 1e-3)


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _vertical_grid(
    x: Callable[[float], float],
    ticks: Sequence[float],
    top_y: float,
    bottom_y: float,
    pattern: str,
    *,
    factor: float = 1,
    top: bool = False,
) -> Markup:
    label_y = top_y - 8 if top else bottom_y + 16
    return join(
        [_line(x(t), top_y, x(t), bottom_y, "grid"), _text(x(t), label_y, pattern.format(t * factor), "tick")]
        for t in ticks
    )


def _horizontal_grid(
    y: Callable[[float], float], floor: float, roof: float, step: float, left: float, right: float
) -> Markup:
    ticks = [floor + i * step for i in range(int((roof - floor) / step + 1e-9) + 1)]
    return join(
        [_line(left, y(t), right, y(t), "grid"), _text(left - 6, y(t) + 4, f"{t:.0%}", "tick", "end")]
        for t in ticks
    )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return tag("line", x1=_n(x1), y1=_n(y1), x2=_n(x2), y2=_n(y2), class_=style)


def _text(x: float, y: float, text: str, style: str, anchor: str = "middle") -> Markup:
    return tag("text", text, x=_n(x), y=_n(y), class_=style, text_anchor=anchor)


def _svg(width: float, height: float, alt: str, parts: Sequence[Markup]) -> Markup:
    drawing = tag(
        "svg", tag("title", alt), parts, viewBox=f"0 0 {width} {height}", role="group", aria_label=alt
    )
    return Markup(drawing)


def _n(value: float) -> str:
    return f"{value:.1f}"
