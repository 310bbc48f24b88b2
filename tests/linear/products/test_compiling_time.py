"""What `explain` says of the time that compiling took, by every engine."""

import numpy as np
import pytest

import onnxjac as oj
from curvature.models import parsed


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_explain_says_what_compiling_took(engine):
    pytest.importorskip(engine)
    model = parsed("""g (double[8] x) => (double[8] y)
        <int64[1] from = {-1}, int64[1] to = {-9}, int64[1] by = {-1}, int64[1] axis = {0}> {
        s = Mul(x, x) r = Slice(s, from, to, axis, by) y = Add(s, r)
    }""")
    J = oj.linearize(model, {"x": np.linspace(-1, 1, 8)})
    C = J.compile(engine)
    assert "compiling" not in str(C.explain())
    C @ np.ones(J.shape[1], J.dtype)
    C.T @ np.ones(J.shape[0], J.dtype)
    for kind, side in (("compiled", C), ("Jᵀ compiled", C.T)):
        (line,) = (line for line in C.explain().choices if line.startswith(kind))
        assert f"by {engine} (asked for); compiling took" in line
        assert side.structure.seconds > 0
