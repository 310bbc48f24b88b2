"""A point next to the point: what differences are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model import Model
from .evaluate import evaluate


def perturbed(
    model: Model, point: Mapping[str, Any], shifts: Mapping[str, np.ndarray], engine: str | None
) -> dict[str, Any]:
    """The point at which each named tensor is what it would be, plus its shift.

    An intermediate is first computed from what was shifted before it, then shifted itself.
    """
    moved = dict(point)
    made = {name: k for k, step in enumerate(model.steps) for name in step.outputs}
    for name in sorted(shifts, key=lambda name: made.get(name, -1)):
        value = evaluate(model, moved, [name], engine=engine)[name]
        moved[name] = (value + shifts[name]).astype(value.dtype)
    return moved
