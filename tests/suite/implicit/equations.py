"""Equations whose solutions have derivatives that are known, or that others compute."""

import numpy as np
import onnx.parser

import onnxjac as oj

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'


def parsed(text: str) -> oj.Model:
    """A model from ONNX's text format, without its first line."""
    return oj.load(onnx.parser.parse_model(HEADER + text))


def square() -> oj.Model:
    """F = x² − p, with the root √p."""
    return parsed("e (double[n] x, double[n] p) => (double[n] F) { s = Mul(x, x)\n F = Sub(s, p) }")


def equilibrium(n: int = 6, d: int = 4, seed: int = 0) -> oj.Model:
    """f = tanh(z W + x U + b), a deep equilibrium model: the fixed point z = f."""
    W, U, b = weights(n, d, seed)
    return parsed(f"""
        deq (double[B, {d}] x, double[B, {n}] z) => (double[B, {n}] f)
        <double[{n}, {n}] W = {listed(W)}, double[{d}, {n}] U = {listed(U)},
         double[{n}] b = {listed(b)}>
        {{
            zW = MatMul (z, W)
            xU = MatMul (x, U)
            s = Sum (zW, xU, b)
            f = Tanh (s)
        }}""")


def weights(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, U and b of an equilibrium, with ‖W‖ = 0.8."""
    rng = np.random.default_rng(seed)
    W, U, b = (rng.standard_normal(shape) for shape in ((n, n), (d, n), n))
    return 0.8 * W / np.linalg.norm(W, 2), U, 0.1 * b


def listed(array: np.ndarray) -> str:
    """An array in ONNX's text format."""
    return "{" + ", ".join(map(repr, array.ravel().tolist())) + "}"


def batch(B: int = 3, n: int = 6, d: int = 4, seed: int = 1) -> dict[str, np.ndarray]:
    """A batch for an equilibrium, from z = 0."""
    x = np.random.default_rng(seed).standard_normal((B, d))
    return {"x": x, "z": np.zeros((B, n))}


def squared_error() -> oj.Model:
    """ℓ = Σ (h − y)³ / 3, whose second derivative depends on h."""
    return parsed("""
        loss (double[B, n] h, double[B, n] y) => (double l) <double third = {0.3333333333333333}>
        {
            d = Sub (h, y)
            dd = Mul (d, d)
            ddd = Mul (dd, d)
            s = ReduceSum <keepdims = 0> (ddd)
            l = Mul (third, s)
        }""")


def optimality() -> oj.Model:
    """The KKT conditions of min ½ xᵀQx − cᵀx with a·x = 1: Qx − c + λa = 0 and a·x = 1."""
    return parsed("""
        kkt (double[3] x, double l, double[3, 3] Q, double[3] c, double[3] a)
        => (double[3] slope, double gap)
        <double one = {1.0}>
        {
            Qx = MatMul (Q, x)
            force = Mul (l, a)
            off = Sub (Qx, c)
            slope = Add (off, force)
            ax = Mul (a, x)
            sum = ReduceSum <keepdims = 0> (ax)
            gap = Sub (sum, one)
        }""")


def central(f, p: np.ndarray, v: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """(f(p + h v) − f(p − h v)) / 2h."""
    return (f(p + h * v) - f(p - h * v)) / (2 * h)
