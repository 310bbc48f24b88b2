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

from .arrays import Array, Op, Shape, dtype_of, factor, lead, prod_text, shape_of, size
from .base import Jacobian
from .correlation import correlate
from .errors import InputError
from .geometry import Geometry
from .identity import Zero
from .symint import agree, is_symbolic, largest, same


def convolution_of(held: Array, source: str, target: str, geometry: Geometry) -> Jacobian:
    """The gradient of T(x, w, u) in `target`; 0 where a sample of one of them has no elements.

    >>> import numpy as np
    >>> g = Geometry((1, 1, 0), (1, 1, 3), (1, 1, 2), (1,), (1,), (2, 2), 1)
    >>> convolution_of(np.zeros(g.x), "w", "u", g)
    0(1×1×2, 1×1×3)
    """
    out_shape, in_shape = getattr(geometry, target), getattr(geometry, source)
    if any(same(n, 0) for n in (*geometry.x[1:], *geometry.w, *geometry.u[1:])):
        return Zero(out_shape, in_shape, dtype_of(held))
    return Convolution(held, source, target, geometry)


class Convolution(Jacobian):
    """The gradient of T(x, w, u) in `target` as a linear map of `source`; the third is `held`."""

    def __init__(self, held: Array, source: str, target: str, geometry: Geometry) -> None:
        held = factor(held)
        if (source, target) not in MAPS:
            raise InputError(f"Convolution: a map from {source!r} to {target!r} is none of "
                             f"{', '.join(' to '.join(pair) for pair in MAPS)}")  # fmt: skip
        (third,) = {"x", "w", "u"} - {source, target}
        if not agree(shape_of(held), getattr(geometry, third)) or not geometry.fits:
            raise InputError(f"Convolution: {third} of shape {list(shape_of(held))} is held where "
                             f"the geometry is {geometry}")  # fmt: skip
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
    return op.Reshape(transposed_convolution(op, g, flat, w), (*lead(u, g.u), *g.x))


def transposed_convolution(op: Op, g: Geometry, u: Array, w: Array) -> Array:
    """convᵀ(u, w) of the size of x, which an attribute cannot say where it is symbolic."""
    if not is_symbolic(g.output_padding):
        return op.ConvTranspose(u, w, output_padding=g.output_padding, **g.steps)
    d = len(g.strides)
    whole = op.ConvTranspose(u, w, **{**g.steps, "pads": (0,) * (2 * d)})
    starts, axes = g.pads[:d], tuple(range(-d, 0))
    ends = tuple(a + n for a, n in zip(starts, g.x[2:], strict=True))
    short = zip(ends, shape_of(whole)[-d:], strict=True)
    more = tuple(largest(end - n, 0) for end, n in short)
    return op.Slice(op.Pad(whole, (*(0,) * d, *more), None, axes), starts, ends, axes)


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
    x = transposed_convolution(op, g, u, flat)
    return channels_to_lead(op, x, g.group, lead(w, g.w), g.x)


def channels_to_lead(op: Op, y: Array, group: int, k: Shape, shape: Shape) -> Array:
    """(N, group · K · channels, *s) -> (*K, N, group · channels, *s)."""
    split = (shape[0], group, size(k), shape[1] // group, size(shape[2:]))
    return op.Reshape(op.Transpose(op.Reshape(y, split), perm=(2, 0, 1, 3, 4)), (*k, *shape))


MAPS = {
    ("x", "u"): signal_to_output,
    ("u", "x"): output_to_signal,
    ("w", "u"): kernel_to_output,
    ("w", "x"): kernel_to_signal,
    ("u", "w"): correlate,
    ("x", "w"): lambda op, g, u, x: correlate(op, g, x, u),
}
"""(source, target) -> map(op, geometry, held, source)."""
