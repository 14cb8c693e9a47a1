"""The figures of the page: probes, frontier, maps. Here they are geometry; a template draws them as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairstream.auditing.render.labels import shown
from fairstream.auditing.render.summary import PROBE_NAMES
from fairstream.auditing.render.tables import frontier_name, number, share
from fairstream.auditing.report import EmbeddingMap, FrontierChoice, GroupCloud, ProbeResult, Report

LABELLED = (1, 5, 15, 50)  # the m that are written beside their points
LETTER = 7.0  # width of a letter in a label, at most
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Series:
    """One embedding in the figures: its name and the class that gives it colour."""

    name: str
    style: str


@dataclass(frozen=True)
class Label:
    """Text at a place; `anchor` says which of its ends is there."""

    x: float
    y: float
    text: str
    style: str
    anchor: str = "middle"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge."""
        width = LETTER * len(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 11, left + width, self.y + 3


@dataclass(frozen=True)
class Mark:
    """A point with the text of its tooltip, and maybe an interval and a label."""

    x: float
    y: float
    style: str
    tip: str
    radius: float = 5
    shape: str = "dot"
    interval: tuple[float, float] | None = None
    label: Label | None = None


@dataclass
class Drawing:
    """What the template draws, in this order."""

    width: float
    height: float
    alt: str
    lines: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    clouds: list[tuple[str, list[tuple[float, float, float]]]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Placed:
    """A model's own position beside the frontier."""

    series: Series
    explained_variance: float
    gap: float


def probe_figure(
    attribute: str, results: Sequence[tuple[Series, tuple[ProbeResult, ...]]], *, narrow: bool
) -> Drawing:
    """Draw every probe's AUC with its interval, one row per kind of probe, one line per embedding."""
    kinds = [kind for kind in PROBE_NAMES if any(r.probe == kind for _, probes in results for r in probes)]
    width, left = (360, 12) if narrow else (860, 190)
    pitch, head, top = 15, 24 if narrow else 8, 46
    row = head + pitch * len(results) + 14
    height = top + row * len(kinds)
    lowest = min((r.auc.low for _, probes in results for r in probes), default=0.5)
    x = _scale(min(math.floor(lowest * 20) / 20, 0.45), 1.0, left, width - 16)
    alt = f"AUC of each probe of {shown(attribute)}, with intervals; the table below has the same numbers."
    drawing = Drawing(width, height, alt)
    title = "AUC of the probe: 0.5 = pure guessing, 1 = certainty"
    drawing.labels.append(Label((left + width - 16) / 2, 12, title, "axis"))
    for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        drawing.lines.append((x(tick), 34, x(tick), height - 8, "chance" if tick == 0.5 else "grid"))
        drawing.labels.append(Label(x(tick), 29, f"{tick:.1f}", "tick"))
    for i, kind in enumerate(kinds):
        start = top + i * row
        drawing.labels.append(
            Label(left, start + 12, PROBE_NAMES[kind], "row-label", "start")
            if narrow
            else Label(left - 14, start + row / 2 - 2, PROBE_NAMES[kind], "row-label", "end")
        )
        for j, (series, probes) in enumerate(results):
            y = start + head + pitch * j + 8
            drawing.marks += [_probe_mark(x, y, series, r) for r in probes if r.probe == kind]
    return drawing


def frontier_figure(
    points: Sequence[FrontierChoice], placed: Sequence[Placed], *, narrow: bool
) -> Drawing | None:
    """Draw explained variance against the gap that is left, a curve for each way to choose directions.

    Points that another one beats in both are grey and on no curve.
    """
    drawn = [point for point in points if point.second_moment_gap_relative is not None]
    if not drawn:
        return None
    width, height, left, top, bottom = (360, 350, 44, 28, 46) if narrow else (860, 440, 62, 28, 54)
    right = width - 18
    gaps = [_visible(p.second_moment_gap_relative) for p in drawn] + [_visible(p.gap) for p in placed]
    low, high = min(gaps) / 1.3, max(*gaps, 1.0) * 1.3
    shares = [p.explained_variance for p in drawn] + [p.explained_variance for p in placed]
    step = next((s for s in (0.01, 0.02, 0.05, 0.1) if max(shares) - min(shares) <= 5 * s), 0.2)
    floor = max(math.floor(min(shares) / step - 0.5) * step, 0.0)
    roof = min(math.ceil(max(shares) / step + 0.3) * step, 1.0)
    log_x = _scale(math.log10(low), math.log10(high), left, right)
    y = _scale(floor, roof, height - bottom, top)

    def at(gap: float | None, explained: float) -> tuple[float, float]:
        return log_x(math.log10(_visible(gap))), y(explained)

    alt = "Explained variance against the remaining gap for every choice; the table below has the numbers."
    drawing = Drawing(width, height, alt)
    for tick in (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0):
        if low <= tick <= high:
            tick_x = log_x(math.log10(tick))
            drawing.lines.append((tick_x, top, tick_x, height - bottom, "grid"))
            drawing.labels.append(Label(tick_x, height - bottom + 16, f"{tick * 100:.3g}%", "tick"))
    for i in range(int((roof - floor) / step + 1e-9) + 1):
        level = floor + i * step
        drawing.lines.append((left, y(level), right, y(level), "grid"))
        drawing.labels.append(Label(left - 6, y(level) + 4, f"{level:.0%}", "tick", "end"))
    below = "largest second-moment gap that is left, % of plain PCA's"
    drawing.labels.append(
        Label((left + right) / 2, height - 10, below + ("" if narrow else " (logarithmic)"), "axis")
    )
    drawing.labels.append(Label(4, 14, "explained variance of the audited rows", "axis", "start"))

    places = [at(p.second_moment_gap_relative, p.explained_variance) for p in drawn]
    best = [not _is_dominated(p, drawn) for p in drawn]
    for directions in ("absolute", "relative"):
        curve = sorted(
            place
            for point, place, good in zip(drawn, places, best, strict=True)
            if good and (point.constraint == "mean" or _is_on(point, directions))
        )
        if len(curve) > 1:
            path = "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in curve)
            drawing.paths.append((path, f"curve {directions}"))
    spots = [at(spot.gap, spot.explained_variance) for spot in placed]
    room = _Room((left, top - 12, width, height - bottom))
    for (a, b), radius in [*((place, 5) for place in places), *((spot, 11) for spot in spots)]:
        room.take((a - radius, b - radius, a + radius, b + radius))
    rings = [
        _placed_mark(spot, *place, None if narrow else room.label(*place, _name(spot), "model-label", 13))
        for spot, place in zip(placed, spots, strict=True)
    ]
    for point, place, good in zip(drawn, places, best, strict=True):
        text = _point_text(point, narrow=narrow) if good else ""
        label = room.label(*place, text, "point-label", 7) if text else None
        drawing.marks.append(_frontier_mark(point, *place, label, dominated=not good))
    drawing.marks += rings
    return drawing


def map_figure(view: EmbeddingMap, name: str) -> Drawing:
    """Draw the first two coordinates: a disc per cell and group, an ellipse of two deviations per group."""
    size, margin = 340, 30
    x = _scale(*view.x_range, margin, size - 8)
    y = _scale(*view.y_range, size - margin, 8)
    most = max((cell[2] / cloud.n_rows for cloud in view.clouds for cell in cloud.cells), default=1.0)
    alt = (
        f"Where the groups of {shown(view.attribute)} are in {shown(name)}: the table below has their means "
        "and spreads."
    )
    drawing = Drawing(size, size, alt)
    drawing.paths.append((f"M{margin},8H{size - 8}V{size - margin}H{margin}Z", "frame"))
    for index, cloud in enumerate(view.clouds):
        drawing.clouds.append((f"cloud group-{index % 6}", _discs(view, cloud, x, y, most)))
        drawing.paths.append((_ellipse(cloud, x, y, margin, size), f"ellipse group-{index % 6}"))
    drawing.labels.append(Label((margin + size - 8) / 2, size - 8, "first coordinate", "axis"))
    drawing.labels.append(Label(14, (size - margin + 8) / 2, "second coordinate", "axis upright"))
    return drawing


def placed_models(report: Report, series: Sequence[Series]) -> list[Placed]:
    """Return where each compared model is: its own variance, its largest relative second-moment gap."""
    placed = []
    for model, look in zip(report.models, series, strict=True):
        gaps = [gap.second_moment_gap_relative for leak in model.leaks for gap in leak.gaps]
        known = [gap for gap in gaps if gap is not None]
        if model.role == "model" and known and model.explained_variance is not None:
            placed.append(Placed(look, model.explained_variance, max(known)))
    return placed


class _Room:
    """The area of a figure, and the boxes in it that are taken."""

    def __init__(self, area: tuple[float, float, float, float]) -> None:
        self._area, self._taken = area, list[tuple[float, float, float, float]]()

    def take(self, box: tuple[float, float, float, float]) -> None:
        self._taken.append(box)

    def label(self, x: float, y: float, text: str, style: str, away: float) -> Label | None:
        """Return the text above, below, right or left of a point, wherever it fits; None if nowhere."""
        for dx, dy, anchor in (
            (0.0, -away - 4, "middle"),
            (0.0, away + 12, "middle"),
            (away + 3, 4.0, "start"),
            (-away - 3, 4.0, "end"),
        ):
            label = Label(x + dx, y + dy, text, style, anchor)
            a, b, c, d = label.box
            left, top, right, bottom = self._area
            inside = left <= a and top <= b and c <= right and d <= bottom
            if inside and not any(a < r and s < c and b < t and u < d for s, u, r, t in self._taken):
                self.take(label.box)
                return label
        return None


def _is_dominated(point: FrontierChoice, points: Sequence[FrontierChoice]) -> bool:
    """Whether another choice keeps as much variance and leaves as small a gap, and is better in one."""
    gap, kept, small = point.second_moment_gap_relative or 0.0, point.explained_variance, 1e-9
    return any(
        other.explained_variance >= kept - small
        and (other.second_moment_gap_relative or 0.0) <= gap + small
        and (
            other.explained_variance > kept + small or (other.second_moment_gap_relative or 0.0) < gap - small
        )
        for other in points
    )


def _is_on(point: FrontierChoice, directions: str) -> bool:
    return point.constraint == "all" and point.directions == directions


def _name(spot: Placed) -> str:
    return shown(spot.series.name, 24)


def _point_text(point: FrontierChoice, *, narrow: bool) -> str:
    if point.constraint == "none":
        return "plain PCA"
    if narrow or (point.constraint == "all" and point.n_unfair not in LABELLED):
        return ""
    return "mean only" if point.constraint == "mean" else f"{point.n_unfair}"


def _probe_mark(x: Scale, y: float, series: Series, result: ProbeResult) -> Mark:
    auc = result.auc
    tip = (
        f"{shown(series.name)}\n"
        f"{PROBE_NAMES[result.probe]}: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})\n"
        f"balanced accuracy {result.balanced_accuracy.value:.3f}, guessing {result.chance:.3f}"
    )
    return Mark(x(auc.value), y, series.style, tip, interval=(x(max(auc.low, 0.0)), x(auc.high)))


def _frontier_mark(
    point: FrontierChoice, x: float, y: float, label: Label | None, *, dominated: bool
) -> Mark:
    name = frontier_name(point.constraint, point.directions)
    title = name if point.constraint != "all" else f"{name}, m = {point.n_unfair}"
    tip = (
        f"{title}\nexplained variance {share(point.explained_variance)}\n"
        f"second-moment gap {number(point.second_moment_gap)} "
        f"({share(point.second_moment_gap_relative)} of PCA's)\n"
        f"mean gap {number(point.mean_gap)}; {point.n_removed} directions removed"
    )
    if dominated:
        tip += "\nanother choice keeps more and leaves less"
    style = point.directions if point.constraint == "all" else point.constraint
    return Mark(x, y, "dominated" if dominated else style, tip, label=label)


def _placed_mark(spot: Placed, x: float, y: float, label: Label | None) -> Mark:
    tip = (
        f"{shown(spot.series.name)} (audited)\nexplained variance {share(spot.explained_variance)}\n"
        f"largest second-moment gap {share(spot.gap)} of PCA's"
    )
    return Mark(x, y, f"placed {spot.series.style}", tip, radius=10, shape="ring", label=label)


def _discs(
    view: EmbeddingMap, cloud: GroupCloud, x: Scale, y: Scale, most: float
) -> list[tuple[float, float, float]]:
    step_x = (view.x_range[1] - view.x_range[0]) / view.n_bins
    step_y = (view.y_range[1] - view.y_range[0]) / view.n_bins
    largest = 0.62 * abs(x(step_x) - x(0))
    return [
        (
            x(view.x_range[0] + (i + 0.5) * step_x),
            y(view.y_range[0] + (j + 0.5) * step_y),
            max(largest * math.sqrt(count / cloud.n_rows / most), 0.8),
        )
        for i, j, count in cloud.cells
    ]


def _ellipse(cloud: GroupCloud, x: Scale, y: Scale, margin: int, size: int) -> str:
    """Return the path of two standard deviations about the group's mean."""
    (a, b), (_, c) = cloud.covariance
    # The Cholesky factor of the covariance maps a circle to the ellipse.
    l11 = math.sqrt(max(a, 0.0))
    l21 = b / l11 if l11 > 0 else 0.0
    l22 = math.sqrt(max(c - l21**2, 0.0))
    corners = []
    for step in range(48):
        u, v = math.cos(step * math.pi / 24), math.sin(step * math.pi / 24)
        px, py = cloud.mean[0] + 2 * l11 * u, cloud.mean[1] + 2 * (l21 * u + l22 * v)
        inside = min(max(x(px), margin), size - 8), min(max(y(py), 8), size - margin)
        corners.append(f"{inside[0]:.1f},{inside[1]:.1f}")
    return "M" + "L".join(corners) + "Z"


def _visible(gap: float | None) -> float:
    """Return a gap that a logarithmic axis can show."""
    return max(gap or 0.0, 1e-3)


def _scale(low: float, high: float, start: float, stop: float) -> Scale:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (stop - start)
