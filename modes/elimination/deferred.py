"""Deferred: arrays of which only shape and dtype are known until their numbers are needed.

They are one more reading of the vocabulary. Operators that are multiplied in it show what they
would cost, and nothing is computed for a product that is then not chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Jacobian,
    Shape,
    common,
    reading,
    size,
)
from ...ops import numbers
from ...ops.numbers.layout import cuts

MOVES = ("Slice", "Transpose")


class Deferred:
    """An array of known shape and dtype; `value` computes it, once, from what `make` is given."""

    def __init__(
        self, shape: Shape, dtype: np.dtype, make: Callable[..., Any], inputs: tuple[Any, ...] = ()
    ) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.make, self.inputs = make, inputs
        self.known: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return size(self.shape) * self.dtype.itemsize

    @property
    def value(self) -> np.ndarray:
        """The numbers. Long products are computed from their ends, without recursion."""
        waiting = [self]
        while waiting:
            missing = [x for x in waiting[-1].inputs if isinstance(x, Deferred) and x.known is None]
            if missing:
                waiting += missing
            else:
                waiting.pop().compute()
        assert self.known is not None
        return self.known

    def compute(self) -> None:
        """Compute it from inputs that are known, and let go of them."""
        if self.known is None:
            self.known = np.asarray(self.make(*map(numbers_of, self.inputs)), self.dtype)
            self.make, self.inputs = np.asarray, ()


class Deferring:
    """The vocabulary over deferred arrays: the calls that rewriting makes, by their shapes."""

    def __getattr__(self, name: str) -> Callable[..., Deferred]:
        if name not in SHAPES:
            raise AttributeError(name)
        return partial(self.call, name)

    def call(self, name: str, *inputs: Any, **attrs: Any) -> Deferred:
        """The result of an operator, later."""
        shapes = tuple(getattr(x, "shape", x if isinstance(x, tuple) else ()) for x in inputs)
        arrays = (x for x in inputs if hasattr(x, "dtype") and x.dtype.kind not in "iu")
        dtype = common(*(x.dtype for x in arrays))
        return Deferred(SHAPES[name](*shapes, **attrs), dtype, partial(run, name, attrs), inputs)


def run(name: str, attrs: dict[str, Any], *inputs: Any) -> np.ndarray:
    """An operator on numbers; what it moved is copied, so that products read it in order."""
    value = getattr(numbers, name)(*inputs, **attrs)
    return value.copy() if name in MOVES else value


def numbers_of(x: Any) -> Any:
    """A deferred array as numbers; anything else as it is."""
    return x.value if isinstance(x, Deferred) else x


def summed(x: Shape, axes: tuple[int, ...], keepdims: int = 1) -> Shape:
    """The shape of a sum that keeps its axes."""
    return tuple(1 if k - len(x) in axes else n for k, n in enumerate(x))


def sliced(x: Shape, *where: Shape) -> Shape:
    """The shape of a slice."""
    return tuple(len(range(n)[cut]) for n, cut in zip(x, cuts(x, *where), strict=True))


SHAPES: dict[str, Callable[..., Shape]] = {
    "Add": np.broadcast_shapes,
    "Abs": lambda x: x,
    "Mul": np.broadcast_shapes,
    "MatMul": lambda a, b: (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]),
    "Reshape": lambda x, shape: shape,
    "Expand": np.broadcast_shapes,
    "Gather": lambda x, index, axis: (*x[:axis], *index, *x[axis + 1 :]),
    "Transpose": lambda x, perm: tuple(x[k] for k in perm),
    "ReduceSum": summed,
    "Slice": sliced,
}
"""Operator -> the shape of its result."""


@reading.register
def _(array: Deferred) -> Deferring:
    return DEFERRING


DEFERRING = Deferring()


def deferred(operator: Jacobian, known: dict[int, Deferred]) -> Jacobian:
    """The operator over deferred arrays; `known` keeps one for each array."""

    def defer(array: Array) -> Deferred:
        if id(array) not in known:
            known[id(array)] = Deferred(array.shape, array.dtype, lambda: array)
        return known[id(array)]

    return mapped(operator, np.ndarray, defer)


def forced(operator: Jacobian) -> Jacobian:
    """The operator over numbers."""
    return mapped(operator, Deferred, lambda array: array.value)


def mapped(held: Any, kind: Any, change: Callable[[Any], Array]) -> Any:
    """The attribute of an operator with each array of a kind changed; integers stay as they are."""
    if isinstance(held, kind):
        return change(held) if held.dtype.kind not in "iu" else held
    if isinstance(held, tuple):
        parts = tuple(mapped(part, kind, change) for part in held)
        return parts if any(map(is_not, parts, held)) else held
    if not isinstance(held, Jacobian):
        return held
    made = {name: mapped(getattr(held, name), kind, change) for name in held.holds}
    if all(part is getattr(held, name) for name, part in made.items()):
        return held
    twin = copy(held)
    twin.__dict__.pop("T", None)  # the transpose of the operator as it was
    twin.__dict__.update(made)
    return twin
