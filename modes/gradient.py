"""Gradient: the graph of a gradient, recorded once for all points of the same shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from ..jacobians import dtype_of, shape_of, size
from ..jacobians.arrays import as_array, host, like, snapshot
from ..jacobians.errors import InputError
from ..jacobians.readings import library_of, library_of_engine
from .forward import Tensors
from .linear.derivatives.record import roundings, unjoined, warn_roundings, warn_zeros
from .linear.derivatives.route import route_of, signature_of
from .linear.linearization import Linearization, linearized
from .model.primal.evaluate import evaluate, own_memory
from .model.primal.inputs import check_inputs, find_nonfinite, hosted, warn_nonfinite
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

    def __call__(
        self, inputs: Mapping[str, Any], *, checked: bool = False
    ) -> tuple[Tensors, Tensors]:
        """The tensors of `of` and ∇f, both by name: one run of the recorded graph, or two where ∇f
        is not finite, since the quick graph multiplies slopes that count for nothing by zeros.

        Where `engine` is ONNX Runtime and has no kernel for the graph, NumPy runs it.
        """
        point = inputs if checked else self._checked(inputs, keep=False)
        masked = self.engine == "jax"  # which fuses the masks, and may trace what is not finite
        values, slopes = self._run(point, masked=masked)
        if not masked and find_nonfinite(slopes):
            values, slopes = self._run(point)
        warn_nonfinite(self.model, values, point)
        return values, slopes

    def _run(self, point: Mapping[str, Any], *, masked: bool = True) -> tuple[Tensors, Tensors]:
        """The tensors of `of` and ∇f at a checked point."""
        graph, zeros, rounded = self.recorded(point, masked=masked)
        warn_zeros(zeros)
        warn_roundings(rounded)
        engine = None if self.engine == "onnxruntime" else self.engine
        at, slopes = self._inside(graph, point), self.slopes(graph)
        found = own_memory(evaluate(graph, at, (*self.of, *slopes), engine=engine), at)
        values = {name: found[name] for name in self.of}
        return values, {name: found[x] for name, x in zip(self.wrt, slopes, strict=True)}

    def linearized(self, inputs: Mapping[str, Any], *, checked: bool = False) -> Linearization:
        """H = ∂²f/∂wrt² at a point: the derivative of the recorded graph."""
        point = inputs if checked else self._checked(inputs)
        graph, _, rounded = self.recorded(point)
        warn_roundings(rounded)
        route = route_of(graph, self.slopes(graph), self.wrt, self.engine)
        return linearized(route, self._inside(graph, point), checked=True)

    def recorded(
        self, point: Mapping[str, Any], *, masked: bool = True
    ) -> tuple[Model, tuple[str, ...], str]:
        """(inputs, weights) ↦ (of, ∇f) as a model, the pairs of tensors that no path joins, and the
        roundings that cut some of the paths.

        It is cached if it holds at all points of these shapes; a `masked` one, which Hessians have,
        serves gradients too. Control flow is unrolled where no number of a point decides how, since
        a turn of a Scan costs more than the operators inside.
        """
        known, shapes = self.model.cache["gradient"], signature_of(point)
        key = self.of, self.wrt, self.weights is None, self.engine, shapes, masked
        found = None if shapes is None else known.get(key) or known.get((*key[:-1], True))
        if found is not None:
            return cast(tuple[Model, tuple[str, ...], str], found)
        route, seeds = route_of(self.model, self.of, self.wrt, self.engine), None
        flat, inside = (route, point) if route.may_draw else route.flat(point)
        if flat.conditions:  # then control flow is kept
            flat, inside = route, point
        if not all(library_of(x).knows(x) for x in inside.values()):
            raise InputError("a gradient is recorded where numbers are known: take it, or H, once "
                             "outside of jit, with inputs of these names and shapes")  # fmt: skip
        model, inside = flat.model, hosted(inside)
        if self.weights is None:
            seeds = {one(self.of): host(combination(model, inside, self.of, None, self.engine))}
        given = tuple(inside.keys() - model.inputs.keys())
        library = library_of_engine(self.engine)
        make = partial(vjp_graph, model, inside, self.of, self.wrt, self.engine, seeds, given=given,
                       convolves_samples=bool(library and library.convolves_samples),
                       masked=masked)  # fmt: skip
        t, is_general = shared(model, make)
        dag = t.dag(self.wrt, self.of)
        zeros = unjoined(t.active, dag, self.wrt, self.of)
        rounded = roundings(t.active, dag, self.wrt, self.of, lambda _: False)
        made = t.model("gradient"), zeros, rounded
        if is_general and shapes is not None:
            known[key] = made
        return made

    def seeds(self, graph: Model) -> dict[str, np.ndarray]:
        """The weights as the last inputs of the recorded graph."""
        if self.weights is None:
            return {}
        named = self.weights if isinstance(self.weights, Mapping) else {one(self.of): self.weights}
        pairs = zip(self.of, tuple(graph.inputs.values())[-len(self.of) :], strict=True)
        if missing := [name for name in self.of if name not in named]:
            raise InputError(f"weights= has no {missing[0]!r}, which is differentiated")
        return {seed.name: snapshot(weighing(named[name], seed, name)) for name, seed in pairs}

    def slopes(self, graph: Model) -> Names:
        """The names of ∇f in the recorded graph."""
        return tuple(graph.outputs)[len(self.of) :]

    def _checked(self, inputs: Mapping[str, Any], *, keep: bool = True) -> Mapping[str, Any]:
        return check_inputs(self.model, inputs, keep=keep, engine=self.engine)

    def _inside(self, graph: Model, point: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of the recorded graph."""
        return {n: point[n] for n in graph.inputs if n in point} | self.seeds(graph)


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
            f"{name!r} has shape {list(value.shape)}, and only one number has a gradient: "
            f"`hessian` takes weights= of this shape, for sum(weights * {name}), and `vjp` takes a "
            "cotangent"
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
