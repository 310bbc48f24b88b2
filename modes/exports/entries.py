"""Entries: the nonzeros of a Jacobian as a graph, in a fixed order.

The pattern holds at all points: of the local matrices only constants have zeros that are left out,
and a matrix whose places numbers of the point decide, such as the derivative of an If or of a
gather by an input, counts as full. The entries are read from products of a colouring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, Dense, Jacobian, Part, dtype_of, shape_of
from ...jacobians.errors import UnsupportedOp
from ...jacobians.symint import Symbols, is_symbolic
from ...ops.graphs import Recorder
from ..linear.derivatives.derivative import chain, fill_of, is_open, values_in, view_by
from ..linear.derivatives.trace import Trace, staying, trace_model
from ..model.flow.steps import array_of
from ..model.primal.model import Model
from ..recording.derive import (
    Names,
    called,
    concatenate_blocks,
    derived,
    require_one_type,
    start_graph,
)
from ..sparse.choice import colored, find_pattern
from ..sparse.coloring import entry_coordinates
from ..sparse.sweep import everything_in

SPARSE = "onnxjac.sparse"
"""The metadata key of the pattern: JSON with the shape, and the rows and columns of the entries."""


@staying
def sparse_jacobian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Trace:  # fmt: skip
    """inputs ↦ (of, the nonzeros of ∂of/∂wrt row by row, their rows, their columns)."""
    t = trace_model(model, point, (*of, *wrt), engine, symbols=symbols)
    dag = t.dag(wrt, of)
    fix_sizes(dag, symbols)
    require_one_type(t, (*of, *wrt))
    found = colored(pattern_of(dag), symmetric=False)
    V, U = (side.astype(dag.dtype) for side in found.seeds)
    products = [*colored_products(t.recorder, dag, V), *colored_products(t.recorder, dag.T, U)]
    values: Array = np.zeros(0, dag.dtype)
    if products:
        numbers = concatenate_blocks(t.recorder, products, 0)
        values = t.recorder.Gather(numbers, found.at.astype(np.int64))
    small = max(dag.shape) <= np.iinfo(np.int32).max
    rows, columns = (index.astype(np.int32 if small else np.int64)
                     for index in entry_coordinates(found.pattern))  # fmt: skip
    t.said[SPARSE] = json.dumps(
        {"shape": dag.shape, "rows": rows.tolist(), "columns": columns.tolist()}
    )
    start_graph(t, (), of, wrt)
    names = tuple(name for kind in ("values", "rows", "columns")
                  for name in called(model, ("jacobian",), kind))  # fmt: skip
    return derived(t, names, [values, rows, columns])


def fix_sizes(dag: Dag, symbols: Symbols | None) -> None:
    """Restrict a recording to the sizes at the point; it is recorded again where some are free."""
    open_sizes = [n for shape in dag.shapes for n in shape if is_symbolic(n)]
    if symbols is None or not open_sizes:
        return
    symbols.reader = "the pattern of a sparse Jacobian"
    for n in open_sizes:
        int(n)
    raise UnsupportedOp("the pattern of a sparse Jacobian needs all sizes as numbers")


def pattern_of(dag: Dag) -> Any:
    """Where entries of a recorded Jacobian may be nonzero at some point of the same shapes."""
    operators = [stand_in(operator) for operator in dag.operators]
    fixed = [found for before, found in zip(dag.operators, operators, strict=True)
             if all(map(never_changes, values_in([before])))]  # fmt: skip
    known = {id(part) for J in fixed for side in (J, J.T) for part in everything_in(side)}
    like = dag._holding(operators=operators)
    return find_pattern(like, known, backward=like.shape[0] < like.shape[1])


def stand_in(operator: Jacobian) -> Jacobian:
    """An operator over arrays of NumPy that is nonzero where a recorded one may be."""
    held = [*values_in([operator])]
    decided = any(dtype_of(x).kind != "f" and not never_changes(x) for x in held)
    program = any(isinstance(part, Part) for part in everything_in(operator))
    if decided or program or not is_open(operator):
        return Dense(np.ones(operator.shape, operator.dtype), operator.out_shape, operator.in_shape)
    fill = fill_of(operator, {})
    return operator if fill is None else fill({id(x): stand_in_array(x) for x in held})


def never_changes(value: ir.Value) -> bool:
    """Whether a graph value has the same numbers at all points."""
    return chain(value, has_number)[0].const_value is not None


def has_number(value: ir.Value) -> bool:
    """Whether a graph value is a constant of the graph."""
    return value.const_value is not None


def stand_in_array(value: ir.Value) -> np.ndarray:
    """The numbers of a constant; ones in place of numbers that change."""
    base, nodes = chain(value, has_number)
    if base.const_value is not None:
        return view_by(nodes)(array_of(base))
    return np.ones(shape_of(value), dtype_of(value))


def colored_products(op: Recorder, dag: Dag, V: np.ndarray) -> list[Array]:
    """J V, column by column, as one vector; nothing where V has no column."""
    m, n = dag.shape[0], V.shape[1]
    return [op.Reshape(dag._apply(op, op.value(V.T)), (n * m,))] if n else []
