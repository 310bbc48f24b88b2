"""Jet: the derivatives of a model along a curve, to any order, in one pass of Taylor mode."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from ...jacobians import dtype_of, shape_of
from ...jacobians.arguments import validated
from ...jacobians.arrays import as_array
from ...jacobians.errors import InputError
from ...jacobians.readings import library_of, module_of, runs_on
from ..forward import Tensors
from ..linear.derivatives.route import signature_of
from ..linear.derivatives.trace import Trace
from ..model.primal.evaluate import evaluate, own_memory
from ..model.primal.inputs import Names, check_inputs, check_named, fitting, hosted, names_of
from ..model.primal.model import Model, ModelLike, as_model
from ..recording.guarded import shared
from .record import SLOTS, jet_graph


@validated
def jet(
    model: ModelLike, primals: Mapping[str, Any], series: Mapping[str, Any], *,
    of: Names = None, engine: str | None = None,
) -> tuple[Tensors, dict[str, Any]]:  # fmt: skip
    """y = f(x), and y⁽ᵏ⁾ = dᵏ/dtᵏ f(x(t)) at t = 0 for k = 1 … K along a curve x(t), both by name.

    `series` has x⁽¹⁾, x⁽²⁾ … x⁽ᴷ⁾ of each tensor that moves, one after the other: an array
    (K, *shape of x) or a list of arrays of x's shape. What a tensor has less than the longest is
    zero, so that {"x": [v]} beside {"p": [a, b, c]} moves x on a line. All other tensors stay. The
    work is O(K²) products of the model, not 2ᴷ. Control flow is unrolled at the point.

    - `model`: the model, as `load` gives it.
    - `primals`: the point, an array by name for every input; weights may be given too.
    - `series`: the derivatives of the curves, by name of input, initializer or intermediate.
    - `of`: the tensors that are differentiated, by name; by default all floating outputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: y⁽ᵏ⁾ of all orders are one array, (K, *shape of y). Raises `InputError` where a name or
    a shape does not fit, and `UnsupportedOp` for an operator without a rule.

    Source: A. Griewank and A. Walther, Evaluating Derivatives (2008), chapter 13. As in JAX,
    derivatives are not divided by k!.

    >>> import numpy as np, onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[n] x) => (double[n] y) { y = Sin(x) }''')
    >>> y, rows = jet(model, {"x": np.zeros(1)}, {"x": [np.ones(1), np.zeros(1), np.zeros(1)]})
    >>> rows["y"].ravel().tolist()
    [1.0, 0.0, -1.0]
    """
    check_named(series)
    model = as_model(model, of, wrt=tuple(series))
    of_names = names_of(model, of, model.outputs, "of")
    wrt = names_of(model, tuple(series), model.inputs, "series")
    point = check_inputs(model, primals, keep=False, engine=engine)
    curves = same_order({name: stacked_rows(name, series[name], engine) for name in wrt})
    order = len(next(iter(curves.values())))
    make = partial(jet_graph, of=of_names, wrt=wrt, engine=engine, order=order)
    graph = recorded(model, point, ("jet", of_names, wrt, order), make, engine)
    entered = [name for name in graph.inputs if name not in point]
    moved = {new: fitting(graph.inputs[new], rows, dtype_of(graph.inputs[new]))
             for new, rows in zip(entered, curves.values(), strict=True)}  # fmt: skip
    values = run_recorded(graph, {**point, **moved}, engine)
    primal = {name: values[name] for name in of_names}
    found = [y for name, y in values.items() if name not in primal]
    return primal, dict(zip(of_names, found, strict=True))


def stacked_rows(name: str, rows: Any, engine: str | None) -> Any:
    """The derivatives of one curve as one array, of the library that an engine computes with."""
    if isinstance(rows, Sequence) and rows and all(runs_on(engine, row) for row in rows):
        rows = module_of(rows[0]).stack(tuple(rows))
    try:
        return rows if runs_on(engine, rows) else as_array(rows)
    except InputError as error:
        raise InputError(f"the series for {name!r} must be arrays of its shape: {error}") from error


def same_order(curves: Mapping[str, Any]) -> dict[str, Any]:
    """The curves to the longest order, with zeros."""
    order = max((shape_of(rows)[0] if shape_of(rows) else 0 for rows in curves.values()), default=0)
    if not order:
        raise InputError("series= needs one derivative at least: {'x': [v]} moves x along v")
    made = dict[str, Any]()
    for name, rows in curves.items():
        short, xp = order - sum(shape_of(rows)[:1]), module_of(rows)
        made[name] = xp.concatenate([rows, *[xp.zeros_like(rows[:1])] * short]) if short else rows
    return made


# -- recorded once for all points of the same shapes -----------------------------------------------


def recorded(
    model: Model, point: Mapping[str, Any], key: Hashable, make: Callable[..., Trace],
    engine: str | None, batch: frozenset[str] = frozenset(),
) -> Model:  # fmt: skip
    """The graph from `make`, as a model; it is cached if it holds at all points of these shapes.

    Free sizes `batch` stay free where the graph has slots: slots are the same for every sample.
    """
    known, shapes = model.cache["gradient"], signature_of(point)
    whole = key, shapes, engine
    if shapes is not None and whole in known:
        return cast(Model, known[whole])
    if not all(library_of(x).knows(x) for x in point.values()):
        raise InputError("a derivative is recorded where numbers are known: take it once outside "
                         "of jit, with inputs of these names and shapes")  # fmt: skip
    make = partial(make, model, hosted(point))
    t, is_general = shared(model, make, batch)
    if batch and not (is_general and SLOTS in t.said):
        t, is_general = shared(model, make)
    made = t.model("jet")
    if is_general and shapes is not None:
        known[whole] = made
    return made


def run_recorded(graph: Model, inputs: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """The outputs of a recorded graph, in their order."""
    given = {name: inputs[name] for name in graph.inputs}
    names = tuple(graph.outputs)
    engine = None if engine == "onnxruntime" else engine  # NumPy has the kernels it lacks
    found = own_memory(evaluate(graph, given, names, engine=engine), given)
    return {name: found[name] for name in names}
