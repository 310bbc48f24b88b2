"""DeformConv."""

from __future__ import annotations

from typing import Any

from ...jacobians.arrays import Array, reading
from .table import kernel


@kernel("DeformConv")
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Any = None,
    mask: Any = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    """The kernel applied to samples at displaced positions."""
    from ..node import Node, Step
    from ..rules.deformable import Deformed

    attributes = {
        "dilations": dilations,
        "group": group,
        "offset_group": offset_group,
        "pads": pads,
        "strides": strides,
    }
    step = Step("DeformConv", "", 21, "", ("x", "w", "offset", "b", "mask"), ("y",), attributes)
    deformed = Deformed(reading(x), Node(step, (x, w, offset, b, mask), ()))
    y = deformed.contraction("weight")._apply(reading(x), w)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))
