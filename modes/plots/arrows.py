"""Arrows: a drawing on axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .canvas import BLUE, LETTER, SMALL, VERMILLION, foreground, shortened
from .drawing import Drawing
from .layers import Link, Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THIN, WIDE = 0.6, 3.0
"""Points of the arrow of the fewest flops and of the most."""

GREY = "0.5"
"""The colour of arrows, seen on white and on black."""

GAP = 0.12
"""Of a layer, that a bent arrow ends before its point."""

ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": GREY}


def draw(ax: Axes, drawing: Drawing) -> None:
    """Points in layers, the sources on top; arrows between them; what they are called."""
    most = max(link.flops for link in drawing.links)
    for link in drawing.links:
        draw_link(ax, drawing.places, link, width(link.flops, most))
    for kind, color, text in kinds(drawing):
        at = np.array([drawing.places[v] for v in kind if v in drawing.places]).reshape(-1, 2)
        ax.plot(*at.T, "o", color=color, markersize=5, label=text, zorder=3)
    frame(ax, drawing)
    write(ax, drawing)
    legend(ax, most)


def kinds(drawing: Drawing) -> Iterable[tuple[Iterable[int], str, str]]:
    """The points of each kind, their colour, and what they are."""
    ends = drawing.sources | drawing.sinks
    yield drawing.sources, BLUE, "wrt"
    yield drawing.places.keys() - ends, foreground(), "between"
    yield drawing.sinks, VERMILLION, "of"


def draw_link(ax: Axes, places: Places, link: Link, points: float) -> None:
    """An arrow, straight or past what is between."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    ends = [along(places, link, t) for t in (0.0, 1.0)]
    if passing(places, link):
        (x, y0), (_, y1) = ends
        middle = x - 2 * bulge(places, link), (y0 + y1) / 2
        path = Path([ends[0], middle, (x, y1 - GAP)], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        arrow = FancyArrowPatch(path=path, mutation_scale=9, **ARROW, linewidth=points)
    else:
        arrow = FancyArrowPatch(*ends, mutation_scale=9, shrinkA=3, shrinkB=3, **ARROW,
                                linewidth=points)  # fmt: skip
    ax.add_patch(arrow)


def passing(places: Places, link: Link) -> bool:
    """Whether a straight arrow would run through other points."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    return x0 == x1 and y1 > y0 + 1


def bulge(places: Places, link: Link) -> float:
    """How far to the left an arrow swings out."""
    return min(0.1 * (places[link.end][1] - places[link.start][1]), 0.6)


def along(places: Places, link: Link, t: float) -> tuple[float, float]:
    """The point of the arrow at t from 0 to 1."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    swing = 4 * t * (1 - t) * bulge(places, link) if passing(places, link) else 0.0
    return x0 + t * (x1 - x0) - swing, y0 + t * (y1 - y0)


def width(flops: int, most: int) -> float:
    """Points, by the logarithm of the flops."""
    return THIN + (WIDE - THIN) * float(np.log1p(flops) / np.log1p(max(most, 1)))


def write(ax: Axes, drawing: Drawing) -> None:
    """Names beside the points, on the left of the leftmost; what operators are, below the start."""
    left = min(x for x, _ in drawing.places.values())
    letters = room(ax)
    for v, name in drawing.names.items():
        x, y = drawing.places[v]
        text(ax, shortened(name, letters), (x, y), side=-1 if x == left else 1)
    if not drawing.named:
        return
    out = Counter(link.start for link in drawing.links)
    for link in drawing.links:
        at = label_place(drawing.places, link, alone=out[link.start] == 1)
        text(ax, shortened(link.text, letters), at, style="italic", color=GREY)


def label_place(places: Places, link: Link, *, alone: bool) -> tuple[float, float]:
    """Between two layers, where names of points are not: below the start, or near the end."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    if passing(places, link):
        return along(places, link, ((y1 - y0) // 2 + 0.5) / (y1 - y0))
    if alone or x0 == x1:
        return x0, y0 + 0.5
    return along(places, link, 1 - 0.5 / (y1 - y0))


def text(ax: Axes, what: str, at: tuple[float, float], side: int = 1, **style: Any) -> None:
    """Small letters to the right or to the left of a point; lines fade behind them."""
    faded = {"facecolor": ax.figure.get_facecolor(), "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
    ax.annotate(what, at, (5 * side, 0), textcoords="offset points", va="center", bbox=faded,
                ha="left" if side > 0 else "right", fontsize=SMALL, zorder=4, **style)  # fmt: skip


def room(ax: Axes) -> int:
    """Letters that fit between two columns of points."""
    ax.figure.canvas.figure.draw_without_rendering()  # gives the axes their place
    low, high = ax.get_xlim()
    inches = ax.get_window_extent().width / ax.figure.dpi
    return max(6, int(inches / (high - low) / LETTER) - 3)


def frame(ax: Axes, drawing: Drawing) -> None:
    """Layers downwards, and room for the names on both sides."""
    x, y = np.array(list(drawing.places.values())).T
    ax.set_xlim(x.min() - 0.9, x.max() + 0.9)
    ax.set_ylim(y.max() + 0.4, y.min() - 0.4)
    ax.set_axis_off()


def legend(ax: Axes, most: int) -> None:
    """What the colours and the widths mean, below the drawing."""
    ax.plot([], [], color=GREY, linewidth=WIDE, label=f"{most:,} flops")
    ax.legend(fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
