"""Convolution: three linear maps and their adjoints from one trilinear form.

T(x, w, u) = ⟨conv(x, w), u⟩ is linear in the signal x (N, C, *size), in the kernel
w (M, C/group, *kernel) and in the output cotangent u (N, M, *positions). With one of them held
fixed, the gradient in a second one is a linear map of the third.

| source → target | held | operator |
|---|---|---|
| x → u | w | ∂conv/∂signal; its adjoint u → x is a transposed convolution |
| w → u | x | ∂conv/∂kernel; its adjoint u → w is a correlation |
| w → x | u | ∂convtranspose/∂kernel; its adjoint x → w is a correlation |

A correlation is a matrix product with gathered patches, or a convolution over samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from .arrays import SINGLE, Array, Op, Shape, dtype_of, factor, held_text, lead, shape_of, size
from .base import Jacobian
from .elementwise import Zero
from .errors import InputError
from .symint import agree, at, is_symbolic, largest, same

GATHERED_ENTRIES = 2**26
"""About how many patch entries are gathered at once; larger kernels are split."""

ENTRIES_PER_INDEX = 64
"""The least number of patch entries that one gather index counts as."""

PATCHES_PER_ENTRY = 4
"""How many times larger than u patches must be for a transpose of u to pay off."""


@dataclass(frozen=True)
class Geometry:
    """The shapes of signal, kernel and output, and how the kernel steps over the signal.

    `x`, `w` and `u` are the shapes of signal, kernel and output; `strides`, `dilations`, `pads` and
    `group` are the attributes of Conv.
    """

    x: Shape
    w: Shape
    u: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    group: int

    @property
    def fits(self) -> bool:
        """Whether the shapes fit one convolution."""
        d = len(self.strides)
        ranks = {len(self.x), len(self.w), len(self.u)} == {d + 2}
        if not ranks or len(self.dilations) != d or len(self.pads) != 2 * d:
            return False
        x, w, u = map(at, (self.x, self.w, self.u))
        samples, channels = x[0] == u[0], x[1] == self.group * w[1]
        groups = self.group > 0 and w[0] % self.group == 0 and w[0] == u[1]
        return samples and channels and groups and min(at(self.output_padding), default=0) >= 0

    @property
    def steps(self) -> dict[str, Any]:
        """The attributes that Conv and ConvTranspose share."""
        kernel = None if is_symbolic(self.w[2:]) else self.w[2:]
        return {"kernel_shape": kernel, "strides": self.strides, "dilations": self.dilations,
                "pads": self.pads, "group": self.group}  # fmt: skip

    @property
    def reach(self) -> Shape:
        """Where the last window ends, counted from the first entry of x, which pads may precede."""
        pairs = ((self.w, self.dilations), (self.u, self.strides))
        spans = (zip(shape[2:], steps, strict=True) for shape, steps in pairs)
        return tuple(1 - begin + sum(step * (n - 1) for n, step in axis)
                     for begin, *axis in zip(self.pads, *spans, strict=False))  # fmt: skip

    @property
    def output_padding(self) -> Shape:
        """Entries that a transposed convolution must add at the end to recover the size of x."""
        axes = zip(self.x[2:], self.pads[len(self.strides) :], self.reach, strict=True)
        return tuple(n + end - last for n, end, last in axes)


def convolution_of(held: Array, source: str, target: str, geometry: Geometry) -> Jacobian:
    """The gradient of T(x, w, u) in `target`; zero where an axis other than the batch is empty.

    The arguments `held`, `source`, `target`, `geometry` are described at `Convolution`.

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
    """The gradient of T(x, w, u) in `target` as a linear map of `source`; the third is `held`.

    `source` and `target` are two of `"x"`, `"w"` and `"u"`; `geometry` holds all shapes and steps.
    """

    holds = ("held",)

    def __init__(self, held: Array, source: str, target: str, geometry: Geometry) -> None:
        held = factor(held)
        if (source, target) not in MAPS:
            raise InputError(f"Convolution: a map from {source!r} to {target!r} is none of "
                             f"{', '.join(' to '.join(pair) for pair in MAPS)}")  # fmt: skip
        (self.third,) = {"x", "w", "u"} - {source, target}
        if not agree(shape_of(held), getattr(geometry, self.third)) or not geometry.fits:
            raise InputError(f"Convolution: {self.third} of shape {list(shape_of(held))} is held "
                             f"where the geometry is {geometry}")  # fmt: skip
        out_shape, in_shape = getattr(geometry, target), getattr(geometry, source)
        super().__init__(out_shape, in_shape, dtype_of(held))
        self.held, self.source, self.target, self.geometry = held, source, target, geometry

    def _apply(self, op: Op, v: Array) -> Array:
        return MAPS[self.source, self.target](op, self.geometry, self.held, v)

    def _transpose(self) -> Jacobian:
        return Convolution(self.held, self.target, self.source, self.geometry)

    def met(self, op: Op, y: Array, end: str) -> Array:
        """The sums of y, one of x and u, over what the entries of the other one, `end`, meet, by
        the operators of `op`.
        """
        g, shape = self.geometry, getattr(self.geometry, end)
        n, many = g.x[0] * g.group, shape[1] // g.group
        g = replace(g, x=(n, 1, *g.x[2:]), w=(1, 1, *g.w[2:]), u=(n, 1, *g.u[2:]), group=1)
        J = Convolution(op.Expand(np.ones((), SINGLE), g.w), self.target, end, g)
        y = op.ReduceSum(op.Reshape(y, (n, -1, *self.out_shape[2:])), (1,), keepdims=1)
        return op.Reshape(op.Expand(J._apply(op, y), (n, many, *shape[2:])), shape)

    @property
    def flops(self) -> int:
        return 2 * size(self.geometry.u) * size(self.geometry.w[1:])

    def __repr__(self) -> str:
        name = {"u": "conv", "x": "convᵀ", "w": "corr"}[self.target]
        return f"{name}_{self.source}[{held_text(self.held)}]"


def signal_to_output(op: Op, g: Geometry, w: Array, x: Array) -> Array:
    """x ↦ conv(x, w); leading axes join the batch."""
    flat = op.Reshape(x, (size(lead(x, g.x)) * g.x[0], *g.x[1:]))
    return op.Reshape(op.Conv(flat, w, **g.steps), (*lead(x, g.x), *g.u))


def output_to_signal(op: Op, g: Geometry, w: Array, u: Array) -> Array:
    """u ↦ convᵀ(u, w); leading axes join the batch."""
    flat = op.Reshape(u, (size(lead(u, g.u)) * g.u[0], *g.u[1:]))
    return op.Reshape(transposed_convolution(op, g, flat, w), (*lead(u, g.u), *g.x))


def transposed_convolution(op: Op, g: Geometry, u: Array, w: Array) -> Array:
    """convᵀ(u, w) with the size of x, which cannot be an attribute where it is symbolic."""
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


def correlate(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """(x, u) ↦ w, w[m, c, k] = Σₙₚ u[n, m, p] x[n, c, p · stride + k · dilation].

    Either may have leading axes. The number of entries gathered at once is bounded.
    """
    taps, k = size(g.w[2:]), size(lead(x, g.x))
    sizes, by_samples = (*shape_of(x), *shape_of(u)), op.convolves_samples
    if by_samples and not is_symbolic(sizes) and min(g.reach) > 0:
        return over_samples(op, g, x, u)
    if is_symbolic((*g.w, *g.x, *g.u, k)) or taps <= 1:  # no bound holds at every point
        return correlate_at_once(op, g, x, u)
    if taps * size(g.u[2:]) * max(k * g.x[0] * g.x[1], ENTRIES_PER_INDEX) <= GATHERED_ENTRIES:
        return correlate_at_once(op, g, x, u)
    x, g = with_margin(op, g, x)
    longest = max(range(len(g.strides)), key=lambda axis: g.w[2 + axis])
    half, end = g.w[2 + longest] // 2, g.w[2 + longest]
    parts = (cut_geometry(op, g, x, longest, *part) for part in ((0, half), (half, end)))
    found = [correlate(op, *part, u) for part in parts]
    return op.Concat(*found, axis=longest - len(g.strides))


def over_samples(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """A convolution with u as the kernel, whose channels are the samples of each group, and with
    strides and dilations exchanged. Entries of x that no window reaches are cut off.
    """
    of_x, of_u, d = lead(x, g.x), lead(u, g.u), len(g.strides)
    (n, m), c, space = g.u[:2], g.w[1], tuple(map(min, g.x[2:], g.reach))
    if space != g.x[2:]:
        x = op.Slice(x, (0,) * d, space, tuple(range(-d, 0)))
    ends = tuple(a - b for a, b in zip(g.reach, space, strict=True))
    steps: dict[str, Any] = {"strides": g.dilations, "dilations": g.strides, "group": g.group,
             "pads": (*g.pads[:d], *ends)}  # fmt: skip
    x = op.Reshape(x, (size(of_x), n, g.group, c, size(space)))
    x = op.Reshape(op.Transpose(x, perm=(0, 3, 2, 1, 4)), (size(of_x) * c, g.group * n, *space))
    u = op.Reshape(u, (size(of_u), n, g.group, m // g.group, size(g.u[2:])))
    u = op.Reshape(op.Transpose(u, perm=(2, 0, 3, 1, 4)), (size(of_u) * m, n, *g.u[2:]))
    w = op.Reshape(op.Conv(x, u, **steps),
                   (size(of_x), c, g.group, size(of_u), m // g.group, size(g.w[2:])))  # fmt: skip
    return op.Reshape(op.Transpose(w, perm=(0, 3, 2, 4, 1, 5)), (*of_x, *of_u, *g.w))


def with_margin(op: Op, g: Geometry, x: Array) -> tuple[Array, Geometry]:
    """The zero-padded signal, and the geometry without pads."""
    if not any(g.pads):
        return x, g
    x = op.Pad(x, g.pads, None, tuple(range(-len(g.strides), 0)))
    space = shape_of(x)[-len(g.strides) :]
    return x, replace(g, x=(*g.x[:2], *space), pads=(0,) * len(g.pads))


def cut_geometry(
    op: Op, g: Geometry, x: Array, axis: int, first: int, end: int
) -> tuple[Geometry, Array]:
    """The geometry of kernel entries [first, end) on a spatial axis, and the part of x they use."""
    start, step = first * g.dilations[axis], g.strides[axis]
    stop = (end - 1) * g.dilations[axis] + step * (g.u[2 + axis] - 1) + 1
    x = op.Slice(x, (start,), (stop,), (axis - len(g.strides),), (1,))
    w, space = list(g.w), shape_of(x)[-len(g.strides) :]
    w[2 + axis] = end - first
    return replace(g, x=(*g.x[:2], *space), w=tuple(w)), x


def correlate_at_once(op: Op, g: Geometry, x: Array, u: Array) -> Array:
    """One GEMM per group: (M/group × N·P) times (N·P × C/group·kernel).

    With P·N instead where u is cheap to transpose, so that patches are gathered for all samples at
    once.
    """
    n, m, c, p = g.u[0], g.w[0] // g.group, size(g.w[1:]), size(g.u[2:])
    k, last = lead(x, g.x) or lead(u, g.u), samples_last(g)
    rows = op.Reshape(u, (size(lead(u, g.u)), n, g.group, m, p))
    turned = (0, 2, 3, 4, 1) if last else (0, 2, 3, 1, 4)
    rows = op.Reshape(op.Transpose(rows, perm=turned), (-1, g.group, m, n * p))
    met = gathered_patches if last else kernel_patches
    columns = op.Reshape(met(op, g, x), (-1, g.group, c, n * p))
    return op.Reshape(op.MatMul(rows, op.Transpose(columns, perm=(0, 1, 3, 2))), (*k, *g.w))


def samples_last(g: Geometry) -> bool:
    """Whether patches are gathered for all samples at once, with samples as the last axis.

    One sample needs no transpose. Kernels larger than the output would need many slices.

    >>> g = Geometry((2, 3, 6), (2, 3, 3), (2, 2, 4), (1,), (1,), (0, 0), 1)
    >>> [samples_last(other) for other in (g, replace(g, w=(3, 3, 3)), replace(g, u=(1, 2, 4)))]
    [True, False, False]
    >>> samples_last(replace(g, x=(1, 3, 4), u=(1, 2, 2)))
    True
    """
    if is_symbolic((g.x, g.w, g.u)):  # the gather index is a constant
        return False
    turned = g.u[0] > 1 and g.group * size(g.w[1:]) >= PATCHES_PER_ENTRY * g.w[0]
    return turned or size(g.w[2:]) > size(g.u[2:])


def gathered_patches(op: Op, g: Geometry, x: Array) -> Array:
    """The patches of x, by one gather: (*K, C, kernel entries · positions, N)."""
    d, k = len(g.strides), lead(x, g.x)
    x, _ = with_margin(op, g, x)
    r, space = len(k), shape_of(x)[-d:]
    x = op.Transpose(x, perm=(*range(r), *range(r + 1, r + 2 + d), r))
    x = op.Reshape(x, (*k, g.x[1], size(space), g.x[0]))
    return op.Gather(x, meetings(g, space), axis=r + 1)


@lru_cache(maxsize=64)
def meetings(g: Geometry, space: Shape) -> np.ndarray:
    """Row-major indices into the padded space, for each kernel entry and output position.

    >>> meetings(Geometry((1, 1, 3), (1, 1, 2), (1, 1, 2), (1,), (1,), (0, 0), 1), (3,))
    array([0, 1, 1, 2])
    """
    found, apart = np.zeros((), np.int64), np.cumprod((1, *space[:0:-1]))[::-1]
    for counts, steps in ((g.w[2:], g.dilations), (g.u[2:], g.strides)):
        for n, step in zip(counts, apart * steps, strict=True):
            found = np.add.outer(found, step * np.arange(n))
    return found.ravel()


def kernel_patches(op: Op, g: Geometry, x: Array) -> Array:
    """The patches of x, one slice per kernel entry: (*K, C, kernel entries, N, positions).

    Samples are next to positions, so that both together form one axis of a matrix.
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


MAPS = {
    ("x", "u"): signal_to_output,
    ("u", "x"): output_to_signal,
    ("w", "u"): kernel_to_output,
    ("w", "x"): kernel_to_signal,
    ("u", "w"): correlate,
    ("x", "w"): lambda op, g, u, x: correlate(op, g, x, u),
}
"""(source, target) -> map(op, geometry, held, source)."""
