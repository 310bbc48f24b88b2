"""Export: a derivative of a model as a plain ONNX model that any runtime executes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import onnx
import onnx_ir as ir

from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.errors import InputError, not_allowed, warn
from ...ops.graphs import every, nested_graphs
from ..linear.derivatives.record import has_tangent, roundings, unjoined, warn_roundings, warn_zeros
from ..linear.derivatives.trace import Trace
from ..linear.derivatives.unroll import add_initializer
from ..model.flow.conditions import GUARDS
from ..model.flow.contents import unique_name
from ..model.flow.steps import steps_needed
from ..model.loading.patterns import proto_of
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names as NamesOrNone
from ..model.primal.inputs import (
    check_inputs,
    heads_of,
    name_of,
    names_of,
    not_floating,
    optional_inputs,
)
from ..model.primal.model import Model, ModelLike, as_model
from ..recording.derive import (
    Names,
    gauss_newton_graph,
    grad_graph,
    hessian_graph,
    hvp_graph,
    jacobian_graph,
    jvp_graph,
    value_graph,
    vjp_graph,
)
from ..recording.guarded import guarded, trace_guarded
from ..taylor.lines import Coordinate, coordinates
from ..taylor.record import derivative_graph, jet_graph, laplacian_graph
from ..training.step import training_step
from .entries import sparse_jacobian_graph
from .mapped import map_over
from .opset import at_opset
from .together import as_functions

Mode = Literal[
    "value", "jvp", "vjp", "grad", "hvp", "gauss_newton", "jacobian", "sparse_jacobian", "hessian",
    "jet", "laplacian", "derivative", "training_step",
]  # fmt: skip

MODES: dict[str, Callable[..., Trace]] = {
    "value": value_graph,
    "jvp": jvp_graph,
    "vjp": vjp_graph,
    "grad": grad_graph,
    "hvp": hvp_graph,
    "gauss_newton": gauss_newton_graph,
    "jacobian": jacobian_graph,
    "sparse_jacobian": sparse_jacobian_graph,
    "hessian": hessian_graph,
    "jet": jet_graph,
    "laplacian": laplacian_graph,
    "derivative": derivative_graph,
}
JET, DERIVATIVE = "jet", "derivative"
STEP = "training_step"
SCALAR = ("grad", "hvp", "gauss_newton", "hessian")
PRODUCTS = ("jvp", "vjp", "hvp", "gauss_newton")
GAUSS_NEWTON = "gauss_newton"


@validated
def export(
    model: ModelLike,
    mode: Mode | Sequence[Mode],
    inputs: Any = None,
    *,
    of: NamesOrNone = None,
    wrt: NamesOrNone = None,
    at: str | None = None,
    tangents: Natural | str | None = None,
    vmap: NamesOrNone = None,
    engine: str | None = None,
    straight_through: bool = False,
    order: Positive | None = None,
    opset: Natural | None = None,
) -> onnx.ModelProto:
    """A derivative of the model, recorded at the point `inputs`, as an ONNX model.

    | mode | further inputs | outputs |
    |---|---|---|
    | `"value"` | | each `of` |
    | `"jvp"` | `{wrt}_tangent` | each `of`, `{of}_tangent` = J · tangents |
    | `"vjp"` | `{of}_cotangent` | each `of`, `{wrt}_cotangent` = Jᵀ · cotangents |
    | `"grad"` | | the scalar `of`, `{wrt}_grad` = ∇ of |
    | `"hvp"` | `{wrt}_tangent` | the scalar `of`, `{wrt}_grad`, `{wrt}_hvp` = H · tangents |
    | `"gauss_newton"` | `{wrt}_tangent` | the scalar `of`, `{wrt}_gauss_newton` = G · tangents |
    | `"jacobian"` | | each `of`, `{of}_{wrt}_jacobian`, dense |
    | `"sparse_jacobian"` | | each `of`, `jacobian_values`, `jacobian_rows`, `jacobian_columns` |
    | `"hessian"` | | the scalar `of`, `{of}_hessian` = H, dense |
    | `"jet"` | `{wrt}_series` = x⁽¹⁾ … x⁽ᴷ⁾ | each `of`, `{of}_series` = y⁽¹⁾ … y⁽ᴷ⁾ |
    | `"laplacian"` | | each `of`, `{of}_laplacian` = Σ ∂²of/∂xᵢ² |
    | `"derivative"` | | each `of`, `{of}_xxy` = ∂³of/∂x∂x∂y for each of `wrt` |
    | `"training_step"` | the state | the outputs, the new state |

    G = Jᵀ (∂²of/∂at²) J with J = ∂at/∂wrt, as for `gauss_newton`. H is one matrix, (n, n), and the
    sparse J one of shape (m, n): rows and columns are the tensors, ravelled one after the other in
    the order of `of` and `wrt`. The nonzeros of the sparse J are those that some point may have,
    row by row; the metadata entry `onnxjac.sparse` gives the shape, the rows and the columns as
    JSON. All sizes are fixed there.

    Series are stacked on a first axis, as many as `order`: see `jet`. A Laplacian is over the
    entries of a sample: see `laplacian`. For a derivative, `wrt` is a string of one-letter names,
    such as `"xxy"`, or a list of these, for several derivatives; `("time", "x[0]")` in the list is
    a derivative by longer names, or by entries of a sample.

    `tangents` asks for several tangents or cotangents at once, on a new first axis of these inputs
    and of their products: K of them, or a free number of this name. `vmap` names inputs that get a
    new first axis, for many points at once, as tangents and cotangents then do, and all outputs
    that depend on any of them: a Scan over the points, whatever the model.

    Several modes make one file that computes all of them. Each is an ONNX function of the domain
    `onnxjac.modes`, of its mode's name, and weights are there once.

    A `"training_step"` takes a training model, as `training_model` makes it, to an ONNX model of
    plain operators by which any runtime trains. The inputs of this model are the batch and the
    initializers that `update_binding` changes; initializers that an algorithm lists among its
    inputs, such as the learning rate, are inputs with their values as defaults. The outputs are the
    outputs of the model and of the algorithms. The metadata entry `onnxjac.update_binding` says in
    JSON which output is the new value of which initializer: for a model of `training_model`,
    `w_new` is the new value of `w`. `inputs` are an example of a batch, which may be left out;
    names stay as they are.

    - `model`: the model, as `load` gives it, or a training model.
    - `mode`: which derivative, from the table, or several of them.
    - `of`, `wrt`: what is differentiated, and by what; by default all floating outputs and inputs.
    - `at`: of `"gauss_newton"`, the tensor before the loss, such as the logits, by name; not needed
      where `with_loss` appended the loss.
    - `tangents`: how many tangents or cotangents there are: a number, or the name of a free size.
    - `vmap`: inputs of the model that get a new first axis, by name.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `order`: of `"jet"`, the highest derivative.
    - `opset`: of the result: 13 or above, for a runtime that knows no newer one, such as the opset
      of the model's file. By default it is the lowest from 21 on that the model's operators have.

    Shapes: the free dimensions of the model's inputs stay free. Where a rule decides by a size or
    by an integer of the point, the result holds where the decision is the same: one
    `OnnxJacWarning` and the metadata entry `onnxjac.guards` list these conditions. Where a rule
    needs a size as a number, the size at the point is fixed, and an `OnnxJacWarning` names the
    operator and the inputs; the metadata entry `onnxjac.fixed` lists these sizes.

    Control flow stays control flow: the derivative of an If is an If, and the derivative of a Loop
    or Scan is a Scan over the states of all turns, so that other points may take other branches and
    turns. A loop is unrolled for the point, with an `OnnxJacWarning`, where a shape changes from
    turn to turn, a state is a sequence or a body draws random numbers.

    Where an unrolled loop or branch, a shape or a rule depends on numbers of the point, the tensors
    with these numbers become constants. One `OnnxJacWarning` and the metadata entry `onnxjac.held`
    name them; inputs among them are no inputs of the result. Weights and intermediates that
    `inputs` gives become constants too, but an initializer that the file lists among its inputs is
    an input, with the given value as its default. A sample that a random operator drew is a
    constant.

    A dense Jacobian is per sample, (batch, *of, *wrt), where `of` and `wrt` have the same free
    dimension as their first axis and no operator between them mixes samples along it; else
    (*of, *wrt). Weights keep their names; other names become valid C identifiers.

    Raises `InputError` for an unknown mode or name, for a gradient of several numbers, for a tensor
    that is not floating, for an option that the mode does not have, for an opset without the
    operators of the result, and for a binding of a training
    model that does not fit; `UnsupportedOp` for an operator without a rule.
    """
    modes = modes_of(mode)
    if STEP in modes:
        if len(modes) > 1 or (of, wrt, at, tangents, vmap) != (None,) * 5:
            raise InputError(f"mode={STEP!r} takes the model and inputs= alone: the training model "
                             "says what is differentiated")  # fmt: skip
        step = training_step(model, inputs)
        return step if opset is None else at_opset(step, opset)
    check_options(modes, at, tangents, order)
    wanted = derivatives_by_name(modes, wrt)
    wrt = [*dict.fromkeys(n for powers in wanted.values() for n, _ in powers)] if wanted else wrt
    model = as_model(model, of, at, wrt=wrt, straight_through=straight_through)
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    middle = tensor_before_loss(model, at, of_names) if GAUSS_NEWTON in modes else None
    point: Mapping[str, Any] = check_inputs(model, {} if inputs is None else inputs)
    mapped = mapped_names(model, vmap)
    given = {name: point[name] for name in optional_inputs(model) & point.keys()}
    behind = wrt_names if middle is None else (*wrt_names, middle)
    literal = model.literal((*behind, *point))
    model, point = freeze_model(literal, point, (*of_names, *behind), given)
    require_floating(model, point, of_names, behind)
    made = dict[str, onnx.ModelProto]()
    for kind in modes:
        if kind in SCALAR:
            require_scalar(model, point, of_names, kind)
        more: dict[str, Any] = {"at": middle} if kind == GAUSS_NEWTON else {}
        if tangents is not None and kind in PRODUCTS:
            more["count"] = tangents
        more |= {"order": order} if kind == JET else {"wanted": wanted} if wanted else {}
        make = partial(MODES[kind], model, of=of_names, wrt=wrt_names, engine=engine, **more)
        t, symbols = trace_guarded(model, point, make)
        warn_of_cuts(t, of_names)
        recorded = guarded(t, symbols, f"{model.name or 'model'}_{kind}", given).ir
        if mapped:
            map_points(recorded, model, mapped)
        rename(recorded.graph)
        proto = proto_of(recorded)
        made[kind] = proto if opset is None else at_opset(proto, opset)
    return made[modes[0]] if len(modes) == 1 else as_functions(made, model.initializers)


def modes_of(mode: Any) -> tuple[str, ...]:
    """The modes, each once; raises `InputError` for one that there is not."""
    several = isinstance(mode, Sequence) and not isinstance(mode, str)
    modes = tuple(dict.fromkeys(mode)) if several else (mode,)
    for kind in modes or (mode,):
        if kind not in (*MODES, STEP):
            raise not_allowed("mode", kind, [*MODES, STEP])
    return modes


def mapped_names(model: Model, vmap: NamesOrNone) -> Names:
    """The inputs that get a new first axis."""
    names = (vmap,) if isinstance(vmap, str) else tuple(vmap or ())
    for name in names:
        if name not in model.inputs:
            raise InputError(f"vmap={name!r} is no input of the model: {[*model.inputs]}")
    return names


def map_points(recorded: ir.Model, model: Model, names: Names) -> None:
    """Give inputs a new first axis, and all inputs that the model does not have."""
    graph, held = recorded.graph, recorded.metadata_props.get(GUARDS)
    if held:
        raise InputError("vmap= needs a derivative that holds at all points, this one holds where "
                         f"{', '.join(held.splitlines())}")  # fmt: skip
    new = {str(value.name) for value in graph.inputs} - model.inputs.keys()
    gone = {*names} - {value.name for value in graph.inputs}
    if gone:
        raise InputError(f"vmap={sorted(gone)} became constants of the derivative")
    map_over(graph, {*names, *new - {*graph.initializers}})


def derivatives_by_name(modes: Names, wrt: Any) -> dict[str, Mapping[Coordinate, int]]:
    """The derivatives that `wrt` names, each with what it is by."""
    if DERIVATIVE not in modes:
        return {}
    if len(modes) > 1 or not wrt:
        raise InputError(f"mode={DERIVATIVE!r} stands alone, and needs wrt=: 'xx', or ['t', 'xx']")
    named = [wrt] if isinstance(wrt, str) else wrt
    return {re.sub(r"\W+", "_", "_".join([text] if isinstance(text, str) else text)).strip("_"):
            coordinates(text) for text in named}  # fmt: skip


def check_options(
    modes: Collection[str], at: str | None, tangents: int | str | None, order: int | None
) -> None:
    """Raises `InputError` for an option that none of the modes has."""
    if (order is None) == (JET in modes):
        raise InputError(f"order={order} goes with mode={JET!r}, which needs it, not with "
                         f"{quoted(modes)}")  # fmt: skip
    if at is not None and GAUSS_NEWTON not in modes:
        raise InputError(f"at={at!r} goes with mode={GAUSS_NEWTON!r}, not with {quoted(modes)}")
    if tangents is not None and {*PRODUCTS}.isdisjoint(modes):
        raise InputError(f"tangents={tangents!r} goes with {quoted(PRODUCTS)}, "
                         f"not with {quoted(modes)}")  # fmt: skip


def quoted(modes: Iterable[str]) -> str:
    """Modes, for a message."""
    return ", ".join(map(repr, modes))


def tensor_before_loss(model: Model, at: str | None, of: Names) -> str:
    """The tensor before the loss."""
    found = name_of(model, at, heads_of(model), "at")
    if found in of:
        raise InputError(f"at={found!r} is the loss itself, and ∂²of/∂at² is 0: name with at= the "
                         "tensor from which the loss is computed, such as the logits")  # fmt: skip
    return found


def warn_of_cuts(t: Trace, of: Names) -> None:
    """Warn of pairs of tensors that no path joins, and of roundings that cut some of the paths."""
    first = [(dag, *ends) for ends, dag in t.known.items() if {*of}.issuperset(ends[1])]
    zeros = (unjoined(t.active, dag, wrt, ends) for dag, wrt, ends in first)
    warn_zeros(tuple(dict.fromkeys(pair for pairs in zeros for pair in pairs)))
    rounded = (roundings(t.active, dag, wrt, ends, lambda _: False) for dag, wrt, ends in first)
    warn_roundings(next(filter(None, rounded), ""))


def freeze_model(
    model: Model, point: Mapping[str, Any], names: Names, free: Collection[str]
) -> tuple[Model, Mapping[str, Any]]:
    """The model with given weights and intermediates as constants, those that are `free` as inputs,
    and the inputs.
    """
    given = [name for name in point if name not in model.inputs]
    if not given:
        return model, point
    unread = (
        steps_needed(model.steps, names)[1] - steps_needed(model.steps, names, given)[1] - {*names}
    )
    copy = model.ir.clone()
    values = ir.convenience.create_value_mapping(copy.graph, include_subgraphs=False)
    for name in given:
        old = values[name]
        copy.graph.initializers.pop(name, None)
        if name in free:
            old.const_value = None
            copy.graph.inputs.append(old)
            continue
        old.name = None
        held = add_initializer(copy.graph, name, point[name])
        ir.convenience.replace_all_uses_with(old, held, replace_graph_outputs=True)
    gone = [value for value in copy.graph.inputs if value.name in unread]
    for value in gone:
        copy.graph.inputs.remove(value)
    if gone:
        listed = ", ".join(repr(value.name) for value in gone)
        warn(f"no input any more, as what is computed from it is given: {listed}")
    made = Model(copy, model.limits)
    return made, {name: x for name, x in point.items() if name in made.inputs}


def require_floating(model: Model, point: Mapping[str, Any], of: Names, wrt: Names) -> None:
    """Raises `InputError` for a value without a tensor type, such as a sequence."""
    for role, names in (("of", of), ("wrt", wrt)):
        for name in names:
            if model.spec(name).dtype is None:
                (value,) = evaluate(model, point, [name]).values()
                if not has_tangent(value):
                    raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))


def require_scalar(model: Model, point: Mapping[str, Any], of: Names, mode: str) -> None:
    """Raises `InputError` where the gradient of several numbers is asked for."""
    values = evaluate(model, point, of)
    if len(of) != 1 or values[of[0]].size != 1:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in values.items())
        raise InputError(f"mode={mode!r} needs one scalar output, not {shapes}: name it with of=")


def rename(graph: ir.Graph) -> None:
    """Give every value a name that is a valid and unique C identifier; weights keep theirs, but
    for those that an output repeats.
    """
    inside = [value for body in nested_graphs(graph) for value in body.inputs]
    made = [*inside, *(value for node in every(graph) for value in node.outputs)]
    weights = graph.initializers.values()
    taken = {*graph.initializers} - {v.name for v in made if v.name}
    named = (*graph.inputs, *made, *weights)
    values = {id(v): v for v in named if v.name and v.name not in taken}
    for value in values.values():
        name = unique_name(identifier(value.name or ""), taken)
        if name != value.name:
            value.name = name


def identifier(name: str) -> str:
    """The name with every other character than letters, digits and _ replaced.

    >>> identifier("gpu_0/conv.weight"), identifier("0.weight")
    ('gpu_0_conv_weight', '_0_weight')
    """
    plain = re.sub(r"[^0-9A-Za-z_]", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain
