"""Surrogate: a tensor whose value and whose tangent come from different expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, dtype_of
from ..node import SURROGATE
from .build import every, subgraphs
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


def without_surrogates(nodes: Iterable[ir.Node]) -> None:
    """Make surrogates plain copies of their values, and drop what subgraphs then do not read."""
    kept = list(nodes)
    for node in every(kept):
        if node.meta.pop(SURROGATE, None) is not None:
            node.op_type = "Identity"
            node.resize_inputs(1)
    for graph in subgraphs(kept):
        for node in reversed(graph):
            if not any(y.uses() or y.is_graph_output() for y in node.outputs):
                graph.remove(node, safe=True)
