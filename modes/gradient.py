"""Gradient: the graph of a gradient, recorded once for all points of the same shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..jacobians import dtype_of, shape_of, size
from ..jacobians.arrays import as_array, host, like
from ..jacobians.errors import InputError
from .forward import Tensors
from .linear.derivatives.record import roundings, unjoined
from .linear.derivatives.route import Route, route_of, signature_of
from .linear.linearization import Linearization, linearized
from .linearize import ROUNDED, ZEROS, warn_roundings, warn_zeros
from .model.primal.evaluate import apart, by_torch, evaluate
from .model.primal.inputs import check_inputs, hosted, warn_nonfinite
from .model.primal.model import Model
from .recording.derive import Names, vjp_graph
from .recording.guarded import shared


@dataclass(frozen=True, eq=False)
class Gradient:
    """∇f in the tensors of `wrt`, with f = Σ weights ∘ of.

    The graph is recorded once for all points of the same shapes, such as the batches of a data set
    or the iterations of a solver, and cached with the model. The weights are inputs of the graph;
    for several tensors in `of` they are given by name.
    """

    model: Model
    of: Names
    wrt: Names
    weights: Any = None
    engine: str | None = None

    def __call__(self, inputs: Mapping[str, Any]) -> tuple[Tensors, Tensors]:
        """The tensors of `of` and ∇f, both by name: one run of the recorded graph.

        Where `engine` is ONNX Runtime and has no kernel for the graph, NumPy runs it.
        """
        point = check_inputs(self.model, inputs, keep=False, engine=self.engine)
        route, inside = self._recorded(point)
        warn_zeros(route.known[ZEROS])
        warn_roundings(route.known[ROUNDED])
        engine = None if self.engine == "onnxruntime" else self.engine
        at, wanted = {**inside, **self._seeds(route)}, (*self.of, *route.of)
        found = apart(evaluate(route.model, at, wanted, engine=engine), at)
        values = {name: found[name] for name in self.of}
        warn_nonfinite(self.model, values, point)
        return values, {name: found[x] for name, x in zip(self.wrt, route.of, strict=True)}

    def linearized(self, inputs: Mapping[str, Any]) -> Linearization:
        """H = ∂²f/∂wrt² at a point."""
        route, inside = self._recorded(check_inputs(self.model, inputs, engine=self.engine))
        warn_roundings(route.known[ROUNDED])
        return linearized(route, {**inside, **self._seeds(route)})

    def _seeds(self, route: Route) -> dict[str, np.ndarray]:
        """The weights as the last inputs of the recorded graph."""
        if self.weights is None:
            return {}
        named = self.weights if isinstance(self.weights, Mapping) else {one(self.of): self.weights}
        asked = tuple(route.model.inputs.values())[-len(self.of) :]
        pairs = zip(self.of, asked, strict=True)
        if missing := [name for name in self.of if name not in named]:
            raise InputError(f"weights= has no {missing[0]!r}, which is differentiated")
        return {seed.name: weighing(named[name], seed, name) for name, seed in pairs}

    def _recorded(self, point: Mapping[str, Any]) -> tuple[Route, Mapping[str, Any]]:
        """The route of the recorded graph for this point, and its inputs without the weights.

        The graph is cached if it holds for all points of these shapes. Control flow is unrolled
        where no number of a point decides how, since a turn of a Scan costs more than the operators
        inside.
        """
        whole = route_of(self.model, self.of, self.wrt, self.engine, False, False)
        model, inside = whole.settled(point)
        shapes = signature_of(inside)
        key = "gradient", self.of, self.wrt, self.weights is None, self.engine, shapes
        known: Route | None = None if shapes is None else model.derived.routes.get(key)
        if known is None:
            known, is_general = self._record(model, hosted(inside))
            if is_general and shapes is not None:
                model.derived.routes[key] = known
        return known, inside

    def _record(self, model: Model, point: Mapping[str, Any]) -> tuple[Route, bool]:
        """A new recording, and whether it holds at all points of the same shapes.

        Its route knows the pairs of tensors that no path joins.
        """
        seeds = None
        if self.weights is None:
            seeds = {one(self.of): host(combination(model, point, self.of, None, self.engine))}
        given = tuple(point.keys() - model.inputs.keys())
        make = partial(vjp_graph, model, point, self.of, self.wrt, self.engine, seeds)
        there = by_torch(self.engine)
        draft, is_general = shared(model, partial(make, given=given, for_torch=there))
        assert draft.dag is not None
        made = draft.model("gradient")
        route = Route(made, draft.made, self.wrt, self.engine, estimate=made.estimates)
        ends = draft.dag, self.wrt, self.of
        route.known[ZEROS] = unjoined(draft.traces[-1].active, *ends)
        route.known[ROUNDED] = roundings(draft.traces[-1].active, *ends, lambda _: False)
        return route, is_general


def combination(
    model: Model, point: Mapping[str, Any], of: Names, weights: Any, engine: str | None
) -> np.ndarray:
    """The weights of the scalar that is differentiated: 1 for a scalar output."""
    name = one(of)
    value = evaluate(model, point, of, engine=engine)[name]
    if weights is not None:
        return like(weighing(weights, value, name), value)
    if size(shape_of(value)) != 1:
        raise InputError(
            f"{name!r} has shape {list(value.shape)}, but a gradient is of one number: `hessian` "
            f"takes weights of that shape, for sum(weights * {name}), and `vjp` takes a cotangent"
        )
    return like(np.ones(shape_of(value)), value)


def one(of: Names) -> str:
    """The tensor of which there is a gradient."""
    if len(of) != 1:
        raise InputError(f"a gradient is of one tensor, not of {list(of)}: name it with of=")
    return of[0]


def weighing(weights: Any, value: Any, name: str) -> np.ndarray:
    """Weights of the shape and dtype of a tensor, some of whose sizes may be open."""
    chosen, shape = as_array(weights, dtype_of(value)), tuple(value.shape)
    pairs = zip(chosen.shape, shape, strict=False)
    if len(chosen.shape) != len(shape) or any(isinstance(n, int) and n != m for m, n in pairs):
        raise InputError(f"weights have shape {list(chosen.shape)}, {name!r} {list(shape)}")
    return chosen
