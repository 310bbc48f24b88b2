"""Small models to draw: a dense layer, images through a convolution, residual steps."""

import warnings

import numpy as np
import onnx.parser

import onnxjac as oj

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def parsed(text):
    """A model from ONNX text."""
    return oj.load(onnx.parser.parse_model(f"{HEAD} {text}"))


def dense(n=3):
    """∂(y, z)/∂(x, W) with y = tanh(x W) for n samples of 4 features; z = x alone."""
    model = parsed("""g (double[n, 4] x, double[4, 2] W) => (double[n, 2] y, double[n, 4] z) {
        a = MatMul(x, W) y = Tanh(a) z = Neg(x) }""")
    point = {"x": RNG.standard_normal((n, 4)), "W": RNG.standard_normal((4, 2))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)  # z does not depend on W: a zero block
        return oj.linearize(model, point)


def images(channels=2):
    """∂y/∂x for y = conv(x)² of two images, 5 × 6 pixels."""
    model = parsed("""g (double[n, c, 5, 6] x, double[3, c, 2, 2] w) => (double[n, 3, 4, 5] y) {
        a = Conv(x, w) y = Mul(a, a) }""")
    shapes = {"x": (2, channels, 5, 6), "w": (3, channels, 2, 2)}
    return oj.linearize(model, {k: RNG.standard_normal(s) for k, s in shapes.items()}, wrt="x")


def curved():
    """∂²(Σ weights ∘ y)/∂(x, W)²."""
    model = parsed("""g (double[3, 4] x, double[4, 2] W) => (double[3, 2] y) {
        a = MatMul(x, W) y = Tanh(a) }""")
    point = {"x": RNG.standard_normal((3, 4)), "W": RNG.standard_normal((4, 2))}
    return oj.hessian(model, point, weights=np.ones((3, 2)))


def steps(n, *, residual):
    """n times tanh, with or without the identity beside it."""
    x, nodes = "x", []
    for k in range(n):
        nodes.append(f"t{k} = Tanh({x})")
        nodes += [f"a{k} = Add(t{k}, {x})"] * residual
        x = f"a{k}" if residual else f"t{k}"
    model = parsed(f"g (double[3] x) => (double[3] y) {{ {' '.join(nodes)} y = Neg({x}) }}")
    return oj.linearize(model, {"x": RNG.standard_normal(3)})
