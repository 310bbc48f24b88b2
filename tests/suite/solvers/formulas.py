"""Formulas as ONNX models: the residual y − f(b, x) of a regression, from its text.

>>> model = residual("y", "b1*(1 - exp(-b2*x))", ["b1", "b2"], ["y", "x"])
>>> [node.op_type for node in model.graph.node]
['Neg', 'Mul', 'Exp', 'Sub', 'Mul', 'Sub']
"""

import ast
from collections.abc import Iterable
from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPERATORS = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow",
    ast.USub: "Neg", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "arctan": "Atan",
}  # fmt: skip


def residual(
    response: str, formula: str, parameters: Iterable[str], variables: Iterable[str]
) -> onnx.ModelProto:
    """r = response − formula: parameters are scalars, variables vectors, all in float64."""
    nodes, constants, names = [], [], map("t{}".format, count())

    def value(tree: ast.expr) -> str:
        match tree:
            case ast.Name(id=name):
                return name
            case ast.Constant(value=number):
                constants.append(numpy_helper.from_array(np.float64(number), next(names)))
                return constants[-1].name
            case ast.BinOp(left=left, op=op, right=right):
                return add(type(op), left, right)
            case ast.UnaryOp(op=op, operand=operand):
                return add(type(op), operand)
            case ast.Call(func=ast.Name(id=function), args=arguments):
                return add(function, *arguments)

    def add(operator: object, *operands: ast.expr) -> str:
        inputs = [value(operand) for operand in operands]
        nodes.append(helper.make_node(OPERATORS[operator], inputs, [next(names)]))
        return nodes[-1].output[0]

    end = add(ast.Sub, *(ast.parse(text, mode="eval").body for text in (response, formula)))
    nodes[-1].output[0] = "r"
    del end
    inputs = [*(_double(name, []) for name in parameters), *(_double(v, ["n"]) for v in variables)]
    graph = helper.make_graph(nodes, "residual", inputs, [_double("r", ["n"])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _double(name: str, shape: list[str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)
