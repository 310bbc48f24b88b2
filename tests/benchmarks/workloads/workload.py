"""Workload: one computation, its point, and the products that are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """y = forward(nn, tensors), for any reading `nn`, to be differentiated by `wrt`.

    With `labels`, the loss is the cross-entropy of y. An output is `narrow` if it has few
    numbers per sample, so that products through the upper layers need not be repeated. `input` is
    the input of the ONNX model; the other tensors are its initializers. With `blocks`, J is block
    diagonal with a dense block per sample, which an expert could multiply out; every product must
    then read at least `kept` numbers. A `stencil` is a residual on a grid that couples each point
    with its four neighbours. With `kinks`, rounding errors decide on which side of a few kinks the
    point is, so that libraries agree less closely.
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
        """The dtype of all floating tensors."""
        return self.tensors[self.input].dtype

    @property
    def tolerance(self) -> float:
        """The tolerance between results, relative to their norms."""
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
    """Normal numbers with mean 0 and standard deviation 1/√fan-in; 0.1 for vectors."""
    rng = np.random.default_rng(seed)
    return {name: drawn(rng, shape, fan_in(shape)).astype(dtype) for name, shape in shapes.items()}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], fan: float) -> np.ndarray:
    """Normal numbers with standard deviation 1/√fan."""
    return rng.standard_normal(shape) / np.sqrt(fan)


def fan_in(shape: tuple[int, ...]) -> float:
    """The number of terms in each sum: the rows of a matrix, all but the first axis of kernels."""
    if len(shape) == 1:
        return 100.0
    return shape[0] if len(shape) == 2 else float(np.prod(shape[1:]))
