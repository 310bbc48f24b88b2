"""Conditions: where a recording holds, checked at a point, shown by `explain`, and in exports."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians.conditions import Condition

X = np.array([0.5, -1.0, 2.0])

BRANCH = """g (double[3] x, bool flag) => (double[3] y) {
    y = If(flag) <
      then_branch = a () => (double[3] p) { p = Sin(x) },
      else_branch = b () => (double[3] q) { q = Cos(x) }> }"""

LARGEST = """g (double[3] x) => (double y) { y = ReduceMax<keepdims = 0>(x) }"""


def load(text):
    return oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        (Condition("numbers", "k", here=np.array([2, 3])), np.array([2, 3]), np.array([2, 4])),
        (Condition("numbers", "k", here=np.array([2, 3])), np.array([2, 3]), np.array([2])),
        (Condition("shape", "k", here=(2, 0)), np.ones((2, 0)), np.ones((2, 1))),
        (Condition("entries", "k", here=(2, True)), np.array([2, 2]), np.array([2, 3])),
        (Condition("entries", "k", here=(2, False)), np.array([2, 3]), np.array([2, 2])),
        (Condition("none", "k"), np.float32(0), np.float32("nan")),
        (Condition("relation", "k >= 2·n"), 6, 5),
    ],
    ids=lambda x: x.kind if isinstance(x, Condition) else "",
)
def test_a_condition_holds_where_nothing_that_decided_has_changed(condition, right, wrong):
    assert condition.holds({"k": right, "n": 3}) is True
    assert condition.holds({"k": wrong, "n": 3}) is False


def test_a_relation_of_unknown_numbers_is_open():
    assert Condition("relation", "m < 2").holds({"n": 3}) is None


@pytest.mark.parametrize("points", [2, 8])
def test_a_branch_is_a_condition_that_every_point_checks(points, inside):
    model = load(BRANCH)
    J = oj.linearize(model, {"x": X, "flag": np.array(True)})
    for k in range(points):
        J = J.relinearize({"x": X + k, "flag": np.array(True)})
        assert_allclose(J.diagonal(), np.cos(X + k))
    ((route,),) = inside.unrolled(J).values()
    (decided,) = route.conditions
    assert (decided.kind, decided.name, bool(decided.here)) == ("numbers", "flag", True)
    K = J.relinearize({"x": X, "flag": np.array(False)})
    assert_allclose(K.diagonal(), -np.sin(X))


def test_explain_says_where_a_recording_holds():
    J = oj.linearize(load(BRANCH), {"x": X, "flag": np.array(True)})
    (line,) = J.explain().conditions
    assert line.startswith("'flag' has the numbers that it has here: If")
    assert f"recorded for points where {line}" in str(J.explain())
    K = oj.linearize(load(LARGEST), {"x": X})
    assert K.explain().conditions == ()  # every rule was read here
    K = K.relinearize({"x": X + 1}).relinearize({"x": X + 2})
    assert K.explain().conditions == ("there are no infinities where entries are left out",)


def test_explain_says_where_a_closed_form_holds():
    """A power is a square where its exponent, an input, is 2."""
    model = load("""g (double[3] x, double[3] w, double p) => (double l, double[3] z) {
        z = Mul(x, w) c = Pow(z, p) l = ReduceSum<keepdims = 0>(c) }""")
    point = {"x": X, "w": np.ones(3), "p": np.array(2.0)}
    G = oj.gauss_newton(model, point, of="l", at="z", wrt="w")
    assert G.explain().conditions == ("it is True that all entries of 'p' are 2",)
    assert "recorded for points where it is True that all entries of 'p' are 2" in str(G.explain())
    K = G.relinearize({**point, "p": np.array(3.0)})
    assert_allclose(G.diagonal(), 2 * X**2)
    assert_allclose(K.diagonal(), 6 * X * X**2)


def test_control_flow_that_is_not_kept_is_a_condition_with_its_reason():
    model = load("""g (double[3] x) => (double[N] y) <int64 n = {3}> {
        y = Loop(n, , x) <body = b (int64 i, bool c, double[K] s) => (bool d, double[L] r) {
            d = Identity(c) r = Concat<axis = 0>(s, s) }> }""")
    with pytest.warns(oj.OnnxJacWarning, match="the control flow that computes 'y' is unrolled"):
        oj.export(model, "vjp", {"x": X})
    (condition,) = model.cache["unkept"].values()
    assert (condition.kind, condition.name) == ("unrolled", "y")
    assert condition.reader


def read_while_traced(text, point, traced, **options):
    """J of an XLA program moves inside jit, where one input is an argument."""
    jax = pytest.importorskip("jax")
    model = load(text)
    J = oj.linearize(model, point, wrt="x", engine="jax", **options).relinearize(point)
    u = jax.numpy.ones(J.shape[0])
    with jax.enable_x64(True):
        return J, jax.jit(lambda x: J.relinearize({**point, traced: x}).T @ u)


@pytest.mark.peers
def test_a_traced_function_needs_no_numbers_where_a_rule_looks_for_nan():
    """A row of -∞ has no softmax: its NaN are no slopes."""
    text = "g (double[2,3] x) => (double[2,3] y) { y = Softmax(x) }"
    _, product = read_while_traced(text, {"x": np.ones((2, 3))}, "x")
    for first, expected in ((-np.inf, 0), (np.nan, np.nan)):
        there = np.array([[1.0, 2.0, 4.0], [first, -np.inf, -np.inf]])
        assert_allclose(product(there), [0, 0, 0, *3 * [expected]], atol=1e-15)


@pytest.mark.peers
@pytest.mark.filterwarnings("error::UserWarning")  # of JAX, about types of 64 bits
def test_a_traced_function_gives_nan_where_an_infinite_slope_is_left_out():
    """In place of the number: 0 · ∞, never another number."""
    text = """g (double[2] x) => (double[1] y) <int64[1] s = {0}, int64[1] t = {1}> {
        a = Sqrt(x) y = Slice(a, s, t) }"""
    J, product = read_while_traced(text, {"x": np.ones(2)}, "x")
    assert J.explain().conditions == ("there are no infinities where entries are left out",)
    there = np.array([4.0, 0.0])
    assert_allclose(J.relinearize({"x": there}).T @ np.ones(1), [0.25, 0])
    assert_allclose(product(there), [0.25, np.nan])


@pytest.mark.peers
def test_an_error_says_what_to_do_about_numbers_that_are_traced():
    """About a branch, and about the exponent that makes a power a square."""
    jax = pytest.importorskip("jax")
    _, product = read_while_traced(BRANCH, {"x": X, "flag": np.array(True)}, "flag")
    with pytest.raises(oj.InputError, match=r"'flag' has the numbers.*take oj.to_jax\(model\)"):
        product(np.array(True))
    model = load("""g (double[3] x, double[3] w, double p) => (double l, double[3] z) {
        z = Mul(x, w) c = Pow(z, p) l = ReduceSum<keepdims = 0>(c) }""")
    point = {"x": X, "w": np.ones(3), "p": np.array(2.0)}
    G = oj.gauss_newton(model, point, of="l", at="z", wrt="w", engine="jax")
    v = jax.numpy.ones(3)
    with jax.enable_x64(True):
        product = jax.jit(lambda name, x: G.relinearize({**point, name: x}) @ v, static_argnums=0)
        assert_allclose(product("x", X + 1), 2 * (X + 1) ** 2)
        with pytest.raises(oj.InputError, match=r"entries of 'p' are 2.*or make it a constant"):
            product("p", point["p"])
