"""Geometry: how the kernel of a convolution steps over the signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .arrays import Shape
from .symint import at, is_symbolic


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
    def fits(self) -> bool:
        """Whether one convolution has these shapes."""
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
        return {
            "kernel_shape": None if is_symbolic(self.w[2:]) else self.w[2:],
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
