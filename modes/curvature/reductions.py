"""Reductions: sums and means over samples, as options and as the last steps of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ...jacobians.errors import InputError, warn
from ..model.primal.model import Model

Reduction = Literal["sum", "mean"]

MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast", "Neg", "Flatten"})
"""Operators that preserve sums and means up to sign."""
TAKEN = {"ReduceSum": "sum", "ReduceMean": "mean"}
LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})


def reduction_of(model: Model, of: str) -> str | None:
    """`"sum"` or `"mean"`, from the last steps before `of`; None if they are neither."""
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


def warn_of_other(reduction: str | None, model: Model, of: str) -> None:
    """Warn where the model's last steps show another reduction than the one that is stated."""
    found = reduction_of(model, of)
    if found and reduction and found != reduction:
        warn(f"reduction={reduction!r} says how the model reduces over samples, but {of!r} ends in "
             f"a {found}: unless that is over other axes, say {found!r}")  # fmt: skip


def factor(wanted: str, found: str | None, of: str, batch: tuple[int, ...]) -> float:
    """The factor from the model's reduction over N samples to the wanted reduction."""
    if found is None or not batch:
        raise InputError(
            f"the model does not end in a sum or a mean over samples that make {of!r}: leave out "
            f"reduction= and scale the operator"
        )
    scale: dict[str, Callable[[int], float]] = {"sum": float, "mean": weight_in_mean}
    return 1.0 if wanted == found else scale[wanted](batch[0])


def weight_in_mean(terms: int) -> float:
    """1 / N, the weight of each of N terms in a mean; raises `InputError` for no terms."""
    if not terms:
        raise InputError("a batch has no samples, and so no mean: leave it out, or take "
                         "reduction='sum'")  # fmt: skip
    return 1 / terms
