"""A model read in symbols: the tape, whose tensors are expressions and whose blocks hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from ...jacobians import Dag, Jacobian, shape_of, size
from ...ops.symbols import Symbols, Tensor
from ..flow.steps import needed
from ..model import Model
from ..tape.active import active_steps
from ..tape.record import dag_of, has_tangent, record
from ..tape.unroll import unrolled

Names = tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """The tensors of a model as expressions."""

    op: Symbols
    model: Model
    values: dict[str, Any]

    def dag(self, wrt: Names, of: Names) -> Dag:
        """∂of/∂wrt, by the rules."""
        active = active_steps(self.model.steps, wrt, of)
        entries = record(active, dict(self.values), op=self.op)
        shapes = {
            name: shape_of(value) for name, value in self.values.items() if has_tangent(value)
        }
        return dag_of(entries, shapes, wrt, of, np.dtype(np.float64))

    def exprs(self, name: str) -> np.ndarray:
        """The entries of a tensor, row-major."""
        return exprs_of(self.values[name], self.op).ravel()


def read(
    model: Model, point: Mapping[str, np.ndarray], of: Names, symbols: Mapping[str, Tensor],
    op: Symbols, given: Mapping[str, Tensor] | None = None,
) -> Reading:  # fmt: skip
    """Run the steps that `of` needs over symbols; `given` tensors are known beforehand."""
    flat = unrolled(model, point, of)
    values: dict[str, Any] = {**flat.constants, **point, **symbols}
    steps = [flat.steps[k] for k in needed(flat.steps, of)[0]]
    for step in steps:
        known = {n: y for n, y in (given or {}).items() if n in step.outputs}
        values.update(known)
        if known.keys() >= set(filter(None, step.outputs)):
            continue
        made = op.run(
            step.op_type, [n and values[n] for n in step.inputs], step.attrs,
            domain=step.domain, version=step.version, outputs=len(step.outputs),
        )  # fmt: skip
        made_of = zip(step.outputs, made, strict=False)
        values.update((n, known.get(n, y)) for n, y in made_of if n)
    return Reading(op, flat, values)


def exprs_of(array: Any, op: Symbols) -> np.ndarray:
    """The expressions in a tensor; numbers are exact."""
    return (array if isinstance(array, Tensor) else op.constant(array)).exprs


def dense(J: Jacobian, op: Symbols) -> sp.Matrix:
    """The matrix of an operator: its columns are J eᵢ, all in one call."""
    m, n = J.shape
    if not m * n:
        return sp.zeros(m, n)
    units = op.constant(np.eye(n, dtype=int).reshape(n, *J.in_shape))
    columns = exprs_of(J._apply(op, units), op)
    return sp.Matrix(
        n, m, np.broadcast_to(columns, (n, *J.out_shape)).reshape(n, m).ravel().tolist()
    ).T


def pairs(
    values: Mapping[str, Any], of: Names, wrt: Names
) -> dict[tuple[str, str], tuple[slice, slice]]:
    """(output, input) -> the rows and columns of their block in the whole matrix."""
    rows, columns = (spans(values, names) for names in (of, wrt))
    return {(o, i): (rows[o], columns[i]) for o in of for i in wrt}


def spans(values: Mapping[str, Any], names: Names) -> dict[str, slice]:
    """Where each tensor lies among the concatenated ones."""
    found, start = {}, 0
    for name in names:
        end = start + size(shape_of(values[name]))
        found[name], start = slice(start, end), end
    return found
