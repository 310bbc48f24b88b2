"""Ticks: names of tensors along the axes of a matrix, where they have the room."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from .canvas import LETTER, SMALL, foreground
from .sides import Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOM = 0.04
"""The share of an axis that a name needs."""

STEEP = 16
"""Up to so many names are slanted; more stand upright."""


def aspect(shape: tuple[int, int]) -> Literal["equal", "auto"]:
    """Square entries, unless that made a thread of the matrix."""
    return "equal" if max(shape) <= 4 * min(shape) else "auto"


def height_of(rows: Side, columns: Side) -> float:
    """Inches for a matrix, and for the names below it."""
    names = below(columns.labels) if len(columns.labels) > 1 else 0.0
    return min(5.2, max(2.8, 5.0 * rows.edges[-1] / columns.edges[-1])) + names


def below(labels: tuple[str, ...]) -> float:
    """Inches that names below a picture take."""
    longest = LETTER * max(map(len, labels))
    return longest if len(labels) > STEEP else longest / 2**0.5


def mark(ax: Axes, axis: str, side: Side) -> None:
    """Lines between the tensors of one side, and their names where these do not collide."""
    from matplotlib.ticker import MaxNLocator

    along = ax.xaxis if axis == "x" else ax.yaxis
    along.set_label_text(side.axis)
    along.set_tick_params(labelsize=SMALL)
    if len(side.labels) == 1:
        along.set_major_locator(MaxNLocator(integer=True))
        return
    line = ax.axvline if axis == "x" else ax.axhline
    for edge in side.edges[1:-1]:
        line(edge - 0.5, color=foreground(), linewidth=0.6)
    spans = zip(pairwise(side.edges), side.labels, strict=True)
    wide = [((a + b - 1) / 2, text) for (a, b), text in spans if b - a > ROOM * side.edges[-1]]
    along.set_ticks([at for at, _ in wide], [text for _, text in wide])
    if axis == "x":
        slant(ax, len(wide))


def slant(ax: Axes, count: int) -> None:
    """Names below a picture, turned as far as their number needs."""
    steep = count > STEEP
    ax.tick_params(axis="x", labelsize=SMALL, labelrotation=90 if steep else 45)
    for text in ax.get_xticklabels():
        text.set_horizontalalignment("center" if steep else "right")
        text.set_rotation_mode("default" if steep else "anchor")
