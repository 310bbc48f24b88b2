"""Shortcuts: calls that need no node, or a simpler one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Shape, dtype_of, shape_of, size
from ...jacobians.symint import Number, is_symbolic, largest, quotient, same, whole
from .shapes import CONTENT

Operands = tuple[Array | None, ...]
BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div"})
SHORTCUTS: dict[str, Callable[..., Any]] = {
    "Identity": lambda op, x: x,
    "Concat": lambda op, *parts, axis: parts[0] if len(parts) == 1 else None,
}


def shortcut(op: Any, op_type: str, arrays: Operands, attrs: dict[str, Any]) -> Any:
    """The result of a call that needs no node, or a simpler one; else None."""
    if op_type in BROADCASTING and (before := unrepeated(*arrays)):
        return getattr(op, op_type)(*before)
    rule = SHORTCUTS.get(op_type)
    return None if rule is None else rule(op, *arrays, **attrs)


def unrepeated(x: Array, y: Array) -> tuple[Array, Array] | None:
    """The operands, one of them as it was before an Expand to the shape of the other one."""
    for k, (one, other) in enumerate(((x, y), (y, x))):
        node, shape = made_by(one, "Expand"), shape_of(one)
        if node is not None and same(shape_of(other)[-len(shape) :], shape):
            return (node.inputs[0], other) if k == 0 else (other, node.inputs[0])
    return None


def simplifies(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the shortcut for some operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        SHORTCUTS.update(dict.fromkeys(names, function))
        return function

    return register


def made_by(x: Any, op_type: str) -> ir.Node | None:
    """The node that made a value, if it has this op_type."""
    node = x.producer() if isinstance(x, ir.Value) else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


def is_constant(x: Any, number: float) -> bool:
    """Whether an operand is a constant scalar of that value."""
    if x is None or isinstance(x, ir.Value):
        return False
    return np.size(x) == 1 and bool(np.all(x == number))


def entries(x: Array) -> tuple[Number, ...] | None:
    """The numbers of an integer tensor, or None if they are not tracked."""
    if isinstance(x, ir.Value) and x.const_value is not None:
        return tuple(x.const_value.numpy().tolist())
    held = x.meta.get(CONTENT) if isinstance(x, ir.Value) else x
    return None if held is None else tuple(map(whole, np.ravel(held)))


@simplifies("CastLike")
def _cast_like(op: Any, x: Array, like: Array) -> Array:
    target = dtype_of(like)
    if not isinstance(x, ir.Value):
        return np.asarray(x, target)
    return op.Cast(x, to=int(ir.DataType.from_numpy(target)))


@simplifies("Cast")
def _cast(op: Any, x: Array, to: int) -> Array | None:
    return x if dtype_of(x) == ir.DataType(to).numpy() else None


@simplifies("Reshape")
def _reshape(op: Any, x: Array, shape: Array, **attrs: Any) -> Array | None:
    asked = entries(shape)
    if asked is None:
        return None
    target = resolved(asked, shape_of(x))
    if same(target, shape_of(x)):
        return x
    before = made_by(x, "Reshape")
    if before is not None:
        return op.Reshape(before.inputs[0], target)
    may_be_empty = is_symbolic(target) or 0 in target
    if may_be_empty and not attrs.get("allowzero"):  # 0 is an empty axis, not a copied size
        return op.Reshape(x, target, allowzero=1)
    return None if same(target, asked) else op.Reshape(x, target, **attrs)


def resolved(target: Shape, shape: Shape) -> Shape:
    """A target shape with -1 spelt out.

    >>> resolved((-1, 2), (3, 4))
    (6, 2)
    """
    known = largest(math.prod(n for n in target if not same(n, -1)), 1)
    return tuple(quotient(math.prod(shape), known) if same(n, -1) else n for n in target)


@simplifies("Transpose")
def _transpose(op: Any, x: Array, perm: Any) -> Array | None:
    if tuple(perm) == tuple(range(len(perm))):
        return x
    before = made_by(x, "Transpose")
    if before is None:
        return None
    held = before.attributes.get("perm")  # reversed axes by default
    first = tuple(reversed(range(len(perm)))) if held is None else held.as_ints()
    return op.Transpose(before.inputs[0], perm=tuple(first[k] for k in perm))


@simplifies("Expand")
def _expand(op: Any, x: Array, shape: Array) -> Array | None:
    sizes = entries(shape)
    return x if sizes is not None and same(sizes, shape_of(x)) else None


@simplifies("Pad")
def _pad(
    op: Any, x: Array, pads: Array, value: Any, axes: Array | None = None, **attrs: Any
) -> Array | None:
    """Pads for all axes: ONNX Runtime 1.31 misreads a subset of axes after a Transpose."""
    held = entries(axes) if axes is not None else None
    sizes = entries(pads)
    if held is None or sizes is None:
        return None
    rank, count = len(shape_of(x)), len(held)
    full = [0] * (2 * rank)
    for k, axis in enumerate(held):
        full[axis % rank], full[rank + axis % rank] = sizes[k], sizes[count + k]
    return op.Pad(x, tuple(full), value, **attrs)


@simplifies("Mul")
def _mul(op: Any, x: Array, y: Array) -> Array | None:
    for kept, other in ((x, y), (y, x)):
        if is_constant(other, 1) and np.ndim(other) <= len(shape_of(kept)):
            return kept
    return None


@simplifies("Div")
def _div(op: Any, x: Array, y: Array) -> Array | None:
    return x if is_constant(y, 1) and np.ndim(y) <= len(shape_of(x)) else None


@simplifies("Neg")
def _neg(op: Any, x: Array) -> Array | None:
    before = made_by(x, "Neg")
    return None if before is None else before.inputs[0]


@simplifies("Add")
def _add(op: Any, x: Array, y: Array) -> Array | None:
    if (before := made_by(y, "Neg")) is not None:
        return op.Sub(x, before.inputs[0])
    before = made_by(x, "Neg")
    return None if before is None else op.Sub(y, before.inputs[0])


@simplifies("Sub")
def _sub(op: Any, x: Array, y: Array) -> Array | None:
    before = made_by(y, "Neg")
    return None if before is None else op.Add(x, before.inputs[0])


@simplifies("Gather")
def _gather(op: Any, x: Array, index: Array, axis: int = 0) -> Array | None:
    """GatherElements instead for rows of one number: ONNX Runtime takes a fifth of the time.

    ONNX's reference evaluator, which may run a model, cannot gather more than 64 elements.
    """
    shape = shape_of(index)
    if op.is_model or len(shape_of(x)) != 1 or not shape or dtype_of(x).kind != "f":
        return None
    return op.Reshape(op.GatherElements(x, op.Reshape(index, (size(shape),)), axis=0), shape)


@simplifies("ScatterND")
def _scatter_nd(
    op: Any, x: Array, index: Array, updates: Array, reduction: str = "none"
) -> Array | None:
    """ScatterElements instead, where places may repeat: ONNX Runtime reduces rows of ScatterND in
    concurrent threads, so that some updates to the same place are lost.
    """
    shape, depth = shape_of(x), shape_of(index)[-1]
    if reduction == "none" or not op.is_model:
        return None
    if depth != 1:
        sizes, rest = shape[:depth], shape[depth:]
        places = op.Where(op.Less(index, 0), op.Add(index, sizes), index)
        strides = tuple(size(sizes[k + 1 :]) for k in range(depth))
        index = op.ReduceSum(op.Mul(places, strides), (-1,), keepdims=1)
        flat = op.Reshape(x, (size(sizes), *rest))
        return op.Reshape(op.ScatterND(flat, index, updates, reduction=reduction), shape)
    places = entries(index)
    if places and not is_symbolic((*places, shape[0])) and apart(places, shape[0]):
        return None
    rows, rest = size(shape_of(index)), shape[1:]
    column = op.Reshape(index, (rows, *(1 for _ in rest)))
    whole = (rows, *rest)
    return op.ScatterElements(
        x, op.Expand(column, whole), op.Reshape(updates, whole), axis=0, reduction=reduction
    )


def apart(places: tuple[Any, ...], n: int) -> bool:
    """Whether all places on an axis of length n differ; negative ones count from the end."""
    return len({place % n for place in places}) == len(places)
