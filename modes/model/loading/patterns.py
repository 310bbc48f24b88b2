"""Patterns: logarithms and squares of what over- or underflows, in a form that does not.

log σ(x) is -softplus(-x), and so on: equal functions, whose values and derivatives keep their
digits where σ(x) rounds to 0 or 1. They are written at loading, so that results do not depend on
what an engine knows. The tensors inside a pattern stay, though perhaps nothing reads them; where
one of them is given or perturbed, the pattern is as it was stored: see `Contents.literal`.
"""

from __future__ import annotations

import ast
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....ops.node import TRAINING
from ..flow.contents import INSIDE, STORED, become

Tree = Any
"""A number, the name of a tensor, or (operator, *operands)."""


def pattern_tree(node: Any) -> Tree:
    """A pattern in Python's syntax as a tree."""
    if isinstance(node, ast.Call):
        return pattern_tree(node.func), *map(pattern_tree, node.args)
    return node.id if isinstance(node, ast.Name) else node.value


PATTERNS = [tuple(pattern_tree(ast.parse(text, mode="eval").body) for text in pair) for pair in (
    ("Log(Sigmoid(x))", "Neg(Softplus(Neg(x)))"),
    ("Log(Sub(1, Sigmoid(x)))", "Neg(Softplus(x))"),
    ("Log(Add(1, Neg(Sigmoid(x))))", "Neg(Softplus(x))"),
    ("Log(Softmax(x))", "LogSoftmax(x)"),
    ("Log(Exp(x))", "Identity(x)"),
    ("Log(Add(1, Exp(x)))", "Softplus(x)"),
    ("Log(Add(Exp(x), 1))", "Softplus(x)"),
    ("Add(Max(x, 0), Log(Add(1, Exp(Neg(Abs(x))))))", "Softplus(x)"),
    ("Log(ReduceSum(Exp(x), axes))", "ReduceLogSumExp(x, axes)"),
    ("ReduceLogSum(Exp(x), axes)", "ReduceLogSumExp(x, axes)"),
    ("Mul(ReduceL2(x, axes), ReduceL2(x, axes))", "ReduceSumSquare(x, axes)"),
    ("Pow(ReduceL2(x, axes), 2)", "ReduceSumSquare(x, axes)"),
)]  # fmt: skip
"""(what is stored, what it becomes); the last node gets the attributes of all that are matched."""

SOFTPLUS = next(old for old, _ in PATTERNS if old[0] == "Add")
"""The form that any runtime computes, and that keeps its slopes when it is read again."""

FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
"""The types that Softplus takes."""


def recognise(model: ir.Model) -> None:
    """Write all patterns of a model in their stable form, unless a Gradient node names a tensor
    inside.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    kept = {name for node in nodes if (node.domain, node.op_type) == (TRAINING, "Gradient")
            for key in ("xs", "zs") if key in node.attributes
            for name in node.attributes[key].as_strings()}  # fmt: skip
    for node in nodes:
        y = node.outputs[0] if node.outputs else None
        for old, new in PATTERNS if y is not None and y.dtype in FLOATS else ():
            tensors, met = dict[str, ir.Value | None](), list[ir.Node]()
            if matches(old, y, tensors, met):
                between = {str(n.outputs[0].name) for n in met[1:]}
                if not between & kept:
                    write_pattern(new, node, tensors, met, between)
                break


def matches(
    pattern: Tree, value: ir.Value | None, tensors: dict[str, ir.Value | None], met: list[ir.Node]
) -> bool:
    """Whether a value is made as in a pattern: by the nodes `met`, of `tensors` by name."""
    if isinstance(pattern, str):
        return tensors.setdefault(pattern, value) is value
    if isinstance(pattern, int):
        held = None if value is None else ir.convenience.get_const_tensor(value)
        return held is not None and held.size == 1 and bool((held.numpy() == pattern).all())
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type != pattern[0]:
        return False
    met.append(node)
    operands = zip_longest(pattern[1:], node.inputs)
    return all(p is not None and matches(p, x, tensors, met) for p, x in operands)


def write_pattern(
    pattern: Tree, node: ir.Node, tensors: dict[str, ir.Value | None], met: list[ir.Node],
    between: set[str],
) -> None:  # fmt: skip
    """Put the nodes of a pattern in place of the last node that was met, and note how it was."""
    (y,), graph = node.outputs, node.graph
    stored = (node.op_type, *(str(x.name) if x else "" for x in node.inputs))
    attributes = {a.name: a for n in met for a in n.attributes.values()}

    def operand(part: Tree) -> ir.Value | None:
        if isinstance(part, str):
            return tensors[part]
        assert graph is not None
        assert y.dtype is not None
        if isinstance(part, int):
            held = ir.tensor(np.array(part, y.dtype.numpy()))
            made = ir.node("Constant", [], {"value": held})
            made.outputs[0].name = f"{y.name}_{part}_stable"
        else:
            made = ir.Node("", part[0], [operand(p) for p in part[1:]])
            made.outputs[0].name, made.outputs[0].type = f"{y.name}_{part[0]}_stable", y.type
            made.outputs[0].shape = y.shape
        graph.insert_before(node, made)
        return made.outputs[0]

    become(node, pattern[0], [operand(part) for part in pattern[1:]])
    node.attributes.update(attributes)
    node.metadata_props[STORED], node.metadata_props[INSIDE] = "\n".join(stored), "\n".join(between)


def proto_of(model: ir.Model) -> onnx.ModelProto:
    """A model as a file. Softplus of doubles, for which ONNX Runtime has no kernel, is spelled out
    in a form that is recognised when the file is read.
    """
    if not softplus_in(model):
        return ir.to_proto(model)
    copy = model.clone()
    for node in softplus_in(copy):
        write_pattern(SOFTPLUS, node, {"x": node.inputs[0]}, [], set())
    return ir.to_proto(copy)


def softplus_in(model: ir.Model) -> list[ir.Node]:
    """The nodes that compute softplus in double precision."""
    return [node for node in ir.traversal.RecursiveGraphIterator(model.graph)
            if (node.domain, node.op_type) == ("", "Softplus")
            and node.outputs[0].dtype == ir.DataType.DOUBLE]  # fmt: skip
