"""Moving: the tensors whose numbers are others at another point of the same shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...ops import Step
from ..flow.control import CONTROL
from ..flow.sequences import SEQUENCES
from ..flow.steps import SHAPES, needed, reads
from ..model import Model
from ..primal.draws import draws
from .reuse import RANDOM
from .unroll import is_defined, is_variable

DATA = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "CastLike", "Clip", "Concat", "Equal",
    "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mul", "Neg", "NegativeLogLikelihoodLoss", "Not", "Or",
    "ScatterElements", "ScatterND", "SoftmaxCrossEntropyLoss", "Sub", "Transpose", "Where",
})  # fmt: skip
"""Operators that take integers as data: the shapes of their results do not depend on them."""

FIRST = frozenset({"Expand", "Flatten", "Reshape", "Slice", "Squeeze", "Tile", "Unsqueeze"})
"""Operators whose first input is data, and no other."""

COUNTS = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Range", "Resize", "Unique"})
"""Operators whose results have shapes that numbers decide, also others than integers."""


def moving(steps: Iterable[Step], point: Collection[str]) -> set[str]:
    """The tensors that depend on the numbers of the point, not only on its shapes."""
    found = set(point)
    for step in steps:
        seen = step.op_type not in SHAPES and not found.isdisjoint(reads(step))
        if seen or step.op_type in RANDOM:
            found.update(name for name in step.outputs if name is not None)
    return found


def is_general(model: Model, point: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether the flat model is the same at other points: unrolling asks for no moving number."""
    known = all(is_variable(model, name, array) for name, array in point.items())
    return known and is_shaped(model, point, names)


def is_shaped(model: Model, point: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether all shapes on the way to some tensors follow from those of the point.

    Control flow and draws may ask for any number; definitions and sequences only for integers.
    """
    steps = [model.steps[k] for k in needed(model.steps, names, point)[0]]
    found = moving(steps, point)
    counting = {name for name in found if may_count(model, name)}
    return not any(asks(step, found, counting) for step in steps)


def asks(step: Step, found: Collection[str], counting: Collection[str]) -> bool:
    """Whether a step is unrolled, or shaped, by numbers of the point."""
    if step.domain not in ("", "ai.onnx"):
        moved = any(name in found for name in step.inputs)
        return moved and (not is_defined(step) or any(n in counting for n in step.inputs))
    if step.op_type in CONTROL or draws(step, {}):
        return True
    if step.op_type in COUNTS:
        return any(name in found for name in step.inputs[step.op_type == "Resize" :])
    if step.op_type in DATA:
        return False
    first = step.op_type in FIRST or step.op_type in SEQUENCES
    return any(name in counting for name in step.inputs[first:])


def may_count(model: Model, name: str) -> bool:
    """Whether a tensor may be one of integers."""
    dtype = model.spec(name).dtype
    return dtype is None or dtype.kind in "iu"
