"""Resize: linear in x but for the extrapolation value, so that its derivative computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array, reading
from .table import kernel


@kernel("Resize")
def resize(
    x: Array,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
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
    inputs = (floating, *(None if a is None else np.asarray(a) for a in (roi, scales, sizes)))
    y, outside = interpolated(inputs, attributes)
    if outside.any():
        y = np.where(outside, np.asarray(extrapolation_value, y.dtype), y)
    return y if y.dtype == x.dtype else saturated(y, x.dtype)


def interpolated(inputs: Any, attributes: dict[str, Any]) -> tuple[Array, Array]:
    """The sums, and which of them lie outside of x."""
    from ..node import Node, Step
    from ..rules.resize import AxisOfResize, resized_axes

    step = Step("Resize", "", 21, "", ("x", "roi", "scales", "sizes"), ("y",), attributes)
    y, outside, op = inputs[0], np.zeros((), bool), reading(inputs[0])
    shape = resized_shape(op, Node(step, inputs, ()))
    node = Node(step, inputs, (np.broadcast_to(y.dtype.type(0), shape),))
    for k in range(len(resized_axes(node))):
        axis = AxisOfResize(op, node, k)
        if not axis.stays:
            y = axis.operator(op, y.shape, axis.weight)._apply(op, y)
            outside = outside | axis.outside(y.ndim)
    return y, outside


def resized_shape(op: Any, node: Any) -> tuple[int, ...]:
    """The shape of the result: by sizes, or ⌊n · scale⌋."""
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
    """Rounded and cut to the range of an integer type."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y), limits.min, limits.max).astype(dtype)
