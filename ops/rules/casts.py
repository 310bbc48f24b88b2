"""Casts: rules work in the dtype of the output; inputs may have another one."""

from __future__ import annotations

from ...jacobians import Cast, Identity, Jacobian, dtype_of, shape_of
from ..node import Node


def cast_input(node: Node, i: int = 0, o: int = 0) -> Jacobian:
    """The cast of input i to the dtype of output o."""
    shape, source = shape_of(node.inputs[i]), dtype_of(node.inputs[i])
    target = dtype_of(node.outputs[o])
    return Identity(shape, source) if source == target else Cast(shape, source, target)
