"""What each ONNX operator declares: its Jacobian blocks, in calls of the vocabulary."""

import numpy as np

from ..jacobians import reading
from . import (  # noqa: F401  (each family registers its declarations)
    classical,
    contrib,
    convolution,
    deformable,
    einsum,
    elementwise,
    estimators,
    factors,
    generators,
    grids,
    indexing,
    layout,
    linear_models,
    losses,
    matmul,
    normalization,
    norms,
    padding,
    placing,
    pointwise,
    pooling,
    quantization,
    recurrent,
    reductions,
    regions,
    resize,
    scattering,
    signals,
    support_vectors,
    zeros,
)
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
