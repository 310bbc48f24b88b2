"""Euler: implicit steps of u̇ = F(u), each found as the root of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.sparse.linalg import gmres

from ...jacobians import dtype_of, shape_of
from ...jacobians.errors import InputError, NotConverged
from ..linear.tape.trace import trace
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import check_inputs
from ..model.primal.model import Model
from ..model.primal.names import Names, names_of
from ..recording.derive import like, started
from .iteration import Callback, OptimizeResult, Preconditioner, Reused
from .newton_krylov import Solver, newton_krylov

STEP = "step"
"""The input of an Euler residual that holds h."""


def implicit_euler(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    step: float,
    steps: int,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    maxiter: int = 50,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> Iterator[OptimizeResult]:
    """u₊ = u + h F(u₊) for u̇ = F(u), in successive steps of length h.

    F are the tensors of `of`, and u the tensors of `wrt`, in the same order. The results come from
    `newton_krylov`, which takes the options from `solver` on, and have the time `t` since the
    start; the Jacobian is I − h ∂F/∂u. A function that builds a preconditioner is called again
    only after a linear system that took over three times the products of the first.

    Shapes: F has the shapes of u, tensor by tensor; the x of a result is u, flat, of shape (n,).
    Units: h is in units of time, F in units of u per time. Raises `NotConverged` where a step
    does not converge, `InputError` where shapes, names or dtypes do not fit, `UnsupportedOp` for an
    operator without a rule.
    """
    euler = euler_residual(model, inputs, of=of, wrt=wrt, engine=engine)
    names = names_of(model, wrt, model.inputs, "wrt")
    u = evaluate(model, check_inputs(model, inputs), names, engine=engine)
    kept = None if preconditioner is None else Reused(preconditioner)
    for k in range(steps):
        point = at_step({**inputs, **u}, u, step)
        found = newton_krylov(
            euler, point, wrt=names, solver=solver, preconditioner=kept, rtol=rtol, atol=atol,
            maxiter=maxiter, callback=callback, progress=progress, engine=engine,
        )  # fmt: skip
        if not found.success:
            raise NotConverged(f"implicit Euler, step {k + 1} of {steps}: {found.message}; take a "
                               f"smaller step than {step:g}, or more iterations")  # fmt: skip
        found.t, u = step * (k + 1), found.tensors
        yield found


def euler_residual(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Model:
    """G(u) = u − u₋ − h F(u) as a model of its own, with ∂G/∂u = I − h ∂F/∂u.

    Its new inputs are `step` (h) and, for every u, `u_before` (u₋); its outputs are `u_residual`.

    Shapes: `u_before` and `u_residual` have the shape of u, as F has; `step` is a scalar. Raises
    `InputError` where F and u differ in their shapes, and where a name, a shape or a dtype does not
    fit.
    """
    rates = names_of(model, of, model.outputs, "of")
    states = names_of(model, wrt, model.inputs, "wrt")
    t = trace(model, check_inputs(model, inputs), (*rates, *states), engine)
    shapes = [[shape_of(t.values[name]) for name in names] for names in (rates, states)]
    if shapes[0] != shapes[1]:
        raise InputError(f"the rates {list(rates)} have shapes {shapes[0]}, but the states "
                         f"{list(states)} {shapes[1]}: name the states by wrt=, and as many rates "
                         "by of=")  # fmt: skip
    op, before = t.recorder, [like(t, name, before_of(name)) for name in states]
    h = op.new((), dtype_of(t.values[states[0]]), STEP)
    draft = started(t, [*before, h], (), states)
    for rate, name, past in zip(rates, states, before, strict=True):
        moved = op.Mul(h, t.values[rate])
        draft.outputs[f"{name}_residual"] = op.Sub(op.Sub(t.values[name], past), moved)
    return draft.model("implicit_euler")


def at_step(point: Mapping[str, Any], before: Mapping[str, np.ndarray], h: float) -> dict[str, Any]:
    """The inputs of an Euler residual: the inputs of the model, u before the step, and h."""
    dtype = next(iter(before.values())).dtype
    return {**point, **{before_of(n): u for n, u in before.items()}, STEP: np.asarray(h, dtype)}


def before_of(name: str) -> str:
    """The input that holds a state before the step."""
    return f"{name}_before"
