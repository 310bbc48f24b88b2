"""Elementwise operators: one line each. J = diag(∂f/∂xᵢ) · broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...jacobians import Array, Diagonal, Identity, Jacobian, Scalar, broadcast, dtype_of, shape_of
from ..conventions import BENDS, LEFT, MISSING, convention
from ..formula import derivative, value, variables
from ..node import Node
from ..numbers.table import KERNELS
from ..registry import Blocks, Kinks, declare, says
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


def elementwise(
    op_type: str, formula: Any, *, by: str = "", given: str = "", domain: Any = None
) -> None:
    """Declare an elementwise operator by its formula, what is given at its kinks, in words, and a
    function of a position and numbers that moves them into its domain.
    """
    FORMULAS[op_type] = declared = Elementwise(formula, by)
    says(op_type, kinks=Kinks("", given) if given else None, domain=domain)
    declare([op_type], declared, values={by: tuple(formula)} if by else {},
            definition=None if op_type in KERNELS else declared.define)  # fmt: skip


def divisor(i: int, x: np.ndarray) -> np.ndarray:
    """Numbers at least 0.5 away from 0."""
    return np.sign(x) * (np.abs(x) + 0.5)


elementwise("Add", "x + y")
elementwise("Sub", "x - y")
elementwise("Mul", "x * y")
elementwise("Div", "x / y", domain=lambda i, x: divisor(i, x) if i else x)
elementwise("Mod", {
    0: "x - y*floor(x/y)",
    1: "x - y*(floor(x/y) if x/y > 0 else ceil(x/y))",
}, by="fmod", given="as on the right", domain=lambda i, x: divisor(i, x) if i else x)  # fmt: skip
convention("Mod", "3 mod 1.5", (3.0, 1.5), (1.0, -2.0), "the slope from the right",
           "torch.remainder", attrs={"fmod": 1})  # fmt: skip

elementwise("Neg", "-x")
elementwise("Abs", "Abs(x)", given="0, the middle of [-1, 1]")
convention("Abs", "|0|", (0.0,), (0.0,), "the middle of [-1, 1]", jax=(1.0,))
elementwise("Reciprocal", "1/x", domain=divisor)
elementwise("Sqrt", "sqrt(x)", domain=lambda i, x: np.abs(x) + 0.1)
convention("Sqrt", "√0", (0.0,), (np.inf,), "the limit from the right")
elementwise("Exp", "exp(x)")
elementwise("Log", "log(x)", domain=lambda i, x: np.abs(x) + 0.1)
elementwise("Erf", "erf(x)")

elementwise("Sin", "sin(x)")
elementwise("Cos", "cos(x)")
elementwise("Tan", "tan(x)")
elementwise("Asin", "asin(x)", domain=lambda i, x: 0.9 * np.tanh(x))
elementwise("Acos", "acos(x)", domain=lambda i, x: 0.9 * np.tanh(x))
elementwise("Atan", "atan(x)")
elementwise("Sinh", "sinh(x)")
elementwise("Cosh", "cosh(x)")
elementwise("Tanh", "tanh(x)")
elementwise("Asinh", "asinh(x)")
elementwise("Acosh", "acosh(x)", domain=lambda i, x: np.abs(x) + 1.1)
elementwise("Atanh", "atanh(x)", domain=lambda i, x: 0.9 * np.tanh(x))

elementwise("Sigmoid", "1/(1 + exp(-x))")
elementwise("Softplus", "log(1 + exp(x))")
elementwise("Softsign", "x/(1 + Abs(x))")
elementwise("Swish", "x*sigmoid(alpha*x)")
elementwise("Mish", "x*tanh(softplus(x))")
elementwise("Gelu", {
    "none": "x*(1 + erf(x/sqrt(2)))/2",
    "tanh": "x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))/2",
}, by="approximate")  # fmt: skip

elementwise("Relu", "Piecewise((x, x > 0), (0, True))", given=f"0, {LEFT}")
elementwise("LeakyRelu", "Piecewise((x, x > 0), (alpha*x, True))", given=f"alpha, {LEFT}")
elementwise("PRelu", "Piecewise((x, x > 0), (y*x, True))", given=f"the slope of x ≤ 0, {LEFT}")
elementwise("ThresholdedRelu", "Piecewise((x, x > alpha), (0, True))", given=f"0, {LEFT}")
elementwise("Elu", "Piecewise((x, x > 0), (alpha*(exp(x) - 1), True))", given=f"alpha, {LEFT}")
elementwise("Celu", "Piecewise((x, x > 0), (alpha*(exp(x/alpha) - 1), True))")
elementwise("Selu", "Piecewise((gamma*x, x > 0), (gamma*alpha*(exp(x) - 1), True))",
            given=f"alpha · gamma, {LEFT}")  # fmt: skip
elementwise(
    "HardSigmoid",
    "Piecewise((0, alpha*x + beta <= 0), (1, alpha*x + beta >= 1), (alpha*x + beta, True))",
    given="0, as outside",
)
elementwise("HardSwish", "Piecewise((0, x <= -3), (x, x >= 3), (x*(x + 3)/6, True))",
            given="0 at -3 and 1 at 3, as outside")  # fmt: skip
elementwise("Shrink", "Piecewise((x + bias, x < -lambd), (x - bias, x > lambd), (0, True))",
            given="0, as inside")  # fmt: skip

convention("Relu", "relu(0)", (0.0,), (0.0,), BENDS)
convention("LeakyRelu", "leaky relu(0), slope 0.1", (0.0,), (0.1,),
           "the formula of x > 0 begins behind 0", "lambda x: F.leaky_relu(x, 0.1)", jax=(1.0,),
           attrs={"alpha": 0.1})  # fmt: skip
convention("PRelu", "prelu(0), slope 0.1", ([0.0], [0.1]), ([0.1], [0.0]), "as leaky relu",
           jax=([1.0], [0.0]), tensorflow=([0.0], [0.0]))  # fmt: skip
convention("Elu", "elu(0), α = 2", (0.0,), (2.0,), "as leaky relu", "lambda x: F.elu(x, 2.0)",
           tensorflow=MISSING, attrs={"alpha": 2.0})  # fmt: skip
convention("Selu", "selu(0)", (0.0,), (1.7580993,), "as leaky relu",
           tensorflow=(1.0507010,))  # fmt: skip
convention("HardSigmoid", "hard sigmoid(∓3)", ([-3.0, 3.0],), ([0.0, 0.0],), BENDS,
           tensorflow=MISSING, attrs={"alpha": 1 / 6, "beta": 0.5})  # fmt: skip
convention("HardSwish", "hard swish(∓3)", ([-3.0, 3.0],), ([0.0, 1.0],),
           "the slopes of the outer pieces", tensorflow=MISSING)  # fmt: skip
convention("Shrink", "soft shrink(∓0.5)", ([-0.5, 0.5],), ([0.0, 0.0],), BENDS, "F.softshrink",
           jax=MISSING, tensorflow=MISSING, attrs={"lambd": 0.5, "bias": 0.5})  # fmt: skip
convention("ThresholdedRelu", "thresholded relu(1)", (1.0,), (0.0,), BENDS,
           "lambda x: F.threshold(x, 1.0, 0.0)", jax=MISSING, tensorflow=MISSING)  # fmt: skip
