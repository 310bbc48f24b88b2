"""Derive: sweeps in the graphs reading. A derivative of a model is a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, shape_of
from ...jacobians.symint import Symbols
from ...ops.graphs import Recorder, build
from ..linear.tape.trace import Trace, staying, trace
from ..model.primal.evaluate import evaluate
from ..model.primal.model import Model

Names = tuple[str, ...]


@dataclass
class Draft:
    """A graph under construction: its inputs, and its outputs by name.

    The tensors of `wrt` are kept, so that the graph can be differentiated with respect to them
    again. `traces` are the recordings it was made from, the last one with its values; `held` maps
    tensors fixed at their values at the point to reasons; `dag` is the DAG of the pullback.
    """

    recorder: Recorder
    inputs: list[ir.Value]
    outputs: dict[str, Array] = field(default_factory=dict)
    wrt: list[ir.Value] = field(default_factory=list)
    traces: tuple[Trace, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    dag: Dag | None = None

    def model(self, name: str) -> Model:
        """The draft as a model, which can be linearised like any other."""
        return Model(build(self.recorder, self.inputs, self.outputs, name, self.wrt))


@staying
def jvp_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Draft:  # fmt: skip
    """(inputs, tangents) ↦ (of, J · tangents)."""
    t = trace(model, point, (*of, *wrt), engine, symbols=symbols)
    dag = t.dag(wrt, of)
    tangents = [like(t, name, f"{name}_tangent") for name in wrt]
    reached = dag.sweep(t.recorder, dict(zip(dag.sources, tangents, strict=True)))
    draft = started(t, tangents, of, wrt)
    for name, sink in zip(of, dag.sinks, strict=True):
        draft.outputs[f"{name}_tangent"] = present(t.recorder, reached, dag, sink)
    return draft


@staying
def vjp_graph(
    model: Model,
    point: Mapping[str, Any],
    of: Names,
    wrt: Names,
    engine: str | None,
    seeds: Mapping[str, np.ndarray] | None = None,
    suffix: str = "cotangent",
    *,
    given: Names = (),
    symbols: Symbols | None = None,
) -> Draft:
    """(inputs, cotangents) ↦ (of, Jᵀ · cotangents); `seeds`, if any, are constant cotangents."""
    t = trace(model, point, (*of, *wrt), engine, given=given, perturbed=wrt, symbols=symbols)
    forward = t.dag(wrt, of)
    dag = forward.T
    asked = [] if seeds is not None else [like(t, name, f"{name}_cotangent") for name in of]
    cotangents = asked if seeds is None else [seeds[name] for name in of]
    reached = dag.sweep(t.recorder, dict(zip(dag.sources, cotangents, strict=True)))
    draft = started(t, asked, of, wrt)
    draft.dag = forward
    for name, sink in zip(wrt, dag.sinks, strict=True):
        draft.outputs[f"{name}_{suffix}"] = present(t.recorder, reached, dag, sink)
    return draft


def grad_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Draft:  # fmt: skip
    """inputs ↦ (of, ∇ of) for a scalar `of`."""
    (value,) = evaluate(model, point, of, engine=engine).values()
    seeds = {of[0]: np.ones(value.shape, value.dtype)}
    return vjp_graph(model, point, of, wrt, engine, seeds, "grad", symbols=symbols)


def hvp_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Draft:  # fmt: skip
    """(inputs, tangents) ↦ (of, ∇ of, H · tangents) for a scalar `of`."""
    first = grad_graph(model, point, of, wrt, engine, symbols)
    gradient = first.model("grad")
    slopes = tuple(f"{name}_grad" for name in wrt)
    draft = jvp_graph(gradient, point, (*of, *slopes), wrt, engine, symbols=symbols)
    draft.traces = (*first.traces, *draft.traces)
    hidden = {f"{name}_tangent" for name in of}
    final = {f"{name}_grad_tangent": f"{name}_hvp" for name in wrt}
    draft.outputs = {final.get(k, k): v for k, v in draft.outputs.items() if k not in hidden}
    return draft


def started(t: Trace, asked: list[ir.Value], of: Names, wrt: Names) -> Draft:
    """The primal as a draft, with further inputs."""
    outputs = {name: t.values[name] for name in of}
    kept = [t.values[name] for name in wrt]
    return Draft(t.recorder, [*t.inputs, *asked], outputs, kept, (t,))


def like(t: Trace, name: str, new: str) -> ir.Value:
    """A new input of the shape and dtype of a tensor."""
    value = t.values[name]
    assert value.dtype is not None
    return t.recorder.new(shape_of(value), value.dtype.numpy(), new)


def present(op: Recorder, reached: Mapping[int, Array], dag: Dag, vertex: int) -> Array:
    """The result of a sweep at a vertex; zeros where nothing arrives."""
    if vertex in reached:
        return reached[vertex]
    return op.Expand(np.zeros((), dag.dtype), dag.shapes[vertex])
