"""Sparsity: where entries may be other than zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.hooks import spy as hook
from ...jacobians.progress import progress as watched
from ..sparse import pattern
from .blocks import coloured
from .canvas import axes, bar, check_jacobian, foreground
from .sides import sides
from .ticks import aspect, height_of, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 200
"""Cells along a side; a larger matrix is counted in tiles."""


def spy(J: Jacobian, *, ax: Axes | None = None, progress: bool | None = None) -> Axes:
    """J[i, j] ≠ 0 at some point: the pattern of `onnxjac.pattern`, rows downwards.

    Up to 200 × 200 entries are drawn one by one. A larger matrix is rasterised: the colour of a
    tile is the share of its entries that may be other than zero, so that a lone entry is still
    seen. `progress` is as for `onnxjac.progress`. `J.spy()` is the same.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, and where J is no operator of onnxjac or has no entries; `LimitError` where the
    pattern takes more than 2 GiB.
    """
    check_jacobian(J)
    with watched(progress):
        found = pattern(J)
    ax = axes(ax, height_of(*sides(J)))
    shares = tiles(found)
    m, n = J.shape
    options: dict[str, Any] = {"aspect": aspect(J.shape), "interpolation": "nearest",
                               "extent": (-0.5, n - 0.5, m - 0.5, -0.5)}  # fmt: skip
    if shares.shape == J.shape:
        draw(ax, shares, options)
    else:
        bar(coloured(ax, shares, **options), "share of entries in a tile")
    for side, of in zip(sides(J), "yx", strict=True):
        mark(ax, of, side)
    ax.set_title(f"{found.nnz:,} of {m:,} × {n:,} entries{share(found.nnz, m * n)}", fontsize=9)
    return ax


def share(count: int, of: int) -> str:
    """How many that is in a hundred, in two digits; nothing where it is none or all.

    >>> [share(k, 3000) for k in (0, 1, 100, 2000, 2999, 3000)]
    ['', ', 0.033%', ', 3.3%', ', 67%', ', over 99%', '']
    """
    if count in (0, of):
        return ""
    percent = 100 * count / of
    return f", {percent:.2g}%" if percent < 99 else ", over 99%"


@hook.register(Jacobian)
def _(J: Jacobian, **options: Any) -> Axes:
    return spy(J, **options)


def draw(ax: Axes, entries: np.ndarray, options: dict[str, Any]) -> None:
    """The entries in the colour of text, which is seen on any background."""
    from matplotlib.colors import ListedColormap

    shown = np.ma.masked_equal(entries, 0)
    ax.imshow(shown, ListedColormap([foreground()]), **options)


def tiles(found: Any) -> np.ndarray:
    """The share of each tile that the pattern fills, (rows, columns), 200 of each at most."""
    m, n = found.shape
    cuts = [np.linspace(0, k, min(k, CELLS) + 1).round() for k in (m, n)]
    at = found.tocoo()
    counts, _, _ = np.histogram2d(at.row, at.col, bins=[edges - 0.5 for edges in cuts])
    return counts / np.outer(*map(np.diff, cuts))
