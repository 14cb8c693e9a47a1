"""What a figure is made of: scales, marks, and labels that keep out of each other's way.

Here a figure is geometry; a template draws it as SVG.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairstream.auditing.render.labels import shown

Box = tuple[float, float, float, float]  # left, top, right, bottom
Point = tuple[float, float]
Scale = Callable[[float], float]

LETTER, WIDE_LETTER = 7.5, 14.0  # widths in a label, at most
ASCENT, DESCENT = 11.0, 4.0
SHAPES = ("disc", "square", "triangle", "diamond", "wedge", "plus", "hexagon")
_CORNERS = {  # on a circle of radius 1, as angles in degrees clockwise from the top
    "square": (45, 135, 225, 315),
    "triangle": (0, 120, 240),
    "diamond": (0, 90, 180, 270),
    "wedge": (60, 180, 300),
    "hexagon": (30, 90, 150, 210, 270, 330),
}


@dataclass(frozen=True)
class Series:
    """One embedding or group in the figures: its name, a short key, and how its marks look."""

    name: str
    key: str
    style: str
    shape: str = "disc"
    lettered: bool = False
    brief: bool = False

    @property
    def called(self) -> str:
        """What sentences call it: the name, or the letter alone if there are many others."""
        return self.key if self.brief else self.full(40)

    def full(self, longest: int) -> str:
        """Return the name, after the letter if it has one."""
        return f"{self.key} · {shown(self.name, longest)}" if self.lettered else shown(self.name, longest)

    def fitted(self, width: float) -> str:
        """Return as much of the full name as fits a width."""
        tried = map(self.full, range(40, 4, -1))
        return next((text for text in tried if text_width(text) <= width), self.key)


@dataclass(frozen=True)
class Label:
    """Text at a place; `anchor` says which of its ends is there."""

    x: float
    y: float
    text: str
    style: str
    anchor: str = "middle"

    @property
    def box(self) -> Box:
        """Left, top, right and bottom edge."""
        width = text_width(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - ASCENT, left + width, self.y + DESCENT


@dataclass(frozen=True)
class Mark:
    """A point with the text of its tooltip, and maybe an interval (the ends of a line) and a label."""

    x: float
    y: float
    style: str
    shape: str
    tip: str
    interval: Box | None = None
    label: Label | None = None


@dataclass
class Drawing:
    """What the template draws, in this order."""

    width: float
    height: float
    title: str
    lines: list[tuple[Box, str]] = field(default_factory=list)
    clouds: list[tuple[str, list[tuple[float, float, float]]]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


class Room:
    """The area of a figure, and the boxes in it that are taken."""

    def __init__(self, area: Box) -> None:
        self._area, self._taken = area, list[Box]()

    def take(self, box: Box) -> None:
        """Keep labels out of a box."""
        self._taken.append(box)

    def fits(self, box: Box) -> bool:
        """Whether a box is inside the area and overlaps nothing."""
        a, b, c, d = box
        left, top, right, bottom = self._area
        inside = left <= a and top <= b and c <= right and d <= bottom
        return inside and not any(a < r and s < c and b < t and u < d for s, u, r, t in self._taken)

    def label(self, x: float, y: float, texts: Sequence[str], style: str, away: float) -> Label | None:
        """Place the first text that fits beside a point, near it rather than far; None if none does."""
        for text in texts:
            for far in (away, away + 9, away + 22, away + 36, away + 50):
                for dx, dy, anchor in (
                    (far + 2, 4.0, "start"),
                    (-far - 2, 4.0, "end"),
                    (0.0, -far - 3, "middle"),
                    (0.0, far + 11, "middle"),
                    (far, -far, "start"),
                    (far, far + 8, "start"),
                    (-far, -far, "end"),
                    (-far, far + 8, "end"),
                ):
                    label = Label(x + dx, y + dy, text, style, anchor)
                    if self.fits(label.box):
                        self.take(label.box)
                        return label
        return None


def text_width(text: str) -> float:
    """Return how wide a label is, at most."""
    wide = sum(c in "MWmw@%…" or unicodedata.east_asian_width(c) in "WF" for c in text)
    unseen = sum(unicodedata.category(c) in ("Cf", "Mn") for c in text)
    return LETTER * (len(text) - wide - unseen) + WIDE_LETTER * wide


def scale(low: float, high: float, start: float, stop: float) -> Scale:
    """Return the map of low..high onto start..stop."""
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def spread(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Move places as little as needed to be `apart`, in their order, inside low..high.

    Examples
    --------
    >>> spread([10, 11, 50], 10, 0, 100)
    [5.5, 15.5, 50.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    runs: list[list[float]] = []  # the wished places of labels that touch, each less its number in the run
    for i in order:
        runs.append([places[i]])
        while len(runs) > 1 and _start(runs[-2], apart, low, high) + apart * len(runs[-2]) > _start(
            runs[-1], apart, low, high
        ):
            last = runs.pop()
            runs[-1] += last
    moved = [0.0] * len(places)
    numbers = iter(order)
    for run in runs:
        start = _start(run, apart, low, high)
        for place in range(len(run)):
            moved[next(numbers)] = start + apart * place
    return moved


def outline(shape: str, x: float, y: float, radius: float) -> str:
    """Return the path of a mark.

    Examples
    --------
    >>> outline("diamond", 10, 10, 5)
    'M10.0,5.0L15.0,10.0L10.0,15.0L5.0,10.0Z'
    """
    if shape == "plus":
        arm, thin = radius, radius * 0.36
        corners = [
            (thin, -arm), (thin, -thin), (arm, -thin), (arm, thin), (thin, thin), (thin, arm),
            (-thin, arm), (-thin, thin), (-arm, thin), (-arm, -thin), (-thin, -thin), (-thin, -arm),
        ]  # fmt: skip
        return polygon([(x + a, y + b) for a, b in corners])
    if shape == "disc":
        r = f"{radius:.1f}"
        return (
            f"M{x - radius:.1f},{y:.1f}a{r},{r} 0 1 0 {2 * radius:.1f},0a{r},{r} 0 1 0 {-2 * radius:.1f},0Z"
        )
    wide = radius * (1.0 if shape == "diamond" else 1.18)  # so that all shapes cover about the same area
    turns = [math.radians(angle) for angle in _CORNERS[shape]]
    return polygon([(x + wide * math.sin(turn), y - wide * math.cos(turn)) for turn in turns])


def polygon(corners: Sequence[Point]) -> str:
    """Return the path of a closed line."""
    return polyline(corners) + "Z"


def polyline(corners: Sequence[Point]) -> str:
    """Return the path of an open line."""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _start(run: Sequence[float], apart: float, low: float, high: float) -> float:
    """Return where a run of touching labels starts: about the middle of their places, inside low..high."""
    length = apart * (len(run) - 1)
    return min(max(sum(run) / len(run) - length / 2, low), max(high - length, low))
