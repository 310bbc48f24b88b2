"""Reductions: what a model takes over the samples of its loss, a sum or a mean."""

from __future__ import annotations

from ..model import Model

MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast", "Neg", "Flatten"})
"""What changes neither sums nor means, up to a sign."""
TAKEN = {"ReduceSum": "sum", "ReduceMean": "mean"}
LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})


def reduction_of(model: Model, of: str) -> str | None:
    """`"sum"` or `"mean"`, by the last steps that make `of`; None where they are other steps."""
    made = {name: step for step in model.steps for name in step.outputs if name}
    while of in made:
        step = made[of]
        if step.op_type in LOSSES:
            taken = step.attrs.get("reduction", "mean")
            return taken if taken in ("sum", "mean") else None
        if step.op_type not in MOVES:
            return TAKEN.get(step.op_type)
        of = step.inputs[0] or ""
    return None
