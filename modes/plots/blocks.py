"""Blocks: a cell for each pair of tensors, coloured by the norm of the block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import Jacobian
from .canvas import MAGNITUDES, SMALL, axes, bar
from .norms import BlockNorms, block_norms
from .sides import sides
from .ticks import aspect, below, height_of, mark, slant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 32
"""So many tensors have their own row or column; more are taken together."""

NUMBERS = 10
"""In so many columns there is room for numbers."""

LUMA = (0.299, 0.587, 0.114)
"""How bright the eye sees red, green and blue. Source: ITU-R BT.601."""

TILES = 24
"""Parts of each side of a large block."""


def plot_blocks(J: Jacobian, ax: Axes | None, seed: int) -> Axes:
    """‖∂of/∂wrt‖_F for every pair of tensors; a block that is zero stays empty."""
    rows, columns = (side.merged(MOST) for side in sides(J))
    norms = block_norms(J, rows.edges, columns.edges, seed=seed)
    ax = axes(ax, min(5.0, 1.7 + 0.25 * len(rows.labels)) + below(columns.labels))
    image = coloured(ax, norms.values, aspect="auto")
    ax.set_xticks(range(len(columns.labels)), columns.labels)
    ax.set_yticks(range(len(rows.labels)), rows.labels, fontsize=SMALL)
    slant(ax, len(columns.labels))
    ax.set(xlabel=columns.title, ylabel=rows.title)
    if len(columns.labels) <= NUMBERS:
        write_numbers(ax, image, norms.values)
    bar(image, "Frobenius norm")
    tell_margin(ax, norms)
    return ax


def plot_tiles(J: Jacobian, ax: Axes | None, seed: int) -> Axes:
    """√(Σ J² / entries) for every tile of a large matrix."""
    rows, columns = (side.tiled(TILES) for side in sides(J))
    norms = block_norms(J, rows.edges, columns.edges, probes=8, seed=seed)
    counts = np.outer(np.diff(rows.edges), np.diff(columns.edges))
    ax = axes(ax, height_of(*sides(J)))
    m, n = J.shape
    image = coloured(ax, norms.values / np.sqrt(counts), aspect=aspect(J.shape),
                     extent=(-0.5, n - 0.5, m - 0.5, -0.5))  # fmt: skip
    for side, of in zip(sides(J), "yx", strict=True):
        mark(ax, of, side)
    bar(image, "root mean square of entries")
    tell_margin(ax, norms)
    return ax


def coloured(ax: Axes, values: np.ndarray, **options: Any) -> Any:
    """Magnitudes as colours, on a log scale where they differ much; zero has no colour."""
    from matplotlib.colors import LogNorm, Normalize

    shown = np.ma.masked_equal(values, 0)
    low, high = (float(f(shown)) if shown.count() else 1.0 for f in (np.min, np.max))
    norm = LogNorm(low, high) if high > 30 * low else Normalize(0, high)
    return ax.imshow(shown, MAGNITUDES, norm=norm, **options)


def write_numbers(ax: Axes, image: Any, values: np.ndarray) -> None:
    """Two digits in every cell, dark on light and light on dark; a zero where no colour is."""
    from matplotlib.colors import to_rgb

    for (i, j), value in np.ndenumerate(values):
        color = image.cmap(image.norm(value)) if value else ax.get_facecolor()
        dark = np.dot(LUMA, to_rgb(color)) < 0.5
        ax.text(j, i, two_digits(value), ha="center", va="center", fontsize=SMALL,
                color="white" if dark else "black")  # fmt: skip


def two_digits(value: float) -> str:
    """A norm in as few letters as there is room for.

    >>> [two_digits(v) for v in (0, 0.0123, 4.56, 1234.5, 1.2e5)]
    ['0', '0.012', '4.6', '1200', '1e+05']
    """
    if value and not 1e-3 <= value < 1e5:
        return f"{value:.0e}"
    return np.format_float_positional(value, 2, fractional=False, trim="-")


def tell_margin(ax: Axes, norms: BlockNorms) -> None:
    """What the norms may be off by, where they are estimates."""
    if norms.error:
        text = f"from {norms.products} products, standard error up to {norms.error:.0%}"
        ax.set_title(text, fontsize=SMALL + 1)
