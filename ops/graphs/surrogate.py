"""Surrogate: a tensor whose value and whose tangent come from different expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, dtype_of
from ..node import SURROGATE
from .twin import Twin


def surrogate(op: Any, value: Array, expression: Array | None = None) -> Array:
    """The value, with the tangent of an expression for the same tensor; without one, constant.

    Only what the tangent needs of the expression is computed.
    """
    recorder = op.recorder if isinstance(op, Twin) else op
    like = np.zeros((), dtype_of(value)) if expression is None else expression
    value, like = recorder.value(value), recorder.value(like)
    made = recorder.new((), dtype_of(value))
    made.shape = value.shape  # some sizes may be symbolic
    node = ir.Node("", "CastLike", [value, like], outputs=[made])
    node.meta[SURROGATE] = 1
    recorder.nodes.append(node)
    if isinstance(op, Twin):
        op.remember(made, op.number(value))
    return made
