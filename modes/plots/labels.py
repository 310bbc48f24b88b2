"""Labels: the names of points and of arrows, each where it hides no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .canvas import GREY, LETTER, SMALL, shortened
from .drawing import Drawing
from .layers import Link, Places
from .ways import along, passing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.15
"""Inches that a line of the smallest text is high."""

ASIDE = 5
"""Points between a place and the text beside it."""

TRIED = (0.5, 0.35, 0.65, 0.2, 0.8)
"""Along an arrow, where its name may stand if it has no room where it should."""


class Spot(NamedTuple):
    """A place, and on which side of it a text stands: 1 for the right, -1 for the left."""

    x: float
    y: float
    side: int


class Box(NamedTuple):
    """What a text covers, in inches."""

    left: float
    right: float
    top: float
    bottom: float

    def shared(self, other: Box) -> float:
        """Square inches that it has in common with another one."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)


class Sheet:
    """Axes with what is written on them, and how many inches one unit of theirs is."""

    def __init__(self, ax: Axes) -> None:
        ax.figure.canvas.figure.draw_without_rendering()  # gives the axes their place
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        place, dpi = ax.get_window_extent(), ax.figure.dpi
        self.ax, self.taken = ax, list[Box]()
        self.inches = place.width / dpi / (right - left), place.height / dpi / (bottom - top)

    @property
    def letters(self) -> int:
        """Letters that fit between two columns of points."""
        return max(6, int(self.inches[0] / LETTER) - 3)

    def box(self, what: str, at: Spot) -> Box:
        """What a text beside a place would cover."""
        start = at.x * self.inches[0] + at.side * ASIDE / 72
        end, middle = start + at.side * LETTER * len(what), at.y * self.inches[1]
        return Box(min(start, end), max(start, end), middle - LINE / 2, middle + LINE / 2)

    def hidden(self, what: str, at: Spot) -> float:
        """How much of what is written already a text would hide."""
        box = self.box(what, at)
        return sum(box.shared(other) for other in self.taken)

    def write(self, what: str, at: Spot, **style: Any) -> None:
        """Small letters beside a place; lines fade behind them."""
        self.taken.append(self.box(what, at))
        color = self.ax.figure.get_facecolor()
        faded = {"facecolor": color, "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
        self.ax.annotate(
            what, at[:2], (ASIDE * at.side, 0), textcoords="offset points", va="center",
            bbox=faded, ha="left" if at.side > 0 else "right", fontsize=SMALL, zorder=4, **style,
        )  # fmt: skip


def write(ax: Axes, drawing: Drawing) -> None:
    """Names beside the points, on the left of the leftmost; what operators are, by the arrows."""
    sheet, places = Sheet(ax), drawing.places
    left = min(x for x, _ in places.values())
    for v, name in drawing.names.items():
        x, y = places[v]
        sheet.write(shortened(name, sheet.letters), Spot(x, y, -1 if x == left else 1))
    if not drawing.named:
        return
    out = Counter(link.start for link in drawing.links)
    for link in drawing.links:
        what = shortened(link.text, sheet.letters)
        spots = label_spots(places, link, alone=out[link.start] == 1)
        at = min(spots, key=lambda spot: sheet.hidden(what, spot))  # of several, the first
        sheet.write(what, at, style="italic", color=GREY)


def label_spots(places: Places, link: Link, *, alone: bool) -> Iterator[Spot]:
    """Where the name of an arrow may stand, the best place first, on the right and on the left."""
    ways = label_place(places, link, alone=alone), *(along(places, link, t) for t in TRIED)
    return (Spot(*at, side) for at in ways for side in (1, -1))


def label_place(places: Places, link: Link, *, alone: bool) -> tuple[float, float]:
    """Between two layers, where names of points are not: below the start, or near the end."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    if passing(places, link):
        return along(places, link, ((y1 - y0) // 2 + 0.5) / (y1 - y0))
    if alone or x0 == x1:
        return x0, y0 + 0.5
    return along(places, link, 1 - 0.5 / (y1 - y0))
