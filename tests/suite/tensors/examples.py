"""Models, points and the check of products over tensors of several libraries."""

import numpy as np
from numpy.testing import assert_allclose
from onnx import parser

import onnxjac as oj
from interop.operators import POINT

from ..ops.libraries import host

TIGHT = {"rtol": 1e-11, "atol": 1e-12}
LOOSE = {"rtol": 1e-9, "atol": 1e-10}

SHIFTED = {name: 1.1 * x if x.dtype.kind == "f" else x for name, x in POINT.items()}

LOOP = """g (double[3] x, double[3] w) => (double[3] y, double[n,3] rows) {{
    n = Constant<value = int64 {{{turns}}}>()  t = Constant<value = bool {{1}}>()
    y, rows = Loop(n, t, x)<body = b (int64 i, bool go, double[3] s)
      => (bool on, double[3] z, double[3] row) {{
      on = Identity(go)  a = Sin(s)  z = Mul(a, w)  row = Exp(z) }}> }}"""

CONTROL_FLOW = {
    "unrolled loop": LOOP.format(turns=4), "loop": LOOP.format(turns=60),
    "scan": """g (double[3] x, double[40,3] w) => (double[3] y, double[40,3] rows) {
        y, rows = Scan(x, w)<num_scan_inputs=1, scan_input_directions=[1],
        body = b (double[3] s, double[3] v) => (double[3] z, double[3] row) {
            a = Sin(s)  z = Mul(a, v)  row = Exp(z) }> }""",
    "branches": """g (double[3] x, double[3] w) => (double[3] y) {
        s = ReduceSum<keepdims=0>(x)  z = Constant<value = double {0.0}>()  c = Greater(s, z)
        y = If(c)<then_branch = a () => (double[3] p) { e = Exp(x) p = Mul(e, w) },
                  else_branch = b () => (double[3] q) { q = Sin(x) }> }""",
}  # fmt: skip


def points():
    """Three points: the last one is a run of a template."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        yield {n: x + 0.1 * rng.standard_normal(x.shape) if x.dtype.kind == "f" else x
               for n, x in POINT.items()}  # fmt: skip


def loaded(text):
    return oj.load(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def moved(library, point):
    """A point in tensors of the library."""
    return {name: library.there(x) for name, x in point.items()}


def check(J, dense, library, tolerance=TIGHT):
    """J V, J v, Jᵀ u, u J: tensors of the library for tensors, NumPy's arrays for these."""
    (m, n), there = J.shape, library.there
    v, V, u = draw(n), draw(n, 3), draw(m, seed=1)
    for product, x, wanted in (
        (lambda x: J @ x, V, dense @ V), (lambda x: J @ x, v, dense @ v),
        (lambda x: J.T @ x, u, dense.T @ u), (lambda x: x @ J, u, u @ dense),
    ):  # fmt: skip
        z, y = there(x), product(there(x))
        assert type(y) is type(z)
        assert (y.device, y.dtype) == (z.device, z.dtype)
        assert_allclose(host(y), wanted, **tolerance)
        own = product(x)
        assert isinstance(own, np.ndarray)
        own += 1  # the result belongs to the caller
        assert_allclose(product(x), wanted, **tolerance)
