"""Jets: series of tensors along curves and lines, recorded step by step in the series reading.

A line x + t v gives the derivative in the direction v, of any order. Others are weighted sums of
these over several directions: the Laplacian over the axes, a mixed derivative by polarisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, factorial, prod
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, dtype_of, shape_of, size
from ...jacobians.errors import InputError
from ...jacobians.symint import Symbols, is_symbolic, same
from ...ops.series import Series, Taylor, Term
from ..linear.derivatives.record import active_steps
from ..linear.derivatives.trace import Trace, trace_model
from ..linear.derivatives.unroll import fixed, unrolled
from ..linear.elimination.samples import Batch, layouts
from ..model.primal.model import Model
from .derive import Names, called, derived, start_graph


@dataclass(frozen=True)
class Lines:
    """Σᵣ wᵣ dᵏf/dtᵏ along x + t vᵣ, of order k; without `weights`, each of them.

    `vectors` are vᵣ by the name of a tensor, (R, *the tensor without its batch axis): the same in
    every sample.
    """

    order: int
    vectors: Mapping[str, np.ndarray]
    weights: np.ndarray | None

    @property
    def count(self) -> int:
        """The number of directions."""
        return next(len(v) for v in self.vectors.values())


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


def curve(t: Trace, op: Taylor, name: str, coefficients: Mapping[int, Term]) -> Series:
    """x₀ + Σ xₖ tᵏ for a tensor x₀ of a trace."""
    x = t.values[name]
    known = {0: Term(x), **coefficients}
    return Series(op, shape_of(x), dtype_of(x), 0, known.get)


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
    results = [stacked(t, op, found[name]) for name in of]
    return derived(t, called(model, of, "series"), results)


def stacked(t: Trace, op: Taylor, y: Any) -> ir.Value:
    """The derivatives y⁽ᵏ⁾ = k! yₖ on a first axis."""
    rows = []
    for k in range(1, op.order + 1):
        term = y.term(k) if isinstance(y, Series) else None
        row = zero_like(t, y) if term is None else op.whole(term.times(float(factorial(k))))
        rows.append(t.recorder.Unsqueeze(row, (0,)))
    return t.recorder.Concat(*rows, axis=0)


def zero_like(t: Trace, y: Any, lead: tuple[int, ...] = ()) -> ir.Value:
    """Zeros of the shape of a tensor, behind leading axes."""
    return t.recorder.Expand(np.zeros((), dtype_of(y)), (*lead, *shape_of(y)))


# -- along lines -----------------------------------------------------------------------------------


def lines_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, *, choose: Callable[[Trace], Mapping[str, Lines]],
) -> Trace:  # fmt: skip
    """inputs ↦ (of, sums of derivatives along lines, each under its name)."""
    t = trace_flat(model, point, (*of, *wrt), engine, symbols)
    start_graph(t, (), of, wrt)
    chosen = choose(t)
    results = [along(t, lines, name) for lines in chosen.values() for name in of]
    names = called(model, tuple(f"{o}_{kind}" for kind in chosen for o in of), "")
    return derived(t, names, results)


def along(t: Trace, lines: Lines, of: str) -> ir.Value:
    """Σᵣ wᵣ dᵏf/dtᵏ of a tensor, or each of them on a first axis."""
    one = lines.count == 1 and lines.weights is not None
    op = Taylor(t.recorder, lines.order, *((None, None) if one else (lines.count, lines.weights)))
    moving = {}
    for name, vectors in lines.vectors.items():
        if vectors.any():
            moving[name] = curve(t, op, name, {1: Term(direction(t, op, name, vectors))})
    y = series_of(t, op, moving, (of,))[of]
    last = y.term(lines.order) if isinstance(y, Series) else None
    if last is None:
        return zero_like(t, t.values[of], () if lines.weights is not None else (lines.count,))
    scale = factorial(lines.order) * (lines.weights[0] if one and lines.weights is not None else 1)
    return op.whole(last.times(float(scale)))


def direction(t: Trace, op: Taylor, name: str, vectors: np.ndarray) -> Array:
    """The directions of a tensor: (R, *its shape), or its shape where there is one."""
    x = t.values[name]
    shape, v = shape_of(x), vectors.astype(dtype_of(x))
    v = v.reshape(len(v), *(1,) * (len(shape) + 1 - v.ndim), *v.shape[1:])
    if op.directions is None:
        return t.recorder.Expand(v[0], shape)
    if op.is_batched(1):
        return t.recorder.Expand(v, (len(v), *shape))
    assert op.weights is not None  # of order 1: the sum of directions is one
    return t.recorder.Expand(np.tensordot(op.weights, v, 1), shape)


def sample_shapes(t: Trace, of: str, wrt: Names) -> dict[str, tuple[int, ...]]:
    """The shapes of a sample of each tensor of `wrt`: without their first axis where each entry of
    it affects the same entry of the first axis of `of` alone, else their whole shapes.
    """
    whole = {w: shape_of(t.values[w]) for w in wrt}
    rows = shape_of(t.values[of])
    if not rows or not all(s and same(s[0], rows[0]) for s in whole.values()):
        return require_known(whole)
    dag = t.dag(wrt, (of,))
    (sink,) = dag.sinks
    known = layouts(dag, sink, Batch(rows[0], size(tuple(rows[1:]))))
    met = dag.behind(sink)
    parted = all(source not in met or known.get(source) == Batch(rows[0], size(whole[w][1:]))
                 for w, source in zip(wrt, dag.sources, strict=True))  # fmt: skip
    return require_known({w: s[1:] for w, s in whole.items()} if parted else whole)


def require_known(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Raises `InputError` where the number of directions is open."""
    for name, shape in shapes.items():
        if is_symbolic(shape):
            raise InputError(f"{name!r} has an open shape {list(shape)}, and a sum over its entries "
                             "needs their number: samples mix, or its sizes are free")  # fmt: skip
    return dict(shapes)


def axes_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The unit vectors of all entries, by tensor: (R, *shape), R entries in all."""
    counts = [prod(shape) for shape in shapes.values()]
    rows = np.split(np.eye(sum(counts)), np.cumsum(counts)[:-1], axis=1)
    return {name: part.reshape(len(part), *shape)
            for (name, shape), part in zip(shapes.items(), rows, strict=True)}  # fmt: skip


def combined(axes: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Directions that are combinations of others: each row has the factors of one."""
    return {name: np.tensordot(rows, v, 1) for name, v in axes.items()}


def laplacian_lines(vectors: Mapping[str, np.ndarray], weights: np.ndarray | None) -> Lines:
    """Σᵣ wᵣ vᵣᵀ H vᵣ."""
    count = next(len(v) for v in vectors.values())
    return Lines(2, vectors, np.ones(count) if weights is None else weights)


def biharmonic_lines(axes: Mapping[str, np.ndarray]) -> Lines:
    """Δ²f = Σᵢ ∂ᵢ⁴f + 2 Σ ∂ᵢ²∂ⱼ²f over i < j, with 12 ∂ᵢ²∂ⱼ²f = D⁴(eᵢ + eⱼ) + D⁴(eᵢ − eⱼ) − 2 D⁴eᵢ
    − 2 D⁴eⱼ.
    """
    n = next(len(v) for v in axes.values())
    rows, weights = [*np.eye(n)], [1 - (n - 1) / 3] * n
    for i, j in combinations(range(n), 2):
        rows += [np.eye(n)[i] + np.eye(n)[j], np.eye(n)[i] - np.eye(n)[j]]
        weights += [1 / 6, 1 / 6]
    return Lines(4, combined(axes, np.array(rows)), np.array(weights))


def mixed_lines(axes: Mapping[str, np.ndarray], powers: Sequence[int]) -> Lines:
    """∂^α f by polarisation: k! ∂^α f = Σ (−1)^|α − β| ∏ᵢ C(αᵢ, βᵢ) Dᵏf(Σᵢ βᵢ eᵢ) over β ≤ α."""
    order = sum(powers)
    if len(powers) == 1:
        return Lines(order, dict(axes), np.ones(1))
    rows, weights = [], []
    for beta in product(*(range(p + 1) for p in powers)):
        if any(beta):
            sign = (-1) ** (order - sum(beta))
            rows.append(beta)
            weights.append(sign * prod(map(comb, powers, beta)) / factorial(order))
    return Lines(order, combined(axes, np.array(rows, float)), np.array(weights))
