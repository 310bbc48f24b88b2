"""Deep: control flow in control flow in functions, long loops, sequences, training, halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from . import contrib
from .control import beside, body, untyped
from .graph import Graph, Unfit, type_of

NEW: list[Callable[[Graph], None]] = [contrib.any_of, contrib.any_of]
"""The makers of the newer kinds; one that stands twice is drawn twice as often."""


def new(maker: Callable[[Graph], None]) -> Callable[[Graph], None]:
    NEW.append(maker)
    return maker


# --- control flow


class Scope:
    """Where nodes are made: in a body of the graph, or of a function with its own constants."""

    def __init__(self, g: Graph) -> None:
        self.g, self.nodes = g, list[NodeProto]()

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: object) -> str:
        names = [self.g.name("b") for _ in range(outputs)]
        domain = str(attributes.pop("domain", ""))
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]

    def constant(self, value: object, dtype: object = np.int64) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(value, dtype)))

    def reduced(self, op: str, x: str, axes: list[int] | None = None) -> str:
        """A reduction without its axes, in the form that the opset prescribes."""
        if axes is None:
            return self.add(op, [x], keepdims=0)
        if self.g.opset < (13 if op == "ReduceSum" else 18):
            return self.add(op, [x], axes=axes, keepdims=0)
        return self.add(op, [x, self.constant(axes)], keepdims=0)


def layers(g: Graph, depth: int, x: str, rank: int, others: list[str]) -> list[NodeProto]:
    """Nodes that map x to a tensor of the same shape, with control flow `depth` deep."""
    if not depth:
        return body(g, x, (), others)
    kinds = ["If", "If", "Loop", "Loop", "call"] + ["Scan"] * (2 * (rank > 0))
    return KINDS[g.one_of(kinds)](Scope(g), depth, x, rank, others)


def graph_of(
    nodes: list[NodeProto], name: str, inputs: list[ValueInfoProto],
    more: Sequence[ValueInfoProto] = (),
) -> GraphProto:
    """A body whose last output is the result of its last node."""
    return helper.make_graph(nodes, name, inputs, [*more, untyped(nodes[-1].output[0])])


def branches(s: Scope, depth: int, x: str, rank: int, others: list[str]) -> list[NodeProto]:
    total = s.reduced("ReduceSum", x)
    condition = s.add("Less", [total, s.constant(s.g.rng.uniform(-1, 1), s.g.dtype)])
    shallow = depth - s.g.integer(1, depth)
    made = {side: graph_of(layers(s.g, d, x, rank, others), side, [])
            for side, d in (("then_branch", depth - 1), ("else_branch", shallow))}  # fmt: skip
    s.add("If", [condition], **made)
    return s.nodes


def turns(s: Scope, depth: int, x: str, rank: int, others: list[str]) -> list[NodeProto]:
    g = s.g
    i, before, state = (g.name("b") for _ in range(3))
    nodes = layers(g, depth - 1, state, rank, [*others, x])
    after = g.name("b")
    whole = [*nodes[:-1], helper.make_node("Identity", [before], [after]), nodes[-1]]
    count, go = s.constant(g.integer(1, 3)), s.constant(True, bool)
    stacks = rank > 0 and g.chance(0.3)  # the reference makes a column of scalars
    outputs = [helper.make_value_info(after, type_of(np.asarray(True)))]
    graph = graph_of(whole, "body", [
        helper.make_value_info(i, type_of(np.asarray(0))),
        helper.make_value_info(before, type_of(np.asarray(True))), untyped(state),
    ], outputs)  # fmt: skip
    if stacks:  # the final state and all states, of which the mean is taken
        copy = g.name("b")
        graph.node.append(helper.make_node("Sin", [nodes[-1].output[0]], [copy]))
        graph.output.append(untyped(copy))
        end = s.add("Loop", [count, go, x], 2, body=graph)
        rows = s.nodes[-1].output[1]
        if g.chance(0.3):
            s.nodes[-1].output[0] = ""
            s.reduced("ReduceMean", rows, [0])
        else:
            s.add("Add", [end, s.reduced("ReduceMean", rows, [0])])
    else:
        s.add("Loop", [count, go, x], body=graph)
    return s.nodes


def rows(s: Scope, depth: int, x: str, rank: int, others: list[str]) -> list[NodeProto]:
    g = s.g
    if g.opset < 9:
        return branches(s, depth, x, rank, others)
    first = s.reduced("ReduceMean", x, [0])
    state, row = g.name("b"), g.name("b")
    nodes = layers(g, depth - 1, state, rank - 1, [row])
    end, out = nodes[-1].output[0], g.name("b")
    nodes.append(helper.make_node("Mul", [end, row], [out]))
    graph = helper.make_graph(
        nodes, "body", [untyped(state), untyped(row)], [untyped(end), untyped(out)]
    )
    s.add("Scan", [first, x], 2, body=graph, num_scan_inputs=1)
    s.add("Tanh", [s.nodes[-1].output[1]])
    return s.nodes


def called(s: Scope, depth: int, x: str, rank: int, others: list[str]) -> list[NodeProto]:
    s.add(function(s.g, depth, rank), [x, s.g.one_of([x, *others])], domain="local")
    return s.nodes


KINDS = {"If": branches, "Loop": turns, "Scan": rows, "call": called}


def function(g: Graph, depth: int, rank: int) -> str:
    """The name of a new function of two tensors that broadcast to the first one's shape."""
    nodes = layers(g, depth - 1, "p", rank, ["q"])
    name = f"F{len(g.functions)}"
    opsets = [helper.make_opsetid("", g.opset), helper.make_opsetid("local", 1)]
    end = nodes[-1].output[0]
    g.functions.append(helper.make_function("local", name, ["p", "q"], [end], nodes, opsets))
    return name


@new
def nested(g: Graph) -> None:
    """Control flow three deep in a function, or in the graph."""
    x = g.pick(lambda s: 0 not in s and np.prod(s) <= 12)
    others = beside(g, g.shape(x))
    if g.chance(0.6):
        name = function(g, 4, g.rank(x))
        g.node(name, [x, g.one_of([x, *others])], domain="local")
        return
    for node in layers(g, 3, x, g.rank(x), others):
        g.add(node)


@new
def long_loop(g: Graph) -> None:
    """A loop of 40 or of 60 turns: the first is unrolled, the second is kept."""
    x = g.pick(lambda s: 0 not in s and np.prod(s) <= 8)
    i, before, after, state, a, end = (g.name("b") for _ in range(6))
    other = g.one_of([x, *beside(g, g.shape(x))])
    factor = g.initializer(np.asarray(g.rng.uniform(-0.9, 0.9), g.dtype))
    nodes = [
        helper.make_node("Mul", [state, factor], [a]),
        helper.make_node("Add", [a, other], [b := g.name("b")]),
        helper.make_node("Tanh", [b], [end]),
        helper.make_node("Identity", [before], [after]),
    ]
    truth = type_of(np.asarray(True))
    graph = helper.make_graph(
        nodes, "body",
        [helper.make_value_info(i, type_of(np.asarray(0))), helper.make_value_info(before, truth),
         untyped(state)],
        [helper.make_value_info(after, truth), untyped(end)],
    )  # fmt: skip
    turns = np.asarray(g.one_of([40, 60]))
    count = g.input(turns) if g.chance(0.3) else g.constant(turns)
    g.node("Loop", [count, g.initializer(np.asarray(True), "c"), x], body=graph)


# --- sequences and optional values


def sequence_info(name: str) -> ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, TensorProto.DOUBLE, None)


@new
def sequence_map(g: Graph) -> None:
    """SequenceMap over one or two sequences, or beside a tensor."""
    if any(n.domain for n in g.nodes):  # whose types onnx does not infer: refused by name
        raise Unfit
    x = g.pick(lambda s: len(s) > 0 and 0 not in s and np.prod(s) <= 16)
    y = g.pick(lambda s: s == g.shape(x))
    pair = g.node("SequenceConstruct", [x, y])
    more = [g.one_of([x, y])] if g.chance(0.4) else []
    if not more and g.chance(0.5):
        more = [g.node("SequenceConstruct", [y, x])]
    made = g.node("SequenceMap", [pair, *more], body=mapping(g, [g.name("b") for _ in more]))
    g.node("ConcatFromSequence", [made], axis=0, new_axis=g.integer(0, 1))


def mapping(g: Graph, others: list[str]) -> GraphProto:
    """The body of a SequenceMap of an element and `others`."""
    p = g.name("b")
    nodes = body(g, p, (), others)
    return graph_of(nodes, "map", [untyped(name) for name in (p, *others)])


@new
def sequence_in_loop(g: Graph) -> None:
    """A loop that appends to a sequence, or If with a sequence as its result."""
    x = g.pick(lambda s: len(s) > 0 and 0 not in s and np.prod(s) <= 8)
    first = g.node("SequenceConstruct", [x])
    if g.chance(0.4):
        made = {}
        for side in ("then_branch", "else_branch"):
            nodes, many = body(g, x, (), []), g.name("b")
            nodes.append(helper.make_node("SequenceConstruct", [nodes[-1].output[0], x], [many]))
            if g.opset > 16 and g.chance(0.4):
                many, graph = g.name("b"), mapping(g, [])
                nodes.append(helper.make_node("SequenceMap", nodes[-1].output, [many], body=graph))
            made[side] = helper.make_graph(nodes, side, [], [sequence_info(many)])
        many = g.node("If", [g.input(np.asarray(g.chance(0.5)))], **made)
    else:
        i, before, after, state, last, end = (g.name("b") for _ in range(6))
        nodes = [helper.make_node("SequenceAt", [state, i], [last])]
        nodes += body(g, last, (), [x])
        nodes += [helper.make_node("SequenceInsert", [state, nodes[-1].output[0]], [end]),
                  helper.make_node("Identity", [before], [after])]  # fmt: skip
        truth = type_of(np.asarray(True))
        graph = helper.make_graph(
            nodes, "body",
            [helper.make_value_info(i, type_of(np.asarray(0))),
             helper.make_value_info(before, truth), sequence_info(state)],
            [helper.make_value_info(after, truth), sequence_info(end)],
        )  # fmt: skip
        count, go = g.constant(g.integer(1, 3)), g.initializer(np.asarray(True), "c")
        many = g.node("Loop", [count, go, first], body=graph)
    if g.chance(0.5):
        g.node("ConcatFromSequence", [many], axis=0, new_axis=g.integer(0, 1))
    else:
        g.node("SequenceAt", [many, g.constant(g.integer(-1, 1))])


@new
def optional_in_if(g: Graph) -> None:
    """An optional value from one of two branches."""
    if g.opset < 18:
        raise Unfit
    x = g.pick(lambda s: 0 not in s)
    y = g.pick(lambda s: s == g.shape(x))
    kind = helper.make_optional_type_proto(
        helper.make_tensor_type_proto(TensorProto.DOUBLE, None)
    )
    made = {}
    for side, z in (("then_branch", x), ("else_branch", y)):
        nodes, end = body(g, z, (), []), g.name("b")
        nodes.append(helper.make_node("Optional", [nodes[-1].output[0]], [end]))
        made[side] = helper.make_graph(nodes, side, [], [helper.make_value_info(end, kind)])
    some = g.node("If", [g.input(np.asarray(g.chance(0.5)))], **made)
    g.node("OptionalGetElement", [some])


# --- training, omitted outputs, narrow types


@new
def batch_statistics(g: Graph) -> None:
    if g.opset < 14:
        raise Unfit
    x = g.pick(lambda s: len(s) > 1 and 0 not in s and s[0] * int(np.prod(s[2:])) > 1)
    c = g.shape(x)[1]
    variance = g.initializer(np.abs(g.uniform([c])))
    operands = [x, g.fresh([c]), g.fresh([c]), g.fresh([c]), variance]
    momentum = g.one_of([0.5, 0.9])
    g.node("BatchNormalization", operands, 3, epsilon=0.1, momentum=momentum, training_mode=1)


@new
def drawn(g: Graph) -> None:
    """Dropout in training, with a seed; its mask is drawn once for each point."""
    if g.opset < 12:
        raise Unfit
    x, ratio = g.pick(), g.constant(g.one_of([0.0, 0.3, 0.5]), g.dtype)
    g.node("Dropout", [x, ratio, g.constant(True, bool)], g.integer(1, 2), seed=g.integer(0, 9))


@new
def omitted(g: Graph) -> None:
    """Operators of several outputs, of which some have no name."""
    kind = g.integer(0, 3)
    if kind == 0 and g.opset >= 11:
        x = g.distinct(g.pick(lambda s: len(s) == 1 and s[0] > 0))
        i = g.node("Unique", [x], 3, sorted=1, without=[1])[2]
        g.node("Gather", [x, i])
    elif kind == 1 and g.opset >= 17:
        x = g.pick(lambda s: len(s) > 0 and 0 not in s)
        g.node("LayerNormalization", [x, g.fresh(g.shape(x)[-1:])], 2, epsilon=0.1, without=[1])
    elif kind == 2 and not g.symbolic:
        x = g.pick(lambda s: len(s) == 3 and 0 not in s and np.prod(s) <= 24)
        w, r = g.fresh([1, 8, g.shape(x)[2]]), g.fresh([1, 8, 2])
        gone = g.one_of([[0], [1], [0, 1], [0, 2]])
        g.node("LSTM", [x, w, r], 3, hidden_size=2, without=gone)
    elif kind == 3 and not g.symbolic:
        x = g.pick(lambda s: len(s) == 3 and 0 not in s and np.prod(s) <= 24)
        w, r = g.fresh([1, 6, g.shape(x)[2]]), g.fresh([1, 6, 2])
        g.node("GRU", [x, w, r], 2, hidden_size=2, without=[0])
    else:
        raise Unfit


@new
def narrow(g: Graph) -> None:
    """A stretch in a narrower type among doubles."""
    double = helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype))
    kinds = [TensorProto.FLOAT16, TensorProto.FLOAT] + [TensorProto.BFLOAT16] * (g.opset >= 13)
    x = g.bounded(g.pick())
    within = g.node("Cast", [x], to=g.one_of(kinds))
    op = g.one_of(["Tanh", "Sigmoid", "Mul", "Identity", "Neg"])
    made = g.node(op, [within] * (1 + (op == "Mul")))
    g.node("Cast", [made], to=double)


def any_of(g: Graph) -> None:
    """A node, or several, of a newer kind."""
    g.one_of(NEW)(g)
