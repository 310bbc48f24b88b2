"""Transcriptions: what ONNX's specification says of an operator, index by index, in plain loops.

They are written from the text of the specification alone and share no code with what they judge:
neither the kernels of the numbers reading nor the rules.
"""

from . import (  # noqa: F401  (each enters its transcriptions into the table)
    attention,
    contrib,
    convolution,
    elementwise,
    gathering,
    layout,
    normalization,
    padding,
    pooling,
    products,
    reductions,
    regions,
    scattering,
)
from .specification import Specification
from .table import TRANSCRIPTIONS

__all__ = ["TRANSCRIPTIONS", "Specification"]
