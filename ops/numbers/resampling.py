"""Resize, GridSample, AffineGrid, DeformConv: linear maps, computed through their Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array, reading
from ..node import Node, node_of
from .table import ints, kernel


@kernel("Resize")
def resize(
    x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0,
    axes: Any = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:  # fmt: skip
    """Weighted sums of neighbours along each axis."""
    attributes = {
        "antialias": antialias,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside,
        "keep_aspect_ratio_policy": keep_aspect_ratio_policy,
        "mode": mode,
        "nearest_mode": nearest_mode,
        **({} if axes is None else {"axes": axes}),
    }
    floating = x if x.dtype.kind == "f" else x.astype(np.float64)
    others = (None if a is None else np.asarray(a) for a in (roi, scales, sizes))
    y, outside = interpolated(node_of("Resize", (floating, *others), attributes))
    if outside.any():
        y = np.where(outside, np.asarray(extrapolation_value, y.dtype), y)
    return y if y.dtype == x.dtype else saturated(y, x.dtype)


def interpolated(node: Node) -> tuple[Array, Array]:
    """The interpolated x, and a mask of the entries that lie outside of x."""
    from ..rules.resize import AxisOfResize, resized_axes

    y, outside, op = node.inputs[0], np.zeros((), bool), reading(node.inputs[0])
    assert y is not None
    made = np.broadcast_to(y.dtype.type(0), resized_shape(op, node))
    node = Node(node.step, node.inputs, (made,))
    for k in range(len(resized_axes(node))):
        axis = AxisOfResize(op, node, k)
        if not axis.stays:
            y = axis.operator(op, y.shape, axis.weight)._apply(op, y)
            outside = outside | axis.outside(y.ndim)
    return y, outside


def resized_shape(op: Any, node: Any) -> tuple[int, ...]:
    """The shape of the result: from sizes, or ⌊n · scale⌋."""
    from ..rules.resize import ROI, fixed_scale, resized_axes

    axes, shape = resized_axes(node), list(node.x_shape)
    crops = node.coordinate_transformation_mode == "tf_crop_and_resize"
    sizes = node.ints(3)
    for k, axis in enumerate(axes):
        scale = fixed_scale(op, node, k)
        if sizes and node.keep_aspect_ratio_policy == "stretch":
            shape[axis] = sizes[k]
        elif sizes:
            shape[axis] = int(np.floor(scale * shape[axis] + 0.5))
        else:
            extent = node.inputs[ROI][k + len(axes)] - node.inputs[ROI][k] if crops else 1
            shape[axis] = int(np.floor(shape[axis] * extent * scale))
    return tuple(shape)


def saturated(y: Array, dtype: np.dtype) -> Array:
    """y rounded and clipped to the range of an integer dtype."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y), limits.min, limits.max).astype(dtype)


@kernel("GridSample")
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:  # fmt: skip
    """Weighted sums of the neighbours of each point of the grid."""
    from ..rules.grids import grid_samples

    grid = grid.astype(x.dtype, copy=False)
    how = {"align_corners": align_corners, "mode": mode, "padding_mode": padding_mode}
    samples, _ = grid_samples(reading(x), node_of("GridSample", (x, grid), how))
    return np.moveaxis(samples.value, -1, 1)


@kernel("AffineGrid")
def affine_grid(theta: Array, size: Any, *, align_corners: int = 0) -> Array:
    """θ applied to the coordinates of every point."""
    from ..rules.grids import base_grid

    lengths = ints(size)[2:]
    base = base_grid(reading(theta), lengths, bool(align_corners), theta.dtype)
    return (base @ theta.swapaxes(1, 2)).reshape(len(theta), *lengths, len(lengths))


@kernel("DeformConv")
def deform_conv(
    x: Array, w: Array, offset: Array, b: Any = None, mask: Any = None, *, dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, offset_group: int = 1, pads: Any = None,
    strides: Any = None,
) -> Array:  # fmt: skip
    """The kernel applied to samples at displaced positions."""
    from ..rules.deformable import Deformed

    steps = {"dilations": dilations, "group": group, "offset_group": offset_group, "pads": pads,
             "strides": strides}  # fmt: skip
    deformed = Deformed(reading(x), node_of("DeformConv", (x, w, offset, b, mask), steps))
    y = deformed.contraction("weight")._apply(reading(x), w)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))
