"""The Hessians of losses: closed forms where the structure allows, for any kind of node."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, softmax

import onnxjac as oj
from onnxjac.modes import gradient as gradient_module
from onnxjac.modes.curvature.gauss_newton import closed_form, gauss_newton
from onnxjac.modes.gradient import Gradient

from .models import parsed

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((4, 3))
Y = RNG.random((4, 3))
LABELS = np.array([2, 0, 1, 1])
WEIGHTS = np.array([0.5, 1.0, 2.0])


def diagonal(entries):
    return np.diag(entries.ravel())


def by_row(weights, axis=-1):
    """Σ over rows of w (diag(p) − p pᵀ), dense."""
    p, eye = softmax(Z, axis=axis), np.eye(Z.size).reshape(Z.shape * 2)
    inside = np.expand_dims(weights * p, (2, 3)) * eye
    row = np.moveaxis(p, axis, -1)
    n = len(row)
    w = np.broadcast_to(weights, Z.shape)
    w = np.moveaxis(w, axis, -1)[:, 0]
    cross = np.einsum("n,ni,nj,nm->nimj", w, row, row, np.eye(n))
    if axis == 0:
        cross = cross.transpose(1, 0, 3, 2)
    return (inside - cross).reshape(Z.size, Z.size)


SIGMA = diagonal(expit(Z) * (1 - expit(Z)))
SHARES = WEIGHTS[LABELS][:, None]

CASES = {
    "cross-entropy, mean": (
        "int64[4] y", "loss = SoftmaxCrossEntropyLoss(z, y)", LABELS, by_row(np.full((4, 1), 0.25)),
    ),
    "cross-entropy, weighted, an ignored label": (
        "int64[4] y", """w = Constant<value = double[3] {0.5, 1.0, 2.0}>()
        loss = SoftmaxCrossEntropyLoss<ignore_index = 0, reduction = "mean">(z, y, w)""", LABELS,
        by_row(SHARES * (LABELS != 0)[:, None] / (SHARES[LABELS != 0].sum())),
    ),
    "log softmax, negative log likelihood": (
        "int64[4] y", """p = LogSoftmax<axis = 1>(z)
        loss = NegativeLogLikelihoodLoss<reduction = "sum">(p, y)""", LABELS,
        by_row(np.ones((4, 1))),
    ),
    "softmax, log, soft labels, over columns": (
        "double[4, 3] y", """p = Softmax<axis = 0>(z) l = Log(p) w = Mul(l, y) s = Neg(w)
        loss = ReduceSum<keepdims = 0>(s)""", Y, by_row(Y.sum(axis=0, keepdims=True), axis=0),
    ),
    "binary cross-entropy of probabilities": (
        "double[4, 3] y", """p = Sigmoid(z) one = Constant<value = double {1}>() q = Sub(one, p)
        lp = Log(p) lq = Log(q) no = Sub(one, y) a = Mul(y, lp) b = Mul(no, lq) c = Add(a, b)
        m = ReduceMean<keepdims = 0>(c) loss = Neg(m)""", Y, SIGMA / 12,
    ),
    "binary cross-entropy of logits, by softplus": (
        "double[4, 3] y", """s = Softplus(z) t = Mul(z, y) d = Sub(s, t)
        loss = ReduceSum<keepdims = 0>(d)""", Y, SIGMA,
    ),
    "binary cross-entropy of logits, in its stable form": (
        "double[4, 3] y", """one = Constant<value = double {1}>() r = Relu(z) t = Mul(z, y)
        a = Abs(z) n = Neg(a) e = Exp(n) u = Add(e, one) l = Log(u) d = Sub(r, t) f = Add(d, l)
        loss = ReduceSum<keepdims = 0>(f)""", Y, SIGMA,
    ),
    "squared error": (
        "double[4, 3] y", "d = Sub(z, y) s = Mul(d, d) loss = ReduceMean<keepdims = 0>(s)", Y,
        np.eye(12) / 6,
    ),
    "squares of linear and piecewise linear functions": (
        "double[4, 3] y", """l = Trilu<upper = 0>(z) s = Mul(l, l) p = ReduceSum<keepdims = 0>(s)
        one = Constant<value_ints = [1]>() m = ReduceMax(z, one) t = Mul(m, m)
        q = ReduceSum<keepdims = 0>(t) loss = Add(p, q)""", Y,
        diagonal(2 * np.tril(np.ones((4, 3))) + 2 * (Z.max(axis=1, keepdims=True) == Z)),
    ),
    "squared error, as a power of something affine": (
        "double[4, 3] y", """two = Constant<value = double {2}>() d = Sub(y, z) e = Mul(d, two)
        s = Pow(e, two) loss = ReduceSum<keepdims = 0>(s)""", Y, 8 * np.eye(12),
    ),
    "two terms": (
        "double[4, 3] y", """s = Softplus(z) q = Mul(z, z) t = Add(s, q) u = Mul(t, y)
        loss = ReduceSum<keepdims = 0>(u)""", Y, diagonal(Y) @ (SIGMA + 2 * np.eye(12)),
    ),
}  # fmt: skip

OTHERS = {
    "a fourth power": "two = Constant<value = double {2}>() s = Pow(z, two) l = Mul(s, s)",
    "an exponential": "l = Exp(z)",
    "a ratio": "two = Constant<value = double {2}>() d = Add(z, two) l = Div(z, d)",
    "a product with what is curved": "s = Softplus(z) l = Mul(s, z)",
    "a probability": "l = Sigmoid(z)",
    "a log-probability and more of it": "p = LogSoftmax(z) l = Mul(p, p)",
    "Log of another complement": """two = Constant<value = double {2}>() p = Sigmoid(z)
        q = Sub(two, p) l = Log(q)""",
}


def model_of(target, body):
    return parsed(f"g (double[4, 3] z, {target}) => (double loss) {{ {body} }}")


def no_graph(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the graph of a gradient was recorded")

    monkeypatch.setattr(gradient_module, "vjp_graph", refuse)


@pytest.mark.parametrize("case", CASES)
def test_closed_form_without_a_gradient_graph(case, monkeypatch):
    target, body, y, expected = CASES[case]
    model, point = model_of(target, body), {"z": Z, "y": y}
    no_graph(monkeypatch)
    G = gauss_newton(model, point, of="loss", at="z", wrt="z")
    assert_allclose(G.toarray(), expected, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_closed_form_equals_the_closure(case):
    target, body, y, _ = CASES[case]
    model, point = model_of(target, body), {"z": Z, "y": y}
    H = oj.hessian(model, point, of="loss", wrt="z")
    found = closed_form(Gradient(model, ("loss",), ("z",)), point).at(point)
    assert_allclose(found.toarray(), H.toarray(), atol=1e-12)


@pytest.mark.parametrize("case", OTHERS)
def test_another_loss_takes_the_closure(case):
    """A loss that merely resembles a known form is not mistaken for it."""
    body = f"{OTHERS[case]} loss = ReduceSum<keepdims = 0>(l)"
    model, point = model_of("double[4, 3] y", body), {"z": Z, "y": Y}
    assert closed_form(Gradient(model, ("loss",), ("z",)), point) is None
    G = gauss_newton(model, point, of="loss", at="z", wrt="z")
    H = oj.hessian(model, point, of="loss", wrt="z")
    assert_allclose(G.toarray(), H.toarray(), atol=1e-12)


def test_the_closure_records_a_gradient(monkeypatch):
    """The guard of the other tests does detect a recording."""
    model = model_of("double[4, 3] y", "e = Exp(z) loss = ReduceSum<keepdims = 0>(e)")
    no_graph(monkeypatch)
    with pytest.raises(AssertionError, match="recorded"):
        gauss_newton(model, {"z": Z, "y": Y}, of="loss", at="z", wrt="z")


def test_a_cross_entropy_by_its_weights_takes_the_closure():
    model = parsed("""g (double[4, 3] z, int64[4] y, double[3] w) => (double loss)
    { loss = SoftmaxCrossEntropyLoss(z, y, w) }""")
    point = {"z": Z, "y": LABELS, "w": WEIGHTS}
    G = gauss_newton(model, point, of="loss", at="w", wrt="w")
    H = oj.hessian(model, point, of="loss", wrt="w")
    assert_allclose(G.toarray(), H.toarray(), atol=1e-12)


def test_a_drawn_mask_has_no_closed_form():
    """Each linearisation would draw another mask."""
    model = model_of("double[4, 3] y", """r = Constant<value = double {0.5}>()
        t = Constant<value = bool {1}>() d = Dropout(z, r, t) s = Mul(d, d)
        loss = ReduceSum<keepdims = 0>(s)""")
    assert closed_form(Gradient(model, ("loss",), ("z",)), {"z": Z, "y": Y}) is None


def test_weights_combine_losses():
    model = parsed("""g (double[4, 3] z, int64[4] y) => (double[4] loss)
    { loss = SoftmaxCrossEntropyLoss<reduction = "none">(z, y) }""")
    weights = RNG.random(4)
    G = gauss_newton(model, {"z": Z, "y": LABELS}, of="loss", at="z", wrt="z", weights=weights)
    assert_allclose(G.toarray(), by_row(weights[:, None]), atol=1e-12)


@pytest.mark.parametrize("taken", ["sum", "mean"])
@pytest.mark.parametrize("wanted", ["sum", "mean"])
def test_reduction_is_over_samples(taken, wanted):
    body = f'loss = SoftmaxCrossEntropyLoss<reduction = "{taken}">(z, y)'
    model, point = model_of("int64[4] y", body), {"z": Z, "y": LABELS}
    G = gauss_newton(model, point, of="loss", at="z", wrt="z", reduction=wanted)
    scale = {"sum": 1.0, "mean": 0.25}[wanted]
    assert_allclose(G.toarray(), by_row(np.full((4, 1), scale)), atol=1e-12)


def test_a_reduction_that_the_model_does_not_show_is_refused():
    body = "s = Softplus(z) t = ReduceSum<keepdims = 0>(s) loss = Mul(t, t)"
    with pytest.raises(oj.InputError, match="sum or a mean"):
        gauss_newton(model_of("double[4, 3] y", body), {"z": Z, "y": Y}, of="loss", at="z",
                     wrt="z", reduction="sum")  # fmt: skip
