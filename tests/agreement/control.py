"""Control: branches, loops, scans and functions in a random graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, helper

from .catalogue import makes, small, truth
from .graph import Graph, Unfit, type_of

SMOOTH = ("Tanh", "Sin", "Sigmoid", "Atan", "Softsign", "Neg")


def body(g: Graph, state: str, shape: tuple[int, ...], others: list[str]) -> list[NodeProto]:
    """Some nodes that map a tensor to one of the same shape, the output of the last node."""
    nodes, last = [], state
    for _ in range(g.integer(1, 3)):
        name = g.name("b")
        if others and g.chance(0.5):
            pair = [last, g.one_of(others)]
            nodes.append(helper.make_node(g.one_of(["Add", "Mul", "Sub"]), pair, [name]))
        else:
            nodes.append(helper.make_node(g.one_of(SMOOTH), [last], [name]))
        last = name
    name = g.name("b")
    nodes.append(helper.make_node("Tanh", [last], [name]))
    return nodes


def beside(g: Graph, shape: tuple[int, ...]) -> list[str]:
    """Tensors that broadcast to the given shape."""
    return [
        name for name in g.arrays()
        if small(np.broadcast_shapes, g.shape(name), shape)
        and np.broadcast_shapes(g.shape(name), shape) == shape
    ][-3:]  # fmt: skip


def untyped(name: str) -> Any:
    return helper.make_value_info(name, helper.make_tensor_type_proto(TensorProto.DOUBLE, None))


def scalar(g: Graph, x: str) -> str:
    """A condition that depends on x, so that other points may take the other branch."""
    total = g.node("ReduceSum", [x], keepdims=0)
    if abs(float(g.values[total]) - 0.11) < 1e-2:
        raise Unfit
    return g.node("Less", [total, g.constant(0.11, g.dtype)])


@makes("If")
def if_(g: Graph, op: str) -> None:
    x = g.pick(lambda s: 0 not in s)
    kind = g.integer(0, 2)
    if kind == 0:
        condition = g.input(np.asarray(g.chance(0.5)))
    elif kind == 1:
        condition = scalar(g, x)
    else:
        flat = g.node("Cast", [truth(g)], to=TensorProto.FLOAT)
        if not g.values[flat].size:
            raise Unfit
        largest = g.node("ReduceMax", [flat], keepdims=0)
        condition = g.node("Cast", [largest], to=TensorProto.BOOL)
    branches = {}
    for side in ("then_branch", "else_branch"):
        nodes = body(g, x, g.shape(x), beside(g, g.shape(x)))
        end = nodes[-1].output[0]
        branches[side] = helper.make_graph(nodes, side, [], [untyped(end)])
    g.node("If", [condition], **branches)


@makes("Loop")
def loop(g: Graph, op: str) -> None:
    x = g.pick(lambda s: 0 not in s and np.prod(s) <= 12)
    shape = g.shape(x)
    turns = np.asarray(g.integer(0, 3))
    count = g.input(turns) if g.chance(0.4) else g.constant(turns)
    i, before, go, state = (g.name("b") for _ in range(4))
    nodes = body(g, state, shape, [*beside(g, shape)])
    end = nodes[-1].output[0]
    after = g.name("b")
    if g.chance(0.3):  # a condition that depends on the state
        total, limit = g.name("b"), g.constant(0.6, g.dtype)
        nodes.append(helper.make_node("ReduceMean", [end], [total], keepdims=0))
        nodes.append(helper.make_node("Less", [total, limit], [after]))
    else:
        nodes.append(helper.make_node("Identity", [before], [after]))
    stacked = g.chance(0.5) and turns > 0
    outputs = [helper.make_value_info(after, type_of(np.asarray(True))), untyped(end)]
    if stacked:
        copy = g.name("b")
        nodes.append(helper.make_node("Sin", [end], [copy]))
        outputs.append(untyped(copy))
    graph = helper.make_graph(
        nodes, "body",
        [helper.make_value_info(i, type_of(np.asarray(0))),
         helper.make_value_info(before, type_of(np.asarray(True))), untyped(state)],
        outputs,
    )  # fmt: skip
    del go
    condition = g.initializer(np.asarray(True), "c")
    if stacked:
        rows = g.node("Loop", [count, condition, x], 2, body=graph)[1]
        g.values[rows] = g.values[rows].reshape(-1, *shape)  # the reference concatenates them
    else:
        g.node("Loop", [count, condition, x], body=graph)


@makes("Scan")
def scan(g: Graph, op: str) -> None:
    if g.opset < 9:
        raise Unfit
    x = g.pick(lambda s: len(s) > 1 and 0 not in s and np.prod(s) <= 16)
    axis = g.integer(0, g.rank(x) - 1)
    shape = tuple(np.delete(g.shape(x), axis))
    first = g.fresh(shape)
    state, row = g.name("b"), g.name("b")
    nodes = body(g, state, shape, [row])
    end, out = nodes[-1].output[0], g.name("b")
    nodes.append(helper.make_node("Mul", [end, row], [out]))
    graph = helper.make_graph(
        nodes, "body", [untyped(state), untyped(row)], [untyped(end), untyped(out)]
    )
    turned = {"scan_input_directions": [1]} if g.chance(0.3) else {}
    g.node(
        "Scan", [first, x], 2, body=graph, num_scan_inputs=1, scan_input_axes=[axis], **turned
    )


def call(g: Graph) -> None:
    """A call of a model-local function, existing or new."""
    if not g.functions or g.chance(0.4):
        nodes = body(g, "p", (), ["q"])
        g.functions.append(
            helper.make_function(
                "local", f"F{len(g.functions)}", ["p", "q"], [nodes[-1].output[0]], nodes,
                [helper.make_opsetid("", g.opset)],
            )
        )
    function: FunctionProto = g.one_of(g.functions)
    x = g.pick()
    others = beside(g, g.shape(x))
    g.node(function.name, [x, g.one_of(others) if others else x], domain="local")
