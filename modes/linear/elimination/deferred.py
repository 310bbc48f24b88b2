"""Deferred: arrays of known shape and dtype, whose values are computed only when needed.

Deferred arrays are one more reading of the vocabulary. Operators multiplied in this reading show
what they cost, and nothing is computed for a product that is not chosen. Deferred arrays stand for
the arrays of a point, or for graph values without numbers; then the result is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import is_not
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Jacobian, Shape, common, dtype_of, reading, reading_of, shape_of, size
from ....jacobians.placing import with_parts
from ....jacobians.readings import Reading, is_kept


class Deferred:
    """An array of known shape and dtype: one that is given, or what `make` computes, once, from the
    `inputs`. An array is `open` if its numbers are unknown, as for a graph value.
    """

    def __init__(
        self, shape: Shape, dtype: np.dtype, make: Callable[..., Any] | None = None,
        inputs: tuple[Any, ...] = (), given: Any = None,
    ) -> None:  # fmt: skip
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.make, self.inputs, self.known = make, inputs, given
        self.open = is_unknown(given) or any(map(is_unknown, inputs))

    @property
    def nbytes(self) -> int:
        """Bytes of the array once computed."""
        return size(self.shape) * self.dtype.itemsize

    @property
    def value(self) -> Any:
        """The array, computed without recursion, since expressions may be deep."""
        waiting = [self]
        while waiting:
            x = waiting[-1]
            missing = [i for i in x.inputs if isinstance(i, Deferred) and i.known is None]
            if x.known is None and not missing:
                assert x.make is not None
                made = x.make(*(i.known if isinstance(i, Deferred) else i for i in x.inputs))
                x.known = made if x.open or is_kept(made) else np.asarray(made, x.dtype)
            if x.known is not None:
                waiting.pop()
            waiting += missing
        return self.known


def is_unknown(x: Any) -> bool:
    """Whether an array has no numbers yet."""
    return type(x) is ir.Value or (isinstance(x, Deferred) and x.open)


class Deferring(Reading):
    """The vocabulary over deferred arrays: the calls that rewriting makes, with shape inference."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in SHAPES:
            raise AttributeError(name)
        return partial(self.call, name)

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Deferred:
        """The deferred result of an operator."""
        shapes = tuple(shape_of(x) if hasattr(x, "shape") else x if isinstance(x, tuple) else ()
                       for x in inputs)  # fmt: skip
        dtypes = (dtype_of(x) for x in inputs if hasattr(x, "dtype"))
        dtype = common(*(dtype for dtype in dtypes if dtype.kind not in "iu"))
        shape = SHAPES[op_type](*shapes, **attrs)
        return Deferred(shape, dtype, partial(run_operator, op_type, attrs), inputs)


def run_operator(name: str, attrs: dict[str, Any], *inputs: Any) -> Any:
    """An operator on arrays; a transpose is copied, so that products read contiguous memory."""
    arrays = [x for x in inputs if hasattr(x, "dtype")]
    value = getattr(reading_of(*arrays), name)(*inputs, **attrs)
    return value.copy() if name == "Transpose" and isinstance(value, np.ndarray) else value


SHAPES: dict[str, Callable[..., Shape]] = {
    "Add": np.broadcast_shapes,
    "Mul": np.broadcast_shapes,
    "MatMul": lambda a, b: (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]),
    "Reshape": lambda x, shape: shape,
    "Expand": np.broadcast_shapes,
    "Gather": lambda x, index, axis: (*x[:axis], *index, *x[axis + 1 :]),
    "Transpose": lambda x, perm: tuple(x[k] for k in perm),
}
"""Operator -> the shape of its result."""


@reading.register
def _(array: Deferred) -> Deferring:
    return DEFERRING


DEFERRING = Deferring()


def deferred(operator: Jacobian, leaves: dict[int, Deferred]) -> Jacobian:
    """The operator over deferred arrays, one for each array, kept in `leaves` by its identity."""

    def leaf(array: Any) -> Deferred:
        if id(array) not in leaves:
            leaves[id(array)] = Deferred(shape_of(array), dtype_of(array), given=array)
        return leaves[id(array)]

    return map_arrays(operator, lambda x: isinstance(x, np.ndarray | ir.Value) or is_kept(x), leaf)


def forced(operator: Jacobian) -> Jacobian:
    """The operator with its deferred arrays computed."""
    return map_arrays(operator, lambda x: isinstance(x, Deferred), lambda array: array.value)


def map_arrays(held: Any, kind: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """An operator, or an attribute, with its arrays of a kind changed; integer arrays stay."""
    if kind(held):
        return change(held) if dtype_of(held).kind not in "iu" else held
    if isinstance(held, tuple):
        parts = tuple(map_arrays(part, kind, change) for part in held)
        return parts if any(map(is_not, parts, held)) else held
    if not isinstance(held, Jacobian):
        return held
    return with_parts(held, lambda part: map_arrays(part, kind, change))
