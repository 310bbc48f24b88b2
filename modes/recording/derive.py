"""Derive: sweeps and dense Jacobians in the graphs reading. A derivative of a model is a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, Shape, dtype_of, shape_of, size
from ...jacobians.errors import InputError
from ...jacobians.symint import Symbols, is_symbolic, same
from ...ops.graphs import Recorder
from ..linear.derivatives.trace import Trace, staying, trace_model
from ..linear.elimination.samples import Batch, layouts
from ..model.flow.contents import unique_name
from ..model.primal.evaluate import evaluate
from ..model.primal.model import Model

Names = tuple[str, ...]

Count = int | str | None
"""How many tangents there are on a leading axis: a number, or the name of a free size; None for
one without such an axis.
"""

SEVERAL = 2
"""How many there are while a free number of tangents is recorded."""


def value_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Trace:  # fmt: skip
    """inputs ↦ of."""
    t = trace_model(model, point, (*of, *wrt), engine, symbols=symbols)
    start_graph(t, (), of, wrt)
    return t


@staying
def jvp_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, count: Count = None,
) -> Trace:  # fmt: skip
    """(inputs, tangents) ↦ (of, J · tangents)."""
    t = trace_model(model, point, (*of, *wrt), engine, symbols=symbols)
    dag = t.dag(wrt, of)
    tangents = likes(t, model, wrt, "tangent", count)
    start_graph(t, tangents, of, wrt)
    products = swept(t.recorder, dag, tangents, columns_of(tangents, count))
    return derived(t, called(model, of, "tangent"), products)


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
    count: Count = None,
    convolves_samples: bool = False,
    masked: bool = True,
) -> Trace:
    """(inputs, cotangents) ↦ (of, Jᵀ · cotangents); `seeds`, if any, are constant cotangents.

    With `convolves_samples`, the graph suits the kernels of PyTorch, if only that will run it.
    Unless it is `masked`, it gives NaN where an infinite slope is left out: see `chosen`.
    """
    t = trace_model(model, point, (*of, *wrt), engine, given=given, perturbed=wrt, symbols=symbols)
    t.recorder.convolves_samples, t.masked = convolves_samples, masked
    dag = t.dag(wrt, of)
    given_later = [] if seeds is not None else likes(t, model, of, "cotangent", count)
    cotangents = given_later if seeds is None else [seeds[name] for name in of]
    start_graph(t, given_later, of, wrt)
    products = swept(t.recorder, dag.T, cotangents, columns_of(given_later, count))
    return derived(t, called(model, wrt, suffix), products)


def grad_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Trace:  # fmt: skip
    """inputs ↦ (of, ∇ of) for a scalar `of`."""
    (value,) = evaluate(model, point, of, engine=engine).values()
    seeds = {of[0]: np.ones(value.shape, value.dtype)}
    return vjp_graph(model, point, of, wrt, engine, seeds, "grad", symbols=symbols)


def hvp_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, count: Count = None,
) -> Trace:  # fmt: skip
    """(inputs, tangents) ↦ (of, ∇ of, H · tangents) for a scalar `of`."""
    first = grad_graph(model, point, of, wrt, engine, symbols)
    gradient = first.model("grad")
    both = (*of, *first.derived)
    t = jvp_graph(gradient, point, both, wrt, engine, symbols=symbols, count=count)
    t.behind = (*first.behind, *t.behind)
    products = [t.outputs.pop(name) for name in t.derived]
    return derived(t, called(gradient, wrt, "hvp"), products[len(of) :])


@staying
def hessian_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None,
) -> Trace:  # fmt: skip
    """inputs ↦ (of, dense H) for a scalar `of`: rows and columns are the tensors of `wrt`, ravelled
    one after the other.
    """
    t, slopes = gradient_traced(model, point, of, wrt, engine, symbols)
    require_one_type(t, wrt)
    rows = [all_rows(t, slope, wrt) for slope in slopes]
    sizes = [size(shape_of(t.values[w])) for w in wrt]
    blocks = [[t.recorder.Reshape(row[w], (m, n)) for w, n in zip(wrt, sizes, strict=True)]
              for row, m in zip(rows, sizes, strict=True)]  # fmt: skip
    strips = [concatenate_blocks(t.recorder, row, 1) for row in blocks]
    whole = concatenate_blocks(t.recorder, strips, 0)
    start_graph(t, (), of, wrt)
    return derived(t, called(model, of, "hessian"), [whole])


@staying
def gauss_newton_graph(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, engine: str | None,
    symbols: Symbols | None = None, count: Count = None, *, at: str,
) -> Trace:  # fmt: skip
    """(inputs, tangents) ↦ (of, Jᵀ H J · tangents), J = ∂at/∂wrt and H = ∂²of/∂at², for a scalar
    `of`.
    """
    t, slopes = gradient_traced(model, point, of, (at,), engine, symbols, wrt)
    tangents = likes(t, model, wrt, "tangent", count)
    start_graph(t, tangents, of, wrt)
    J, H, arrays = t.dag(wrt, (at,)), t.dag((at,), slopes), tangents
    for dag in (J, H, J.T):
        arrays = swept(t.recorder, dag, arrays, columns_of(tangents, count))
    return derived(t, called(model, wrt, "gauss_newton"), arrays)


def gradient_traced(
    model: Model, point: Mapping[str, Any], of: Names, at: Names, engine: str | None,
    symbols: Symbols | None, wrt: Names = (),
) -> tuple[Trace, Names]:  # fmt: skip
    """The graph of ∇ of with respect to `at`, to be differentiated, and the names of the slopes."""
    first = grad_graph(model, point, of, at, engine, symbols)
    names = (*of, *first.derived, *at, *wrt)
    t = trace_model(first.model("grad"), point, names, engine, symbols=symbols)
    t.behind = (*first.behind, *t.behind)
    return t, first.derived


def require_one_type(t: Trace, names: Names) -> None:
    """Raises `InputError` where tensors whose derivatives make one matrix differ in their types."""
    types = {name: str(dtype_of(t.values[name])) for name in names}
    if len({*types.values()}) > 1:
        listed = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
        raise InputError(f"one matrix has numbers of one type, not of {listed}: name tensors of "
                         'one type with of= and wrt=, or take mode="jacobian"')  # fmt: skip


def concatenate_blocks(op: Recorder, arrays: Sequence[Array], axis: int) -> Array:
    """One or more arrays, concatenated."""
    return op.Concat(*arrays, axis=axis) if len(arrays) > 1 else arrays[0]


def start_graph(t: Trace, inputs: Iterable[ir.Value], of: Names, wrt: Names) -> None:
    """Give the graph its outputs of the primal, and further inputs."""
    t.inputs += inputs
    t.outputs, t.wrt = ({n: t.values[n] for n in of}, [t.values[n] for n in wrt])


def derived(t: Trace, names: Names, arrays: Iterable[Array]) -> Trace:
    """The graph with what was derived as outputs of these names."""
    t.derived, t.outputs = names, t.outputs | dict(zip(names, arrays, strict=True))
    return t


def called(model: Model, names: Names, kind: str) -> Names:
    """The names of derivatives of some tensors, which no tensor of the model has."""
    taken = set(model.names)
    return tuple(unique_name(f"{name}_{kind}", taken) for name in names)


def likes(
    t: Trace, model: Model, names: Names, kind: str, count: Count = None
) -> list[ir.Value]:  # fmt: skip
    """New inputs of the shapes and dtypes of some tensors, `count` of each on a leading axis."""
    here = () if count is None else (count,) if isinstance(count, int) else (SEVERAL,)
    made = [t.recorder.new((*here, *shape_of(t.values[n])), dtype_of(t.values[n]), new)
            for n, new in zip(names, called(model, names, kind), strict=True)]  # fmt: skip
    if isinstance(count, str):
        t.recorder.open(made, {str(value.name): {0: count} for value in made})
    return made


def columns_of(seeds: Sequence[Array], count: Count) -> Shape:
    """The leading axis of seeds, if there is one."""
    return () if count is None else shape_of(seeds[0])[:1]


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
) -> Trace:  # fmt: skip
    """inputs ↦ (of, dense ∂of/∂wrt for every pair): (*of, *wrt), or (batch, *of, *wrt) for pairs
    (of, wrt) with a first axis of free size along which no operator between them mixes.
    """
    t = trace_model(model, point, (*of, *wrt), engine, symbols=symbols)
    rows: dict[tuple[str, str], Array] = {}
    for o in of:
        one = separate(t, o, wrt)
        rest = tuple(w for w in wrt if w not in one)
        for names, dense in ((one, sample_rows), (rest, all_rows)):
            if names:
                rows |= {(o, w): row for w, row in dense(t, o, names).items()}
    pairs = [(o, w) for o in of for w in wrt]
    names = called(model, tuple(f"{o}_{w}" for o, w in pairs), "jacobian")
    start_graph(t, (), of, wrt)
    return derived(t, names, [rows[pair] for pair in pairs])


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
        return {w: np.zeros(s, dag.dtype) for w, s in nothing.items()}
    unit = units(t.recorder, size(shape), dtype_of(t.values[of]))
    unit = t.recorder.Reshape(unit, (size(shape), *shape))
    rows = swept(t.recorder, dag, [t.recorder.value(unit)], (size(shape),))
    return {
        w: t.recorder.Reshape(row, (*shape, *shape_of(t.values[w])))
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
        dense[w] = op.Reshape(op.Transpose(row, perm=perm), shape)
    return dense
