"""Correlation: the gradient of T(x, w, u) in the kernel, a product with gathered patches."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from .arrays import Array, Op, Shape, lead, shape_of, size
from .geometry import Geometry
from .symint import is_symbolic

MOST = 2**26
"""How many entries of patches are gathered at once, about; larger kernels are taken apart."""
FEWEST = 64
"""An index into the signal is held for every so many entries, or fewer."""


def correlate(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """(x, u) ↦ w, w[m, c, k] = Σₙₚ u[n, m, p] x[n, c, p · stride + k · dilation]; either may lead.

    What is gathered at once is bounded, whatever the sizes of kernel and result.
    """
    if not is_too_large(g, size(lead(x, g.x))):
        return correlate_at_once(op, g, x, u)
    x, g = with_margin(op, g, x)
    longest = max(range(len(g.strides)), key=lambda axis: g.w[2 + axis])
    half, end = g.w[2 + longest] // 2, g.w[2 + longest]
    parts = (cut(op, g, x, longest, *part) for part in ((0, half), (half, end)))
    found = [correlate(op, *part, u) for part in parts]
    return op.Concat(*found, axis=longest - len(g.strides))


def is_too_large(g: Geometry, k: int) -> bool:
    """Whether patches of k signals have more than `MOST` entries, and there is what to cut."""
    sizes = (*g.w, *g.x, *g.u, k)
    if is_symbolic(sizes):  # no bound holds at every point
        return False
    entries = size(g.w[2:]) * size(g.u[2:]) * max(k * g.x[0] * g.x[1], FEWEST)
    return entries > MOST and size(g.w[2:]) > 1


def with_margin(op: Op, g: Geometry, x: Array) -> tuple[Array, Geometry]:
    """The signal inside its margin of zeros, and the geometry of that."""
    if not any(g.pads):
        return x, g
    x = op.Pad(x, g.pads, None, tuple(range(-len(g.strides), 0)))
    space = shape_of(x)[-len(g.strides) :]
    return x, replace(g, x=(*g.x[:2], *space), pads=(0,) * len(g.pads))


def cut(op: Op, g: Geometry, x: Array, axis: int, first: int, end: int) -> tuple[Geometry, Array]:
    """The kernel entries from `first` to `end` along a spatial axis, and what of x they meet."""
    start, step = first * g.dilations[axis], g.strides[axis]
    stop = (end - 1) * g.dilations[axis] + step * (g.u[2 + axis] - 1) + 1
    x = op.Slice(x, (start,), (stop,), (axis - len(g.strides),), (1,))
    w = with_length(g.w, 2 + axis, end - first)
    return replace(g, x=with_length(g.x, 2 + axis, stop - start), w=w), x


def with_length(shape: Shape, axis: int, length: int) -> Shape:
    """A shape with another length of one axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])


def correlate_at_once(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """One GEMM per group: (M/group × N·P) times (N·P × C/group·kernel).

    Or with P·N, where it is u that is quickly turned, so that patches are gathered for all samples
    at once.
    """
    n, m, c, p = g.u[0], g.w[0] // g.group, size(g.w[1:]), size(g.u[2:])
    k, last = lead(x, g.x) or lead(u, g.u), samples_last(g)
    rows = op.Reshape(u, (size(lead(u, g.u)), n, g.group, m, p))
    turned = (0, 2, 3, 4, 1) if last else (0, 2, 3, 1, 4)
    rows = op.Reshape(op.Transpose(rows, perm=turned), (-1, g.group, m, n * p))
    met = gathered_patches if last else patches
    columns = op.Reshape(met(op, g, x), (-1, g.group, c, n * p))
    return op.Reshape(op.MatMul(rows, op.Transpose(columns, perm=(0, 1, 3, 2))), (*k, *g.w))


MANY = 4
"""Turning u is repaid by patches that are so many times as large."""


def samples_last(g: Geometry) -> bool:
    """Whether patches are gathered for all samples at once, for which these must lie side by side.

    One sample already does. Where kernels are larger than what comes out, cuts would be many.

    >>> g = Geometry((2, 3, 6), (2, 3, 3), (2, 2, 4), (1,), (1,), (0, 0), 1)
    >>> [samples_last(other) for other in (g, replace(g, w=(3, 3, 3)), replace(g, u=(1, 2, 4)))]
    [True, False, False]
    >>> samples_last(replace(g, x=(1, 3, 4), u=(1, 2, 2)))
    True
    """
    if is_symbolic((g.x, g.w, g.u)):  # the index of what is gathered is a constant
        return False
    turned = g.u[0] > 1 and g.group * size(g.w[1:]) >= MANY * g.w[0]
    return turned or size(g.w[2:]) > size(g.u[2:])


def gathered_patches(op: Op, g: Geometry, x: Array) -> Array:
    """Every entry of x that each kernel entry meets: (*K, C, kernel entries · positions, N)."""
    d, k = len(g.strides), lead(x, g.x)
    x, _ = with_margin(op, g, x)
    r, space = len(k), shape_of(x)[-d:]
    x = op.Transpose(x, perm=(*range(r), *range(r + 1, r + 2 + d), r))
    x = op.Reshape(x, (*k, g.x[1], size(space), g.x[0]))
    return op.Gather(x, meetings(g, space), axis=r + 1)


@lru_cache(maxsize=64)
def meetings(g: Geometry, space: Shape) -> np.ndarray:
    """Where in the padded space, row-major, each kernel entry meets each position.

    >>> meetings(Geometry((1, 1, 3), (1, 1, 2), (1, 1, 2), (1,), (1,), (0, 0), 1), (3,))
    array([0, 1, 1, 2])
    """
    found, apart = np.zeros((), np.int64), np.cumprod((1, *space[:0:-1]))[::-1]
    for counts, steps in ((g.w[2:], g.dilations), (g.u[2:], g.strides)):
        for n, step in zip(counts, apart * steps, strict=True):
            found = np.add.outer(found, step * np.arange(n))
    return found.ravel()


def patches(op: Op, g: Geometry, x: Array) -> Array:
    """Every entry of x that each kernel entry meets: (*K, C, kernel entries, N, positions).

    Samples stand beside positions, so that all of them together are one axis of a matrix.
    """
    d, k = len(g.strides), lead(x, g.x)
    axes, r = tuple(range(-d, 0)), len(k)
    x, _ = with_margin(op, g, x)
    x = op.Transpose(x, perm=(*range(r), r + 1, r, *range(r + 2, r + 2 + d)))
    shape = (*k, g.x[1], 1, g.x[0], size(g.u[2:]))
    cuts = []
    for offset in product(*map(range, g.w[2:])):
        starts = tuple(i * r for i, r in zip(offset, g.dilations, strict=True))
        ends = tuple(
            a + s * (n - 1) + 1 for a, s, n in zip(starts, g.strides, g.u[2:], strict=True)
        )
        cuts.append(op.Reshape(op.Slice(x, starts, ends, axes, g.strides), shape))
    return op.Concat(*cuts, axis=-3)
