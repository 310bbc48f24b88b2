"""The cost of compiling, and the number of products after which it pays, by every engine."""

import time
from math import inf

import numpy as np
import pytest

import onnxjac as oj
from curvature.models import parsed
from onnxjac.modes.linear.products.compiled import BreakEven, measured


def linearized(n):
    """∂y/∂x for y = x² + reversed(x²)."""
    text = f"""g (double[{n}] x) => (double[{n}] y)
        <int64[1] from = {{-1}}, int64[1] to = {{-{n + 1}}}, int64[1] by = {{-1}},
         int64[1] axis = {{0}}> {{
        s = Mul(x, x) r = Slice(s, from, to, axis, by) y = Add(s, r)
    }}"""
    return oj.linearize(parsed(text), {"x": np.linspace(-1, 1, n)})


@pytest.mark.parametrize(("plain", "products"), [(3.0, 5), (2.5, 7), (1.0, inf), (0.5, inf)])
def test_products_that_repay_ten_seconds(plain, products):
    """Compiling takes 10 s, a product 1 s instead of 3 s, 2.5 s, 1 s or 0.5 s."""
    found = BreakEven(10.0, 1.0, plain)
    assert found.products == products
    assert ("never pays" if products == inf else f"pays from product {products} on") in str(found)


def test_both_kinds_of_product_are_timed():
    found = measured(1.0, lambda: time.sleep(0.002), lambda: time.sleep(0.02))
    assert 0.002 <= found.compiled < found.plain
    assert found.plain >= 0.02


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_explain_says_what_compiling_took_and_when_it_pays(engine):
    pytest.importorskip(engine)
    J = linearized(8)
    C = J.compile(engine)
    assert C.structure.break_even() is None
    assert "compiling" not in str(C.explain())
    C @ np.ones(J.shape[1], J.dtype)
    C.T @ np.ones(J.shape[0], J.dtype)
    for kind, side in (("compiled", C), ("Jᵀ compiled", C.T)):
        (line,) = (line for line in C.explain().choices if line.startswith(kind))
        assert f"by {engine} (asked for); compiling took" in line
        assert "pays" in line
        found = side.structure.break_even()
        assert found.compiling == side.structure.seconds > 0
        assert found.compiled > 0 < found.plain
