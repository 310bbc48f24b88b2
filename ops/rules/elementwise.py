"""Elementwise operators: one line each. J = diag(∂f/∂xᵢ) · broadcast."""

from __future__ import annotations

from typing import Any

from ...jacobians import Array, Diagonal, Identity, Jacobian, Scalar, broadcast, shape_of
from ..formula import derivative, variables
from ..node import Node
from ..registry import Blocks, jacobian
from ..trees import INPUTS, Tree, evaluate

FORMULAS: dict[str, Elementwise] = {}
"""op_type -> declaration, so that every formula can be checked."""


class Elementwise:
    """y = f(x, y, z) entry by entry, with ONNX's broadcasting.

    `formula` may map each value of the attribute `by` to a formula. `d` holds numerically stable
    derivatives written by hand: one formula, or a dict from input names to formulas.
    """

    def __init__(
        self, formula: str | dict[str, str], d: str | dict[str, str] | None, by: str
    ) -> None:
        self.formulas = formula if isinstance(formula, dict) else {"": formula}
        self.by = by if isinstance(formula, dict) else ""
        self.given = {"x": d} if isinstance(d, str) else d or {}
        self.variables = variables(next(iter(self.formulas.values())))

    def derivative(self, variable: str, node: Node) -> Tree:
        """∂f/∂variable for the node's attributes."""
        formula = self.formulas[getattr(node, self.by) if self.by else ""]
        return derivative(formula, variable, self.given.get(variable))

    def __call__(self, op: Any, node: Node) -> Blocks:
        values = {**node.attributes, **dict(zip(INPUTS, node.inputs, strict=False)), "Y": node.y}
        return {
            (0, i): spread(node, i, evaluate(op, self.derivative(name, node), values, node.dtype))
            for i, name in enumerate(self.variables)
            if node.wants(i)
        }


def spread(node: Node, i: int, d: Array | float, *, chooses: bool = False) -> Jacobian:
    """diag(d) after the broadcast of input i; a constant d needs no array."""
    lift = broadcast(shape_of(node.inputs[i]), node.y_shape, node.dtype)
    if not isinstance(d, float | int):
        return Diagonal(d, node.y_shape, chooses=chooses) @ lift
    scalar = Scalar(d, node.y_shape, node.dtype) if d != 1 else Identity(node.y_shape, node.dtype)
    return scalar @ lift


def elementwise(
    op_type: str,
    formula: str | dict[str, str],
    d: str | dict[str, str] | None = None,
    *,
    by: str = "",
) -> None:
    """Declare an elementwise operator by its formula."""
    FORMULAS[op_type] = declared = Elementwise(formula, d, by)
    values = {by: tuple(formula)} if isinstance(formula, dict) else {}
    jacobian(op_type, **values)(declared)


elementwise("Add", "x + y")
elementwise("Sub", "x - y")
elementwise("Mul", "x * y")
elementwise("Div", "x / y")
elementwise("Mod", "x - y*floor(x/y)", d={"x": "1", "y": "(Y - x)/y"})

elementwise("Neg", "-x")
elementwise("Abs", "Abs(x)")
elementwise("Reciprocal", "1/x")
elementwise("Sqrt", "sqrt(x)")
elementwise("Exp", "exp(x)")
elementwise("Log", "log(x)")
elementwise("Erf", "erf(x)")

elementwise("Sin", "sin(x)")
elementwise("Cos", "cos(x)")
elementwise("Tan", "tan(x)")
elementwise("Asin", "asin(x)")
elementwise("Acos", "acos(x)")
elementwise("Atan", "atan(x)")
elementwise("Sinh", "sinh(x)")
elementwise("Cosh", "cosh(x)")
elementwise("Tanh", "tanh(x)")
elementwise("Asinh", "asinh(x)")
elementwise("Acosh", "acosh(x)")
elementwise("Atanh", "atanh(x)")

elementwise("Sigmoid", "1/(1 + exp(-x))", d="Y*(1 - Y)")
elementwise("Softplus", "log(1 + exp(x))", d="sigmoid(x)")
elementwise("Softsign", "x/(1 + Abs(x))", d="1/(1 + Abs(x))**2")
elementwise("Swish", "x*sigmoid(alpha*x)")
elementwise("Mish", "x*tanh(softplus(x))")
elementwise("Gelu", {
    "none": "x*(1 + erf(x/sqrt(2)))/2",
    "tanh": "x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))/2",
}, by="approximate")  # fmt: skip

elementwise("Relu", "Piecewise((x, x > 0), (0, True))")
elementwise("LeakyRelu", "Piecewise((x, x > 0), (alpha*x, True))")
elementwise("PRelu", "Piecewise((x, x > 0), (y*x, True))")
elementwise("ThresholdedRelu", "Piecewise((x, x > alpha), (0, True))")
elementwise("Elu", "Piecewise((x, x > 0), (alpha*(exp(x) - 1), True))",
            d="Piecewise((1, x > 0), (Y + alpha, True))")  # fmt: skip
elementwise("Celu", "Piecewise((x, x > 0), (alpha*(exp(x/alpha) - 1), True))",
            d="Piecewise((1, x > 0), (Y/alpha + 1, True))")  # fmt: skip
elementwise("Selu", "Piecewise((gamma*x, x > 0), (gamma*alpha*(exp(x) - 1), True))",
            d="Piecewise((gamma, x > 0), (Y + gamma*alpha, True))")  # fmt: skip
elementwise(
    "HardSigmoid",
    "Piecewise((0, alpha*x + beta <= 0), (1, alpha*x + beta >= 1), (alpha*x + beta, True))",
)
elementwise("HardSwish", "Piecewise((0, x <= -3), (x, x >= 3), (x*(x + 3)/6, True))")
elementwise("Shrink", "Piecewise((x + bias, x < -lambd), (x - bias, x > lambd), (0, True))")
