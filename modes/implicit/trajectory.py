"""Trajectory: u(T; p) by implicit steps, and the derivatives of exactly these steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, final

import numpy as np

from ...jacobians import Block, Take, dtype_of, shape_of
from ...jacobians.arguments import Above0, Count, Positive, validated
from ...jacobians.errors import InputError
from ...jacobians.threads import cached_property
from ..linear.chained import Implied, Named, chain_jacobians, implied_in, pick_tensors
from ..linear.symmetric import Curvature
from ..model.flow.contents import unique_name
from ..model.flow.nodes import Nodes
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, Specs, check_inputs, distinct, names_of
from ..model.primal.model import Model, ModelLike, TensorSpec, as_model
from ..solvers.implicit_system import LinearSolver
from ..solvers.iteration import Preconditioner
from ..solvers.problem import states_of, time_of
from ..solvers.roots import euler_residual
from .linear_solves import LinearSolves
from .steps import Checkpoints, Steps
from .sweep import Sweep


@validated
def trajectory(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    x: Names,
    wrt: Names = None,
    t: str | None = None,
    step: Above0,
    steps: Positive,
    method: Literal["implicit_euler", "bdf2"] = "implicit_euler",
    integral: Names = None,
    save: Sequence[int] | None = None,
    checkpoints: Positive | None = None,
    linear_solver: LinearSolver = "auto",
    preconditioner: Preconditioner | None = None,
    rtol: Above0 | None = None,
    maxiter: Count = 20,
    engine: str | None = None,
) -> Trajectory:
    """u(T; p) for u̇ = f(t, u, p) by implicit steps, and du(T)/dp of exactly these steps.

    | `method` | a step | order |
    |---|---|---|
    | `"implicit_euler"` | u₊ = u + h f(t₊, u₊) | 1 |
    | `"bdf2"` | u₊ = (4 u − u₋) / 3 + ⅔ h f(t₊, u₊), the first by Euler | 2 |

    f are the tensors of `of`, u are `x`, p are `wrt`. The result has the last states in
    `tensors`, by name, and du/dp in `J`: J v is one pass over the steps with the tangents, one
    solve a step, and Jᵀ u one pass back, with the adjoints. The states of `checkpoints` segments
    are kept and the steps between are solved again, so that memory is O(√steps) and the bits are
    the same. A trajectory may be an input of another model, or the start of another trajectory:
    see `root`.

    - `model`: the model of f, as `load` gives it.
    - `inputs`: the point at the start, an array by name for every input.
    - `of`: the rates f, by name, as many as states; by default all floating outputs that are not
      integrated.
    - `x`: the states u, by name: inputs of the model.
    - `wrt`: the tensors p, by name: inputs or weights; the name of a state means its start. By
      default all floating inputs but the time.
    - `t`: the input that holds the time, if f depends on it.
    - `step`, `steps`: the length h of a step, and the number of steps.
    - `integral`: tensors g, by name, of which `tensors` has ∫ g dt, by the same method.
    - `save`: numbers of steps, from 0 at the start to `steps`, whose states and integrals are
      wanted, stacked on a new first axis; by default the last one alone.
    - `checkpoints`: how many segments there are, by default √steps.
    - `linear_solver`, `preconditioner`: for the linear systems of a step, see `root`.
    - `rtol`: Newton's method ends where the residual is `rtol` of u, by default ε^(2/3).
    - `maxiter`: the most iterations of a step.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: J is (size of `tensors`, size of p). Units: h is in units of time. Raises
    `NotConverged` where a step does not converge, `InputError` where f and u differ in their
    shapes and where a name, a shape or a dtype does not fit, `UnsupportedOp` for an operator
    without a rule.

    Source: Griewank, "Achieving logarithmic growth of temporal and spatial complexity in reverse
    automatic differentiation", 1992, for checkpoints.
    """
    source = as_model(model, of, wrt=wrt)
    states = states_of(source, x, t)
    summed = names_of(source, integral, source.outputs, "integral") if integral else ()
    left = {name: spec for name, spec in source.outputs.items() if name not in summed}
    rates = names_of(source, of, left, "of")
    if save is not None and not (save and all(0 <= k <= steps for k in save)):
        raise InputError(f"save={[*save]} holds no numbers of steps from 0 to {steps}")
    sources, values = implied_in(inputs)
    point = check_inputs(source, values, engine=engine)
    names = own_names(source, wrt, t, sources)
    whole, totals = with_integrals(source, point, summed, engine)
    start = {**evaluate(source, point, states, engine=engine), **totals}
    found = evaluate(source, point, (*rates, *summed), engine=engine)
    shapes = [{name: shape_of(y) for name, y in part.items()} for part in (found, start)]
    if [*shapes[0].values()] != [*shapes[1].values()]:
        raise InputError(f"the rates have shapes {shapes[0]}, but the states {shapes[1]}: name the "
                         "states by x=, and their rates, in the same order, by of=")  # fmt: skip
    equations = euler_residual(
        whole, {**point, **totals}, of=(*rates, *summed), wrt=tuple(start), engine=engine
    )
    eps = float(np.finfo(dtype_of(start[states[0]])).eps)
    rtol = eps ** (2 / 3) if rtol is None else rtol
    taken = Steps(
        equations, tuple(name for name in names if name not in states), point, start, len(totals),
        method, step, steps, checkpoints, t, time_of(source, point, t), rtol, maxiter,
        LinearSolves(linear_solver, preconditioner, "∂(u − c f)/∂u"), engine,
    )  # fmt: skip
    outputs = dict(zip(start, (*states, *summed), strict=True))
    kept = None if save is None else tuple(save)
    return Trajectory(source, taken, outputs, wrt if sources else names, sources, kept)


def own_names(
    model: Model, wrt: Names, t: str | None, sources: Mapping[str, Implied]
) -> tuple[str, ...]:
    """The tensors of `wrt` that this model has, and its implied inputs."""
    if sources and wrt is not None:
        own = (name for name in distinct(wrt, "wrt") if name in model and name not in sources)
        wrt = (*sources, *own)
    names = states_of(model, wrt, t)
    if strange := [n for n in names if n not in model.inputs and n not in model.initializers]:
        raise InputError(f"wrt={strange[0]!r} is computed by the model: name inputs or weights")
    return names


def with_integrals(
    model: Model, point: Mapping[str, Any], names: tuple[str, ...], engine: str | None
) -> tuple[Model, dict[str, np.ndarray]]:
    """The model with a new input for each integral, which nothing reads, and their zeros."""
    if not names:
        return model, {}
    copy, taken = model.ir.clone(), set(model.names)
    zeros = {unique_name(f"{name}_integral", taken): np.zeros_like(y)
             for name, y in evaluate(model, point, names, engine=engine).items()}  # fmt: skip
    for name, zero in zeros.items():
        Nodes(copy, zero.dtype, name).entered(name, zero.shape, zero.dtype)
    return Model(copy, model.limits), zeros


@final
class Trajectory(Implied):
    """u(T; p) by `steps`: its values in `tensors`, and du/dp in `J`.

    `model` has the rates, `outputs` are the names of the states in the equations and those in
    `tensors`, `wrt` the names of p, `sources` the inputs that are implied themselves, and `save`
    the steps whose states are results, or None for the last one alone.
    """

    def __init__(
        self, model: Model, steps: Steps, outputs: Mapping[str, str], wrt: Names,
        sources: Mapping[str, Implied], save: tuple[int, ...] | None,
    ) -> None:  # fmt: skip
        self.model, self.steps, self.outputs, self.wrt = model, steps, outputs, wrt
        self.sources, self.save = sources, save
        self.checkpoints, self.wanted = Checkpoints(steps), save or (steps.count,)
        found = {0: steps.first}
        found |= {s.number: s.u for s in self.checkpoints.walk() if s.number in self.wanted}
        flat = self._by_tensor() @ np.concatenate([found[k] for k in self.wanted])
        self.tensors = {s.name: (pick_tensors(self.codomain, (s.name,)) @ flat).reshape(shape_of(s))
                        for s in self.codomain}  # fmt: skip

    def _by_tensor(self) -> Take:
        """The states of all wanted steps ↦ the tensors of the codomain, one after the other."""
        order = np.arange(len(self.wanted) * len(self.steps.first)).reshape(len(self.wanted), -1)
        parts = np.split(order, np.cumsum(self.steps.sizes)[:-1], axis=1)
        index = np.concatenate([part.ravel() for part in parts])
        return Take(index, 0, (order.size,), self.steps.first.dtype, distinct=True)

    @property
    def codomain(self) -> Specs:
        """The tensors of u, in order."""
        lead = () if self.save is None else (len(self.save),)
        return tuple(TensorSpec(self.outputs[name], (*lead, *shape_of(u)), dtype_of(u))
                     for name, u in self.steps.start.items())  # fmt: skip

    @cached_property
    def J(self) -> Named:
        """du/dp of the steps that were taken, between the tensors of `wrt` and of u."""
        if not self.sources:
            return self._own(None, self.wrt)
        inputs = {**self.steps.point, **self.sources}
        return chain_jacobians(self.model, inputs, self.wrt, self._own, self._again)

    def _own(self, _: Any, wrt: Any) -> Named:
        """du/dp in tensors of this model alone."""
        steps, values = self.steps, evaluate(self.model, self.steps.point, wrt)
        domain = tuple(TensorSpec(n, shape_of(x), dtype_of(x)) for n, x in values.items())
        states = tuple(TensorSpec(n, shape_of(u), dtype_of(u)) for n, u in steps.start.items())
        starts = tuple(name for name in wrt if name in steps.start)
        begin = pick_tensors(states, starts).T @ pick_tensors(domain, starts)
        direct = pick_tensors(domain, steps.wrt)
        sweep = Sweep(self.checkpoints, direct.shape[0], self.wanted)
        J = self._by_tensor() @ sweep @ Block([[begin], [direct]])
        return Named(J, domain, self.codomain, self.tensors, self._again)

    def _again(self, inputs: Mapping[str, Any]) -> Named:
        return self.at(inputs).J

    def curvature(self, weights: Mapping[str, Any]) -> Curvature:
        """Raises `InputError` for any `weights`: a trajectory has first derivatives alone."""
        raise InputError("a trajectory has first derivatives alone: for second ones of one step "
                         "take oj.root of oj.euler_residual")  # fmt: skip

    def at(self, inputs: Mapping[str, Any]) -> Trajectory:
        """The trajectory at other inputs, those that are not given as they were.

        - `inputs`: arrays by name.

        Raises what `trajectory` raises.
        """
        s, given = self.steps, {**self.steps.point, **self.sources, **inputs}
        sources, values = implied_in(given)
        point = check_inputs(self.model, values, engine=s.engine)
        start = {name: point.get(name, u) for name, u in s.start.items()}
        steps = replace(s, point=point, start=start, begin=time_of(self.model, point, s.t))
        return Trajectory(self.model, steps, self.outputs, self.wrt, sources, self.save)

    def __repr__(self) -> str:
        s = self.steps
        return (f"trajectory of {s.count} steps of {s.h:g}, by {s.method}, with "
                f"{len(self.checkpoints.segments)} checkpoints")  # fmt: skip
