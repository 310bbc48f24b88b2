"""Tensors generated from a few numbers and integers: OneHot, Range."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Diagonal, Jacobian, Take, broadcast, shape_of
from ..node import Node
from ..registry import Blocks, jacobian


@jacobian("OneHot")
def one_hot(op: Any, node: Node) -> Blocks:
    """y = values[1] at the index, values[0] elsewhere: a selection from `values`."""
    hot = op.OneHot(node.x, node.y_shape[node.axis], np.array([0, 1]), axis=node.axis)
    return {(0, 2): Take(hot, 0, (2,), node.dtype)}


@jacobian("Range")
def range_(op: Any, node: Node) -> Blocks:
    """yₖ = start + k delta; the limit only determines the count."""
    count = np.arange(node.y_shape[0], dtype=node.dtype)
    return {(0, 0): filled(node, 0), (0, 2): Diagonal(count) @ filled(node, 2)}


def filled(node: Node, i: int) -> Jacobian:
    """The broadcast of input i to the shape of y."""
    return broadcast(shape_of(node.inputs[i]), node.y_shape, node.dtype)
