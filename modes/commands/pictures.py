"""Pictures: a plot as an image within a page, in the colours of the reader's theme."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from ...jacobians.errors import OnnxJacError
from ..plots.canvas import pyplot
from ..reporting.html.elements import FAINT, Markup, tag

INK, GROUND = "#010203", "#fdfcfb"
"""What matplotlib draws with and on, until it gets the colours of the theme."""

LIGHT, DARK = ("#1a1a1a", "#ffffff"), ("#e6e6e6", "#121212")
"""Ink and ground of the themes."""

THEME = (
    "<style>:root{{color:{};--ground:{}}}"
    "@media (prefers-color-scheme:dark){{:root{{color:{};--ground:{}}}}}</style>"
).format(*LIGHT, *DARK)

INKED = (
    "text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color",
    "ytick.color", "grid.color", "legend.edgecolor",
)  # fmt: skip

GROUNDED = ("figure.facecolor", "savefig.facecolor", "axes.facecolor")

EMPTY = "#dddddd"
"""The ground of a picture whose cells bear black or white numbers."""

DPI = 144
"""Dots per inch of what is an image in a picture: twice those of a page."""


def picture(title: str, draw: Callable[[], Any], *, ground: str = GROUND) -> Markup:
    """What `draw` draws, under its title; a sentence where it cannot be drawn."""
    try:
        shown: object = tag("img", src=data_uri(drawn(draw, ground)), alt=title)
    except (OnnxJacError, np.linalg.LinAlgError) as error:
        shown = tag("p", f"Not drawn: {error}", style=FAINT)
    return tag("figure", tag("figcaption", tag("b", title)), shown)


def drawn(draw: Callable[[], Any], ground: str) -> str:
    """A figure as SVG, its ink left to the theme."""
    plt = pyplot()
    plt.switch_backend("agg")  # no window, whatever the machine has
    style = {**dict.fromkeys(INKED, INK), **dict.fromkeys(GROUNDED, GROUND)}
    with plt.rc_context({**style, "axes.facecolor": ground, "svg.hashsalt": "onnxjac"}):
        axes = draw()
        text = io.StringIO()
        axes.figure.savefig(text, format="svg", dpi=DPI, metadata={"Date": None})
        plt.close(axes.figure)
    svg = text.getvalue()
    start = svg.index("<svg")
    head = svg.index(">", start) + 1
    body = svg[head:].replace(INK, "currentColor").replace(GROUND, "var(--ground)")
    return svg[start:head] + THEME + body


def data_uri(svg: str) -> str:
    """The address of an image that holds the image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
