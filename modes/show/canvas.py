"""Canvas: axes of matplotlib, colours, and the names of tensors beside a matrix.

matplotlib is loaded at the first picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import Jacobian, prod_text, shape_of, size
from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import flat_shape
from ..model.primal.model import TensorSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE_INCHES = 6.4
"""Width of a figure in inches: the width of a notebook's output."""

TEXT_POINTS = 8
"""Points of the smallest text."""

LETTER = 0.062
"""Width in inches of a letter of the smallest text."""

BLUE, VERMILLION = "#0072B2", "#D55E00"
GREY = "0.5"
"""The colour of arrows and of their names, visible on white and on black."""

PALETTE = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours that everyone can tell apart, on white and black. Source: Okabe and Ito, 2008."""

MAGNITUDES, SIGNED = "viridis", "RdBu_r"
"""Colour maps for numbers from zero upwards, and for numbers of both signs."""

SLANTED_NAMES = 16
"""Up to this many names are slanted; more stand upright."""


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says how to install it."""
    optional("matplotlib", "plots")
    from matplotlib import pyplot as plt

    return plt


def given_axes(ax: Axes | None, height: float) -> Axes:
    """The given axes, or the axes of a new figure, `height` inches high."""
    plt = pyplot()
    if ax is None:
        ax = plt.subplots(figsize=(FIGURE_INCHES, height), layout="constrained")[1]
    if not isinstance(ax, plt.Axes):
        raise InputError(f"ax must be Axes of matplotlib, not {type(ax).__name__}: `ax=axes[0]`?")
    return ax


def check_jacobian(J: Any) -> None:
    """Raise `InputError` unless J is an operator with entries."""
    if not isinstance(J, Jacobian):
        raise InputError(f"this draws a Jacobian, as `linearize` gives it, not {type(J).__name__}")
    if 0 in J.shape:
        raise InputError(f"an operator of shape {J.shape} has no entries to draw")


def foreground() -> str:
    """The colour of text under the style in use, light or dark."""
    return str(pyplot().rcParams["text.color"])


def next_color(ax: Axes) -> str:
    """The colour of the palette for the next line, in a cycle."""
    return PALETTE[len(ax.lines) % len(PALETTE)]


def bar(image: Any, label: str, cax: Axes | None = None) -> None:
    """A colour bar, in the given axes or beside the picture."""
    place = {"cax": cax} if cax else {"ax": image.axes, "pad": 0.02}
    shown = image.axes.figure.colorbar(image, **place)
    shown.set_label(label, fontsize=TEXT_POINTS + 1)
    shown.ax.tick_params(which="both", labelsize=TEXT_POINTS)


def shortened(texts: Sequence[str], width: int) -> list[str]:
    """Each text, or its two ends where it is longer than `width`; and more of the texts that would
    look alike, so that those that differ stay different.

    >>> shortened(["encoder.layer.0.attention.weight", "decoder.bias"], 16)
    ['encoder.….weight', 'decoder.bias']
    >>> shortened(["encoder.layer.0.attention.weight", "encoder.layer.1.attention.weight"], 16)
    ['encoder.layer.0.attention.weight', 'encoder.layer.1.attention.weight']
    """

    def ends(text: str) -> str:
        if len(text) <= width:
            return text
        return text[: (width - 1) // 2 + 1] + "…" + text[len(text) - (width - 2) // 2 :]

    meant: dict[str, set[str]] = {}
    for text in texts:
        meant.setdefault(ends(text), set()).add(text)
    alike = [text for text in texts if len(meant[ends(text)]) > 1]
    longer = dict(zip(alike, shortened(alike, 2 * width), strict=True)) if alike else {}
    return [longer.get(text, ends(text)) for text in texts]


# -- sides: the tensors along the rows and the columns of a matrix ---------------------------------


@dataclass(frozen=True)
class Side:
    """Parts of the rows or columns: a label for each, and the entries where each begins and ends.

    Part k has the entries from `edges[k]` to `edges[k + 1]`.
    """

    title: str
    labels: tuple[str, ...]
    edges: tuple[int, ...]

    def merged(self, most: int) -> Side:
        """Join neighbours until there are no more than `most` parts."""
        n = len(self.labels)
        if n <= most:
            return self
        cuts = cut_evenly(n, most)
        labels = (f"{self.labels[a].split()[0]} … ({b - a})" for a, b in pairwise(cuts))
        return Side(self.title, tuple(labels), tuple(self.edges[k] for k in cuts))

    def tiled(self, most: int) -> Side:
        """Equal parts, no more than `most`, regardless of the tensors."""
        cuts = cut_evenly(self.edges[-1], most)
        return Side(self.title, ("",) * (len(cuts) - 1), cuts)

    @property
    def axis(self) -> str:
        """The title, and the tensor where it is the only one."""
        only = self.labels[0] if len(self.labels) == 1 else ""
        return f"{self.title}: {only}" if only else self.title


def cut_evenly(n: int, most: int) -> tuple[int, ...]:
    """Where n entries are cut into equal parts, no more than `most`, from 0 to n."""
    return tuple(map(int, np.linspace(0, n, min(n, most) + 1).round()))


def matrix_sides(J: Jacobian) -> tuple[Side, Side]:
    """The tensors of the rows and of the columns; without names, one part each."""
    columns: Any = getattr(J, "domain", None)
    rows: Any = getattr(J, "codomain", columns)
    if rows is None or flat_shape(rows) + flat_shape(columns) != J.shape:
        m, n = J.shape
        return Side("rows", ("",), (0, m)), Side("columns", ("",), (0, n))
    of, wrt = ("wrt", "of") if getattr(J, "transposed", False) else ("of", "wrt")
    named = hasattr(J, "codomain")
    titles = (f"{of} (rows)", f"{wrt} (columns)") if named else ("rows", "columns")
    return side_of(titles[0], rows), side_of(titles[1], columns)


def side_of(title: str, specs: tuple[TensorSpec, ...]) -> Side:
    """One tensor after the other, each with its name and shape."""
    edges = np.cumsum([0, *(size(shape_of(spec)) for spec in specs)])
    names = shortened([spec.name for spec in specs], 22)
    shapes = (prod_text(shape_of(spec)) for spec in specs)
    labels = map(" ".join, zip(names, shapes, strict=True))
    return Side(title, tuple(labels), tuple(map(int, edges)))


# -- the axes of a matrix --------------------------------------------------------------------------


def matrix_axes(J: Jacobian, ax: Axes | None) -> tuple[Axes, dict[str, Any]]:
    """The given axes, or new axes for the matrix of J and the names below it; `imshow`'s options.

    Ticks are at entry indices; entries are square unless J is long and thin.
    """
    m, n = J.shape
    _, columns = matrix_sides(J)
    names = below(columns.labels) if len(columns.labels) > 1 else 0.0
    aspect = "equal" if max(J.shape) <= 4 * min(J.shape) else "auto"
    options = {"aspect": aspect, "extent": (-0.5, n - 0.5, m - 0.5, -0.5)}
    return given_axes(ax, min(5.2, max(2.8, 5.0 * m / n)) + names), options


def below(labels: tuple[str, ...]) -> float:
    """Height in inches of the names below a picture."""
    longest = LETTER * max(map(len, labels))
    return longest if len(labels) > SLANTED_NAMES else longest / 2**0.5


def mark(ax: Axes, J: Jacobian) -> None:
    """Lines between the tensors on both sides of a matrix, and names where there is room."""
    from matplotlib.ticker import MaxNLocator

    for side, along, line in zip(matrix_sides(J), (ax.yaxis, ax.xaxis), (ax.axhline, ax.axvline),
                                 strict=True):  # fmt: skip
        along.set_label_text(side.axis)
        along.set_tick_params(labelsize=TEXT_POINTS)
        if len(side.labels) == 1:
            along.set_major_locator(MaxNLocator(integer=True))
            continue
        for edge in side.edges[1:-1]:
            line(edge - 0.5, color=foreground(), linewidth=0.6)
        spans = zip(pairwise(side.edges), side.labels, strict=True)
        room = 0.04 * side.edges[-1]  # for a name
        wide = [((a + b - 1) / 2, text) for (a, b), text in spans if b - a > room]
        along.set_ticks([at for at, _ in wide], labels=[text for _, text in wide])
        if along is ax.xaxis:
            slant(ax, len(wide))


def slant(ax: Axes, count: int) -> None:
    """Slanted names below a picture, or upright ones where there are many."""
    steep = count > SLANTED_NAMES
    ax.tick_params(axis="x", labelsize=TEXT_POINTS, labelrotation=90 if steep else 45)
    for text in ax.get_xticklabels():
        text.set_horizontalalignment("center" if steep else "right")
        text.set_rotation_mode("default" if steep else "anchor")
