"""Operators decomposed into primitives, with ONNX's own operator: (inputs, written, fused)."""

import numpy as np
import onnx.parser

import onnxjac as oj

LAST = "ax = Constant <value = int64[1] {-1}> ()"

SOFTMAX = """
    top = ReduceMax (x, ax)  z = Sub (x, top)  e = Exp (z)
    total = ReduceSum (e, ax)  y = Div (e, total)"""

CENTRE = "mean = ReduceMean (x, ax)  d = Sub (x, mean)"

SCALE = """
    square = Mul ({d}, {d})  variance = ReduceMean (square, ax)  raised = Add (variance, eps)
    sigma = Sqrt (raised)  standard = Div ({d}, sigma)  scaled = Mul (standard, w)"""

EPS = "eps = Constant <value = float {0.00001}> ()"

CUBE = "k = Constant <value = float {0.044715}> ()  r = Constant <value = float {0.7978845608}> ()"

PROJECT = """
    q = MatMul (x, wq)  k = MatMul (x, wk)  v = MatMul (x, wv)
    heads = Constant <value = int64[4] {2, 8, 4, 8}> ()
    q4 = Reshape (q, heads)  k4 = Reshape (k, heads)  v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4)  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)  scores = MatMul (qh, kt)"""

MERGE = """
    mixed = MatMul (p, vh)  moved = Transpose <perm = [0, 2, 1, 3]> (mixed)
    merged = Constant <value = int64[3] {2, 8, 32}> ()  y = Reshape (moved, merged)"""

ROOT = "root = Constant <value = float {2.828427}> ()"

WIDE = {"x": (2, 64, 96)}
GAIN = {**WIDE, "w": (96,), "b": (96,)}
IMAGE = {"x": (8, 16, 12, 12), "w": (16, 1, 1), "b": (16, 1, 1), "m": (16, 1, 1), "s": (16, 1, 1)}
HEADS = {"x": (2, 8, 32), "wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "mask": (8, 8)}

WRITTEN = {
    "Gelu": (WIDE, """
        root = Constant <value = float {1.41421356}> ()  one = Constant <value = float {1}> ()
        half = Constant <value = float {0.5}> ()
        a = Div (x, root)  e = Erf (a)  f = Add (e, one)  g = Mul (x, f)  y = Mul (g, half)""",
        "y = Gelu (x)"),
    "tanh Gelu": (WIDE, CUBE + """
        one = Constant <value = float {1}> ()  half = Constant <value = float {0.5}> ()
        x2 = Mul (x, x)  x3 = Mul (x2, x)  c = Mul (x3, k)  i = Add (x, c)  s = Mul (i, r)
        t = Tanh (s)  f = Add (t, one)  h = Mul (x, half)  y = Mul (h, f)""",
        'y = Gelu <approximate = "tanh"> (x)'),
    "SiLU": (WIDE, "s = Sigmoid (x)  y = Mul (x, s)", "y = HardSwish (x)"),
    "Softmax": (WIDE, LAST + SOFTMAX, "y = Softmax (x)"),
    "LogSoftmax": (WIDE, LAST + """
        top = ReduceMax (x, ax)  z = Sub (x, top)  e = Exp (z)
        total = ReduceSum (e, ax)  l = Log (total)  y = Sub (z, l)""", "y = LogSoftmax (x)"),
    "LayerNormalization": (
        GAIN, LAST + EPS + CENTRE + SCALE.format(d="d") + "y = Add (scaled, b)",
        "y = LayerNormalization (x, w, b)"),
    "RMSNormalization": (
        GAIN, LAST + EPS + SCALE.format(d="x") + "y = Add (scaled, b)",
        "scaled = RMSNormalization (x, w)  y = Add (scaled, b)"),
    "BatchNormalization": (IMAGE, EPS + """
        d = Sub (x, m)  raised = Add (s, eps)  sigma = Sqrt (raised)  n = Div (d, sigma)
        scaled = Mul (n, w)  y = Add (scaled, b)""", """
        c = Constant <value = int64[1] {16}> ()
        w1 = Reshape (w, c)  b1 = Reshape (b, c)  m1 = Reshape (m, c)  s1 = Reshape (s, c)
        y = BatchNormalization (x, w1, b1, m1, s1)"""),
    "attention": (HEADS, LAST + ROOT + PROJECT + """
        div = Div (scores, root)  masked = Add (div, mask)
        top = ReduceMax (masked, ax)  z = Sub (masked, top)  e = Exp (z)
        total = ReduceSum (e, ax)  p = Div (e, total)""" + MERGE,
        ROOT + PROJECT + """
        div = Div (scores, root)  masked = Add (div, mask)  p = Softmax (masked)""" + MERGE),
}  # fmt: skip
"""name -> (shapes of the inputs, written out, with ONNX's operator)."""


def linearized(shapes, body, wrt=("x",)):
    """The Jacobian of y at a random point where s, a variance, is positive."""
    rng = np.random.default_rng(3)
    inputs = ", ".join(f"float[{','.join(map(str, s))}] {name}" for name, s in shapes.items())
    text = f'<ir_version: 10, opset_import: ["": 23]> g ({inputs}) => (float[n] y) {{ {body} }}'
    model = oj.load(onnx.parser.parse_model(text), dtype="float64")
    point = {name: np.abs(rng.standard_normal(s)) if name == "s" else rng.standard_normal(s)
             for name, s in shapes.items()}  # fmt: skip
    return oj.linearize(model, point, wrt=wrt, engine="numpy")
