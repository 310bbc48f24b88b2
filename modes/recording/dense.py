"""Dense Jacobians in the graphs reading: all unit vectors in one sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import Array, Dag, shape_of, size
from ...ops.graphs import Recorder
from ..model import Model
from ..tape.route import Route
from .derive import Draft, Names
from .symbolic import batch_symbol
from .trace import Trace, trace


def jacobian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None
) -> Draft:
    """inputs ↦ (of, dense ∂of/∂wrt for every pair).

    Per sample, (batch, *of, *wrt), where the pair shares its first dimension and samples do not
    act on each other; else (*of, *wrt).
    """
    t = trace(model, point, (*of, *wrt), engine)
    draft = Draft(t.recorder, list(t.inputs), {name: t.values[name] for name in of})
    for o in of:
        alone = tuple(w for w in wrt if per_sample(model, point, o, w, engine))
        rest = tuple(w for w in wrt if w not in alone)
        for names, dense in ((alone, sample_rows), (rest, all_rows)):
            if names:
                draft.outputs.update(dense(t, o, names))
    return draft


def all_rows(t: Trace, of: str, wrt: Names) -> dict[str, Array]:
    """Jᵀ on every unit cotangent at once: (*of, *wrt)."""
    shape = shape_of(t.values[of])
    dag = t.dag(wrt, (of,)).T
    unit = np.eye(size(shape), dtype=dag.dtype).reshape(-1, *shape)
    rows = swept(t.recorder, dag, unit, wrt)
    return {
        f"{of}_{w}_jacobian": t.recorder.Reshape(row, (*shape, *shape_of(t.values[w])))
        for w, row in rows.items()
    }


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
        w: reached[v] if v in reached else op.value(np.broadcast_to(zero, (k, *dag.shapes[v])))
        for w, v in zip(wrt, dag.sinks, strict=True)
    }


def per_sample(
    model: Model, point: Mapping[str, Any], of: str, wrt: str, engine: str | None
) -> bool:
    """Whether both tensors have the batch first, and no sample of one meets another sample."""
    if batch_symbol(model) is None or model.spec(wrt).shape is None:
        return False
    J = Route(model, (of,), (wrt,), engine).at(point)
    (rows,), (columns,) = (tuple(shape_of(s) for s in specs) for specs in (J.codomain, J.domain))
    symbolic = isinstance((model.spec(wrt).shape or (0,))[0], str)
    if not rows or not columns or rows[0] != columns[0] or not symbolic:
        return False
    u = np.zeros(rows, J.dtype)
    u[0] = np.random.default_rng(0).standard_normal(rows[1:])
    return not np.any(J.T.apply({of: u})[wrt][1:])
