"""Shrink: the smallest case that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import printer

from .graph import captured
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


def without(case: Case, k: int) -> Iterator[Case]:
    """The cases in which an operand of node k replaces its result."""
    node = case.model.graph.node[k]
    for out in node.output[:1]:
        for x in node.input:
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
    called = {node.op_type for node in kept if node.domain}
    functions = [f for f in model.functions if f.name in called]
    del model.functions[:]
    model.functions.extend(functions)
    operators = sorted({node.op_type for node in kept})
    return replace(case, model=model, point=point, operators=operators)


def text_of(case: Case) -> str:
    """The case as the text of `onnx.parser`, with its point."""
    with np.printoptions(precision=4, threshold=100):
        point = "; ".join(f"{n} = {v.tolist()}" for n, v in case.point.items())
    return f"of={case.of} wrt={case.wrt} point: {point}\n{printer.to_text(case.model)}"
