"""Arrows: a drawing on axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .canvas import BLUE, GREY, SMALL, VERMILLION, foreground
from .drawing import Drawing
from .labels import write
from .layers import Link, Places
from .ways import along, bulge, passing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THIN, WIDE = 0.6, 3.0
"""Points of the arrow of the fewest flops and of the most."""

GAP = 0.12
"""Of a layer, that a bent arrow ends before its point."""

ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": GREY}


def draw(ax: Axes, drawing: Drawing, layers: int | None = None) -> None:
    """Points in layers, the sources on top; arrows between them; what they are called.

    There is room for so many layers, by default for those that there are.
    """
    most = max(link.flops for link in drawing.links)
    for link in drawing.links:
        draw_link(ax, drawing.places, link, width(link.flops, most))
    for kind, color, text in kinds(drawing):
        at = np.array([drawing.places[v] for v in kind if v in drawing.places]).reshape(-1, 2)
        ax.plot(*at.T, "o", color=color, markersize=5, label=text, zorder=3)
    frame(ax, drawing, drawing.layers if layers is None else layers)
    legend(ax, most)
    write(ax, drawing)


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


def width(flops: int, most: int) -> float:
    """Points, by the logarithm of the flops."""
    return THIN + (WIDE - THIN) * float(np.log1p(flops) / np.log1p(max(most, 1)))


def frame(ax: Axes, drawing: Drawing, layers: int) -> None:
    """Layers downwards, and room for the names on both sides."""
    x = [x for x, _ in drawing.places.values()]
    ax.set_xlim(min(x) - 0.9, max(x) + 0.9)
    ax.set_ylim(layers - 0.6, -0.4)
    ax.set_axis_off()


def legend(ax: Axes, most: int) -> None:
    """What the colours and the widths mean, below the drawing."""
    ax.plot([], [], color=GREY, linewidth=WIDE, label=f"{most:,} flops")
    ax.legend(fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
