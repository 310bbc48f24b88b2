"""Means and sums: every loss with class weights, ignored labels, label smoothing and masks, by each
reduction, in one batch and in uneven batches.

The judge knows S and D of a loss S / D in NumPy, and takes differences of its values. The logits
are linear in the weights, so that the Gauss-Newton matrix is the Hessian.
"""

import re
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, log_softmax

import onnxjac as oj
from onnxjac.modes.curvature.reductions import Tail

from .models import parsed

RNG = np.random.default_rng(3)
N, C, CUTS = 11, 3, (0, 5, 6, 11)
W = RNG.standard_normal((4, C))
DATA = {
    "x": RNG.standard_normal((N, 4)), "y": np.array([0, 1, 2, 2, 0, 2, 1, 1, 0, 2, 1]),
    "t": RNG.random((N, C)), "m": np.array([1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1.0]),
    "u": RNG.random((N, C)),
}  # fmt: skip
SHARE = np.array([0.5, 1.0, 3.0])
GIVEN = "w = Constant<value = double[3] {0.5, 1.0, 3.0}>()"


ALIKE = np.ones(C)


def cross_entropy(d, z, weights=ALIKE, ignored=-100, smoothing=0.0):
    """The parts of S by sample, and D, as PyTorch defines them."""
    kept, log_p = d["y"] != ignored, log_softmax(z, axis=1)
    own = weights[d["y"]] * kept
    spread = (weights * log_p).sum(1) * kept
    hard = own * log_p[np.arange(len(z)), d["y"]]
    return -(1 - smoothing) * hard - smoothing / C * spread, own.sum()


def entries(parts):
    """A mean over all entries."""
    return parts.sum(1), parts.size


def huber(e):
    return np.where(abs(e) < 0.7, 0.5 * e * e, 0.7 * (abs(e) - 0.35))


def bernoulli(z, t):
    return np.logaddexp(0, z) - t * z


SMOOTH = """a = Constant<value = double {0.9}>() b = Constant<value = double {0.1}>()
    l = SoftmaxCrossEntropyLoss<reduction = "REDUCTION"HOW>(z, yMORE) h = Mul(l, a)
    p = LogSoftmax(z) """
HUBER = """e = Sub(z, t) a = Abs(e) k = Constant<value = double {0.7}>() s = Less(a, k)
    f = Mul(e, e) o = Constant<value = double {0.5}>() f1 = Mul(f, o)
    g = Constant<value = double {0.35}>() g1 = Sub(a, g) g2 = Mul(g1, k) l = Where(s, f1, g2) """
MASKED = "q = Mul(l, m) s = ReduceSum<keepdims = 0>(q) d = ReduceSum<keepdims = 0>(m) "
END = "loss = ReduceREDUCED<keepdims = 0>(l)"
ONE = "i = Constant<value = int64[1] {1}>() "
ZERO = "i = Constant<value = int64[1] {0}>() "

LOSSES = {
    "cross-entropy": (
        'loss = SoftmaxCrossEntropyLoss<reduction = "REDUCTION">(z, y)', cross_entropy),
    "cross-entropy, class weights": (
        f'{GIVEN} loss = SoftmaxCrossEntropyLoss<reduction = "REDUCTION">(z, y, w)',
        lambda d, z: cross_entropy(d, z, SHARE)),
    "cross-entropy, class weights, an ignored label": (
        f"""{GIVEN} loss = SoftmaxCrossEntropyLoss<reduction = "REDUCTION",
        ignore_index = 1>(z, y, w)""",
        lambda d, z: cross_entropy(d, z, SHARE, 1)),
    "likelihood, an ignored label": (
        """p = LogSoftmax(z) l = NegativeLogLikelihoodLoss<reduction = "REDUCTION",
        ignore_index = 1>(p, y) k = Constant<value = double {2}>() loss = Mul(l, k)""",
        lambda d, z: (2 * cross_entropy(d, z, ignored=1)[0], cross_entropy(d, z, ignored=1)[1])),
    "cross-entropy, label smoothing": (
        f"""{SMOOTH.replace('HOW', '').replace('MORE', '')} {ONE}
        r = ReduceMean<keepdims = 0>(p, i) r1 = ReduceREDUCED<keepdims = 0>(r) n = Mul(r1, b)
        loss = Sub(h, n)""", lambda d, z: cross_entropy(d, z, smoothing=0.1)),
    "cross-entropy, label smoothing, class weights": (
        f"""{GIVEN} {SMOOTH.replace('HOW', '').replace('MORE', ', w')} own = Gather(w, y)
        v = Mul(p, w) s = ReduceSum<keepdims = 0>(v) c = Constant<value = double {{3}}>()
        s1 = Div(s, c) s2 = Mul(s1, b) DIVIDED loss = Sub(h, n)""",
        lambda d, z: cross_entropy(d, z, SHARE, smoothing=0.1)),
    "soft labels": (
        f"""p = LogSoftmax(z) f = Mul(p, t) {ONE} f1 = ReduceSum<keepdims = 0>(f, i) l = Neg(f1)
        {END}""",
        lambda d, z: (-(d["t"] * log_softmax(z, axis=1)).sum(1), len(z))),
    "squares": (
        f"e = Sub(z, t) l = Mul(e, e) {END}", lambda d, z: entries((z - d["t"]) ** 2)),
    "squares, by sample": (
        f"""e = Sub(z, t) f = Mul(e, e) {ONE} l = ReduceMean<keepdims = 0>(f, i) {END}""",
        lambda d, z: (((z - d["t"]) ** 2).mean(1), len(z))),
    "squares, by output": (
        f"""e = Sub(z, t) f = Mul(e, e) {ZERO} g = ReduceREDUCED<keepdims = 1>(f, i)
        loss = ReduceSum<keepdims = 0>(g)""", lambda d, z: (((z - d["t"]) ** 2).sum(1), len(z))),
    "huber": (HUBER + END, lambda d, z: entries(huber(z - d["t"]))),
    "binary, of probabilities, weights by entry": (
        f"""p = Sigmoid(z) o = Constant<value = double {{1}}>() q = Sub(o, p) a = Log(p) b = Log(q)
        f = Mul(t, a) g = Sub(o, t) h = Mul(g, b) k = Add(f, h) k1 = Neg(k) l = Mul(k1, u) {END}""",
        lambda d, z: entries(d["u"] * bernoulli(z, d["t"]))),
    "binary, of logits, positive weights": (
        f"""{GIVEN} a = Softplus(z) n = Neg(z) b = Softplus(n) o = Constant<value = double {{1}}>()
        g = Sub(o, t) h = Mul(g, a) f = Mul(t, b) k = Mul(f, w) l = Add(h, k) {END}""",
        lambda d, z: entries(
            -SHARE * d["t"] * np.log(expit(z)) - (1 - d["t"]) * np.log(expit(-z)))),
    "divergence": (
        f"p = LogSoftmax(z) a = Log(t) e = Sub(a, p) l = Mul(t, e) {END}",
        lambda d, z: entries(d["t"] * (np.log(d["t"]) - log_softmax(z, axis=1)))),
    "counts": (
        f"a = Exp(z) b = Mul(z, t) l = Sub(a, b) {END}",
        lambda d, z: entries(np.exp(z) - d["t"] * z)),
}  # fmt: skip

DIVIDED = {
    "cross-entropy, masked": (
        f'l = SoftmaxCrossEntropyLoss<reduction = "none">(z, y) {MASKED} loss = Div(s, d)',
        lambda d, z: (d["m"] * cross_entropy(d, z)[0], d["m"].sum())),
    "mean of the masked ÷ mean of the mask": (
        """l = SoftmaxCrossEntropyLoss<reduction = "none">(z, y) q = Mul(l, m)
        s = ReduceMean<keepdims = 0>(q) d = ReduceMean<keepdims = 0>(m) loss = Div(s, d)""",
        lambda d, z: (d["m"] * cross_entropy(d, z)[0], d["m"].sum())),
    "times a reciprocal": (
        f"""l = SoftmaxCrossEntropyLoss<reduction = "none">(z, y) {MASKED} r = Reciprocal(d)
        loss = Mul(r, s)""", lambda d, z: (d["m"] * cross_entropy(d, z)[0], d["m"].sum())),
    "squares, weights": (
        """e = Sub(z, t) f = Mul(e, e) l = Mul(f, u) s = ReduceSum<keepdims = 0>(l)
        d = ReduceSum<keepdims = 0>(u) loss = Div(s, d)""",
        lambda d, z: ((d["u"] * (z - d["t"]) ** 2).sum(1), d["u"].sum())),
    "huber, selected": (
        HUBER + f"""{ONE} n = ReduceSum<keepdims = 0>(l, i) b = Cast<to = 9>(m)
        c = Compress<axis = 0>(n, b) loss = ReduceMean<keepdims = 0>(c)""",
        lambda d, z: (d["m"] * huber(z - d["t"]).sum(1), d["m"].sum())),
    "divergence, by batch": (
        """p = LogSoftmax(z) a = Log(t) e = Sub(a, p) l = Mul(t, e) s = ReduceSum<keepdims = 0>(l)
        k = Shape<end = 1>(z) k1 = Squeeze(k) c = Cast<to = 11>(k1) loss = Div(s, c)""",
        lambda d, z: ((d["t"] * (np.log(d["t"]) - log_softmax(z, axis=1))).sum(1), len(z))),
}  # fmt: skip

CASES = [(name, kind) for name in LOSSES for kind in ("mean", "sum")]
CASES += [(name, "mean") for name in DIVIDED]
UNCLEAR = "cross-entropy, label smoothing, class weights", "sum", "mean"
"""A sum whose parts would be divided by Σ w and by N C."""
EACH = pytest.mark.parametrize(("name", "kind"), CASES)


def made(name, kind):
    """The model, and the judge: data, z ↦ parts of S by sample, D."""
    body, judge = {**LOSSES, **DIVIDED}[name]
    over = "g = ReduceSum<keepdims = 0>(own) n = Div(s2, g)"
    body = body.replace("DIVIDED", over if kind == "mean" else "n = Identity(s2)")
    body = body.replace("REDUCTION", kind)
    body = body.replace("REDUCED", kind.capitalize())
    named = {"y": "int64[n] y", "t": "double[n, 3] t", "m": "double[n] m", "u": "double[n, 3] u"}
    used = [k for k in named if re.search(rf"\W{k}\W", body)]
    text = ", ".join(["double[n, 4] x", *(named[k] for k in used), "double[4, 3] W"])
    model = parsed(f"g ({text}) => (double loss, double[n, 3] z) {{ z = MatMul(x, W) {body} }}")
    return model, {k: DATA[k] for k in ("x", *used)}, judge


def batches(data):
    return [{name: a[i:j] for name, a in data.items()} for i, j in pairwise(CUTS)]


def differences(f, order):
    """∂f/∂W or ∂²f/∂W² by central differences."""
    h, steps = (1e-6, 1e-4)[order - 1], np.eye(W.size).reshape(-1, *W.shape)
    if order == 1:
        return np.stack([f(W + h * e) - f(W - h * e) for e in steps], -1) / (2 * h)
    at = [[f(W + h * (e + g)) - f(W + h * (e - g)) - f(W - h * (e - g)) + f(W - h * (e + g))
           for g in steps] for e in steps]  # fmt: skip
    return np.array(at) / (4 * h * h)


def expected(judge, data):
    """H of the sum S, and D."""
    S, D = (lambda V: judge(data, data["x"] @ V)[0].sum()), judge(data, data["x"] @ W)[1]
    return differences(S, 2), D


def close(C, dense, rtol=1e-6):
    assert_allclose(C.toarray(), dense, rtol=rtol, atol=rtol * abs(dense).max())


@pytest.mark.sampled(0.35)
@EACH
def test_hessians_and_gauss_newton_matrices(name, kind):
    """Of S and of S / D; at one point and over batches; by the model's own reduction or another."""
    model, data, judge = made(name, kind)
    (H, D), point = expected(judge, data), {**data, "W": W}
    own = H / D if kind == "mean" else H
    close(oj.hessian(model, point, of="loss", wrt="W"), own)
    over = {"of": "loss", "wrt": "W", "shared": {"W": W}, "check": False}
    close(oj.hessian(model, batches(data), **over, reduction=kind), own)
    close(oj.gauss_newton(model, point, of="loss", at="z", wrt="W"), own)
    for wanted, dense in (("sum", H), ("mean", H / D)):
        over["reduction"] = wanted
        if (name, kind, wanted) == UNCLEAR:
            with pytest.raises(oj.InputError, match=r"'loss' .* adds parts with D = 33, 17\.5"):
                oj.gauss_newton(model, point, of="loss", at="z", wrt="W", reduction=wanted)
            continue
        close(oj.gauss_newton(model, point, of="loss", at="z", wrt="W", reduction=wanted), dense)
        close(oj.gauss_newton(model, batches(data), at="z", **over), dense)


@pytest.mark.sampled(0.3)
@EACH
def test_gradients_and_empirical_fisher_matrices(name, kind):
    """gₙ is the part of S of a sample; in a mean over its entries as well, their mean."""
    model, data, judge = made(name, kind)
    parts = differences(lambda V: judge(data, data["x"] @ V)[0], 1)
    D = judge(data, data["x"] @ W)[1]
    each = C if kind == "mean" and name in LOSSES and D == N * C else 1
    g = oj.grad(model, {**data, "W": W}, of="loss", wrt="W")["W"].ravel()
    assert_allclose(g, parts.sum(0) / (D if kind == "mean" else 1), rtol=1e-6, atol=1e-8)
    F = parts.T @ parts / (N * each**2 if kind == "mean" else 1)
    options = {"of": "loss", "at": "z", "wrt": "W", "reduction": kind, "shared": {"W": W}}
    for inputs in (data, batches(data)):
        close(oj.empirical_fisher(model, inputs, **options, check=False), F)
        K = oj.ekfac(model, inputs, fisher_type="empirical", **options)
        assert_allclose(K.trace(), np.trace(F), rtol=1e-6)
    for make, own in ((oj.kfac, {}), (oj.shampoo, {"power": 1})):
        whole, cut = (make(model, inputs, fisher_type="empirical", **own, **options)
                      for inputs in (data, batches(data)))  # fmt: skip
        close(cut, whole.toarray(), 1e-9)


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_a_batch_that_does_not_count_is_left_out():
    """The second batch, one sample, is masked: its loss is 0 / 0."""
    model, data, judge = made("cross-entropy, masked", "mean")
    data["m"] = np.where(np.arange(N) == 5, 0.0, data["m"])
    H, D = expected(judge, data)
    over = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean"}
    close(oj.hessian(model, batches(data), **over), H / D)
    close(oj.gauss_newton(model, batches(data), at="z", **over), H / D)
    with pytest.raises(oj.InputError, match="no samples"):
        oj.hessian(model, batches({**data, "m": 0 * data["m"]}), **over)


TOKENS = parsed("""g (double[n, t, 4] x, int64[n, t] y, double[4, 3] W) => (double loss, double l)
    { z = MatMul(x, W) s = Transpose<perm = [0, 2, 1]>(z)
      loss = SoftmaxCrossEntropyLoss<ignore_index = 9>(s, y)
      f = Mul(z, z) l = ReduceMean<keepdims = 0>(f) }""")


def test_tokens_in_batches_of_other_lengths():
    """Padded tokens have no weight, and a mean over entries or rows counts the entries or rows."""
    x, lengths = RNG.standard_normal((5, 6, 4)), np.array([2, 6, 1, 3, 4])
    y = np.where(np.arange(6) < lengths[:, None], RNG.integers(0, 3, (5, 6)), 9)
    cut = [(slice(0, 2), 6), (slice(2, 4), 3), (slice(4, 5), 4)]
    parts = [{"x": x[k, :t], "y": y[k, :t]} for k, t in cut]
    over = {"wrt": "W", "shared": {"W": W}}
    for reduction in ("sum", "mean"):
        options = {**over, "of": "loss", "at": "z", "reduction": reduction}
        whole = oj.gauss_newton(TOKENS, {"x": x, "y": y}, **options)
        close(oj.gauss_newton(TOKENS, parts, **options), whole.toarray(), 1e-12)
        flat = np.concatenate([part["x"].reshape(-1, 1, 4) for part in parts])
        one = {"x": flat, "y": np.zeros((len(flat), 1), int)}
        options = {**over, "at": "z", "reduction": reduction}
        close(oj.fisher(TOKENS, parts, **options), oj.fisher(TOKENS, one, **options).toarray())
        options["of"] = "l"
        expected = oj.gauss_newton(TOKENS, one, **options).toarray()
        close(oj.gauss_newton(TOKENS, parts, **options), expected, 1e-12)


REFUSED = {
    "a mean over weights and one over entries": (
        """a = SoftmaxCrossEntropyLoss<ignore_index = 1>(z, y) e = Mul(z, z)
        b = ReduceMean<keepdims = 0>(e) loss = Add(a, b)""", "adds parts with D = 15, 4"),
    "a sum and a mean": (
        """a = SoftmaxCrossEntropyLoss(z, y) e = Mul(z, z) b = ReduceSum<keepdims = 0>(e)
        loss = Add(a, b)""", "adds parts with D ="),
    "a ratio": (
        """e = Mul(z, z) a = ReduceSum<keepdims = 0>(e) f = Abs(z) b = ReduceSum<keepdims = 0>(f)
        loss = Div(a, b)""", "is scaled by 'b', which varies with 'W'"),
    "a mean for each class": (
        """k = Constant<value = int64 {3}>() v = Constant<value = double[2] {0, 1}>()
        q = OneHot<axis = 0>(y, k, v) e = Mul(z, z) i = Constant<value = int64[1] {1}>()
        l = ReduceSum<keepdims = 0>(e, i) u = Unsqueeze(l, i) r = MatMul(q, u)
        zero = Constant<value = int64[1] {0}>() a = ReduceSum<keepdims = 0>(e, zero)
        c = ReduceSum<keepdims = 0>(q, i) d = Div(a, c) loss = ReduceMean<keepdims = 0>(d)""",
        r"is scaled by 'c' of shape \[3\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_mean_is_refused_where_the_loss_is_no_mean_over_samples(name):
    body, why = REFUSED[name]
    model = parsed(f"""g (double[n, 4] x, int64[n] y, double[4, 3] W) =>
        (double loss, double[n, 3] z) {{ z = MatMul(x, W) {body} }}""")
    data = {"x": DATA["x"], "y": DATA["y"]}
    over = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean"}
    for function, more in ((oj.hessian, {}), (oj.gauss_newton, {"at": "z"})):
        shown = why.replace("'W'", "'z'") if more else why
        with pytest.raises(oj.InputError, match=f"'loss' is not a sum or a mean S / D.*{shown}"):
            function(model, batches(data), **over, **more)


def test_a_penalty_of_weights_has_no_share():
    """It is the same in each batch, whatever the mean over samples weighs."""
    model = parsed(f"""g (double[n, 4] x, int64[n] y, double[4, 3] W) => (double loss)
        {{ z = MatMul(x, W) {GIVEN} a = SoftmaxCrossEntropyLoss(z, y, w) q = Mul(W, W)
        p = ReduceSum<keepdims = 0>(q) loss = Add(a, p) }}""")
    data = {"x": DATA["x"], "y": DATA["y"]}
    whole = oj.hessian(model, {**data, "W": W}, of="loss", wrt="W").toarray()
    over = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean"}
    close(oj.hessian(model, batches(data), **over), whole, 1e-12)


def test_many_terms_take_a_walk_without_recursion():
    """Sums of sums double the paths from the loss, but not the steps."""
    body = "l0 = SoftmaxCrossEntropyLoss(z, y) " + " ".join(
        f"l{k + 1} = Add(l{k}, l{k})" for k in range(2000))  # fmt: skip
    model = parsed(f"""g (double[n, 4] x, int64[n] y, double[4, 3] W) => (double l2000)
        {{ z = MatMul(x, W) {body} }}""")
    assert len(Tail(model, "l2000", ("z",), ("x", "y")).terms) == 1
