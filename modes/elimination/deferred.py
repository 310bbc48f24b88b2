"""Deferred: arrays of known shape and dtype, whose values are computed only when needed.

They are one more reading of the vocabulary. Operators multiplied in this reading show what they
cost, and nothing is computed for a product that is not chosen. Expressions built from the arrays
of one point are evaluated again with the arrays of another point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from operator import is_not
from typing import Any

import numpy as np

from ...jacobians import (
    Jacobian,
    Shape,
    common,
    reading,
    size,
)
from ...ops import numbers
from ...ops.numbers.layout import cuts

MOVES = ("Slice", "Transpose")


class Ground:
    """The arrays that deferred arrays are computed from, bound anew at each point.

    `met` lists a deferred array for each array encountered, `known` maps deferred arrays to values
    at one point. If all `decisions` are the same at another point, the expressions hold there too.
    """

    def __init__(self) -> None:
        self.met: list[Deferred] = []
        self.known: dict[Deferred, np.ndarray] = {}
        self.decisions: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        self._leaves: dict[int, Deferred] = {}

    def leaf(self, array: np.ndarray) -> Deferred:
        """The deferred array that stands for an array; one per array."""
        leaf = self._leaves.get(id(array))
        if leaf is None:
            leaf = self._leaves[id(array)] = Deferred(array.shape, array.dtype, ground=self)
            self.known[leaf] = array
        self.met.append(leaf)
        return leaf

    def holds(self, arrays: Sequence[np.ndarray]) -> bool:
        """Bind `met` to these arrays, in order, and tell whether all decisions stay the same."""
        kinds = [(a.shape, a.dtype) for a in arrays]
        if kinds != [(leaf.shape, leaf.dtype) for leaf in self.met]:
            return False
        self.known = dict(zip(self.met, arrays, strict=True))
        if any(self.known[leaf] is not a for leaf, a in zip(self.met, arrays, strict=True)):
            return False  # one shared array has become several
        return all(f(*map(numbers_of, xs)) == found for f, xs, found in self.decisions)

    def clear(self) -> None:
        """Release the values of the point."""
        self.known, self._leaves = {}, {}


class Deferred:
    """An array of known shape and dtype; `make` computes it from the `inputs`, once per point."""

    def __init__(
        self, shape: Shape, dtype: np.dtype, make: Callable[..., Any] = np.asarray,
        inputs: tuple[Any, ...] = (), ground: Ground | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.make, self.inputs = make, inputs
        self.ground = ground or ground_of(inputs)

    @property
    def nbytes(self) -> int:
        """Bytes of the array once computed."""
        return size(self.shape) * self.dtype.itemsize

    @property
    def value(self) -> np.ndarray:
        """The values, computed without recursion, since expressions may be deep."""
        known = self.ground.known if self.ground else dict[Deferred, np.ndarray]()
        waiting = [self]
        while waiting:
            x = waiting[-1]
            missing = [i for i in x.inputs if isinstance(i, Deferred) and i not in known]
            if missing:
                waiting += missing
                continue
            if x not in known:
                inputs = (known[i] if isinstance(i, Deferred) else i for i in x.inputs)
                known[x] = np.asarray(x.make(*inputs), x.dtype)
            waiting.pop()
        return known[self]


def ground_of(arrays: Iterable[Any]) -> Ground | None:
    """The ground of some arrays; None if all of them are constants."""
    grounds = (x.ground for x in arrays if isinstance(x, Deferred))
    return next((ground for ground in grounds if ground is not None), None)


def decided(function: Callable[..., Any], *arrays: Any) -> Any:
    """function(*arrays) on values, recorded as a decision with the ground of the arrays."""
    found = function(*map(numbers_of, arrays))
    if ground := ground_of(arrays):
        ground.decisions.append((function, arrays, found))
    return found


class Deferring:
    """The vocabulary over deferred arrays: the calls that rewriting makes, with shape inference."""

    def __getattr__(self, name: str) -> Callable[..., Deferred]:
        if name not in SHAPES:
            raise AttributeError(name)
        return partial(self.call, name)

    def call(self, name: str, *inputs: Any, **attrs: Any) -> Deferred:
        """The deferred result of an operator."""
        shapes = tuple(getattr(x, "shape", x if isinstance(x, tuple) else ()) for x in inputs)
        arrays = (x for x in inputs if hasattr(x, "dtype") and x.dtype.kind not in "iu")
        dtype = common(*(x.dtype for x in arrays))
        return Deferred(SHAPES[name](*shapes, **attrs), dtype, partial(run, name, attrs), inputs)


def run(name: str, attrs: dict[str, Any], *inputs: Any) -> np.ndarray:
    """An operator on arrays; views are copied, so that products read contiguous memory."""
    value = getattr(numbers, name)(*inputs, **attrs)
    return value.copy() if name in MOVES else value


def numbers_of(x: Any) -> Any:
    """The value of a deferred array; anything else as it is."""
    return x.value if isinstance(x, Deferred) else x


def summed(x: Shape, axes: tuple[int, ...], keepdims: int = 1) -> Shape:
    """The shape of a sum with `keepdims`."""
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


def deferred(operator: Jacobian, ground: Ground) -> Jacobian:
    """The operator over deferred arrays."""
    return mapped(operator, np.ndarray, ground.leaf)


def arrays_met(operators: Iterable[Jacobian]) -> list[np.ndarray]:
    """The arrays that `deferred` encounters in some operators, in order."""
    found: list[np.ndarray] = []

    def note(array: np.ndarray) -> np.ndarray:
        found.append(array)
        return array

    for operator in operators:
        mapped(operator, np.ndarray, note)
    return found


def forced(operator: Jacobian) -> Jacobian:
    """The operator with its deferred arrays computed."""
    return mapped(operator, Deferred, lambda array: array.value)


def mapped(held: Any, kind: Any, change: Callable[[Any], Any]) -> Any:
    """An operator, or an attribute, with its arrays of a kind changed; integer arrays stay."""
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
    twin.__dict__.pop("T", None)  # the cached transpose of the original operator
    twin.__dict__.update(made)
    return twin
