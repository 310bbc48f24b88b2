"""Workload: one computation, its point, and the products that are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """y = forward(nn, tensors), for any reading `nn`; its derivatives in `wrt`.

    With `labels`, the loss is the cross-entropy of y. An output is `narrow` where it is a few
    numbers per sample, which is when products through the layers above need not be repeated.
    `input` is the tensor that the ONNX model takes; the others are its initializers.
    J is dense `blocks`, one for a sample, where an expert could multiply them out by hand; `kept`
    numbers at least must then be read by every product. A `stencil` is a residual on a grid, of
    each point and its four neighbours. With `kinks`, rounding decides on which side of a few of
    them the point is, so that libraries agree less.
    """

    tensors: dict[str, np.ndarray]
    forward: Callable[[Any, Tensors], Any]
    wrt: tuple[str, ...]
    products: tuple[str, ...]
    labels: np.ndarray | None = None
    narrow: bool = False
    input: str = "x"
    blocks: bool = False
    kept: int = 0
    stencil: bool = False
    kinks: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The type of all its floating tensors."""
        return self.tensors[self.input].dtype

    @property
    def tolerance(self) -> float:
        """How far results may be from one another, relative to their norms."""
        if self.dtype == np.float64:
            return 1e-9
        return 1e-2 if self.kinks else 1e-4

    @property
    def point(self) -> tuple[np.ndarray, ...]:
        """The tensors of `wrt`."""
        return tuple(self.tensors[name] for name in self.wrt)

    @property
    def size(self) -> int:
        """The number of columns of J."""
        return sum(array.size for array in self.point)

    def draw(self, shape: Any, seed: int) -> np.ndarray:
        """The vector that every contender multiplies with."""
        return np.random.default_rng(seed).standard_normal(shape).astype(self.dtype)


def weights(seed: int, dtype: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Normal numbers with standard deviation 1/√fan-in; vectors around 0 with 0.1."""
    rng = np.random.default_rng(seed)
    return {name: drawn(rng, shape, fan_in(shape)).astype(dtype) for name, shape in shapes.items()}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], fan: float) -> np.ndarray:
    """Normal numbers with standard deviation 1/√fan."""
    return rng.standard_normal(shape) / np.sqrt(fan)


def fan_in(shape: tuple[int, ...]) -> float:
    """What is summed over: rows of a matrix, all but the first axis of kernels."""
    if len(shape) == 1:
        return 100.0
    return shape[0] if len(shape) == 2 else float(np.prod(shape[1:]))
