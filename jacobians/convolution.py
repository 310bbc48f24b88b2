"""Convolution: three linear maps and their adjoints out of one trilinear form.

T(x, w, u) = ⟨conv(x, w), u⟩ is linear in the signal x (N, C, *size), in the kernel
w (M, C/group, *kernel) and in the output cotangent u (N, M, *positions). Hold one of them fixed,
vary a second one: the gradient in the third is a linear operator.

| source → target | held | what it is |
|---|---|---|
| x → u | w | ∂conv/∂signal; its adjoint u → x is a transposed convolution |
| w → u | x | ∂conv/∂kernel; its adjoint u → w is a correlation |
| w → x | u | ∂convtranspose/∂kernel; its adjoint x → w is a correlation |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from .arrays import Array, Op, Shape, dtype_of, lead, prod_text, shape_of, size
from .base import Jacobian


@dataclass(frozen=True)
class Geometry:
    """The shapes of signal, kernel and output, and how the kernel steps over the signal."""

    x: Shape
    w: Shape
    u: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    group: int

    @property
    def steps(self) -> dict[str, Any]:
        """The attributes that Conv and ConvTranspose share."""
        return {
            "kernel_shape": self.w[2:],
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
            "group": self.group,
        }

    @property
    def output_padding(self) -> Shape:
        """What a transposed convolution must add at the end to give back the size of x."""
        d = len(self.strides)
        padded = [
            n + a + b for n, a, b in zip(self.x[2:], self.pads[:d], self.pads[d:], strict=True)
        ]
        window = [k * (n - 1) + 1 for k, n in zip(self.dilations, self.w[2:], strict=True)]
        steps = [s * (n - 1) for s, n in zip(self.strides, self.u[2:], strict=True)]
        return tuple(p - w - s for p, w, s in zip(padded, window, steps, strict=True))


class Convolution(Jacobian):
    """The gradient of T(x, w, u) in `target` as a linear map of `source`; the third is `held`."""

    def __init__(self, held: Array, source: str, target: str, geometry: Geometry) -> None:
        out_shape, in_shape = getattr(geometry, target), getattr(geometry, source)
        super().__init__(out_shape, in_shape, dtype_of(held))
        self.held, self.source, self.target, self.geometry = held, source, target, geometry

    def _apply(self, op: Op, v: Array) -> Array:
        return MAPS[self.source, self.target](op, self.geometry, self.held, v)

    def _transpose(self) -> Jacobian:
        return Convolution(self.held, self.target, self.source, self.geometry)

    def arrays(self) -> Iterator[Array]:
        yield self.held

    @property
    def flops(self) -> int:
        return 2 * size(self.geometry.u) * size(self.geometry.w[1:])

    def __repr__(self) -> str:
        name = {"u": "conv", "x": "convᵀ", "w": "corr"}[self.target]
        return f"{name}_{self.source}[{prod_text(shape_of(self.held))}]"


def signal_to_output(op: Op, g: Geometry, w: Array, x: Array) -> Array:
    """x ↦ conv(x, w); leading axes join the batch."""
    flat = op.Reshape(x, (size(lead(x, g.x)) * g.x[0], *g.x[1:]))
    return op.Reshape(op.Conv(flat, w, **g.steps), (*lead(x, g.x), *g.u))


def output_to_signal(op: Op, g: Geometry, w: Array, u: Array) -> Array:
    """u ↦ convᵀ(u, w); leading axes join the batch."""
    flat = op.Reshape(u, (size(lead(u, g.u)) * g.u[0], *g.u[1:]))
    x = op.ConvTranspose(flat, w, output_padding=g.output_padding, **g.steps)
    return op.Reshape(x, (*lead(u, g.u), *g.x))


def kernel_to_output(op: Op, g: Geometry, x: Array, w: Array) -> Array:
    """w ↦ conv(x, w); leading axes join the output channels of each group."""
    k, m = size(lead(w, g.w)), g.w[0] // g.group
    flat = op.Reshape(w, (k, g.group, m, size(g.w[1:])))
    flat = op.Reshape(op.Transpose(flat, perm=(1, 0, 2, 3)), (g.group * k * m, *g.w[1:]))
    return channels_to_lead(op, op.Conv(x, flat, **g.steps), g.group, lead(w, g.w), g.u)


def kernel_to_signal(op: Op, g: Geometry, u: Array, w: Array) -> Array:
    """w ↦ convᵀ(u, w); leading axes join the output channels of each group."""
    k = size(lead(w, g.w))
    flat = op.Reshape(w, (k, g.w[0], size(g.w[1:])))
    flat = op.Reshape(op.Transpose(flat, perm=(1, 0, 2)), (g.w[0], k * g.w[1], *g.w[2:]))
    x = op.ConvTranspose(u, flat, output_padding=g.output_padding, **g.steps)
    return channels_to_lead(op, x, g.group, lead(w, g.w), g.x)


def channels_to_lead(op: Op, y: Array, group: int, k: Shape, shape: Shape) -> Array:
    """(N, group · K · channels, *s) -> (*K, N, group · channels, *s)."""
    split = (shape[0], group, size(k), shape[1] // group, size(shape[2:]))
    return op.Reshape(op.Transpose(op.Reshape(y, split), perm=(2, 0, 1, 3, 4)), (*k, *shape))


def correlate(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """(x, u) ↦ w, w[m, c, k] = Σₙₚ u[n, m, p] x[n, c, p · stride + k · dilation]; either may lead.

    One GEMM per group: (M/group × N·P) times (N·P × C/group·kernel), or with P·N where it is u that
    is quickly turned, so that patches are gathered for all samples at once.
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
    """
    turned = g.u[0] > 1 and g.group * size(g.w[1:]) >= MANY * g.w[0]
    return turned or size(g.w[2:]) > size(g.u[2:])


def gathered_patches(op: Op, g: Geometry, x: Array) -> Array:
    """Every entry of x that each kernel entry meets: (*K, C, kernel entries · positions, N)."""
    d, k = len(g.strides), lead(x, g.x)
    if any(g.pads):
        x = op.Pad(x, g.pads, None, tuple(range(-d, 0)))
    r, space = len(k), shape_of(x)[-d:]
    x = op.Transpose(x, perm=(*range(r), *range(r + 1, r + 2 + d), r))
    x = op.Reshape(x, (*k, g.x[1], size(space), g.x[0]))
    return op.Gather(x, meetings(g, space), axis=r + 1)


@lru_cache(maxsize=256)
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
    axes = tuple(range(-d, 0))
    if any(g.pads):
        x = op.Pad(x, g.pads, None, axes)
    r = len(k)
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


MAPS = {
    ("x", "u"): signal_to_output,
    ("u", "x"): output_to_signal,
    ("w", "u"): kernel_to_output,
    ("w", "x"): kernel_to_signal,
    ("u", "w"): correlate,
    ("x", "w"): lambda op, g, u, x: correlate(op, g, x, u),
}
"""(source, target) -> map(op, geometry, held, source)."""
