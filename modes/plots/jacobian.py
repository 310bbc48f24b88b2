"""The matrix: its entries where they are few, else the magnitudes of its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.hooks import plot as hook
from ...jacobians.progress import progress as watched
from .blocks import plot_blocks, plot_tiles
from .canvas import SIGNED, axes, bar, check_jacobian
from .sides import sides
from .ticks import aspect, height_of, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENTRIES = 2**16
"""So many entries are a small matrix."""


def plot_jacobian(
    J: Jacobian, *, entries: bool | None = None, ax: Axes | None = None, seed: int = 0,
    progress: bool | None = None,
) -> Axes:  # fmt: skip
    """J as a picture: rows downwards, columns to the right, colours for magnitudes.

    Several tensors are drawn as blocks, `of` by `wrt`, coloured by Frobenius norm; one small block,
    of up to 65,536 entries, entry by entry; a larger one in 24 × 24 tiles. `entries=True` draws
    the entries whatever there is, as far as `toarray` goes, and `entries=False` never does. Norms
    come from products: exact where there are few rows, else with the standard error that stands
    beside the colours. Names and shapes are on the axes; numbers are in the units of the tensors,
    ∂of per ∂wrt. `progress` is as for `onnxjac.progress`. `J.plot()` is the same.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, and where J is no operator of onnxjac or has no entries; `LimitError` where
    `entries=True` needs more than `toarray` may take.
    """
    check_jacobian(J)
    rows, columns = sides(J)
    single = len(rows.labels) == len(columns.labels) == 1
    few = single and J.shape[0] * J.shape[1] <= ENTRIES
    with watched(progress):
        if entries or (entries is None and few):
            return plot_entries(J, ax)
        return plot_tiles(J, ax, seed) if single else plot_blocks(J, ax, seed)


@hook.register(Jacobian)
def _(J: Jacobian, **options: Any) -> Axes:
    return plot_jacobian(J, **options)


def plot_entries(J: Jacobian, ax: Axes | None) -> Axes:
    """Every entry, red above zero and blue below."""
    matrix = np.asarray(J.toarray(), float)
    ax = axes(ax, height_of(*sides(J)))
    most = float(np.abs(matrix).max())
    image = ax.imshow(matrix, SIGNED, vmin=-most, vmax=most, aspect=aspect(J.shape))
    for side, of in zip(sides(J), "yx", strict=True):
        mark(ax, of, side)
    bar(image, "entry")
    return ax
