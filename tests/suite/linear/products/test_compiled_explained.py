"""What `explain` says of compiled products, by every engine."""

import numpy as np
import pytest

import onnxjac as oj
from curvature.models import parsed


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_explain_names_the_engine(engine):
    pytest.importorskip(engine)
    model = parsed("""g (double[8] x) => (double[8] y)
        <int64[1] from = {-1}, int64[1] to = {-9}, int64[1] by = {-1}, int64[1] axis = {0}> {
        s = Mul(x, x) r = Slice(s, from, to, axis, by) y = Add(s, r)
    }""")
    J = oj.linearize(model, {"x": np.linspace(-1, 1, 8)})
    C = J.compile(engine)
    C @ np.ones(J.shape[1], J.dtype)
    C.T @ np.ones(J.shape[0], J.dtype)
    for kind in ("compiled", "Jᵀ compiled"):
        (line,) = (line for line in C.explain().choices if line.startswith(kind))
        assert line.endswith(f"by {engine} (asked for)")


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["J", "H", "G"])
def test_explain_names_xla(kind):
    """Of a Jacobian, a Hessian and a Gauss-Newton matrix, once products were taken by it."""
    pytest.importorskip("jax")
    model = parsed("""g (double[8] x) => (double[8] z, double l) {
        s = Sin(x) z = Mul(s, s) c = Exp(z) l = ReduceSum<keepdims = 0>(c) }""")
    point, make = {"x": np.linspace(-1, 1, 8)}, {"J": oj.linearize, "H": oj.hessian}
    options = {"G": {"of": "l", "at": "z"}, "H": {"of": "l"}, "J": {"of": "z"}}[kind]
    A = make.get(kind, oj.gauss_newton)(model, point, wrt="x", engine="jax", **options)
    A @ np.ones(8)
    assert "by the program of all points, by XLA" in str(A.explain())
    B = make.get(kind, oj.gauss_newton)(model, point, wrt="x", engine="numpy", **options)
    B @ np.ones(8)
    assert "XLA" not in str(B.explain())
