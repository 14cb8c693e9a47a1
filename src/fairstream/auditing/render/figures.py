"""The figures of the page: the curve over the attacker's rows, the frontier, the maps of the groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairstream.auditing.render.canvas import (
    SHAPES,
    Box,
    Drawing,
    Label,
    Mark,
    Point,
    Room,
    Scale,
    Series,
    polygon,
    polyline,
    scale,
    spread,
    text_width,
)
from fairstream.auditing.render.labels import shown
from fairstream.auditing.report import EmbeddingMap, Estimate, GroupCloud

RADIUS = 5.0
N_COLOURS = 6
NEAR = 40.0  # what is not so far to the side may touch a word
DRAWN_CELLS = 2  # groups up to which single cells are drawn; discs of more hide each other


@dataclass(frozen=True)
class Spot:
    """One embedding on the frontier."""

    series: Series
    kept: float
    auc: Estimate


def curve_figure(
    attribute: str,
    curves: Sequence[tuple[Series, Sequence[tuple[int, Estimate]]]],
    limit: float | None,
    *,
    n_groups: int = 2,
    narrow: bool,
) -> Drawing:
    """Draw the strongest attacker's AUC over the rows it was fitted on, with intervals."""
    width, height, left, right, top, bottom = (
        (350, 330, 40, 306, 30, 50) if narrow else (860, 400, 56, 630, 32, 56)
    )
    sizes = sorted({n_rows for _, points in curves for n_rows, _ in points})
    aucs = [auc for _, points in curves for _, auc in points]
    x = scale(math.log(sizes[0] / 1.15), math.log(sizes[-1] * 1.12), left, right)
    low, high = _auc_range([*aucs, *_as_estimates(limit)])
    y = scale(low, high, height - bottom, top)
    drawing = Drawing(width, height, f"AUC of the strongest attacker of {shown(attribute)} by its rows")
    _auc_grid(drawing, y, (left, right), low, high)
    for n_rows in _ticks_of_rows(sizes[0], sizes[-1], 4 if narrow else 7):
        drawing.lines.append(((x(math.log(n_rows)), top, x(math.log(n_rows)), height - bottom), "grid"))
        drawing.labels.append(Label(x(math.log(n_rows)), height - bottom + 17, f"{n_rows:,}", "tick"))
    drawing.labels += [
        Label((left + right) / 2, height - 10, "rows the attacker was fitted on (logarithmic)", "axis"),
        Label(4, 14, _measure(n_groups, narrow=narrow), "axis", "start"),
    ]
    between = [
        (x(math.log(a[0]) / 2 + math.log(b[0]) / 2), (y(a[1].value) + y(b[1].value)) / 2)
        for _, points in curves
        for a, b in zip(points, points[1:] or points, strict=False)
    ]
    first = min(between)[0]
    drawing.labels.append(Label(first, y(0.5) + 13, "guessing", "tick"))
    if limit is not None:
        drawing.lines.append(((left, y(limit), right, y(limit)), "limit"))
        # Between the intervals of two sizes, where the nearest curve is farthest.
        clear = max(
            sorted({a for a, _ in between}),
            key=lambda place: min(abs(b - y(limit) + 9) for a, b in between if abs(a - place) < NEAR),
        )
        drawing.labels.append(
            Label(clear, y(limit) - 5, _limit_words(limit, n_groups, narrow=narrow), "limit-label")
        )
    ends = []
    for number, (series, points) in enumerate(curves):
        aside = (number - (len(curves) - 1) / 2) * (2.0 if narrow else 3.5)
        places = [(x(math.log(n_rows)) + aside, y(auc.value)) for n_rows, auc in points]
        drawing.paths.append((polyline(places), f"curve {series.style}"))
        for (a, b), (n_rows, auc) in zip(places, points, strict=True):
            tip = f"{shown(series.name)}\n{n_rows:,} rows: AUC {_interval(auc)}"
            whisker = (a, y(auc.low), a, y(auc.high))
            drawing.marks.append(Mark(a, b, series.style, series.shape, tip, whisker))
        ends.append(places[-1])
    beside = spread([b for _, b in ends], 16, top, height - bottom)
    for (series, _), (a, b), moved in zip(curves, ends, beside, strict=True):
        text = series.key if narrow else series.fitted(width - right - 14)
        label = Label(right + 12, moved + 4, text, f"name {series.style}", "start")
        drawing.lines.append(((a + 7, b, right + 8, moved), f"leader {series.style}"))
        drawing.labels.append(label)
    return drawing


def frontier_figure(
    attribute: str, spots: Sequence[Spot], limit: float | None, *, n_groups: int = 2, narrow: bool
) -> Drawing:
    """Draw variance kept against the strongest attacker's AUC; embeddings that another one beats are grey."""
    width, height, left, top, bottom = (350, 350, 44, 30, 50) if narrow else (860, 440, 60, 32, 56)
    right = width - 16
    low, high = _auc_range([*(spot.auc for spot in spots), *_as_estimates(limit)])
    x = scale(low, high, left, right)
    roof = min(math.ceil(max(spot.kept for spot in spots) * 10 + 0.4) / 10, 1.0)
    y = scale(0.0, roof, height - bottom, top)
    drawing = Drawing(width, height, f"Variance kept against the AUC of {shown(attribute)}")
    for tick in _auc_ticks(low, high):
        drawing.lines.append(((x(tick), top, x(tick), height - bottom), "chance" if tick == 0.5 else "grid"))
        drawing.labels.append(Label(x(tick), height - bottom + 17, f"{tick:.2g}", "tick"))
    step = 0.1 if roof <= 0.6 else 0.2
    for i in range(int(roof / step + 1e-9) + 1):
        drawing.lines.append(((left, y(i * step), right, y(i * step)), "grid"))
        drawing.labels.append(Label(left - 6, y(i * step) + 4, f"{i * step:.0%}", "tick", "end"))
    drawing.labels += [
        Label(
            (left + right) / 2, height - 10, f"{_measure(n_groups, narrow=narrow)} (0.5 = guessing)", "axis"
        ),
        Label(4, 14, "variance kept, share of all variance", "axis", "start"),
    ]
    room = Room((left, top - 8, width, height - bottom - 2))
    if limit is not None and low <= limit <= high:
        drawing.lines.append(((x(limit), top, x(limit), height - bottom), "limit"))
        words = _limit_words(limit, n_groups, narrow=narrow)
        fits = x(limit) + 5 + text_width(words) < right
        aside, anchor = (5, "start") if fits else (-5, "end")
        word = Label(x(limit) + aside, top + 10, words, "limit-label", anchor)
        drawing.labels.append(word)
        room.take(word.box)
    best = [not is_dominated(spot, spots) for spot in spots]
    places = [(x(spot.auc.value), y(spot.kept)) for spot in spots]
    drawing.paths.append((polyline(sorted(p for p, good in zip(places, best, strict=True) if good)), "edge"))
    for (a, b), spot in zip(places, spots, strict=True):
        room.take((a - RADIUS - 1, b - RADIUS - 1, a + RADIUS + 1, b + RADIUS + 1))
        room.take((x(spot.auc.low), b - 1.5, x(spot.auc.high), b + 1.5))
    for (a, b), spot, good in zip(places, spots, best, strict=True):
        style = spot.series.style if good else "dominated"
        texts = [spot.series.key] if narrow else [spot.series.fitted(240), spot.series.key]
        label = room.label(a, b, texts, f"name {style}", RADIUS + 2)
        drawing.lines += _leaders((a, b), label, f"leader {style}")
        tip = f"{shown(spot.series.name)}\nAUC {_interval(spot.auc)}\nvariance kept {spot.kept:.1%}"
        tip += "" if good else "\nanother embedding keeps as much and gives away less"
        whisker = (x(spot.auc.low), b, x(spot.auc.high), b)
        drawing.marks.append(Mark(a, b, style, spot.series.shape, tip, whisker, label))
    return drawing


def is_dominated(spot: Spot, spots: Sequence[Spot]) -> bool:
    """Whether another embedding keeps as much and gives away as little, and is better in one of the two."""
    small = 1e-9
    return any(
        other.kept >= spot.kept - small
        and other.auc.value <= spot.auc.value + small
        and (other.kept > spot.kept + small or other.auc.value < spot.auc.value - small)
        for other in spots
    )


def map_figure(view: EmbeddingMap, name: str) -> Drawing:
    """Draw the groups in the first two coordinates: an ellipse of two deviations each, and its mean.

    If there are two groups, a disc for every cell of the grid as well.
    """
    size, margin, edge = 340, 30, 8
    cells = len(view.clouds) <= DRAWN_CELLS
    ellipses = [_ellipse(cloud) for cloud in view.clouds]
    corners = [corner for ellipse in ellipses for corner in ellipse]
    if cells:
        corners += [(a, b) for cloud in view.clouds for a, b, _ in _cells(view, cloud)]
    (x_low, x_high), (y_low, y_high) = (_padded([corner[i] for corner in corners]) for i in (0, 1))
    x, y = scale(x_low, x_high, margin, size - edge), scale(y_low, y_high, size - margin, edge)
    drawing = Drawing(size, size, f"Groups of {shown(view.attribute)} in {shown(name)}")
    frame = [(margin, edge), (size - edge, edge), (size - edge, size - margin), (margin, size - margin)]
    drawing.paths.append((polygon(frame), "frame"))
    looks = group_series([cloud.group for cloud in view.clouds])
    drawn = [[(x(a), y(b)) for a, b in ellipse] for ellipse in ellipses]
    means = [(x(cloud.mean[0]), y(cloud.mean[1])) for cloud in view.clouds]
    room = Room((margin + 4, edge + 4, size - edge - 4, size - margin - 4))
    for a, b in (place for places in (*drawn, means) for place in places):
        room.take((a - 4, b - 4, a + 4, b + 4))
    largest = 0.62 * min(x(x_low + (view.x_range[1] - view.x_range[0]) / view.n_bins) - margin, 12)
    most = max((cell[2] / cloud.n_rows for cloud in view.clouds for cell in cloud.cells), default=1.0)
    for cloud, series, ellipse, mean in zip(view.clouds, looks, drawn, means, strict=True):
        if cells:
            discs = [
                (x(a), y(b), max(largest * math.sqrt(count / cloud.n_rows / most), 0.8))
                for a, b, count in _cells(view, cloud)
            ]
            drawing.clouds.append((f"cloud {series.style}", discs))
        drawing.paths.append((polygon(ellipse), f"ellipse {series.style}"))
        label, leader = _outside_label(series, ellipse, mean, room)
        drawing.lines += [] if leader is None else [(leader, f"leader {series.style}")]
        drawing.marks.append(Mark(*mean, series.style, series.shape, "", None, label))
    drawing.labels.append(Label((margin + size - edge) / 2, size - 8, "first coordinate", "axis"))
    drawing.labels.append(Label(16, (size - margin + edge) / 2, "second coordinate", "axis upright"))
    return drawing


def group_series(groups: Sequence[str]) -> list[Series]:
    """Give every group a colour and a shape."""
    return [
        Series(group, str(i + 1), f"group-{i % N_COLOURS}", SHAPES[i % len(SHAPES)])
        for i, group in enumerate(groups)
    ]


def _outside_label(
    series: Series, ellipse: Sequence[Point], mean: Point, room: Room
) -> tuple[Label | None, Box | None]:
    """Name an ellipse outside of all lines, as near as there is room, with a line that leads there."""
    for text in (series.fitted(160), series.fitted(90), series.key):
        for far in range(8, 120, 6):
            for a, b in ellipse:
                length = math.dist((a, b), mean) or 1.0
                across, down = (a - mean[0]) / length, (b - mean[1]) / length
                anchor = "start" if across > 0.5 else "end" if across < -0.5 else "middle"
                end = (a + far * across, b + far * down)
                label = Label(end[0], end[1] + 4 + 5 * down, text, f"name {series.style}", anchor)
                if room.fits(label.box):
                    room.take(label.box)
                    return label, (a, b, *end)
    return None, None


def _leaders(place: Point, label: Label | None, style: str) -> list[tuple[Box, str]]:
    """Return the line from a point to its label, if the label is not beside it."""
    if label is None:
        return []
    left, top, right, bottom = label.box
    end = min(max(place[0], left), right), min(max(place[1], top), bottom)
    return [((*place, *end), style)] if math.dist(place, end) > RADIUS + 7 else []


def _measure(n_groups: int, *, narrow: bool) -> str:
    if n_groups == 2:
        return "AUC of the strongest attacker"
    return f"{'AUC' if narrow else 'AUC of the strongest attacker'}, average of {n_groups} groups"


def _limit_words(limit: float, n_groups: int, *, narrow: bool) -> str:
    """Name the limit; it is for each group, where the axis shows their average."""
    return f"limit {limit:g}{'' if n_groups == 2 else ' each' if narrow else ' for each group'}"


def _interval(auc: Estimate) -> str:
    return f"{auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})"


def _as_estimates(limit: float | None) -> list[Estimate]:
    return [] if limit is None else [Estimate(limit, limit, limit)]


def _auc_range(aucs: Sequence[Estimate]) -> tuple[float, float]:
    """Return the ends of an axis that shows guessing, every interval, and no more than it must."""
    low = min(auc.low for auc in aucs)
    high = max(auc.high for auc in aucs)
    return min(math.floor(low * 20) / 20, 0.45), min(max(math.ceil(high * 20 + 0.2) / 20, 0.6), 1.0)


def _auc_ticks(low: float, high: float) -> list[float]:
    step = 0.1 if high - low > 0.3 else 0.05
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 2) for i in range(first, int(high / step + 1e-9) + 1)]


def _auc_grid(drawing: Drawing, y: Scale, ends: tuple[float, float], low: float, high: float) -> None:
    left, right = ends
    for tick in _auc_ticks(low, high):
        drawing.lines.append(((left, y(tick), right, y(tick)), "chance" if tick == 0.5 else "grid"))
        drawing.labels.append(Label(left - 6, y(tick) + 4, f"{tick:.2g}", "tick", "end"))


def _ticks_of_rows(low: int, high: int, most: int) -> list[int]:
    """Return round numbers of rows, at most so many."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10**power for power in range(1, 12) for step in steps]
        inside = [tick for tick in ticks if low * 0.9 <= tick <= high * 1.1]
        if 0 < len(inside) <= most:
            return inside
    return [low, high]


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = 0.2 * (high - low) or 1.0  # for the names of the groups
    return low - pad, high + pad


def _cells(view: EmbeddingMap, cloud: GroupCloud) -> list[tuple[float, float, int]]:
    """Return the middle of every cell and its count."""
    step_x = (view.x_range[1] - view.x_range[0]) / view.n_bins
    step_y = (view.y_range[1] - view.y_range[0]) / view.n_bins
    return [
        (view.x_range[0] + (i + 0.5) * step_x, view.y_range[0] + (j + 0.5) * step_y, count)
        for i, j, count in cloud.cells
    ]


def _ellipse(cloud: GroupCloud) -> list[Point]:
    """Return two standard deviations about the group's mean."""
    (a, b), (_, c) = cloud.covariance
    # The Cholesky factor of the covariance maps a circle to the ellipse.
    l11 = math.sqrt(max(a, 0.0))
    l21 = b / l11 if l11 > 0 else 0.0
    l22 = math.sqrt(max(c - l21**2, 0.0))
    turns = [step * math.pi / 48 for step in range(96)]
    return [
        (
            cloud.mean[0] + 2 * l11 * math.cos(turn),
            cloud.mean[1] + 2 * (l21 * math.cos(turn) + l22 * math.sin(turn)),
        )
        for turn in turns
    ]
