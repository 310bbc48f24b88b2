"""Shrink: the smallest case that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import printer

from .graph import captured, contained
from .make import Case

TRIES = 300


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Remove outputs, tensors and nodes for as long as the case fails."""
    tries, again = 0, True
    while again and tries < TRIES:
        again = False
        for smaller in smaller_ones(case):
            tries += 1
            if tries >= TRIES:
                break
            try:
                if fails(smaller):
                    case, again = smaller, True
                    break
            except Exception:
                continue
    return case


def smaller_ones(case: Case) -> Iterator[Case]:
    """All cases with one output, tensor or node removed."""
    for k in range(len(case.of)) if len(case.of) > 1 else ():
        yield cleaned(replace(case, of=case.of[:k] + case.of[k + 1 :]))
    for k in range(len(case.wrt)) if len(case.wrt) > 1 else ():
        yield cleaned(replace(case, wrt=case.wrt[:k] + case.wrt[k + 1 :]))
    nodes = list(case.model.graph.node)
    for k in reversed(range(len(nodes))):
        for smaller in without(case, k):
            yield cleaned(smaller)
    yield from map(cleaned, inside(case))


def without(case: Case, k: int) -> Iterator[Case]:
    """The cases in which an operand of node k replaces its result."""
    node = case.model.graph.node[k]
    for out in [name for name in node.output if name][:1]:
        for x in filter(None, node.input):
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            del model.graph.node[k]
            for other in model.graph.node:
                substitute(other, out, x)
            swap = {out: x}
            of = list(dict.fromkeys(swap.get(n, n) for n in case.of))
            wrt = list(dict.fromkeys(swap.get(n, n) for n in case.wrt))
            yield replace(case, model=model, of=of, wrt=wrt)


def substitute(node: onnx.NodeProto, old: str, new: str) -> None:
    for i, name in enumerate(node.input):
        if name == old:
            node.input[i] = new
    for attribute in node.attribute:
        for inner in attribute.g.node:
            substitute(inner, old, new)


def cleaned(case: Case) -> Case:
    """The case without unused nodes, inputs and initializers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    kept, needed = [], {*case.of, *case.wrt}
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= {*node.input, *captured(node)}
    point = {n: v for n, v in case.point.items() if n in needed}
    parts = {
        "node": kept[::-1],
        "input": [i for i in graph.input if i.name in needed],
        "initializer": [i for i in graph.initializer if i.name in needed],
    }
    names = [o.name for o in graph.output]
    made = {name for node in kept for name in node.output}
    outputs = [o for o in graph.output if o.name in made and o.name in needed]
    for name in case.of:
        if name not in names or not outputs:
            outputs.append(onnx.ValueInfoProto(name=name))
    parts["output"] = outputs
    for field, values in parts.items():
        copies = [type(v).FromString(v.SerializeToString()) for v in values]
        del getattr(graph, field)[:]
        getattr(graph, field).extend(copies)
    for output in graph.output:
        if not output.HasField("type"):
            output.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    called, waiting = set[str](), list(kept)
    known = {f.name: f for f in model.functions}
    while waiting:
        for node in contained([waiting.pop()]):
            if node.domain == "local" and node.op_type not in called:
                called.add(node.op_type)
                waiting += known[node.op_type].node
    functions = [f for f in model.functions if f.name in called]
    del model.functions[:]
    model.functions.extend(functions)
    operators = sorted({node.op_type for node in kept})
    return replace(case, model=model, point=point, operators=operators)


def inside(case: Case) -> Iterator[Case]:
    """The cases in which an operand of a node in a body or function replaces its result."""
    bodies = len(list(holders(case.model)))
    for k in range(1, bodies):
        for j in reversed(range(len(list(holders(case.model))[k].node))):
            for i in range(len(list(holders(case.model))[k].node[j].input)):
                model = onnx.ModelProto()
                model.CopyFrom(case.model)
                holder = list(holders(model))[k]
                node = holder.node[j]
                x, out = node.input[i], node.output[0] if node.output else ""
                del holder.node[j]
                for other in holder.node:
                    substitute(other, out, x)
                ends = holder.output
                if any((o if isinstance(o, str) else o.name) == out for o in ends):
                    copy = onnx.helper.make_node("Identity", [x], [out])
                    holder.node.append(copy)
                if node.op_type != "Identity":
                    yield replace(case, model=model)


def holders(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph, the functions and all bodies."""
    for holder in (model.graph, *model.functions):
        yield holder
        for node in contained(holder.node):
            yield from (a.g for a in node.attribute if a.HasField("g"))


def text_of(case: Case) -> str:
    """The case as the text of `onnx.parser`, with its point."""
    with np.printoptions(precision=4, threshold=100):
        point = "; ".join(f"{n} = {v.tolist()}" for n, v in case.point.items())
    return f"of={case.of} wrt={case.wrt} point: {point}\n{printer.to_text(case.model)}"
