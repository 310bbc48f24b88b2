"""A model whose layers share weights over tokens, with data in batches, for pooled factors."""

from functools import cache

import numpy as np

from curvature.models import parsed
from onnxjac.modes.curvature.kfac import ekfac, kfac, shampoo

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((7, 4, 3)), RNG.standard_normal((7, 2))
WHOLE = {"x": X, "y": Y}
UNEVEN = [{"x": X[a:b], "y": Y[a:b]} for a, b in ((0, 3), (3, 6), (6, 7))]
WEIGHTS = {"V": RNG.standard_normal((3, 5)), "c": RNG.standard_normal(5),
           "W": RNG.standard_normal((5, 2)), "b": RNG.standard_normal(2)}  # fmt: skip
MAKERS = {"kfac": kfac, "ekfac": ekfac, "shampoo": shampoo}


@cache
def model(reduction):
    """A layer applied to every token, another one to their sum; squared errors."""
    return parsed(f"""g (double[n, 4, 3] x, double[n, 2] y, double[3, 5] V, double[5] c,
        double[5, 2] W, double[2] b) => (double[n, 2] z, double loss) {{
        h = MatMul(x, V) k = Add(h, c) t = Tanh(k)
        s = Constant<value = int64[1] {{1}}>() m = ReduceSum<keepdims = 0>(t, s)
        p = MatMul(m, W) z = Add(p, b)
        d = Sub(z, y) e = Mul(d, d) r = Constant<value = int64[1] {{1}}>()
        f = ReduceSum<keepdims = 0>(e, r) loss = Reduce{reduction}<keepdims = 0>(f) }}""")


def made(name, data, reduction="mean", fisher_type="type-2", **options):
    own = model(reduction.capitalize())
    of = "loss" if fisher_type == "empirical" else None
    return MAKERS[name](own, data, at="z", of=of, wrt=list(WEIGHTS), likelihood="gaussian",
                        reduction=reduction, fisher_type=fisher_type, shared=WEIGHTS,
                        **options)  # fmt: skip


@cache
def masked():
    """z = x V, where V is two rows of W from row `first` on."""
    return parsed("""g (double[n, 2] x, double[4, 3] W, int64[1] first) => (double[n, 3] z)
        { last = Constant<value = int64[1] {4}>() two = Constant<value = int64[1] {2}>()
          end = Add(first, two) V = Slice(W, first, end) z = MatMul(x, V) }""")


def of_other_weights(**options):
    """Factors over two batches that use different rows of W."""
    shared = {"W": np.random.default_rng(6).standard_normal((4, 3))}
    batches = [{"x": X[:3, 0, :2], "first": np.array([k])} for k in (0, 1)]
    return kfac(masked(), batches, at="z", wrt="W", likelihood="gaussian", shared=shared, **options)


def assert_equal(K, other):
    """Equal up to rounding, relative to the largest entry, the accuracy of eigenvectors."""
    expected = other.toarray()
    assert np.abs(K.toarray() - expected).max() <= 1e-12 * np.abs(expected).max()
