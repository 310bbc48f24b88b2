"""Correlations: recorded products with patches become convolutions."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import (
    Convolution,
    Dag,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Kron,
    Permutation,
    Product,
    Reshape,
    Take,
    size,
)
from onnxjac.jacobians.convolution import meetings
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.elimination.patches import correlations, with_patches
from onnxjac.modes.linear.elimination.plan import eliminated

from ...jacobians.convolutions import geometry

RNG = np.random.default_rng(0)
GEOMETRIES = {
    "padded": geometry(n=3, c=4, m=2, size=(6, 5), kernel=(3, 2), pads=(1, 0, 1, 1)),
    "strided, dilated": geometry(n=2, c=3, m=2, size=(9,), kernel=(2,), strides=(2,),
                                 dilations=(3,)),
}  # fmt: skip


def gathering(g):
    """The gathering of the patches of x, as gradients record it."""
    begins, ends = np.reshape(g.pads, (2, -1)).tolist()
    space = tuple(a + n + b for a, n, b in zip(begins, g.x[2:], ends, strict=True))
    (n, c), s, float_ = g.x[:2], size(space), np.dtype(float)
    d, kernel, places = len(space), size(g.w[2:]), size(g.u[2:])
    spans = tuple((begin, 1, m) for begin, m in zip((0, 0, *begins), g.x, strict=True))
    factors = (
        Permutation((0, 1, 3, 2), (1, 1, c * kernel, places * n), float_),
        Reshape((1, 1, c * kernel, places * n), (c, kernel * places, n), float_),
        Take(meetings(g, space), 1, (c, s, n), float_),
        Reshape((c, s, n), (c, *space, n), float_),
        Permutation((1, *range(2, 2 + d), 0), (n, c, *space), float_),
        Embed(spans, (n, c, *space), float_),
    )
    return factors if any(g.pads) else factors[:-1]


def recorded(g, u, held=None, factors=None):
    """A DAG with the cotangent u in both x ↦ w, as gradients record it, and w ↦ x."""
    rows = np.moveaxis(u, 0, -1).reshape(1, 1, g.u[1], -1)
    columns = Eye(size(g.w[1:]))
    edges = [
        Edge(0, 2, Product(factors or gathering(g))),
        Edge(2, 3, Kron(rows, columns, (1, 1))),
        Edge(1, 4, Convolution(u if held is None else held, "w", "x", g)),
    ]
    made, product = (edges[k].operator.out_shape for k in (0, 1))
    return Dag((g.x, g.w, made, product, g.x), edges, (0, 1), (3, 4), np.dtype(float))


@pytest.mark.parametrize("g", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_recorded_correlation_keeps_the_patches_of_the_cotangent(g, monkeypatch):
    monkeypatch.setattr("onnxjac.modes.linear.elimination.patches.seconds", lambda operator: sum(
        isinstance(factor, (Take, Convolution)) for factor in factors_of(operator)
    ))  # fmt: skip
    dag = recorded(g, RNG.standard_normal(g.u))
    found, steps = with_patches(dag, 100, 2**30)
    assert len(steps) == 2
    assert not any(isinstance(f, Take) for e in found.edges for f in factors_of(e.operator))
    assert_allclose(found.toarray(), dag.toarray(), rtol=1e-12, atol=1e-12)
    assert_allclose(found.T.toarray(), dag.T.toarray(), rtol=1e-12, atol=1e-12)
    held = [array for e in found.edges for array in e.operator.arrays()]
    assert len({array.__array_interface__["data"] for array in held}) == 1


@pytest.mark.parametrize("g", GEOMETRIES.values(), ids=GEOMETRIES)
def test_what_only_looks_alike_is_left_alone(g):
    u, factors = RNG.standard_normal(g.u), gathering(g)
    assert len(correlations(recorded(g, u))) == 1
    assert not correlations(recorded(g, u, held=u + 1))
    turned = Take(factors[2].index[::-1], 1, factors[2].in_shape, np.dtype(float))
    assert not correlations(recorded(g, u, factors=(*factors[:2], turned, *factors[3:])))
    scaled = (*factors, Diagonal(RNG.standard_normal(g.x)))
    assert not correlations(recorded(g, u, factors=scaled))
    if len(g.strides) == 1:  # flattening one axis changes nothing
        inside = Diagonal(RNG.standard_normal(factors[3].in_shape))
        assert not correlations(recorded(g, u, factors=(*factors[:3], inside, factors[4])))
    if any(g.pads):
        moved = Embed(((0, 1, g.x[0]), (0, 1, g.x[1]), (0, 1, 6), (1, 1, 5)),
                      factors[-1].out_shape, np.dtype(float))  # fmt: skip
        assert not correlations(recorded(g, u, factors=(*factors[:-1], moved)))
        larger = replace(g, pads=(0, 0, 2, 1))
        assert not correlations(recorded(larger, u, factors=factors))


def test_hessians_of_networks_have_them():
    """Gradients record the form that the search expects."""
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (double[4,2,6,6] x, double[3,2,3,3] w, double[2,3,3,3] z) => (double f) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w)
            t = Tanh(a)
            b = Conv(t, z)
            s = Mul(b, b)
            f = ReduceSum <keepdims = 0> (s)
        }""")
    sizes = {"x": (4, 2, 6, 6), "w": (3, 2, 3, 3), "z": (2, 3, 3, 3)}
    point = {name: RNG.standard_normal(shape) for name, shape in sizes.items()}
    H = oj.hessian(oj.load(proto), point, of="f", wrt=["w", "z"])
    assert correlations(eliminated(H.J.dag))
