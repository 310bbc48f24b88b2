"""Dense Jacobians in the graphs reading: all unit vectors in one sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import Array, Dag, shape_of, size
from ...jacobians.symint import Symbols, is_symbolic, same
from ...ops.graphs import Recorder
from ..linear.elimination.samples import Batch, layouts
from ..linear.tape.trace import Trace, staying, trace
from ..model.primal.model import Model
from .derive import Draft, Names, started


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
    """The results of sweeping a stack of cotangents: one stack per tensor of `wrt`."""
    reached = dag.sweep(op, {dag.sources[0]: op.value(units)})
    zero, k = np.zeros((), dag.dtype), shape_of(units)[0]
    return {
        w: reached[v] if v in reached else op.value(op.Expand(zero, (k, *dag.shapes[v])))
        for w, v in zip(wrt, dag.sinks, strict=True)
    }
