"""Cut: a recorded product, parted where the graph of the model meets the tangent v.

Nodes that do not depend on v are computed once for a point, the others at each product. What passes
from the first to the second are the residuals. (Partial evaluation, as JAX calls it.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from ....jacobians import dtype_of, shape_of, size
from ....ops.graphs.build import Graph, V, give_all_names, operands_of, reachable
from ....ops.graphs.simplify import rank_of, transpose_behind
from ....ops.numbers.table import FREE
from .compiled import ResidualRecorder

RESIDUAL_RATIO = 2
"""Residuals may take this many times the bytes of the arrays that operators hold."""


def cut(
    op: ResidualRecorder, inputs: Iterable[ir.Value], v: ir.Value, y: ir.Value,
    held: Collection[ir.Node],
) -> Graph:
    """The part of the recording from v, and the residuals that it reads, to y.

    Nodes behind the model and the operators, `held`, are always computed for a point; further nodes
    where that takes little memory.
    """
    nodes, _ = reachable(op, [y])
    moving, late = {id(v)}, set[int]()
    for node in nodes:
        if any(id(x) in moving for x in operands_of(node)):
            moving.update(map(id, node.outputs))
            late.add(id(node))
    ahead = {*map(id, held)}
    wide = {id(node) for node in nodes if id(node) not in ahead} | late
    if id(y) not in moving or bytes_of(values_between(nodes, late, v)) > RESIDUAL_RATIO * bytes_of(
        values_between(nodes, wide, v)
    ):
        late = wide
    late |= sunk(nodes, late)
    give_all_names(op, inputs)
    residuals = {str(x.name): x for x in values_between(nodes, late, v, y)}
    part = [node for node in nodes if id(node) in late]
    return Graph(type(op), op.opset_imports, part, {V: v, **residuals}, {"y": y})


def values_between(
    nodes: list[ir.Node], late: Collection[int], v: ir.Value, y: ir.Value | None = None
) -> tuple[ir.Value, ...]:
    """What the late nodes read of the others, and of the inputs."""
    part = [node for node in nodes if id(node) in late]
    made = {id(v), *(id(value) for node in part for value in node.outputs)}
    read = (*(x for node in part for x in operands_of(node)), *([y] if y is not None else []))
    return (*{id(x): x for x in read if id(x) not in made and x.const_value is None}.values(),)


def sunk(nodes: list[ir.Node], late: Collection[int]) -> set[int]:
    """The nodes that cost a product nothing: reshapes, and transposes that engines read in place.

    Without them the residuals are the tensors of the model themselves, and nothing is copied.
    """
    found = set[int]()
    users: dict[int, list[tuple[str, int]]] = {}
    for node in reversed(nodes):
        if id(node) not in late:
            read = users.get(id(node.outputs[0]), [])
            free = node.op_type in FREE and node.op_type != "Expand"
            still = all(x is None or x.const_value is not None for x in node.inputs[1:])
            matrix = transpose_behind(node.outputs[0])
            in_place = matrix and rank_of(matrix) == 2 and all(u == ("MatMul", 1) for u in read)
            if not read or node.domain or not still or not (free or in_place):
                continue
            found.add(id(node))
        for k, x in enumerate(node.inputs):
            if x is not None:
                users.setdefault(id(x), []).append((node.op_type, k))
        for x in operands_of(node):
            users.setdefault(id(x), [("", 0)])
    return found


def bytes_of(values: Iterable[ir.Value]) -> int:
    """The bytes of some values."""
    return sum(size(shape_of(x)) * dtype_of(x).itemsize for x in values)
