"""Convolutions of every geometry, with their matrices by explicit loops."""

import itertools
from functools import partial

import numpy as np

from onnxjac.jacobians import Convolution, Geometry

PAIRS = tuple(itertools.permutations("xwu", 2))
"""source → target: the operator holds the third of signal, kernel and output."""


def geometry(n=1, c=2, m=2, size=(), kernel=(), strides=None, dilations=None, pads=None, group=1):
    """A Geometry with defaults and with the output's shape."""
    d = len(size)
    strides, dilations = strides or (1,) * d, dilations or (1,) * d
    pads = pads or (0,) * 2 * d
    spare = [size[i] + pads[i] + pads[d + i] - dilations[i] * (kernel[i] - 1) - 1 for i in range(d)]
    positions = tuple(s // step + 1 for s, step in zip(spare, strides, strict=True))
    return Geometry((n, c, *size), (m, c // group, *kernel), (n, m, *positions), strides,
                    dilations, pads, group)  # fmt: skip


GEOMETRIES = {
    "1-D": geometry(size=(5,), kernel=(3,)),
    "strided, dilated, padded": geometry(
        size=(9,), kernel=(2,), strides=(2,), dilations=(3,), pads=(1, 2)
    ),
    "2-D, asymmetric": geometry(
        n=2, m=3, size=(4, 5), kernel=(3, 2), strides=(1, 2), dilations=(1, 2), pads=(1, 0, 0, 2)
    ),
    "a remainder that no window meets": geometry(size=(8,), kernel=(2,), strides=(3,)),
    "a pad that no window needs": geometry(size=(8,), kernel=(3,), strides=(2,), pads=(1, 1)),
    "windows over pads alone": geometry(size=(1,), kernel=(1,), strides=(3,), pads=(2, 0)),
    "groups": geometry(c=4, m=6, size=(3, 3), kernel=(2, 2), group=2),
    "groups and samples": geometry(
        n=3, c=4, m=2, size=(3, 2), kernel=(2, 2), pads=(1, 0, 0, 1), group=2
    ),
    "depthwise": geometry(c=3, m=3, size=(4,), kernel=(3,), pads=(1, 1), group=3),
    "depthwise with a multiplier": geometry(c=2, m=4, size=(3, 3), kernel=(2, 2), group=2),
    "3-D": geometry(
        c=1, size=(3, 2, 3), kernel=(2, 1, 2), strides=(1, 1, 2), pads=(0, 0, 1, 1, 0, 0)
    ),
    "many short rows": geometry(
        n=4, c=4, m=2, size=(4, 3), kernel=(2, 2), strides=(2, 1), pads=(1, 0, 0, 1)
    ),
    "many short rows in groups": geometry(n=3, c=8, m=2, size=(3,), kernel=(2,), group=2),
    "pointwise": geometry(n=2, c=3, size=(2, 2), kernel=(1, 1)),
}


def trilinear(g):
    """T with Σ T[u, x, w] u x w = ⟨conv(x, w), u⟩."""
    T = np.zeros((*g.u, *g.x, *g.w))
    per_group, outputs = g.w[1], g.w[0] // g.group
    for n, m, c in np.ndindex(g.u[0], g.u[1], per_group):
        channel = m // outputs * per_group + c
        for p, k in itertools.product(np.ndindex(g.u[2:]), np.ndindex(g.w[2:])):
            at = tuple(
                i * s + j * r - before
                for i, s, j, r, before in zip(p, g.strides, k, g.dilations, g.pads, strict=False)
            )
            if all(0 <= i < size for i, size in zip(at, g.x[2:], strict=True)):
                T[(n, m, *p, n, channel, *at, m, c, *k)] += 1
    return T.reshape(np.prod(g.u), np.prod(g.x), np.prod(g.w))


def convolution(draw, source, target, g):
    """The operator source → target of a geometry, and its matrix."""
    (held,) = set("xwu") - {source, target}
    array = draw.normal(*getattr(g, held))
    T = dict(zip("uxw", range(3), strict=True))
    matrix = np.tensordot(trilinear(g), array.ravel(), axes=(T[held], 0))
    left = [name for name in "uxw" if name != held]
    return Convolution(array, source, target, g), matrix if left == [target, source] else matrix.T


CONVOLUTIONS = {
    f"convolution {name}, {source} to {target}": (
        Convolution, partial(convolution, source=source, target=target, g=g))
    for name, g in GEOMETRIES.items() for source, target in PAIRS
}  # fmt: skip
"""As `EXAMPLES` in `examples.py`: every geometry, between every pair."""
