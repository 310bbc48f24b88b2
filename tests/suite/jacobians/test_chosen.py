"""Entries that an operator does not select have no part in J: 0 · ∞ is never computed."""

import numpy as np
import onnx
import pytest

import onnxjac as oj

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

MASK = np.array([[True, True, False], [True, False, True]])
ROWS = np.array([[True], [False]])
X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
EDGE = np.array([[0.0, 1.0, 4.0], [-1.0, 0.25, 9.0]])

WHERE = "c = Greater(x, zero)"
HIDDEN = "inf = Log(zero) w = Where(m, x, inf)"

CASES = {
    "sqrt": (f"{WHERE} s = Sqrt(x) y = Where(c, s, zero)", EDGE,
             lambda x: np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 0)),
    "reciprocal": (f"{WHERE} s = Div(one, x) y = Where(c, s, x)", EDGE,
                   lambda x: np.where(x > 0, -1 / np.where(x > 0, x, 1) ** 2, 1)),
    "p log p": (f"{WHERE} l = Log(x) p = Mul(x, l) y = Where(c, p, zero)", EDGE,
                lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1)) + 1, 0)),
    "moved": (f"{WHERE} s = Sqrt(x) t = Transpose(s) d = Transpose(c) u = Where(d, t, zero) "
              "y = Transpose(u)", EDGE,
              lambda x: np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 0)),
    "used twice": (f"{WHERE} s = Sqrt(x) t = Mul(s, s) u = Where(c, s, zero) "
                   "v = Where(c, t, zero) y = Add(u, v)", EDGE,
                   lambda x: np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)) + 1, 0)),
    "one choice after another": (f"{WHERE} s = Sqrt(x) u = Where(m, s, zero) "
                                 "y = Where(c, u, zero)", EDGE,
                                 lambda x: np.where(MASK & (x > 0), 0.5 / np.sqrt(
                                     np.where(x > 0, x, 1)), 0)),
    "max": ("l = Log(x) y = Max(l, one)", np.array([[0.0, 1, 9], [0.5, 3, 20]]),
            lambda x: np.where(x > np.e, 1 / np.maximum(x, 1), 0)),
    "clip": ("l = Log(x) y = Clip(l, zero, one)", np.array([[0.0, 2, 9], [0.5, 2.5, 20]]),
             lambda x: np.where((x > 1) & (x < np.e), 1 / np.maximum(x, 1), 0)),
    "trilu": ("s = Sqrt(x) y = Trilu(s)", np.array([[4.0, 1, 9], [0.0, 4, 16]]),
              lambda x: np.triu(0.5 / np.sqrt(np.where(x, x, 1)))),
    "behind": (f"{HIDDEN} y = Mul(w, w)", X, lambda x: np.where(MASK, 2 * x, 0)),
    "exp behind": (f"{HIDDEN} n = Sub(zero, w) e = Exp(n) y = Where(m, e, zero)", X,
                   lambda x: np.where(MASK, -np.exp(-x), 0)),
}  # fmt: skip
"""name -> (body, x, elementwise dy/dx)."""


def loaded(body, out="double[2,3] y"):
    text = (f"{HEAD} f (double[2,3] x, bool[2,3] m, bool[2,1] r) => ({out}) "
            f"<double zero = {{0}}, double one = {{1}}> {{ {body} }}")  # fmt: skip
    return oj.load(onnx.parser.parse_model(text))


def point(x):
    return {"x": x, "m": MASK, "r": ROWS}


def ways(J):
    """The matrix of J, computed in every way."""
    unit = np.eye(6)
    yield from (J @ unit, (J.T @ unit).T, J.toarray(), J.T.toarray().T, J.tosparse().toarray())
    for K in (J.plan(products=5000), J.compile("numpy"), J.compile("onnxruntime")):
        yield from (K @ unit, (K.T @ unit).T)


@pytest.mark.parametrize("name", CASES)
def test_unchosen_entries_have_zero_columns(name):
    body, x, slope = CASES[name]
    J = oj.linearize(loaded(body), point(x), wrt=["x"])
    elsewhere = oj.linearize(loaded(body), point(np.full((2, 3), 1.25)), wrt=["x"])
    elsewhere.tosparse()
    for k in range(3):
        elsewhere = elsewhere.relinearize(point(np.full((2, 3), 1.25 + k / 8)))
        elsewhere.tosparse()
    for K in (J, elsewhere.relinearize(point(x))):
        for matrix in ways(K):
            np.testing.assert_allclose(matrix, np.diag(slope(x).ravel()), rtol=1e-12)


@pytest.mark.parametrize("kind", ["jvp", "vjp", "jacobian"])
@pytest.mark.parametrize("name", CASES)
def test_exported_derivatives_choose(name, kind):
    body, x, slope = CASES[name]
    recorded = oj.export(loaded(body), kind, point(np.full((2, 3), 1.25)), wrt=["x"])
    f = oj.load(recorded)
    seed = {"jvp": "x_tangent", "vjp": "y_cotangent"}.get(kind)
    v = np.arange(1.0, 7).reshape(2, 3)
    given = {n: a for n, a in {**point(x), **({seed: v} if seed else {})}.items() if n in f.inputs}
    found = list(f.run(given).values())[-1]
    wanted = np.diag(slope(x).ravel()).reshape(2, 3, 2, 3) if seed is None else slope(x) * v
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_j_keeps_what_somebody_else_sees():
    """The derivative of √x at 0 is infinite in J["s"], even if y does not select it."""
    m = loaded(f"{WHERE} s = Sqrt(x) y = Where(c, s, zero)")
    J = oj.linearize(m, point(EDGE), of=["y", "s"], wrt=["x"])
    assert np.isinf(J["s", "x"].tosparse().toarray()[0, 0])
    np.testing.assert_allclose(J["y", "x"] @ np.ones(6), CASES["sqrt"][2](EDGE).ravel())
    np.testing.assert_allclose(J.T["x", "y"] @ np.ones(6), CASES["sqrt"][2](EDGE).ravel())


@pytest.mark.parametrize("body", ["s = Sqrt(x) y = Mul(s, s)", "l = Log(x) y = Exp(l)"])
def test_an_exact_zero_of_arithmetic_chooses_nothing(body):
    """The derivative of (√x)² at 0 is 1, but 0 · ∞ is undefined: the result is NaN, not 0."""
    J = oj.linearize(loaded(body), point(EDGE.clip(0)), wrt=["x"])
    assert np.isnan(J @ np.ones(6))[0]
    assert np.isnan(J.T @ np.ones(6))[0]


def test_a_singular_derivative_that_is_chosen_is_infinite():
    J = oj.linearize(loaded(f"{WHERE} s = Sqrt(x) y = Where(c, x, s)"), point(EDGE), wrt=["x"])
    assert np.isposinf((J @ np.ones(6))[0])
    assert np.isposinf((J.T @ np.ones(6))[0])


SCALARS = {
    "square": f"{HIDDEN} t = Mul(w, w) q = Where(m, t, zero) y = ReduceSum<keepdims=0>(q)",
    "softmax": f"{HIDDEN} s = Softmax(w) t = Mul(s, s) y = ReduceSum<keepdims=0>(t)",
    "log softmax": f"{HIDDEN} s = LogSoftmax(w) q = Where(m, s, zero) t = Mul(q, q) "
                   "y = ReduceSum<keepdims=0>(t)",
    "entropy": f"{HIDDEN} s = LogSoftmax(w) e = Exp(s) p = Mul(e, s) q = Where(m, p, zero) "
               "y = ReduceSum<keepdims=0>(q)",
    "rows": "inf = Log(zero) w = Where(r, x, inf) s = LogSoftmax(w) q = Where(r, s, zero) "
            "t = Mul(q, q) y = ReduceSum<keepdims=0>(t)",
    "sqrt": f"{WHERE} s = Sqrt(x) t = Where(c, s, zero) y = ReduceSum<keepdims=0>(t)",
    "p log p": f"{WHERE} l = Log(x) p = Mul(x, l) t = Where(c, p, zero) "
               "y = ReduceSum<keepdims=0>(t)",
}  # fmt: skip


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_and_hessians_choose(name):
    """Against central differences of the gradient, and of the function."""
    x = EDGE if name in ("sqrt", "p log p") else X
    m = loaded(SCALARS[name], "double y")
    H = oj.hessian(m, point(x), wrt=["x"])
    moves = MASK if name in ("square", "softmax", "log softmax", "entropy") else x != 0
    step = 1e-6
    wanted, slope = np.zeros((6, 6)), np.zeros(6)
    for k in np.flatnonzero(moves):
        ends = [x.copy(), x.copy()]
        ends[0].flat[k] += step
        ends[1].flat[k] -= step
        up, down = (oj.hessian(m, point(e), wrt=["x"]).gradient["x"] for e in ends)
        wanted[:, k] = (up - down).ravel() / (2 * step)
        slope[k] = np.diff([m.run(point(e))["y"] for e in ends[::-1]])[0] / (2 * step)
    np.testing.assert_allclose(H.gradient["x"].ravel(), slope, atol=1e-7)
    np.testing.assert_allclose(H.toarray(), wanted, rtol=1e-4, atol=1e-7)


def test_a_chain_of_choices_may_be_longer_than_the_stack():
    chain = "".join(f" h{k + 1} = Where(m, h{k}, zero)" for k in range(1200))
    body = f"h0 = Sqrt(x){chain} y = Neg(h1200)"
    J = oj.linearize(loaded(body), point(np.where(MASK, 4.0, 0.0)), wrt="x")
    assert np.array_equal(J @ np.ones(6), np.where(MASK, -0.25, 0).ravel())
