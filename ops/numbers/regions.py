"""RoiAlign and MaxRoiPool, by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import kernel


class Numbers:
    """The numbers reading with `at`, which definitions ask for the value of an array."""

    def __getattr__(self, name: str) -> Any:
        from . import numbers

        return getattr(numbers, name)

    def at(self, value: Array) -> Array:
        """An array is its own value."""
        return value


def defined(op_type: str, *inputs: Array, **attributes: Any) -> Array:
    """An operator that is defined in the vocabulary, computed."""
    from ..node import Node, Step
    from ..registry import find

    declared = find(op_type)
    assert declared and declared.definition
    step = Step(op_type, "", 21, "", tuple(f"x{i}" for i in range(len(inputs))), ("y",), attributes)
    (y,) = declared.definition(Numbers(), Node(step, inputs, (None,)))
    return y


@kernel("RoiAlign")
def roi_align(x: Array, rois: Array, batch_indices: Array, **attributes: Any) -> Array:
    """Means or maxima of samples in the bins of every region."""
    return defined("RoiAlign", x, rois, np.asarray(batch_indices), **attributes)


@kernel("MaxRoiPool")
def max_roi_pool(x: Array, rois: Array, **attributes: Any) -> Array:
    """Maxima over the bins of every region."""
    return defined("MaxRoiPool", x, rois, **{"spatial_scale": 1.0, **attributes})
