"""NaN and infinity propagate as in IEEE arithmetic; a structural zero stays zero."""

import warnings

import numpy as np
import pytest

import onnxjac as oj

from .models import ENGINES, model, network, product, transposed

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")

BAD = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


def linearized(value, engine):
    """∂y/∂x with one entry of the first of two samples set to `value`."""
    x = X.copy()
    x[0, 1] = value
    return oj.linearize(network(), {"x": x}, of="y", engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", BAD)
def test_one_sample_does_not_spoil_the_other(value, engine):
    """J is structurally zero between samples: no product multiplies 0 by NaN there."""
    J, clean = linearized(BAD[value], engine), oj.linearize(network(), {"x": X}, of="y")
    for K in (J, J.compile("numpy"), J.compile("onnxruntime"), J.plan(products=1000)):
        np.testing.assert_allclose(product(K)[4:], product(clean)[4:], rtol=1e-5)
        np.testing.assert_allclose(transposed(K)[3:], transposed(clean)[3:], rtol=1e-5, atol=1e-7)
        assert np.isnan(product(K)[:4]).any()
    blocks = J.tosparse().toarray()
    assert not blocks[4:, :3].any()
    assert not blocks[:4, 3:].any()
    assert np.isnan(blocks[:4, :3]).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_nan_in_a_vector_stays_a_nan_in_the_product(engine):
    """y = x ∘ w + x: a NaN in v stays a NaN where it is multiplied by 0."""
    m = model("h = Mul(x, w) y = Add(h, x)", "(float[2,3] x) => (float[2,3] y)",
              w=-np.ones((2, 3), np.float32))  # fmt: skip
    J = oj.linearize(m, {"x": X})
    v = np.arange(6, dtype=np.float32)
    v[1] = np.nan
    for K in (J, J.T, J.compile(engine), J.plan(products=1000)):
        assert np.flatnonzero(np.isnan(K @ v)).tolist() == [1]


SOFT = {"Softmax": 1, "LogSoftmax": 1, "Tanh": 1, "Sigmoid": 1, "Exp": 1, "Gelu": 1, "Softplus": 1,
        "LpNormalization": 1, "ReduceLogSumExp": 1, "ReduceL2": 1, "Abs": 1,
        "Relu": 0, "LeakyRelu": 0, "HardSigmoid": 0, "Floor": 0, "Sign": 0, "Neg": 0}  # fmt: skip
"""Operator -> whether its derivative at NaN is NaN; otherwise one piece applies."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SOFT)
def test_the_derivative_at_nan_agrees_with_the_last_piece(name, engine):
    """Comparisons with NaN are false: no piece such as x > 0 holds it, so the last one applies."""
    rows = "2" if name.startswith("Reduce") else "2,3"
    options = "<axes = [1], keepdims = 0>" if name.startswith("Reduce") else ""
    body = f"y = {name}{options}(x)"
    weights = {}
    if options:
        body, weights = f"y = {name}<keepdims = 0>(x, ax)", {"ax": np.array([1])}
    m = model(body, f"(float[2,3] x) => (float[{rows}] y)", **weights)
    x = X.copy()
    x[0, 1] = np.nan
    J = oj.linearize(m, {"x": x}, engine=engine)
    entry = J.toarray().reshape(2, -1, 2, 3)[0, -1 if options else 1, 0, 1]
    assert np.isnan(entry) == bool(SOFT[name])
    assert np.isfinite(J.tosparse().toarray().reshape(2, -1, 2, 3)[1]).all()


def test_a_row_that_is_masked_out_is_no_nan():
    """softmax(-∞, -∞) is NaN, yet J is 0; where x is NaN, J is NaN."""
    m = model("y = Softmax(x)", "(float[3,2] x) => (float[3,2] y)")
    x = np.array([[-np.inf, -np.inf], [np.nan, 0], [0, 0]], np.float32)
    blocks = oj.linearize(m, {"x": x}).tosparse().toarray()
    assert not blocks[:2].any()
    assert np.isnan(blocks[2:4, 2:4]).all()
    np.testing.assert_allclose(blocks[4:, 4:], [[0.25, -0.25], [-0.25, 0.25]])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_warning_names_what_was_given(engine):
    with pytest.warns(oj.OnnxJacWarning, match="not finite at this point: 'x' was given so"):
        linearized(np.nan, engine)


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_subnormal_numbers_are_neither_flushed_nor_refused(engine):
    """Subnormal numbers are neither flushed to zero nor refused: y = 2 x."""
    tiny = np.float32(1e-42)
    J = oj.linearize(model("y = Add(x, x)", "(float[3] x) => (float[3] y)"), {"x": X[0] * tiny})
    J = J if engine is None else J.compile(engine)
    np.testing.assert_array_equal(J @ (np.ones(3, np.float32) * tiny), 2 * tiny)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("body", ["y = Relu(x)", "y = Clip(x, low)", "y = Max(x, low)"])
def test_engines_choose_the_same_slope_at_a_kink(body, engine):
    """Both engines choose the slopes of docs/results/conventions.md, at 0 and at -0."""
    m = model(body, "(float[2] x) => (float[2] y)", low=np.float32(0))
    J = oj.linearize(m, {"x": np.array([0.0, -0.0], np.float32)}, engine=engine)
    slope = {"Relu": 0, "Clip": 1, "Max": 0.5}[body[4:].partition("(")[0]]
    for K in (J, J.compile("numpy"), J.compile("onnxruntime")):
        np.testing.assert_array_equal(K @ np.ones(2, np.float32), [slope, slope])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_overflow_in_half_precision(kind):
    """At 300, x² overflows float16 but its slope 600 does not; at 65504, both overflow."""
    m = model("y = Mul(x, x)", f"({kind}[2] x) => ({kind}[2] y)")
    dtype = m.inputs["x"].dtype
    J = oj.linearize(m, {"x": np.array([300, 65504], dtype)}, engine="numpy")
    found = (J @ np.ones(2, dtype)).astype(float)
    assert found[0] == 600
    assert found[1] == (np.inf if kind == "float16" else float(np.array(131072, dtype)))


@pytest.mark.parametrize("n", [1, 2])
def test_products_in_halves_do_not_overflow_on_the_way(n):
    """(200 · 400 x) / 400 in float16: J v is 200 v, though 200 · 400 v overflows."""
    m = model("a = Mul(x, b) c = Mul(a, d) y = Div(c, d)", f"(float16[{n}] x) => (float16[{n}] y)",
              b=np.full(n, 200, np.float16), d=np.full(n, 400, np.float16))  # fmt: skip
    J = oj.linearize(m, {"x": np.zeros(n, np.float16)})
    for K in (J, J.compile("numpy"), J.compile("onnxruntime")):
        np.testing.assert_array_equal(K @ np.ones(n, np.float16), [200] * n)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("engine", ["numpy", None])
def test_a_hessian_through_a_softmax_keeps_the_nan_of_its_row(op, engine):
    m = model(f"y = {op}(x) s = ReduceSum<keepdims = 0>(y)", "(double[2,3] x) => (double s)")
    x = np.array([[1, np.nan, 2], [0.5, 0.3, 0.2]])
    H = oj.hessian(m, {"x": x}, of="s", engine=engine)
    for K in (H, H.compile()):
        product = K @ np.arange(6.0)
        assert np.isnan(product[:3]).all()
        assert np.isfinite(product[3:]).all()


SAME = "(float[N,3] x) => (float[N,3] y)"


@pytest.mark.parametrize("engine", ["numpy", None])
def test_a_point_that_is_not_finite_is_one_warning(engine):
    m = model("s = Sub(x, x) l = Log(s) e = Exp(x) y = Add(l, e)", SAME)
    with pytest.warns(oj.OnnxJacWarning) as caught:
        oj.linearize(m, {"x": X}, engine=engine)
    (warning,) = caught
    text = str(warning.message)
    assert "'y' is not finite at this point" in text
    assert "Log (node 'Log_1'" in text
    assert "s in [0, 0]" in text
    assert warning.filename == __file__


def test_an_input_that_is_not_finite():
    with pytest.warns(oj.OnnxJacWarning, match="'x' was given so") as caught:
        oj.linearize(model("y = Neg(x)", SAME), {"x": X * np.nan})
    assert len(caught) == 1


def test_infinities_that_do_not_arrive_are_no_matter():
    m = model("z = Sub(x, x) i = Reciprocal(z) y = Atan(i)", SAME)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oj.linearize(m, {"x": X})
