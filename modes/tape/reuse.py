"""Reuse: the tensors that are the same at two points, and the blocks that are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arrays import buffer_of
from ...ops import Step
from ..flow.steps import SHAPES, reads
from .draws import is_random

SMALL = 64
"""Integers to remember of a tensor: enough for every shape, axis and pad."""


@dataclass(frozen=True)
class Basis:
    """What the blocks of a step depend on: tensors, and what is remembered of all its tensors."""

    tensors: frozenset[str]
    seen: tuple[Any, ...]


def basis_of(step: Step, blocks: Iterable[Jacobian], values: Mapping[str, Any]) -> Basis:
    """A rule never looks at floating numbers: its blocks depend on those that they hold.

    (In a graph there are none to look at.) A block with arrays that the rule computed depends on
    all tensors of the step; so does a block of a foreign operator, whose rule may do anything.
    """
    names = {name for name in (*step.inputs, *step.outputs) if name is not None}
    owners = {buffer_of(values.get(name)): name for name in names}
    held = {buffer_of(array) for J in blocks for array in J.arrays()}
    seen = seen_of(step, values)
    if step.domain not in ("", "ai.onnx") or not held <= owners.keys():
        return Basis(frozenset(names), seen)
    unseen = {name for name in names if is_long(values.get(name))}
    return Basis(frozenset(unseen | {owners[key] for key in held}), seen)


def seen_of(step: Step, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of every tensor of a step its shape and type, and its numbers where they are few integers."""
    return tuple(_seen(values.get(name)) for name in (*step.inputs, *step.outputs) if name)


def _seen(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return None
    known = value.size == 1 or (value.dtype.kind in "iub" and value.size <= SMALL)
    return value.shape, value.dtype, value.tobytes() if known else None


def is_long(value: Any) -> bool:
    """Whether a value is neither floating nor remembered: a long index, a mask, a sequence."""
    return not isinstance(value, np.ndarray) or (value.dtype.kind in "iub" and value.size > SMALL)


def stale_between(
    steps: Iterable[Step], old: Mapping[str, Any], new: Mapping[str, Any]
) -> frozenset[str]:
    """The tensors whose values may differ between two points."""
    changed = {name for name in {*old, *new} if not same(old.get(name), new.get(name))}
    return frozenset(moving(steps, changed, shapes=True))


def moving(steps: Iterable[Step], names: Iterable[str], *, shapes: bool = False) -> set[str]:
    """The tensors that depend on the numbers of the named ones, or also on their `shapes`."""
    found = set(names)
    for step in steps:
        seen = shapes or step.op_type not in SHAPES
        if is_random(step) or (seen and not found.isdisjoint(reads(step))):
            found.update(name for name in step.outputs if name is not None)
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two inputs are equal arrays."""
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return a is b or (arrays and np.array_equal(a, b))
