"""Nodes: formulas in ONNX's operators and Python's arithmetic become nodes behind a graph."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians.errors import InputError
from ....ops.graphs.infer import Kind, inferred
from .contents import unique_name

OPERATORS: dict[type, tuple[str, Callable[..., Any]]] = {
    ast.Add: ("Add", operator.add), ast.Sub: ("Sub", operator.sub),
    ast.Mult: ("Mul", operator.mul), ast.Div: ("Div", operator.truediv),
    ast.Pow: ("Pow", operator.pow), ast.USub: ("Neg", operator.neg),
    ast.Lt: ("Less", operator.lt), ast.Gt: ("Greater", operator.gt),
    ast.Eq: ("Equal", operator.eq), ast.Is: ("", operator.is_),
}  # fmt: skip
"""The operators of Python: of tensors, and of numbers."""

FUNCTIONS: dict[str, Callable[..., Any]] = {"log": math.log, "max": max}
"""The functions of numbers."""

ROWS = {"RowSum": "ReduceSum", "RowMean": "ReduceMean"}
"""Reductions along the last axis, which goes."""


class Nodes:
    """Nodes appended to a graph, for tensors of one floating `dtype`, named after `name`."""

    def __init__(self, model: ir.Model, dtype: np.dtype[Any], name: str) -> None:
        graph = self.graph = model.graph
        self.opset = model.opset_imports[""]
        self.dtype, self.name = dtype, name
        self.values = ir.convenience.create_value_mapping(graph, include_subgraphs=False)
        every = ir.traversal.RecursiveGraphIterator(graph)
        self.taken = {str(y.name) for node in every for y in node.outputs} | self.values.keys()
        self.constants: dict[ir.Value, np.ndarray] = {}

    def add(self, op_type: str, *operands: Any, **attributes: Any) -> ir.Value:
        """The result of an operator; numbers and arrays become constants, None is left out."""
        inputs = [None if x is None else self.value(x) for x in operands]
        made = ir.node(op_type, inputs, attributes)
        out = made.outputs[0]
        out.name = unique_name(f"{self.name}_{op_type}", self.taken)
        self.graph.append(made)
        kinds = [None if x is None else type_of_value(x) for x in inputs]
        data = [None if x is None else self.constants.get(x) for x in inputs]
        try:
            (kind,) = inferred(op_type, "", self.opset, attributes, kinds, data, 1)
        except Exception:  # errors of ONNX's C++ code: types do not fit, as a run will say
            kind = None
        if kind is not None:
            out.type = ir.TensorType(ir.DataType(kind.dtype))
            out.shape = None if kind.sizes is None else ir.Shape(kind.sizes)
        return out

    def value(self, x: Any) -> ir.Value:
        """The value itself, or an array as a constant; a number has the type of the tensors."""
        if isinstance(x, ir.Value):
            return x
        array = x if isinstance(x, np.ndarray) else np.asarray(x, self.dtype)
        made = ir.node("Constant", [], {"value": ir.tensor(array)})
        out = made.outputs[0]
        out.name = unique_name(f"{self.name}_constant", self.taken)
        out.type, out.shape = (
            ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            ir.Shape(array.shape),
        )
        self.graph.append(made)
        self.constants[out] = array
        return out

    def floating(self, x: ir.Value) -> ir.Value:
        """The value in the type of the tensors."""
        wanted = ir.DataType.from_numpy(self.dtype)
        return x if x.dtype == wanted else self.add("Cast", x, to=wanted)

    def entered(self, name: str, shape: Any, dtype: Any) -> ir.Value:
        """The tensor of this name, or a new input of this shape and type."""
        if name not in self.values:
            if name in self.taken:
                raise InputError(f"{name!r} is a tensor in a body of the model: name another input")
            kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype)))
            sizes = None if shape is None else ir.Shape(shape)
            self.values[name] = ir.Value(name=name, type=kind, shape=sizes)
            self.taken.add(name)
            self.graph.inputs.append(self.values[name])
        return self.values[name]

    def formula(self, text: str, names: Mapping[str, Any]) -> ir.Value:
        """The value of the last statement of a formula, where names stand for tensors and numbers.

        What numbers decide, such as `x if k == 0 else Log(x)`, is decided here.
        """
        known, last = {"pi": math.pi, "inf": math.inf, **names}, None
        for statement in ast.parse(" ".join(text.split())).body:
            last = self.term(statement.value, known)  # type: ignore[attr-defined]
            if isinstance(statement, ast.Assign):
                known[ast.unparse(statement.targets[0])] = last
        return self.value(last)

    def term(self, node: ast.expr, known: Mapping[str, Any]) -> Any:
        """The value of a part of a formula: a number, an array or a tensor."""
        match node:
            case ast.Constant(value=held):
                return held
            case ast.Name(id=name):
                return known[name]
            case ast.List(elts=parts):  # of axes and sizes
                return np.array([self.term(part, known) for part in parts], np.int64)
            case ast.IfExp(test=test, body=then, orelse=other):
                return self.term(then if self.term(test, known) else other, known)
            case ast.UnaryOp(op=op, operand=x):
                return self._apply(op, known, x)
            case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]):
                return self._apply(op, known, a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                operands = [self.term(x, known) for x in args]
                if name in FUNCTIONS:
                    return FUNCTIONS[name](*operands)
                if name == "Scan":
                    return self.scan(known, *operands)
                if name == "Float":
                    return self.floating(*operands)
                if name in ROWS:
                    return self.add(ROWS[name], *operands, np.array([-1]), keepdims=0)
                return self.add(name, *operands, **{str(k.arg): self.term(k.value, known)
                                                    for k in keywords})  # fmt: skip
        raise TypeError(ast.unparse(node))

    def scan(self, known: Mapping[str, Any], text: str, s: ir.Value, *series: ir.Value) -> ir.Value:
        """The last state, where each is the formula `text` of the state s before it and of slices
        p, q, … along the first axes of the series.
        """
        inner, formals = copy(self), []
        for x in (s, *series):
            shape = None if x.shape is None else ir.Shape([*x.shape][x is not s :])
            name = unique_name(f"{self.name}_slice", self.taken)
            formals.append(ir.Value(name=name, type=x.type, shape=shape))
        inner.graph = body = ir.Graph(formals, [], nodes=[], name=f"{self.name}_body")
        slices = dict(zip("spq", formals, strict=False))
        body.outputs.append(inner.formula(text, {**known, **slices}))
        made = self.add("Scan", s, *series, body=body, num_scan_inputs=len(series))
        made.type, made.shape = s.type, s.shape
        return made

    def _apply(self, op: Any, known: Mapping[str, Any], *parts: ast.expr) -> Any:
        """An operator of Python."""
        name, of_numbers = OPERATORS[type(op)]
        operands = [self.term(part, known) for part in parts]
        if name and any(isinstance(x, ir.Value) for x in operands):
            return self.add(name, *operands)
        return of_numbers(*operands)


def type_of_value(value: ir.Value) -> Kind:
    """The type of a value, with the names of its free sizes."""
    shape = value.shape
    sizes = None if shape is None else tuple(n if isinstance(n, int) else n.value for n in shape)
    return Kind(int(value.dtype or 0), sizes)
