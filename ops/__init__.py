"""Operator declarations: the Jacobian blocks of each ONNX operator, as vocabulary calls."""

import numpy as np

from ..jacobians import reading
from . import rules  # noqa: F401  (each family registers its declarations)
from .graphs import Recorder, Twin, build, copied
from .node import Node, Step
from .numbers import numbers
from .registry import DECLARATIONS, Blocks, Declaration, defines, find, jacobian, zero

for _kind in (np.ndarray, np.generic):
    reading.register(_kind, lambda array: numbers)

__all__ = [
    "DECLARATIONS", "Blocks", "Declaration", "Node", "Recorder", "Step", "Twin", "build", "copied",
    "defines", "find", "jacobian", "numbers", "zero",
]  # fmt: skip
