"""Nonlinear programs as models, beside the same programs by hand."""

import numpy as np

import onnxjac as oj
from onnxjac.modes.solvers.program import NonlinearProgram
from solvers.models import parsed

HS71 = """
program (double[4] x) => (double cost, double[2] c)
<int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3},
 int64[1] i4 = {4}, int64[1] all = {0}>
{
    a = Slice (x, i0, i1)
    b = Slice (x, i1, i2)
    d = Slice (x, i2, i3)
    e = Slice (x, i3, i4)
    ab = Add (a, b)
    sum = Add (ab, d)
    ae = Mul (a, e)
    product = Mul (ae, sum)
    both = Add (product, d)
    cost = ReduceSum <keepdims = 0> (both, all)
    abd = Mul (a, b)
    de = Mul (d, e)
    whole = Mul (abd, de)
    norm = ReduceSumSquare (x, all)
    c = Concat <axis = 0> (whole, norm)
}"""
"""Problem 71 of Hock and Schittkowski: min x₀ x₃ (x₀ + x₁ + x₂) + x₂, Π x ≥ 25, Σ x² = 40."""


def hock_schittkowski() -> NonlinearProgram:
    """Problem 71, where 1 ≤ x ≤ 5."""
    model = parsed(HS71)
    return oj.problem(
        (model, "cost"), {"x": [1.0, 5.0, 5.0, 1.0]}, constraints=model,
        bounds=(1, 5), constraint_bounds={"c": ([25, 40], [np.inf, 40])},
    )  # fmt: skip


SOLUTION = np.array([1.0, 4.7429994, 3.8211503, 1.3794082])


def by_hand(x, v, factor):
    """∇f, J and ∇²(σ f + λᵀc) of problem 71."""
    a, b, d, e = x
    slopes = np.array([e * (2 * a + b + d), a * e, a * e + 1, a * (a + b + d)])
    J = np.array([[b * d * e, a * d * e, a * b * e, a * b * d], 2 * x])
    H = factor * np.array([
        [2 * e, e, e, 2 * a + b + d], [e, 0, 0, a], [e, 0, 0, a], [2 * a + b + d, a, a, 0],
    ])  # fmt: skip
    H = H + v[0] * np.array([
        [0, d * e, b * e, b * d], [d * e, 0, a * e, a * d], [b * e, a * e, 0, a * b],
        [b * d, a * d, a * b, 0],
    ])  # fmt: skip
    return slopes, J, H + 2 * v[1] * np.eye(4)
