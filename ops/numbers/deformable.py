"""DeformConv."""

from __future__ import annotations

from typing import Any

from ...jacobians.arrays import Array
from .table import kernel


@kernel("DeformConv")
def deform_conv(
    x: Array, w: Array, offset: Array, b: Any = None, mask: Any = None, **attributes: Any
) -> Array:
    """The kernel applied to samples at displaced positions."""
    from ..deformable import Deformed
    from ..node import Node, Step
    from . import numbers

    step = Step("DeformConv", "", 21, "", ("x", "w", "offset", "b", "mask"), ("y",), attributes)
    deformed = Deformed(numbers, Node(step, (x, w, offset, b, mask), ()))
    y = deformed.contraction("weight")._apply(numbers, w)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))
