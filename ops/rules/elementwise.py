"""Elementwise operators: one line each. J = diag(∂f/∂xᵢ) · broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...jacobians import Array, Diagonal, Identity, Jacobian, Scalar, broadcast, dtype_of, shape_of
from ..formula import derivative, value, variables
from ..node import Node
from ..registry import Blocks, jacobian
from ..trees import Piece, evaluate

FORMULAS: dict[str, Elementwise] = {}
"""op_type -> declaration, so that every formula can be checked."""


class Elementwise:
    """y = f(x, y, z) entry by entry, with ONNX's broadcasting: SymPy derives the Jacobian.

    `formula` may map each value of the attribute `by` to a formula.
    """

    def __init__(
        self, formula: str | dict[Any, str], by: str = "", names: Sequence[str] = (),
        defaults: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.formulas = formula if isinstance(formula, dict) else {"": formula}
        self.by, self.defaults = by, dict(defaults or {})
        self.text = self.__doc__ = next(iter(self.formulas.values()))
        self.variables = tuple(names) or variables(self.text)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The formulas."""
        return tuple(Piece(text, self.variables) for text in self.formulas.values())

    def formula(self, node: Node) -> str:
        """The formula for the node's attributes."""
        return self.formulas[getattr(node, self.by) if self.by else ""]

    def values(self, node: Node) -> dict[str, Any]:
        """The inputs and attributes by their names in the formula."""
        named = dict(zip(self.variables, node.inputs, strict=False))
        return {**self.defaults, **node.attributes, **named}

    def define(self, op: Any, node: Node) -> tuple[Array]:
        """The value."""
        tree = value(self.formula(node))
        return (evaluate(op, tree, self.values(node), dtype_of(node.inputs[0])),)

    def __call__(self, op: Any, node: Node) -> Blocks:
        formula, values = self.formula(node), {**self.values(node), "Y": node.y}
        return {
            (0, i): spread(node, i, evaluate(op, derivative(formula, name), values, node.dtype))
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


def elementwise(op_type: str, formula: str | dict[Any, str], *, by: str = "") -> None:
    """Declare an elementwise operator by its formula."""
    FORMULAS[op_type] = declared = Elementwise(formula, by)
    jacobian(op_type, **({by: tuple(formula)} if by else {}))(declared)


elementwise("Add", "x + y")
elementwise("Sub", "x - y")
elementwise("Mul", "x * y")
elementwise("Div", "x / y")
elementwise("Mod", {
    0: "x - y*floor(x/y)",
    1: "x - y*(floor(x/y) if x/y > 0 else ceil(x/y))",
}, by="fmod")  # fmt: skip

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

elementwise("Sigmoid", "1/(1 + exp(-x))")
elementwise("Softplus", "log(1 + exp(x))")
elementwise("Softsign", "x/(1 + Abs(x))")
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
elementwise("Elu", "Piecewise((x, x > 0), (alpha*(exp(x) - 1), True))")
elementwise("Celu", "Piecewise((x, x > 0), (alpha*(exp(x/alpha) - 1), True))")
elementwise("Selu", "Piecewise((gamma*x, x > 0), (gamma*alpha*(exp(x) - 1), True))")
elementwise(
    "HardSigmoid",
    "Piecewise((0, alpha*x + beta <= 0), (1, alpha*x + beta >= 1), (alpha*x + beta, True))",
)
elementwise("HardSwish", "Piecewise((0, x <= -3), (x, x >= 3), (x*(x + 3)/6, True))")
elementwise("Shrink", "Piecewise((x + bias, x < -lambd), (x - bias, x > lambd), (0, True))")
