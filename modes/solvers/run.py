"""Run: iterations one after the other, watched, until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...jacobians.progress import counting
from .problem import Problem
from .result import OptimizeResult

Callback = Callable[[OptimizeResult], Any]
"""What is called with the state after every iteration."""

GOING, GRADIENT, VALUE, STEP, STUCK, ENOUGH, STOPPED = None, 1, 2, 3, -1, 0, 99

MESSAGES = {
    GRADIENT: "the gradient, or the residual, is within its tolerance",
    VALUE: "the reductions of the objective, real and predicted, are within their tolerance",
    STEP: "the step is within its tolerance",
    STUCK: "no step along the direction found makes the objective smaller",
    ENOUGH: "the maximum number of iterations is reached",
    STOPPED: "the callback raised StopIteration",
}


def state(problem: Problem, status: int | None, **more: Any) -> OptimizeResult:
    """Where a solver stands; `status` says why it ends there, or that it goes on."""
    counts = {"nfev": problem.values.count, "njev": problem.jacobian.count}
    return OptimizeResult(tensors=problem.unflatten(more["x"]), status=status, **counts, **more)


def run(
    states: Iterator[OptimizeResult],
    label: str,
    maxiter: int,
    callback: Callback | None,
    progress: bool | None = None,
) -> OptimizeResult:
    """The last state: the solver's own end, the callback's, or that after `maxiter` iterations.

    The states count their iterations, `nit`, from 0, which is the start. A terminal shows how many
    there are so far.
    """
    with counting(label, "iterations", shown=progress) as tick:
        for found in states:
            if found.nit:
                tick(1)
                found.status = STOPPED if stops(callback, found) else found.status
            if found.status is GOING and found.nit >= maxiter:
                found.status = ENOUGH
            if found.status is not GOING:
                break
    return finished(found)


def finished(found: OptimizeResult) -> OptimizeResult:
    """The state that a solver ends in, with what its status means."""
    found.success, found.message = found.status in (GRADIENT, VALUE, STEP), MESSAGES[found.status]
    return found


def stops(callback: Callback | None, found: OptimizeResult) -> bool:
    """Whether the callback, if there is one, says that this is enough."""
    try:
        if callback is not None:
            callback(found)
    except StopIteration:
        return True
    return False
