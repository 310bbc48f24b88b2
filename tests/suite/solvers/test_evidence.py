"""Log-determinants of curvature and their derivatives, beside dense ones and their differences."""

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj

TEXT = """<ir_version: 10, opset_import: ["": 21]>
net (double[n, 3] x, double[n, 2] t) => (double loss)
<double[3, 4] W = {0.3, -0.2, 0.5, 0.1, 0.7, -0.4, 0.2, 0.6, -0.5, 0.4, -0.1, 0.8},
 double[4, 2] V = {0.5, -0.3, 0.8, 0.2, -0.6, 0.4, 0.1, 0.9}>
{ z = MatMul(x, W)  h = Tanh(z)  y = MatMul(h, V)  e = Sub(y, t)  s = Mul(e, e)
  loss = ReduceSum<keepdims = 0>(s) }
"""


@pytest.fixture(scope="module")
def model():
    return oj.load(onnx.parser.parse_model(TEXT))


@pytest.fixture(scope="module")
def point():
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((6, 3)), "t": rng.standard_normal((6, 2))}


def dense(model, point, at, damping, wrt="V"):
    if at is None:
        C = oj.hessian(model, point, of="loss", wrt=wrt).toarray()
    else:
        C = oj.gauss_newton(model, point, of="loss", at=at, wrt=wrt).toarray()
    return np.linalg.slogdet(C + damping * np.eye(len(C)))[1]


def difference(function, x, v, h=1e-5):
    return (function(x + h * v) - function(x - h * v)) / (2 * h)


@pytest.mark.parametrize("at", [None, "y"])
def test_few_rows_are_exact(model, point, at):
    f = oj.logdet_and_grad(model, of="loss", at=at, wrt="V", by=["W", "x"], probes=8)
    found, rng = f(point, 0.5), np.random.default_rng(1)
    np.testing.assert_allclose(float(found.value), dense(model, point, at, 0.5))
    slope = difference(lambda d: dense(model, point, at, d), 0.5, 1.0)
    np.testing.assert_allclose(float(found.by_damping), slope, rtol=1e-7)
    for name, start in (("W", np.array(model.constants["W"])), ("x", point["x"])):
        v = rng.standard_normal(start.shape)
        slope = difference(lambda w, n=name: dense(model, {**point, n: w}, at, 0.5), start, v)
        np.testing.assert_allclose((found.slopes[name] * v).sum(), slope, rtol=1e-6)


def test_slopes_are_taken_at_the_weights_of_the_point(model, point):
    """The derivative is at the weights that the point gives."""
    f = oj.logdet_and_grad(model, of="loss", at="y", wrt="V", by="W", probes=8)
    W = 2 * np.array(model.constants["W"])
    v = np.ones_like(W)
    slope = difference(lambda w: dense(model, {**point, "W": w}, "y", 1.0), W, v)
    np.testing.assert_allclose(f({**point, "W": W}, 1.0).slopes["W"].sum(), slope, rtol=1e-6)


def test_random_signs_are_unbiased(model, point):
    """The mean over many seeds is the exact derivative, within its standard error."""
    options = {"of": "loss", "at": "y", "wrt": ["V", "W"], "by": "x"}
    exact = oj.logdet_and_grad(model, probes=20, **options)
    truth, found = exact(point, 0.5), []
    for seed in range(60):
        f = oj.logdet_and_grad(model, probes=4, seed=seed, **options)
        f.products = exact.products  # recorded once
        made = f(point, 0.5)
        found.append([*made.slopes["x"].ravel(), float(made.by_damping)])
    mean, error = np.mean(found, 0), np.std(found, 0) / len(found) ** 0.5
    expected = [*truth.slopes["x"].ravel(), float(truth.by_damping)]
    assert (np.abs(mean - expected) < 4.5 * error).all()
    assert (error > 0).all()


def test_slopes_have_the_same_bits_each_time(model, point):
    f = oj.logdet_and_grad(model, of="loss", at="y", wrt=["V", "W"], probes=3)
    for a, b in zip(f(point, 1.0).slopes.values(), f(point, 1.0).slopes.values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_matrix_that_is_not_positive(model, point):
    f = oj.logdet_and_grad(model, of="loss", wrt=["V", "W"], probes=20)
    with pytest.raises(oj.OnnxJacError, match="positive definite"):
        f(point)


FUNCTIONS = {
    "inverse": (np.reciprocal, lambda t: -1 / t**2),
    "square root": (np.sqrt, lambda t: 0.5 / np.sqrt(t)),
    "exponential": (lambda t: np.exp(-t), lambda t: -np.exp(-t)),
}
"""A name -> f and f′ of an eigenvalue."""


def dense_trace(f, model, point, damping, wrt):
    C = oj.gauss_newton(model, point, of="loss", at="y", wrt=wrt).toarray()
    return f(np.linalg.eigvalsh(C) + damping).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("wrt", ["V", ["V", "W"]])
def test_traces_of_functions_and_their_slopes_are_the_dense_ones(model, point, name, wrt):
    """Also where most of the Krylov space is exhausted: C of W and V has eigenvalues 0."""
    f, slope = FUNCTIONS[name]
    options = {"of": "loss", "at": "y", "wrt": wrt, "by": ["W", "x"], "probes": 20, "steps": 3}
    found = oj.trace_and_grad(model, f, slope, **options)(point, 0.5)
    assert found.value.exact
    assert found.by_damping.exact
    np.testing.assert_allclose(float(found.value), dense_trace(f, model, point, 0.5, wrt))
    moved = difference(lambda d: dense_trace(f, model, point, d, wrt), 0.5, 1.0)
    np.testing.assert_allclose(float(found.by_damping), moved, rtol=1e-7)
    rng = np.random.default_rng(1)
    for tensor, start in (("W", np.array(model.constants["W"])), ("x", point["x"])):
        v = rng.standard_normal(start.shape)
        moved = difference(
            lambda w, n=tensor: dense_trace(f, model, {**point, n: w}, 0.5, wrt), start, v
        )
        np.testing.assert_allclose((found.slopes[tensor] * v).sum(), moved, rtol=1e-6)


def test_the_trace_of_the_logarithm(model, point):
    """By the same random signs: a solve is f′(A) z where Lanczos's steps reach."""
    options = {"of": "loss", "at": "y", "wrt": ["V", "W"], "probes": 4}
    one = oj.logdet_and_grad(model, **options)(point, 0.5)
    other = oj.trace_and_grad(model, np.log, np.reciprocal, **options)(point, 0.5)
    assert float(one.value) == float(other.value)
    np.testing.assert_allclose(float(one.by_damping), float(other.by_damping), rtol=1e-9)
    for name, slope in one.slopes.items():
        np.testing.assert_allclose(other.slopes[name], slope, rtol=1e-7, atol=1e-9)


def test_a_function_that_is_not_finite(model, point):
    f = oj.trace_and_grad(model, np.sqrt, lambda t: 0.5 / np.sqrt(t), of="loss", wrt=["V", "W"])
    with pytest.raises(oj.InputError, match="f is not finite at the eigenvalue -"):
        f(point)
