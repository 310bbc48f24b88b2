"""Derive: sweeps and dense Jacobians in the graphs reading. A derivative of a model is a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, Shape, dtype_of, shape_of, size
from ...jacobians.symint import Symbols, is_symbolic, same
from ...ops.graphs import Recorder, build
from ..linear.elimination.samples import Batch, layouts
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
    draft = started(t, tangents, of, wrt)
    for name, reached in zip(of, swept(t.recorder, dag, tangents), strict=True):
        draft.outputs[f"{name}_tangent"] = reached
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
    for_torch: bool = False,
) -> Draft:
    """(inputs, cotangents) ↦ (of, Jᵀ · cotangents); `seeds`, if any, are constant cotangents.

    A graph that only PyTorch will run may be recorded `for_torch`, as its kernels are quickest.
    """
    t = trace(model, point, (*of, *wrt), engine, given=given, perturbed=wrt, symbols=symbols)
    t.recorder.convolves_samples = for_torch
    forward = t.dag(wrt, of)
    asked = [] if seeds is not None else [like(t, name, f"{name}_cotangent") for name in of]
    cotangents = asked if seeds is None else [seeds[name] for name in of]
    draft = started(t, asked, of, wrt)
    draft.dag = forward
    for name, reached in zip(wrt, swept(t.recorder, forward.T, cotangents), strict=True):
        draft.outputs[f"{name}_{suffix}"] = reached
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


def swept(op: Recorder, dag: Dag, seeds: Sequence[Array], columns: Shape = ()) -> list[Array]:
    """What arrives at the sinks, zeros where nothing does; `columns` are leading axes of seeds."""
    reached = dag.sweep(op, dict(zip(dag.sources, seeds, strict=True)))
    zero = np.zeros((), dag.dtype)
    return [reached[v] if v in reached else op.Expand(zero, (*columns, *dag.shapes[v]))
            for v in dag.sinks]  # fmt: skip


@staying
def jacobian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Draft:  # fmt: skip
    """inputs ↦ (of, dense ∂of/∂wrt for every pair): (*of, *wrt), or (batch, *of, *wrt) for pairs
    (of, wrt) with a first axis of free size along which no operator between them mixes.
    """
    t = trace(model, point, (*of, *wrt), engine, symbols=symbols)
    draft = started(t, [], of, wrt)
    for o in of:
        one = separate(t, o, wrt)
        rest = tuple(w for w in wrt if w not in one)
        for names, dense in ((one, sample_rows), (rest, all_rows)):
            if names:
                draft.outputs.update(dense(t, o, names))
    return draft


def separate(t: Trace, of: str, wrt: Names) -> Names:
    """The tensors of `wrt` each of whose samples affects only the same sample of `of`."""
    (count, *rest) = shape_of(t.values[of]) or (0,)
    if not is_symbolic(count):
        return ()
    dag = t.dag(wrt, (of,))
    (sink,) = dag.sinks
    met, known = dag.behind(sink), layouts(dag, sink, Batch(count, size(tuple(rest))))
    found = []
    for w, source in zip(wrt, dag.sources, strict=True):
        first, *others = shape_of(t.values[w]) or (0,)
        parted = known.get(source) == Batch(count, size(tuple(others)))
        if same(first, count) and (parted or source not in met):
            found.append(w)
    return tuple(found)


def all_rows(t: Trace, of: str, wrt: Names) -> dict[str, Array]:
    """Jᵀ on every unit cotangent at once: (*of, *wrt)."""
    shape = shape_of(t.values[of])
    dag = t.dag(wrt, (of,)).T
    if same(size(shape), 0):
        nothing = {w: (*shape, *shape_of(t.values[w])) for w in wrt}
        return {f"{of}_{w}_jacobian": np.zeros(s, dag.dtype) for w, s in nothing.items()}
    unit = units(t.recorder, size(shape), dtype_of(t.values[of]))
    unit = t.recorder.Reshape(unit, (size(shape), *shape))
    rows = swept(t.recorder, dag, [t.recorder.value(unit)], (size(shape),))
    return {
        f"{of}_{w}_jacobian": t.recorder.Reshape(row, (*shape, *shape_of(t.values[w])))
        for w, row in zip(wrt, rows, strict=True)
    }


def units(op: Recorder, n: int, dtype: np.dtype) -> Array:
    """The identity matrix."""
    if isinstance(n, int):
        return np.eye(n, dtype=dtype)
    places = op.Range(np.array(0), n, np.array(1))
    return op.CastLike(op.Equal(op.Unsqueeze(places, (1,)), places), np.zeros((), dtype))


def sample_rows(t: Trace, of: str, wrt: Names) -> dict[str, Array]:
    """Jᵀ on the unit cotangents of one sample, in all samples at once: (batch, *of, *wrt)."""
    op = t.recorder
    batch, *rest = shape_of(t.values[of])
    dag = t.dag(wrt, (of,)).T
    m = size(tuple(rest))
    unit = np.eye(m, dtype=dtype_of(t.values[of])).reshape(m, 1, *rest)
    rows = swept(op, dag, [op.Expand(op.value(unit), (m, batch, *rest))], (m,))
    dense = {}
    for w, row in zip(wrt, rows, strict=True):
        perm = (1, 0, *range(2, len(shape_of(row))))
        shape = (batch, *rest, *shape_of(t.values[w])[1:])
        dense[f"{of}_{w}_jacobian"] = op.Reshape(op.Transpose(row, perm=perm), shape)
    return dense
