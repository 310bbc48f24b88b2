"""Estimate: steps whose derivative is zero, replaced by their straight-through estimators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...ops import Step
from ...ops.rules.estimators import DOMAIN

ESTIMATED = frozenset({"Round", "Floor", "Ceil", "Sign"})


def straight_through(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same steps; roundings and pairs QuantizeLinear → DequantizeLinear become estimators."""
    made: dict[str | None, Step] = {}
    found = []
    for step in steps:
        made.update((name, step) for name in step.outputs if name)
        found.append(estimator(step, made))
    return tuple(found)


def estimator(step: Step, made: dict[str | None, Step]) -> Step:
    """The estimator of a step, or the step itself."""
    if step.domain:
        return step
    if step.op_type in ESTIMATED:
        return replace(step, domain=DOMAIN, version=1)
    before = made.get(step.inputs[0]) if step.op_type == "DequantizeLinear" else None
    if before is None or before.op_type != "QuantizeLinear" or before.inputs[1:] != step.inputs[1:]:
        return step
    inputs, kept = (before.inputs[0], *step.inputs[1:]), {"axis": 1, "block_size": 0}
    attrs = {**kept, **step.attrs}
    return replace(
        step, op_type="QuantizeDequantize", domain=DOMAIN, version=1, inputs=inputs, attrs=attrs
    )
