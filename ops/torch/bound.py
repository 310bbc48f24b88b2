"""Bound: the function of one node, with all that is known before it runs: shapes, axes, dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...jacobians import Shape, dtype_of, shape_of
from ...jacobians.arrays import DOUBLE, SINGLE
from ..numbers.table import FREE, ints
from . import tensors
from .table import HOSTED, KERNELS, SAME, STATIC


def bound(
    name: str, operands: Sequence[Any], known: Sequence[Any], attrs: Mapping[str, Any], shape: Shape
) -> Callable[..., Any]:
    """The function of all operands of a node, whose first output has this shape.

    `known` are the operands' numbers, None where they vary. Floats in single or double precision go
    straight to the kernel, everything else through the reading, which looks at each operand.
    """
    first = operands[:1] if name in HOSTED else operands
    rest = tuple(zip(operands, known, strict=True))[len(first) :]
    dtypes = {None if x is None else dtype_of(x) for x in first}
    told = all(x is None or y is not None for x, y in rest)
    if name not in KERNELS or not told or not dtypes <= {SINGLE, DOUBLE}:
        return partial(getattr(tensors, name), **attrs)
    if name in FREE:
        return lambda x, *_: x.expand(shape) if name == "Expand" else x.reshape(shape)
    if len(dtypes) == 1 and name in SAME:
        return SAME[name]
    if not rest:
        return partial(KERNELS[name], **attrs)
    held = tuple(ints(y) if hasattr(y, "dtype") and dtype_of(y).kind in "iu" else y
                 for _, y in rest)  # fmt: skip
    if name in STATIC:
        function = STATIC[name](shape_of(first[0]), *held, **attrs)
        return lambda x, *_: function(x)
    return lambda x, *_: KERNELS[name](x, *held, **attrs)
