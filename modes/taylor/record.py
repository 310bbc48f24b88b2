"""Jets: series of tensors along curves and lines, recorded step by step in the series reading.

A line x + t v gives the derivative in the direction v, of any order. Others are weighted sums of
these over several directions: the Laplacian over the axes, a mixed derivative by polarisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import factorial
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import dtype_of, shape_of, size
from ...jacobians.errors import InputError
from ...jacobians.symint import Atom, Symbols, SymInt, is_symbolic, same
from ...ops.series import PowerSeries, Taylor, Term
from ..linear.derivatives.record import active_steps
from ..linear.derivatives.trace import Trace, trace_model
from ..linear.derivatives.unroll import fixed, unrolled
from ..linear.elimination.samples import Batch, layouts
from ..model.primal.model import Model
from ..recording.derive import Names, called, derived, start_graph
from .lines import Coordinate, Lines, coordinate_vectors, laplacian_lines, mixed_lines, unit_vectors


def trace_flat(
    model: Model, point: Mapping[str, Any], names: Names, engine: str | None,
    symbols: Symbols | None,
) -> Trace:  # fmt: skip
    """The named tensors, recorded without control flow, which is unrolled at the point; weights and
    intermediates that the point gives are inputs.
    """
    model = fixed(model, point, engine, symbols)
    flat = unrolled(model, point, names, None, engine, symbols=symbols)
    given = point.keys() - flat.inputs.keys()
    return trace_model(flat, point, names, engine, given=given, symbols=symbols)


def series_of(t: Trace, op: Taylor, moving: Mapping[str, PowerSeries], of: Names) -> dict[str, Any]:
    """The series of tensors where some are `moving`; a tensor that stays is its value.

    A tensor that moves and is computed from others that move is moved by both, as in J.
    """
    found: dict[str, Any] = dict(moving)
    for step in active_steps(t.active, moving, of):
        inputs = tuple(n and found.get(n, t.values[n]) for n in step.inputs)
        first = tuple(n and t.values[n] for n in step.outputs)
        made = op.step(step, inputs, first)
        for name, y in zip(step.outputs, made, strict=True):
            if name is not None and isinstance(y, PowerSeries):
                whole = moved_twice(op, y, moving[name]) if name in moving else y
                for k in range(op.order + 1):  # in order: what follows finds them
                    whole[k]
                found[name] = whole
    return {name: found.get(name, t.values[name]) for name in of}


def moved_twice(op: Taylor, y: PowerSeries, curve: PowerSeries) -> PowerSeries:
    """A computed series that a curve from the same point is added to."""

    def make(k: int) -> Term | None:
        both = y.term(k), curve.term(k) if k else None
        return op.total(term for term in both if term is not None)

    return PowerSeries(op, y.shape, y.dtype, 0, make)


def curve(t: Trace, op: Taylor, name: str, coefficients: Mapping[int, Term]) -> PowerSeries:
    """x₀ + Σ xₖ tᵏ for a tensor x₀ of a trace."""
    x = t.values[name]
    known = {0: Term(x), **coefficients}
    return PowerSeries(op, shape_of(x), dtype_of(x), 0, known.get)


# -- along curves ----------------------------------------------------------------------------------


def jet_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, *, order: int,
) -> Trace:  # fmt: skip
    """(inputs, series of inputs) ↦ (of, series of `of`): the derivatives of order 1 … k along a
    curve, stacked on a first axis.
    """
    t = trace_flat(model, point, (*of, *wrt), engine, symbols)
    op = Taylor(t.recorder, order)
    given = [t.recorder.new((order, *shape_of(t.values[n])), dtype_of(t.values[n]), new)
             for n, new in zip(wrt, called(model, wrt, "series"), strict=True)]  # fmt: skip
    start_graph(t, given, of, wrt)
    moving = {}
    for name, whole in zip(wrt, given, strict=True):
        parts = {k: t.recorder.Gather(whole, np.array(k - 1), axis=0) for k in range(1, order + 1)}
        moving[name] = curve(t, op, name, {k: Term(x, 1 / factorial(k)) for k, x in parts.items()})
    found = series_of(t, op, moving, of)
    results = [stack_derivatives(t, op, found[name]) for name in of]
    return derived(t, called(model, of, "series"), results)


def stack_derivatives(t: Trace, op: Taylor, y: Any) -> ir.Value:
    """The derivatives y⁽ᵏ⁾ = k! yₖ on a first axis."""
    rows = []
    for k in range(1, op.order + 1):
        term = y.term(k) if isinstance(y, PowerSeries) else None
        row = zero_like(t, y) if term is None else op.whole(term.times(float(factorial(k))))
        rows.append(t.recorder.Unsqueeze(row, (0,)))
    return t.recorder.Concat(*rows, axis=0)


def zero_like(t: Trace, y: Any, lead: tuple[int, ...] = ()) -> ir.Value:
    """Zeros of the shape of a tensor, behind leading axes."""
    return t.recorder.Expand(np.zeros((), dtype_of(y)), (*lead, *shape_of(y)))


# -- along lines -----------------------------------------------------------------------------------

SLOTS = "onnxjac.slots"
"""Key of the metadata of a graph that carries few of the directions for each entry: how many."""


def lines_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, *, choose: Callable[[Trace], Mapping[str, Lines]],
) -> Trace:  # fmt: skip
    """inputs ↦ (of, sums of derivatives along lines, each under its name)."""
    t = trace_flat(model, point, (*of, *wrt), engine, symbols)
    start_graph(t, (), of, wrt)
    chosen = choose(t)
    results = [record_along(t, lines, name) for lines in chosen.values() for name in of]
    names = (name for kind in chosen for name in called(model, of, kind))
    return derived(t, tuple(names), results)


def laplacian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Trace:  # fmt: skip
    """inputs ↦ (of, Σ ∂²of/∂xᵢ² over the entries of a sample)."""

    def choose(t: Trace) -> Mapping[str, Lines]:
        return {"laplacian": laplacian_lines(unit_vectors(sample_shapes(t, of[0], wrt)), None)}

    return lines_graph(model, point, of, wrt, engine, symbols, choose=choose)


def derivative_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, *, wanted: Mapping[str, Mapping[Coordinate, int]],
) -> Trace:  # fmt: skip
    """inputs ↦ (of, a derivative for each name in `wanted`, which counts the coordinates)."""

    def choose(t: Trace) -> Mapping[str, Lines]:
        shapes = sample_shapes(t, of[0], wrt)
        return {kind: mixed_lines(coordinate_vectors(shapes, tuple(powers)), tuple(powers.values()))
                for kind, powers in wanted.items()}  # fmt: skip

    return lines_graph(model, point, of, wrt, engine, symbols, choose=choose)


def record_along(t: Trace, lines: Lines, of: str) -> ir.Value:
    """Σᵣ wᵣ dᵏf/dtᵏ of a tensor, or each of them on a first axis."""
    one = lines.count == 1 and lines.weights is not None
    samples = free_samples(t, lines)
    op = Taylor(t.recorder, lines.order,
                *((None, None) if one else (lines.count, lines.weights, samples)))  # fmt: skip
    moving = {}
    for name, vectors in lines.vectors.items():
        if vectors.any():
            moving[name] = curve(t, op, name, {1: direction(t, op, name, vectors)})
    y = series_of(t, op, moving, (of,))[of]
    if op.most_slots:
        t.said[SLOTS] = f"{max(op.most_slots, int(t.said.get(SLOTS, 0)))}"
    last = y.term(lines.order) if isinstance(y, PowerSeries) else None
    if last is None:
        return zero_like(t, t.values[of], () if lines.weights is not None else (lines.count,))
    last = op.dense(last)
    scale = factorial(lines.order) * (lines.weights[0] if one and lines.weights is not None else 1)
    return op.whole(last.times(float(scale)))


def free_samples(t: Trace, lines: Lines) -> frozenset[Atom]:
    """The free sizes of the batches of tensors that move by samples."""
    shapes = [(shape_of(t.values[name]), v) for name, v in lines.vectors.items()]
    sizes: list[Any] = [shape[0] for shape, v in shapes if len(shape) == v.ndim]
    return frozenset[Atom]().union(*(n.roots() for n in sizes if isinstance(n, SymInt)))


def direction(t: Trace, op: Taylor, name: str, vectors: np.ndarray) -> Term:
    """The directions of a tensor: (R, *its shape), or its shape where there is one."""
    x = t.values[name]
    shape, v = shape_of(x), vectors.astype(dtype_of(x))
    v = v.reshape(len(v), *(1,) * (len(shape) + 1 - v.ndim), *v.shape[1:])
    if op.directions is None:
        return Term(t.recorder.Expand(v[0], shape))
    if op.is_batched(1):
        return op.along_lines(t.recorder.Expand(v, (len(v), *shape)), v, shape)
    assert op.weights is not None  # of order 1: the sum of directions is one
    return Term(t.recorder.Expand(np.tensordot(op.weights, v, 1), shape))


def sample_shapes(t: Trace, of: str, wrt: Names) -> dict[str, tuple[int, ...]]:
    """The shapes of a sample of each tensor of `wrt`: without their first axis where each entry of
    it affects the same entry of the first axis of `of` alone, else their whole shapes.
    """
    whole = {w: shape_of(t.values[w]) for w in wrt}
    rows = shape_of(t.values[of])
    if not rows or not all(s and same(s[0], rows[0]) for s in whole.values()):
        return require_sizes(whole)
    dag = t.dag(wrt, (of,))
    (sink,) = dag.sinks
    known = layouts(dag, sink, Batch(rows[0], size(tuple(rows[1:]))))
    met = dag.behind(sink)
    parted = all(source not in met or known.get(source) == Batch(rows[0], size(whole[w][1:]))
                 for w, source in zip(wrt, dag.sources, strict=True))  # fmt: skip
    return require_sizes({w: s[1:] for w, s in whole.items()} if parted else whole)


def require_sizes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Raises `InputError` where the number of directions is open."""
    for name, shape in shapes.items():
        if is_symbolic(shape):
            raise InputError(f"{name!r} has the open shape {list(shape)}; a sum over its entries "
                             "needs their number: samples mix, or sizes are free")  # fmt: skip
    return dict(shapes)
