"""Run: iterations one after the other, watched, until they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from ..reporting.progress import Tick, counting
from .problem import Problem

Callback = Callable[[OptimizeResult], Any]

GOING, GRADIENT, VALUE, STEP, STUCK, ENOUGH, STOPPED = None, 1, 2, 3, -1, 0, 99

MESSAGES = {
    GRADIENT: "the gradient, or the residual, is within its tolerance",
    VALUE: "the reductions of the objective, real and predicted, are within their tolerance",
    STEP: "the step is within its tolerance",
    STUCK: "no step in the direction found makes the objective smaller",
    ENOUGH: "the maximum number of iterations is reached",
    STOPPED: "the callback raised StopIteration",
}


def watching(label: str, progress: bool) -> AbstractContextManager[Tick]:
    """A bar that counts iterations, if asked for, on a terminal."""
    if progress:
        return counting(label, "iterations", sys.stderr)
    return nullcontext(lambda n: None)


def state(problem: Problem, x: np.ndarray, status: int | None, **more: Any) -> OptimizeResult:
    """Where a solver stands; `status` says why it ends there, or that it goes on."""
    counts = {"nfev": problem.values.count, "njev": problem.jacobian.count}
    tensors = problem.unflatten(x)
    return OptimizeResult(x=x, tensors=tensors, status=status, **counts, **more)


def run(
    states: Iterator[OptimizeResult],
    *,
    label: str,
    maxiter: int,
    callback: Callback | None,
    progress: bool,
) -> OptimizeResult:
    """The last state: the solver's own end, the callback's, or that after `maxiter` iterations.

    The states count their iterations, `nit`, from 0, where the solver starts.
    """
    with watching(label, progress) as tick:
        for found in states:
            tick(1)
            if found.status is GOING and found.nit >= maxiter:
                found.status = ENOUGH
            if found.nit and not _goes_on(callback, found):
                found.status = STOPPED
            if found.status is not GOING:
                break
    found.success, found.message = found.status in (GRADIENT, VALUE, STEP), MESSAGES[found.status]
    return found


def _goes_on(callback: Callback | None, found: OptimizeResult) -> bool:
    try:
        if callback is not None:
            callback(found)
    except StopIteration:
        return False
    return True
