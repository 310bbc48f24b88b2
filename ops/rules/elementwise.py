"""Elementwise operators: J = diag(∂f/∂xᵢ) · broadcast, most of them in one line each.

A formula is text in the names of the inputs, `Y` (the output) and the operator's attributes. SymPy
is imported only when the first derivative is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np

from ...jacobians import Array, Diagonal, Identity, Jacobian, Op, broadcast, dtype_of, shape_of
from ..conventions import BENDS, LEFT, MISSING, ORDER, SHARED, convention, kinks, marked, tied
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node
from ..numbers.table import KERNELS
from ..registry import Blocks, Count, Kinks, declare, jacobian, says
from ..trees import INPUTS, Piece, Tree, evaluate_tree

FORMULAS: dict[str, Elementwise] = {}
"""op_type -> declaration, so that every formula can be checked."""

SLOPES: dict[str, str] = {}
"""A formula in x -> the form of its derivative that keeps its digits where SymPy's do not."""


class Elementwise:
    """y = f(x, y, z) entry by entry, with ONNX's broadcasting: SymPy derives the Jacobian.

    `formula` may map each value of the attribute `by` to a formula.
    """

    def __init__(
        self, formula: str | Mapping[Any, str], by: str = "", names: Sequence[str] = (),
        defaults: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.formulas = formula if isinstance(formula, Mapping) else {"": formula}
        self.by, self.defaults = by, dict(defaults or {})
        self.text = self.__doc__ = next(iter(self.formulas.values()))
        self.variables = tuple(names) or variables(self.text)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(Piece(text, self.variables) for text in self.formulas.values())

    def formula(self, node: Node) -> str:
        """The formula for the node's attributes."""
        return self.formulas[getattr(node, self.by) if self.by else ""]

    def values(self, node: Node) -> dict[str, Any]:
        """The inputs and attributes by their names in the formula."""
        named = dict(zip(self.variables, node.inputs, strict=False))
        return {**self.defaults, **node.attributes, **named}

    def define(self, op: Op, node: Node) -> tuple[Array]:
        tree = formula_tree(self.formula(node))
        return (evaluate_tree(op, tree, self.values(node), dtype_of(node.inputs[0])),)

    def __call__(self, op: Op, node: Node) -> Blocks:
        formula, values = self.formula(node), {**self.values(node), "Y": node.y}
        return {
            (0, i): broadcast_diagonal(
                node, i, evaluate_tree(op, slope_tree(formula, name, op.recurs), values, node.dtype)
            )
            for i, name in enumerate(self.variables)
            if node.wants(i)
        }


# -- formulas: SymPy turns a line of mathematics into a derivative made of vocabulary calls --------


@cache
def slope_tree(formula: str, variable: str, recurs: bool = False) -> Tree:
    """∂formula/∂variable as a tree: the declared form, or a stable one that SymPy finds; where it
    `recurs`, the shortest one, such as 1 - Y², whose digits are enough beside 1.
    """
    import sympy

    from .. import formulas

    if recurs:
        short = formulas.derive(formulas.parse(formula), variable, shortest=True)
        if not short.has(sympy.exp):
            return formulas.expression_tree(short)
    if formula in SLOPES:
        return formulas.expression_tree(formulas.parse(SLOPES[formula]))
    return formulas.expression_tree(formulas.derive(formulas.parse(formula), variable))


@cache
def formula_tree(formula: str) -> Tree:
    """A formula as a tree, in a stable form."""
    from .. import formulas

    return formulas.expression_tree(formulas.stable(formulas.parse(formula)))


def variables(formula: str) -> tuple[str, ...]:
    """The inputs `x`, `y` and `z` that a formula uses.

    >>> variables("x**y")
    ('x', 'y')
    """
    words = "".join(c if c.isalnum() or c == "_" else " " for c in formula).split()
    return tuple(name for name in INPUTS if name in words)


def slope_of(op: Op, name: str, x: Array, y: Array) -> Array:
    """f'(x) for the operator y = f(x) of this name."""
    return evaluate_tree(op, slope_tree(FORMULAS[name].text, "x"), {"x": x, "Y": y}, dtype_of(x))


def broadcast_diagonal(node: Node, i: int, d: Array | float, *, chooses: bool = False) -> Jacobian:
    """diag(d) after the broadcast of input i; a constant d needs no array."""
    lift = broadcast(shape_of(node.inputs[i]), node.y_shape, node.dtype)
    if isinstance(d, float | int):
        return lift * d
    return Diagonal(d, node.y_shape, chooses=chooses) @ lift


def elementwise(
    op_type: str, formula: str | Mapping[Any, str], *, d: str | Mapping[Any, str] = "",
    by: str = "", given: str = "", near: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> None:  # fmt: skip
    """Declare an elementwise operator by its formula, what is given at its kinks, in words, and a
    function of a position and numbers that moves them into its domain.

    `d` is a form of the derivative in x and Y. SymPy proves it equal on each of its pieces, so that
    all higher derivatives are right too where two pieces meet; it is there for its accuracy.
    """
    FORMULAS[op_type] = declared = Elementwise(formula, by)
    forms = {"": d} if isinstance(d, str) else d
    SLOPES.update((declared.formulas[key], form) for key, form in forms.items() if form)
    says(op_type, kinks=Kinks("", given) if given else None, near=near)
    declare([op_type], declared, values={by: tuple(formula)} if by else {},
            definition=None if op_type in KERNELS else declared.define)  # fmt: skip


def blended(core: str, tail: str) -> str:
    """One form for |x| < 1 and one beyond, both bounded: to multiply is quicker than to choose."""
    inside = "(1 if Abs(x) < 1 else 0)"
    return f"{inside}*({core}) + (1 - {inside})*{tail}"


def draw_divisor(i: int, x: np.ndarray) -> np.ndarray:
    """Numbers at least 0.5 away from 0."""
    return np.sign(x) * (np.abs(x) + 0.5)


elementwise("Add", "x + y")
elementwise("Sub", "x - y")
elementwise("Mul", "x * y")
elementwise("Div", "x / y", near=lambda i, x: draw_divisor(i, x) if i else x)
elementwise("Mod", {
    0: "x - y*floor(x/y)",
    1: "x - y*(floor(x/y) if x/y > 0 else ceil(x/y))",
}, by="fmod", given="as on the right",
   near=lambda i, x: draw_divisor(i, x) if i else x)  # fmt: skip
convention("Mod", "3 mod 1.5", (3.0, 1.5), (1.0, -2.0), "the slope from the right",
           "torch.remainder", attrs={"fmod": 1})  # fmt: skip

elementwise("Neg", "-x")
elementwise("Abs", "Abs(x)", given="0, the middle of [-1, 1]")
convention("Abs", "|0|", (0.0,), (0.0,), "the middle of [-1, 1]", jax=(1.0,))
elementwise("Reciprocal", "1/x", near=draw_divisor)
elementwise("Sqrt", "sqrt(x)", near=lambda i, x: np.abs(x) + 0.1)
convention("Sqrt", "√0", (0.0,), (np.inf,), "the limit from the right")
elementwise("Exp", "exp(x)")
elementwise("Log", "log(x)", near=lambda i, x: np.abs(x) + 0.1)
elementwise("Erf", "erf(x)")

elementwise("Sin", "sin(x)")
elementwise("Cos", "cos(x)")
elementwise("Tan", "tan(x)")
elementwise("Asin", "asin(x)", near=lambda i, x: 0.9 * np.tanh(x))
elementwise("Acos", "acos(x)", near=lambda i, x: 0.9 * np.tanh(x))
elementwise("Atan", "atan(x)",
            d="1/(1 + x**2) if Abs(x) < 99 else x**-2/(1 + x**-2)")  # fmt: skip
elementwise("Sinh", "sinh(x)")
elementwise("Cosh", "cosh(x)")
elementwise("Tanh", "tanh(x)", d=blended("1 - Y**2", "exp(-2*Abs(x))*(1 + Abs(Y))**2"))
elementwise("Asinh", "asinh(x)",
            d="1/sqrt(1 + x**2) if Abs(x) < 99 else 1/(Abs(x)*sqrt(1 + x**-2))")  # fmt: skip
elementwise("Acosh", "acosh(x)", near=lambda i, x: np.abs(x) + 1.1)
elementwise("Atanh", "atanh(x)", near=lambda i, x: 0.9 * np.tanh(x))

elementwise("Sigmoid", "1/(1 + exp(-x))",
            d=blended("Y*(1 - Y)", "exp(-Abs(x))/(1 + exp(-Abs(x)))**2"))  # fmt: skip
elementwise("Softplus", "log(1 + exp(x))")
elementwise("Softsign", "x/(1 + Abs(x))")
elementwise("Swish", "x*sigmoid(alpha*x)")
elementwise(
    "Mish",
    "x*tanh(softplus(x))",
    d="tanh(softplus(x)) + 4*x*sigmoid(x)*(sigmoid(-x)/(1 + sigmoid(-x)**2))**2",
)
BEND = "sqrt(8/pi)*(x + 0.044715*x**3)"
elementwise("Gelu", {
    "none": "x*(1 + erf(x/sqrt(2)))/2",
    "tanh": "x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))/2",
}, d={"tanh": f"sigmoid({BEND})*(1 + x*sigmoid(-({BEND}))*sqrt(8/pi)*(1 + 3*0.044715*x**2)) "
              "if Abs(x) < 30 else (1 if x > 0 else 0)"}, by="approximate")  # fmt: skip

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


def sum_text(how: tuple[str, int]) -> str:
    """The sum of some inputs, or their mean.

    >>> sum_text(("Mean", 2))
    'y[*n] = (x0[*n] + x1[*n])/2'
    """
    op_type, n = how
    total = add_up([f"x{k}[*n]" for k in range(n)])
    return f"y[*n] = ({total})/{n}" if op_type == "Mean" else f"y[*n] = {total}"


def add_up(terms: list[str]) -> str:
    """The sum of some terms, in brackets by halves: SymPy flattens each sum anew."""
    if len(terms) <= 4:
        return " + ".join(terms)
    half = len(terms) // 2
    return f"({add_up(terms[:half])}) + ({add_up(terms[half:])})"


for _name in ("Sum", "Mean"):
    declare_indexed(_name, sum_text, shown=(_name, 2),
            by=lambda node: (node.step.op_type, len(node.inputs)))  # fmt: skip

for _name, _grows in (("Identity", False), ("Cast", False), ("CastLike", False), ("Expand", True)):
    declare([_name], Elementwise("x"), grows=_grows)  # in another dtype, or in another shape
says("Cast", "CastLike", near=lambda i, x: x)


def declare_range(name: str, **told: Any) -> None:
    """yₖ = start + k delta; the limit only determines the count."""
    declare_indexed(
        name,
        "y[k] = start[...] + count[k]*delta[...]",
        inputs=("start", "limit", "delta"),
        absent={"delta": 1.0},
        grows=True,
        numbers=lambda op, node: {"count": count_up(op, node.y_shape[0])},
        **told,
    )


declare_range("Range")


@kinks("Range", "com.microsoft::Range", where="where the number of entries changes",
       given="as with this number of entries")  # fmt: skip
def whole_range(node: Node) -> Count:
    """Whether the range ends exactly at its limit, so that a longer range has one entry more."""
    start, limit, delta = (np.asarray(x, np.float64) for x in node.inputs[:3])
    turns = (limit - start) / delta
    return marked((turns == np.floor(turns)) & (turns >= 0))


@jacobian("Max", "Min")
def extremum(op: Op, node: Node) -> Blocks:
    """y = max xᵢ; inputs that tie share the derivative equally."""
    hits = [op.CastLike(op.Equal(x, node.y), node.y) for x in node.inputs]
    ties = op.Sum(*hits)
    return {
        (0, i): broadcast_diagonal(node, i, op.Div(hits[i], ties), chooses=True)
        for i in range(len(hits))
        if node.wants(i)
    }


kinks("Max", "Min", where=ORDER, given=SHARED)(
    lambda node: tied(sum(x == node.y for x in node.inputs))
)
convention("Max", "max(1, 1)", (1.0, 1.0), (0.5, 0.5), SHARED, "torch.maximum",
           tensorflow=(1.0, 0.0))  # fmt: skip
convention("Min", "min(1, 1)", (1.0, 1.0), (0.5, 0.5), SHARED, "torch.minimum",
           tensorflow=(1.0, 0.0))  # fmt: skip


@jacobian("Pow")
def pow_(op: Op, node: Node) -> Blocks:
    """y = bᵉ: ∂/∂b = e bᵉ⁻¹, 0 where e = 0; ∂/∂e = y log b, 0 where b = 0."""
    base, exponent = node.x, op.CastLike(node.inputs[1], node.x)
    blocks = {}
    if node.wants(0):
        constant = op.And(op.Equal(exponent, 0.0), op.Equal(base, 0.0))  # 0 · 0⁻¹ would be NaN
        lower = op.Where(constant, 0.0, op.Sub(exponent, 1.0))
        factor = exponent
        if node.wants(1):  # constant in e where b = 0, as bᵉ is: only whole e matter there
            whole = op.Mul(op.Sign(exponent), op.Ceil(op.Abs(exponent)))
            factor = op.Where(op.Equal(base, 0.0), whole, exponent)
        blocks[0, 0] = broadcast_diagonal(node, 0, op.Mul(factor, op.Pow(base, lower)))
    if node.wants(1):
        safe = op.Where(op.Equal(base, 0.0), 1.0, base)
        root = op.Pow(safe, op.Mul(exponent, 0.5))  # y may overflow before y log b does
        blocks[0, 1] = broadcast_diagonal(node, 1, op.Mul(op.Mul(root, op.Log(safe)), root))
    return blocks


convention("Pow", "0⁰", (0.0, 0.0), (0.0, 0.0), "x⁰ is constant, and 0ʸ is 0 for y > 0",
           jax=(np.nan, 0.0), tensorflow=(np.nan, 0.0))  # fmt: skip
convention("Pow", "0¹", (0.0, 1.0), (1.0, 0.0), "0ʸ is constant for y > 0")
convention("Pow", "(-2)²", (-2.0, 2.0), (-4.0, np.nan),
           "(-2)ʸ is real only for whole y: there is no derivative in y",
           tensorflow=(-4.0, 0.0))  # fmt: skip


declare_indexed("Where", "y[*n] = a[*n] if c[*n] > 0 else b[*n]", inputs="cab")
declare_indexed(
    "Clip",
    "y[*n] = high[*n] if x[*n] > high[*n] or low[*n] > high[*n] else "
    "(low[*n] if x[*n] < low[*n] else x[*n])",
    inputs=("x", "low", "high"),
    absent={"low": -np.inf, "high": np.inf},
)


@kinks("Clip", where="x = min or max", given="1 for x: a bound counts as inside")
def at_bounds(node: Node) -> Count:
    """Entries that equal a bound."""
    bounds = (node.x == bound for bound in node.inputs[1:3] if bound is not None)
    return marked(reduce(np.logical_or, bounds, np.zeros(node.x_shape, bool)))


convention("Clip", "clip(x, -1, 1) at -1, 0, 1", ([-1.0, 0.0, 1.0], -1.0, 1.0),
           ([1.0, 1.0, 1.0], 0.0, 0.0), "an entry on a bound counts as inside", "torch.clamp",
           jax=([0.5, 1.0, 0.5], 0.5, 0.5))  # fmt: skip


@jacobian("Dropout", random=True)
def dropout(op: Op, node: Node) -> Blocks:
    """y = x in inference; in training y = x mask / (1 - ratio), with the mask that was drawn.

    If the node has no mask output, entries with y = 0 count as dropped.
    """
    if not any(node.ints(2) or (0,)):
        return {(0, 0): Identity(node.y_shape, node.dtype)}
    mask = node.output(1)
    mask = op.Not(op.Equal(node.y, 0.0)) if mask is None else mask
    rest = op.Sub(1.0, op.CastLike(0.5 if node.input(1) is None else node.inputs[1], node.y))
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): Diagonal(op.Div(op.CastLike(mask, node.y), rest), node.y_shape, chooses=True)
    }
    if node.wants(1):
        blocks[0, 1] = broadcast_diagonal(node, 1, op.Div(node.y, rest))
    return blocks


says("Pow", near=lambda i, x: np.abs(x) + 0.1 if i == 0 else x)
