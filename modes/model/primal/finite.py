"""Finite: one warning where the tensors of a point are not finite, with the node that began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....jacobians.arrays import is_tensor
from ....jacobians.errors import OnnxJacError, warn
from ....ops.node import Step
from ..flow.contents import Contents
from ..flow.steps import needed, reads
from .evaluate import evaluate
from .inputs import hosted


def warn_nonfinite(
    model: Contents, values: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> None:
    """Warn once if a value is NaN or infinite, and name the node that made the first of them.

    The search goes back from a bad value through bad inputs. With `inputs`, intermediate values
    that were not kept are recomputed.
    """
    bad = next((name for name, value in values.items() if not finite(value)), None)
    if bad is None:
        return
    known = hosted({**model.constants, **(inputs or {}), **values})
    if inputs is not None:
        known.update(_all_before(model, hosted(inputs), bad))
    what = _culprit(model, known, bad)
    warn(f"{bad!r} is not finite at this point: {what}.")


def finite(value: Any) -> bool:
    """Whether an array holds no NaN and no infinity; types without such values are finite."""
    if is_tensor(value):
        return bool(value.isfinite().all())
    kind = getattr(value, "dtype", np.dtype(object)).kind
    return kind in "iubOSUT" or bool(np.isfinite(value).all())


def _all_before(model: Contents, inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    indices, _ = needed(model.steps, [name], inputs)
    names = [output for i in indices for output in model.steps[i].outputs if output]
    try:
        return evaluate(model, inputs, names)
    except OnnxJacError:  # too much at once; the message is then less exact
        return {}


def _culprit(model: Contents, known: Mapping[str, Any], bad: str) -> str:
    makers = {name: step for step in model.steps for name in step.outputs}
    while bad in makers:
        step = makers[bad]
        worse = (name for name in reads(step) if name in known and not finite(known[name]))
        earlier = next(worse, None)
        if earlier is None:
            return f"{step} makes it from {_inputs(step, known)}"
        bad = earlier
    return f"{bad!r} was given so"


def _inputs(step: Step, known: Mapping[str, Any]) -> str:
    """The inputs with the ranges of their numbers, which usually tell why."""
    parts = []
    for name in step.inputs:
        value = known.get(name) if name else None
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f":
            parts.append(f"{name} in [{value.min():.3g}, {value.max():.3g}]")
        elif name:
            parts.append(name)
    return ", ".join(parts) or "no inputs"
