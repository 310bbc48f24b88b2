"""Models that use one weight, in every way that amounts to a matrix."""

import numpy as np

from .models import parsed

RNG = np.random.default_rng(2)
N = 5

CASES = {
    "matmul": ("double[4, 3] W", "z = MatMul(x, W)", (N, 4)),
    "matmul, of tokens": ("double[4, 3] W", "z = MatMul(x, W)", (N, 2, 4)),
    "matmul, tokens first": (
        "double[4, 3] W", "t = Transpose<perm = [1, 0, 2]>(x) m = MatMul(t, W) "
        "z = Transpose<perm = [1, 0, 2]>(m)", (N, 2, 4),
    ),
    "matmul, a weight for each head": ("double[2, 4, 3] W", "z = MatMul(x, W)", (N, 2, 6, 4)),
    "gemm, scaled": (
        "double[3, 4] W", "z = Gemm<transB = 1, alpha = 0.5>(x, W)", (N, 4),
    ),
    "transposed, reshaped": (
        "double[12] W", """s = Constant<value = int64[2] {3, 4}>() r = Reshape(W, s)
        t = Transpose<perm = [1, 0]>(r) z = MatMul(x, t)""", (N, 4),
    ),
    "slices for three uses": (
        "double[6, 4] W", """t = Transpose(W) q, k, v = Split<axis = 1, num_outputs = 3>(t)
        a = MatMul(x, q) b = MatMul(x, k) c = MatMul(x, v) d = Mul(a, b) z = Mul(d, c)""", (N, 4),
    ),
    "shared": (
        "double[4, 4] W", "a = MatMul(x, W) b = Tanh(a) z = MatMul(b, W)", (N, 4),
    ),
    "conv": (
        "double[3, 2, 3, 3] W", "z = Conv<pads = [1, 1, 1, 1], strides = [2, 1]>(x, W)",
        (N, 2, 6, 5),
    ),
    "conv, groups": ("double[6, 2, 3] W", "z = Conv<group = 2, dilations = [2]>(x, W)", (N, 4, 9)),
    "conv, depthwise": ("double[4, 1, 2] W", "z = Conv<group = 4>(x, W)", (N, 4, 5)),
    "transposed conv": (
        "double[2, 3, 3, 2] W", "z = ConvTranspose<strides = [2, 1]>(x, W)", (N, 2, 4, 3),
    ),
    "transposed conv, padded": ("double[2, 3, 3] W",
        "z = ConvTranspose<pads = [2, 1], strides = [2], dilations = [2]>(x, W)", (N, 2, 5)),
    "transposed conv, groups": ("double[4, 3, 2] W", "z = ConvTranspose<group = 2>(x, W)",
                                (N, 4, 3)),
    "einsum": ("double[2, 4, 3] W", 'z = Einsum<equation = "bti,hio->btho">(x, W)', (N, 3, 4)),
    "einsum with two others": (
        "double[2, 2, 3] W", 'z = Einsum<equation = "bi,bj,ijo->bo">(x, x, W)', (N, 2),
    ),
    "table": (
        "double[7, 3] W", """i = Constant<value = int64[5, 2] {0, 1, 6, 6, 2, 0, 3, 3, 5, 1}>()
        e = Gather(W, i) s = Constant<value = int64[1] {2}>() m = ReduceSum(x, s) z = Mul(e, m)""",
        (N, 2, 4),
    ),
    "table, each row once": (
        "double[7, 4] W", """o = Constant<value = int64[1] {1}>() s = ReduceSum<keepdims = 0>(x, o)
        k = Constant<value = int64[1] {5}>() v, i = TopK(s, k) e = Gather(W, i) z = Mul(e, x)""",
        (N, 4),
    ),
    "beside constants": (
        "double[4, 2] W", """c = Constant<value = double[4, 1] {1, 2, 3, 4}>()
        u = Concat<axis = 1>(c, W) z = MatMul(x, u)""", (N, 4),
    ),
    "above constants, transposed": (
        "double[3, 2] W", """c = Constant<value = double[3, 2] {1, 2, 3, 4, 5, 6}>()
        u = Concat<axis = 1>(W, c) t = Transpose(u) z = MatMul(x, t)""", (N, 4),
    ),
    "split off from constants": (
        "double[2, 3] W", """c = Constant<value = double[2, 3] {1, 2, 3, 4, 5, 6}>()
        u = Concat<axis = 0>(W, c) a, b = Split<axis = 0, num_outputs = 2>(u) p = MatMul(x, a)
        s = MatMul(x, b) z = Add(p, s)""", (N, 2),
    ),
    "padded": (
        "double[2, 3] W", """p = Constant<value = int64[4] {1, 0, 1, 2}>() u = Pad(W, p)
        z = MatMul(x, u)""", (N, 4),
    ),
    "padded kernel": (
        "double[3, 2, 1, 2] W", """p = Constant<value = int64[8] {0, 0, 1, 0, 0, 0, 1, 1}>()
        u = Pad(W, p) z = Conv(x, u)""", (N, 2, 4, 5),
    ),
    "some rows": (
        "double[6, 3] W", """i = Constant<value = int64[4] {4, 0, 3, 1}>() u = Gather(W, i)
        z = MatMul(x, u)""", (N, 4),
    ),
    "half of the groups": (
        "double[2, 2, 3] W", """c = Constant<value = double {1}>() s = Shape(W) e = Expand(c, s)
        u = Concat<axis = 0>(W, e) z = Conv<group = 2>(x, u)""", (N, 4, 5),
    ),
    "bias": ("double[4] W", "z = Add(x, W)", (N, 4)),
    "bias of a map": ("double[2, 1, 1] W", "z = Add(x, W)", (N, 2, 3, 4)),
    "scale": ("double[4] W", "z = Mul(x, W)", (N, 3, 4)),
    "layer norm": ("double[4] W", "z = LayerNormalization(x, W)", (N, 3, 4)),
    "batch norm": (
        "double[2] W",
        """u = Constant<value = double[2] {0.5, 2}>() v = Constant<value = double[2] {1, 3}>()
        z = BatchNormalization(x, W, u, u, v)""", (N, 2, 3),
    ),
    "batch norm, by its mean": (
        "double[2] W",
        """u = Constant<value = double[2] {0.5, 2}>() v = Constant<value = double[2] {1, 3}>()
        z = BatchNormalization(x, v, u, W, v)""", (N, 2, 3),
    ),
    "position": ("double[3, 4] W", "z = Add(x, W)", (N, 3, 4)),
    "position, by a range": (
        "double[6, 4] W", """n = Shape<start = 1, end = 2>(x) e = Constant<value = int64[0] {}>()
        l = Reshape(n, e) o = Constant<value = int64 {0}>() d = Constant<value = int64 {1}>()
        i = Range(o, l, d) p = Gather(W, i) z = Add(x, p)""", (N, 3, 4),
    ),
}  # fmt: skip


def made(case, samples=N):
    """A model that uses W, with a nonlinear function of all outputs of a sample."""
    weight, body, shape = CASES[case]
    shape = (samples, *shape[1:])
    model = parsed(f"""g (double{list(shape)} x, {weight}) => (double out)
    {{ {body} f = Flatten(z) g = Tanh(f) h = Exp(g) out = Mul(g, h) }}""")
    dims = [int(n) for n in weight.split("[")[1].split("]")[0].split(",")]
    return model, {"x": RNG.standard_normal(shape), "W": RNG.standard_normal(dims)}
