"""General: whether a model that was unrolled at one point is the same at others of its shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...ops import Step
from ..flow.control import CONTROL
from ..flow.sequences import SEQUENCES
from ..flow.steps import needed, reads
from ..model import Model
from ..primal.draws import draws
from .unroll import is_variable

SHAPES = frozenset({"Shape", "Size"})
"""Operators that see no numbers."""

COUNTS = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression"})
"""Operators whose results have shapes that the numbers decide."""


def is_general(model: Model, point: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether unrolling asks for no number that is another one at another point.

    Control flow and draws may ask for any; definitions and shapes only for integers.
    """
    if not all(is_variable(model, name, array) for name, array in point.items()):
        return False
    steps = [model.steps[k] for k in needed(model.steps, names, point)[0]]
    moving = {name for name in point}
    for step in steps:
        if asks(step) or (step.op_type in COUNTS and not moving.isdisjoint(reads(step))):
            return False
        if step.op_type not in SHAPES and not moving.isdisjoint(reads(step)):
            moving.update(name for name in step.outputs if name is not None)
    return not any(may_count(model, name) for name in moving)


def asks(step: Step) -> bool:
    """Whether a step must be run to be unrolled."""
    special = step.op_type in CONTROL or step.op_type in SEQUENCES
    return (not step.domain and special) or draws(step, {})


def may_count(model: Model, name: str) -> bool:
    """Whether a tensor is, as far as is known, one of integers."""
    dtype = model.spec(name).dtype
    return dtype is None or dtype.kind in "iu"
