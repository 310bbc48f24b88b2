"""Resize: linear in x but for the extrapolation value, so that its derivative computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import kernel


@kernel("Resize")
def resize(x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, **attrs: Any) -> Array:
    """Weighted sums of neighbours along each axis."""
    from ..node import Node, Step
    from ..resize import AxisOfResize, resized_axes
    from . import numbers

    floating = x if x.dtype.kind == "f" else x.astype(np.float64)
    step = Step("Resize", "", 21, "", ("x", "roi", "scales", "sizes"), ("y",), attrs)
    inputs = (floating, *(None if a is None else np.asarray(a) for a in (roi, scales, sizes)))
    y = floating
    shape = resized_shape(Node(step, inputs, ()))
    node = Node(step, inputs, (np.broadcast_to(floating.dtype.type(0), shape),))
    outside = np.zeros((), bool)
    for k in range(len(resized_axes(node))):
        axis = AxisOfResize(numbers, node, k)
        if not axis.stays:
            y = axis.operator(numbers, y.shape, axis.weight)._apply(numbers, y)
            outside = outside | axis.outside(y.ndim)
    if outside.any():
        y = np.where(outside, np.asarray(node.extrapolation_value, y.dtype), y)
    return y if y.dtype == x.dtype else saturated(y, x.dtype)


def resized_shape(node: Any) -> tuple[int, ...]:
    """The shape of the result: by sizes, or ⌊n · scale⌋."""
    from ..resize import ROI, fixed_scale, resized_axes

    axes, shape = resized_axes(node), list(node.x_shape)
    crops = node.coordinate_transformation_mode == "tf_crop_and_resize"
    sizes = node.ints(3)
    for k, axis in enumerate(axes):
        scale = fixed_scale(node, k)
        if sizes and node.keep_aspect_ratio_policy == "stretch":
            shape[axis] = sizes[k]
        elif sizes:
            shape[axis] = int(np.floor(scale * shape[axis] + 0.5))
        else:
            extent = node.inputs[ROI][k + len(axes)] - node.inputs[ROI][k] if crops else 1
            shape[axis] = int(np.floor(shape[axis] * extent * scale))
    return tuple(shape)


def saturated(y: Array, dtype: np.dtype) -> Array:
    """Rounded and cut to the range of an integer type."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y), limits.min, limits.max).astype(dtype)
