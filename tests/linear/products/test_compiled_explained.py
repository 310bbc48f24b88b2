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
