"""The picture and the page of sensitivities: what each width costs, weight by weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...jacobians import hooks
from ...jacobians.hooks import html
from ..model.markup import Markup, Page, card, fold_table, grid, tag
from ..sensitivities.sensitivities import Sensitivities
from . import svg
from .canvas import PALETTE, below, given_axes, shortened, slant
from .document import document, section

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Change of the loss by rounding one weight, in magnitude"


@html.register
def _(found: Sensitivities) -> str:
    """The picture, and the table."""
    return card("Sensitivities", repr(found), chart(found), fold_table(found.table))


@hooks.view.register
def _(found: Sensitivities, title: str) -> Page:
    """The whole page."""
    parts = section("Result", tag("p", repr(found))), section("By weight", chart(found),
                                                              grid(found.table))  # fmt: skip
    return Page(document(title, repr(found), *parts, subject="sensitivities"))


def chart(found: Sensitivities) -> Markup:
    """A curve for each width, over the weights."""
    columns = abs(found.costs()).T.tolist()
    series = [(f"{b} bits", x) for b, x in zip(found.weighed.bits, columns, strict=True)]
    return svg.figure(TITLE, svg.log_chart(series, [*found.weighed.weights], TITLE))


@hooks.plot.register(Sensitivities)
def plot_costs(found: Sensitivities, *, ax: Axes | None = None) -> Axes:
    """The same curves by matplotlib, with crosses where the change was measured."""
    names = shortened([*found.weighed.weights], 26)
    ax = given_axes(ax, 3.0 + below(tuple(names)))
    predicted, measured = abs(found.costs()).T, abs(found.costs("measured")).T
    for k, b in enumerate(found.weighed.bits):
        colour = PALETTE[k % len(PALETTE)]
        ax.semilogy(predicted[k], "o-", color=colour, label=f"{b} bits")
        ax.semilogy(measured[k], "x", color=colour)
    ax.set_xticks(np.arange(len(names)), labels=names)
    slant(ax, len(names))
    ax.set_ylabel("change of the loss")
    ax.set_title("Rounding one weight; crosses: measured")
    ax.legend()
    return ax
