"""Graph: what an engine compiles, and the work in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of, size
from ....jacobians.threads import cached_property
from ....ops.graphs import Recorder, every, operands_of, reachable, subgraphs
from ....ops.graphs.build import copied_node, copied_value
from ....ops.graphs.simplify import TABLE, rewritten
from ....ops.numbers.table import FREE
from ..flow.steps import attributes_of

V = ""
"""The name of v among the inputs of a product: no residual has it."""


@dataclass(frozen=True)
class Graph:
    """inputs ↦ outputs, by name: the nodes in order; `op` records others of the same opset.

    A part of a model, whose shapes may be unknown; or a product, v and residuals ↦ y, whose shapes
    are static: v, (*columns, *in_shape), is one of its inputs, and y, (*columns, *out_shape), its
    output. Constants are values with numbers.
    """

    op: Recorder
    nodes: tuple[ir.Node, ...]
    inputs: Mapping[str, ir.Value]
    outputs: Mapping[str, ir.Value]

    @property
    def v(self) -> ir.Value:
        """The argument of a product."""
        return self.inputs[V]

    @property
    def residuals(self) -> dict[str, ir.Value]:
        """The further inputs of a product, by the names of their tensors at a point."""
        return {name: x for name, x in self.inputs.items() if name != V}

    @property
    def y(self) -> ir.Value:
        """The result of a product."""
        return next(iter(self.outputs.values()))

    @cached_property
    def constants(self) -> dict[int, np.ndarray]:
        """The numbers of the constants, by the identities of their values."""
        met = (*self.outputs.values(), *(x for node in self.nodes for x in operands_of(node)))
        return {id(x): x.const_value.numpy() for x in met if x.const_value is not None}

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The numbers of a constant; None where the value is computed."""
        return self.constants.get(id(value))

    @property
    def has_bodies(self) -> bool:
        """Whether a node has subgraphs."""
        return next(subgraphs(self.nodes), None) is not None

    @property
    def meets_nothing(self) -> bool:
        """Whether some tensor has no elements: engines fail at empty tensors in many ways."""
        met = (x for node in self.nodes for x in (*node.inputs, *node.outputs) if x is not None)
        return any(0 in shape_of(x) and dtype_of(x).kind not in "iu" for x in met)

    def uses(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """The nodes that read a value, each with the index of the input."""
        return [(use.node, use.idx) for use in value.uses() if id(use.node) in self._present]

    @cached_property
    def _present(self) -> frozenset[int]:
        """The identities of the nodes, also of those inside subgraphs."""
        return frozenset(map(id, every(self.nodes)))

    def simplified(self, engine: str) -> Graph:
        """A copy, on values of its own, with the rewrites for an engine.

        A value that is given as an input is not computed. Inputs of products are numbered, as are
        all values in them later: their names may be the same.
        """
        op, known = self.op.empty(), dict[int, ir.Value]()
        for k, (name, x) in enumerate(self.inputs.items()):
            named = name if op.is_model else f"input_{k}"
            known[id(x)] = ir.Value(name=named, shape=x.shape, type=x.type)
            known[id(x)].meta.update(x.meta)
        given = frozenset(known)
        for node in self.nodes:
            made = None
            if not node.domain and (node.op_type, engine) in TABLE:
                operands = [x and copied_value(x, known) for x in node.inputs]
                made = rewritten(op, node.op_type, operands, attributes_of(node), engine)
            y = node.outputs[0]
            if made is None:
                op.nodes.append(copied_node(node, known, given))
                continue
            if made.shape is None:  # not inferred
                made.shape, made.type = y.shape, y.type
                made.meta.update(y.meta)
            if id(y) not in given:
                known[id(y)] = made
        outputs = {name: copied_value(y, known) for name, y in self.outputs.items()}
        nodes, used = reachable(op, [*outputs.values()])
        for value in used if not op.is_model else ():
            if value.producer() is not None or value.const_value is not None:
                value.name = None
        inputs = {name: known[id(x)] for name, x in self.inputs.items()}
        return Graph(op, tuple(nodes), inputs, outputs)


# -- work: what a product takes --------------------------------------------------------------------

WINDOWS = frozenset({"Conv", "ConvTranspose"})


def kernels_of(graph: Graph) -> list[ir.Node]:
    """The nodes that compute or rearrange entries."""
    return [node for node in graph.nodes if node.op_type not in FREE]


def multiplications(node: ir.Node) -> int:
    """Multiplications: rows · columns · inner length for a matrix product, else one per entry.

    A convolution takes a kernel for each entry of y, a transposed one for each entry of x.
    """
    entries = size(shape_of(node.outputs[0]))
    first = node.inputs[0]
    if node.op_type in WINDOWS:
        x, w = (shape_of(given) for given in node.inputs[:2] if given is not None)
        return (entries if node.op_type == "Conv" else size(x)) * size(w[1:])
    if node.op_type == "Einsum":  # sums over labels of its operands only
        return max(entries, *(size(shape_of(x)) for x in node.inputs if x is not None))
    if node.op_type not in ("MatMul", "Gemm") or first is None:
        return entries
    inner = shape_of(first)[-1]
    return entries * inner
