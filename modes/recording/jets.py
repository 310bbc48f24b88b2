"""Jets: series of tensors along curves, recorded step by step in the series reading."""

from __future__ import annotations

from collections.abc import Mapping
from math import factorial
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import dtype_of, shape_of
from ...jacobians.symint import Symbols
from ...ops.series import Series, Taylor
from ..linear.derivatives.record import active_steps
from ..linear.derivatives.trace import Trace, trace_model
from ..linear.derivatives.unroll import fixed, unrolled
from ..model.primal.model import Model
from .derive import Names, called, derived, start_graph


def trace_flat(
    model: Model, point: Mapping[str, Any], names: Names, engine: str | None,
    symbols: Symbols | None,
) -> Trace:  # fmt: skip
    """The named tensors, recorded without control flow: it is unrolled at the point."""
    model = fixed(model, point, engine, symbols)
    flat = unrolled(model, point, names, None, engine, symbols=symbols)
    return trace_model(flat, point, names, engine, symbols=symbols)


def series_of(t: Trace, op: Taylor, moving: Mapping[str, Series], of: Names) -> dict[str, Any]:
    """The series of tensors where some are `moving`; a tensor that stays is its value."""
    found: dict[str, Any] = dict(moving)
    for step in active_steps(t.active, moving, of):
        inputs = tuple(n and found.get(n, t.values[n]) for n in step.inputs)
        first = tuple(n and t.values[n] for n in step.outputs)
        made = op.step(step, inputs, first)
        for name, y in zip(step.outputs, made, strict=True):
            if name is not None and isinstance(y, Series):
                for k in range(op.order + 1):  # in order: what follows finds them
                    y[k]
                found[name] = y
    return {name: found.get(name, t.values[name]) for name in of}


def curve(t: Trace, op: Taylor, name: str, coefficients: Mapping[int, ir.Value]) -> Series:
    """x₀ + Σ xₖ tᵏ for a tensor x₀ of a trace."""
    x = t.values[name]
    known = {0: x, **coefficients}
    return Series(op, shape_of(x), dtype_of(x), 0, known.get)


def jet_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, *, order: int,
) -> Trace:  # fmt: skip
    """(inputs, series of inputs) ↦ (of, series of `of`): derivatives of order 1 … k along a curve,
    stacked on a first axis.
    """
    t = trace_flat(model, point, (*of, *wrt), engine, symbols)
    op = Taylor(t.recorder, order)
    given = [t.recorder.new((order, *shape_of(t.values[n])), dtype_of(t.values[n]), new)
             for n, new in zip(wrt, called(model, wrt, "series"), strict=True)]  # fmt: skip
    start_graph(t, given, of, wrt)
    moving = {}
    for name, whole in zip(wrt, given, strict=True):
        parts = {k: t.recorder.Gather(whole, np.array(k - 1), axis=0) for k in range(1, order + 1)}
        moving[name] = curve(t, op, name, {k: op.scaled(x, 1 / factorial(k))
                                           for k, x in parts.items()})  # fmt: skip
    found = series_of(t, op, moving, of)
    results = [stacked(t, op, found[name]) for name in of]
    return derived(t, called(model, of, "series"), results)


def stacked(t: Trace, op: Taylor, y: Any) -> ir.Value:
    """The derivatives y⁽ᵏ⁾ = k! yₖ on a first axis."""
    zero = np.zeros((), dtype_of(y))
    rows = []
    for k in range(1, op.order + 1):
        row = op.scaled(y[k], float(factorial(k))) if isinstance(y, Series) else None
        row = t.recorder.Expand(zero, shape_of(y)) if row is None else row
        rows.append(t.recorder.Unsqueeze(row, (0,)))
    return t.recorder.Concat(*rows, axis=0)
