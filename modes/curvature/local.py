"""Local: one operator at a point, outside of any model; its Jacobian is that of its rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...ops import Node, Step, find, numbers

OPSET = 21


def value_and_jacobian(op_type: str, *inputs: np.ndarray, **attrs: Any) -> tuple[Any, Jacobian]:
    """y = f(x, …) and ∂y/∂x, for an operator of one output, x its first input."""
    y = getattr(numbers, op_type)(*inputs, **attrs)
    return y, jacobian_at(op_type, inputs, (y,), attrs)


def jacobian_at(
    op_type: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...], attrs: Any
) -> Jacobian:
    """∂y/∂x of the first output in the first input, where the outputs are known."""
    ins, outs = (tuple(map(str, range(len(values)))) for values in (inputs, outputs))
    step = Step(op_type, "", OPSET, op_type, ins, outs, attrs)
    declared = find(op_type)
    assert declared is not None, op_type
    return declared.rule(numbers, Node(step, inputs, outputs, frozenset({(0, 0)})))[0, 0]
