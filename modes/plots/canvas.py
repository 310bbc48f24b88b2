"""Canvas: matplotlib, loaded at the first picture, and what all pictures have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...jacobians import Jacobian
from ...jacobians.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 6.4
"""Inches, as wide as the output of a notebook."""

SMALL = 8
"""Points of the smallest text."""

LETTER = 0.062
"""Inches that one of its letters takes."""

BLUE, VERMILLION = "#0072B2", "#D55E00"
GREY = "0.5"
"""The colour of arrows and of what is said of them, seen on white and on black."""

PALETTE = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours that everyone tells apart, on white and on black. Source: Okabe and Ito, 2008."""

MAGNITUDES, SIGNED = "viridis", "RdBu_r"
"""Colour maps for numbers from zero upwards, and for numbers of both signs."""


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says how to get it."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise InputError("pictures need matplotlib: `pip install 'onnxjac[plots]'`.") from None
    return plt


def axes(ax: Axes | None, height: float) -> Axes:
    """The given axes, or those of a new figure, so many inches high."""
    plt = pyplot()
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, height), layout="constrained")[1]
    if not isinstance(ax, plt.Axes):
        raise InputError(f"ax must be Axes of matplotlib, not {type(ax).__name__}: `ax=axes[0]`?")
    return ax


def foreground() -> str:
    """The colour of text under the style in use, light or dark."""
    return str(pyplot().rcParams["text.color"])


def next_color(ax: Axes) -> str:
    """The first colour of the palette that no line has."""
    return PALETTE[len(ax.lines) % len(PALETTE)]


def check_jacobian(J: Any) -> None:
    """A picture is of an operator."""
    if not isinstance(J, Jacobian):
        raise InputError(f"this draws a Jacobian, as `linearize` gives it, not {type(J).__name__}")
    if 0 in J.shape:
        raise InputError(f"an operator of shape {J.shape} has no entries to draw")


def bar(image: Any, label: str, cax: Axes | None = None) -> None:
    """What the colours mean, in axes of its own or beside the picture."""
    ax = image.axes
    shown = ax.figure.colorbar(image, cax=cax, **({} if cax else {"ax": ax, "pad": 0.02}))
    shown.set_label(label, fontsize=SMALL + 1)
    shown.ax.tick_params(which="both", labelsize=SMALL)


def shortened(text: str, width: int) -> str:
    """The two ends of a text that is too long.

    >>> shortened("encoder.layer.0.attention.weight", 16)
    'encoder.….weight'
    """
    if len(text) <= width:
        return text
    return text[: (width - 1) // 2 + 1] + "…" + text[len(text) - (width - 2) // 2 :]
