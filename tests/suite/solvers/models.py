"""Small models with known minima and roots."""

import numpy as np
import onnx
import onnx.parser

import onnxjac as oj


def parsed(text: str, dtype: str = "float64") -> oj.Model:
    """A model from ONNX's text format, without its first line."""
    header = '<ir_version: 10, opset_import: ["": 21]>\n'
    return oj.load(
        onnx.parser.parse_model(header + text), dtype=dtype if dtype == "float64" else None
    )


def rosenbrock(dtype: str = "float64") -> oj.Model:
    """f = Σ r², with r = (10 (x₊ − x²), 1 − x): the minimum, 0, is at 1."""
    return parsed(
        """
        rosenbrock (float[n] x) => (float f, float[m] r)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1}, int64[1] end = {9999},
         float unit = {1.0}, float ten = {10.0}>
        {
            here = Slice(x, zero, last)
            next = Slice(x, one, end)
            square = Mul(here, here)
            gap = Sub(next, square)
            steep = Mul(ten, gap)
            flat = Sub(unit, here)
            r = Concat <axis = 0> (steep, flat)
            f = ReduceSumSquare <keepdims = 0> (r)
        }""",
        dtype,
    )


def logistic(dtype: str = "float64") -> oj.Model:
    """f = mean softplus(−y ∘ X w) + ‖w‖² / 256, with labels y = ±1; the logits are y ∘ X w."""
    return parsed(
        """
        logistic (float[n, k] X, float[n] y) => (float f, float[n] logits)
        <float[3] w = {0.0, 0.0, 0.0}, float weight = {0.00390625}>
        {
            Xw = MatMul(X, w)
            logits = Mul(y, Xw)
            minus = Neg(logits)
            losses = Softplus(minus)
            loss = ReduceMean <keepdims = 0> (losses)
            square = ReduceSumSquare <keepdims = 0> (w)
            penalty = Mul(weight, square)
            f = Add(loss, penalty)
        }""",
        dtype,
    )


def labelled(n: int = 40) -> dict[str, np.ndarray]:
    """Points and labels that are not linearly separable."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3))
    return {"X": X, "y": np.sign(X @ [1.0, -2.0, 0.5] + rng.standard_normal(n))}


def reaction(n: int = 12, cubic: float = -1.0, linear: float = -1.0, dtype="float64") -> oj.Model:
    """F = Δu + linear · u + cubic · u³ + b on a grid, zero outside: u̇ = F(u)."""
    return parsed(
        f"""
        reaction (float[1,1,{n},{n}] u, float[1,1,{n},{n}] b) => (float[1,1,{n},{n}] F)
        <float[1,1,3,3] k = {{0.0, 1.0, 0.0, 1.0, -4.0, 1.0, 0.0, 1.0, 0.0}},
         float linear = {{{linear}}}, float cubic = {{{cubic}}}>
        {{
            diffusion = Conv <pads = [1, 1, 1, 1]> (u, k)
            square = Mul(u, u)
            cube = Mul(square, u)
            cubes = Mul(cubic, cube)
            growth = Mul(linear, u)
            reaction = Add(growth, cubes)
            change = Add(diffusion, reaction)
            F = Add(change, b)
        }}""",
        dtype,
    )


def grid(n: int = 12, dtype: str = "float64") -> dict[str, np.ndarray]:
    """A start u and a source b."""
    u, b = np.random.default_rng(2).standard_normal((2, 1, 1, n, n)).astype(dtype)
    return {"u": u, "b": 5 * b}


DRIVEN = """
driven (float[n] u, float[1] time) => (float[n] rate)
<float fast = {-1000.0}>
{ cosine = Cos(time)
  gap = Sub(u, cosine)
  rate = Mul(fast, gap) }
"""
"""u̇ = −1000 (u − cos t)."""
