"""Sequences and optionals: lists of tensors, of known length at the point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....jacobians import shape_of
from ....ops import Step

Tensors = list[Any]


def construct(op: Any, step: Step, at: Any, *tensors: Any) -> Tensors:
    return list(tensors)


def empty(op: Any, step: Step, at: Any) -> Tensors:
    return []


def element(op: Any, step: Step, at: Any, sequence: Tensors, position: Any) -> Any:
    return sequence[int(at(position))]


def insert(
    op: Any, step: Step, at: Any, sequence: Tensors, tensor: Any, position: Any = None
) -> Tensors:
    made, where = list(sequence), len(sequence) if position is None else int(at(position))
    made.insert(where, tensor)
    return made


def erase(op: Any, step: Step, at: Any, sequence: Tensors, position: Any = None) -> Tensors:
    made = list(sequence)
    del made[-1 if position is None else int(at(position))]
    return made


def length(op: Any, step: Step, at: Any, sequence: Tensors) -> Any:
    return np.asarray(len(sequence), np.int64)


def concat(op: Any, step: Step, at: Any, sequence: Tensors) -> Any:
    """ConcatFromSequence: along an axis, or along a new one."""
    axis = step.attrs["axis"]
    if step.attrs.get("new_axis", 0):
        sequence = [op.Unsqueeze(x, (axis,)) for x in sequence]
    return op.Concat(*sequence, axis=axis)


def split(op: Any, step: Step, at: Any, x: Any, parts: Any = None) -> Tensors:
    """SplitToSequence: in pieces of one entry, of a given length, or of given lengths."""
    axis = step.attrs.get("axis", 0)
    n = shape_of(x)[axis]
    sizes = [1] * n if parts is None else [int(k) for k in np.ravel(at(parts))]
    if parts is not None and np.ndim(at(parts)) == 0:
        (width,) = sizes
        sizes = [min(width, n - start) for start in range(0, n, width)]
    pieces = op.Split(x, np.array(sizes), axis=axis, outputs=len(sizes)) if len(sizes) > 1 else (x,)
    if parts is None and not step.attrs.get("keepdims", 1):
        pieces = tuple(op.Squeeze(piece, (axis,)) for piece in pieces)
    return list(pieces)


def optional(op: Any, step: Step, at: Any, value: Any = None) -> Any:
    return value


def has_element(op: Any, step: Step, at: Any, value: Any = None) -> Any:
    return np.asarray(value is not None)


SEQUENCES: dict[str, Callable[..., Any]] = {
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceAt": element,
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceLength": length,
    "ConcatFromSequence": concat,
    "SplitToSequence": split,
    "Optional": optional,
    "OptionalGetElement": optional,
    "OptionalHasElement": has_element,
}
