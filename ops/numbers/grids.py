"""GridSample and AffineGrid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array, reading
from .table import ints, kernel


@kernel("GridSample")
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """Weighted sums of neighbours of each point of the grid."""
    from ..node import Node, Step
    from ..rules.grids import grid_samples

    attributes = {"align_corners": align_corners, "mode": mode, "padding_mode": padding_mode}
    step = Step("GridSample", "", 21, "", ("x", "grid"), ("y",), attributes)
    samples, _ = grid_samples(reading(x), Node(step, (x, grid.astype(x.dtype, copy=False)), ()))
    return np.moveaxis(samples.value, -1, 1)


@kernel("AffineGrid")
def affine_grid(theta: Array, size: Any, *, align_corners: int = 0) -> Array:
    """θ applied to the coordinates of every point."""
    from ..rules.grids import base_grid

    lengths = ints(size)[2:]
    base = base_grid(reading(theta), lengths, bool(align_corners), theta.dtype)
    return (base @ theta.swapaxes(1, 2)).reshape(len(theta), *lengths, len(lengths))
