"""Casts: a rule speaks of the type of the output, its inputs may have another."""

from __future__ import annotations

from ...jacobians import Cast, Identity, Jacobian, dtype_of, shape_of
from ..node import Node


def cast_input(node: Node, i: int = 0, o: int = 0) -> Jacobian:
    """Input i in the floating type of output o."""
    shape, source = shape_of(node.inputs[i]), dtype_of(node.inputs[i])
    target = dtype_of(node.outputs[o])
    return Identity(shape, source) if source == target else Cast(shape, source, target)
