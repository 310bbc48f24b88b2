"""Dense Jacobians in the graphs reading: all unit vectors in one sweep."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, shape_of, size
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import Symbols, same
from ...ops import Step
from ...ops.graphs import Recorder
from ..flow.control import CONTROL
from ..flow.steps import needed
from ..model import Model
from ..primal.draws import fixed
from ..primal.evaluate import evaluate
from ..tape.active import active_steps
from ..tape.record import dag_of, record, shapes_in, vertex_names
from ..tape.template import names_of
from ..tape.unroll import unrolled
from .derive import Draft, Names, started
from .samples import at_size, batch_symbol, batched, close
from .trace import Trace, staying, trace

Pairs = frozenset[tuple[str, str]]


@staying
def jacobian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    alone: Pairs = frozenset(), symbols: Symbols | None = None,
) -> Draft:  # fmt: skip
    """inputs ↦ (of, dense ∂of/∂wrt for every pair): (*of, *wrt), or (batch, *of, *wrt) for those
    pairs (of, wrt) that are known to have nothing between different samples.
    """
    t = trace(model, point, (*of, *wrt), engine, symbols=symbols)
    draft = started(t, [], of, wrt)
    for o in of:
        samples = shape_of(t.values[o])[:1]
        one = tuple(w for w in wrt
                    if (o, w) in alone and same(samples, shape_of(t.values[w])[:1]))  # fmt: skip
        rest = tuple(w for w in wrt if w not in one)
        for names, dense in ((one, sample_rows), (rest, all_rows)):
            if names:
                draft.outputs.update(dense(t, o, names))
    return draft


def all_rows(t: Trace, of: str, wrt: Names) -> dict[str, Array]:
    """Jᵀ on every unit cotangent at once: (*of, *wrt)."""
    shape = shape_of(t.values[of])
    dag = t.dag(wrt, (of,)).T
    if same(size(shape), 0):
        nothing = {w: (*shape, *shape_of(t.values[w])) for w in wrt}
        return {f"{of}_{w}_jacobian": np.zeros(s, dag.dtype) for w, s in nothing.items()}
    unit = units(t.recorder, size(shape), dag.dtype)
    unit = t.recorder.Reshape(unit, (size(shape), *shape))
    rows = swept(t.recorder, dag, unit, wrt)
    return {
        f"{of}_{w}_jacobian": t.recorder.Reshape(row, (*shape, *shape_of(t.values[w])))
        for w, row in rows.items()
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
    unit = np.eye(m, dtype=dag.dtype).reshape(m, 1, *rest)
    rows = swept(op, dag, op.Expand(op.value(unit), (m, batch, *rest)), wrt)
    dense = {}
    for w, row in rows.items():
        perm = (1, 0, *range(2, len(shape_of(row))))
        shape = (batch, *rest, *shape_of(t.values[w])[1:])
        dense[f"{of}_{w}_jacobian"] = op.Reshape(op.Transpose(row, perm=perm), shape)
    return dense


def swept(op: Recorder, dag: Dag, units: Array, wrt: Names) -> dict[str, Array]:
    """What the sweep gives for a stack of cotangents: one stack per tensor of `wrt`."""
    reached = dag.sweep(op, {dag.sources[0]: op.value(units)})
    zero, k = np.zeros((), dag.dtype), shape_of(units)[0]
    return {
        w: reached[v] if v in reached else op.value(op.Expand(zero, (k, *dag.shapes[v])))
        for w, v in zip(wrt, dag.sinks, strict=True)
    }


def separate(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None
) -> Pairs:
    """The pairs (of, wrt) that have the batch first, and between which no sample meets another.

    That is so where every tensor on the way consists of one part for each sample, which is what a
    run on this sample alone gives. Both are run on samples near those of the point, of which no two
    are the same, so that no step that mixes them can hide behind what comes after it.
    """
    symbol = batch_symbol(model)
    if symbol is None:
        return frozenset()
    firsts = [name for name in wrt if name in batched(model, symbol)]
    found = set()
    for o, w in product(of, firsts):
        steps = (model.steps[k] for k in needed(model.steps, (o,))[0])
        if any(step.op_type in CONTROL and not goes_one_way(model, step) for step in steps):
            continue  # at another point samples may meet
        try:
            if all(are_separate(model, at_size(model, symbol, point, n, 0.1), symbol, o, w, engine)
                   for n in (3, 5)):  # fmt: skip
                found.add((o, w))
        except OnnxJacError:  # it does not run with one sample
            continue
    return frozenset(found)


def goes_one_way(model: Model, step: Step) -> bool:
    """Whether control flow takes the same turns and branches at every point."""
    bodies = [value for value in step.attrs.values() if isinstance(value, ir.Graph)]
    inner = [part for graph in bodies for part in model.body(graph) if part.op_type in CONTROL]
    known = step.op_type == "Scan"
    if step.op_type == "Loop":
        (body,), (limit, go) = bodies, (*step.inputs, None, None)[:2]
        last: ir.Value | None = body.outputs[0]
        node = body.outputs[0].producer()
        while node is not None and node.op_type == "Identity":
            last = node.inputs[0]
            node = None if last is None else last.producer()
        fixed = {None, *model.constants}
        known = limit is not None and {limit, go} <= fixed and last is body.inputs[1]
    return known and all(goes_one_way(model, part) for part in inner)


def are_separate(
    model: Model, point: Mapping[str, Any], symbol: str, of: str, wrt: str, engine: str | None
) -> bool:
    """Whether the tensors between two others consist of parts, one for each sample of a point."""
    inputs = batched(model, symbol)
    flat = unrolled(fixed(model, point, engine), point, (of, wrt))
    names = between(flat, point, of, wrt, engine)
    whole, parts = evaluate(flat, point, names, engine=engine), []
    for k in range(len(point[inputs[0]])):
        sample = {n: x[k : k + 1] if n in inputs else x for n, x in point.items()}
        flat = unrolled(fixed(model, sample, engine), sample, (of, wrt))
        parts.append(evaluate(flat, sample, names, engine=engine))
    return all(
        consists(array, [part[name] for part in parts], first=name in (of, wrt))
        for name, array in whole.items()
    )


def between(
    flat: Model, point: Mapping[str, Any], of: str, wrt: str, engine: str | None
) -> tuple[str, ...]:
    """The tensors between two others, and these: where derivatives flow at a point."""
    steps = tuple(flat.steps[k] for k in needed(flat.steps, (of, wrt))[0])
    active = active_steps(steps, (wrt,), (of,))
    met = {name for a in active for name in names_of(a)}
    values = evaluate(flat, point, sorted({of, wrt} | met), engine=engine)
    entries = record(active, dict(values))
    dag = dag_of(entries, shapes_in(values), (wrt,), (of,), np.dtype(float))
    names = vertex_names(entries, (wrt,), (of,))
    ends = {k for edge in dag.edges for k in (edge.start, edge.end)}
    return tuple(dict.fromkeys((of, wrt, *(names[k] for k in sorted(ends)))))


def consists(array: np.ndarray, parts: list[np.ndarray], *, first: bool) -> bool:
    """Whether an array is made of parts along some axis, or along the first one."""
    n, shape = len(parts), parts[0].shape
    if array.ndim != len(shape) or any(part.shape != shape for part in parts):
        return False
    if first and array.shape[:1] != (n,):  # as many samples, or none as what is empty
        return False
    for axis in range(min(1, array.ndim) if first else array.ndim):
        whole = (*shape[:axis], n * shape[axis], *shape[axis + 1 :])
        if array.shape != whole:
            continue
        if close(array, np.concatenate(parts, axis), 1e-4):
            return True
        if not first and close(array, np.stack(parts, axis + 1).reshape(whole), 1e-4):
            return True
    return False
