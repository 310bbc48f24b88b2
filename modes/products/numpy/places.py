"""Places: where the entries of a tensor lie, as a strided view of memory allocated later.

A ghost is an array with shape, strides and address, but without memory of its own: NumPy's views of
it tell where the entries of a view will lie. A ghost is never read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from ....jacobians import Shape, size

ALIGNMENT = 64
"""Alignment of every buffer in bytes: the size of a cache line."""


class Role(Enum):
    """The kind of memory that a buffer gets."""

    CONSTANT = auto()
    """An array that exists already, such as a residual."""
    INPUT = auto()
    """v, a new array at every product."""
    OUTPUT = auto()
    """y, which belongs to the caller."""
    WORK = auto()
    """Shared with other buffers whose lifetimes are disjoint."""
    KEPT = auto()
    """Not shared, initially zero: entries that nothing writes stay zero from product to product."""


@dataclass(eq=False)
class Buffer:
    """A piece of memory of a program.

    In a frame of zeros, `core` is the part inside: nothing outside of it is ever written.
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
        """The place of a view: `move` maps an array to a view of it."""
        return Place(self.buffer, move(self.view, *args, **attrs))

    def reshaped(self, shape: Shape) -> Place | None:
        """The place in another shape; None if that requires a copy."""
        try:
            return Place(self.buffer, self.view.reshape(shape, copy=False))
        except ValueError:
            return None

    def __getitem__(self, key: Any) -> Place:
        keys = key if isinstance(key, tuple) else (key,)
        if all(k is not Ellipsis for k in keys):
            keys = (*keys, ...)  # a view where NumPy would return a scalar
        return Place(self.buffer, self.view[keys])

    @property
    def constant(self) -> np.ndarray | None:
        """The array, if it is constant; else None."""
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
        """A function that makes the array once the buffers have memory."""
        if self.constant is not None:
            return lambda memory: self.view
        buffer, offset, strides = self.buffer, self.offset, self.view.strides
        shape, dtype = self.shape, self.dtype
        return lambda memory: np.ndarray(shape, dtype, memory[buffer], offset, strides)


def steps(view: np.ndarray) -> list[int]:
    """The strides of the axes of length > 1."""
    return [stride for n, stride in zip(view.shape, view.strides, strict=True) if n > 1]


def address(view: np.ndarray) -> int:
    """The address of the first entry."""
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
    """A place that spans a new buffer."""
    whole = ghost(shape, dtype)
    return Place(Buffer(whole, role), whole)


def constant(array: np.ndarray) -> Place:
    """The place of an array that exists already."""
    return Place(Buffer(array, Role.CONSTANT), array)
