"""Fatal: operands at which ONNX Runtime ends the process, so that it must not be asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ops.node import Step


def is_fatal(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to end the process at operands of these shapes.

    It does where a transposed convolution has three axes of space or more, one of them without
    elements, and where frames have no length.
    """
    if step.domain:
        return False
    if step.op_type == "ConvTranspose":
        space = np.shape(inputs[0])[2:]
        return len(space) > 2 and 0 in space
    if step.op_type == "STFT":
        _, _, window, length = (*inputs, None, None)[:4]
        return np.shape(window) == (0,) or (length is not None and not np.any(length))
    return False
