"""Misread: where ONNX Runtime computes something else than ONNX specifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ....ops.node import Step
from ..frames import POOLS


def is_misread(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to depart from ONNX at operands of these shapes.

    MaxUnpool places by the implied shape, not by the `output_shape` that it is given. Pools whose
    padding follows from the sizes forget their dilations, and cut off where a stride leaps. Resize
    forgets its region where it counts the results, and its scales where no size changes. The
    coefficients of windows, and all of Shrink, are in float32 for tensors of double as well.
    """
    if step.domain:
        return False
    if step.op_type in ("HammingWindow", "BlackmanWindow"):
        return bool(step.attrs.get("output_datatype", 1) == TensorProto.DOUBLE)
    if step.op_type == "Shrink":
        return inputs[0] is None or bool(inputs[0].dtype == np.float64)
    if step.op_type == "MaxUnpool":
        return len(inputs) > 2 and inputs[2] is not None
    if step.op_type in POOLS:
        return str(step.attrs.get("auto_pad", "")).startswith("SAME") and leaps(step)
    return step.op_type == "Resize" and is_misread_resize(step, *inputs)


def leaps(step: Step) -> bool:
    """Whether the windows of a pool are dilated, or further apart than they are long."""
    sizes = step.attrs.get("strides", ()), step.attrs.get("kernel_shape", ())
    return any(n > 1 for n in step.attrs.get("dilations", ())) or any(map(int.__gt__, *sizes))


def is_misread_resize(step: Step, x: Any, roi: Any = None, scales: Any = None, *_: Any) -> bool:
    """Whether a region is cut out, or scales lead to the size that x has; those not known may."""
    if step.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return True
    if scales is None or not np.size(scales):
        return False
    if x is None:  # its size is not known before the run
        return bool(np.any(np.asarray(scales) != 1))
    axes, rank = step.attrs.get("axes", range(np.ndim(x))), np.ndim(x)
    if np.shape(scales) != (len(axes),) or not all(-rank <= axis < rank for axis in axes):
        return False  # whoever runs it says what is wrong
    lengths = np.array([np.shape(x)[axis] for axis in axes], np.float32)
    same = np.all(np.floor(lengths * scales) == lengths)
    return bool(same and np.any(scales != 1)) or not np.all(scales)
