"""Places: where the entries of a tensor lie, as a strided view of memory that comes later.

A ghost is an array that has shape, strides and address, but no memory of its own: NumPy's views
of it say where the entries of a view will lie. A ghost is never read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from ....jacobians import Shape, size

ALIGNMENT = 64
"""Bytes: every buffer begins at the beginning of a cache line."""


class Role(Enum):
    """The kind of memory that a buffer gets."""

    CONSTANT = auto()
    """A residual, which is there already."""
    INPUT = auto()
    """v, another one at every product."""
    OUTPUT = auto()
    """y, which belongs to the caller."""
    WORK = auto()
    """Shared with other buffers whose lifetimes are disjoint."""
    KEPT = auto()
    """Its own, zeros at the beginning: what nothing writes stays zero from product to product."""


@dataclass(eq=False)
class Buffer:
    """A piece of memory of a program.

    Of a frame of zeros, `core` is the part inside: nothing else of it is ever written.
    """

    ghost: np.ndarray
    role: Role
    core: np.ndarray | None = None


@dataclass(frozen=True)
class Place:
    """A view of a buffer."""

    buffer: Buffer
    view: np.ndarray = field(repr=False)

    @property
    def shape(self) -> Shape:
        return self.view.shape

    @property
    def dtype(self) -> np.dtype:
        return self.view.dtype

    def moved(self, move: Callable[..., np.ndarray], *args: Any, **attrs: Any) -> Place:
        """The place of a view: `move` takes an array to a view of it."""
        return Place(self.buffer, move(self.view, *args, **attrs))

    def reshaped(self, shape: Shape) -> Place | None:
        """The place in another shape; None where that would be a copy."""
        try:
            return Place(self.buffer, self.view.reshape(shape, copy=False))
        except ValueError:
            return None

    def __getitem__(self, key: Any) -> Place:
        keys = key if isinstance(key, tuple) else (key,)
        if all(k is not Ellipsis for k in keys):
            keys = (*keys, ...)  # a view where NumPy would give a number
        return Place(self.buffer, self.view[keys])

    @property
    def constant(self) -> np.ndarray | None:
        """The numbers, where they are known already."""
        return self.view if self.buffer.role is Role.CONSTANT else None

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the buffer."""
        return address(self.view) - address(self.buffer.ghost) if self.view.size else 0

    def same(self, other: Place) -> bool:
        """Whether two places hold the same entries in the same order."""
        return (
            self.buffer is other.buffer and self.shape == other.shape
            and steps(self.view) == steps(other.view) and self.offset == other.offset
        )  # fmt: skip

    def binding(self) -> Callable[[Mapping[Buffer, np.ndarray]], np.ndarray]:
        """The function that gives the array, once the buffers have memory."""
        if self.constant is not None:
            return lambda memory: self.view
        buffer, offset, strides = self.buffer, self.offset, self.view.strides
        shape, dtype = self.shape, self.dtype
        return lambda memory: np.ndarray(shape, dtype, memory[buffer], offset, strides)


def steps(view: np.ndarray) -> list[int]:
    """The strides of the axes along which there is a step to take."""
    return [stride for n, stride in zip(view.shape, view.strides, strict=True) if n > 1]


def address(view: np.ndarray) -> int:
    """Where the first entry lies."""
    return int(view.__array_interface__["data"][0])


def ghost(shape: Shape, dtype: Any) -> np.ndarray:
    """An array in row-major order without memory."""
    one = np.empty(1, dtype)
    strides = [size(shape[k + 1 :]) * one.itemsize for k in range(len(shape))]
    return np.lib.stride_tricks.as_strided(one, shape, strides)


def ordered_like(view: np.ndarray, shape: Shape, dtype: Any) -> np.ndarray:
    """A ghost whose axes lie in memory in the same order as the axes of a view."""
    order = sorted(range(len(shape)), key=lambda k: -abs(view.strides[k]))
    inverse = [order.index(k) for k in range(len(shape))]
    return ghost(tuple(shape[k] for k in order), dtype).transpose(inverse)


def new(shape: Shape, dtype: Any, role: Role = Role.WORK) -> Place:
    """A new buffer as a whole."""
    whole = ghost(shape, dtype)
    return Place(Buffer(whole, role), whole)


def constant(array: np.ndarray) -> Place:
    """A residual where it is."""
    return Place(Buffer(array, Role.CONSTANT), array)
