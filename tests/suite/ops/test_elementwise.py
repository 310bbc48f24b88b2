"""Every elementwise formula: its derivative is finite and right at large x, 0 and kinks.

The reference is SymPy's derivative of the plain formula, evaluated by mpmath in enough digits
to avoid cancellation; `test_rules` checks that the formula is the operator.
"""

import gc
from weakref import ref

import mpmath
import numpy as np
import pytest
import sympy as sp

from models.one_node import one_node
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.formulas import NAMES, OUTPUT, derive, parse, sigmoid, softplus
from onnxjac.ops.kinks import kinks
from onnxjac.ops.node import schema_defaults
from onnxjac.ops.numbers import numbers
from onnxjac.ops.rules.elementwise import FORMULAS
from onnxjac.ops.trees import evaluate_tree

X, Y = NAMES["x"], NAMES["y"]
GRID = (-800.0, -30.0, -1.5, -0.7, -1e-8, 0.0, 1e-8, 0.7, 1.5, 30.0, 800.0)

ATTRIBUTES = {
    "Celu": [{}, {"alpha": 0.5}],
    "Elu": [{}, {"alpha": 2.0}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "HardSigmoid": [{}, {"alpha": 0.5, "beta": 0.25}],
    "LeakyRelu": [{}, {"alpha": 0.25}],
    "Selu": [{}, {"alpha": 2.0, "gamma": 0.5}],
    "Shrink": [{"lambd": 1.0, "bias": 0.5}, {}],
    "Swish": [{}, {"alpha": 2.0}],
    "ThresholdedRelu": [{}, {"alpha": 0.25}],
}
OPSETS = {"Swish": 24}
POINTS = [(op, attrs) for op in FORMULAS for attrs in ATTRIBUTES.get(op, [{}]) if op != "Mod"]


def plain(text):
    """The formula with σ and softplus written out."""
    expr = parse(text).replace(sigmoid, lambda z: 1 / (1 + sp.exp(-z)))
    return expr.replace(softplus, lambda z: sp.log(1 + sp.exp(z)))


def formula(op, attrs):
    """The plain formula with its attributes as numbers, which ONNX holds in single precision."""
    held = schema_defaults(op, "", OPSETS.get(op, 21)) | attrs
    values = {NAMES[k]: sp.Rational(float(np.float32(v))) for k, v in held.items() if k in NAMES}
    declared = FORMULAS[op]
    return plain(declared.formulas[held[declared.by] if declared.by else ""]).subs(values)


def by_rule(op, attrs, *inputs):
    """The elementwise derivatives by every input, from the rule."""
    model = load(one_node(op, inputs, attrs, 1, OPSETS.get(op, 21)))
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    J = linearize(model, feeds, engine="numpy")
    return [J["y0", name].diagonal() for name in feeds]


def by_mpmath(expr, variable, points):
    """∂expr/∂variable at the points in 1500 digits; NaN where it is no finite real double."""
    slope = sp.lambdify((X, Y), sp.diff(expr, variable), "mpmath")
    with mpmath.workdps(1500):
        return np.array([as_double(slope, *map(mpmath.mpf, p)) for p in points])


def as_double(slope, *point):
    try:
        value = mpmath.mpmathify(slope(*point))
    except (ZeroDivisionError, ValueError):
        return np.nan
    real = isinstance(value, mpmath.mpf) and mpmath.isfinite(value)
    return float(value) if real and abs(value) < 1e300 else np.nan


@pytest.mark.filterwarnings("ignore:.*not finite at this point")
@pytest.mark.parametrize(("op", "attrs"), POINTS, ids=str)
def test_derivative_is_right_everywhere(op, attrs):
    expr = formula(op, attrs)
    binary = Y in expr.free_symbols
    bends = declared_kinks(op)
    points = [(x, y) for x in GRID for y in (GRID if binary else (0.0,)) if x not in bends]
    inputs = [np.array(column) for column in zip(*points, strict=True)][: 1 + binary]
    for variable, found in zip((X, Y), by_rule(op, attrs, *inputs), strict=False):
        truth = by_mpmath(expr, variable, points)
        known = np.isfinite(truth)
        assert known.any()
        np.testing.assert_allclose(found[known], truth[known], rtol=1e-13, atol=1e-13)


def declared_kinks(op):
    """The kinks of an operator in x, with its default attributes."""
    held = schema_defaults(op, "", OPSETS.get(op, 21))
    values = {NAMES[k]: v for k, v in held.items() if k in NAMES}
    return {float((X - k.where).subs(values)) for k in kinks(op) if not k.whole and k.x == X}


@pytest.mark.parametrize("op", ["Celu", "Softsign"])
def test_where_the_second_derivative_alone_jumps(op):
    assert by_rule(op, {}, np.zeros(1)) == [1.0]


def test_prelu_takes_its_slope_at_the_kink():
    dx, dy = by_rule("PRelu", {}, np.array([0.0, 0.0]), np.array([0.25, -1.0]))
    np.testing.assert_array_equal(dx, [0.25, -1.0])
    np.testing.assert_array_equal(dy, [0.0, 0.0])


def test_a_remainder_has_slopes_one_and_minus_the_quotient():
    x, y = np.array([5.3, -5.3, 5.3, -5.3]), np.array([2.0, 2.0, -2.0, -2.0])
    dx, dy = by_rule("Mod", {"fmod": 1}, x, y)
    np.testing.assert_array_equal(dx, 1)
    np.testing.assert_allclose(dy, -np.trunc(x / y))


@pytest.mark.parametrize("op", [op for op in FORMULAS if op != "Mod"])
def test_the_stable_form_is_the_derivative(op):
    """By SymPy, on every piece: no rewriting for stability changes the function."""
    for text in FORMULAS[op].formulas.values():
        expr = plain(text)
        for name in FORMULAS[op].variables:
            found = derive(parse(text), name).replace(sigmoid, lambda z: 1 / (1 + sp.exp(-z)))
            found = found.replace(softplus, lambda z: sp.log(1 + sp.exp(z))).subs(OUTPUT, expr)
            assert vanishes(sp.piecewise_fold(sp.diff(expr, NAMES[name]) - found))


def vanishes(expr):
    """Whether an expression is 0 on every piece, by SymPy's proof."""
    pieces = [e for e, _ in expr.args] if expr.is_Piecewise else [expr]
    known = [piece.replace(sp.sign, lambda z: abs(z) / z) for piece in pieces]
    return all(sp.simplify(piece) == 0 for piece in known)


def test_the_proof_can_fail():
    expr = plain("1/(1 + exp(-x))")
    assert not vanishes(sp.diff(expr, X) - expr)


def test_a_formula_keeps_no_tensor_for_the_collector_of_cycles():
    gc.disable()
    try:
        x = np.ones(3)
        seen = ref(x)
        made = evaluate_tree(numbers, ("Mul", "x", ("Exp", "x")), {"x": x}, x.dtype)
        del x
        assert seen() is None
    finally:
        gc.enable()
    np.testing.assert_allclose(made, np.e)
