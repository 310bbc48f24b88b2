"""Cut: a recorded product, parted where the graph of the model meets the tangent v.

Nodes that do not depend on v are computed once for a point, the others at each product. What passes
from the first to the second are the residuals. (Partial evaluation, as JAX calls it.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from ....jacobians import dtype_of, shape_of, size
from ....ops.graphs.build import copied_node, copied_value, give_all_names, operands_of, reachable
from ....ops.numbers.table import FREE
from .compiled import Recording, ResidualRecorder

MOST = 2
"""Residuals may take this many times the bytes of the arrays that operators hold."""


def cut(
    op: ResidualRecorder, inputs: Iterable[ir.Value], v: ir.Value, y: ir.Value,
    held: Collection[ir.Node],
) -> tuple[Recording, tuple[ir.Value, ...]]:  # fmt: skip
    """The part of the recording from v to y, on values of its own, and the residuals that it reads.

    Nodes behind the model and the operators, `held`, are always computed for a point; further nodes
    where that takes little memory.
    """
    nodes, used = reachable(op, [y])
    moving, late = {id(v)}, set[int]()
    for node in nodes:
        if any(id(x) in moving for x in operands_of(node)):
            moving.update(map(id, node.outputs))
            late.add(id(node))
    ahead = {*map(id, held)}
    wide = {id(node) for node in nodes if id(node) not in ahead} | late
    if id(y) not in moving or bytes_of(read_by(nodes, late, v)) > MOST * bytes_of(
        read_by(nodes, wide, v)
    ):
        late = wide
    late |= sunk(nodes, late)
    part, residuals = [n for n in nodes if id(n) in late], read_by(nodes, late, v, y)
    give_all_names(op, inputs)
    return copied(op, part, v, y, residuals, used), residuals


def read_by(
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
            in_place = is_turned(node) and all(u == ("MatMul", 1) for u in read)
            if not read or node.domain or not still or not (free or in_place):
                continue
            found.add(id(node))
        for k, x in enumerate(node.inputs):
            if x is not None:
                users.setdefault(id(x), []).append((node.op_type, k))
        for x in operands_of(node):
            users.setdefault(id(x), [("", 0)])
    return found


def copied(
    op: ResidualRecorder, part: list[ir.Node], v: ir.Value, y: ir.Value,
    residuals: tuple[ir.Value, ...], used: Iterable[ir.Value],
) -> Recording:  # fmt: skip
    """The nodes of a product as a recording of their own."""
    read = {id(x) for node in part for x in operands_of(node)} | {id(y)}
    held = [x for x in used if x.const_value is not None and id(x) in read]
    known: dict[int, ir.Value] = {}
    nodes = tuple(copied_node(node, known) for node in part)
    start, end, *given = (copied_value(x, known) for x in (v, y, *residuals))
    constants, made = [copied_value(x, known) for x in held], op.empty()
    for value in (*(z for node in nodes for z in node.outputs), *constants):
        value.name = None
    start.name = "v"
    for k, value in enumerate(given):
        value.name = f"residual_{k}"
    made.nodes[:] = nodes
    keys = {str(x.name): value for x, value in zip(residuals, given, strict=True)}
    arrays = {id(x): x.const_value.numpy() for x in constants if x.const_value is not None}
    return Recording(nodes, arrays, start, end, made, residuals=keys)


def bytes_of(values: Iterable[ir.Value]) -> int:
    """The bytes of some values."""
    return sum(size(shape_of(x)) * dtype_of(x).itemsize for x in values)


def is_turned(node: ir.Node) -> bool:
    """Whether the node transposes a matrix."""
    turns = node.op_type == "Transpose" and len(shape_of(node.outputs[0])) == 2
    return turns and [*(node.attributes.get_ints("perm") or (1, 0))] == [1, 0]
