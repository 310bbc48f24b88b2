"""Dependence: which tensors move with others, and on which tensors the blocks of a step depend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....jacobians import Jacobian
from ....jacobians.arrays import buffer_of
from ....ops import Step
from ....ops.registry import traits_of
from ...model.flow.steps import SHAPES, reads


def behind(step: Step, blocks: Iterable[Jacobian], values: Mapping[str, Any]) -> frozenset[str]:
    """The tensors of a step that its blocks depend on.

    A rule never looks at floating numbers, so a block depends on the tensors that it holds and on
    all integer and boolean tensors. A block with arrays that the rule computed depends on all
    tensors of the step, and so does a block of a foreign operator, whose rule may do anything.
    """
    names = frozenset(name for name in (*step.inputs, *step.outputs) if name is not None)
    owners = {buffer_of(values.get(name)): name for name in names}
    held = {buffer_of(array) for J in blocks for array in J.arrays()}
    if step.domain not in ("", "ai.onnx") or not held <= owners.keys():
        return names
    return frozenset(n for n in names if is_discrete(values.get(n))) | {owners[k] for k in held}


def is_discrete(value: Any) -> bool:
    """Whether a rule may look at the numbers of a value: integers, booleans, sequences."""
    return not isinstance(value, np.ndarray) or value.dtype.kind in "iub"


def moving(steps: Iterable[Step], names: Iterable[str], *, shapes: bool = False) -> set[str]:
    """The tensors that depend on the numbers, or also on the `shapes`, of named tensors."""
    found = set(names)
    for step in steps:
        seen = shapes or step.op_type not in SHAPES
        if traits_of(step).random or (seen and not found.isdisjoint(reads(step))):
            found.update(name for name in step.outputs if name is not None)
    return found
