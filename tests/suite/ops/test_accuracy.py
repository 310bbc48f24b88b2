"""Values, slopes and second derivatives keep their digits from the smallest number to the largest.

The promise of docs/results/precision.md, for every formula and for operators on rows: 16 units,
measured by `precision.accuracy` against mpmath; forms that are chosen for their accuracy are equal
by SymPy.
"""

from importlib.util import find_spec

import numpy as np
import onnx
import pytest
import sympy as sp

import onnxjac as oj
from onnxjac.ops.formulas import NAMES, OUTPUT, derive, parse, unstable, write_out
from onnxjac.ops.rules.elementwise import FORMULAS, SLOPES
from precision.accuracy import BOUND, CASES, DTYPES, EXCEPTIONS, ORDERS
from precision.networks import ROOT
from precision.page import OPERATORS

X = NAMES["x"]

WITH_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
TORCH = pytest.param("torch", marks=[pytest.mark.peers, WITH_TORCH])


@pytest.mark.sampled(0.2)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_keep_their_digits(case, dtype, request):
    count = 12 if request.config.getoption("--whole") else 3
    for order, error in zip(ORDERS, case.measured(dtype, count), strict=True):
        assert error.units <= BOUND, f"{order}: {error}"


def test_every_formula_is_measured():
    assert {case.op for case in CASES} >= FORMULAS.keys()
    assert {name for name, _ in EXCEPTIONS} <= set(map(str, CASES))


def test_the_page_has_every_operator():
    text = (ROOT / "docs/results/precision.md").read_text(encoding="utf-8").partition(OPERATORS)[2]
    shown = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert shown[1:] == list(map(str, CASES))


# -- forms: chosen by accuracy, equal by proof -----------------------------------------------------


@pytest.mark.parametrize("formula", SLOPES)
def test_declared_slopes_are_equal(formula):
    """On every piece, so that where two pieces meet all higher derivatives are equal too.

    A number is the limit far out, on the right and on the left, which the slope at ±30 has reached.
    """
    expr, t = write_out(parse(formula)), sp.Symbol("t", positive=True)
    form = sp.piecewise_fold(write_out(parse(SLOPES[formula])).subs(OUTPUT, expr))
    pieces = [piece for piece, _ in form.args] if form.is_Piecewise else [form]
    limits = [piece for piece in pieces if piece.is_number]
    for sign in (1, -1):
        slope = sp.diff(expr, X).subs(X, sign * t)
        for piece in pieces:
            if not piece.is_number:
                gap = slope - piece.subs(X, sign * t)
                assert sp.simplify(gap.rewrite(sp.exp)) == 0 or sp.simplify(gap) == 0
        if limits:
            assert abs(sp.N(slope.subs(t, 30) - limits[sign < 0], 30)) < 1e-100


@pytest.mark.parametrize("text", ["tanh(x)", "x*tanh(x)", "1/(1 + exp(-x))", "tanh(x/2)**2"])
def test_forms_are_chosen_in_the_tails(text):
    """The slope at ±30, where 1 - tanh² is 0, has 11 digits."""
    expr = parse(text)
    assert unstable(derive(expr, "x"), expr, "x", 0) == ""
    assert unstable(1 - sp.tanh(X) ** 2, parse("tanh(x)"), "x", 0)


# -- compositions ----------------------------------------------------------------------------------


def loaded(body, dtype):
    kind = {"float32": "float", "float64": "double"}[dtype]
    return oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({kind}[n] x) => ({kind}[m] y) {{ {body} }}'
    ))  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*not finite at this point")
@pytest.mark.parametrize("engine", ["numpy", None, TORCH])
@pytest.mark.parametrize(("body", "dtype", "x", "slope"), [
    ("e = Exp(x) y = Asinh(e)", "float32", 50, 1),
    ("e = Exp(x) y = Asinh(e)", "float64", 500, 1),
    ("e = Exp(x) y = Atan(e)", "float64", 300, np.exp(-300)),
    ("e = Exp(x) y = Atan(e)", "float32", 42, np.exp(-42)),
    ("e = Exp(x) y = Softsign(e)", "float64", 300, np.exp(-300)),
    ("e = Exp(x) y = Softsign(e)", "float32", 42, np.exp(-42)),
    ("y = Sigmoid(x)", "float64", 40, np.exp(-40)),
    ("y = Tanh(x)", "float64", -20, 4 * np.exp(-40)),
    ("y = Elu(x)", "float64", -40, np.exp(-40)),
    ("b = Constant<value = double {2.0}>() y = Pow(b, x)", "float64", 1024,
     2.0**1023 * (2 * np.log(2))),
])  # fmt: skip
def test_slopes_behind_large_numbers(body, dtype, x, slope, engine):
    J = oj.linearize(loaded(body, dtype), {"x": np.array([x], dtype)}, engine=engine)
    np.testing.assert_allclose(J.toarray(), [[slope]], rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("body", "x", "expected"), [
    ("e = Exp(x) l = Log(e) y = Mul(l, l)", 60, 2),
    ("y = Softplus(x)", 40, np.exp(-40)),
    ("e = Exp(x) l = Log(e) y = Mul(l, l)", -300, 2),
    ("n = ReduceL2(x) y = Mul(n, n)", 0, 2),
    ("two = Constant<value = float {2.0}>() n = ReduceL2(x) y = Pow(n, two)", 0, 2),
])  # fmt: skip
def test_second_derivatives_of_what_overflows(body, x, expected):
    H = oj.hessian(loaded(body, "float32"), {"x": np.array([x], "f4")}, weights=np.ones(1, "f4"))
    np.testing.assert_allclose(H.toarray(), [[expected]], rtol=1e-6)


def test_a_sum_of_exponentials_in_index_notation():
    """The slopes of log Σ exp sum to 1, however large it is."""
    oj.derive("accuracy.test::Total", "y[i] = log(sum(exp(x[i, j]), j))")
    model = oj.load(onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "accuracy.test": 1]>
        g (float[2,3] x) => (float[2] y) { y = accuracy.test.Total (x) }"""))
    x = np.array([[1e6, 1e6 + 1, 1e6 - 2], [0, 1, -2]], np.float32)
    J = oj.linearize(model, {"x": x}, engine="numpy").toarray().reshape(2, 2, 3)
    np.testing.assert_allclose(J[0, 0], J[1, 1], rtol=1e-6)
    np.testing.assert_allclose(J[0, 0].sum(), 1, rtol=1e-6)
