"""Ops: what each ONNX operator declares, in a vocabulary that has several readings."""

from typing import Any

import numpy as np

from ..jacobians import Op, reading
from ..jacobians.arrays import is_tensor
from . import rules  # noqa: F401  (each family registers its declarations)
from .graphs import Recorder, Twin, build, copied
from .node import Node, Step
from .numbers import numbers
from .registry import DECLARATIONS, Blocks, Declaration, defines, find, jacobian, zero

for _kind in (np.ndarray, np.generic):
    reading.register(_kind, lambda array: numbers)


@reading.register(object)
def _tensor_reading(array: Any) -> Op:
    """The torch reading, which is imported when the first tensor is met."""
    if not is_tensor(array):
        kind = type(array).__name__
        raise TypeError(f"no reading of the vocabulary is registered for {kind}")
    from .torch import tensors

    return tensors


__all__ = [
    "DECLARATIONS", "Blocks", "Declaration", "Node", "Recorder", "Step", "Twin", "build", "copied",
    "defines", "find", "jacobian", "numbers", "zero",
]  # fmt: skip
